//! Roles of a partition in a process: owner, or standby.
//!
//! A standby applies the same log as the owner, and has its documents, state of queries, ids and rows, because applying is a function of the
//! log. What only one process may do is the owner's: it appends what rules and queries emit to other logs, writes tables and checkpoints,
//! feeds sinks, and appends ticks. So taking over is a change of role, between two batches:
//!
//! ```text
//! owner    applies 7 ── emits e7 ── appends e7 to the log of its target
//! standby  applies 7 ── keeps e7 ── drops it when the target's replica here has applied it; as the next owner, appends it
//! ```
//!
//! An emission that both have appended is applied once, as the target knows its cause.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemill_types::{Offset, PartitionId};

use super::{OWNER_WAIT, Partition, send_replies};
use crate::entry::{ArrivalKind, Emission};
use crate::planted_bugs::{PlantedBug, is_planted};

/// Time that a record has to end before it is not known what has arrived.
const RECORD_WAIT: Duration = Duration::from_millis(10);

/// For each partition, the last of its records whose emissions a replica has applied.
pub struct ArrivedCauses(BTreeMap<ArrivalKind, BTreeMap<u32, Offset>>);

impl ArrivedCauses {
    /// Creates those that another process has told.
    pub fn new(arrived: BTreeMap<ArrivalKind, BTreeMap<u32, Offset>>) -> Self {
        Self(arrived)
    }

    /// Returns whether the replica has applied an emission of `from`, which targets its partition.
    pub fn contains(&self, from: PartitionId, emission: &Emission) -> bool {
        let last = self.0.get(&emission.kind()).and_then(|last| last.get(&from.0));
        last.is_some_and(|last| *last >= emission.cause())
    }
}

impl Partition {
    /// Returns the partition as a standby, before it begins to consume its log. It has caught up when it has come to the end that the log has
    /// now.
    pub fn standing_by(mut self) -> Self {
        self.serves_from = self.host.log.end(self.id);
        *self.standby.get_mut() = true;
        // this process may have had the partition as an owner of its own before
        self.owner = self.host.commits.owner(self.id);
        _ = self.outbox.hold();
        self
    }

    /// Makes a standby the owner from the next record on. Returns false, and changes nothing, if it has dropped emissions that may not have
    /// arrived: the next owner has to begin with a checkpoint then.
    pub fn become_owner(&self) -> bool {
        let _between_records = self.apply_lock.lock();
        if is_planted(PlantedBug::DropHeldEmissions) {
            self.drop_arrived(|_| true);
        }
        let released = self.outbox.release(|batches| (0..batches).for_each(|_| self.host.in_flight.add(0)));
        if released {
            self.standby.store(false, Ordering::Release);
        }
        released
    }

    /// Makes an owner a standby from the next record on. Returns false, and changes nothing, if a record does not end.
    pub fn become_standby(&self) -> bool {
        let Some(_between_records) = self.apply_lock.try_lock_for(OWNER_WAIT) else { return false };
        self.standby.store(true, Ordering::Release);
        let kept = self.outbox.hold();
        self.host.in_flight.done(kept, 0);
        true
    }

    /// Returns which emissions of other partitions it has applied; `None` while it is at a record for longer.
    pub fn arrived_causes(&self) -> Option<ArrivedCauses> {
        let state = self.state.try_read_for(RECORD_WAIT)?;
        Some(ArrivedCauses(ArrivalKind::ALL.map(|kind| (kind, state.arrived(kind).clone())).into()))
    }

    /// Drops what a standby keeps for the next owner and has arrived, and answers those who wait for it.
    pub fn drop_arrived(&self, has_arrived: impl Fn(&Emission) -> bool) {
        send_replies(self.outbox.drop_arrived(has_arrived));
    }
}
