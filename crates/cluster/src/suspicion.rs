//! Members whose heartbeats a node does not read, although the log works.

use std::collections::BTreeMap;

use crate::record::{Incarnation, NodeName};
use crate::timing::{BootTime, Timing};

/// Last heartbeats of all members, as one node has read them.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Suspicion {
    members: BTreeMap<NodeName, LastRead>,
    /// Number of its own records that the node has read back.
    own_records: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct LastRead {
    incarnation: Incarnation,
    at: BootTime,
    /// Value of [`Suspicion::own_records`] at that time.
    own_records: u64,
}

impl Suspicion {
    /// Notes a heartbeat, or the join, of a member.
    pub(crate) fn heard(&mut self, node: &NodeName, incarnation: Incarnation, now: BootTime) {
        let last = LastRead { incarnation, at: now, own_records: self.own_records };
        match self.members.get_mut(node) {
            Some(known) => *known = last,
            None => drop(self.members.insert(node.clone(), last)),
        }
    }

    /// Notes that the node has read back a record of its own.
    pub(crate) fn own_record_read(&mut self) {
        self.own_records += 1;
    }

    /// Forgets a member that was removed. Returns when its last heartbeat was read.
    pub(crate) fn forget(&mut self, node: &NodeName) -> Option<BootTime> {
        self.members.remove(node).map(|last| last.at)
    }

    /// Returns the members that are silent. What keeps the log from the node, keeps its own records from it too, and so accuses no other.
    pub(crate) fn silent<'a>(
        &'a self,
        now: BootTime,
        timing: &'a Timing,
    ) -> impl Iterator<Item = (&'a NodeName, Incarnation)> + 'a {
        self.members.iter().filter_map(move |(node, last)| {
            let own_read = self.own_records - last.own_records;
            let is_silent =
                now >= last.at.plus_ms(timing.suspicion_ms) && own_read >= u64::from(timing.own_records_read);
            is_silent.then_some((node, last.incarnation))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_is_silent_only_while_own_records_are_read() {
        let (x, life, t) = (NodeName::new("x").unwrap(), Incarnation(1), Timing::SMALL);
        let mut suspicion = Suspicion::default();
        let silent = |suspicion: &Suspicion, ms: u64| suspicion.silent(BootTime(ms * 1_000), &t).count();
        suspicion.heard(&x, life, BootTime(0));
        assert_eq!(silent(&suspicion, 60_000), 0, "the log may be what is silent");
        (0..3).for_each(|_| suspicion.own_record_read());
        assert_eq!(silent(&suspicion, 60_000), 0);
        suspicion.own_record_read();
        assert_eq!(silent(&suspicion, 1_499), 0);
        assert_eq!(silent(&suspicion, 1_500), 1);
        suspicion.heard(&x, life, BootTime(1_500_000));
        assert_eq!(silent(&suspicion, 60_000), 0);
        assert_eq!(suspicion.forget(&x), Some(BootTime(1_500_000)));
    }
}
