//! Epochs of the owners of partitions.

use std::collections::BTreeMap;

use parking_lot::RwLock;
use tidemill_types::PartitionId;

/// The partitions that this process owns, with the epochs in which it does. Every change of the owner has a greater epoch, and a
/// table takes no rows of a partition from an owner whose epoch it knows to be over.
#[derive(Debug)]
pub(crate) struct OwnerEpochs(RwLock<State>);

#[derive(Debug)]
struct State {
    /// Epoch of the partitions that are not listed; `None` if this process does not own them.
    others: Option<u64>,
    listed: BTreeMap<PartitionId, Option<u64>>,
}

impl OwnerEpochs {
    /// Returns those of a process that owns all partitions in `epoch`.
    pub fn of_all(epoch: u64) -> Self {
        Self(RwLock::new(State { others: Some(epoch), listed: BTreeMap::new() }))
    }

    /// Returns the epoch in which this process owns a partition, if it does.
    pub fn of(&self, partition: PartitionId) -> Option<u64> {
        let state = self.0.read();
        state.listed.get(&partition).copied().unwrap_or(state.others)
    }

    /// Says that this process owns a partition in `epoch`, or does not any more.
    pub fn set(&self, partition: PartitionId, epoch: Option<u64>) {
        self.0.write().listed.insert(partition, epoch);
    }

    /// Says that this process owns no partition but those that it is given later.
    pub fn give_up_all(&self) {
        *self.0.write() = State { others: None, listed: BTreeMap::new() };
    }
}
