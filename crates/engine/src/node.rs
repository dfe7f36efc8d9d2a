//! A node: one process at work.

use std::sync::{Arc, OnceLock};

use tidemill_types::{Error, PartitionId, Result};

use crate::api::LedgerCounts;
use crate::host::Host;
use crate::partition::{LatestEnds, OwnedPartitions, PartitionClient, PartitionPeers};
use crate::process::clock::Clock;
use crate::queries::GLOBAL_PARTITION;
use crate::running_app::RunningApp;
use crate::state::view::PartitionView;

/// Part of this process in a cluster.
pub trait ClusterPart: Send + Sync {
    /// Returns the epoch in which this process owns a partition; `None` if it does not, has not applied all that former owners have, or has no
    /// lease.
    fn owned_epoch(&self, partition: PartitionId, clock: &dyn Clock) -> Option<u64>;

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
    pub owned: OwnedPartitions,
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
        Self {
            host: Arc::new(host),
            app: Arc::new(app),
            owned: OwnedPartitions::default(),
            cluster: OnceLock::new(),
            peers: OnceLock::new(),
            latest_ends: LatestEnds::default(),
        }
    }

    /// Makes the partitions of other processes known, once.
    #[cfg(feature = "sim")]
    pub fn join(&self, peers: Arc<dyn PartitionPeers>) {
        let first_time = self.peers.set(peers).is_ok();
        debug_assert!(first_time, "a node joins once");
    }

    /// Returns a partition to ask, in this process or in another one. A standby here knows what the owner knows.
    ///
    /// Errors: `Unavailable` while no process is known to own it.
    pub fn client(&self, id: PartitionId) -> Result<Arc<dyn PartitionClient>> {
        match self.owned.replica(id) {
            Some(partition) => Ok(partition),
            None => self.peer(id),
        }
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

    /// Calls `read` with the view of a partition. An own one is read without counting a reference, as many threads do so at once.
    ///
    /// Errors: those of [`Self::client`] and [`PartitionClient::view`].
    pub fn with_view<T>(&self, id: PartitionId, read: impl FnOnce(&PartitionView) -> T) -> Result<T> {
        let owned = self.owned.load();
        match owned.get(&id) {
            Some(partition) => Ok(partition.with_view(read)),
            None => match self.owned.standby(id) {
                Some(partition) => Ok(partition.with_view(read)),
                None => Ok(read(&*self.peer(id)?.view()?)),
            },
        }
    }

    /// Returns the views of all partitions, by id. They are of one moment if the caller holds the lock of views.
    ///
    /// Errors: those of [`Self::with_view`].
    pub fn views(&self) -> Result<Vec<Arc<PartitionView>>> {
        self.clients()?.iter().map(|partition| partition.view()).collect()
    }

    /// Checks that this process owns or follows all partitions, before a read of tables: the rows of others that are in no file are not
    /// here.
    ///
    /// Errors: `Unavailable` with the partitions that it does not have.
    pub fn check_has_all(&self) -> Result<()> {
        let missing = self.host.partition_ids().filter(|id| self.owned.replica(*id).is_none());
        let missing: Vec<String> = missing.map(|id| id.to_string()).collect();
        match missing.is_empty() {
            true => Ok(()),
            false => Err(Error::unavailable(format!(
                "the events of partitions {} cannot be read by this process, because it has no replica of them",
                missing.join(", ")
            ))),
        }
    }

    /// Calls `read` with the view of any partition that can be asked, for what all of them have: definitions of collections.
    ///
    /// Errors: those of [`Self::with_view`] when none can be asked.
    pub fn with_any_view<T>(&self, read: impl FnOnce(&PartitionView) -> T) -> Result<T> {
        if let Some((_, partition)) = self.owned.load().first_key_value() {
            return Ok(partition.with_view(read));
        }
        let mut failed = None;
        for id in self.host.partition_ids() {
            match self.client(id).and_then(|partition| partition.view()) {
                Ok(view) => return Ok(read(&view)),
                Err(e) => failed = failed.or(Some(e)),
            }
        }
        Err(failed.unwrap_or_else(|| Error::unavailable("the log has no partitions")))
    }

    /// Waits until the replicas here have applied all that any node has acknowledged. Returns at once for a process that is alone.
    ///
    /// Errors: `Unavailable` when the log cannot be asked, and while a replica is missing or does not get there.
    pub fn catch_up_replicas(&self) -> Result<()> {
        if self.cluster.get().is_none() {
            return Ok(());
        }
        let ends = self.latest_ends.get(|| self.host.log.latest_ends())?;
        for (id, end) in self.host.partition_ids().zip(ends.iter()) {
            let replica = self.owned.replica(id);
            let replica = replica.ok_or_else(|| {
                Error::unavailable(format!(
                    "this node has not loaded partition {id} yet: ask again, or another node"
                ))
            })?;
            replica.wait_applied(*end)?;
        }
        Ok(())
    }

    /// Returns whether this process does what one process does for all: merges and retention of tables, aggregate rules.
    pub fn does_shared_work(&self) -> bool {
        self.cluster.get().is_none_or(|cluster| {
            cluster.owned_epoch(PartitionId(GLOBAL_PARTITION), &*self.host.clock).is_some()
        })
    }

    /// Asks loops and retries to end, those in stores of the app's tables as well.
    pub fn set_stopping(&self) {
        self.host.set_stopping();
        self.app.deployment.queries.stores.stop();
    }

    /// Returns the ledger of `stream` over the partitions that this node has.
    pub fn ledger(&self, stream: &str) -> LedgerCounts {
        let mut total = LedgerCounts::default();
        for partition in &self.owned.replicas() {
            if let Some(counts) = partition.view().ledger.get(stream) {
                total.add(counts);
            }
        }
        total
    }
}
