//! The lease of a node: until when it may answer.

use std::collections::VecDeque;

use crate::hybrid_time::HybridTime;
use crate::planted_bugs::{PlantedBug, is_planted};
use crate::timing::{BootTime, Timing};

/// The lease of a node, and the stamps that it may give.
///
/// A heartbeat that the node reads back was in the log before any removal of the node that the node has not read. So the next owner has read
/// this heartbeat, or will, and waits from then on for longer than the lease, which counts from sending.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Lease {
    /// Heartbeats that may still give a lease, by ascending number.
    sent: VecDeque<SentHeartbeat>,
    until: BootTime,
    reserve: HybridTime,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct SentHeartbeat {
    sequence: u64,
    at: BootTime,
    reserve: HybridTime,
}

impl Lease {
    /// Notes that a heartbeat is about to be sent.
    pub(crate) fn send(&mut self, sequence: u64, at: BootTime, reserve: HybridTime, timing: &Timing) {
        while self.sent.front().is_some_and(|sent| sent.at.plus_ms(timing.lease_ms) <= at) {
            self.sent.pop_front();
        }
        self.sent.push_back(SentHeartbeat { sequence, at, reserve });
    }

    /// Notes that a heartbeat was read back.
    pub(crate) fn read(&mut self, sequence: u64, now: BootTime, timing: &Timing) {
        while let Some(sent) = self.sent.pop_front_if(|sent| sent.sequence <= sequence) {
            if sent.sequence == sequence {
                let from = if is_planted(PlantedBug::LeaseFromReading) { now } else { sent.at };
                self.until = self.until.max(from.plus_ms(timing.lease_ms));
                self.reserve = self.reserve.max(sent.reserve);
            }
        }
    }

    /// Returns whether the lease holds.
    pub(crate) fn holds(&self, now: BootTime) -> bool {
        now < self.until || (self.until > BootTime::default() && is_planted(PlantedBug::AnswerAfterLease))
    }

    /// Returns the moment at which the lease ends, or has ended.
    pub(crate) fn until(&self) -> BootTime {
        self.until
    }

    /// Returns the bound of stamps that the log has.
    pub(crate) fn reserve(&self) -> HybridTime {
        self.reserve
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Timing = Timing::SMALL;

    fn ms(ms: u64) -> BootTime {
        BootTime(ms * 1_000)
    }

    #[test]
    fn a_lease_counts_from_sending_the_heartbeat_that_was_read_back() {
        let mut lease = Lease::default();
        assert!(!lease.holds(ms(0)));
        lease.send(1, ms(100), HybridTime::new(500, 0), &T);
        lease.send(2, ms(350), HybridTime::new(750, 0), &T);
        assert!(!lease.holds(ms(400)), "sent is not read back");
        lease.read(1, ms(900), &T);
        assert!(lease.holds(ms(1_099)) && !lease.holds(ms(1_100)));
        assert_eq!(lease.reserve(), HybridTime::new(500, 0));
        lease.read(2, ms(1_200), &T);
        assert!(lease.holds(ms(1_349)) && !lease.holds(ms(1_350)));
    }

    #[test]
    fn a_heartbeat_that_is_read_back_late_or_was_not_sent_gives_nothing() {
        let mut lease = Lease::default();
        lease.send(1, ms(0), HybridTime::new(1, 0), &T);
        lease.read(7, ms(10), &T);
        assert!(!lease.holds(ms(10)));
        lease.send(8, ms(250), HybridTime::new(2, 0), &T);
        lease.send(9, ms(9_000), HybridTime::new(3, 0), &T);
        lease.read(8, ms(9_001), &T);
        assert!(!lease.holds(ms(9_001)), "its lease has ended before it was read");
    }
}
