//! PostgreSQL's patterns of times, to read texts by.

use crate::functions::to_char::{DAYS, MONTHS, PATTERNS, ROMAN};
use crate::times::micros_of;

/// A format that is parsed.
#[derive(Debug)]
pub(super) struct InputFormat(Vec<Node>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Node {
    Pattern {
        pattern: &'static str,
        /// As many digits as there are (`FM`).
        all: bool,
        /// Two letters follow the number (`TH`).
        ordinal: bool,
    },
    /// A space, or a sign that is neither a letter nor a digit. Any of them stands for any other.
    Separator,
    /// A character of text, which stands for any character.
    Char(char),
}

/// Parts of a time that were read from a text.
#[derive(Debug, Default)]
struct Fields {
    values: Vec<(&'static str, i64)>,
    is_12_hour: bool,
}

/// Numbers and what they may be. Others have no bounds of their own.
const RANGES: [(&str, i64, i64); 6] = [
    ("month", 1, 12),
    ("day", 1, 31),
    ("hour", 0, 23),
    ("minute", 0, 59),
    ("second", 0, 59),
    ("day of the year", 1, 366),
];

impl InputFormat {
    /// Parses a format.
    ///
    /// Errors: why texts cannot be read by it.
    pub fn parse(format: &str) -> Result<Self, String> {
        let mut nodes = vec![];
        let mut rest = format;
        let mut all = false;
        while let Some(first) = rest.chars().next() {
            let upper = |len: usize| rest.get(..len).map(str::to_ascii_uppercase);
            if first == '"' {
                let inner = &rest[1..];
                let end = inner.find('"').ok_or("a text in double quotes has no end")?;
                nodes.extend(inner[..end].chars().map(Node::Char));
                rest = &inner[end + 1..];
                continue;
            }
            if first == '\\' && rest[1..].starts_with('"') {
                nodes.push(Node::Char('"'));
                rest = &rest[2..];
                continue;
            }
            if upper(2).as_deref() == Some("FM") {
                all = true;
                rest = &rest[2..];
                continue;
            }
            if matches!(upper(2).as_deref(), Some("FX" | "TM")) {
                return Err(format!("{} is not supported", &rest[..2]));
            }
            let Some(pattern) = PATTERNS.iter().find(|p| upper(p.len()).as_deref() == Some(**p)) else {
                let is_separator = first.is_whitespace() || first.is_ascii_punctuation();
                nodes.push(if is_separator { Node::Separator } else { Node::Char(first) });
                rest = &rest[first.len_utf8()..];
                continue;
            };
            if matches!(
                *pattern,
                "TZ" | "OF"
                    | "CC"
                    | "W"
                    | "WW"
                    | "D"
                    | "ID"
                    | "IDDD"
                    | "IW"
                    | "I"
                    | "IY"
                    | "IYY"
                    | "IYYY"
                    | "J"
            ) {
                return Err(format!(
                    "times are not read by {pattern}: use YYYY, MM, DD, DDD, HH24, MI, SS, MS, US, TZH"
                ));
            }
            rest = &rest[pattern.len()..];
            let ordinal = upper_of(rest, 2).as_deref() == Some("TH");
            if ordinal {
                rest = &rest[2..];
            }
            nodes.push(Node::Pattern { pattern, all, ordinal });
            all = false;
        }
        let has_year = |node: &Node| matches!(node, Node::Pattern { pattern, .. } if pattern.contains('Y') && pattern != &"DY" && pattern != &"DAY");
        match nodes.iter().any(has_year) {
            true => Ok(Self(nodes)),
            false => Err("it has no year: write, for example, 'YYYY-MM-DD HH24:MI'".to_owned()),
        }
    }

    /// Reads a time, in microseconds since 1970.
    ///
    /// Errors: what is expected and what the text has.
    pub fn read(&self, text: &str) -> Result<i64, String> {
        let mut fields = Fields::default();
        let mut rest = text;
        // characters that were skipped and for which the format may still have a character
        let mut skipped = 0_i64;
        for (index, node) in self.0.iter().enumerate() {
            if rest.is_empty() {
                break;
            }
            if index == 0 || matches!(node, Node::Pattern { .. }) {
                skipped += skip_spaces(&mut rest);
            }
            match node {
                Node::Separator => {
                    skipped -= 1;
                    if let Some(first) = rest.chars().next()
                        && (first.is_ascii_whitespace() || first.is_ascii_punctuation())
                    {
                        rest = &rest[first.len_utf8()..];
                        skipped += 1;
                    }
                }
                Node::Char(_) => match skipped > 0 {
                    true => skipped -= 1,
                    false => rest = rest.get(rest.chars().next().map_or(0, char::len_utf8)..).unwrap_or(""),
                },
                Node::Pattern { pattern, all, ordinal } => {
                    let all = *all || *ordinal || self.ends_number(index);
                    let minus_before = text[..text.len() - rest.len()].ends_with('-') && skipped > 0;
                    fields.read(pattern, all, minus_before, &mut rest)?;
                    if *ordinal {
                        for _ in 0..2 {
                            rest = rest.get(rest.chars().next().map_or(0, char::len_utf8)..).unwrap_or("");
                        }
                    }
                    skipped = skip_spaces(&mut rest);
                }
            }
        }
        fields.micros()
    }

    /// Returns whether something other than a digit follows a number of the format.
    fn ends_number(&self, index: usize) -> bool {
        match self.0.get(index + 1) {
            Some(Node::Pattern { pattern, .. }) => is_name(pattern),
            Some(Node::Char(c)) => !c.is_ascii_digit(),
            Some(Node::Separator) | None => true,
        }
    }
}

fn is_name(pattern: &str) -> bool {
    matches!(
        pattern,
        "MONTH" | "MON" | "DAY" | "DY" | "RM" | "AM" | "PM" | "A.M." | "P.M." | "AD" | "BC" | "A.D." | "B.C."
    )
}

fn upper_of(text: &str, len: usize) -> Option<String> {
    text.get(..len).map(str::to_ascii_uppercase)
}

fn skip_spaces(rest: &mut &str) -> i64 {
    let after = rest.trim_start_matches(|c: char| c.is_ascii_whitespace());
    let count = rest.len() - after.len();
    *rest = after;
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Reads digits: `width` of them, or as many as there are.
fn number(pattern: &str, width: usize, all: bool, rest: &mut &str) -> Result<(i64, usize), String> {
    skip_spaces(rest);
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let taken = if all { digits } else { digits.min(width) };
    if taken == 0 {
        return Err(format!("{pattern} expects a number, found '{}'", shown(rest)));
    }
    if !all && taken < width {
        return Err(format!("{pattern} expects {width} digits, found '{}'", shown(rest)));
    }
    let (number, after) = rest.split_at(taken);
    let value =
        number.parse().map_err(|_| format!("{pattern} expects a smaller number, found '{number}'"))?;
    *rest = after;
    Ok((value, taken))
}

fn shown(rest: &str) -> String {
    rest.chars().take(12).collect()
}

/// Reads one of `names`, in upper or lower case, and returns its index.
fn name(pattern: &str, names: &[&str], rest: &mut &str) -> Result<usize, String> {
    // the longest first: XII begins with XI
    let mut found: Option<(usize, usize)> = None;
    for (index, name) in names.iter().enumerate() {
        let fits = rest.get(..name.len()).is_some_and(|text| text.eq_ignore_ascii_case(name));
        if fits && found.is_none_or(|(_, len)| len < name.len()) {
            found = Some((index, name.len()));
        }
    }
    let Some((index, len)) = found else {
        return Err(format!("{pattern} expects one of {}, found '{}'", names.join(", "), shown(rest)));
    };
    *rest = &rest[len..];
    Ok(index)
}

impl Fields {
    fn set(&mut self, what: &'static str, value: i64) -> Result<(), String> {
        if let Some((_, low, high)) = RANGES.iter().find(|(of, ..)| *of == what)
            && !(*low..=*high).contains(&value)
        {
            return Err(format!("the {what} is {value}, expected {low} to {high}"));
        }
        match self.get(what) {
            Some(other) if other != value => Err(format!("the {what} is both {other} and {value}")),
            _ => {
                self.values.push((what, value));
                Ok(())
            }
        }
    }

    fn get(&self, what: &str) -> Option<i64> {
        self.values.iter().find(|(of, _)| *of == what).map(|(_, value)| *value)
    }

    fn read(&mut self, pattern: &'static str, all: bool, minus: bool, rest: &mut &str) -> Result<(), String> {
        let number = |width: usize, rest: &mut &str| number(pattern, width, all, rest);
        match pattern {
            "YYYY" => {
                let (year, _) = number(4, rest)?;
                self.set("year", year)
            }
            "Y,YYY" => {
                let (thousands, _) = self::number(pattern, 9, true, rest)?;
                let after = rest.strip_prefix(',').ok_or("Y,YYY expects a comma after the thousands")?;
                *rest = after;
                let (year, _) = self::number(pattern, 3, false, rest)?;
                self.set("year", thousands.saturating_mul(1_000).saturating_add(year))
            }
            "YYY" | "YY" | "Y" => {
                let (year, digits) = number(pattern.len(), rest)?;
                self.set("year", if digits < 4 { near_2020(year) } else { year })
            }
            "MM" => self.set("month", number(2, rest)?.0),
            "MONTH" => {
                let month = name(pattern, &MONTHS, rest)?;
                self.set("month", month as i64 + 1)
            }
            "MON" => {
                let short = MONTHS.map(|name| &name[..3]);
                let month = name(pattern, &short, rest)?;
                self.set("month", month as i64 + 1)
            }
            "RM" => {
                let month = name(pattern, &ROMAN, rest)?;
                self.set("month", month as i64 + 1)
            }
            "DD" => self.set("day", number(2, rest)?.0),
            "DDD" => self.set("day of the year", number(3, rest)?.0),
            // names of days are read and mean nothing
            "DAY" => name(pattern, &DAYS, rest).map(drop),
            "DY" => name(pattern, &DAYS.map(|name| &name[..3]), rest).map(drop),
            "Q" => number(1, rest).map(drop),
            "HH24" => self.set("hour", number(2, rest)?.0),
            "HH" | "HH12" => {
                self.is_12_hour = true;
                self.set("hour", number(2, rest)?.0)
            }
            "AM" | "PM" => {
                self.is_12_hour = true;
                let half = name(pattern, &["AM", "PM"], rest)?;
                self.set("half of the day", half as i64)
            }
            "A.M." | "P.M." => {
                self.is_12_hour = true;
                let half = name(pattern, &["A.M.", "P.M."], rest)?;
                self.set("half of the day", half as i64)
            }
            "AD" | "BC" => self.era(name(pattern, &["AD", "BC"], rest)?),
            "A.D." | "B.C." => self.era(name(pattern, &["A.D.", "B.C."], rest)?),
            "MI" => self.set("minute", number(2, rest)?.0),
            "SS" => self.set("second", number(2, rest)?.0),
            "SSSS" | "SSSSS" => self.set("second of the day", number(pattern.len(), rest)?.0),
            "MS" => self.fraction(3, number(3, rest)?),
            "US" => self.fraction(6, number(6, rest)?),
            "FF1" | "FF2" | "FF3" | "FF4" | "FF5" | "FF6" => {
                let width = usize::from(pattern.as_bytes()[2] - b'0');
                self.fraction(width, number(width, rest)?)
            }
            "TZH" => {
                let sign = match rest.chars().next() {
                    Some('-') => -1,
                    Some('+' | ' ') => 1,
                    _ if minus => -1,
                    _ => 1,
                };
                if rest.starts_with(['-', '+', ' ']) {
                    *rest = &rest[1..];
                }
                let hours = number(2, rest)?.0;
                self.set("sign of the zone", sign)?;
                self.set("hours of the zone", hours)
            }
            "TZM" => self.set("minutes of the zone", number(2, rest)?.0),
            _ => Err(format!("times are not read by {pattern}")),
        }
    }

    fn era(&self, index: usize) -> Result<(), String> {
        match index {
            0 => Ok(()),
            _ => Err("years before 1 are not supported".to_owned()),
        }
    }

    /// Sets the microseconds from digits after the point: `25` is a quarter.
    fn fraction(&mut self, width: usize, (value, digits): (i64, usize)) -> Result<(), String> {
        let missing = u32::try_from(width.saturating_sub(digits)).unwrap_or(0);
        let unit = 10_i64.pow(u32::try_from(6_usize.saturating_sub(width)).unwrap_or(0));
        let micros = value.saturating_mul(10_i64.pow(missing)).saturating_mul(unit);
        match digits > width || micros >= 1_000_000 {
            true => Err(format!("the fraction of a second has {width} digits at most, found {digits}")),
            false => self.set("fraction of the second", micros),
        }
    }

    fn micros(&self) -> Result<i64, String> {
        let get = |what: &str, default: i64| self.get(what).unwrap_or(default);
        let year = self.get("year").ok_or("the text ends before the year")?;
        if !(1..=9999).contains(&year) {
            return Err(format!("the year is {year}, expected 1 to 9999"));
        }
        let mut hour = get("hour", 0);
        if self.is_12_hour {
            if self.get("hour").is_some() && !(1..=12).contains(&hour) {
                return Err(format!("the hour is {hour}, expected 1 to 12"));
            }
            let is_afternoon = get("half of the day", 0) == 1;
            if is_afternoon && hour < 12 {
                hour += 12;
            } else if !is_afternoon && hour == 12 {
                hour = 0;
            }
        }
        let of_day = match self.get("second of the day") {
            Some(second) if second <= 86_400 => second,
            Some(second) => return Err(format!("the second of the day is {second}, expected 0 to 86400")),
            None => hour * 3_600 + get("minute", 0) * 60 + get("second", 0),
        };
        let fraction = get("fraction of the second", 0);
        let of_day = of_day * 1_000_000 + fraction;
        if of_day > 86_400_000_000 {
            return Err("the time is after 24:00".to_owned());
        }
        let date = match self.get("day of the year") {
            Some(day) => micros_of(year, 1, 1)
                .map(|start| start + (day - 1) * 86_400_000_000)
                .filter(|time| micros_of(year, 12, 31).is_some_and(|last| *time <= last))
                .ok_or_else(|| format!("the year {year} has no day {day}"))?,
            None => {
                let (month, day) = (get("month", 1), get("day", 1));
                micros_of(year, month, day)
                    .ok_or_else(|| format!("there is no {year:04}-{month:02}-{day:02}"))?
            }
        };
        let (hours, minutes) = (get("hours of the zone", 0), get("minutes of the zone", 0));
        if hours > 15 || minutes > 59 {
            return Err(format!("the zone is {hours}:{minutes:02}, expected up to 15:59"));
        }
        let zone = get("sign of the zone", 1) * (hours * 60 + minutes) * 60_000_000;
        Ok(date + of_day - zone)
    }
}

/// Returns the year nearest to 2020 of a year with up to three digits, as PostgreSQL does.
fn near_2020(year: i64) -> i64 {
    match year {
        0..70 => year + 2_000,
        70..100 => year + 1_900,
        100..520 => year + 2_000,
        520..1_000 => year + 1_000,
        _ => year,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::times::CivilTime;

    #[test]
    fn times_are_read_as_by_postgresql() {
        let (mut lines, mut refused, mut different) = (0, 0, vec![]);
        for line in include_str!("times.txt").lines().filter(|line| !line.starts_with('#')) {
            let parts: Vec<&str> = line.split('\t').collect();
            let [format, text, expected] = parts.as_slice() else { panic!("{line}") };
            let read = InputFormat::parse(format).and_then(|template| template.read(text));
            let found = match &read {
                Ok(micros) => {
                    let t = CivilTime::of(*micros);
                    format!(
                        "{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:06}",
                        t.year, t.month, t.day, t.hour, t.minute, t.second, t.micros
                    )
                }
                Err(_) => "refused".to_owned(),
            };
            // PostgreSQL takes a minus sign for that of a number, `00` for the first month, and rounds a fraction
            if found == "refused" && expected != &"refused" {
                refused += 1;
            } else if &found != expected {
                different.push(format!(
                    "to_timestamp('{text}', '{format}'): {found} {read:?}, PostgreSQL: {expected}"
                ));
            }
            lines += 1;
        }
        assert!(different.is_empty(), "{} of {lines}:\n{}", different.len(), different.join("\n"));
        assert!(lines > 700 && refused < 30, "{lines} {refused}");
    }

    #[test]
    fn formats_without_a_meaning_are_refused() {
        for format in ["", "HH24:MI", "FXYYYY", "YYYY-MM-DD TZ", "IYYY-IW", "\"YYYY", "TMMonth YYYY", "DY"] {
            assert!(InputFormat::parse(format).is_err(), "{format}");
        }
        let read = |text: &str| InputFormat::parse("YYYY-MM-DD").unwrap().read(text);
        assert_eq!(read("9999-12-31"), Ok(253_402_214_400_000_000));
        assert_eq!(read("0001-01-01"), Ok(-62_135_596_800_000_000));
        assert_eq!(read("2026-13-01"), Err("the month is 13, expected 1 to 12".to_owned()));
        assert_eq!(read("2026-02-29"), Err("there is no 2026-02-29".to_owned()));
        assert!(read("-05").is_err() && read("").is_err());
    }
}
