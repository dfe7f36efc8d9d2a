//! What readers see of a partition: its documents and counts after its last applied record.

use std::collections::BTreeMap;
use std::sync::Arc;

use imbl::OrdMap;
use parking_lot::Mutex;
use tidemill_docs::StoreSnapshot;
use tidemill_rules::Counters;
use tidemill_types::Offset;

use crate::api::LedgerCounts;
use crate::commit::{SessionWrites, SharedCommits};
use crate::digest::Digest;
use crate::queries::runtime::{QueryCountsByFile, copy_counts};
use crate::state::{PartitionState, TransferCounts};

/// A moment of a partition, after a whole record. The owner publishes one after each batch of records, before
/// it answers the senders, so a write that was answered is visible. Readers share it and never wait.
///
/// Making one takes constant time: everything in it is shared with the state, which copies what it changes afterwards.
pub struct PartitionView {
    /// Offset after the last applied record.
    pub next: Offset,
    /// Documents.
    pub documents: StoreSnapshot,
    /// The last writes of client sessions.
    pub sessions: SessionWrites,
    /// The last transactions that it has committed together with other partitions.
    pub shared_commits: SharedCommits,
    /// Offset after the last change that is in the change log.
    pub changes_end: Offset,
    /// Next position of each source.
    pub sources: Arc<BTreeMap<String, u64>>,
    /// Epoch of the node that reads the sources, 0 before one of a cluster has claimed them.
    pub source_epoch: u64,
    /// Rows received and stored, by stream.
    pub ledger: OrdMap<Arc<str>, LedgerCounts>,
    /// Rows sent to other partitions and received from them.
    pub transfers: Arc<TransferCounts>,
    /// Digest of the effects of the records before [`Self::next`], if it is computed.
    pub digest: Option<Digest>,
}

impl PartitionView {
    /// Returns the present moment of `state`, with the end of its changes.
    pub fn new(state: &PartitionState, changes_end: Offset) -> Self {
        Self {
            next: state.next,
            documents: state.store.snapshot(),
            sessions: state.sessions.clone(),
            shared_commits: state.shared_commits.clone(),
            changes_end,
            sources: state.sources.clone(),
            source_epoch: state.source_epoch,
            ledger: state.ledger.clone(),
            transfers: state.transfers.clone(),
            digest: state.digest.as_ref().map(|digest| digest.digest()),
        }
    }
}

/// Counters of rules and queries after the last applied batch, with a lock that the owner holds to copy them only.
#[derive(Default)]
pub struct PublishedCounters(Mutex<(Counters, QueryCountsByFile)>);

impl PublishedCounters {
    /// Creates them with the counters of `state`.
    pub fn of(state: &PartitionState) -> Self {
        let counters = Self::default();
        counters.publish(state);
        counters
    }

    /// Copies the counters of `state`.
    pub fn publish(&self, state: &PartitionState) {
        let (rules, queries) = &mut *self.0.lock();
        rules.copy_from(state.executor.counters());
        state.query_state.with_runtimes(|runtimes| copy_counts(&runtimes.counts, queries));
    }

    /// Returns a copy of the counters.
    pub fn copy(&self) -> (Counters, QueryCountsByFile) {
        self.with(|rules, queries| (rules.clone(), queries.clone()))
    }

    /// Calls `read` with the counters.
    pub fn with<T>(&self, read: impl FnOnce(&Counters, &QueryCountsByFile) -> T) -> T {
        let (rules, queries) = &*self.0.lock();
        read(rules, queries)
    }
}
