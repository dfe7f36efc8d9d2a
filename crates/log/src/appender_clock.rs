//! Clock values that records carry from their appenders.

use std::fmt;
use std::sync::Arc;

use tidemill_types::Timestamp;

use crate::options::machine_time;

/// Bits of a clock value below its milliseconds.
const COUNTER_BITS: u32 = 16;

/// Source of the clock values that a log writes into the records of this process, where its format has room for them: a hybrid clock of
/// a cluster's node, or the clock of the machine.
///
/// Shape: milliseconds since 1970 times 2^16, plus a counter. Values are compared as numbers.
#[derive(Clone)]
pub struct AppenderClock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl AppenderClock {
    /// Takes the values from `now`.
    pub fn new(now: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the value for a record that is appended now.
    pub fn now(&self) -> u64 {
        (self.0)()
    }
}

impl Default for AppenderClock {
    /// Returns the clock of the machine.
    fn default() -> Self {
        Self::new(|| clock_at(machine_time()))
    }
}

impl fmt::Debug for AppenderClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AppenderClock")
    }
}

/// Returns the clock value of a wall-clock time, for records that carry none; 0 before 1970.
pub fn clock_at(time: Timestamp) -> u64 {
    let ms = u64::try_from(time.micros() / 1000).unwrap_or(0);
    ms.min(u64::MAX >> COUNTER_BITS) << COUNTER_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_values_have_milliseconds_above_a_counter() {
        assert_eq!(clock_at(Timestamp(1_999)), 1 << 16);
        assert_eq!(clock_at(Timestamp(-1)), 0);
        assert_eq!(clock_at(Timestamp(i64::MAX)), ((1 << 48) - 1) << 16);
    }
}
