//! Days, months and years of times in microseconds.

pub(super) const DAY: i64 = 86_400_000_000;

/// Year and month as months since the year 0, and the microseconds since the month began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MonthTime {
    pub month: i64,
    pub within: i64,
}

impl MonthTime {
    pub fn of(micros: i64) -> Self {
        let days = micros.div_euclid(DAY);
        let (year, month, day) = civil(days);
        let within = (day - 1) * DAY + micros.rem_euclid(DAY);
        Self { month: year * 12 + month - 1, within }
    }

    /// Returns the time; a day after the end of the month is its last day. `None` if it is out of range.
    pub fn micros(self) -> Option<i64> {
        let start = start_of(self.month)?;
        let days = start_of(self.month + 1)?.checked_sub(start)? / DAY;
        let (day, time) = (self.within.div_euclid(DAY), self.within.rem_euclid(DAY));
        start.checked_add(day.min(days - 1) * DAY)?.checked_add(time)
    }
}

/// A time in UTC, by the calendar.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CivilTime {
    /// Days since 1970-01-01.
    pub days: i64,
    pub year: i64,
    pub month: i64,
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    /// Microseconds of the second.
    pub micros: i64,
}

impl CivilTime {
    pub fn of(micros: i64) -> Self {
        let (days, time) = (micros.div_euclid(DAY), micros.rem_euclid(DAY));
        let (year, month, day) = civil(days);
        let seconds = time / 1_000_000;
        Self {
            days,
            year,
            month,
            day,
            hour: seconds / 3_600,
            minute: seconds / 60 % 60,
            second: seconds % 60,
            micros: time % 1_000_000,
        }
    }

    /// Returns the month from 0 to 11.
    pub fn month0(&self) -> usize {
        usize::try_from(self.month - 1).unwrap_or(0).min(11)
    }

    /// Returns the day of the week, Sunday is 0.
    pub fn weekday(&self) -> i64 {
        (self.days + 4).rem_euclid(7)
    }

    /// Returns the day of the year, from 1.
    pub fn day_of_year(&self) -> i64 {
        self.days - days(self.year, 1) + 1
    }

    /// Returns year and number of the week by ISO 8601.
    pub fn iso_week(&self) -> (i64, i64) {
        // the year of a week is that of its Thursday
        let thursday = self.days - (self.weekday() + 6) % 7 + 3;
        let (year, ..) = civil(thursday);
        (year, (thursday - days(year, 1)) / 7 + 1)
    }
}

/// Returns the start of a month.
pub(super) fn start_of(month: i64) -> Option<i64> {
    days(month.div_euclid(12), month.rem_euclid(12) + 1).checked_mul(DAY)
}

/// Returns the start of a day of the years 1 to 9999; `None` if the calendar has no such day.
pub(crate) fn micros_of(year: i64, month: i64, day: i64) -> Option<i64> {
    if !(1..=9999).contains(&year) || !(1..=12).contains(&month) || day < 1 {
        return None;
    }
    let start = start_of(year * 12 + month - 1)?;
    let next = start_of(year * 12 + month)?;
    let time = start.checked_add((day - 1).checked_mul(DAY)?)?;
    (time < next).then_some(time)
}

/// Returns the days from 1970-01-01 to the first of a month of the proleptic Gregorian calendar.
fn days(year: i64, month: i64) -> i64 {
    // years that begin in March, so that the leap day is the last
    let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + (153 * month + 2) / 5 - 719_468
}

/// Returns year, month and day.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let year = year + era * 400;
    if month < 10 { (year, month + 3, day) } else { (year + 1, month - 9, day) }
}

#[cfg(test)]
mod tests {
    use tidemill_types::Timestamp;

    use super::*;

    fn micros(text: &str) -> i64 {
        Timestamp::parse(text).unwrap().0
    }

    #[test]
    fn months_begin_on_their_first_day() {
        for (text, start) in [
            ("9999-12-31T23:59:59.999999Z", "9999-12-01"),
            ("0001-01-01", "0001-01-01"),
            ("2024-02-29T12:00:00Z", "2024-02-01"),
            ("1969-12-31T23:59:59Z", "1969-12-01"),
            ("1900-03-01", "1900-03-01"),
        ] {
            let time = MonthTime::of(micros(text));
            assert_eq!(time.micros(), Some(micros(text)), "{text}");
            assert_eq!(start_of(time.month), Some(micros(start)), "{text}");
        }
        let day = MonthTime::of(micros("2024-01-31"));
        assert_eq!(MonthTime { month: day.month + 1, ..day }.micros(), Some(micros("2024-02-29")));
    }
}
