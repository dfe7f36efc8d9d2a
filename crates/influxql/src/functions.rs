//! Functions over the points of a group: aggregates and selectors.

use std::collections::HashSet;

use crate::rows::AggregateFunction;
use crate::value::{InfluxValue, Kind};

/// Point of a field or of a function's result.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Point {
    pub time: i64,
    pub value: Option<InfluxValue>,
    /// Index of the row that a selector has taken.
    pub row: Option<usize>,
}

/// Kinds of fields that a function takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Accepts {
    Any,
    Numbers,
    NumbersAndBooleans,
}

impl Accepts {
    pub fn kind(self, kind: Kind) -> bool {
        match self {
            Self::Any => kind != Kind::Tag,
            Self::Numbers => kind.is_number(),
            Self::NumbersAndBooleans => kind.is_number() || kind == Kind::Boolean,
        }
    }

    /// Returns whether it takes a value. A column of a subquery may have values of several types.
    pub fn value(self, value: &InfluxValue) -> bool {
        match value {
            InfluxValue::Float(_) | InfluxValue::Integer(_) => true,
            InfluxValue::Boolean(_) => self != Self::Numbers,
            InfluxValue::Text(_) => self == Self::Any,
        }
    }
}

/// Class of a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// One value for each interval.
    Aggregate,
    /// A point of each interval, beside which other fields of it may be selected.
    Selector,
    /// Some points of each interval, with their own times.
    Points,
    /// Another value for each point, or for each interval of another function.
    Transformation,
}

/// Function with its class, the kinds of fields it takes, and its least and largest number of arguments.
#[derive(Debug)]
pub(crate) struct PointFunction {
    pub name: &'static str,
    pub class: Class,
    pub accepts: Accepts,
    pub arguments: (usize, usize),
}

const fn function(
    name: &'static str,
    class: Class,
    accepts: Accepts,
    least: usize,
    most: usize,
) -> PointFunction {
    PointFunction { name, class, accepts, arguments: (least, most) }
}

/// All functions over points.
pub(crate) const FUNCTIONS: &[PointFunction] = &[
    function("count", Class::Aggregate, Accepts::Any, 1, 1),
    function("distinct", Class::Points, Accepts::Any, 1, 1),
    function("integral", Class::Aggregate, Accepts::Numbers, 1, 2),
    function("mean", Class::Aggregate, Accepts::Numbers, 1, 1),
    function("median", Class::Aggregate, Accepts::Numbers, 1, 1),
    function("mode", Class::Aggregate, Accepts::Any, 1, 1),
    function("spread", Class::Aggregate, Accepts::Numbers, 1, 1),
    function("stddev", Class::Aggregate, Accepts::Numbers, 1, 1),
    function("sum", Class::Aggregate, Accepts::Numbers, 1, 1),
    function("first", Class::Selector, Accepts::Any, 1, 1),
    function("last", Class::Selector, Accepts::Any, 1, 1),
    function("max", Class::Selector, Accepts::NumbersAndBooleans, 1, 1),
    function("min", Class::Selector, Accepts::NumbersAndBooleans, 1, 1),
    function("percentile", Class::Selector, Accepts::Numbers, 2, 2),
    function("sample", Class::Points, Accepts::Any, 2, 2),
    function("top", Class::Points, Accepts::Numbers, 2, usize::MAX),
    function("bottom", Class::Points, Accepts::Numbers, 2, usize::MAX),
    function("cumulative_sum", Class::Transformation, Accepts::Numbers, 1, 1),
    function("derivative", Class::Transformation, Accepts::Numbers, 1, 2),
    function("difference", Class::Transformation, Accepts::Numbers, 1, 1),
    function("elapsed", Class::Transformation, Accepts::Any, 1, 2),
    function("moving_average", Class::Transformation, Accepts::Numbers, 2, 2),
    function("non_negative_derivative", Class::Transformation, Accepts::Numbers, 1, 2),
    function("non_negative_difference", Class::Transformation, Accepts::Numbers, 1, 1),
];

impl PointFunction {
    /// Returns the function of this name.
    pub fn of(name: &str) -> Option<&'static Self> {
        FUNCTIONS.iter().find(|function| function.name == name)
    }
}

/// Returns the function as SQL calculates it, if SQL does.
pub(crate) fn in_sql(function: &str) -> Option<AggregateFunction> {
    Some(match function {
        "count" => AggregateFunction::Count,
        "sum" => AggregateFunction::Sum,
        "mean" => AggregateFunction::Mean,
        "median" => AggregateFunction::Median,
        "spread" => AggregateFunction::Spread,
        "stddev" => AggregateFunction::Stddev,
        "min" => AggregateFunction::Min,
        "max" => AggregateFunction::Max,
        "first" => AggregateFunction::First,
        "last" => AggregateFunction::Last,
        _ => return None,
    })
}

/// Argument beside the field.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Argument {
    /// Number of points, or a percentage.
    pub number: f64,
}

/// Reads the points of an interval as one result. The points have values.
pub(crate) fn reduce(function: &str, argument: Argument, points: &[Point]) -> Vec<Point> {
    let one = |value: Option<InfluxValue>| vec![Point { time: 0, value, row: None }];
    match function {
        "count" => one(Some(InfluxValue::Integer(points.len() as i64))),
        "count distinct" => one(Some(InfluxValue::Integer(distinct(points).len() as i64))),
        "sum" => one(Some(sum(points))),
        "mean" => one(Some(InfluxValue::Float(total(points) / points.len() as f64))),
        "median" => one(median(points)),
        "mode" => one(mode(points)),
        "spread" => one(spread(points)),
        "stddev" => one(stddev(points)),
        // of points of one time the larger value is taken, of booleans `false` for the first
        "first" => pick(points, |a, b| {
            let is_boolean = matches!(a.value, Some(InfluxValue::Boolean(_)));
            let values = if is_boolean { order(b, a) } else { order(a, b) };
            b.time.cmp(&a.time).then(values).is_lt()
        }),
        "last" => pick(points, |a, b| b.time.cmp(&a.time).then(order(b, a)).is_gt()),
        "min" => pick(points, |a, b| order(b, a).then(b.time.cmp(&a.time)).is_lt()),
        "max" => pick(points, |a, b| order(a, b).then(b.time.cmp(&a.time)).is_lt()),
        "percentile" => percentile(points, argument.number),
        "distinct" => distinct(points),
        "sample" => sample(points, argument.number as usize),
        _ => vec![],
    }
}

fn order(a: &Point, b: &Point) -> std::cmp::Ordering {
    match (&a.value, &b.value) {
        (Some(a), Some(b)) => a.order(b),
        _ => std::cmp::Ordering::Equal,
    }
}

/// Returns the best point; `is_better` says whether its second argument is to be taken instead of its first.
fn pick(points: &[Point], is_better: impl Fn(&Point, &Point) -> bool) -> Vec<Point> {
    let best = points.iter().reduce(|best, point| if is_better(best, point) { point } else { best });
    best.cloned().into_iter().collect()
}

fn total(points: &[Point]) -> f64 {
    numbers(points).sum()
}

fn numbers(points: &[Point]) -> impl Iterator<Item = f64> {
    points.iter().filter_map(|point| point.value.as_ref().and_then(InfluxValue::number))
}

fn sum(points: &[Point]) -> InfluxValue {
    match points.first().and_then(|point| point.value.as_ref()) {
        Some(InfluxValue::Integer(_)) => {
            InfluxValue::Integer(points.iter().fold(0_i64, |sum, point| match point.value {
                Some(InfluxValue::Integer(value)) => sum.wrapping_add(value),
                _ => sum,
            }))
        }
        _ => InfluxValue::Float(total(points)),
    }
}

fn median(points: &[Point]) -> Option<InfluxValue> {
    let mut sorted: Vec<f64> = numbers(points).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let high = *sorted.get(middle)?;
    Some(InfluxValue::Float(match sorted.len() % 2 {
        1 => high,
        _ => {
            let low = sorted[middle - 1];
            low + (high - low) / 2.0
        }
    }))
}

fn spread(points: &[Point]) -> Option<InfluxValue> {
    let values = || points.iter().filter_map(|point| point.value.as_ref());
    match (values().max_by(|a, b| a.order(b))?, values().min_by(|a, b| a.order(b))?) {
        (InfluxValue::Integer(max), InfluxValue::Integer(min)) => {
            Some(InfluxValue::Integer(max.wrapping_sub(*min)))
        }
        (max, min) => Some(InfluxValue::Float(max.number()? - min.number()?)),
    }
}

/// Sample standard deviation; a single point has none.
fn stddev(points: &[Point]) -> Option<InfluxValue> {
    if points.len() < 2 {
        return None;
    }
    let mean = total(points) / points.len() as f64;
    let squares: f64 = numbers(points).map(|value| (value - mean) * (value - mean)).sum();
    Some(InfluxValue::Float((squares / (points.len() - 1) as f64).sqrt()))
}

/// Key by which values are equal.
#[derive(PartialEq, Eq, Hash)]
enum Same {
    Bits(u64),
    Text(std::sync::Arc<str>),
}

fn same(value: &InfluxValue) -> Same {
    match value {
        InfluxValue::Float(value) => Same::Bits(if *value == 0.0 { 0 } else { value.to_bits() }),
        InfluxValue::Integer(value) => Same::Bits(*value as u64),
        InfluxValue::Boolean(value) => Same::Bits(u64::from(*value)),
        InfluxValue::Text(text) => Same::Text(text.clone()),
    }
}

/// Most frequent value. Where several are, the choice is the one of InfluxDB: the smallest if each occurs once, else one that begins early.
fn mode(points: &[Point]) -> Option<InfluxValue> {
    let mut sorted: Vec<&Point> = points.iter().collect();
    sorted.sort_by(|a, b| order(a, b).then(a.time.cmp(&b.time)));
    let first = sorted.first()?;
    let (mut best, mut best_count, mut best_time) = (*first, 0, first.time);
    let (mut current, mut count) = (*first, 0);
    for point in &sorted {
        if order(point, current).is_ne() {
            (current, count) = (point, 1);
            continue;
        }
        count += 1;
        if best_count > count || (best_count == count && current.time > best_time) {
            continue;
        }
        (best, best_count, best_time) = (point, count, point.time);
    }
    best.value.clone()
}

/// Different values in the order of their first times.
fn distinct(points: &[Point]) -> Vec<Point> {
    let mut sorted: Vec<&Point> = points.iter().collect();
    sorted.sort_by(|a, b| a.time.cmp(&b.time).then(order(a, b)));
    let mut known = HashSet::new();
    sorted.retain(|point| point.value.as_ref().is_some_and(|value| known.insert(same(value))));
    sorted.into_iter().cloned().collect()
}

/// Value that as many percent of the values do not exceed, by the nearest rank.
fn percentile(points: &[Point], percent: f64) -> Vec<Point> {
    let mut sorted: Vec<&Point> = points.iter().collect();
    sorted.sort_by(|a, b| order(a, b).then(a.time.cmp(&b.time)));
    let rank = (sorted.len() as f64 * percent / 100.0 + 0.5).floor() as i64 - 1;
    let found = usize::try_from(rank).ok().and_then(|rank| sorted.get(rank));
    found.map(|point| (*point).clone()).into_iter().collect()
}

/// As many points by chance, in the order of time.
fn sample(points: &[Point], count: usize) -> Vec<Point> {
    let mut random = rand::rng();
    let mut chosen = rand::seq::index::sample(&mut random, points.len(), count.min(points.len())).into_vec();
    chosen.sort_unstable();
    chosen.into_iter().map(|index| points[index].clone()).collect()
}

/// The `count` largest points, or smallest; of equal ones the earlier. With the tags of each point the best of each combination of them
/// takes part. The result is in the order of time.
pub(crate) fn extremes(points: &[Point], count: usize, is_top: bool, tags: Option<&[String]>) -> Vec<Point> {
    let mut best: Vec<(usize, &Point)> = points.iter().enumerate().collect();
    best.sort_by(|(_, a), (_, b)| {
        let values = if is_top { order(b, a) } else { order(a, b) };
        values.then(a.time.cmp(&b.time))
    });
    if let Some(tags) = tags {
        let mut known = HashSet::new();
        best.retain(|(index, _)| known.insert(&tags[*index]));
    }
    best.truncate(count);
    best.sort_by_key(|(index, _)| *index);
    best.into_iter().map(|(_, point)| point.clone()).collect()
}

/// Area below the points in units of `unit` nanoseconds, by intervals. `window` returns start and end of the interval that has a time.
///
/// An interval without a point has no result: its area belongs to that of the next point, as in InfluxDB.
pub(crate) fn integral(points: &[Point], unit: i64, window: impl Fn(i64) -> (i64, i64)) -> Vec<Point> {
    let Some(first) = points.first() else { return vec![] };
    let number = |point: &Point| point.value.as_ref().and_then(InfluxValue::number).unwrap_or_default();
    let mut results = Vec::new();
    let mut previous = (first.time, number(first));
    let (mut start, mut end) = window(first.time);
    let mut sum = 0.0;
    let area = |from: (i64, f64), to: (i64, f64)| {
        let elapsed = (to.0 - from.0) as f64 / unit as f64;
        0.5 * (from.1 + to.1) * elapsed
    };
    for point in &points[1..] {
        let here = (point.time, number(point));
        if here.0 == previous.0 {
            previous = here;
            continue;
        }
        let bounds = window(here.0);
        if bounds.0 != start {
            // the far end of the interval in the direction of the points
            let edge = if here.0 > previous.0 { end } else { start };
            if previous.0 != edge {
                let slope = (here.1 - previous.1) / (here.0 - previous.0) as f64;
                let at_edge = (edge, previous.1 + slope * (edge - previous.0) as f64);
                sum += area(previous, at_edge);
                previous = at_edge;
            }
            results.push(Point { time: start, value: Some(InfluxValue::Float(sum)), row: None });
            (start, end) = bounds;
            sum = 0.0;
        }
        sum += area(previous, here);
        previous = here;
    }
    if previous.0 != start {
        results.push(Point { time: start, value: Some(InfluxValue::Float(sum)), row: None });
    }
    results
}
