//! PostgreSQL's patterns of times.

use std::fmt::Write;

use crate::times::CivilTime;

/// A format that is parsed.
#[derive(Debug)]
pub(super) struct TimeFormat(Vec<Part>);

#[derive(Debug)]
enum Part {
    Text(String),
    Pattern { pattern: &'static str, case: Case, fill: bool, ordinal: Option<&'static str> },
}

#[derive(Debug, Clone, Copy)]
enum Case {
    Upper,
    Capital,
    Lower,
}

/// All patterns; one that begins with another comes first.
pub(in crate::functions) const PATTERNS: &[&str] = &[
    "Y,YYY", "YYYY", "YYY", "YY", "IYYY", "IYY", "IY", "IDDD", "ID", "IW", "I", "Y", "A.D.", "B.C.", "AD",
    "BC", "A.M.", "P.M.", "AM", "PM", "HH24", "HH12", "HH", "MI", "SSSSS", "SSSS", "SS", "MS", "US", "FF1",
    "FF2", "FF3", "FF4", "FF5", "FF6", "MONTH", "MON", "MM", "DAY", "DY", "DDD", "DD", "D", "WW", "W", "CC",
    "J", "Q", "RM", "TZH", "TZM", "TZ", "OF",
];

impl TimeFormat {
    /// Parses a format; `utc` says whether the times are in UTC, so that `TZ` is known.
    ///
    /// Errors: why it cannot be written.
    pub fn parse(format: &str, utc: bool) -> Result<Self, String> {
        let mut parts: Vec<Part> = vec![];
        let mut rest = format;
        let mut fill = true;
        while let Some(first) = rest.chars().next() {
            let upper = |len: usize| rest.get(..len).map(str::to_ascii_uppercase);
            if first == '"' {
                let inner = &rest[1..];
                let end = inner.find('"').ok_or("a text in double quotes has no end")?;
                push_text(&mut parts, &inner[..end]);
                rest = &inner[end + 1..];
                continue;
            }
            if first == '\\' && rest[1..].starts_with('"') {
                push_text(&mut parts, "\"");
                rest = &rest[2..];
                continue;
            }
            if upper(2).as_deref() == Some("FM") {
                fill = false;
                rest = &rest[2..];
                continue;
            }
            if matches!(upper(2).as_deref(), Some("FX" | "TM")) {
                return Err(format!("{} is not supported", &rest[..2]));
            }
            let found = PATTERNS.iter().find(|p| upper(p.len()).as_deref() == Some(**p));
            let Some(pattern) = found else {
                push_text(&mut parts, &rest[..first.len_utf8()]);
                rest = &rest[first.len_utf8()..];
                continue;
            };
            if matches!(*pattern, "TZ" | "TZH" | "TZM" | "OF") && !utc {
                return Err(format!("{pattern} is known of times in UTC only"));
            }
            let written = &rest[..pattern.len()];
            let mut letters = written.chars().filter(char::is_ascii_alphabetic);
            let case = match (letters.next(), letters.next()) {
                (Some(a), _) if a.is_ascii_lowercase() => Case::Lower,
                (_, Some(b)) if b.is_ascii_lowercase() => Case::Capital,
                _ => Case::Upper,
            };
            rest = &rest[pattern.len()..];
            let ordinal = match rest.get(..2) {
                Some("TH") => Some("TH"),
                Some("th") => Some("th"),
                _ => None,
            };
            if ordinal.is_some() {
                rest = &rest[2..];
            }
            parts.push(Part::Pattern { pattern, case, fill, ordinal });
            fill = true;
        }
        Ok(Self(parts))
    }

    /// Writes a time, in microseconds since 1970.
    pub fn write(&self, micros: i64) -> String {
        let time = CivilTime::of(micros);
        let mut out = String::new();
        for part in &self.0 {
            match part {
                Part::Text(text) => out.push_str(text),
                Part::Pattern { pattern, case, fill, ordinal } => {
                    let begin = out.len();
                    pattern_of(&mut out, pattern, *case, *fill, &time);
                    if let Some(ordinal) = ordinal {
                        let digits = out[begin..].to_owned();
                        out.push_str(&suffix(&digits, ordinal));
                    }
                }
            }
        }
        out
    }
}

fn push_text(parts: &mut Vec<Part>, text: &str) {
    match parts.last_mut() {
        Some(Part::Text(before)) => before.push_str(text),
        _ => parts.push(Part::Text(text.to_owned())),
    }
}

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
    ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];
pub(in crate::functions) const ROMAN: [&str; 12] =
    ["I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII"];

fn pattern_of(out: &mut String, pattern: &str, case: Case, fill: bool, time: &CivilTime) {
    let number = |out: &mut String, value: i64, width: usize| {
        let width = if fill { width } else { 0 };
        // writing to a text does not fail
        let _ = write!(out, "{value:0width$}");
    };
    let name = |out: &mut String, name: &str, width: usize| {
        let name = match case {
            Case::Upper => name.to_uppercase(),
            Case::Capital => name.to_owned(),
            Case::Lower => name.to_lowercase(),
        };
        let width = if fill { width } else { 0 };
        let _ = write!(out, "{name:<width$}");
    };
    // the year 0 is 1 BC
    let (era, year) = if time.year > 0 { ("AD", time.year) } else { ("BC", 1 - time.year) };
    let hour12 = if time.hour % 12 == 0 { 12 } else { time.hour % 12 };
    let half = if time.hour < 12 { "AM" } else { "PM" };
    let weekday = time.weekday();
    match pattern {
        "Y,YYY" => {
            let _ = write!(out, "{},{:03}", year / 1_000, year % 1_000);
        }
        "YYYY" => number(out, year, 4),
        "YYY" => number(out, year % 1_000, 3),
        "YY" => number(out, year % 100, 2),
        "Y" => number(out, year % 10, 1),
        "IYYY" => number(out, time.iso_week().0, 4),
        "IYY" => number(out, time.iso_week().0 % 1_000, 3),
        "IY" => number(out, time.iso_week().0 % 100, 2),
        "I" => number(out, time.iso_week().0 % 10, 1),
        "IW" => number(out, time.iso_week().1, 2),
        "IDDD" => {
            let (_, week) = time.iso_week();
            number(out, (week - 1) * 7 + (weekday + 6) % 7 + 1, 3);
        }
        "ID" => number(out, (weekday + 6) % 7 + 1, 1),
        "AD" | "BC" => name(out, era, 0),
        "A.D." | "B.C." => name(out, if era == "AD" { "A.D." } else { "B.C." }, 0),
        "AM" | "PM" => name(out, half, 0),
        "A.M." | "P.M." => name(out, if half == "AM" { "A.M." } else { "P.M." }, 0),
        "HH24" => number(out, time.hour, 2),
        "HH" | "HH12" => number(out, hour12, 2),
        "MI" => number(out, time.minute, 2),
        "SS" => number(out, time.second, 2),
        "SSSS" | "SSSSS" => number(out, time.hour * 3_600 + time.minute * 60 + time.second, 0),
        "MS" | "FF3" => number(out, time.micros / 1_000, 3),
        "US" | "FF6" => number(out, time.micros, 6),
        "FF1" => number(out, time.micros / 100_000, 1),
        "FF2" => number(out, time.micros / 10_000, 2),
        "FF4" => number(out, time.micros / 100, 4),
        "FF5" => number(out, time.micros / 10, 5),
        "MONTH" => name(out, MONTHS[time.month0()], 9),
        "MON" => name(out, &MONTHS[time.month0()][..3], 0),
        "MM" => number(out, time.month, 2),
        "RM" => name(out, ROMAN[time.month0()], 4),
        "DAY" => name(out, DAYS[weekday as usize % 7], 9),
        "DY" => name(out, &DAYS[weekday as usize % 7][..3], 0),
        "DDD" => number(out, time.day_of_year(), 3),
        "DD" => number(out, time.day, 2),
        "D" => number(out, weekday + 1, 1),
        "WW" => number(out, (time.day_of_year() - 1) / 7 + 1, 2),
        "W" => number(out, (time.day - 1) / 7 + 1, 1),
        "CC" => {
            let century = if time.year > 0 { (time.year + 99) / 100 } else { time.year / 100 - 1 };
            number(out, century, 2);
        }
        "J" => number(out, time.days + 2_440_588, 0),
        "Q" => number(out, (time.month - 1) / 3 + 1, 1),
        "TZ" => name(out, "UTC", 0),
        "TZH" | "OF" => out.push_str("+00"),
        // TZM
        _ => out.push_str("00"),
    }
}

/// Returns the ending of an ordinal number.
fn suffix(digits: &str, ordinal: &str) -> String {
    let tens = digits.len() >= 2 && digits.as_bytes()[digits.len() - 2] == b'1';
    let ending = match digits.bytes().last() {
        Some(b'1') if !tens => "st",
        Some(b'2') if !tens => "nd",
        Some(b'3') if !tens => "rd",
        _ => "th",
    };
    if ordinal == "TH" { ending.to_uppercase() } else { ending.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_by_postgresql() {
        let mut lines = 0;
        for line in include_str!("times.txt").lines().filter(|line| !line.starts_with('#')) {
            let (format, written) = line.split_once('\t').unwrap();
            let text = TimeFormat::parse(format, true).unwrap().write(1_767_604_023_250_000);
            assert_eq!(format!("[{text}]"), written, "{format}");
            lines += 1;
        }
        assert!(lines > 15, "{lines}");
    }

    #[test]
    fn the_calendar_has_the_years_1_to_9999() {
        let format = TimeFormat::parse("YYYY-MM-DD DDD ID IW IYYY HH24:MI:SS.US", true).unwrap();
        assert_eq!(format.write(253_402_300_799_999_999), "9999-12-31 365 5 52 9999 23:59:59.999999");
        assert_eq!(format.write(-62_135_596_800_000_000), "0001-01-01 001 1 01 0001 00:00:00.000000");
        assert!(TimeFormat::parse("FXYYYY", true).is_err());
        assert!(TimeFormat::parse("HH24 TZ", false).is_err());
        assert!(TimeFormat::parse("\"open", true).is_err());
    }
}
