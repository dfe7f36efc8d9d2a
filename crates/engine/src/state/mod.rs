//! State of one partition.

pub mod backlog;
pub mod current_record;
pub mod set_aside;
pub mod view;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use imbl::OrdMap;
use serde::{Deserialize, Serialize};
use tidemill_docs::{Store, StoreLimits};
use tidemill_log::disk::Disk;
use tidemill_rules::{Executor, Program, Trace, TraceLimits};
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use crate::api::LedgerCounts;
use crate::app::settings::Settings;
use crate::commit::{Decision, Decisions, SessionWrites, SharedCommits, TransactionId};
use crate::dedupe::{Dedupe, time_in_id};
use crate::deployment::Deployment;
use crate::digest::EffectDigest;
use crate::entry::ArrivalKind;
use crate::queries::runtime::{QueryRuntimes, QueryState};

/// The state of a partition: everything that its log records have made so far.
pub struct PartitionState {
    /// The partition.
    pub partition: PartitionId,
    /// Documents.
    pub store: Store,
    /// Ids seen, by stream; only streams with an `id`.
    pub dedupe: BTreeMap<String, Dedupe>,
    /// The fields that those ids are made of.
    pub id_fields: BTreeMap<String, Vec<String>>,
    /// The one of them that is the time of the events.
    pub id_times: BTreeMap<String, String>,
    /// Position up to which each source has been applied.
    pub sources: Arc<BTreeMap<String, u64>>,
    /// Epoch of the node that reads the sources, 0 before one of a cluster has claimed them.
    pub source_epoch: u64,
    /// For each other partition the last of its records whose emitted events were applied here.
    pub provenance: BTreeMap<u32, Offset>,
    /// The same for events that came for the queries here alone.
    pub forwarded: BTreeMap<u32, Offset>,
    /// The same for parts of transactions.
    pub transactions: BTreeMap<u32, Offset>,
    /// Order of the last transaction that this partition has ordered.
    pub transaction_order: i64,
    /// Rows that went to other partitions and came from them.
    pub transfers: Arc<TransferCounts>,
    /// State of the queries.
    pub query_state: QueryState,
    /// Rows in and out, by stream.
    pub ledger: OrdMap<Arc<str>, LedgerCounts>,
    /// Rules: scratch and counters.
    pub executor: Executor,
    /// Trace from which `why` explains events.
    pub trace: Trace,
    /// Decisions on transactions of several partitions.
    pub decisions: Decisions,
    /// By other partition, the offset in its log of the last transaction that both have committed.
    pub shared_commits: SharedCommits,
    /// The last writes of client sessions.
    pub sessions: SessionWrites,
    /// The next record to apply.
    pub next: Offset,
    /// The latest time of a record so far. It is the time of each record whose own is earlier, because the times of a log in another
    /// system may go back.
    pub time: Timestamp,
    /// Digest of the effects so far, if the process computes it.
    pub digest: Option<Box<EffectDigest>>,
}

/// Rows of events that a partition emitted into others, and that it took from others, by partition. What one sent
/// must be what the other received and what is on its way: the ledger compares them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TransferCounts {
    /// Rows emitted, by the partition that they belong to.
    pub sent: BTreeMap<u32, u64>,
    /// Rows taken, by the partition that emitted them; repetitions are not counted.
    pub received: BTreeMap<u32, u64>,
}

impl PartitionState {
    /// Returns for each other partition the last of its records whose emissions of a kind were applied here.
    pub fn arrived(&self, kind: ArrivalKind) -> &BTreeMap<u32, Offset> {
        match kind {
            ArrivalKind::Stored => &self.provenance,
            ArrivalKind::Forwarded => &self.forwarded,
            ArrivalKind::Transaction => &self.transactions,
        }
    }

    /// Returns whether what follows from a record of another partition was applied here.
    pub fn has_arrived(&self, kind: ArrivalKind, (from, offset): (PartitionId, Offset)) -> bool {
        self.arrived(kind).get(&from.0).is_some_and(|last| *last >= offset)
    }

    /// Notes that what follows from a record of another partition is applied here. Returns false if it was before.
    pub fn note_arrival(&mut self, kind: ArrivalKind, cause: (PartitionId, Offset)) -> bool {
        let is_new = !self.has_arrived(kind, cause);
        if is_new {
            let arrived = match kind {
                ArrivalKind::Stored => &mut self.provenance,
                ArrivalKind::Forwarded => &mut self.forwarded,
                ArrivalKind::Transaction => &mut self.transactions,
            };
            arrived.insert(cause.0.0, cause.1);
        }
        is_new
    }

    /// The state before the first record.
    pub fn new(deployment: &Deployment, partition: PartitionId) -> Result<Self> {
        let Deployment { program, queries, settings, .. } = deployment;
        Self {
            partition,
            store: Store::new(store_limits(settings)),
            dedupe: BTreeMap::new(),
            id_fields: BTreeMap::new(),
            id_times: BTreeMap::new(),
            sources: Arc::default(),
            source_epoch: 0,
            provenance: BTreeMap::new(),
            forwarded: BTreeMap::new(),
            transactions: BTreeMap::new(),
            transaction_order: 0,
            transfers: Arc::default(),
            query_state: QueryState::new(queries, partition),
            ledger: OrdMap::new(),
            executor: Executor::new(program),
            trace: new_trace(settings),
            decisions: Decisions::new(),
            shared_commits: SharedCommits::default(),
            sessions: SessionWrites::default(),
            next: Offset(0),
            time: Timestamp(i64::MIN),
            digest: None,
        }
        .prepare_for_app(program, settings)?
        .prepare_tables(deployment)
    }

    /// Notes the decision on a transaction of several partitions.
    pub fn decide(&mut self, id: TransactionId, decision: Decision) {
        self.shared_commits.note(self.partition, &decision);
        self.decisions.insert(id, decision);
    }

    /// Creates the collections that queries have as tables.
    ///
    /// Errors: `Conflict` if one of them has documents where the queries do not see them.
    pub fn prepare_tables(mut self, deployment: &Deployment) -> Result<Self> {
        deployment.queries.document_tables.prepare(&mut self.store)?;
        Ok(self)
    }

    /// Calls `work` with the queries, whose tables read and change the documents of the partition.
    pub fn with_queries<T>(&mut self, work: impl FnOnce(&mut QueryRuntimes) -> T) -> T {
        let Self { store, query_state, .. } = self;
        let runtimes = query_state.get_mut();
        runtimes.documents.exchange(store);
        let done = work(runtimes);
        runtimes.documents.exchange(store);
        done
    }

    /// Calls `look` with the queries between two batches of the owner; their tables see the documents of the partition.
    pub fn read_queries<T>(&self, look: impl FnOnce(&mut QueryRuntimes) -> T) -> T {
        self.query_state.with_runtimes(|runtimes| {
            runtimes.documents.set_snapshot(Some(self.store.snapshot()));
            let found = look(runtimes);
            runtimes.documents.set_snapshot(None);
            found
        })
    }

    /// Sets whether the digest of effects is computed. Without one in the checkpoint it begins here.
    pub fn compute_digest(&mut self, on: bool) {
        self.store.digest_writes(on);
        self.digest =
            on.then(|| self.digest.take().unwrap_or_else(|| Box::new(EffectDigest::new(self.next))));
    }

    /// Makes room for what the app declares: collections, indexes, dedupe sets. What a stream remembers of ids made of
    /// other fields is forgotten; a stream that the app does not name keeps what it remembers.
    pub fn prepare_for_app(mut self, program: &Program, settings: &Settings) -> Result<Self> {
        for spec in program.collections() {
            self.store.declare_collection(spec)?;
        }
        let entities = program.entities().iter();
        self.store.set_entity_keys(entities.map(|entity| (entity.name.as_str(), entity.key.as_str())));
        for stream in program.streams() {
            let fields: Vec<String> = stream.id.iter().map(|i| stream.fields[*i].name.clone()).collect();
            let other = self.id_fields.get(&stream.name).is_some_and(|made_of| *made_of != fields);
            if other || fields.is_empty() {
                self.dedupe.remove(&stream.name);
                self.id_fields.remove(&stream.name);
            }
            if !fields.is_empty() {
                self.dedupe.entry(stream.name.clone()).or_insert_with(|| Dedupe::new(settings.dedupe_ids));
                let time = time_in_id(stream).map(|at| fields[at].clone());
                let former = match time {
                    Some(time) => self.id_times.insert(stream.name.clone(), time),
                    None => self.id_times.remove(&stream.name),
                };
                // Another field is the time now: what is known of the times of former ids would mislead.
                if former.as_ref() != self.id_times.get(&stream.name)
                    && let Some(ids) = self.dedupe.get_mut(&stream.name)
                {
                    ids.forget_times();
                }
                self.id_fields.insert(stream.name.clone(), fields);
            }
        }
        Ok(self)
    }

    /// Opens the ids of events that are not in memory, below the data directory `data`.
    ///
    /// Errors: `Corrupt` naming a file that is missing or damaged; `Unavailable`.
    pub fn open_id_runs(&mut self, disk: &Arc<dyn Disk>, data: &Path) -> Result<()> {
        let dir = data.join("ids").join(format!("p{:05}", self.partition.0));
        self.dedupe.iter_mut().try_for_each(|(stream, ids)| ids.open_runs(disk.clone(), dir.join(stream)))
    }

    /// Checks that all ids could be looked up.
    ///
    /// Errors: why not; what was applied since then may have duplicates.
    pub fn check_ids(&self) -> Result<()> {
        let failed = self.dedupe.iter().find_map(|(stream, ids)| Some((stream, ids.failure()?)));
        match failed {
            None => Ok(()),
            Some((stream, error)) => Err(Error::new(
                error.kind(),
                format!("ids of {stream} cannot be looked up: {}", error.message()),
            )),
        }
    }

    /// The ledger line of `stream`.
    pub fn ledger_entry(&mut self, stream: &str) -> &mut LedgerCounts {
        // entry() would allocate a key for each batch
        if !self.ledger.contains_key(stream) {
            self.ledger.insert(stream.into(), LedgerCounts::default());
        }
        self.ledger.get_mut(stream).expect("inserted above")
    }
}

pub fn new_trace(settings: &Settings) -> Trace {
    Trace::new(TraceLimits { events_max: settings.why_events, ..TraceLimits::default() })
}

/// Bounds of the documents of a partition.
pub fn store_limits(settings: &Settings) -> StoreLimits {
    StoreLimits { store_bytes_max: settings.documents_bytes(), ..StoreLimits::default() }
}
