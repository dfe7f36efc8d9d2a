//! Taking partitions over, and resigning from them.
//!
//! ```text
//!  became owner ─▷ Waiting ── former leases have ended ─▷ BarrierSent ── barrier applied ─▷ Answering ── target caught up ─▷ Resigned
//! ```
//!
//! After a removal, the wait ends [`crate::Timing::take_over_wait_ms`] after this node has read the last heartbeat of the removed owner. Each node notes this for
//! each partition and each removed owner, also when another node is the next one: that one may be lost as well before the wait is over, or resign.

use std::collections::BTreeMap;

use tidemill_types::{Offset, PartitionId};

use crate::planted_bugs::{PlantedBug, is_planted};
use crate::timing::{BootTime, Timing};

/// Stages of the partitions that a node owns, and until when former owners may answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct TakeOvers {
    /// End of the leases of former owners, by partition.
    not_before: BTreeMap<PartitionId, BootTime>,
    /// As [`Self::not_before`], for all partitions.
    all_not_before: BootTime,
    owned: BTreeMap<PartitionId, Owned>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Owned {
    epoch: Offset,
    stage: Stage,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Stage {
    Waiting,
    /// The barrier was sent at this time; it is sent again when it does not come back.
    BarrierSent(BootTime),
    Answering,
    /// The resignation was sent at this time; it is sent again when it does not come back.
    Resigned(BootTime),
}

impl TakeOvers {
    /// Notes that leases of owners may hold that this node does not know, because it begins with a snapshot.
    pub(crate) fn wait_for_unknown(&mut self, now: BootTime, timing: &Timing) {
        self.all_not_before = self.all_not_before.max(now.plus_ms(timing.take_over_wait_ms));
    }

    /// Notes that the owner of a partition was removed, and when its last heartbeat was read.
    pub(crate) fn owner_removed(
        &mut self,
        partition: PartitionId,
        last_heartbeat: BootTime,
        timing: &Timing,
    ) {
        let end = last_heartbeat.plus_ms(timing.take_over_wait_ms);
        let not_before = self.not_before.entry(partition).or_default();
        *not_before = end.max(*not_before);
    }

    /// Notes that this node owns a partition in a new epoch.
    pub(crate) fn begin(&mut self, partition: PartitionId, epoch: Offset) {
        self.owned.insert(partition, Owned { epoch, stage: Stage::Waiting });
    }

    /// Notes that this node does not own a partition.
    pub(crate) fn end(&mut self, partition: PartitionId) {
        self.owned.remove(&partition);
    }

    /// Notes that this node owns nothing.
    pub(crate) fn end_all(&mut self) {
        self.owned.clear();
    }

    /// Returns the partitions that this node owns.
    pub(crate) fn owned(&self) -> impl Iterator<Item = PartitionId> + '_ {
        self.owned.keys().copied()
    }

    /// Returns the partitions into which a barrier record is to be appended now, with their epochs, and notes that it is sent.
    pub(crate) fn send_barriers(&mut self, now: BootTime, timing: &Timing) -> Vec<(PartitionId, Offset)> {
        let mut barriers = Vec::new();
        for (partition, owned) in &mut self.owned {
            let not_before =
                self.not_before.get(partition).copied().unwrap_or_default().max(self.all_not_before);
            let is_due = match owned.stage {
                Stage::Waiting => now >= not_before || is_planted(PlantedBug::NoWait),
                Stage::BarrierSent(at) => now >= at.plus_ms(timing.lease_ms),
                Stage::Answering | Stage::Resigned(_) => false,
            };
            if is_due && is_planted(PlantedBug::NoBarrier) {
                owned.stage = Stage::Answering;
            } else if is_due {
                owned.stage = Stage::BarrierSent(now);
                barriers.push((*partition, owned.epoch));
            }
        }
        barriers
    }

    /// Notes that the node has applied its barrier of `epoch`, and all records before it. Returns whether it answers from now on.
    pub(crate) fn barrier_applied(&mut self, partition: PartitionId, epoch: Offset) -> bool {
        match self.owned.get_mut(&partition) {
            Some(Owned { epoch: own, stage: stage @ Stage::BarrierSent(_) }) if *own == epoch => {
                *stage = Stage::Answering;
                true
            }
            _ => false,
        }
    }

    /// Stops answering for a partition. Returns its epoch if a resignation is to be sent now.
    pub(crate) fn resign(
        &mut self,
        partition: PartitionId,
        now: BootTime,
        timing: &Timing,
    ) -> Option<Offset> {
        let owned = self.owned.get_mut(&partition)?;
        let is_due = match owned.stage {
            Stage::Answering => true,
            Stage::Resigned(at) => now >= at.plus_ms(timing.heartbeat_ms),
            Stage::Waiting | Stage::BarrierSent(_) => false,
        };
        if !is_due {
            return None;
        }
        owned.stage = Stage::Resigned(now);
        Some(owned.epoch)
    }

    /// Returns the partitions for which the node has resigned.
    pub(crate) fn resigned(&self) -> impl Iterator<Item = PartitionId> + '_ {
        let resigned = self.owned.iter().filter(|(_, owned)| matches!(owned.stage, Stage::Resigned(_)));
        resigned.map(|(partition, _)| *partition)
    }

    /// Returns the epoch in which the node has taken a partition over and not resigned.
    pub(crate) fn answering(&self, partition: PartitionId) -> Option<Offset> {
        let owned = self.owned.get(&partition)?;
        match owned.stage {
            Stage::Answering => Some(owned.epoch),
            Stage::Resigned(_) if is_planted(PlantedBug::AnswerAfterResigning) => Some(owned.epoch),
            _ => None,
        }
    }
}
