//! A node: one process at work.

use std::sync::{Arc, OnceLock, Weak};

use tidemill_docs::StoreSnapshot;
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::api::LedgerCounts;
use crate::document_parts::part::DocumentsPart;
use crate::host::{Host, Participants};
use crate::partition::{
    LatestEnds, OwnedPartitions, Partition, PartitionClient, PartitionPeers, PartitionProgress,
};
use crate::process::clock::Clock;
use crate::running_app::RunningApp;
use crate::state::view::PartitionView;

/// Part of this process in a cluster.
pub trait ClusterPart: Send + Sync {
    /// Returns the epoch in which this process owns a partition; `None` if it does not, has not applied all that former owners have, or has no
    /// lease.
    fn owned_epoch(&self, partition: PartitionId, clock: &dyn Clock) -> Option<u64>;

    /// Returns the id of the cluster.
    fn cluster_id(&self) -> String;

    /// Checks that this process is a member.
    ///
    /// Errors: `Conflict` with the reason if it was refused, `Unavailable` before it has joined.
    fn check_member(&self) -> Result<()>;

    /// Leaves the cluster in order: other members take the partitions over first. Those of a process that cannot leave in time are taken over
    /// when its lease has run out.
    fn leave(&self, node: &Node);
}

/// The parts of a running engine, by lifetime.
pub struct Node {
    /// Devices and services of the process.
    pub host: Arc<Host>,
    /// The app that it runs.
    pub app: Arc<RunningApp>,
    /// Partitions that it owns.
    pub owned: Arc<OwnedPartitions>,
    /// Its part in a cluster, if it is a node of one.
    pub cluster: OnceLock<Arc<dyn ClusterPart>>,
    /// Processes that own the others, once it has joined them.
    peers: OnceLock<Arc<dyn PartitionPeers>>,
    /// Requests of readers for the ends of the log, in a cluster.
    latest_ends: LatestEnds,
}

impl Node {
    /// Creates a node that owns no partition yet.
    pub fn new(host: Host, app: RunningApp) -> Self {
        let owned = Arc::new(OwnedPartitions::default());
        let participants: Weak<dyn Participants> = Arc::downgrade(&(owned.clone() as Arc<dyn Participants>));
        _ = host.participants.set(participants);
        Self {
            host: Arc::new(host),
            app: Arc::new(app),
            owned,
            cluster: OnceLock::new(),
            peers: OnceLock::new(),
            latest_ends: LatestEnds::default(),
        }
    }

    /// Makes the partitions of other processes known, once.
    pub fn join(&self, peers: Arc<dyn PartitionPeers>) {
        let first_time = self.peers.set(peers).is_ok();
        debug_assert!(first_time, "a node joins once");
    }

    /// Returns a partition to ask, in this process or in another one. A standby here knows what the owner knows.
    ///
    /// Errors: `Unavailable` while no process is known to own it.
    pub fn client(&self, id: PartitionId) -> Result<Arc<dyn PartitionClient>> {
        match self.replica_to_read(id) {
            Some(partition) => Ok(partition),
            None => self.peer(id),
        }
    }

    /// Returns a partition of this process, if it is to answer: one that has just come here may be far behind, so others are asked while
    /// there are some.
    fn replica_to_read(&self, id: PartitionId) -> Option<Arc<Partition>> {
        let owned = self.owned.get(id);
        owned.or_else(|| self.owned.standby(id).filter(|standby| self.may_read(standby)))
    }

    fn may_read(&self, standby: &Partition) -> bool {
        standby.has_caught_up() || self.peers.get().is_none()
    }

    fn peer(&self, id: PartitionId) -> Result<Arc<dyn PartitionClient>> {
        let peers = self.peers.get();
        peers.ok_or_else(|| Error::unavailable(format!("partition {id} is not open")))?.client(id)
    }

    /// Returns all partitions of the log, by id.
    ///
    /// Errors: those of [`Self::client`].
    pub fn clients(&self) -> Result<Vec<Arc<dyn PartitionClient>>> {
        self.host.partition_ids().map(|id| self.client(id)).collect()
    }

    /// Calls `read` with the view of a partition of this process, without counting a reference, as many threads do so at once. `None` if
    /// another one has the partition.
    pub fn with_view<T>(&self, id: PartitionId, read: impl FnOnce(&PartitionView) -> T) -> Option<T> {
        match self.owned.load().get(&id) {
            Some(partition) => Some(partition.with_view(read)),
            None => self.replica_to_read(id).map(|partition| partition.with_view(read)),
        }
    }

    /// Returns counts and positions of all partitions, by id.
    ///
    /// Errors: those of [`PartitionClient::progress`].
    pub fn progress(&self) -> Result<Vec<PartitionProgress>> {
        self.clients()?.iter().map(|partition| partition.progress()).collect()
    }

    /// Returns the documents of partitions with what the records below an end have made, in the same order.
    ///
    /// Errors: those of [`PartitionClient::documents`].
    pub fn documents_of(&self, wanted: &[(PartitionId, Offset)]) -> Result<Vec<DocumentsPart>> {
        // a partition may come or go meanwhile
        let replicas: Vec<_> = wanted.iter().map(|(id, _)| self.replica_to_read(*id)).collect();
        let elsewhere = wanted.iter().zip(&replicas).filter(|(_, replica)| replica.is_none());
        let elsewhere: Vec<_> = elsewhere.map(|(one, _)| *one).collect();
        let mut elsewhere = match (elsewhere.first(), self.peers.get()) {
            (None, _) => Vec::new(),
            (Some(_), Some(peers)) => peers.documents(&elsewhere)?,
            (Some((id, _)), None) => return Err(Error::unavailable(format!("partition {id} is not open"))),
        }
        .into_iter();
        let documents = |((_, end), replica): (&(PartitionId, Offset), Option<Arc<Partition>>)| match replica
        {
            Some(partition) => partition.documents(*end),
            None => {
                elsewhere.next().ok_or_else(|| Error::internal("a node has answered for fewer partitions"))
            }
        };
        wanted.iter().zip(replicas).map(documents).collect()
    }

    /// Checks that this process owns or follows the partitions that are wanted.
    ///
    /// Errors: `Unavailable` with the partitions that it does not have.
    pub fn check_has(&self, is_wanted: impl Fn(PartitionId) -> bool) -> Result<()> {
        let missing = self.host.partition_ids().filter(|id| !self.has_replica(*id) && is_wanted(*id));
        let missing: Vec<String> = missing.map(|id| id.to_string()).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Error::unavailable(format!(
                "this process has no replica of the partitions {}",
                missing.join(", ")
            ))),
        }
    }

    /// Returns whether this process owns or follows all partitions.
    pub fn has_all(&self) -> bool {
        self.host.partition_ids().all(|id| self.has_replica(id))
    }

    /// Returns whether this process owns or follows a partition, and answers for it.
    pub fn has_replica(&self, id: PartitionId) -> bool {
        self.owned.load().contains_key(&id) || self.replica_to_read(id).is_some()
    }

    /// Returns the collections, which all partitions have, maybe with the documents of one partition.
    ///
    /// Errors: those of [`Self::client`] when no partition can be asked.
    pub fn definitions(&self) -> Result<StoreSnapshot> {
        if let Some(documents) = self.definitions_here() {
            return Ok(documents);
        }
        let mut failed = None;
        for id in self.host.partition_ids() {
            match self.client(id).and_then(|partition| partition.definitions()) {
                Ok(documents) => return Ok(documents),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        Err(failed.unwrap_or_else(|| Error::unavailable("the log has no partitions")))
    }

    fn definitions_here(&self) -> Option<StoreSnapshot> {
        let documents = |partition: &Partition| partition.with_view(|view| view.documents.clone());
        let owned = self.owned.load().first_key_value().map(|(_, partition)| documents(partition));
        let following = self.owned.following();
        owned.or_else(|| following.iter().find(|standby| self.may_read(standby)).map(|one| documents(one)))
    }

    /// Waits until the replicas here have applied all that any node has acknowledged. Returns the ends of the log by partition, below which
    /// that is; none for a process that is alone, which returns at once.
    ///
    /// Errors: `Unavailable` when the log cannot be asked, and while a replica is missing or does not get there.
    pub fn catch_up_replicas(&self) -> Result<Arc<[Offset]>> {
        if self.cluster.get().is_none() {
            return Ok(Arc::default());
        }
        let ends = self.latest_ends.get(|| self.host.log.latest_ends())?;
        for (id, end) in self.host.partition_ids().zip(ends.iter()) {
            match self.replica_to_read(id) {
                Some(replica) => replica.wait_applied(*end)?,
                None if self.peers.get().is_some() => {}
                None => {
                    return Err(Error::unavailable(format!(
                        "this node has not loaded partition {id} yet: ask again, or another node"
                    )));
                }
            }
        }
        Ok(ends)
    }

    /// Returns whether this process does what one process does for all: merges and retention of tables, aggregate rules.
    pub fn does_shared_work(&self) -> bool {
        self.cluster
            .get()
            .is_none_or(|cluster| cluster.owned_epoch(PartitionId::FIRST, &*self.host.clock).is_some())
    }

    /// Asks loops and retries to end, those in stores of the app's tables as well.
    pub fn set_stopping(&self) {
        self.host.set_stopping();
        self.app.deployment.queries.stores.stop();
    }

    /// Returns the ledger of `stream` over the partitions that this node has.
    pub fn ledger(&self, stream: &str, is_wanted: impl Fn(PartitionId) -> bool) -> LedgerCounts {
        let mut total = LedgerCounts::default();
        for partition in self.owned.replicas().iter().filter(|partition| is_wanted(partition.id)) {
            if let Some(counts) = partition.view().ledger.get(stream) {
                total.add(counts);
            }
        }
        total
    }
}
