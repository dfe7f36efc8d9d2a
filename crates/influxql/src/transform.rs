//! Functions from points to points, and the filling of intervals without points.

use std::collections::VecDeque;

use crate::error::{Outcome, refuse};
use crate::functions::Point;
use crate::syntax::{Fill, FillNumber};
use crate::time::{Intervals, TIME_MIN, TimeBounds};
use crate::value::InfluxValue;

/// Transformation with its argument.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Transformation {
    CumulativeSum,
    /// Change in `unit` nanoseconds.
    Derivative {
        unit: i64,
        is_non_negative: bool,
    },
    Difference {
        is_non_negative: bool,
    },
    /// Time since the point before in units of so many nanoseconds.
    Elapsed {
        unit: i64,
    },
    /// Mean of so many points.
    MovingAverage {
        points: usize,
    },
}

/// Transforms points in the order of the statement.
pub(crate) fn transform(transformation: Transformation, points: &[Point]) -> Vec<Point> {
    let points = points.iter().filter(|point| point.value.is_some());
    match transformation {
        Transformation::CumulativeSum => cumulative_sum(points),
        Transformation::Derivative { unit, is_non_negative } => changes(points, |before, here| {
            let change = subtract(here.value.as_ref()?, before.value.as_ref()?)?.number()?;
            let elapsed = here.time.abs_diff(before.time) as f64;
            let is_dropped = is_non_negative && change < 0.0;
            (!is_dropped).then(|| InfluxValue::Float(change / (elapsed / unit as f64)))
        }),
        Transformation::Difference { is_non_negative } => changes(points, |before, here| {
            let change = subtract(here.value.as_ref()?, before.value.as_ref()?)?;
            let is_dropped = is_non_negative && change.number()? < 0.0;
            (!is_dropped).then_some(change)
        }),
        Transformation::Elapsed { unit } => {
            let points: Vec<&Point> = points.collect();
            let pairs = points.windows(2).map(|pair| {
                let elapsed = pair[1].time.wrapping_sub(pair[0].time) / unit;
                Point { time: pair[1].time, value: Some(InfluxValue::Integer(elapsed)), row: None }
            });
            pairs.collect()
        }
        Transformation::MovingAverage { points: count } => moving_average(points, count),
    }
}

fn subtract(a: &InfluxValue, b: &InfluxValue) -> Option<InfluxValue> {
    match (a, b) {
        (InfluxValue::Integer(a), InfluxValue::Integer(b)) => Some(InfluxValue::Integer(a.wrapping_sub(*b))),
        _ => Some(InfluxValue::Float(a.number()? - b.number()?)),
    }
}

fn cumulative_sum<'p>(points: impl Iterator<Item = &'p Point>) -> Vec<Point> {
    let mut sum: Option<InfluxValue> = None;
    let mut results = Vec::new();
    for point in points {
        let Some(value) = &point.value else { continue };
        let total = match (&sum, value) {
            (None, value) => value.clone(),
            (Some(InfluxValue::Integer(sum)), InfluxValue::Integer(value)) => {
                InfluxValue::Integer(sum.wrapping_add(*value))
            }
            (Some(sum), value) => match (sum.number(), value.number()) {
                (Some(sum), Some(value)) => InfluxValue::Float(sum + value),
                _ => continue,
            },
        };
        results.push(Point { time: point.time, value: Some(total.clone()), row: None });
        sum = Some(total);
    }
    results
}

/// Calls `change` with each point and the one before. Of points of one time the first takes part.
fn changes<'p>(
    points: impl Iterator<Item = &'p Point>,
    change: impl Fn(&Point, &Point) -> Option<InfluxValue>,
) -> Vec<Point> {
    let mut before: Option<&Point> = None;
    let mut results = Vec::new();
    for point in points {
        if before.is_some_and(|before| before.time == point.time) {
            continue;
        }
        if let Some(before) = before
            && let Some(value) = change(before, point)
        {
            results.push(Point { time: point.time, value: Some(value), row: None });
        }
        before = Some(point);
    }
    results
}

fn moving_average<'p>(points: impl Iterator<Item = &'p Point>, count: usize) -> Vec<Point> {
    let mut last = VecDeque::new();
    let mut sum = 0.0;
    let mut results = Vec::new();
    for point in points {
        let Some(value) = point.value.as_ref().and_then(InfluxValue::number) else { continue };
        sum += value;
        last.push_back(value);
        if last.len() > count
            && let Some(first) = last.pop_front()
        {
            sum -= first;
        }
        if last.len() == count {
            results.push(Point {
                time: point.time,
                value: Some(InfluxValue::Float(sum / count as f64)),
                row: None,
            });
        }
    }
    results
}

/// Intervals that filling may add to one function's result.
const FILLED_MAX: usize = 1_000_000;

/// Adds points for intervals without one, in the order of the statement.
///
/// Errors: more of them than are allowed.
pub(crate) fn fill(
    fill: Fill,
    is_count: bool,
    points: Vec<Point>,
    intervals: &Intervals,
    range: TimeBounds,
    is_descending: bool,
) -> Outcome<Vec<Point>> {
    let Some(first) = points.first() else { return Ok(points) };
    let fill = match fill {
        Fill::None => return Ok(points),
        Fill::Null if is_count => Fill::Number(FillNumber::Integer(0)),
        other => other,
    };
    // where the range has no start, a group starts with its first point
    let low = if range.min == TIME_MIN {
        points.iter().map(|point| point.time).min().unwrap_or(first.time)
    } else {
        intervals.start(range.min)
    };
    let high = intervals.start(range.max);
    let estimate = (i128::from(high) - i128::from(low)) / i128::from(intervals.duration);
    if estimate > FILLED_MAX as i128 {
        return refuse(format!(
            "fill() would make {estimate} intervals of each series, at most {FILLED_MAX} are allowed: choose a longer interval, a \
             shorter time range, or fill(none)"
        ));
    }
    let (mut at, end) = if is_descending { (high, low) } else { (low, high) };
    let mut results: Vec<Point> = Vec::with_capacity(points.len());
    let mut waiting = points.into_iter().peekable();
    let mut previous: Option<Point> = None;
    loop {
        let point = match waiting.peek().map(|point| point.time) {
            Some(time) if time == at => waiting.next(),
            _ => None,
        };
        match point {
            Some(point) => {
                // a point without a value fills with none, as in InfluxDB
                previous = Some(point.clone());
                results.push(point);
                // several points may have one time
                if waiting.peek().is_some_and(|next| next.time == at) {
                    continue;
                }
            }
            None => results.push(Point {
                time: at,
                value: filled(fill, at, previous.as_ref(), waiting.peek(), intervals),
                row: None,
            }),
        }
        if at == end {
            break;
        }
        let next = if is_descending { intervals.previous(at) } else { intervals.next(at) };
        let Some(next) = next else { break };
        if (is_descending && next < end) || (!is_descending && next > end) {
            break;
        }
        at = next;
    }
    // what lies beside the intervals stays
    results.extend(waiting);
    Ok(results)
}

/// Returns a number of the type of a known value; for texts and booleans it is the empty one, as in InfluxDB.
pub(crate) fn number_like(number: FillNumber, known: Option<&InfluxValue>) -> Option<InfluxValue> {
    Some(match (number, known) {
        (_, Some(InfluxValue::Text(_))) => InfluxValue::Text("".into()),
        (_, Some(InfluxValue::Boolean(_))) => InfluxValue::Boolean(false),
        (FillNumber::Integer(number), Some(InfluxValue::Float(_))) => InfluxValue::Float(number as f64),
        (FillNumber::Float(number), Some(InfluxValue::Integer(_))) => InfluxValue::Integer(number as i64),
        (FillNumber::Integer(number), _) => InfluxValue::Integer(number),
        (FillNumber::Float(number), _) => InfluxValue::Float(number),
    })
}

fn filled(
    fill: Fill,
    at: i64,
    previous: Option<&Point>,
    next: Option<&Point>,
    intervals: &Intervals,
) -> Option<InfluxValue> {
    match fill {
        Fill::Null | Fill::None => None,
        Fill::Previous => previous?.value.clone(),
        Fill::Number(number) => number_like(number, previous.or(next).and_then(|point| point.value.as_ref())),
        Fill::Linear => {
            let (previous, next) = (previous?, next?);
            let (a, b) = (previous.value.as_ref()?, next.value.as_ref()?);
            let (x, y) = (a.number()?, b.number()?);
            // counted in intervals, so that whole numbers stay whole
            let is_regular = intervals.zone == jiff::tz::TimeZone::UTC;
            let count = |time: i64| if is_regular { time / intervals.duration } else { time };
            let slope = (y - x) / (count(next.time) - count(previous.time)) as f64;
            let value = slope * (count(at) - count(previous.time)) as f64 + x;
            match (a, b) {
                (InfluxValue::Integer(_), InfluxValue::Integer(_)) => {
                    Some(InfluxValue::Integer(value as i64))
                }
                _ => Some(InfluxValue::Float(value)),
            }
        }
    }
}
