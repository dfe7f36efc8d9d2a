//! Instants and durations in microseconds.
//!
//! All crates use one unit: microseconds since the Unix epoch, UTC. Delta Lake, Parquet readers and Postgres
//! store this unit; a finer one would be truncated on the way to the table, after the event was acknowledged.

use std::fmt;

use jiff::SignedDuration;
use jiff::civil::DateTime;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// An instant: microseconds since the Unix epoch, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

/// Start of the Unix epoch.
const EPOCH: DateTime = jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0);

/// A duration in microseconds; may be negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Duration(pub i64);

impl Timestamp {
    /// Returns the microseconds since the Unix epoch.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// Returns whether the instant is in the years -9999 to 9999, so that it can be displayed as RFC 3339.
    fn is_in_rfc3339_range(self) -> bool {
        self.in_utc().is_some()
    }

    /// Returns the date and time in UTC. `jiff::Timestamp` ends a day before the year does, so that it has a date in
    /// every time zone.
    fn in_utc(self) -> Option<DateTime> {
        EPOCH.checked_add(SignedDuration::from_micros(self.0)).ok()
    }

    fn of_utc(civil: DateTime) -> Option<Self> {
        i64::try_from(civil.duration_since(EPOCH).as_micros()).ok().map(Self)
    }

    /// Parses RFC 3339 (`2013-01-01T10:17:00Z`, with offset, with fraction), or `2013-01-01 10:17:00` and
    /// `2013-01-01`, both interpreted as UTC. Digits below a microsecond are truncated.
    ///
    /// Errors: [`crate::ErrorKind::Invalid`] with the input and the expected form.
    pub fn parse(text: &str) -> Result<Self> {
        if let Some(ts) = parse_fast(text.as_bytes()) {
            return Ok(ts);
        }
        if let Ok(ts) = text.parse::<jiff::Timestamp>() {
            return Ok(Self(ts.as_microsecond()));
        }
        // the parser of civil times would ignore an offset
        let time = text.find(['T', 't', ' ']).map_or("", |at| &text[at..]);
        let civil = match time.contains(['+', '-', 'Z', 'z']) {
            true => parse_with_offset(text),
            false => text.parse::<DateTime>().ok().and_then(Self::of_utc),
        };
        civil.ok_or_else(|| {
            Error::invalid(format!(
                "`{text}` is not a time: expected RFC 3339, for example 2013-01-01T10:17:00Z"
            ))
        })
    }
}

/// Unit of numbers since 1970 in a `time` field. Times are stored in microseconds regardless of the unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum EpochUnit {
    /// `time(s)`
    #[serde(rename = "s")]
    Seconds,
    /// `time(ms)`, and `time` without a unit
    #[default]
    #[serde(rename = "ms")]
    Millis,
    /// `time(us)`
    #[serde(rename = "us")]
    Micros,
    /// `time(ns)`
    #[serde(rename = "ns")]
    Nanos,
}

impl EpochUnit {
    /// All units, from the longest to the shortest.
    pub const ALL: [Self; 4] = [Self::Seconds, Self::Millis, Self::Micros, Self::Nanos];

    /// Returns the unit that is written `name` in a declaration.
    pub fn from_symbol(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| unit.symbol() == name)
    }

    /// Returns the notation in declarations.
    pub fn symbol(self) -> &'static str {
        match self {
            Self::Seconds => "s",
            Self::Millis => "ms",
            Self::Micros => "us",
            Self::Nanos => "ns",
        }
    }

    /// Returns the plural name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Seconds => "seconds",
            Self::Millis => "milliseconds",
            Self::Micros => "microseconds",
            Self::Nanos => "nanoseconds",
        }
    }

    /// Returns the power of ten that converts a number of this unit to microseconds.
    fn exponent(self) -> i32 {
        match self {
            Self::Seconds => 6,
            Self::Millis => 3,
            Self::Micros => 0,
            Self::Nanos => -3,
        }
    }

    /// Parses a decimal number (`1357035420`, `-5`, `1357035420.25`, `1.7e9`) of this unit. Digits below a
    /// microsecond are truncated, as in [`Timestamp::parse`].
    ///
    /// `None` if it is not a number, or for an instant outside the years -9999 to 9999, which RFC 3339 cannot
    /// represent.
    pub fn parse(self, number: &str) -> Option<Timestamp> {
        match number.parse::<i64>() {
            Ok(n) => self.timestamp(n),
            Err(_) => {
                let time = Timestamp(decimal(number, self.exponent())?);
                time.is_in_rfc3339_range().then_some(time)
            }
        }
    }

    /// Returns the instant `number` of this unit after 1970; `None` outside the years -9999 to 9999.
    pub fn timestamp(self, number: i64) -> Option<Timestamp> {
        let micros = match self {
            Self::Nanos => number / 1_000,
            _ => number.checked_mul(10_i64.pow(self.exponent().unsigned_abs()))?,
        };
        Timestamp(micros).is_in_rfc3339_range().then_some(Timestamp(micros))
    }
}

/// Computes the integer part of a decimal number times ten to the power of `exponent`, exactly. `None` on
/// overflow and for other input.
fn decimal(number: &str, exponent: i32) -> Option<i64> {
    let (mantissa, own) = match number.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, exponent.parse::<i32>().ok()?),
        None => (number, 0),
    };
    let (negative, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || !whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit()) {
        return None;
    }
    // Number of digits before the decimal point after applying the power of ten.
    let before = i64::try_from(whole.len()).ok()? + i64::from(exponent) + i64::from(own);
    let mut digits = whole.bytes().chain(fraction.bytes());
    let mut micros = 0_i64;
    for _ in 0..before {
        let digit = match digits.next() {
            Some(digit) => i64::from(digit - b'0'),
            // Only zeros follow.
            None if micros == 0 => break,
            None => 0,
        };
        micros = micros.checked_mul(10)?.checked_add(digit)?;
    }
    Some(if negative { -micros } else { micros })
}

/// Parses a date and time with `Z` or an offset such as `+01:00`, on the first and last days of the calendar as well.
fn parse_with_offset(text: &str) -> Option<Timestamp> {
    let (civil, offset_s) = match text.strip_suffix(['Z', 'z']) {
        Some(civil) => (civil, 0),
        None => {
            let date = text.find(['T', 't', ' '])?;
            let at = date + text[date..].rfind(['+', '-'])?;
            let (civil, offset) = text.split_at(at);
            let digits: String = offset[1..].chars().filter(|c| *c != ':').collect();
            let well_formed = matches!(offset.len(), 3 | 5 | 6) && digits.bytes().all(|b| b.is_ascii_digit());
            if !well_formed || !matches!(digits.len(), 2 | 4) {
                return None;
            }
            let (hours, minutes) = digits.split_at(2);
            let minutes: i64 = if minutes.is_empty() { 0 } else { minutes.parse().ok()? };
            let hours: i64 = hours.parse().ok()?;
            if hours > 23 || minutes > 59 {
                return None;
            }
            let seconds = hours * 3_600 + minutes * 60;
            (civil, if offset.starts_with('-') { -seconds } else { seconds })
        }
    };
    let civil: DateTime = civil.parse().ok()?;
    let local = Timestamp::of_utc(civil)?;
    let time = Timestamp(local.0.checked_sub(offset_s * 1_000_000)?);
    time.is_in_rfc3339_range().then_some(time)
}

/// Parses exactly `YYYY-MM-DDTHH:MM:SSZ`, the common case, without a general parser.
fn parse_fast(b: &[u8]) -> Option<Timestamp> {
    if b.len() != 20
        || b[4] != b'-'
        || b[7] != b'-'
        || b[10] != b'T'
        || b[13] != b':'
        || b[16] != b':'
        || b[19] != b'Z'
    {
        return None;
    }
    let num = |range: std::ops::Range<usize>| -> Option<i64> {
        b[range].iter().try_fold(0_i64, |n, c| c.is_ascii_digit().then(|| n * 10 + i64::from(c - b'0')))
    };
    let (y, m, d) = (num(0..4)?, num(5..7)?, num(8..10)?);
    let (h, min, s) = (num(11..13)?, num(14..16)?, num(17..19)?);
    let leap = y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
    let days_in_month = match m {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        _ => return None,
    };
    if d < 1 || d > days_in_month || h > 23 || min > 59 || s > 59 {
        return None;
    }
    // Days from civil date (proleptic Gregorian), in years that start in March.
    let (yy, mm) = if m <= 2 { (y - 1, m + 9) } else { (y, m - 3) };
    let era = yy.div_euclid(400);
    let yoe = yy.rem_euclid(400);
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + (153 * mm + 2) / 5 + d - 1;
    let days = era * 146_097 + doe - 719_468;
    Some(Timestamp((((days * 24 + h) * 60 + min) * 60 + s) * 1_000_000))
}

impl fmt::Display for Timestamp {
    /// Formats as RFC 3339 in UTC, with a fraction only if it is not zero.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Ok(time) = jiff::Timestamp::from_microsecond(self.0) {
            return time.fmt(f);
        }
        match self.in_utc() {
            Some(civil) => write!(f, "{civil}Z"),
            None => write!(f, "{}us", self.0),
        }
    }
}

impl Duration {
    /// Returns a duration of `n` seconds.
    pub const fn seconds(n: i64) -> Self {
        Self(n * 1_000_000)
    }

    /// Returns the length of the duration, whatever its sign.
    pub const fn to_std(self) -> std::time::Duration {
        std::time::Duration::from_micros(self.0.unsigned_abs())
    }

    /// Returns the microseconds in one `unit` (`us`, `ms`, `sec`, `min`, `hour`, `day`, `week` and their
    /// usual longer and plural forms), or `None` when `unit` is not a unit of time.
    pub fn unit_micros(unit: &str) -> Option<i64> {
        Some(match unit {
            "us" | "micro" | "micros" | "microsecond" | "microseconds" => 1,
            "ms" | "milli" | "millis" | "millisecond" | "milliseconds" => 1_000,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000_000,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000_000,
            "h" | "hour" | "hours" => 3_600_000_000,
            "d" | "day" | "days" => 86_400_000_000,
            "w" | "week" | "weeks" => 604_800_000_000,
            _ => return None,
        })
    }

    /// Parses a whole number and a unit: `250ms`, `5s`, `1 min`.
    pub fn parse(text: &str) -> Result<Self> {
        let t = text.trim();
        let split = t.find(|c: char| !c.is_ascii_digit()).unwrap_or(t.len());
        let number = t[..split].parse::<i64>().ok();
        let unit = Self::unit_micros(t[split..].trim());
        number.zip(unit).and_then(|(n, u)| n.checked_mul(u)).map(Self).ok_or_else(|| {
            Error::invalid(format!(
                "`{text}` is not a duration: expected a number and a unit, for example 250ms, 5s, 1min"
            ))
        })
    }
}

impl fmt::Display for Duration {
    /// Formats as a whole number of the largest unit that divides the duration: `20m`, `1500ms`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = self.0;
        for (unit, micros) in
            [("d", 86_400_000_000), ("h", 3_600_000_000), ("m", 60_000_000), ("s", 1_000_000), ("ms", 1_000)]
        {
            if n != 0 && n % micros == 0 {
                return write!(f, "{}{unit}", n / micros);
            }
        }
        write!(f, "{n}us")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fast_and_general_parser_agree() {
        for text in [
            "1970-01-01T00:00:00Z",
            "2013-01-01T10:17:00Z",
            "2024-02-29T23:59:59Z",
            "1969-12-31T23:59:59Z",
            "0001-03-01T00:00:00Z",
            "2000-02-29T12:00:00Z",
        ] {
            let general = text.parse::<jiff::Timestamp>().unwrap().as_microsecond();
            assert_eq!(parse_fast(text.as_bytes()), Some(Timestamp(general)), "{text}");
            assert_eq!(Timestamp(general).to_string(), text);
        }
        for text in ["2013-02-29T00:00:00Z", "2013-13-01T00:00:00Z", "2013-01-01T24:00:00Z", "yesterday"] {
            assert!(Timestamp::parse(text).is_err(), "{text}");
        }
        assert_eq!(
            Timestamp::parse("2013-01-01").unwrap(),
            Timestamp::parse("2013-01-01T01:00:00+01:00").unwrap()
        );
    }

    #[test]
    fn the_calendar_ends_with_the_year_9999() {
        for (text, micros) in [
            ("9999-12-31T23:59:59Z", 253_402_300_799_000_000),
            ("9999-12-31T23:59:59.5Z", 253_402_300_799_500_000),
            ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
            ("9999-12-31T23:59:59+01:00", 253_402_297_199_000_000),
            ("9999-12-31 23:59:59+01", 253_402_297_199_000_000),
            ("9999-12-31T22:29:59-0130", 253_402_300_799_000_000),
            ("9999-12-31 05:15", 253_402_233_300_000_000),
            ("9999-12-31", 253_402_214_400_000_000),
            ("0001-01-01T00:00:00.5Z", -62_135_596_799_500_000),
            ("0001-01-01T00:00:00-01:00", -62_135_593_200_000_000),
        ] {
            assert_eq!(Timestamp::parse(text).unwrap(), Timestamp(micros), "{text}");
        }
        let shown = ["9999-12-31T23:59:59.999999Z", "9999-12-31T00:00:00Z", "0001-01-01T00:00:00.5Z"];
        for text in shown {
            assert_eq!(Timestamp::parse(text).unwrap().to_string(), text);
        }
        for text in [
            "9999-12-31T23:59:59-01:00",
            "9999-12-32T00:00:00Z",
            "9999-12-31T24:00:00+01:00",
            "9999-12-31T23:59:59+1",
            "9999-12-31T23:59:59+25:00",
            "10000-01-01T00:00:00Z",
            "9999-12-31ZZ",
        ] {
            assert!(Timestamp::parse(text).is_err(), "{text}");
        }
        let last = 253_402_300_799;
        assert_eq!(EpochUnit::Seconds.timestamp(last), Some(Timestamp(last * 1_000_000)));
        assert_eq!(EpochUnit::Seconds.timestamp(last + 1), None);
    }

    #[test]
    fn durations() {
        assert_eq!(Duration::parse("20 min").unwrap(), Duration(1_200_000_000));
        assert_eq!(Duration::parse("20 min").unwrap().to_string(), "20m");
        assert!(Duration::parse("soon").is_err());
    }
}
