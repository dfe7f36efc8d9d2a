//! Cron schedules in Quartz's format, in UTC.
//!
//! `seconds minutes hours day-of-month month day-of-week [year]`, for example `0 30 9 ? * MON-FRI`. One of
//! the two day fields must be `?`. Case is ignored.
//!
//! | in a field | meaning |
//! | --- | --- |
//! | `*` | every value |
//! | `a`, `a-b`, `x,y` | a value, a range (may wrap around: `22-2`, `FRI-MON`), a list |
//! | `*/n`, `/n`, `a/n`, `a-b/n` | each nth from the start |
//! | `L`, `L-3`, `LW` (day of month) | the last day, the third before it, the last weekday |
//! | `15W` (day of month) | the weekday nearest to the 15th, within the month |
//! | `6L`, `6#3` (day of week) | the last, the third Friday; 1 is Sunday; `L` alone is Saturday |
//!
//! Source: the format of Quartz's `CronExpression`. Differs: `L`, `W` and `#` may occur in lists; input that
//! Quartz silently ignores (`MON7`) is an error.

mod field;
#[cfg(test)]
mod tests;

use jiff::civil::{Date, Time};
use jiff::tz::TimeZone;

use self::field::{DAY_OF_MONTH, DAY_OF_WEEK, HOURS, MINUTES, MONTHS, SECONDS, Years};

/// Last year of the search: a schedule without an instant up to its end has none.
const YEAR_MAX: i16 = 2299;

/// Cron schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: Days,
    months: u64,
    years: Years,
}

/// Selected days of a month. Sets are bitmaps: bit `n` stands for `n`.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Days {
    OfMonth {
        numbers: u64,
        /// Days that are replaced by their nearest weekday.
        nearest: u64,
        /// Days before the last one, and whether to take the nearest weekday.
        last: Vec<(i8, bool)>,
    },
    /// Weekdays are numbered from 1 for Sunday.
    OfWeek {
        weekdays: u64,
        last: u64,
        /// Weekday and its occurrence in the month.
        nth: Vec<(i8, i8)>,
    },
}

impl Cron {
    /// Parses a schedule. Errors: names the invalid field and the reason.
    pub fn parse(text: &str) -> Result<Self, String> {
        let upper = text.to_ascii_uppercase();
        let fields: Vec<&str> = upper.split_ascii_whitespace().collect();
        let (days, year) = match &*fields {
            [days @ .., year] if days.len() == 6 => (days, *year),
            days => (days, "*"),
        };
        let &[seconds, minutes, hours, of_month, month, of_week] = days else {
            let form = "seconds minutes hours day-of-month month day-of-week [year]";
            return Err(format!(
                "`{text}` has {} fields, a schedule needs six or seven: {form}",
                fields.len()
            ));
        };
        Ok(Self {
            seconds: SECONDS.set(seconds)?,
            minutes: MINUTES.set(minutes)?,
            hours: HOURS.set(hours)?,
            days: Days::parse(of_month, of_week)?,
            months: MONTHS.set(month)?,
            years: Years::parse(year)?,
        })
    }

    /// Returns the first instant after `ms`, in milliseconds since 1970, or `None` if the schedule has no
    /// instant up to the year 2299.
    pub fn next_after(&self, ms: i64) -> Option<i64> {
        let second = ms.div_euclid(1000).checked_add(1)?.max(0);
        let from = TimeZone::UTC.to_datetime(jiff::Timestamp::from_second(second).ok()?);
        for year in from.year()..=YEAR_MAX {
            if !self.years.contains(year) {
                continue;
            }
            let first_month = if year == from.year() { from.month() } else { 1 };
            for month in first_month..=12 {
                if !has(self.months, month) {
                    continue;
                }
                let mut days = self.days.in_month(year, month)?;
                if (year, month) == (from.year(), from.month()) {
                    days &= !0 << from.day();
                }
                while days != 0 {
                    let date = Date::new(year, month, days.trailing_zeros() as i8).ok()?;
                    let earliest = if date == from.date() { from.time() } else { Time::midnight() };
                    if let Some(time) = self.time(earliest) {
                        let instant = TimeZone::UTC.to_timestamp(date.to_datetime(time)).ok()?;
                        return Some(instant.as_millisecond());
                    }
                    days &= days - 1;
                }
            }
        }
        None
    }

    /// Returns the first time of day at or after `earliest`.
    fn time(&self, earliest: Time) -> Option<Time> {
        for hour in earliest.hour()..24 {
            if !has(self.hours, hour) {
                continue;
            }
            let same_hour = hour == earliest.hour();
            for minute in if same_hour { earliest.minute() } else { 0 }..60 {
                if !has(self.minutes, minute) {
                    continue;
                }
                let first = if same_hour && minute == earliest.minute() { earliest.second() } else { 0 };
                if let Some(second) = (first..60).find(|second| has(self.seconds, *second)) {
                    return Time::new(hour, minute, second, 0).ok();
                }
            }
        }
        None
    }
}

impl Days {
    fn parse(of_month: &str, of_week: &str) -> Result<Self, String> {
        match (of_month, of_week) {
            ("?", "?") => Err("day of month and day of week are both `?`: give one of them".into()),
            ("?", text) => Self::of_week(text),
            (text, "?") => Self::of_month(text),
            _ => Err("day of month and day of week are both given: write `?` for one of them".into()),
        }
    }

    fn of_month(text: &str) -> Result<Self, String> {
        let (mut numbers, mut nearest, mut last) = (0, 0, vec![]);
        for item in text.split(',') {
            if let Some(rest) = item.strip_prefix('L') {
                let (offset, weekday) = match rest.strip_suffix('W') {
                    Some(offset) => (offset, true),
                    None => (rest, false),
                };
                let offset = match offset.strip_prefix('-') {
                    Some(n) => n.parse().ok().filter(|n| (0..=30).contains(n)),
                    None if offset.is_empty() => Some(0),
                    None => None,
                };
                last.push((offset.ok_or_else(|| DAY_OF_MONTH.wrong(item))?, weekday));
            } else if let Some(day) = item.strip_suffix('W') {
                nearest |= 1 << DAY_OF_MONTH.value(day)?;
            } else {
                numbers |= DAY_OF_MONTH.item(item)?;
            }
        }
        Ok(Self::OfMonth { numbers, nearest, last })
    }

    fn of_week(text: &str) -> Result<Self, String> {
        let (mut weekdays, mut last, mut nth) = (0, 0, vec![]);
        for item in text.split(',') {
            if item == "L" {
                weekdays |= 1 << 7;
            } else if let Some((day, n)) = item.split_once('#') {
                let n = n.parse().ok().filter(|n| (1..=5).contains(n));
                nth.push((DAY_OF_WEEK.value(day)? as i8, n.ok_or_else(|| DAY_OF_WEEK.wrong(item))?));
            } else if let Some(day) = item.strip_suffix('L') {
                last |= 1 << DAY_OF_WEEK.value(day)?;
            } else {
                weekdays |= DAY_OF_WEEK.item(item)?;
            }
        }
        Ok(Self::OfWeek { weekdays, last, nth })
    }

    /// Returns the selected days of a month as bits 1 to 31.
    fn in_month(&self, year: i16, month: i8) -> Option<u64> {
        let first = Date::new(year, month, 1).ok()?;
        let length = first.days_in_month();
        let weekday = |day: i8| (first.weekday().to_sunday_zero_offset() + day - 1) % 7 + 1;
        let nearest_weekday = |day: i8| match weekday(day) {
            7 if day == 1 => 3,
            7 => day - 1,
            1 if day == length => day - 2,
            1 => day + 1,
            _ => day,
        };
        let mut days = 0;
        match self {
            Self::OfMonth { numbers, nearest, last } => {
                days |= numbers & ((1 << (length + 1)) - 1);
                for day in (1..=length).filter(|day| has(*nearest, *day)) {
                    days |= 1 << nearest_weekday(day);
                }
                for (offset, is_weekday) in last.iter().filter(|(offset, _)| *offset < length) {
                    let day = length - offset;
                    days |= 1 << if *is_weekday { nearest_weekday(day) } else { day };
                }
            }
            Self::OfWeek { weekdays, last, nth } => {
                for day in 1..=length {
                    let (weekday, is_last) = (weekday(day), day + 7 > length);
                    let is_nth = || nth.contains(&(weekday, (day - 1) / 7 + 1));
                    if has(*weekdays, weekday) || has(*last, weekday) && is_last || is_nth() {
                        days |= 1 << day;
                    }
                }
            }
        }
        Some(days)
    }
}

fn has(set: u64, value: i8) -> bool {
    set >> value & 1 == 1
}
