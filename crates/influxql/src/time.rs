//! Times: ranges in conditions, intervals of `GROUP BY time(…)`, texts.

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::error::{Outcome, StatementError, refuse};
use crate::syntax::{BinaryOperator, Expr};

/// First time, in nanoseconds since 1970.
pub(crate) const TIME_MIN: i64 = i64::MIN + 2;
/// Last time.
pub(crate) const TIME_MAX: i64 = i64::MAX - 1;

/// Range of times, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TimeBounds {
    pub min: i64,
    pub max: i64,
}

impl TimeBounds {
    pub const ALL: Self = Self { min: TIME_MIN, max: TIME_MAX };

    /// Returns the range that lies in both.
    pub fn and(self, other: Self) -> Self {
        Self { min: self.min.max(other.min), max: self.max.min(other.max) }
    }

    pub fn contains(self, time: i64) -> bool {
        self.min <= time && time <= self.max
    }

    pub fn is_empty(self) -> bool {
        self.min > self.max
    }
}

/// Environment of times in a statement.
#[derive(Debug, Clone)]
pub(crate) struct Clock {
    /// `now()`, in nanoseconds since 1970.
    pub now: i64,
    /// Zone of texts without one.
    pub zone: TimeZone,
}

/// Splits a condition into its comparisons of `time` and the rest.
///
/// Errors: `time` below `OR` or in another place than a comparison with a constant.
pub(crate) fn split(condition: Option<&Expr>, clock: &Clock) -> Outcome<(Option<Expr>, TimeBounds)> {
    let mut range = TimeBounds::ALL;
    let rest = match condition {
        Some(condition) => rest(condition, clock, &mut range)?,
        None => None,
    };
    Ok((rest, range))
}

fn rest(condition: &Expr, clock: &Clock, range: &mut TimeBounds) -> Outcome<Option<Expr>> {
    match condition {
        Expr::Paren(inner) => Ok(rest(inner, clock, range)?.map(|inner| Expr::Paren(Box::new(inner)))),
        Expr::Binary(BinaryOperator::And, left, right) => {
            Ok(match (rest(left, clock, range)?, rest(right, clock, range)?) {
                (Some(left), Some(right)) => {
                    Some(Expr::Binary(BinaryOperator::And, Box::new(left), Box::new(right)))
                }
                (left, right) => left.or(right),
            })
        }
        Expr::Binary(operator, left, right) if operator.is_comparison() => {
            let (operator, value) = match (is_time(left), is_time(right)) {
                (true, false) => (*operator, right),
                (false, true) => (operator.mirrored(), left),
                (false, false) => {
                    no_time(condition, "time is compared with a constant only, without calculating with it")?;
                    return Ok(Some(condition.clone()));
                }
                (true, true) => return refuse("time is compared with itself"),
            };
            let time = constant(value, clock)?;
            let bound = match operator {
                BinaryOperator::Equal => TimeBounds { min: time, max: time },
                BinaryOperator::Less => TimeBounds { min: TIME_MIN, max: time.saturating_sub(1) },
                BinaryOperator::LessOrEqual => TimeBounds { min: TIME_MIN, max: time },
                BinaryOperator::Greater => TimeBounds { min: time.saturating_add(1), max: TIME_MAX },
                BinaryOperator::GreaterOrEqual => TimeBounds { min: time, max: TIME_MAX },
                other => return refuse(format!("invalid time comparison operator: {}", other.symbol())),
            };
            *range = range.and(bound);
            Ok(None)
        }
        Expr::Binary(BinaryOperator::Or, ..) => {
            no_time(condition, "cannot use OR with conditions of time: send two statements")?;
            Ok(Some(condition.clone()))
        }
        other => {
            no_time(other, "time is compared with a constant only, without calculating with it")?;
            Ok(Some(other.clone()))
        }
    }
}

fn is_time(expr: &Expr) -> bool {
    matches!(expr.bare(), Expr::Name(name, _) if name == "time")
}

fn no_time(expr: &Expr, refusal: &str) -> Outcome<()> {
    let mut has_time = false;
    expr.walk(&mut |part| has_time |= is_time(part));
    if has_time { refuse(refusal) } else { Ok(()) }
}

/// Constant of an expression of times.
enum Constant {
    Time(i64),
    Duration(i64),
}

/// Returns the time of a constant expression: `now() - 1h`, `'2026-01-05T08:00:00Z' + 6m`, `1767600000s`.
fn constant(expr: &Expr, clock: &Clock) -> Outcome<i64> {
    match value(expr, clock)? {
        Constant::Time(time) | Constant::Duration(time) => Ok(time),
    }
}

fn value(expr: &Expr, clock: &Clock) -> Outcome<Constant> {
    let beyond = || StatementError::new("time is outside of the years 1677 to 2262");
    Ok(match expr {
        Expr::Paren(inner) => value(inner, clock)?,
        Expr::Integer(time) => Constant::Time(*time),
        Expr::Float(time) => Constant::Time(*time as i64),
        Expr::Duration(duration) => Constant::Duration(*duration),
        Expr::Call(function, arguments) if function == "now" && arguments.is_empty() => {
            Constant::Time(clock.now)
        }
        Expr::Text(text) => match parse(text, &clock.zone) {
            Some(time) => Constant::Time(time),
            None => {
                return refuse(format!(
                    "invalid operation: time and *influxql.StringLiteral are not compatible: `{text}` is not a time such as \
                     '2026-01-05T08:00:00Z' or '2026-01-05 08:00:00'"
                ));
            }
        },
        Expr::Binary(operator @ (BinaryOperator::Add | BinaryOperator::Subtract), left, right) => {
            let is_sum = *operator == BinaryOperator::Add;
            let apply = |a: i64, b: i64| if is_sum { a.checked_add(b) } else { a.checked_sub(b) };
            match (value(left, clock)?, value(right, clock)?) {
                (Constant::Duration(a), Constant::Duration(b)) => {
                    Constant::Duration(apply(a, b).ok_or_else(beyond)?)
                }
                (Constant::Time(a) | Constant::Duration(a), Constant::Duration(b) | Constant::Time(b)) => {
                    Constant::Time(apply(a, b).ok_or_else(beyond)?)
                }
            }
        }
        other => {
            return refuse(format!(
                "invalid operation: time is compared with `{other}`, which is not a constant time"
            ));
        }
    })
}

/// Parses a time: RFC 3339, or date and time without a zone.
pub(crate) fn parse(text: &str, zone: &TimeZone) -> Option<i64> {
    if !text.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let nanoseconds = |time: Timestamp| i64::try_from(time.as_nanosecond()).ok();
    if let Ok(time) = text.parse::<Timestamp>() {
        return nanoseconds(time);
    }
    let civil = text.parse::<jiff::civil::DateTime>();
    let civil = civil.or_else(|_| text.parse::<jiff::civil::Date>().map(|date| date.at(0, 0, 0, 0)));
    nanoseconds(civil.ok()?.to_zoned(zone.clone()).ok()?.timestamp())
}

/// Formats a time as RFC 3339 in a zone.
pub(crate) fn format(time: i64, zone: &TimeZone) -> String {
    let Ok(instant) = Timestamp::from_nanosecond(i128::from(time)) else { return time.to_string() };
    let zoned = instant.to_zoned(zone.clone());
    let mut text = zoned.strftime("%Y-%m-%dT%H:%M:%S").to_string();
    let nanoseconds = time.rem_euclid(1_000_000_000);
    if nanoseconds > 0 {
        let fraction = format!("{nanoseconds:09}");
        text.push('.');
        text.push_str(fraction.trim_end_matches('0'));
    }
    match zoned.offset().seconds() {
        0 => text.push('Z'),
        _ => text.push_str(&zoned.strftime("%:z").to_string()),
    }
    text
}

/// Intervals of `GROUP BY time(duration, offset)`.
#[derive(Debug, Clone)]
pub(crate) struct Intervals {
    pub duration: i64,
    pub offset: i64,
    pub zone: TimeZone,
}

impl Intervals {
    fn zone_offset(&self, time: i64) -> i64 {
        if self.zone == TimeZone::UTC {
            return 0;
        }
        let instant = Timestamp::from_nanosecond(i128::from(time)).unwrap_or_default();
        i64::from(self.zone.to_offset(instant).seconds()) * 1_000_000_000
    }

    /// Returns the start of the interval that has a time. Where the clocks change within an interval, its start is the one of the local
    /// time, unless the change is as long as the interval.
    pub fn start(&self, time: i64) -> i64 {
        let shifted = time.saturating_sub(self.offset);
        let zone = self.zone_offset(shifted);
        let into = (i128::from(shifted) + i128::from(zone)).rem_euclid(i128::from(self.duration)) as i64;
        let mut start = shifted.checked_sub(into).unwrap_or(TIME_MIN).saturating_add(self.offset);
        let change = zone - self.zone_offset(start);
        if change != 0 && change.abs() < self.duration {
            start = start.saturating_add(change);
        }
        start.max(TIME_MIN)
    }

    /// Returns the start of the interval behind one that starts at `start`; `None` at the end of times.
    pub fn next(&self, start: i64) -> Option<i64> {
        let mut step = self.duration;
        loop {
            let next = self.start(start.checked_add(step)?);
            if next > start {
                return Some(next);
            }
            // a day with a change of the clocks is longer than others
            step = step.checked_add(self.duration / 2 + 1)?;
        }
    }

    /// Returns the start of the interval before one that starts at `start`; `None` at the beginning of times.
    pub fn previous(&self, start: i64) -> Option<i64> {
        (start > TIME_MIN).then(|| self.start(start - 1)).filter(|previous| *previous < start)
    }
}
