//! Time units of the rule language, as in `20 min`.

use tidemill_types::nearest;

const MS: i64 = 1_000;
const SEC: i64 = 1_000 * MS;
const MIN: i64 = 60 * SEC;
const HOUR: i64 = 60 * MIN;
const DAY: i64 = 24 * HOUR;
const WEEK: i64 = 7 * DAY;

/// Names of the units and their length in microseconds. Suggestions offer the first name of each length.
const UNITS: &[(&str, i64)] = &[
    ("us", 1),
    ("usec", 1),
    ("usecs", 1),
    ("micros", 1),
    ("microsecond", 1),
    ("microseconds", 1),
    ("ms", MS),
    ("msec", MS),
    ("msecs", MS),
    ("millis", MS),
    ("millisec", MS),
    ("millisecond", MS),
    ("milliseconds", MS),
    ("sec", SEC),
    ("s", SEC),
    ("secs", SEC),
    ("second", SEC),
    ("seconds", SEC),
    ("min", MIN),
    ("m", MIN),
    ("mins", MIN),
    ("minute", MIN),
    ("minutes", MIN),
    ("hour", HOUR),
    ("h", HOUR),
    ("hr", HOUR),
    ("hrs", HOUR),
    ("hours", HOUR),
    ("day", DAY),
    ("d", DAY),
    ("days", DAY),
    ("week", WEEK),
    ("w", WEEK),
    ("weeks", WEEK),
];

/// Returns the length of the unit `name` in microseconds.
pub fn micros(name: &str) -> Option<i64> {
    UNITS.iter().find(|(n, _)| *n == name).map(|(_, micros)| *micros)
}

/// Returns `count` units of `unit_micros` in microseconds; `None` if the product does not fit in 64 bits.
pub fn whole_span(count: u64, unit_micros: i64) -> Option<i64> {
    i64::try_from(count).ok()?.checked_mul(unit_micros)
}

/// Returns a fractional `count` of units in microseconds, rounded; `None` if the result does not fit in 64
/// bits.
pub fn fractional_span(count: f64, unit_micros: i64) -> Option<i64> {
    let micros = (count * unit_micros as f64).round();
    // the bound itself is not an i64, every smaller value is
    (micros.is_finite() && micros.abs() < 9_223_372_036_854_775_808.0).then_some(micros as i64)
}

/// Returns a suggestion for the unknown unit `name`.
pub fn advice(name: &str) -> String {
    let lower = name.to_lowercase();
    if ["ns", "nanos", "nanosecond", "nanoseconds"].contains(&lower.as_str()) {
        return "the shortest unit is `us`, a microsecond".to_owned();
    }
    if lower.starts_with("month") || lower.starts_with("year") || lower.starts_with("quarter") {
        return "months and years differ in length: count in `day` or `week`".to_owned();
    }
    match nearest_unit(name) {
        Some(best) => format!("write `{best}`"),
        None => "the units are `us`, `ms`, `sec`, `min`, `hour`, `day`, `week`".to_owned(),
    }
}

/// Returns the unit that `name` most likely misspells.
pub fn nearest_unit(name: &str) -> Option<&'static str> {
    nearest(name, UNITS.iter().map(|(n, _)| *n).filter(|n| n.len() > 1 && name.len() > 1))
}
