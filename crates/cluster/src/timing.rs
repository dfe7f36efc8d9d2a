//! Intervals of the control protocol, and the clock that they are measured with.
//!
//! ```text
//! owner X       heartbeat 17 sent ──────────── lease: answers ────────────▷│ silent
//! next owner N      └─ read ───────────────── take-over wait ──────────────────▷│ barrier, answers
//! all                  └─ read ─────────────────── suspicion ──────────────────────▷│ remove{X, 17}
//! ```
//!
//! N reads a heartbeat after X has sent it, and waits for longer than X answers. So X is silent before N answers, however late
//! N has read it, and whatever else is late. The two clocks need the same speed within [`CLOCK_SPEED_PERCENT`], not the same time.

use serde::{Deserialize, Serialize};
use tidemill_types::{Error, Result};

/// Largest difference between the speeds of the clocks of two nodes, in percent of the slower one.
pub const CLOCK_SPEED_PERCENT: u64 = 5;

/// Largest difference between the clock of a node and those of the members, in milliseconds.
pub const CLOCK_OFFSET_MS_MAX: u64 = 10_000;

/// A moment on the monotonic clock of one machine, in microseconds. The clock must count the time in which the machine is suspended,
/// as `CLOCK_BOOTTIME` does. Moments of two machines, or before and after a restart of one, cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct BootTime(pub u64);

impl BootTime {
    /// Returns the moment `ms` milliseconds later.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000)))
    }
}

/// A reading of both clocks of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Now {
    /// The monotonic clock, for leases and waits.
    pub boot: BootTime,
    /// The wall clock, milliseconds since 1970, for hybrid time. It may jump: the protocol stays right.
    pub clock_ms: u64,
}

/// Intervals of the control protocol. All members use the same ones, so they are compared when a node joins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// Interval of heartbeats.
    pub heartbeat_ms: u64,
    /// Time for which a node may answer as owner after it has sent the newest heartbeat that it has read back.
    pub lease_ms: u64,
    /// Time without a heartbeat of a member after which others remove it.
    pub suspicion_ms: u64,
    /// Heartbeats, or joins, of its own that a node must have read back since the last heartbeat of a member that it removes: they
    /// show that the log takes and gives records.
    pub own_records_read: u32,
    /// Time that the next owner waits after it has read the last heartbeat of the former one.
    pub take_over_wait_ms: u64,
    /// Time since the last change of the members before partitions are moved to spread the load. It is counted in heartbeats of the
    /// log: a member must have sent `settle_ms / heartbeat_ms` of them since the change.
    pub settle_ms: u64,
}

impl Timing {
    /// Intervals for up to about 30 nodes: a lost node is removed after 1.5 s.
    pub const SMALL: Self = Self {
        heartbeat_ms: 250,
        lease_ms: 1_000,
        suspicion_ms: 1_500,
        own_records_read: 4,
        take_over_wait_ms: 1_100,
        settle_ms: 30_000,
    };

    /// Intervals for about 100 nodes, whose heartbeats would otherwise be 400 records a second, each read 100 times.
    pub const LARGE: Self = Self {
        heartbeat_ms: 1_000,
        lease_ms: 3_000,
        suspicion_ms: 4_500,
        own_records_read: 4,
        take_over_wait_ms: 3_300,
        settle_ms: 30_000,
    };

    /// Checks the relations that the protocol needs.
    ///
    /// Errors: `Invalid` with the relation that does not hold and the smallest value that would do.
    pub fn check(&self) -> Result<()> {
        let invalid = |message: String| Err(Error::invalid(format!("timing of the cluster: {message}")));
        let all =
            [self.heartbeat_ms, self.lease_ms, self.suspicion_ms, self.take_over_wait_ms, self.settle_ms];
        if all.contains(&0) || self.own_records_read == 0 {
            return invalid("all intervals and own_records_read must be at least 1".into());
        }
        if all.iter().any(|ms| *ms > 3_600_000) || self.own_records_read > 1_000 {
            return invalid("intervals must be at most 3600000 ms and own_records_read at most 1000".into());
        }
        if self.lease_ms < 2 * self.heartbeat_ms {
            return invalid(format!(
                "lease_ms = {} must be at least two heartbeats, {}, so that one late heartbeat ends no lease",
                self.lease_ms,
                2 * self.heartbeat_ms
            ));
        }
        // the owner's clock may be the slower one by CLOCK_SPEED_PERCENT
        let wait_min = self.lease_ms * (100 + CLOCK_SPEED_PERCENT) / 100 + 1;
        if self.take_over_wait_ms < wait_min {
            return invalid(format!(
                "take_over_wait_ms = {} must be at least {wait_min}: lease_ms and {CLOCK_SPEED_PERCENT} % for clocks of different speed",
                self.take_over_wait_ms
            ));
        }
        if self.suspicion_ms < self.take_over_wait_ms {
            return invalid(format!(
                "suspicion_ms = {} must be at least take_over_wait_ms, {}: an earlier removal brings no earlier answer",
                self.suspicion_ms, self.take_over_wait_ms
            ));
        }
        let own = u64::from(self.own_records_read).saturating_mul(self.heartbeat_ms);
        if self.suspicion_ms < own {
            return invalid(format!(
                "suspicion_ms = {} must be at least own_records_read heartbeats, {own}",
                self.suspicion_ms
            ));
        }
        Ok(())
    }

    /// Returns the number of heartbeats of one member that show that [`Self::settle_ms`] have passed.
    pub(crate) fn settle_heartbeats(&self) -> u64 {
        self.settle_ms.div_ceil(self.heartbeat_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn presets_hold_their_relations() {
        Timing::SMALL.check().unwrap();
        Timing::LARGE.check().unwrap();
    }

    #[test]
    fn a_relation_that_does_not_hold_names_the_value_that_would_do() {
        let wrong = |timing: Timing| timing.check().unwrap_err().to_string();
        let small = Timing::SMALL;
        assert!(wrong(Timing { take_over_wait_ms: 1_050, ..small }).contains("must be at least 1051"));
        assert!(Timing { take_over_wait_ms: 1_051, ..small }.check().is_ok());
        assert!(wrong(Timing { lease_ms: 499, ..small }).contains("two heartbeats, 500"));
        assert!(wrong(Timing { suspicion_ms: 1_099, ..small }).contains("take_over_wait_ms, 1100"));
        assert!(wrong(Timing { own_records_read: 7, ..small }).contains("own_records_read heartbeats, 1750"));
        assert!(wrong(Timing { heartbeat_ms: 0, ..small }).contains("at least 1"));
        assert!(wrong(Timing { settle_ms: u64::MAX, ..small }).contains("at most 3600000"));
    }
}
