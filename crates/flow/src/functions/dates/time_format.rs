//! Date formats: the patterns of Java's `SimpleDateFormat`, in English.

use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use crate::functions::dates::time_week::WeekRule;

pub(in crate::functions) const MONTHS: [&str; 12] = [
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

pub(in crate::functions) const DAYS: [&str; 7] =
    ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];

/// Letters with a meaning in a pattern.
const LETTERS: &str = "GyYMLwWDdFEuaHkKhmsSzZX";

/// Longest run of one letter.
const RUN_MAX: usize = 40;

/// Element of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::functions) enum FormatElement {
    /// Text copied literally.
    Literal(String),
    /// A letter and its number of repetitions.
    Field(char, usize),
}

/// Compiled date format.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::functions) struct DateFormat {
    /// Source of the format, for messages.
    pub(in crate::functions) pattern: String,
    pub(in crate::functions) elements: Vec<FormatElement>,
}

impl DateFormat {
    /// Compiles a pattern. Errors: an unknown letter, a letter repeated too often, or an unclosed quote.
    pub(in crate::functions) fn compile(pattern: &str) -> Result<Self, String> {
        let wrong = |why: String| format!("`{pattern}` is not a valid date format: {why}");
        let mut elements = Vec::new();
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            if c == '\'' {
                let text = quoted(&mut chars).ok_or_else(|| wrong("a quote is not closed".into()))?;
                literal(&mut elements, &text);
            } else if c.is_ascii_alphabetic() {
                let mut count = 1;
                while chars.next_if_eq(&c).is_some() {
                    count += 1;
                }
                if !LETTERS.contains(c) {
                    return Err(wrong(format!("unknown letter `{c}`; put literal text in single quotes")));
                }
                if count > RUN_MAX {
                    return Err(wrong(format!("`{c}` is repeated more than {RUN_MAX} times")));
                }
                elements.push(FormatElement::Field(c, count));
            } else {
                literal(&mut elements, &c.to_string());
            }
        }
        Ok(Self { pattern: pattern.to_owned(), elements })
    }

    /// Formats an instant, in milliseconds since 1970. Errors: the instant is beyond the calendar.
    pub(in crate::functions) fn format(&self, ms: i64, tz: &TimeZone) -> Result<String, String> {
        let at = zoned(ms, tz)?;
        let mut out = String::new();
        for element in &self.elements {
            match element {
                FormatElement::Literal(text) => out.push_str(text),
                FormatElement::Field(letter, count) => field(&at, *letter, *count, &mut out),
            }
        }
        Ok(out)
    }
}

/// Reads quoted text up to the closing quote, which it consumes. Two quotes, also directly after the opening
/// one, stand for one quote.
fn quoted(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Option<String> {
    if chars.next_if_eq(&'\'').is_some() {
        return Some("'".into());
    }
    let mut text = String::new();
    loop {
        match chars.next()? {
            '\'' if chars.next_if_eq(&'\'').is_some() => text.push('\''),
            '\'' => return Some(text),
            c => text.push(c),
        }
    }
}

fn literal(elements: &mut Vec<FormatElement>, text: &str) {
    match elements.last_mut() {
        Some(FormatElement::Literal(before)) => before.push_str(text),
        _ => elements.push(FormatElement::Literal(text.to_owned())),
    }
}

/// Converts milliseconds since 1970 to a time in a time zone. Errors: the instant is beyond the calendar.
pub(in crate::functions) fn zoned(ms: i64, tz: &TimeZone) -> Result<Zoned, String> {
    let instant =
        Timestamp::from_millisecond(ms).map_err(|_| format!("{ms} ms is out of the range of dates"))?;
    Ok(instant.to_zoned(tz.clone()))
}

fn field(at: &Zoned, letter: char, count: usize, out: &mut String) {
    let mut number = |n: i64| out.push_str(&format!("{n:0count$}"));
    let hour = i64::from(at.hour());
    match letter {
        'y' => out.push_str(&year(at.year(), count)),
        'Y' => out.push_str(&year(WeekRule::ENGLISH.week(at.date()).0, count)),
        'M' | 'L' => match count {
            1 | 2 => number(i64::from(at.month())),
            _ => out.push_str(name(&MONTHS, i64::from(at.month()) - 1, count)),
        },
        'w' => number(i64::from(WeekRule::ENGLISH.week(at.date()).1)),
        'W' => {
            let first = i64::from(at.date().first_of_month().weekday().to_sunday_zero_offset());
            number((i64::from(at.day()) - 1 + first) / 7 + 1);
        }
        'D' => number(i64::from(at.day_of_year())),
        'd' => number(i64::from(at.day())),
        'F' => number((i64::from(at.day()) - 1) / 7 + 1),
        'E' => out.push_str(name(&DAYS, day(at.weekday()), count)),
        'u' => number(day(at.weekday()) + 1),
        'H' => number(hour),
        'k' => number(if hour == 0 { 24 } else { hour }),
        'K' => number(hour % 12),
        'h' => number(if hour % 12 == 0 { 12 } else { hour % 12 }),
        'm' => number(i64::from(at.minute())),
        's' => number(i64::from(at.second())),
        'S' => number(i64::from(at.millisecond())),
        'a' => out.push_str(if hour < 12 { "AM" } else { "PM" }),
        'G' => out.push_str(if at.year() > 0 { "AD" } else { "BC" }),
        'z' if count >= 4 && at.offset().is_zero() => out.push_str("Coordinated Universal Time"),
        'z' => out.push_str(&at.strftime("%Z").to_string()),
        'Z' => out.push_str(&offset(at, "", 2)),
        _ if at.offset().is_zero() => out.push('Z'),
        _ => out.push_str(&offset(at, if count > 2 { ":" } else { "" }, count)),
    }
}

fn day(weekday: Weekday) -> i64 {
    i64::from(weekday.to_monday_zero_offset())
}

/// Returns a name, or its first three letters if the pattern has fewer than four letters.
fn name(names: &'static [&'static str], i: i64, count: usize) -> &'static str {
    let name = usize::try_from(i).ok().and_then(|i| names.get(i)).copied().unwrap_or("");
    if count < 4 { name.get(..3).unwrap_or(name) } else { name }
}

fn year(year: i16, count: usize) -> String {
    let of_era = if year > 0 { i32::from(year) } else { 1 - i32::from(year) };
    if count == 2 { format!("{:02}", of_era % 100) } else { format!("{of_era:0count$}") }
}

/// Formats a UTC offset as `+05`, `+0530` or `+05:30`: minutes only if `parts` exceeds 1.
fn offset(at: &Zoned, colon: &str, parts: usize) -> String {
    let seconds = at.offset().seconds();
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.unsigned_abs() / 60;
    let hours = format!("{sign}{:02}", minutes / 60);
    if parts == 1 { hours } else { format!("{hours}{colon}{:02}", minutes % 60) }
}
