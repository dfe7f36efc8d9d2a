//! Parsing of dates. As in Java, text after the end of the format is ignored, and fields beyond their range
//! overflow: March 32nd is April 1st.

use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::functions::dates::time_format::{DAYS, DateFormat, FormatElement, MONTHS};
use crate::functions::dates::time_zone;

const DAY_MS: i64 = 86_400_000;

/// First year of the hundred years to which two-digit years belong: 80 years before this year.
const TWO_DIGITS_SINCE: i64 = 2026 - 80;

/// Fields parsed from a date string.
#[derive(Default)]
struct ParsedFields {
    before_christ: bool,
    year: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour: Option<i64>,
    hour_of_half: Option<i64>,
    afternoon: bool,
    minute: i64,
    second: i64,
    millisecond: i64,
    zone: Option<TimeZone>,
}

impl DateFormat {
    /// Parses an instant, in milliseconds since 1970, in time zone `tz` unless the text names one. Missing
    /// fields default to those of 1970-01-01 00:00. Errors: the text does not match the format, or the
    /// instant is beyond the calendar.
    pub(in crate::functions) fn parse(&self, text: &str, tz: &TimeZone) -> Result<i64, String> {
        let mut fields = ParsedFields::default();
        let mut rest = text;
        for (i, element) in self.elements.iter().enumerate() {
            let read = match element {
                FormatElement::Literal(literal) => rest.strip_prefix(literal.as_str()),
                FormatElement::Field(letter, count) => {
                    let width = self.elements.get(i + 1).is_some_and(numeric).then_some(*count);
                    fields.read(rest.trim_start_matches([' ', '\t']), *letter, *count, width)
                }
            };
            rest =
                read.ok_or_else(|| format!("`{text}` does not match the date format `{}`", self.pattern))?;
        }
        fields.instant(tz).ok_or_else(|| format!("`{text}` is out of the range of dates"))
    }
}

/// Returns whether the element is parsed as digits only.
fn numeric(element: &FormatElement) -> bool {
    match element {
        FormatElement::Literal(_) => false,
        FormatElement::Field('M' | 'L', count) => *count < 3,
        FormatElement::Field(letter, _) => !matches!(letter, 'G' | 'E' | 'a' | 'z' | 'Z' | 'X'),
    }
}

impl ParsedFields {
    /// Parses a field at the start of `text`; returns the rest. `width` is the maximum number of digits, if
    /// bounded.
    fn read<'t>(
        &mut self,
        text: &'t str,
        letter: char,
        count: usize,
        width: Option<usize>,
    ) -> Option<&'t str> {
        match letter {
            'G' => {
                let (era, rest) = word(text, &["AD", "BC"])?;
                self.before_christ = era == 1;
                return Some(rest);
            }
            'M' | 'L' if count >= 3 => {
                let (month, rest) = word(text, &MONTHS)?;
                self.month = Some(month as i64 + 1);
                return Some(rest);
            }
            'E' => return word(text, &DAYS).map(|(_, rest)| rest),
            'a' => {
                let (half, rest) = word(text, &["AM", "PM"])?;
                self.afternoon = half == 1;
                return Some(rest);
            }
            'z' | 'Z' | 'X' => return self.zone(text),
            _ => {}
        }
        let (n, length) = digits(text, width)?;
        match letter {
            'y' | 'Y' if count <= 2 && length == 2 => {
                let century = TWO_DIGITS_SINCE / 100 * 100 + n;
                self.year = Some(if century < TWO_DIGITS_SINCE { century + 100 } else { century });
            }
            'y' | 'Y' => self.year = Some(n),
            'M' | 'L' => self.month = Some(n),
            // of day and day of year, the last one given wins
            'd' => (self.day, self.day_of_year) = (Some(n), None),
            'D' => (self.day, self.day_of_year) = (None, Some(n)),
            'H' => self.hour = Some(n),
            'k' => self.hour = Some(if n == 24 { 0 } else { n }),
            'K' => self.hour_of_half = Some(n),
            'h' => self.hour_of_half = Some(if n == 12 { 0 } else { n }),
            'm' => self.minute = n,
            's' => self.second = n,
            'S' => self.millisecond = n,
            // week and weekday follow from the date and are ignored
            _ => {}
        }
        Some(&text[length..])
    }

    /// Parses a UTC offset or the name of a time zone.
    fn zone<'t>(&mut self, text: &'t str) -> Option<&'t str> {
        let prefix = ["GMT", "UTC"].iter().find_map(|p| text.strip_prefix(p)).unwrap_or(text);
        if let Some((seconds, rest)) = time_zone::offset(prefix) {
            self.zone = Some(TimeZone::fixed(jiff::tz::Offset::from_seconds(seconds).ok()?));
            return Some(rest);
        }
        let name = |c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '_');
        let length = text.find(|c| !name(c)).unwrap_or(text.len());
        self.zone = Some(time_zone::named(text.get(..length).filter(|n| !n.is_empty())?)?);
        Some(&text[length..])
    }

    fn instant(self, tz: &TimeZone) -> Option<i64> {
        let year = self.year.unwrap_or(1970);
        let year = if self.before_christ { 1 - year } else { year };
        let days = match self.day_of_year {
            // the day of the year overrides any month
            Some(day) => month_start(year, 1)?.checked_add(day - 1)?,
            None => month_start(year, self.month.unwrap_or(1))?.checked_add(self.day.unwrap_or(1) - 1)?,
        };
        let half = if self.afternoon { 12 } else { 0 };
        let hour = self.hour.unwrap_or(self.hour_of_half.unwrap_or(0).checked_add(half)?);
        let local = [(days, DAY_MS), (hour, 3_600_000), (self.minute, 60_000), (self.second, 1000)];
        let local = local
            .iter()
            .try_fold(self.millisecond, |sum, (n, unit)| sum.checked_add(n.checked_mul(*unit)?))?;
        let tz = self.zone.as_ref().unwrap_or(tz);
        if *tz == TimeZone::UTC {
            return Some(local);
        }
        let civil = jiff::Timestamp::from_millisecond(local).ok()?.to_zoned(TimeZone::UTC).datetime();
        Some(tz.to_timestamp(civil).ok()?.as_millisecond())
    }
}

/// Returns the first day of a month, in days since 1970-01-01; months beyond 12 belong to later years.
fn month_start(year: i64, month: i64) -> Option<i64> {
    let months = year.checked_mul(12)?.checked_add(month)?.checked_sub(1)?;
    let (year, month) = (months.div_euclid(12), months.rem_euclid(12) + 1);
    let date = Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, 1).ok()?;
    let midnight = date.to_zoned(TimeZone::UTC).ok()?;
    Some(midnight.timestamp().as_second().div_euclid(DAY_MS / 1000))
}

/// Parses digits at the start of `text`, at most `width`; returns their value and count.
fn digits(text: &str, width: Option<usize>) -> Option<(i64, usize)> {
    let length = text.bytes().take(width.unwrap_or(usize::MAX)).take_while(u8::is_ascii_digit).count();
    text[..length].parse().ok().map(|n| (n, length))
}

/// Finds the word, or the three-letter prefix of one, that `text` begins with, ignoring case. Returns its
/// index and the rest.
fn word<'t>(text: &'t str, words: &[&str]) -> Option<(usize, &'t str)> {
    let begins = |word: &str| text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word));
    let find = |length: usize| {
        let starts = words.iter().map(|word| word.get(..length).unwrap_or(word));
        let (i, start) = starts.enumerate().find(|(_, start)| begins(start))?;
        Some((i, &text[start.len()..]))
    };
    find(usize::MAX).or_else(|| find(3))
}
