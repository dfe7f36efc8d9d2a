//! The partitions that a process has at the moment: those that it owns, and those that it follows as a standby.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::{ArcSwap, Guard};
use parking_lot::Mutex;
use tidemill_types::PartitionId;

use super::Partition;
use crate::commit::{Decision, SharedCommit};
use crate::host::Participants;

/// The partitions that a process owns, beside those that it follows. Partitions come and go while others use it: a caller works with
/// those of one moment.
///
/// One that is opened does not answer before it has come as far as its log has been applied before.
#[derive(Default)]
pub struct OwnedPartitions {
    serving: ArcSwap<BTreeMap<PartitionId, Arc<Partition>>>,
    following: ArcSwap<BTreeMap<PartitionId, Arc<Partition>>>,
    /// This process has followed a partition.
    follows: AtomicBool,
    opening: Mutex<BTreeMap<PartitionId, Arc<Partition>>>,
}

impl OwnedPartitions {
    /// Returns the partitions owned at this moment, by id.
    pub fn all(&self) -> Vec<Arc<Partition>> {
        self.serving.load().values().cloned().collect()
    }

    /// Returns the partitions of this moment by id, for a short read: cheaper than [`Self::all`], as many threads do not count the same
    /// references.
    pub fn load(&self) -> Guard<Arc<BTreeMap<PartitionId, Arc<Partition>>>> {
        self.serving.load()
    }

    /// Returns a partition; `None` if this process does not own it.
    pub fn get(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.serving.load().get(&id).cloned()
    }

    /// Returns the partitions that this process follows, by id: another one owns them.
    pub fn following(&self) -> Vec<Arc<Partition>> {
        self.following.load().values().cloned().collect()
    }

    /// Returns whether this process follows partitions, or has.
    pub fn follows(&self) -> bool {
        self.follows.load(Ordering::Acquire)
    }

    /// Returns a partition that this process follows.
    pub fn standby(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.following.load().get(&id).cloned()
    }

    /// Returns the partitions that this process owns or follows, by id.
    pub fn replicas(&self) -> Vec<Arc<Partition>> {
        let mut all = BTreeMap::clone(&self.following.load());
        all.extend(self.serving.load().iter().map(|(id, partition)| (*id, partition.clone())));
        all.into_values().collect()
    }

    /// Returns a partition that this process owns or follows.
    pub fn replica(&self, id: PartitionId) -> Option<Arc<Partition>> {
        self.get(id).or_else(|| self.standby(id))
    }

    /// Adds a partition that this process follows.
    pub fn follow(&self, partition: Arc<Partition>) {
        self.follows.store(true, Ordering::Release);
        self.following.rcu(|following| {
            let mut following = BTreeMap::clone(following);
            following.insert(partition.id, partition.clone());
            following
        });
    }

    /// Takes a partition out that this process follows.
    pub fn unfollow(&self, id: PartitionId) -> Option<Arc<Partition>> {
        let former = self.following.rcu(|following| {
            let mut following = BTreeMap::clone(following);
            following.remove(&id);
            following
        });
        former.get(&id).cloned()
    }

    /// Returns the partitions that are being opened, by id.
    pub fn opening(&self) -> Vec<Arc<Partition>> {
        self.opening.lock().values().cloned().collect()
    }

    /// Adds a partition that is being opened: [`Self::add`] or [`Self::abandon`] follows.
    pub fn open(&self, partition: Arc<Partition>) {
        self.opening.lock().insert(partition.id, partition);
    }

    /// Drops a partition that could not be opened.
    pub fn abandon(&self, id: PartitionId) {
        self.opening.lock().remove(&id);
    }

    /// Takes a partition out that this process does not own any more, also one that is being opened.
    pub fn remove(&self, id: PartitionId) -> Option<Arc<Partition>> {
        let former = self.serving.rcu(|owned| {
            let mut owned = BTreeMap::clone(owned);
            owned.remove(&id);
            owned
        });
        let opening = self.opening.lock().remove(&id);
        opening.or_else(|| former.get(&id).cloned())
    }

    /// Adds a recovered partition, which answers from now on in place of a former one with its id.
    pub fn add(&self, partition: Arc<Partition>) {
        self.serving.rcu(|owned| {
            let mut owned = BTreeMap::clone(owned);
            owned.insert(partition.id, partition.clone());
            owned
        });
        self.opening.lock().remove(&partition.id);
    }
}

impl Participants for OwnedPartitions {
    fn decision(&self, commit: &SharedCommit) -> Option<Decision> {
        let here = self.replicas().into_iter().chain(self.opening());
        // one that is at a record is asked again
        here.filter(|replica| commit.participants.contains(&replica.id))
            .find_map(|replica| replica.state.try_read()?.decisions.get(&commit.id).cloned())
    }

    fn have_applied(&self, decision: &Decision) -> bool {
        let here = self.replicas().into_iter().chain(self.opening());
        let mut records = here.filter_map(|replica| Some((decision.offsets.get(&replica.id.0)?, replica)));
        records.all(|(offset, replica)| replica.applied() > *offset)
    }
}
