//! Dates and times: those of the protocol count from 2000-01-01, those of Arrow from 1970-01-01.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Days from 1970-01-01 to 2000-01-01.
pub(crate) const EPOCH_DAYS: i32 = 10_957;
/// Microseconds from 1970-01-01 to 2000-01-01.
pub(crate) const EPOCH_MICROS: i64 = EPOCH_DAYS as i64 * DAY_MICROS;
pub(crate) const DAY_MICROS: i64 = 86_400 * SECOND_MICROS;
pub(crate) const SECOND_MICROS: i64 = 1_000_000;

/// A day of the Gregorian calendar. The year 0 is 1 BC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Day {
    pub year: i64,
    pub month: u8,
    pub day: u8,
}

impl Day {
    /// Returns the day that is `days` after 1970-01-01, for any number: years of 400 have the same days each.
    pub fn after_1970(days: i64) -> Self {
        const DAYS_OF_400_YEARS: i64 = 146_097;
        // counted from 0000-03-01, so that the leap day is the last one of its year
        let days = days + 719_468;
        let era = days.div_euclid(DAYS_OF_400_YEARS);
        let of_era = days.rem_euclid(DAYS_OF_400_YEARS);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        // both are in the range of a calendar
        Self { year, month: month as u8, day: day as u8 }
    }
}

/// Returns the seconds by which clocks of the zone are ahead of UTC at an instant.
pub(crate) fn offset_seconds(zone: &TimeZone, micros: i64) -> i32 {
    // beyond the years of the library, a zone stays as it is at the border
    let instant = Timestamp::from_microsecond(micros).unwrap_or(match micros < 0 {
        true => Timestamp::MIN,
        false => Timestamp::MAX,
    });
    zone.to_offset(instant).seconds()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, year, month, day) in [
            (0, 1970, 1, 1),
            (-1, 1969, 12, 31),
            (11_016, 2000, 2, 29),
            (i64::from(EPOCH_DAYS), 2000, 1, 1),
            (-719_528, 0, 1, 1),
            (-719_529, -1, 12, 31),
        ] {
            assert_eq!(Day::after_1970(days), Day { year, month, day }, "{days}");
        }
    }
}
