//! Calendar of the buckets, in UTC: their ranges, and parsing of instants and time ranges.

use std::ops::Range;

use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{Span, Timestamp, ToSpan};
use tidemill_lang::siddhi::ast::PeriodUnit;

const SECOND_MS: i64 = 1000;
const MINUTE_MS: i64 = 60 * SECOND_MS;
const HOUR_MS: i64 = 60 * MINUTE_MS;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Greatest offset from UTC, in seconds.
const OFFSET_S_MAX: i64 = 18 * 3600;

/// Format of an instant, for messages.
pub(super) const INSTANT_FORMAT: &str =
    "yyyy-MM-dd HH:mm:ss, optionally followed by an offset such as ` +05:30`";

/// From the first instant of the year 1 to that of the year 9999, in milliseconds since 1970.
const YEARS: Range<i64> = -62_135_596_800_000..253_370_764_800_000;

/// Checks that a bucket may contain `time`, in milliseconds since 1970. Errors: it lies outside of the years
/// 1 to 9998.
pub(super) fn check_time(time: i64) -> Result<(), String> {
    match YEARS.contains(&time) {
        true => Ok(()),
        false => Err(out_of_range(time)),
    }
}

fn out_of_range(time: i64) -> String {
    format!("{time} is out of the range of times: expected milliseconds since 1970")
}

/// Returns the range of the `unit` bucket that contains `time`, in milliseconds since 1970.
///
/// Errors: `time` lies outside of the years 1 to 9998.
pub(super) fn bucket_range(unit: PeriodUnit, time: i64) -> Result<Range<i64>, String> {
    let fixed = |length: i64| {
        let start = time.div_euclid(length) * length;
        start..start + length
    };
    check_time(time)?;
    let date = || Some(Timestamp::from_millisecond(time).ok()?.to_zoned(TimeZone::UTC).date());
    let from = |first: Date, length: Span| {
        let end = first.checked_add(length).ok()?;
        Some(midnight(first)?..midnight(end)?)
    };
    let calendar = match unit {
        PeriodUnit::Second => Some(fixed(SECOND_MS)),
        PeriodUnit::Minute => Some(fixed(MINUTE_MS)),
        PeriodUnit::Hour => Some(fixed(HOUR_MS)),
        PeriodUnit::Day => Some(fixed(DAY_MS)),
        PeriodUnit::Week => {
            // 1970 began on a Thursday
            let start = (time.div_euclid(DAY_MS) - (time.div_euclid(DAY_MS) + 3).rem_euclid(7)) * DAY_MS;
            Some(start..start + 7 * DAY_MS)
        }
        PeriodUnit::Month => date().and_then(|date| from(date.first_of_month(), 1.month())),
        PeriodUnit::Year => date().and_then(|date| from(date.first_of_year(), 1.year())),
    };
    calendar.ok_or_else(|| out_of_range(time))
}

fn midnight(date: Date) -> Option<i64> {
    Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

/// Parses an instant: `2023-03-14 10:00:00`, `2023-03-14 10:00:00 +05:30`. `None` if `text` has another form.
pub(super) fn parse_instant(text: &str) -> Option<i64> {
    let (parts, offset_ms) = split(text)?;
    let given = numbers(&parts)?;
    Some(millisecond(date_time(&given)?)? - offset_ms)
}

/// Parses a time range: a month `2023-03-** **:**:**`, a second `2023-03-14 10:00:00`, or similar, with an
/// optional UTC offset. `None` if `text` has another form.
pub(super) fn parse_range(text: &str) -> Option<Range<i64>> {
    let (parts, offset_ms) = split(text)?;
    let given = parts.iter().take_while(|part| **part != "**").count();
    if given == 0 || parts[given..].iter().any(|part| *part != "**") {
        return None;
    }
    let start = date_time(&numbers(&parts[..given])?)?;
    let length = match given {
        1 => 1.year(),
        2 => 1.month(),
        3 => 1.day(),
        4 => 1.hour(),
        5 => 1.minute(),
        _ => 1.second(),
    };
    let end = start.checked_add(length).ok()?;
    Some(millisecond(start)? - offset_ms..millisecond(end)? - offset_ms)
}

/// Splits an instant into year, month, day, hour, minute and second, and its UTC offset in milliseconds.
fn split(text: &str) -> Option<([&str; 6], i64)> {
    let text = text.trim();
    let (local, offset) = match text.len() {
        19 => (text, None),
        26 => (text.get(..19)?, Some(text.get(19..)?)),
        _ => return None,
    };
    let marks = [(4, "-"), (7, "-"), (10, " "), (13, ":"), (16, ":")];
    if marks.iter().any(|(at, mark)| local.get(*at..at + 1) != Some(mark)) {
        return None;
    }
    let part = |from: usize, to: usize| local.get(from..to);
    let parts = [part(0, 4)?, part(5, 7)?, part(8, 10)?, part(11, 13)?, part(14, 16)?, part(17, 19)?];
    Some((parts, offset.map_or(Some(0), parse_offset)?))
}

/// Parses ` +05:30` to milliseconds.
fn parse_offset(text: &str) -> Option<i64> {
    let sign = match text.get(..2)? {
        " +" => 1,
        " -" => -1,
        _ => return None,
    };
    if text.get(4..5)? != ":" {
        return None;
    }
    let (hours, minutes) = (number(text.get(2..4)?)?, number(text.get(5..7)?)?);
    let seconds = i64::from(hours) * 3600 + i64::from(minutes) * 60;
    (minutes < 60 && seconds <= OFFSET_S_MAX).then_some(sign * seconds * SECOND_MS)
}

fn number(text: &str) -> Option<i16> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

fn numbers(parts: &[&str]) -> Option<Vec<i16>> {
    parts.iter().map(|part| number(part)).collect()
}

/// Returns the date and time of the given leading fields; the missing ones are the smallest possible.
fn date_time(given: &[i16]) -> Option<DateTime> {
    let part = |i: usize, first: i8| given.get(i).map_or(Some(first), |n| i8::try_from(*n).ok());
    let year = given.first().copied().filter(|year| (1..=9998).contains(year))?;
    DateTime::new(year, part(1, 1)?, part(2, 1)?, part(3, 0)?, part(4, 0)?, part(5, 0)?, 0).ok()
}

fn millisecond(local: DateTime) -> Option<i64> {
    Some(local.to_zoned(TimeZone::UTC).ok()?.timestamp().as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(text: &str) -> i64 {
        parse_instant(text).unwrap_or_else(|| panic!("{text}"))
    }

    #[test]
    fn buckets_begin_at_whole_units() {
        let time = ms("2024-02-29 23:59:59") + 999;
        for (unit, start, end) in [
            (PeriodUnit::Second, "2024-02-29 23:59:59", "2024-03-01 00:00:00"),
            (PeriodUnit::Minute, "2024-02-29 23:59:00", "2024-03-01 00:00:00"),
            (PeriodUnit::Hour, "2024-02-29 23:00:00", "2024-03-01 00:00:00"),
            (PeriodUnit::Day, "2024-02-29 00:00:00", "2024-03-01 00:00:00"),
            (PeriodUnit::Week, "2024-02-26 00:00:00", "2024-03-04 00:00:00"),
            (PeriodUnit::Month, "2024-02-01 00:00:00", "2024-03-01 00:00:00"),
            (PeriodUnit::Year, "2024-01-01 00:00:00", "2025-01-01 00:00:00"),
        ] {
            assert_eq!(bucket_range(unit, time), Ok(ms(start)..ms(end)), "{unit:?}");
        }
    }

    #[test]
    fn buckets_before_1970_and_beyond_the_calendar() {
        assert_eq!(bucket_range(PeriodUnit::Second, -1), Ok(-1000..0));
        assert_eq!(bucket_range(PeriodUnit::Year, -1), Ok(ms("1969-01-01 00:00:00")..0));
        for time in [i64::MIN, i64::MAX, ms("9998-12-31 23:59:59") + 1000] {
            assert!(bucket_range(PeriodUnit::Month, time).is_err());
            assert!(bucket_range(PeriodUnit::Second, time).is_err());
        }
    }

    #[test]
    fn texts_name_instants() {
        assert_eq!(parse_instant("1970-01-01 00:00:01"), Some(1000));
        assert_eq!(parse_instant(" 2023-03-14 12:00:00 +01:00 "), parse_instant("2023-03-14 11:00:00"));
        assert_eq!(parse_instant("2023-03-14 12:00:00 -05:30"), parse_instant("2023-03-14 17:30:00"));
        for wrong in [
            "",
            "2023-03-14",
            "2023-02-29 00:00:00",
            "2023-13-01 00:00:00",
            "2023-03-14 24:00:00",
            "2023-03-14T10:00:00",
            "2023-03-14 10:00:0x",
            "2023-03-14 10:00:00+01:00",
            "2023-03-14 10:00:00 +1:00 ",
            "2023-03-14 10:00:00 +19:00",
            "2023-03-14 10:00:00 +01:60",
            "2023-03-** **:**:**",
            "2023-03-14 10:00:0ä",
            "0000-01-01 00:00:00",
        ] {
            assert_eq!(parse_instant(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn texts_name_stretches() {
        for (text, start, end) in [
            ("2023-**-** **:**:**", "2023-01-01 00:00:00", "2024-01-01 00:00:00"),
            ("2024-02-** **:**:**", "2024-02-01 00:00:00", "2024-03-01 00:00:00"),
            ("2024-02-28 **:**:**", "2024-02-28 00:00:00", "2024-02-29 00:00:00"),
            ("2023-03-14 10:**:**", "2023-03-14 10:00:00", "2023-03-14 11:00:00"),
            ("2023-03-14 10:05:**", "2023-03-14 10:05:00", "2023-03-14 10:06:00"),
            ("2023-03-14 10:05:59", "2023-03-14 10:05:59", "2023-03-14 10:06:00"),
            ("2023-03-14 **:**:** +05:30", "2023-03-13 18:30:00", "2023-03-14 18:30:00"),
        ] {
            assert_eq!(parse_range(text), Some(ms(start)..ms(end)), "{text}");
        }
        for wrong in
            ["2023-**-14 **:**:**", "****-**-** **:**:**", "2023-03-14", "2023-*-** **:**:**", "2023"]
        {
            assert_eq!(parse_range(wrong), None, "{wrong}");
        }
    }
}
