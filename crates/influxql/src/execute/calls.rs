//! Statements with functions over points.
//!
//! Each call has its points in each group; points of one time are one row. The range of a function inside of another is one interval
//! longer where the outer one needs the value before: `difference(mean(v))` has a value for the first interval, too.

use super::columns::ResultColumns;
use super::groups::Wanted;
use super::inputs::{Input, InputTable};
use super::names::NameList;
use super::pushdown::BaseCall;
use super::{Executor, Grouped};
use crate::error::{Outcome, refuse};
use crate::functions::{Accepts, Class, Point, PointFunction, extremes, integral, reduce};
use crate::plan::{PointCall, SelectFrame};
use crate::rows::Row;
use crate::series::SeriesRow;
use crate::syntax::{Cast, Expr, Fill};
use crate::time::{TIME_MIN, TimeBounds};
use crate::transform::{Transformation, fill, number_like, transform};
use crate::value::{InfluxValue, Kind};

impl Executor<'_> {
    pub(super) async fn rows_of_calls(
        &self,
        input: &Input<'_>,
        columns: &ResultColumns,
        frame: &SelectFrame,
    ) -> Outcome<Grouped<Vec<SeriesRow>>> {
        let calls: Vec<Option<&PointCall>> =
            columns.calls.iter().map(|call| applicable(call, input)).collect::<Outcome<_>>()?;
        if calls.iter().all(Option::is_none) {
            return Ok(Grouped::new());
        }
        if let Some((bases, groups)) = self.calculated(input, columns, frame, &calls).await? {
            return groups
                .into_iter()
                .map(|(key, points)| {
                    let data = Data::Calculated { bases: &bases, points: &points };
                    let group = CallGroup { frame, data, columns };
                    Ok((key, self.joined(&group, &calls)?))
                })
                .collect();
        }
        let mut names = columns.fields.clone();
        let mut any_of = vec![];
        for call in calls.iter().flatten() {
            if let PointCall::Base { tags, .. } = call {
                tags.iter().for_each(|tag| names.add(tag));
            }
            if let (_, Expr::Name(field, _)) = call.innermost() {
                names.add(field);
                any_of.push(field.clone());
            }
        }
        let widest = calls.iter().flatten().map(|call| widest(call, frame.range, frame));
        let range = widest.reduce(|a, b| TimeBounds { min: a.min.min(b.min), max: a.max.max(b.max) });
        let wanted = Wanted {
            names: names.names(),
            any_of: &any_of,
            dimensions: &columns.dimensions,
            condition: frame.condition.as_ref(),
            range: range.unwrap_or(frame.range),
            is_descending: frame.is_descending,
            limit: None,
        };
        // the rows of a subquery are those of its range, whose intervals may begin before it
        let is_result = !input.tables.iter().any(|table| matches!(table, InputTable::Stored(_)));
        let groups = self.groups(input, &wanted).await?;
        groups
            .into_iter()
            .map(|(key, rows)| {
                let data = Data::Rows { rows: &rows, names: &names, is_result };
                let group = CallGroup { frame, data, columns };
                Ok((key, self.joined(&group, &calls)?))
            })
            .collect()
    }

    /// Joins the points of the calls by their times.
    fn joined(&self, group: &CallGroup<'_>, calls: &[Option<&PointCall>]) -> Outcome<Vec<SeriesRow>> {
        let points = calls.iter().map(|call| match call {
            Some(call) => {
                let points = group.points(call, group.frame.range)?;
                self.memory.take(points.len() * size_of::<Point>())?;
                Ok(points)
            }
            None => Ok(vec![]),
        });
        let points: Vec<Vec<Point>> = points.collect::<Outcome<_>>()?;
        let taken = points.iter().map(Vec::len).sum::<usize>() * size_of::<Point>();
        let mut next = vec![0; points.len()];
        let mut rows = Vec::new();
        loop {
            let heads = points.iter().zip(&next).filter_map(|(points, next)| points.get(*next));
            let time = heads.map(|point| point.time).reduce(|a, b| match group.frame.is_descending {
                true => a.max(b),
                false => a.min(b),
            });
            let Some(time) = time else {
                self.memory.give_back(taken);
                return Ok(rows);
            };
            let (mut values, mut row) = (Vec::with_capacity(points.len()), None);
            for ((points, next), call) in points.iter().zip(&mut next).zip(calls) {
                let point = points.get(*next).filter(|point| point.time == time);
                *next += usize::from(point.is_some());
                row = row.or(point.and_then(|point| point.row));
                values.push(match (point, call, group.frame.missing()) {
                    (None, Some(_), Some(number)) => {
                        number_like(number, points.first().and_then(|known| known.value.as_ref()))
                    }
                    (point, ..) => point.and_then(|point| point.value.clone()),
                });
            }
            let field = |name: &str| group.field(row?, name);
            let row = SeriesRow { time: Some(time), values: group.columns.values(&values, &field) };
            self.memory.take(size_of::<SeriesRow>() + 32 * row.values.len())?;
            rows.push(row);
        }
    }
}

/// Returns a call if its field is one of the measurement.
///
/// Errors: a field of a kind that the function does not take.
fn applicable<'c>(call: &'c PointCall, input: &Input<'_>) -> Outcome<Option<&'c PointCall>> {
    let (function, field) = call.innermost();
    let Expr::Name(name, cast) = field else { return Ok(None) };
    let kind = match (input.columns.get(name), cast) {
        (None | Some(Kind::Tag), _) => return Ok(None),
        (Some(Kind::Integer), Some(Cast::Float)) => Kind::Float,
        (Some(Kind::Float), Some(Cast::Integer)) => Kind::Integer,
        (Some(kind), _) => *kind,
    };
    let function = function.split(' ').next().unwrap_or_default();
    let fits = PointFunction::of(function).is_some_and(|function| function.accepts.kind(kind));
    if !fits {
        return refuse(format!(
            "unsupported {function} of the {} field {}",
            kind.name(),
            crate::print::name(name)
        ));
    }
    Ok(Some(call))
}

/// Returns the range of the points of an inner function.
pub(super) fn inner_range(
    transformation: Transformation,
    range: TimeBounds,
    frame: &SelectFrame,
) -> TimeBounds {
    let Some(intervals) = &frame.intervals else { return range };
    match transformation {
        Transformation::CumulativeSum => range,
        _ if frame.is_descending => TimeBounds { max: range.max.saturating_add(intervals.duration), ..range },
        _ if range.min == TIME_MIN => range,
        _ => TimeBounds { min: range.min.saturating_sub(intervals.duration).max(TIME_MIN), ..range },
    }
}

fn widest(call: &PointCall, range: TimeBounds, frame: &SelectFrame) -> TimeBounds {
    match call {
        PointCall::OfCall { transformation, inner } => {
            widest(inner, inner_range(*transformation, range, frame), frame)
        }
        _ => range,
    }
}

/// Points of a group.
struct CallGroup<'a> {
    frame: &'a SelectFrame,
    data: Data<'a>,
    columns: &'a ResultColumns,
}

enum Data<'a> {
    Rows { rows: &'a [Row], names: &'a NameList, is_result: bool },
    Calculated { bases: &'a [BaseCall], points: &'a [Vec<Point>] },
}

impl CallGroup<'_> {
    /// Returns the value of a field in a row.
    fn field(&self, row: usize, name: &str) -> Option<InfluxValue> {
        let Data::Rows { rows, names, .. } = self.data else { return None };
        rows.get(row)?.values[names.place(name)?].clone()
    }

    /// Returns the points of a call in a range, in the order of the statement.
    fn points(&self, call: &PointCall, range: TimeBounds) -> Outcome<Vec<Point>> {
        match call {
            PointCall::OfField { transformation, name, field } => Ok(transform(
                self.with_unit(*transformation, true),
                &self.points_of_field(name, field, range),
            )),
            PointCall::OfCall { transformation, inner } => {
                let points = self.points(inner, inner_range(*transformation, range, self.frame))?;
                Ok(transform(self.with_unit(*transformation, false), &points))
            }
            PointCall::Base { .. } => self.base(call, range),
        }
    }

    /// Fills in the unit of a derivative that does not say one.
    fn with_unit(&self, transformation: Transformation, is_of_field: bool) -> Transformation {
        const SECOND: i64 = 1_000_000_000;
        match (transformation, &self.frame.intervals) {
            (Transformation::Derivative { unit: 0, is_non_negative }, intervals) => {
                let interval =
                    intervals.as_ref().filter(|_| !is_of_field).map(|intervals| intervals.duration);
                Transformation::Derivative { unit: interval.unwrap_or(SECOND), is_non_negative }
            }
            (other, _) => other,
        }
    }

    fn points_of_field(&self, function: &str, field: &Expr, range: TimeBounds) -> Vec<Point> {
        let (Data::Rows { rows, names, is_result }, Expr::Name(name, cast)) = (&self.data, field) else {
            return vec![];
        };
        let Some(place) = names.place(name) else { return vec![] };
        let function = function.split(' ').next().unwrap_or_default();
        let accepts = PointFunction::of(function).map_or(Accepts::Any, |function| function.accepts);
        let mut points = Vec::new();
        let is_shown = |row: &Row| *is_result || range.contains(row.time);
        for (index, row) in rows.iter().enumerate().filter(|(_, row)| is_shown(row)) {
            let value = match (&row.values[place], cast) {
                (Some(value), Some(cast)) => value.clone().cast(*cast),
                (value, _) => value.clone(),
            };
            if value.as_ref().is_some_and(|value| accepts.value(value)) {
                points.push(Point { time: row.time, value, row: Some(index) });
            }
        }
        points
    }

    fn base(&self, call: &PointCall, range: TimeBounds) -> Outcome<Vec<Point>> {
        let PointCall::Base { function, field, argument, unit, tags } = call else { return Ok(vec![]) };
        let start_of = |time: i64| match &self.frame.intervals {
            Some(intervals) => intervals.start(time),
            None if range.min == TIME_MIN => 0,
            None => range.min,
        };
        let points = match &self.data {
            Data::Calculated { bases, points } => {
                let place = bases.iter().position(|base| base.call == *call && base.range == range);
                let mut points = place.map_or_else(Vec::new, |place| points[place].clone());
                if self.frame.intervals.is_none() && !self.columns.is_one_selector() {
                    points.iter_mut().for_each(|point| point.time = start_of(point.time));
                }
                points
            }
            Data::Rows { .. } => {
                let points = self.points_of_field(function, field, range);
                if function == "integral" {
                    return Ok(self.integral(&points, *unit, range));
                }
                let keeps_times = match PointFunction::of(function).map(|function| function.class) {
                    Some(Class::Points) => function != "distinct",
                    Some(Class::Selector) => self.frame.intervals.is_none() && self.columns.is_one_selector(),
                    _ => false,
                };
                let mut results = Vec::new();
                for chunk in points.chunk_by(|a, b| start_of(a.time) == start_of(b.time)) {
                    let start = start_of(chunk[0].time);
                    let mut found = match function.as_str() {
                        "top" | "bottom" => {
                            let combinations: Vec<String> = match tags.is_empty() {
                                true => vec![],
                                false => chunk.iter().map(|point| self.combination(point, tags)).collect(),
                            };
                            let tags = (!tags.is_empty()).then_some(combinations.as_slice());
                            extremes(chunk, argument.number as usize, function == "top", tags)
                        }
                        function => reduce(function, *argument, chunk),
                    };
                    if !keeps_times {
                        found.iter_mut().for_each(|point| point.time = start);
                    }
                    results.append(&mut found);
                }
                results
            }
        };
        let is_filled = PointFunction::of(function).is_none_or(|function| function.class != Class::Points);
        match &self.frame.intervals {
            Some(intervals) if is_filled && self.frame.fill != Fill::None => {
                let is_count = function.starts_with("count");
                fill(self.frame.fill, is_count, points, intervals, range, self.frame.is_descending)
            }
            _ => Ok(points),
        }
    }

    fn integral(&self, points: &[Point], unit: i64, range: TimeBounds) -> Vec<Point> {
        let mut results = integral(points, unit, |time| match &self.frame.intervals {
            Some(intervals) => {
                let start = intervals.start(time);
                (start, intervals.next(start).unwrap_or(i64::MAX))
            }
            None => (range.min, range.max.saturating_add(1)),
        });
        if self.frame.is_descending {
            // an area is positive whichever way it is walked
            for point in &mut results {
                if let Some(InfluxValue::Float(area)) = &mut point.value {
                    *area = -*area;
                }
            }
        }
        if self.frame.intervals.is_none() {
            results.iter_mut().for_each(|point| point.time = 0);
        }
        results
    }

    /// Returns the values of tags at a point as one text.
    fn combination(&self, point: &Point, tags: &[String]) -> String {
        let values = tags.iter().map(|tag| match point.row.and_then(|row| self.field(row, tag)) {
            Some(InfluxValue::Text(text)) => text.to_string(),
            Some(value) => format!("{value:?}"),
            None => String::new(),
        });
        values.collect::<Vec<_>>().join("\0")
    }
}
