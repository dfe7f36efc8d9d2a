//! Time units of SiddhiQL, as in `1 hour 30 min`.

use tidemill_types::nearest;

use super::ast::PeriodUnit;
use super::keywords::is_one_of;

const SEC: i64 = 1_000;
const MIN: i64 = 60 * SEC;
const HOUR: i64 = 60 * MIN;
const DAY: i64 = 24 * HOUR;

/// A time unit.
#[derive(Debug)]
pub(super) struct TimeUnit {
    /// Accepted names, in lower case; suggestions offer the first one.
    pub names: &'static [&'static str],
    /// Length in milliseconds.
    pub ms: i64,
    /// The unit as a bucket duration of an aggregation; `None` if aggregations do not support it.
    pub period: Option<PeriodUnit>,
    /// Abbreviations from other languages, which SiddhiQL does not accept; used for suggestions.
    foreign: &'static [&'static str],
}

/// All units, longest first.
static UNITS: [TimeUnit; 8] = [
    TimeUnit {
        names: &["year", "years"],
        ms: 365 * DAY,
        period: Some(PeriodUnit::Year),
        foreign: &["y", "yr", "yrs"],
    },
    TimeUnit {
        names: &["month", "months"],
        ms: 30 * DAY,
        period: Some(PeriodUnit::Month),
        foreign: &["mon"],
    },
    TimeUnit { names: &["week", "weeks"], ms: 7 * DAY, period: Some(PeriodUnit::Week), foreign: &["w"] },
    TimeUnit { names: &["day", "days"], ms: DAY, period: Some(PeriodUnit::Day), foreign: &["d"] },
    TimeUnit {
        names: &["hour", "hours"],
        ms: HOUR,
        period: Some(PeriodUnit::Hour),
        foreign: &["h", "hr", "hrs"],
    },
    TimeUnit {
        names: &["min", "minute", "minutes"],
        ms: MIN,
        period: Some(PeriodUnit::Minute),
        foreign: &["m", "mins"],
    },
    TimeUnit {
        names: &["sec", "second", "seconds"],
        ms: SEC,
        period: Some(PeriodUnit::Second),
        foreign: &["s", "secs"],
    },
    TimeUnit {
        names: &["millisec", "millisecond", "milliseconds"],
        ms: 1,
        period: None,
        foreign: &["ms", "msec", "msecs", "millis", "millisecs"],
    },
];

/// Returns the unit called `word`, compared without case, and its index in the order from longest to
/// shortest.
pub(super) fn unit(word: &str) -> Option<(usize, &'static TimeUnit)> {
    UNITS.iter().enumerate().find(|(_, unit)| is_one_of(word, unit.names))
}

/// Returns the name of the unit that `word` most likely misspells or abbreviates.
pub(super) fn nearest_unit(word: &str) -> Option<&'static str> {
    let foreign = UNITS.iter().find(|unit| is_one_of(word, unit.foreign)).map(|unit| unit.names[0]);
    foreign.or_else(|| nearest(word, UNITS.iter().flat_map(|unit| unit.names.iter().copied())))
}

/// Returns a suggestion for the unknown unit `word`.
pub(super) fn advice(word: &str) -> String {
    if is_one_of(word, &["us", "micros", "microsecond", "microseconds", "ns", "nanos", "nanoseconds"]) {
        return "the shortest unit is `millisec`".to_owned();
    }
    match nearest_unit(word) {
        Some(best) => format!("write `{best}`"),
        None => "the units are `year`, `month`, `week`, `day`, `hour`, `min`, `sec`, `millisec`".to_owned(),
    }
}
