//! Operators on dates: parts, arithmetic, truncation. A date is an instant; its parts are those in a time zone, UTC if none is given.

use bson::{Bson, DateTime, Document};
use jiff::civil::{Date, Weekday};
use jiff::tz::{Offset, TimeZone};
use jiff::{Span, Timestamp, ToSpan, Zoned};

use super::{EvalValue, is_nullish, wrong_type};
use crate::error::{DocsError, ErrorCode, Result};

const MILLIS_PER_DAY: i64 = 86_400_000;

fn null() -> Result<EvalValue> {
    Ok(Some(Bson::Null))
}

fn failed(name: &str, error: impl std::fmt::Display) -> DocsError {
    DocsError::bad_value(format!("{name}: {error}"))
}

/// Returns the instant of a date, a timestamp or an ObjectId; `None` for null.
pub(super) fn instant(name: &str, value: Option<&EvalValue>) -> Result<Option<Timestamp>> {
    let millis = match value {
        Some(Some(Bson::DateTime(at))) => at.timestamp_millis(),
        Some(Some(Bson::Timestamp(at))) => i64::from(at.time) * 1000,
        Some(Some(Bson::ObjectId(id))) => id.timestamp().timestamp_millis(),
        None => return Ok(None),
        Some(value) if is_nullish(value) => return Ok(None),
        Some(value) => return Err(wrong_type(name, "a date", value)),
    };
    Timestamp::from_millisecond(millis).map(Some).map_err(|e| failed(name, e))
}

/// Returns a time zone: an Olson name, or an offset such as `+03`, `+0330` or `+03:30`. Without one it is UTC; `None` for null.
pub(super) fn zone(name: &str, value: Option<&EvalValue>) -> Result<Option<TimeZone>> {
    match value {
        None | Some(None) => Ok(Some(TimeZone::UTC)),
        Some(Some(Bson::String(text))) => named_zone(name, text).map(Some),
        Some(value) if is_nullish(value) => Ok(None),
        Some(value) => Err(wrong_type(name, "a time zone, a string", value)),
    }
}

fn named_zone(name: &str, text: &str) -> Result<TimeZone> {
    let unknown = || {
        let message = format!(
            "{name}: unrecognized time zone identifier: \"{text}\"; expected a name as Europe/Berlin or an offset as +02:00"
        );
        DocsError::new(crate::error::ErrorCode::UnknownTimeZone, message)
    };
    if matches!(text, "UTC" | "GMT" | "Z") {
        return Ok(TimeZone::UTC);
    }
    let Some(rest) = text.strip_prefix(['+', '-']) else { return TimeZone::get(text).map_err(|_| unknown()) };
    let digits: String = rest.chars().filter(|c| *c != ':').collect();
    if !matches!(digits.len(), 2 | 4) || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(unknown());
    }
    let number: i32 = digits.parse().map_err(|_| unknown())?;
    let minutes = if digits.len() == 2 { number * 60 } else { number / 100 * 60 + number % 100 };
    let seconds = if text.starts_with('-') { -minutes * 60 } else { minutes * 60 };
    Offset::from_seconds(seconds).map(TimeZone::fixed).map_err(|_| unknown())
}

/// Returns the date of the first argument in the time zone of the second one; `None` if one is null.
fn zoned(name: &str, arguments: &[EvalValue]) -> Result<Option<Zoned>> {
    let (at, zone) = (instant(name, arguments.first())?, zone(name, arguments.get(1))?);
    Ok(at.zip(zone).map(|(at, zone)| at.to_zoned(zone)))
}

pub(super) fn date(at: &Zoned) -> Bson {
    Bson::DateTime(DateTime::from_millis(at.timestamp().as_millisecond()))
}

/// Evaluates an operator that returns a part of a date.
fn part(name: &str, arguments: &[EvalValue], part: fn(&Zoned) -> i32) -> Result<EvalValue> {
    Ok(Some(zoned(name, arguments)?.map_or(Bson::Null, |at| Bson::Int32(part(&at)))))
}

macro_rules! parts {
    ($($function:ident => $part:expr;)*) => {
        $(pub(super) fn $function(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
            part(name, arguments, $part)
        })*
    };
}

parts! {
    year => |at| at.year().into();
    month => |at| at.month().into();
    day_of_month => |at| at.day().into();
    hour => |at| at.hour().into();
    minute => |at| at.minute().into();
    second => |at| at.second().into();
    millisecond => |at| at.millisecond().into();
    day_of_week => |at| i32::from(at.weekday().to_sunday_one_offset());
    day_of_year => |at| at.day_of_year().into();
    week => week_of_year;
    iso_week => |at| at.date().iso_week_date().week().into();
    iso_day_of_week => |at| i32::from(at.weekday().to_monday_one_offset());
}

/// Returns the week of the year, 0 to 53; weeks begin on Sunday, and the first one with the first Sunday.
pub(super) fn week_of_year(at: &Zoned) -> i32 {
    (i32::from(at.day_of_year()) + 6 - i32::from(at.weekday().to_sunday_zero_offset())) / 7
}

/// Evaluates an operator that returns a part of a timestamp of the log.
fn timestamp_part(
    name: &str,
    arguments: &[EvalValue],
    code: ErrorCode,
    part: fn(bson::Timestamp) -> u32,
) -> Result<EvalValue> {
    match arguments.first() {
        Some(Some(Bson::Timestamp(timestamp))) => Ok(Some(Bson::Int64(part(*timestamp).into()))),
        None | Some(None | Some(Bson::Null | Bson::Undefined)) => Ok(Some(Bson::Null)),
        Some(Some(_)) => Err(DocsError::new(code, format!("Argument to {name} must be a timestamp"))),
    }
}

pub(super) fn ts_second(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    timestamp_part(name, arguments, ErrorCode::SecondsOfNoTimestamp, |timestamp| timestamp.time)
}

pub(super) fn ts_increment(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    timestamp_part(name, arguments, ErrorCode::IncrementOfNoTimestamp, |timestamp| timestamp.increment)
}

pub(super) fn iso_week_year(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let at = zoned(name, arguments)?;
    Ok(Some(at.map_or(Bson::Null, |at| Bson::Int64(at.date().iso_week_date().year().into()))))
}

/// `$dateToParts`: date, timezone, iso8601.
pub(super) fn to_parts(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some(at) = zoned(name, arguments)? else { return null() };
    let iso = arguments.get(2).is_some_and(|iso| matches!(iso, Some(Bson::Boolean(true))));
    let mut parts = Document::new();
    match iso {
        true => {
            let week = at.date().iso_week_date();
            parts.insert("isoWeekYear", i32::from(week.year()));
            parts.insert("isoWeek", i32::from(week.week()));
            parts.insert("isoDayOfWeek", i32::from(week.weekday().to_monday_one_offset()));
        }
        false => {
            parts.insert("year", i32::from(at.year()));
            parts.insert("month", i32::from(at.month()));
            parts.insert("day", i32::from(at.day()));
        }
    }
    parts.insert("hour", i32::from(at.hour()));
    parts.insert("minute", i32::from(at.minute()));
    parts.insert("second", i32::from(at.second()));
    parts.insert("millisecond", i32::from(at.millisecond()));
    Ok(Some(Bson::Document(parts)))
}

/// Returns a whole number; `default` if it is missing, `None` for null.
fn whole(name: &str, value: Option<&EvalValue>, default: i64) -> Result<Option<i64>> {
    match value {
        None | Some(None) => Ok(Some(default)),
        Some(Some(Bson::Int32(n))) => Ok(Some((*n).into())),
        Some(Some(Bson::Int64(n))) => Ok(Some(*n)),
        Some(Some(Bson::Double(n))) if n.fract() == 0.0 && n.abs() < 9e15 => Ok(Some(*n as i64)),
        Some(value) if is_nullish(value) => Ok(None),
        Some(value) => Err(wrong_type(name, "a whole number", value)),
    }
}

/// `$dateFromParts`: year, month, day, hour, minute, second, millisecond, isoWeekYear, isoWeek, isoDayOfWeek, timezone. Parts beyond their
/// range carry over to the next larger one.
pub(super) fn from_parts(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let given = |at: usize| arguments.get(at).is_some_and(Option::is_some);
    let iso = given(7);
    if iso == given(0) {
        return Err(DocsError::bad_value(format!("{name} expects either `year` or `isoWeekYear`")));
    }
    let mut parts = [0_i64; 10];
    for (at, part) in parts.iter_mut().enumerate() {
        let default = if matches!(at, 1 | 2 | 8 | 9) { 1 } else { 0 };
        let Some(number) = whole(name, arguments.get(at), default)? else { return null() };
        if number.unsigned_abs() > 10_000_000_000 {
            return Err(DocsError::bad_value(format!("{name}: a part of {number} is out of range")));
        }
        *part = number;
    }
    let Some(zone) = zone(name, arguments.get(10))? else { return null() };
    let [year, month, day, hour, minute, second, millisecond, iso_year, iso_week, iso_day] = parts;
    let start = |year: i64, month: i8| {
        let year = i16::try_from(year).ok().filter(|year| (1..=9999).contains(year));
        year.and_then(|year| Date::new(year, month, 1).ok())
            .ok_or_else(|| DocsError::bad_value(format!("{name}: expected a year from 1 to 9999")))
    };
    let (first, days) = match iso {
        // the week with the fourth of January is the first one
        true => {
            let fourth = start(iso_year, 1)?.checked_add(3.days()).map_err(|e| failed(name, e))?;
            let monday = i64::from(fourth.weekday().to_monday_zero_offset());
            (fourth, (iso_week - 1) * 7 + iso_day - 1 - monday)
        }
        false => {
            let months = year * 12 + month - 1;
            (start(months.div_euclid(12), (months.rem_euclid(12) + 1) as i8)?, day - 1)
        }
    };
    let time = Span::new()
        .try_days(days)
        .and_then(|span| span.try_hours(hour))
        .and_then(|span| span.try_minutes(minute))
        .and_then(|span| span.try_seconds(second))
        .and_then(|span| span.try_milliseconds(millisecond));
    let local = time.and_then(|time| first.to_datetime(jiff::civil::Time::midnight()).checked_add(time));
    let at = local.and_then(|local| zone.to_zoned(local)).map_err(|e| failed(name, e))?;
    Ok(Some(date(&at)))
}

/// A unit of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DateUnit {
    Year,
    Quarter,
    Month,
    Week,
    Day,
    Hour,
    Minute,
    Second,
    Millisecond,
}

impl DateUnit {
    /// Returns the unit of an argument; `None` for null.
    pub fn of(name: &str, value: Option<&EvalValue>) -> Result<Option<Self>> {
        let text = match value {
            Some(Some(Bson::String(text))) => text.as_str(),
            None => return Ok(None),
            Some(value) if is_nullish(value) => return Ok(None),
            Some(value) => return Err(wrong_type(name, "a unit of time, a string", value)),
        };
        Ok(Some(match text {
            "year" => Self::Year,
            "quarter" => Self::Quarter,
            "month" => Self::Month,
            "week" => Self::Week,
            "day" => Self::Day,
            "hour" => Self::Hour,
            "minute" => Self::Minute,
            "second" => Self::Second,
            "millisecond" => Self::Millisecond,
            other => {
                return Err(DocsError::parse(format!(
                    "{name}: unknown time unit \"{other}\": expected year, quarter, month, week, day, hour, minute, second or millisecond"
                )));
            }
        }))
    }

    /// Returns the milliseconds of a unit that always has as many.
    pub fn millis(self) -> Option<i64> {
        match self {
            Self::Hour => Some(3_600_000),
            Self::Minute => Some(60_000),
            Self::Second => Some(1000),
            Self::Millisecond => Some(1),
            _ => None,
        }
    }

    fn span(self, amount: i64) -> Result<Span, jiff::Error> {
        let span = Span::new();
        match self {
            Self::Year => span.try_years(amount),
            Self::Quarter => span.try_months(amount.saturating_mul(3)),
            Self::Month => span.try_months(amount),
            Self::Week => span.try_weeks(amount),
            Self::Day => span.try_days(amount),
            Self::Hour => span.try_hours(amount),
            Self::Minute => span.try_minutes(amount),
            Self::Second => span.try_seconds(amount),
            Self::Millisecond => span.try_milliseconds(amount),
        }
    }
}

/// Adds an amount of a unit to a date in its time zone; the day becomes the last one of its month if that has fewer.
pub(super) fn shifted(name: &str, at: &Zoned, unit: DateUnit, amount: i64) -> Result<Zoned> {
    unit.span(amount).and_then(|span| at.checked_add(span)).map_err(|e| failed(name, e))
}

/// `$dateAdd`: startDate, unit, amount, timezone.
pub(super) fn add(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    moved(name, arguments, 1)
}

/// `$dateSubtract`: startDate, unit, amount, timezone.
pub(super) fn subtract(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    moved(name, arguments, -1)
}

fn moved(name: &str, arguments: &[EvalValue], sign: i64) -> Result<EvalValue> {
    let unit = DateUnit::of(name, arguments.get(1))?;
    let amount = match arguments.get(2) {
        Some(amount) if !is_nullish(amount) => whole(name, Some(amount), 0)?,
        _ => None,
    };
    let at = instant(name, arguments.first())?;
    let (Some(at), Some(unit), Some(amount), Some(zone)) = (at, unit, amount, zone(name, arguments.get(3))?)
    else {
        return null();
    };
    Ok(Some(date(&shifted(name, &at.to_zoned(zone), unit, amount.saturating_mul(sign))?)))
}

/// Returns the day with which weeks begin.
fn start_of_week(name: &str, value: Option<&EvalValue>) -> Result<Option<Weekday>> {
    let text = match value {
        None | Some(None) => return Ok(Some(Weekday::Sunday)),
        Some(Some(Bson::String(text))) => text.to_ascii_lowercase(),
        Some(value) if is_nullish(value) => return Ok(None),
        Some(value) => return Err(wrong_type(name, "a day of the week, a string", value)),
    };
    Ok(Some(match text.as_str() {
        "monday" | "mon" => Weekday::Monday,
        "tuesday" | "tue" => Weekday::Tuesday,
        "wednesday" | "wed" => Weekday::Wednesday,
        "thursday" | "thu" => Weekday::Thursday,
        "friday" | "fri" => Weekday::Friday,
        "saturday" | "sat" => Weekday::Saturday,
        "sunday" | "sun" => Weekday::Sunday,
        other => return Err(DocsError::parse(format!("{name}: \"{other}\" is not a day of the week"))),
    }))
}

/// Returns the number of a local day.
fn day_number(at: &Zoned) -> i64 {
    local_millis(at).div_euclid(MILLIS_PER_DAY)
}

/// Returns the milliseconds of the local clock since 1970.
fn local_millis(at: &Zoned) -> i64 {
    at.timestamp().as_millisecond() + i64::from(at.offset().seconds()) * 1000
}

/// Returns the number of the week of a day, of weeks that begin with `first`. Day 3 was a Sunday.
fn week_number(day: i64, first: Weekday) -> i64 {
    (day - 3 - i64::from(first.to_sunday_zero_offset())).div_euclid(7)
}

/// `$dateDiff`: startDate, endDate, unit, timezone, startOfWeek. Counts the boundaries of units between two dates.
pub(super) fn difference(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let (from, to) = (instant(name, arguments.first())?, instant(name, arguments.get(1))?);
    let (unit, zone) = (DateUnit::of(name, arguments.get(2))?, zone(name, arguments.get(3))?);
    let first = start_of_week(name, arguments.get(4))?;
    let (Some(from), Some(to), Some(unit), Some(zone), Some(first)) = (from, to, unit, zone, first) else {
        return null();
    };
    let number = |at: Timestamp| {
        let at = at.to_zoned(zone.clone());
        let year = i64::from(at.year());
        match unit {
            DateUnit::Year => year,
            DateUnit::Quarter => year * 4 + (i64::from(at.month()) - 1) / 3,
            DateUnit::Month => year * 12 + i64::from(at.month()),
            DateUnit::Week => week_number(day_number(&at), first),
            DateUnit::Day => day_number(&at),
            unit => local_millis(&at).div_euclid(unit.millis().unwrap_or(1)),
        }
    };
    Ok(Some(Bson::Int64(number(to) - number(from))))
}

/// `$dateTrunc`: date, unit, binSize, timezone, startOfWeek. Bins count from the beginning of 2000, those of weeks from its first week.
pub(super) fn truncated(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let (at, unit) = (instant(name, arguments.first())?, DateUnit::of(name, arguments.get(1))?);
    let (size, zone) = (whole(name, arguments.get(2), 1)?, zone(name, arguments.get(3))?);
    let first = start_of_week(name, arguments.get(4))?;
    let (Some(at), Some(unit), Some(size), Some(zone), Some(first)) = (at, unit, size, zone, first) else {
        return null();
    };
    if size < 1 {
        return Err(DocsError::bad_value(format!("{name} expects a binSize of 1 or more")));
    }
    let at = at.to_zoned(zone.clone());
    let begin = |months: i64, days: i64| {
        let start = jiff::civil::date(2000, 1, 1);
        let day = Span::new().try_months(months).and_then(|span| span.try_days(days));
        let day = day.and_then(|span| start.checked_add(span));
        day.and_then(|day| zone.to_zoned(day.to_datetime(jiff::civil::Time::midnight())))
            .map_err(|e| failed(name, e))
    };
    let bin = |number: i64, size: i64| number.div_euclid(size).saturating_mul(size);
    let months = (i64::from(at.year()) - 2000) * 12 + i64::from(at.month()) - 1;
    // the first of January 2000 was day 10957
    let days = day_number(&at) - 10_957;
    let begun = match unit {
        DateUnit::Year => begin(bin(months, size.saturating_mul(12)), 0)?,
        DateUnit::Quarter => begin(bin(months, size.saturating_mul(3)), 0)?,
        DateUnit::Month => begin(bin(months, size), 0)?,
        DateUnit::Week => {
            // the first day of that kind in 2000; its first of January was a Saturday
            let offset = i64::from((first.to_sunday_zero_offset() + 1) % 7);
            begin(0, bin(days - offset, size.saturating_mul(7)) + offset)?
        }
        DateUnit::Day => begin(0, bin(days, size))?,
        unit => {
            let size = size.saturating_mul(unit.millis().unwrap_or(1));
            let origin = begin(0, 0)?.timestamp().as_millisecond();
            let millis = bin(at.timestamp().as_millisecond() - origin, size) + origin;
            Timestamp::from_millisecond(millis).map_err(|e| failed(name, e))?.to_zoned(zone)
        }
    };
    Ok(Some(date(&begun)))
}
