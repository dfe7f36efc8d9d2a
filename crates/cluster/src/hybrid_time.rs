//! Hybrid time: stamps that follow the wall clock and respect causes.
//!
//! ```
//! use tidemill_cluster::{HybridClock, HybridTime};
//!
//! # fn main() -> tidemill_types::Result<()> {
//! let (mut a, mut b) = (HybridClock::default(), HybridClock::default());
//! let cause = a.tick(5_000);
//! b.observe(cause, 4_990)?; // the clock of b is 10 ms behind
//! let effect = b.tick(4_991);
//! assert!(effect > cause);
//! assert_eq!(effect, HybridTime::new(5_000, 1));
//! # Ok(())
//! # }
//! ```
//!
//! A [`HybridTime`] has 64 bits: 48 bits of milliseconds since 1970, which last until the year 10889, and a counter of 16 bits. Stamps are
//! compared as numbers. A counter that overflows carries into the milliseconds, so a clock may run ahead of the wall clock
//! by a millisecond for each 65,536 stamps of one millisecond; nothing else moves it ahead of all wall clocks of the cluster.
//!
//! An owner stamps each view that it publishes, before it answers. Stamps are not in the log. So that the next owner of a partition starts
//! above all of them, an owner reserves time ahead: its heartbeats carry a bound, it stamps below the bound of a heartbeat that it has read
//! back, and the next owner starts at the largest bound that the log has of the former one.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidemill_types::{Error, Result};

use crate::timing::CLOCK_OFFSET_MS_MAX;

const COUNTER_BITS: u32 = 16;

/// A stamp: milliseconds since 1970 and a counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HybridTime(u64);

impl HybridTime {
    /// Largest milliseconds of a stamp.
    pub const MS_MAX: u64 = (1 << 48) - 1;

    /// Creates a stamp; milliseconds above [`Self::MS_MAX`] become that.
    pub fn new(ms: u64, counter: u16) -> Self {
        Self(ms.min(Self::MS_MAX) << COUNTER_BITS | u64::from(counter))
    }

    /// Returns the milliseconds since 1970.
    pub fn ms(self) -> u64 {
        self.0 >> COUNTER_BITS
    }

    /// Returns the counter within the millisecond.
    pub fn counter(self) -> u16 {
        self.0 as u16
    }

    /// Returns the next larger stamp.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for HybridTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.ms(), self.counter())
    }
}

/// The hybrid clock of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct HybridClock {
    last: HybridTime,
}

impl HybridClock {
    /// Returns a stamp above all that the clock has given, observed or was set to. `clock_ms` is the wall clock.
    pub fn tick(&mut self, clock_ms: u64) -> HybridTime {
        self.last = self.now(clock_ms).max(self.last.next());
        self.last
    }

    /// Returns the time without giving a stamp: the wall clock, or the last stamp where that is ahead.
    pub fn now(&self, clock_ms: u64) -> HybridTime {
        HybridTime::new(clock_ms, 0).max(self.last)
    }

    /// Merges the stamp of a message, of a log record or of a driver's `$clusterTime`: later stamps are above it.
    ///
    /// Errors: `Invalid` for a stamp that is more than [`CLOCK_OFFSET_MS_MAX`] ahead of the wall clock; the clock stays as it is, so that one
    /// machine with a wrong clock does not move the time of all others.
    pub fn observe(&mut self, stamp: HybridTime, clock_ms: u64) -> Result<()> {
        let ahead = stamp.ms().saturating_sub(clock_ms);
        if ahead > CLOCK_OFFSET_MS_MAX {
            return Err(Error::invalid(format!(
                "the stamp {stamp} is {ahead} ms ahead of this machine's clock, at most {CLOCK_OFFSET_MS_MAX} are allowed: \
                 compare `date` on both machines, and synchronize their clocks"
            )));
        }
        self.at_least(stamp);
        Ok(())
    }

    /// Sets the clock to at least `stamp`, however far ahead that is: the next owner of a partition must start above what the log says
    /// of the former one.
    pub fn at_least(&mut self, stamp: HybridTime) {
        self.last = self.last.max(stamp);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_rise_whatever_the_wall_clock_does() {
        let mut clock = HybridClock::default();
        let mut last = HybridTime::default();
        for clock_ms in [5, 5, 7, 3, 0, u64::MAX, 8] {
            let stamp = clock.tick(clock_ms);
            assert!(stamp > last, "{stamp} after {last}");
            last = stamp;
        }
    }

    #[test]
    fn a_full_counter_carries_into_the_milliseconds() {
        let mut clock = HybridClock::default();
        clock.at_least(HybridTime::new(9, u16::MAX));
        assert_eq!(clock.tick(9), HybridTime::new(10, 0));
    }

    #[test]
    fn a_stamp_far_ahead_is_refused_and_changes_nothing() {
        let mut clock = HybridClock::default();
        clock.tick(1_000);
        clock.observe(HybridTime::new(11_000, 3), 1_000).unwrap();
        let before = clock.clone();
        let error = clock.observe(HybridTime::new(11_001, 0), 1_000).unwrap_err().to_string();
        assert!(error.contains("10001 ms ahead") && error.contains("`date`"), "{error}");
        assert_eq!(clock, before);
        clock.at_least(HybridTime::new(90_000, 0));
        assert_eq!(clock.tick(1_001), HybridTime::new(90_000, 1));
    }
}
