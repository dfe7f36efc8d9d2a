//! The partitions that a process owns at the moment.

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tidemill_types::{Error, PartitionId, Result};

use super::Partition;

/// The partitions that a process owns. Partitions come and go while others use it: a caller works with those of one moment.
#[derive(Default)]
pub struct OwnedPartitions(ArcSwap<BTreeMap<PartitionId, Arc<Partition>>>);

impl OwnedPartitions {
    /// Returns the partitions owned at this moment, by id.
    pub fn all(&self) -> Vec<Arc<Partition>> {
        self.0.load().values().cloned().collect()
    }

    /// Calls `read` with the partitions of this moment, by id. Cheaper than [`Self::all`] for a short read, as many threads do not count
    /// the same references.
    pub fn with<T>(&self, read: impl FnOnce(&BTreeMap<PartitionId, Arc<Partition>>) -> T) -> T {
        read(&self.0.load())
    }

    /// Returns a partition.
    ///
    /// Errors: `Unavailable` if this process does not own it.
    pub fn get(&self, id: PartitionId) -> Result<Arc<Partition>> {
        let owned = self.0.load();
        let partition = owned.get(&id).cloned();
        partition.ok_or_else(|| Error::unavailable(format!("partition {id} is not owned by this process")))
    }

    /// Adds a recovered partition.
    pub fn add(&self, partition: Arc<Partition>) {
        self.0.rcu(|owned| {
            let mut owned = BTreeMap::clone(owned);
            owned.insert(partition.id, partition.clone());
            owned
        });
    }
}
