//! Execution of `SELECT`.
//!
//! ```text
//! Select ── Frame (checks) ── inputs (streams, results of subqueries) ── columns (wildcards expanded)
//!   each measurement: rows or aggregates, by groups ── points of each call ── rows of equal times ── limits ── series
//! ```
//!
//! The database behind a [`RowSource`] filters, sorts, and calculates the usual aggregates; what has no equal in SQL is calculated here
//! from the rows: selectors with other columns, transformations, filling, percentiles, and all functions over the results of subqueries.

mod calls;
mod columns;
mod groups;
mod inputs;
mod names;
mod pushdown;
mod raw;

pub(crate) use self::inputs::named;

use std::collections::BTreeMap;

use futures::future::BoxFuture;

use self::columns::ResultColumns;
use self::inputs::Input;
use crate::catalog::Measurement;
use crate::error::Outcome;
use crate::plan::{Inherited, SelectFrame};
use crate::rows::{Reservation, RowSource};
use crate::series::{ResultSeries, SeriesRow};
use crate::syntax::Select;

/// Rows of each group, by the values of its dimensions.
type Grouped<T> = BTreeMap<Vec<String>, T>;

/// Executor of statements at one time.
pub(crate) struct Executor<'a> {
    pub catalog: &'a [Measurement],
    pub source: &'a dyn RowSource,
    pub memory: &'a Reservation,
    /// `now()` in nanoseconds since 1970.
    pub now: i64,
}

impl Executor<'_> {
    /// Returns the series of a statement, in order.
    pub fn select<'s>(
        &'s self,
        select: &'s Select,
        outer: Option<Inherited>,
    ) -> BoxFuture<'s, Outcome<Vec<ResultSeries>>> {
        Box::pin(async move {
            let frame = SelectFrame::new(select, self.now, outer.as_ref())?;
            let inputs = self.inputs(select, &frame).await?;
            if frame.range.is_empty() {
                return Ok(vec![]);
            }
            let columns = ResultColumns::new(select, &frame, &inputs)?;
            let mut series = Vec::new();
            for input in inputs.values() {
                let groups = self.groups_of(input, &columns, &frame, select).await?;
                let shown = groups.into_iter().filter(|(_, rows)| !rows.is_empty());
                let count = if select.slimit == 0 { u64::MAX } else { select.slimit };
                let shown = shown.skip(clamp(select.soffset)).take(clamp(count));
                for (key, mut rows) in shown {
                    limit(&mut rows, select);
                    if !rows.is_empty() {
                        series.push(columns.series(input, key, rows));
                    }
                }
            }
            if frame.is_descending {
                series.reverse();
            }
            for one in &mut series {
                one.zone = frame.zone.clone();
            }
            Ok(series)
        })
    }

    async fn groups_of(
        &self,
        input: &Input<'_>,
        columns: &ResultColumns,
        frame: &SelectFrame,
        select: &Select,
    ) -> Outcome<Grouped<Vec<SeriesRow>>> {
        columns.check_types(input)?;
        if frame.has_calls {
            self.rows_of_calls(input, columns, frame).await
        } else {
            self.raw_rows(input, columns, frame, select).await
        }
    }
}

fn limit(rows: &mut Vec<SeriesRow>, select: &Select) {
    let offset = clamp(select.offset).min(rows.len());
    rows.drain(..offset);
    if select.limit > 0 {
        rows.truncate(clamp(select.limit));
    }
}

fn clamp(number: u64) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
