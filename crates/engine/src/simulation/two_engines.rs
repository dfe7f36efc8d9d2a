//! Two engines that share a log and a store of tables and state, between which partitions move.
//!
//! A move is graceful, or by force while the former owner continues for a while, as one does that is cut off. Engines are killed, and
//! the store fails at random. The log is outside of the engines, so what it has acknowledged stays. Sinks deliver events to a system that is down
//! at times.
//!
//! With standbys, both engines apply all partitions, and a move is a change of roles. Each of them alone must then have the whole outcome. Sinks
//! get events from the owner alone; a standby keeps them until the owner says in the log that they are delivered.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bson::raw::RawDocument;
use crossbeam_channel::{Receiver, TryRecvError};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_docs::{CollectionSpec, DocBytes, DocumentCommand, Store, TransactionWrites, get_path};
use tidemill_flow::Connectors;
use tidemill_log::disk::Disk;
use tidemill_log::sim_disk::SimDisk;
use tidemill_log::{Durability, Log, LogClock, MemoryLog};
use tidemill_types::{Error, ErrorKind, Offset, PartitionId, Result, Value};
use tidemill_zones::ObjectDirectory;
use tidemill_zones::sim_store::FaultyStore;
use url::Url;

use super::deliveries::Deliveries;
use super::digests::DigestAudit;
use super::engine::{PARTITIONS, SimClock, SimEngine, app_with_sinks, is_timed};
use super::model::{self, Order};
use super::outcome;
use super::outside::{AT_LEAST_ONCE, EXACTLY_ONCE};
use super::placement::Placement;
use super::shared_log::SharedLog;
use crate::api::{BodyFormat, SendOptions};
use crate::app::settings::Settings;
use crate::apply::ApplyReply;
use crate::commit::{CommitBoard, TransactionId, TransactionPart};
use crate::delivery;
use crate::deploy;
use crate::directory::datadir::DataDir;
use crate::directory::environment::{Environment, LogProvider, OpenedLog, SharedPartitions, TableStore};
use crate::directory::partition_store::PartitionStore;
use crate::directory::partitioning::Partitioning;
use crate::directory::tables_location;
use crate::documents::snapshot::DocumentSnapshot;
use crate::entry::Entry;
use crate::ingest::sending;
use crate::jobs;
use crate::jobs::timers;
use crate::lifecycle::{opening, ownership};
use crate::node::Node;
use crate::partition::{Partition, PendingReply};
use crate::process::clock::Clock;
use crate::shared_state::{ObjectPartitionStore, StateOwner};

/// Number of accounts between which amounts move.
const ACCOUNTS: i64 = 6;
/// First balance of an account.
const BALANCE: i64 = 100;
/// Number of documents that commands count in.
const COUNTERS: i64 = 8;
/// Rounds after which engines that still have work are taken for ones that never end.
const ROUNDS_MAX: usize = 10_000;

/// Report of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MovesReport {
    /// Different events acknowledged.
    pub acknowledged: u64,
    /// Events stored at the end, over all streams.
    pub stored: u64,
    /// Partitions that their owner gave up for the next one.
    pub graceful: u64,
    /// Partitions that were taken from an owner which continued.
    pub forced: u64,
    /// Owners that learned from a table that they had lost a partition.
    pub fenced: u64,
    /// Standbys that became owners.
    pub promoted: u64,
    /// Standbys that could not, or had stopped, and were given up.
    pub unfollowed: u64,
    /// Transactions of several partitions.
    pub transactions: u64,
    /// Commands that the owner answered.
    pub answered: u64,
    /// Reads of all partitions by one engine.
    pub reads: u64,
    /// Commands and reads that were refused, as a partition had no owner that answered.
    pub refused: u64,
    /// Engines killed.
    pub kills: u64,
    /// Checkpoints published.
    pub checkpoints: u64,
    /// Events that came to a system outside, over all sinks.
    pub delivered: u64,
    /// Events among them that came again, as their owner could not know that they had come.
    pub delivered_again: u64,
    /// Deliveries of former owners that the system refused.
    pub refused_deliveries: u64,
    /// Records that were applied again, with the same effects.
    pub repeated: u64,
    /// Audits passed.
    pub audits: u64,
}

impl MovesReport {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.stored += other.stored;
        self.graceful += other.graceful;
        self.forced += other.forced;
        self.fenced += other.fenced;
        self.promoted += other.promoted;
        self.unfollowed += other.unfollowed;
        self.transactions += other.transactions;
        self.answered += other.answered;
        self.reads += other.reads;
        self.refused += other.refused;
        self.kills += other.kills;
        self.checkpoints += other.checkpoints;
        self.delivered += other.delivered;
        self.delivered_again += other.delivered_again;
        self.refused_deliveries += other.refused_deliveries;
        self.repeated += other.repeated;
        self.audits += other.audits;
    }
}

/// One kind of step.
#[derive(Debug, Clone, Copy)]
enum Step {
    Send,
    Transfer,
    Count,
    Read,
    Apply,
    Forward,
    Flush,
    Consolidate,
    Checkpoint,
    Timers,
    Advance,
    StoreFaults,
    Release,
    Force,
    Learn,
    Tend,
    Kill,
    Audit,
}

const STEPS: [(Step, u32); 17] = [
    (Step::Send, 30),
    (Step::Transfer, 25),
    (Step::Count, 10),
    (Step::Read, 15),
    (Step::Apply, 40),
    (Step::Forward, 25),
    (Step::Flush, 8),
    (Step::Consolidate, 4),
    (Step::Checkpoint, 4),
    (Step::Timers, 2),
    (Step::Advance, 4),
    (Step::StoreFaults, 2),
    (Step::Release, 6),
    (Step::Force, 5),
    (Step::Learn, 8),
    (Step::Kill, 1),
    (Step::Audit, 1),
];

/// Weight of [`Step::Tend`] beside the others. Without standbys, seeds take the steps that they took before there were any.
const TEND: (Step, u32) = (Step::Tend, 8);

struct LogOutside(Arc<MemoryLog>);

impl LogProvider for LogOutside {
    fn open(&self, _: &Path, _: &Settings, _: u32, _: &Arc<dyn Clock>) -> Result<OpenedLog> {
        Ok(OpenedLog { log: Arc::new(SharedLog::new(self.0.clone())), warnings: Vec::new() })
    }
}

/// Commands on counters.
#[derive(Default)]
struct Counters {
    /// Those without an answer so far.
    waiting: Vec<(i64, Receiver<Result<ApplyReply>>)>,
    /// Number of commands that are in the log, by counter.
    appended: BTreeMap<String, i64>,
}

/// The devices, the engines, who owns what, and what users know.
pub struct TwoEngines {
    rng: StdRng,
    disk: SimDisk,
    store: Arc<FaultyStore>,
    clock: Arc<SimClock>,
    log: Arc<MemoryLog>,
    shared: SharedPartitions,
    /// Each engine applies all partitions.
    standbys: bool,
    digests: Arc<DigestAudit>,
    timed: bool,
    engines: [Option<SimEngine>; 2],
    placement: Arc<Placement>,
    deliveries: Deliveries,
    epoch: u64,
    counters: Counters,
    sent: BTreeMap<String, Order>,
    acknowledged: BTreeSet<String>,
    report: MovesReport,
}

impl TwoEngines {
    pub fn new(seed: u64, standbys: bool) -> Self {
        let clock = SimClock::new();
        let time = clock.clone();
        let log = MemoryLog::new(PARTITIONS).with_clock(LogClock::new(move || time.now()));
        Self {
            rng: StdRng::seed_from_u64(seed),
            disk: SimDisk::default(),
            store: FaultyStore::over(Arc::new(object_store::memory::InMemory::new())),
            clock,
            log: Arc::new(log),
            shared: SharedPartitions { commits: Arc::new(CommitBoard::keeping()), origin: None },
            standbys,
            digests: Arc::default(),
            timed: is_timed(seed),
            engines: [None, None],
            placement: Arc::default(),
            deliveries: Deliveries::new(seed),
            counters: Counters::default(),
            epoch: 1_000,
            sent: BTreeMap::new(),
            acknowledged: BTreeSet::new(),
            report: MovesReport::default(),
        }
    }

    /// Runs `steps` steps, then a last audit.
    pub fn run(mut self, steps: usize) -> Result<MovesReport, String> {
        for engine in 0..2 {
            self.start(engine)?;
        }
        self.create_counters().map_err(|e| e.to_string())?;
        let tend = self.standbys.then_some(TEND);
        let kinds: Vec<(Step, u32)> = STEPS.into_iter().chain(tend).collect();
        for number in 0..steps {
            let step = super::choose(&mut self.rng, &kinds).unwrap_or(Step::Apply);
            self.step(step).map_err(|e| format!("step {number} ({step:?}): {e}"))?;
            self.deliveries.step(&[self.node(0), self.node(1)], &self.placement);
        }
        self.audit().map_err(|e| format!("last audit: {e}"))?;
        self.report.acknowledged = self.acknowledged.len() as u64;
        for engine in 0..2 {
            self.close_books(engine);
        }
        Ok(self.report)
    }

    /// Starts an engine, which owns nothing yet.
    fn start(&mut self, engine: usize) -> Result<(), String> {
        self.repair_devices();
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let url = Url::parse("memory:///tables").map_err(|e| e.to_string())?;
        let environment = Environment {
            process: None,
            clock: self.clock.clone(),
            disk: disk.clone(),
            log: Arc::new(LogOutside(self.log.clone())),
            table_store: Some(TableStore { store: self.store.clone(), url }),
            shared: Some(match self.standbys {
                // each of them decides by its own replicas
                true => SharedPartitions { commits: Arc::default(), origin: None },
                false => self.shared.clone(),
            }),
            partition_store: self.partition_store(engine).map_err(|e| e.to_string())?,
            effect_digests: self.digests.observing(),
            single_threaded: true,
            connectors: Connectors::Catalog(self.deliveries.outside().catalog()),
        };
        let data =
            DataDir::open(&PathBuf::from(format!("/node{engine}")), disk, Partitioning::new(PARTITIONS));
        let data = data.map_err(|e| format!("engine {engine}: {e}"))?;
        let app = app_with_sinks(self.timed);
        let (node, recovery) =
            deploy::open(&data, Some(app), &environment).map_err(|e| format!("engine {engine}: {e}"))?;
        if let Some(warning) = recovery.warnings.first() {
            return Err(format!("the start of engine {engine} warns: {warning}"));
        }
        node.join(self.placement.clone());
        self.placement.set_node(engine, &node);
        if self.standbys {
            for id in node.host.partition_ids() {
                ownership::follow(&node, id).map_err(|e| format!("engine {engine}, partition {id}: {e}"))?;
            }
        }
        self.deliveries.start(engine, &node);
        self.engines[engine] = Some(SimEngine { node, recovery, _data: data });
        Ok(())
    }

    /// Returns the store of the state of partitions, as an engine uses it.
    fn partition_store(&self, engine: usize) -> Result<Arc<dyn PartitionStore>> {
        let url = Url::parse("memory:///state").map_err(|e| Error::internal(e.to_string()))?;
        let objects = tables_location::runtime()?.block_on(ObjectDirectory::at(self.store.clone(), url))?;
        let host = format!("node{engine}");
        let owner = StateOwner {
            format: 1,
            id: "simulation".into(),
            process: bson::oid::ObjectId::new().to_hex(),
            partitions: PARTITIONS,
            host: host.clone(),
            log_in_directory: false,
        };
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        Ok(Arc::new(ObjectPartitionStore::new(objects, disk, PathBuf::from(format!("/{host}")), owner)?))
    }

    fn repair_devices(&mut self) {
        self.store.fail_randomly(StdRng::seed_from_u64(0), 0.0);
    }

    fn node(&self, engine: usize) -> Option<Arc<Node>> {
        self.engines[engine].as_ref().map(|engine| engine.node.clone())
    }

    fn step(&mut self, step: Step) -> Result<(), String> {
        let engine = self.rng.random_range(0..2);
        let id = PartitionId(self.rng.random_range(0..PARTITIONS));
        let Some(node) = self.node(engine) else { return self.start(engine) };
        let partitions = self.engines[engine].as_ref().map_or_else(Vec::new, SimEngine::partitions);
        let partition = partitions.get(self.rng.random_range(0..partitions.len().max(1)));
        match step {
            Step::Send => self.send(&node),
            Step::Transfer => self.transfer(&node).map_err(|e| e.to_string())?,
            Step::Count => self.count(&node),
            Step::Read => self.read(engine, &node)?,
            Step::Apply => {
                partition.into_iter().for_each(|partition| _ = partition.apply_queued());
                opening::serve_caught_up(&node);
            }
            Step::Forward => partition.into_iter().for_each(|partition| _ = partition.forward_next()),
            Step::Flush => jobs::flush::run(&node, self.rng.random_range(0..6)),
            Step::Consolidate => jobs::consolidation::run(&node, self.rng.random_range(0..6)),
            Step::Checkpoint => jobs::checkpoint::run(&node),
            Step::Timers => partition.into_iter().for_each(|partition| timers::poll(&node, partition)),
            Step::Advance => {
                let ms = [1, 50, 1000, 60_000][self.rng.random_range(0..4)];
                self.clock.advance(Duration::from_millis(ms));
            }
            Step::StoreFaults => {
                let share = [0.0, 0.02, 0.1, 0.5][self.rng.random_range(0..4)];
                let rng = StdRng::seed_from_u64(self.rng.random());
                self.store.fail_randomly(rng, share);
            }
            Step::Release => {
                if let Some(owner) = self.placement.owner(id).and_then(|owner| self.node(owner)) {
                    if self.standbys {
                        ownership::demote(&owner, id);
                        // the next owner may take over before it has applied what this one announced last
                        self.deliveries.outside().interrupt(id);
                    } else if !ownership::release(&owner, id) {
                        self.deliveries.outside().interrupt(id);
                    }
                    self.report.graceful += 1;
                }
                self.give(id, engine);
            }
            Step::Force => {
                self.report.forced +=
                    u64::from(self.placement.owner(id).is_some_and(|owner| owner != engine));
                self.deliveries.outside().interrupt(id);
                self.give(id, engine);
            }
            Step::Learn => self.learn(&node),
            Step::Tend => self.tend(&node),
            Step::Kill => self.kill(engine),
            Step::Audit => self.audit()?,
        }
        self.digests.check()?;
        self.check_health(&node)
    }

    /// A partition may fail only if a former owner has cut its log, below a checkpoint that is later than the one it has begun with.
    fn check_health(&self, node: &Node) -> Result<(), String> {
        match node.host.health.problem_of_any_subject("apply") {
            Some(problem) if !problem.contains("was truncated away") => Err(problem),
            _ => Ok(()),
        }
    }

    /// Takes partitions from owners that could not open them.
    fn note_failed_openings(&mut self) {
        for id in (0..PARTITIONS).map(PartitionId) {
            let Some(node) = self.placement.owner(id).and_then(|owner| self.node(owner)) else { continue };
            let has = |all: &[Arc<Partition>]| all.iter().any(|one| one.id == id && !one.has_failed());
            if !has(&node.owned.all()) && !has(&node.owned.opening()) {
                self.placement.set_owner(id, None);
                self.deliveries.outside().interrupt(id);
            }
        }
    }

    /// Gives a partition to an engine, in a new epoch. The former owner is not asked.
    fn give(&mut self, id: PartitionId, engine: usize) {
        let Some(node) = self.node(engine) else { return };
        // an engine that has the partition already gives up what it has, as one does that was cut off
        if node.owned.get(id).is_some() {
            self.deliveries.outside().interrupt(id);
        }
        self.lose(&node, id);
        self.epoch += 1;
        // a store that fails may fail it
        let owner = self.take_over(&node, id).ok().map(|()| engine);
        self.placement.set_owner(id, owner);
    }

    fn take_over(&mut self, node: &Node, id: PartitionId) -> Result<()> {
        if self.standbys && node.owned.standby(id).is_some() {
            if ownership::promote(node, id, self.epoch)? {
                self.report.promoted += 1;
                return Ok(());
            }
            self.report.unfollowed += 1;
            self.epoch += 1;
        }
        ownership::acquire(node, id, self.epoch).map(drop)
    }

    fn lose(&self, node: &Node, id: PartitionId) {
        match self.standbys {
            true => ownership::demote_now(node, id),
            false => ownership::lose(node, id),
        }
    }

    /// Lets an engine give up the partitions that it has lost, as the tables tell.
    fn learn(&mut self, node: &Node) {
        for id in ownership::taken_over(node) {
            self.report.fenced += 1;
            self.lose(node, id);
        }
    }

    /// Lets an engine see what the owners have done, and follow again what it has stopped to follow.
    fn tend(&mut self, node: &Node) {
        if !self.standbys {
            return;
        }
        ownership::drop_arrived(node);
        node.app.sinks.deliveries().iter().for_each(|sink| delivery::announce(node, sink));
        // a store that fails may fail both
        let failed = ownership::tend_standbys(node).unwrap_or_default();
        self.report.unfollowed += failed.len() as u64;
        let opening = node.owned.opening();
        for id in node.host.partition_ids() {
            if node.owned.replica(id).is_none() && opening.iter().all(|partition| partition.id != id) {
                _ = ownership::follow(node, id);
            }
        }
    }

    fn send(&mut self, node: &Node) {
        let (ids, body) = model::random_orders(&mut self.rng, &mut self.sent);
        let options = SendOptions {
            durability: Some(Durability::Fsync),
            origin: "simulation".into(),
            ..SendOptions::default()
        };
        if sending::send_json(node, "Order", body.as_bytes(), BodyFormat::Ndjson, &options).is_ok() {
            self.acknowledged.extend(ids);
        }
    }

    /// Appends a transaction that moves an amount between two accounts, as their present owners see them. An account that does not exist
    /// is inserted first.
    fn transfer(&mut self, node: &Node) -> Result<()> {
        let (from, to) = (self.rng.random_range(0..ACCOUNTS), self.rng.random_range(0..ACCOUNTS));
        let mut writes: BTreeMap<PartitionId, (Store, Offset)> = BTreeMap::new();
        for (account, amount) in [(from, -7), (to, 7)] {
            let home = node.partition_of_value(&Value::Int(account));
            let owner = self.placement.owner(home).and_then(|owner| self.node(owner));
            // one that is being opened answers nothing
            let Some(partition) = owner.and_then(|owner| owner.owned.get(home)) else { return Ok(()) };
            let view = partition.view();
            let exists =
                view.documents.collection("Account").is_some_and(|c| c.get(&Value::Int(account)).is_some());
            if !exists {
                let document = bson::rawdoc! { "_id": account, "balance": BALANCE };
                let docs = vec![document.into_bytes().into()];
                let insert = DocumentCommand::Insert { collection: "Account".into(), docs, ordered: true };
                let entry = Entry::Command(insert.to_bytes()?);
                return node.host.append(home, entry, Durability::Fsync, None)?.wait().map(drop);
            }
            let (store, _) = writes.entry(home).or_insert_with(|| (Store::fork(&view.documents), view.next));
            let update = DocumentCommand::Update {
                collection: "Account".into(),
                filter: bson::rawdoc! { "_id": account }.into_bytes().into(),
                update: bson::rawdoc! { "$inc": { "balance": amount } }.into_bytes().into(),
                multi: false,
                upsert: false,
                upsert_id: None,
            };
            store.apply(&update, self.clock.now())?;
        }
        let (id, participants) = (TransactionId::new(), writes.keys().copied().collect::<Vec<_>>());
        let order = *node.host.commits.order(self.clock.now());
        let mut parts = Vec::new();
        for (mut store, since) in writes.into_values() {
            let part = TransactionPart {
                id,
                order,
                participants: participants.clone(),
                since,
                writes: TransactionWrites::of_changes(store.take_changes()).to_bytes()?,
                session: None,
                places: None,
                cause: None,
            };
            parts.push(part);
        }
        if self.standbys && parts.len() > 1 {
            let entry = Entry::OrderTransaction(parts);
            node.host.append(PartitionId::FIRST, entry, Durability::Fsync, None)?.wait()?;
        } else {
            for (part, home) in parts.into_iter().zip(&participants) {
                node.host.append(*home, Entry::Transaction(part), Durability::Fsync, None)?.wait()?;
            }
        }
        self.report.transactions += u64::from(participants.len() > 1);
        Ok(())
    }

    /// Checks that transactions moved all or nothing.
    fn check_accounts(&self, nodes: &[&Node]) -> Result<(), String> {
        let accounts = outcome::documents(nodes, "Account", "balance")?;
        let total: i64 = accounts.iter().map(|(_, balance)| balance).sum();
        match total == BALANCE * accounts.len() as i64 {
            true => Ok(()),
            false => Err(format!("{} accounts have {total} together: {accounts:?}", accounts.len())),
        }
    }

    /// Creates the collection of counters in all partitions.
    fn create_counters(&self) -> Result<()> {
        let create = DocumentCommand::CreateCollection(CollectionSpec::new("Counter")).to_bytes()?;
        let Some(node) = self.node(0) else { return Ok(()) };
        node.host.partition_ids().try_for_each(|id| {
            node.host.append(id, Entry::Command(create.clone()), Durability::Fsync, None)?.wait().map(drop)
        })
    }

    /// Adds one to a document by a command to an engine that may not own its partition. The answer comes when the owner has applied it.
    fn count(&mut self, node: &Node) {
        let counter = self.rng.random_range(0..COUNTERS);
        let update = DocumentCommand::Update {
            collection: "Counter".into(),
            filter: bson::rawdoc! { "_id": counter }.into_bytes().into(),
            update: bson::rawdoc! { "$inc": { "n": 1_i64 } }.into_bytes().into(),
            multi: false,
            upsert: true,
            upsert_id: None,
        };
        let Ok(bytes) = update.to_bytes() else { return };
        let home = node.partition_of_value(&Value::Int(counter));
        match node.append_for_reply(home, Entry::Command(bytes), Durability::Fsync) {
            Ok((_, PendingReply::Here(reply))) => self.counters.waiting.push((counter, reply)),
            // its partition has no owner that answers
            Ok((_, PendingReply::There(_))) | Err(_) => self.report.refused += 1,
        }
    }

    /// Takes the answers that have come. One that is missing was lost with the owner: its command is in the log all the same.
    fn take_answers(&mut self) -> Result<(), String> {
        for (counter, reply) in std::mem::take(&mut self.counters.waiting) {
            *self.counters.appended.entry(counter.to_string()).or_default() += 1;
            match reply.try_recv() {
                Ok(Ok(_)) => self.report.answered += 1,
                Ok(Err(e)) if e.kind() == ErrorKind::Unavailable => {}
                Ok(Err(e)) => return Err(format!("counter {counter}: {e}")),
                Err(TryRecvError::Disconnected) => {}
                Err(TryRecvError::Empty) => {
                    return Err(format!("counter {counter}: no answer comes: {}", self.describe_replicas()));
                }
            }
        }
        Ok(())
    }

    /// Lets an engine apply all that is in the log. Returns false if it lacks a partition, or one has stopped.
    fn catch_up(&self, engine: usize, node: &Node) -> Result<bool, String> {
        self.drain_engine(engine)?;
        let replicas = node.owned.replicas();
        let stands_still = |one: &Arc<Partition>| one.has_failed() || one.applied() < self.log.start(one.id);
        if replicas.len() < PARTITIONS as usize || replicas.iter().any(stands_still) {
            return Ok(false);
        }
        match replicas.iter().find(|replica| replica.applied() != self.log.end(replica.id)) {
            Some(behind) => Err(format!(
                "engine {engine} does not apply partition {} to its end: {}",
                behind.id,
                self.describe_replicas()
            )),
            None => Ok(true),
        }
    }

    /// Returns what each engine has of each partition, for messages.
    fn describe_replicas(&self) -> String {
        let mut all = String::new();
        for (engine, node) in (0..2).filter_map(|engine| Some((engine, self.node(engine)?))) {
            let parts = [node.owned.all(), node.owned.following(), node.owned.opening()];
            for (role, replica) in ["owner", "standby", "opening"]
                .iter()
                .zip(parts)
                .flat_map(|(role, all)| all.into_iter().map(move |one| (role, one)))
            {
                let (id, log) = (replica.id, self.log.start(replica.id)..self.log.end(replica.id));
                let failed = if replica.has_failed() { ", failed" } else { "" };
                let batches = replica.outbox.batches();
                all += &format!(
                    "engine {engine}: {role} of {id} at {} of {log:?}, {batches} batches to send{failed}; ",
                    replica.applied()
                );
            }
        }
        all
    }

    /// Reads all partitions by one engine, which asks the other one for those that it does not own.
    fn read(&mut self, engine: usize, node: &Node) -> Result<(), String> {
        match self.standbys {
            true if !self.catch_up(engine, node)? => {
                self.report.refused += 1;
                return Ok(());
            }
            true => {}
            false if self.placement.is_stale(engine, node) => return Ok(()),
            false => {}
        }
        match DocumentSnapshot::now(node) {
            Err(e) if e.kind() == ErrorKind::Unavailable => self.report.refused += 1,
            Err(e) => return Err(e.to_string()),
            Ok(documents) => {
                let accounts = documents.documents("Account").map_err(|e| e.to_string())?.unwrap_or_default();
                let balance = |document: &DocBytes| {
                    let raw = RawDocument::from_bytes(document).map_err(|e| e.to_string())?;
                    match get_path(raw, "balance") {
                        Value::Int(balance) => Ok(balance),
                        _ => Err(format!("a document of another shape: {raw:?}")),
                    }
                };
                let total = accounts.iter().map(balance).sum::<Result<i64, String>>()?;
                if total != BALANCE * accounts.len() as i64 {
                    return Err(format!("engine {engine} reads {total} in {} accounts", accounts.len()));
                }
                self.report.reads += 1;
            }
        }
        Ok(())
    }

    fn kill(&mut self, engine: usize) {
        self.close_books(engine);
        self.report.kills += 1;
        (0..PARTITIONS).map(PartitionId).for_each(|id| self.deliveries.outside().interrupt(id));
        self.engines[engine] = None;
        self.placement.remove_owner(engine);
    }

    fn close_books(&mut self, engine: usize) {
        if let Some(node) = self.node(engine) {
            self.report.checkpoints += node.app.counts.checkpoints.load(std::sync::atomic::Ordering::Relaxed);
        }
    }

    /// Tells former owners that they have lost their partitions, lets the present ones finish their work, and compares the outcome with
    /// ledgers and model.
    fn audit(&mut self) -> Result<(), String> {
        self.repair_devices();
        for engine in 0..2 {
            if self.engines[engine].is_none() {
                self.start(engine)?;
            }
        }
        self.drain()?;
        self.note_failed_openings();
        for id in (0..PARTITIONS).map(PartitionId) {
            if self.placement.owner(id).is_none() {
                let engine = self.rng.random_range(0..2);
                self.give(id, engine);
            }
            for engine in (0..2).filter(|engine| self.placement.owner(id) != Some(*engine)) {
                self.node(engine).iter().for_each(|node| self.lose(node, id));
            }
        }
        self.drain()?;
        for engine in 0..2 {
            if let Some(node) = self.node(engine) {
                self.tend(&node);
            }
        }
        self.drain()?;
        let nodes: Vec<_> = (0..2).filter_map(|engine| self.node(engine)).collect();
        for node in &nodes {
            // those who wait at a standby for what follows from their records
            ownership::drop_arrived(node);
            self.check_health(node)?;
            for (_, table) in node.app.tables.writable() {
                node.host.runtime.block_on(table.refresh()).map_err(|e| e.to_string())?;
            }
        }
        for id in (0..PARTITIONS).map(PartitionId) {
            let owner = self.placement.owner(id).and_then(|owner| self.node(owner));
            let applied = owner.and_then(|node| node.owned.get(id)).map(|partition| partition.applied());
            if applied != Some(self.log.end(id)) {
                return Err(format!(
                    "partition {id} is applied up to {applied:?} of {}: {}",
                    self.log.end(id),
                    self.describe_replicas()
                ));
            }
        }
        let nodes: Vec<&Node> = nodes.iter().map(|node| &**node).collect();
        self.take_answers()?;
        match self.standbys {
            true => nodes.iter().try_for_each(|node| self.check_outcome(&[node]))?,
            false => self.check_outcome(&nodes)?,
        }
        let whole = if self.standbys { &nodes[..1] } else { &nodes };
        self.check_deliveries(&outcome::of(whole, &self.store)?)?;
        self.report.stored = outcome::check_ledgers(&nodes[..if self.standbys { 1 } else { 2 }])?;
        self.report.repeated = self.digests.check()?;
        self.report.audits += 1;
        Ok(())
    }

    /// Compares the outcome of engines, which have all partitions together, with ledgers and model.
    fn check_outcome(&self, nodes: &[&Node]) -> Result<(), String> {
        model::check(&outcome::of(nodes, &self.store)?, &self.sent, &self.acknowledged)?;
        self.check_accounts(nodes)?;
        let counted: BTreeMap<String, i64> = outcome::documents(nodes, "Counter", "n")?.into_iter().collect();
        if counted != self.counters.appended {
            return Err(format!("{:?} was counted as {counted:?}", self.counters.appended));
        }
        outcome::check_ledgers(nodes).map(drop)
    }

    /// Checks what has come to the system outside.
    fn check_deliveries(&mut self, outcome: &model::Outcome) -> Result<(), String> {
        (self.report.delivered, self.report.delivered_again, self.report.refused_deliveries) = (0, 0, 0);
        for (stream, rows, kind) in [
            ("Order", &outcome.orders, EXACTLY_ONCE),
            ("Sale", &outcome.sales, EXACTLY_ONCE),
            ("Sale", &outcome.sales, AT_LEAST_ONCE),
        ] {
            let sink = format!("sim.siddhi: {stream} to {kind}");
            self.report.delivered_again += self.deliveries.check(&sink, kind == EXACTLY_ONCE, rows)?;
            let table = self.deliveries.outside().table(&sink);
            self.report.delivered += table.events.len() as u64;
            self.report.refused_deliveries += table.refused;
        }
        let nodes = [self.node(0), self.node(1)];
        let mut sinks = nodes.iter().flatten().flat_map(|node| node.app.sinks.deliveries());
        match sinks.find(|sink| sink.waiting() > 0) {
            None => Ok(()),
            Some(sink) => Err(format!("{} events wait for {}", sink.waiting(), sink.name())),
        }
    }

    /// Applies, forwards and delivers until nothing waits at any engine.
    fn drain(&mut self) -> Result<(), String> {
        let nodes = [self.node(0), self.node(1)];
        for _ in 0..ROUNDS_MAX {
            let mut worked = self.deliveries.drain(&nodes, &self.placement);
            for engine in self.engines.iter().flatten() {
                worked |= Self::work(engine);
            }
            if !worked {
                return Ok(());
            }
        }
        Err("the engines do not come to an end".into())
    }

    /// Applies and forwards until nothing waits at one engine.
    fn drain_engine(&self, engine: usize) -> Result<(), String> {
        let Some(engine) = &self.engines[engine] else { return Ok(()) };
        match (0..ROUNDS_MAX).any(|_| !Self::work(engine)) {
            true => Ok(()),
            false => Err("the engine does not come to an end".into()),
        }
    }

    fn work(engine: &SimEngine) -> bool {
        let mut worked = !opening::serve_caught_up(&engine.node).is_empty();
        for partition in engine.partitions() {
            worked |= partition.apply_queued();
            worked |= partition.forward_next();
        }
        worked
    }
}
