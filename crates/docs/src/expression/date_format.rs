//! Dates as text: `$dateToString` and `$dateFromString`.

use bson::Bson;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

use super::dates::{date, instant, week_of_year, zone};
use super::{EvalValue, is_nullish, wrong_type};
use crate::error::{DocsError, ErrorCode, Result};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// `$dateToString`: date, format, timezone, onNull.
pub(super) fn to_string(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let format = match arguments.get(1) {
        Some(Some(Bson::String(format))) => Some(format.as_str()),
        None | Some(None) => None,
        Some(value) if is_nullish(value) => return Ok(Some(Bson::Null)),
        Some(value) => return Err(wrong_type(name, "a format, a string", value)),
    };
    let zone_given = arguments.get(2).is_some_and(Option::is_some);
    let default = if zone_given { "%Y-%m-%dT%H:%M:%S.%L" } else { "%Y-%m-%dT%H:%M:%S.%LZ" };
    let Some(at) = instant(name, arguments.first())? else {
        return Ok(arguments.get(3).cloned().flatten().or(Some(Bson::Null)));
    };
    let Some(zone) = zone(name, arguments.get(2))? else { return Ok(Some(Bson::Null)) };
    let text = formatted(name, &at.to_zoned(zone), format.unwrap_or(default))?;
    Ok(Some(Bson::String(text)))
}

fn formatted(name: &str, at: &Zoned, format: &str) -> Result<String> {
    use std::fmt::Write;
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let specifier = chars.next();
        let week = at.date().iso_week_date();
        let month =
            MONTHS.get(usize::from(at.month().unsigned_abs()).saturating_sub(1)).copied().unwrap_or("");
        let minutes = at.offset().seconds() / 60;
        let sign = if minutes < 0 { '-' } else { '+' };
        let written = match specifier {
            Some('d') => write!(out, "{:02}", at.day()),
            Some('G') => write!(out, "{:04}", week.year()),
            Some('H') => write!(out, "{:02}", at.hour()),
            Some('j') => write!(out, "{:03}", at.day_of_year()),
            Some('L') => write!(out, "{:03}", at.millisecond()),
            Some('m') => write!(out, "{:02}", at.month()),
            Some('M') => write!(out, "{:02}", at.minute()),
            Some('S') => write!(out, "{:02}", at.second()),
            Some('w') => write!(out, "{}", at.weekday().to_sunday_one_offset()),
            Some('u') => write!(out, "{}", at.weekday().to_monday_one_offset()),
            Some('U') => write!(out, "{:02}", week_of_year(at)),
            Some('V') => write!(out, "{:02}", week.week()),
            Some('Y') => write!(out, "{:04}", at.year()),
            Some('b') => write!(out, "{}", month.get(..3).unwrap_or(month)),
            Some('B') => write!(out, "{month}"),
            Some('z') => write!(out, "{sign}{:02}{:02}", minutes.abs() / 60, minutes.abs() % 60),
            Some('Z') => write!(out, "{minutes}"),
            Some('%') => write!(out, "%"),
            other => {
                let found = other.map_or_else(|| "the end".to_owned(), |c| format!("%{c}"));
                let message = format!("{name}: invalid format: {found} is not a specifier");
                return Err(DocsError::new(ErrorCode::BadDateFormat, message));
            }
        };
        written.map_err(|e| DocsError::bad_value(e.to_string()))?;
    }
    Ok(out)
}

/// `$dateFromString`: dateString, format, timezone, onError, onNull.
pub(super) fn from_string(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let on_error = arguments.get(3).cloned().flatten();
    let text = match arguments.first() {
        Some(Some(Bson::String(text))) => text,
        Some(value) if !is_nullish(value) => {
            return on_error
                .map_or_else(|| Err(wrong_type(name, "a string", value)), |value| Ok(Some(value)));
        }
        _ => return Ok(arguments.get(4).cloned().flatten().or(Some(Bson::Null))),
    };
    let zone_given = arguments.get(2).is_some_and(Option::is_some);
    let Some(zone) = zone(name, arguments.get(2))? else { return Ok(Some(Bson::Null)) };
    let parsed = match arguments.get(1) {
        Some(Some(Bson::String(format))) => parsed(text, format, &zone, zone_given),
        None | Some(None) => iso(text, &zone, zone_given),
        Some(value) if is_nullish(value) => return Ok(Some(Bson::Null)),
        Some(value) => return Err(wrong_type(name, "a format, a string", value)),
    };
    match (parsed, on_error) {
        (Some(at), _) => Ok(Some(date(&at))),
        (None, Some(value)) => Ok(Some(value)),
        (None, None) => {
            let message = format!("{name}: \"{text}\" is not a date in the expected form");
            Err(DocsError::new(ErrorCode::ConversionFailure, message))
        }
    }
}

/// Parses a date as ISO 8601 writes it. Returns nothing for other text, and for two time zones.
pub(super) fn iso(text: &str, zone: &TimeZone, zone_given: bool) -> Option<Zoned> {
    let text = text.trim();
    if let Ok(at) = text.parse::<Timestamp>() {
        return (!zone_given).then(|| at.to_zoned(TimeZone::UTC));
    }
    let local = text.parse::<DateTime>().ok();
    let local = local.or_else(|| Some(text.parse::<Date>().ok()?.to_datetime(Time::midnight())));
    zone.to_zoned(local?).ok()
}

fn parsed(text: &str, format: &str, zone: &TimeZone, zone_given: bool) -> Option<Zoned> {
    let mut reader = Reader { rest: text };
    let (mut year, mut month, mut day) = (1970, 1, 1);
    let (mut hour, mut minute, mut second, mut millis) = (0, 0, 0, 0);
    let mut day_of_year = None;
    let (mut iso_year, mut iso_week, mut iso_day) = (None, 1, 1);
    let mut offset = None;
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            reader.literal(c)?;
            continue;
        }
        match chars.next()? {
            'Y' => year = reader.number(4)?,
            'm' => month = reader.number(2)?,
            'd' => day = reader.number(2)?,
            'H' => hour = reader.number(2)?,
            'M' => minute = reader.number(2)?,
            'S' => second = reader.number(2)?,
            'L' => millis = reader.number(3)?,
            'j' => day_of_year = Some(reader.number(3)?),
            'G' => iso_year = Some(reader.number(4)?),
            'V' => iso_week = reader.number(2)?,
            'u' => iso_day = reader.number(1)?,
            'b' => month = reader.month(true)?,
            'B' => month = reader.month(false)?,
            'z' => offset = Some(reader.offset()?),
            'Z' => offset = Some(reader.minutes()?),
            '%' => reader.literal('%')?,
            _ => return None,
        }
    }
    if !reader.rest.is_empty() || (zone_given && offset.is_some()) {
        return None;
    }
    let day = match (iso_year, day_of_year) {
        (Some(year), _) => {
            let weekday = jiff::civil::Weekday::from_monday_one_offset(i8::try_from(iso_day).ok()?).ok()?;
            let week = i8::try_from(iso_week).ok()?;
            jiff::civil::ISOWeekDate::new(i16::try_from(year).ok()?, week, weekday).ok()?.date()
        }
        (None, Some(number)) => {
            let first = Date::new(i16::try_from(year).ok()?, 1, 1).ok()?;
            first.checked_add(jiff::Span::new().try_days(number - 1).ok()?).ok()?
        }
        (None, None) => {
            Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?
        }
    };
    let small = |n: i64| i8::try_from(n).ok();
    let nanos = i32::try_from(millis * 1_000_000).ok()?;
    let time = Time::new(small(hour)?, small(minute)?, small(second)?, nanos).ok()?;
    let zone = match offset {
        Some(minutes) => TimeZone::fixed(Offset::from_seconds(i32::try_from(minutes * 60).ok()?).ok()?),
        None => zone.clone(),
    };
    zone.to_zoned(day.to_datetime(time)).ok()
}

/// Reads a text from front to back.
struct Reader<'t> {
    rest: &'t str,
}

impl Reader<'_> {
    fn literal(&mut self, c: char) -> Option<()> {
        self.rest = self.rest.strip_prefix(c)?;
        Some(())
    }

    /// Reads a number of at most `most` digits.
    fn number(&mut self, most: usize) -> Option<i64> {
        let digits = self.rest.bytes().take(most).take_while(u8::is_ascii_digit).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        number.parse().ok()
    }

    fn sign(&mut self) -> Option<i64> {
        let sign = if self.rest.starts_with('-') { -1 } else { 1 };
        self.rest = self.rest.strip_prefix(['+', '-'])?;
        Some(sign)
    }

    /// Reads an offset such as `+0200` or `Z` and returns its minutes.
    fn offset(&mut self) -> Option<i64> {
        if let Some(rest) = self.rest.strip_prefix('Z') {
            self.rest = rest;
            return Some(0);
        }
        let sign = self.sign()?;
        let hours = self.number(2)?;
        self.rest = self.rest.strip_prefix(':').unwrap_or(self.rest);
        let minutes = if self.rest.starts_with(|c: char| c.is_ascii_digit()) { self.number(2)? } else { 0 };
        Some(sign * (hours * 60 + minutes))
    }

    fn minutes(&mut self) -> Option<i64> {
        Some(self.sign()? * self.number(4)?)
    }

    fn month(&mut self, short: bool) -> Option<i64> {
        for (at, month) in MONTHS.iter().enumerate() {
            let month = if short { month.get(..3)? } else { month };
            if self.rest.get(..month.len()).is_some_and(|text| text.eq_ignore_ascii_case(month)) {
                self.rest = self.rest.get(month.len()..)?;
                return i64::try_from(at + 1).ok();
            }
        }
        None
    }
}
