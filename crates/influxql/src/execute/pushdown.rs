//! Aggregates that the database calculates.

use super::calls::inner_range;
use super::columns::ResultColumns;
use super::inputs::{Input, InputTable};
use super::{Executor, Grouped};
use crate::error::Outcome;
use crate::functions::{Point, in_sql};
use crate::plan::{PointCall, SelectFrame};
use crate::rows::{AggregateColumn, AggregateFunction, AggregateScan};
use crate::syntax::Expr;
use crate::time::TimeBounds;
use crate::value::InfluxValue;

/// Function of a field that the database calculates.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct BaseCall {
    pub call: PointCall,
    pub range: TimeBounds,
}

/// Functions, and the points of each of them in each group.
type Calculated = (Vec<BaseCall>, Grouped<Vec<Vec<Point>>>);

impl Executor<'_> {
    /// Returns the points of each group, if all functions are such that the database calculates, over one stream.
    pub(super) async fn calculated(
        &self,
        input: &Input<'_>,
        columns: &ResultColumns,
        frame: &SelectFrame,
        calls: &[Option<&PointCall>],
    ) -> Outcome<Option<Calculated>> {
        let [InputTable::Stored(measurement)] = input.tables.as_slice() else { return Ok(None) };
        let is_in_zone =
            frame.intervals.as_ref().is_some_and(|intervals| intervals.zone != jiff::tz::TimeZone::UTC);
        if !columns.fields.names().is_empty() || is_in_zone {
            return Ok(None);
        }
        let has_time = frame.intervals.is_none() && columns.is_one_selector();
        let mut bases: Vec<BaseCall> = vec![];
        let mut ranges: Vec<(TimeBounds, Vec<(usize, AggregateColumn)>)> = vec![];
        for call in calls.iter().flatten() {
            let Some(base) = base(call, frame.range, frame) else { return Ok(None) };
            if bases.contains(&base) {
                continue;
            }
            let Some((function, name)) = in_database(&base.call) else { return Ok(None) };
            let Some(column) = measurement.column(name) else { return Ok(None) };
            let aggregate = (bases.len(), AggregateColumn { function, column, has_time });
            match ranges.iter_mut().find(|(range, _)| *range == base.range) {
                Some((_, aggregates)) => aggregates.push(aggregate),
                None => ranges.push((base.range, vec![aggregate])),
            }
            bases.push(base);
        }
        let mut groups: Grouped<Vec<Vec<Point>>> = Grouped::new();
        for (range, aggregates) in ranges {
            let scan = AggregateScan {
                measurement,
                condition: frame.condition.as_ref(),
                range,
                dimensions: columns.dimensions.iter().map(|name| measurement.column(name)).collect(),
                intervals: frame.intervals.as_ref(),
                aggregates: aggregates.iter().map(|(_, aggregate)| *aggregate).collect(),
            };
            let Some(rows) = self.source.aggregate(scan, self.memory).await? else { return Ok(None) };
            for row in rows {
                let group = groups.entry(row.key).or_insert_with(|| vec![vec![]; bases.len()]);
                for ((place, aggregate), (value, time)) in aggregates.iter().zip(row.values) {
                    let is_count = matches!(
                        aggregate.function,
                        AggregateFunction::Count | AggregateFunction::CountDistinct
                    );
                    let value = match value {
                        None => continue,
                        Some(InfluxValue::Integer(0)) if is_count => continue,
                        // a point without a value
                        Some(InfluxValue::Float(value)) if value.is_nan() => None,
                        value => value,
                    };
                    group[*place].push(Point { time: time.unwrap_or(row.start), value, row: None });
                }
            }
        }
        for points in groups.values_mut().flatten() {
            points.sort_by_key(|point| point.time);
            if frame.is_descending {
                points.reverse();
            }
        }
        Ok(Some((bases, groups)))
    }
}

/// Returns the function of a field inside of a call, with its range; `None` if the call needs the points.
fn base(call: &PointCall, range: TimeBounds, frame: &SelectFrame) -> Option<BaseCall> {
    match call {
        PointCall::OfCall { transformation, inner } => {
            base(inner, inner_range(*transformation, range, frame), frame)
        }
        PointCall::OfField { .. } => None,
        PointCall::Base { .. } => Some(BaseCall { call: call.clone(), range }),
    }
}

/// Returns the function as the database has it, and the name of its field.
fn in_database(call: &PointCall) -> Option<(AggregateFunction, &str)> {
    let PointCall::Base { function, field: Expr::Name(name, None), .. } = call else { return None };
    let function = match function.as_str() {
        "count distinct" => AggregateFunction::CountDistinct,
        function => in_sql(function)?,
    };
    Some((function, name))
}
