//! Statistics of the input and output of a query, as it runs.

use super::QueryPlan;
use crate::columns::batch::{Batch, EventKind};
use crate::columns::row::Row;
use crate::explain::{InputStats, ReadOnlyContext, leading_filters, referenced_columns};
use crate::expr::{EvalContext, Expr, Frame};
use crate::join::JoinPlan;

/// Number of events of a batch that are searched for one that did not pass. A longer search is expensive if
/// nearly all pass.
const LOOKBACK_MAX: usize = 16;

impl InputStats {
    /// Records arriving events.
    #[inline]
    pub fn record_input(&mut self, plan: &QueryPlan, port: usize, input: &Batch) {
        self.arrived += input.len() as u64;
        if plan.join.is_some() && !input.is_empty() {
            self.record_side_input(plan, port, input);
        }
    }

    /// Records a single event that arrives at a side of a join.
    pub(crate) fn record_side_row(&mut self, plan: &QueryPlan, side: usize, row: Row<'_>, clock: i64) {
        let Some(join) = &plan.join else { return };
        let notes = self.samples.get_or_insert_default();
        let key = notes.key;
        let Some((arrived, kept)) = notes.sides.get_mut(side) else { return };
        *arrived += 1;
        kept.store_row(row, clock, &join.sides[side].input_types, key, || side_columns(join, side));
    }

    /// Records a single event that did not pass.
    #[inline]
    pub(crate) fn sample_row(&mut self, plan: &QueryPlan, row: Row<'_>, clock: i64) {
        let notes = self.samples.get_or_insert_default();
        let key = notes.key;
        notes
            .rejected
            .store_row(row, clock, &plan.read, key, || referenced_columns(leading_filters(&plan.before), 0));
    }

    fn record_side_input(&mut self, plan: &QueryPlan, side: usize, input: &Batch) {
        let Some(join) = &plan.join else { return };
        let notes = self.samples.get_or_insert_default();
        let key = notes.key;
        let Some((arrived, kept)) = notes.sides.get_mut(side) else { return };
        *arrived += input.len() as u64;
        kept.store(input, input.len() - 1, key, || side_columns(join, side));
    }

    /// Records that `left` of the events in `input` passed the handlers before the window.
    #[inline]
    pub fn record_passed(&mut self, plan: &QueryPlan, input: &Batch, left: usize, host: &dyn EvalContext) {
        self.passed += left as u64;
        if left < input.len() {
            self.sample_rejected(plan, input, host);
        }
    }

    /// Records events as [`Self::record_passed`] does, for events that are a chunk each. `last_out` returns
    /// the last row that did not pass.
    pub fn record_passed_singly(
        &mut self,
        plan: &QueryPlan,
        input: &Batch,
        left: usize,
        last_out: impl FnOnce() -> Option<usize>,
    ) {
        self.passed += left as u64;
        if left < input.len()
            && let Some(row) = last_out()
        {
            self.sample(plan, input, row);
        }
    }

    fn sample(&mut self, plan: &QueryPlan, input: &Batch, row: usize) {
        let notes = self.samples.get_or_insert_default();
        let key = notes.key;
        notes.rejected.store(input, row, key, || referenced_columns(leading_filters(&plan.before), 0));
    }

    #[cold]
    fn sample_rejected(&mut self, plan: &QueryPlan, input: &Batch, host: &dyn EvalContext) {
        let filters: Vec<&Expr> =
            leading_filters(&plan.before).filter(|filter| !filter.asks_elsewhere(host)).collect();
        let row = match input.len() {
            1 => Some(0),
            len => (len.saturating_sub(LOOKBACK_MAX)..len).rev().find(|row| {
                let rows = [Some((input.columns.as_slice(), *row))];
                let chunk = input.chunk_ends.partition_point(|end| *end as usize <= *row);
                let now = input.chunk_clocks.get(chunk).copied().unwrap_or_default();
                let frame = Frame { rows: &rows, time: input.times[*row], now, host: &ReadOnlyContext(host) };
                input.kinds[*row] != EventKind::Reset
                    && filters.iter().any(|filter| !matches!(filter.is_true(&frame), Ok(true)))
            }),
        };
        if let Some(row) = row {
            self.sample(plan, input, row);
        }
    }

    /// Records rows of output.
    #[inline]
    pub(crate) fn record_rows(&mut self, rows: usize, clock: i64) {
        self.emitted += rows as u64;
        self.emitted_at = clock;
    }

    /// Records output.
    #[inline]
    pub fn record_output(&mut self, out: &Batch) {
        self.emitted += out.len() as u64;
        self.emitted_at = out.chunk_clocks.last().copied().unwrap_or(self.emitted_at);
    }
}

/// Returns the columns that the conditions of a join read of a side.
fn side_columns(join: &JoinPlan, side: usize) -> Vec<usize> {
    let mut columns = referenced_columns(leading_filters(&join.sides[side].handlers), 0);
    columns.extend(referenced_columns(join.on.iter(), side));
    columns
}
