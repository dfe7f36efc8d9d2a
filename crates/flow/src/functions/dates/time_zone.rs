//! Lookup of time zones by the names that Java knows.

use jiff::tz::{Offset, TimeZone};

/// Java's three-letter time zone ids.
const SHORT: [(&str, &str); 28] = [
    ("ACT", "Australia/Darwin"),
    ("AET", "Australia/Sydney"),
    ("AGT", "America/Argentina/Buenos_Aires"),
    ("ART", "Africa/Cairo"),
    ("AST", "America/Anchorage"),
    ("BET", "America/Sao_Paulo"),
    ("BST", "Asia/Dhaka"),
    ("CAT", "Africa/Harare"),
    ("CNT", "America/St_Johns"),
    ("CST", "America/Chicago"),
    ("CTT", "Asia/Shanghai"),
    ("EAT", "Africa/Addis_Ababa"),
    ("ECT", "Europe/Paris"),
    ("IET", "America/Indiana/Indianapolis"),
    ("IST", "Asia/Kolkata"),
    ("JST", "Asia/Tokyo"),
    ("MIT", "Pacific/Apia"),
    ("NET", "Asia/Yerevan"),
    ("NST", "Pacific/Auckland"),
    ("PLT", "Asia/Karachi"),
    ("PNT", "America/Phoenix"),
    ("PRT", "America/Puerto_Rico"),
    ("PST", "America/Los_Angeles"),
    ("SST", "Pacific/Guadalcanal"),
    ("VST", "Asia/Ho_Chi_Minh"),
    ("EST", "-05:00"),
    ("MST", "-07:00"),
    ("HST", "-10:00"),
];

/// Returns the time zone `name`: `Europe/Berlin`, `PST`, `UTC`, `Z`, `+05:30`, `GMT+2`. Errors: it is
/// unknown.
pub(in crate::functions) fn find(name: &str) -> Result<TimeZone, String> {
    let full = SHORT.iter().find(|(short, _)| *short == name).map_or(name, |(_, full)| full);
    let rest = ["UTC", "GMT", "UT"].iter().find_map(|prefix| full.strip_prefix(prefix)).unwrap_or(full);
    if rest.is_empty() || rest == "Z" {
        return Ok(TimeZone::UTC);
    }
    if let Some((seconds, "")) = offset(rest) {
        let offset = Offset::from_seconds(seconds).map_err(|e| e.to_string())?;
        return Ok(TimeZone::fixed(offset));
    }
    TimeZone::get(full).map_err(|_| format!("unknown time zone `{name}`"))
}

/// Abbreviations in dates and their UTC offsets in hours. Unlike time zone names, they determine whether it
/// is summer time.
const IN_DATES: [(&str, i8); 16] = [
    ("EST", -5),
    ("EDT", -4),
    ("CST", -6),
    ("CDT", -5),
    ("MST", -7),
    ("MDT", -6),
    ("PST", -8),
    ("PDT", -7),
    ("WET", 0),
    ("WEST", 1),
    ("CET", 1),
    ("CEST", 2),
    ("EET", 2),
    ("EEST", 3),
    ("MSK", 3),
    ("JST", 9),
];

/// Returns the time zone that an abbreviation or a name in a date stands for.
pub(in crate::functions) fn named(name: &str) -> Option<TimeZone> {
    let hours = IN_DATES.iter().find(|(short, _)| *short == name).map(|(_, hours)| *hours);
    hours.map_or_else(|| find(name).ok(), |hours| Some(TimeZone::fixed(jiff::tz::offset(hours))))
}

/// Parses `+5`, `+05`, `+0530` or `+05:30`; returns the offset in seconds and the rest of the text.
pub(in crate::functions) fn offset(text: &str) -> Option<(i32, &str)> {
    let sign = match text.chars().next()? {
        '+' => 1,
        '-' => -1,
        _ => return None,
    };
    let (hours, rest) = digits(&text[1..], 2)?;
    let (minutes, rest) = match digits(rest.strip_prefix(':').unwrap_or(rest), 2) {
        Some(read) => read,
        None if rest.starts_with(':') => return None,
        None => (0, rest),
    };
    (hours <= 18 && minutes < 60).then_some((sign * (hours * 3600 + minutes * 60), rest))
}

/// Parses up to `most` digits; returns their value and the rest.
fn digits(text: &str, most: usize) -> Option<(i32, &str)> {
    let length = text.bytes().take(most).take_while(u8::is_ascii_digit).count();
    Some((text[..length].parse().ok()?, &text[length..]))
}
