//! Units of the times of lines.

use tidemill_types::{EpochUnit, Timestamp};

/// Unit of the times of lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Precision {
    /// Found for each time by its size: those near the present differ by a factor of 1,000.
    Auto,
    /// Nanoseconds.
    #[default]
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Minutes.
    Minutes,
    /// Hours.
    Hours,
}

impl Precision {
    /// Returns the instant that is `number` units after 1970, in whole microseconds; `None` outside the years -9999 to 9999.
    pub fn timestamp(self, number: i64) -> Option<Timestamp> {
        let minutes =
            |factor| number.checked_mul(factor).and_then(|seconds| EpochUnit::Seconds.timestamp(seconds));
        match self {
            Self::Auto => Self::of_size(number).timestamp(number),
            Self::Nanoseconds => EpochUnit::Nanos.timestamp(number),
            Self::Microseconds => EpochUnit::Micros.timestamp(number),
            Self::Milliseconds => EpochUnit::Millis.timestamp(number),
            Self::Seconds => EpochUnit::Seconds.timestamp(number),
            Self::Minutes => minutes(60),
            Self::Hours => minutes(3_600),
        }
    }

    /// Returns the unit in which a time lies between 1653 and 2286 or so, from below 5·10⁹ seconds upwards.
    fn of_size(number: i64) -> Self {
        match number.unsigned_abs() {
            0..5_000_000_000 => Self::Seconds,
            5_000_000_000..5_000_000_000_000 => Self::Milliseconds,
            5_000_000_000_000..5_000_000_000_000_000 => Self::Microseconds,
            _ => Self::Nanoseconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_of_one_instant() {
        let at = Timestamp::parse("2026-01-05T09:00:00Z").unwrap();
        for (precision, number) in [
            (Precision::Nanoseconds, 1_767_603_600_000_000_000),
            (Precision::Microseconds, 1_767_603_600_000_000),
            (Precision::Milliseconds, 1_767_603_600_000),
            (Precision::Seconds, 1_767_603_600),
            (Precision::Minutes, 29_460_060),
            (Precision::Hours, 491_001),
            (Precision::Auto, 1_767_603_600),
            (Precision::Auto, 1_767_603_600_000),
            (Precision::Auto, 1_767_603_600_000_000),
            (Precision::Auto, 1_767_603_600_000_000_000),
        ] {
            assert_eq!(precision.timestamp(number), Some(at), "{precision:?} {number}");
        }
        assert_eq!(Precision::Hours.timestamp(i64::MAX), None);
        assert_eq!(Precision::Auto.timestamp(i64::MIN), EpochUnit::Nanos.timestamp(i64::MIN));
    }
}
