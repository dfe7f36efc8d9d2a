//! Step-wise interface of the window operator for joins: they read row changes and look up buffered rows
//! themselves.

use std::ops::Range;

use smallvec::SmallVec;

use super::WindowOperator;
use crate::columns::batch::Batch;
use crate::columns::column::Column;
use crate::columns::row::Row;
use crate::eval_error::EvalError;
use crate::expr::{Expr, Frame, RowRef};
use crate::store::{RowId, RowStore};
use crate::window::{self, RetainedRows, RowChanges, RowQueue, Window, WindowContext};

impl WindowOperator {
    /// Calls `what` with the window and a context whose clock is `now`.
    pub(super) fn with_window<R>(
        &mut self,
        now: i64,
        out: &mut RowChanges,
        what: impl FnOnce(&mut dyn Window, &mut WindowContext<'_>) -> R,
    ) -> R {
        let mut context = WindowContext {
            now,
            rows: &mut self.rows,
            out,
            timers: &mut self.timers,
            wants_expired: self.wants_expired,
            searched: self.searched,
        };
        what(self.window.as_mut(), &mut context)
    }

    /// Calls `what` as [`Self::with_window`] does and ends an output chunk after it.
    pub(super) fn emit_chunk(
        &mut self,
        now: i64,
        out: &mut RowChanges,
        what: impl FnOnce(&mut dyn Window, &mut WindowContext<'_>) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        self.with_window(now, out, what)?;
        out.end_chunk();
        Ok(())
    }

    /// Appends rows that the window is about to process. Returns the row id of the first.
    ///
    /// Errors: they exceed the row limit.
    pub(crate) fn try_append(&mut self, input: &Batch) -> Result<RowId, EvalError> {
        self.check_capacity(input.len())?;
        Ok(self.rows.append(input, 0..input.len()))
    }

    /// Appends a row as [`Self::try_append`] does.
    #[inline]
    pub(crate) fn append_row(&mut self, row: Row<'_>) -> Result<RowId, EvalError> {
        self.check_capacity(1)?;
        Ok(self.rows.append_row(row, None))
    }

    /// Processes appended rows as one chunk.
    pub(crate) fn process_into(
        &mut self,
        rows: Range<RowId>,
        clock: i64,
        out: &mut RowChanges,
    ) -> Result<(), EvalError> {
        self.emit_chunk(clock, out, |window, context| window.process(rows, context))
    }

    /// Fires the next timer if it is due at `now`; `None` if none is due.
    pub(crate) fn fire_timer_into(
        &mut self,
        now: i64,
        out: &mut RowChanges,
    ) -> Option<Result<(), EvalError>> {
        let due = self.timers.pop_due(now)?;
        Some(self.emit_chunk(now, out, |window, context| window.on_timer(due, context)))
    }

    /// Processes an instant of the window's schedule.
    pub(crate) fn fire_schedule_into(&mut self, at: i64, out: &mut RowChanges) -> Result<(), EvalError> {
        self.emit_chunk(at, out, |window, context| window.on_schedule(at, context))
    }

    /// Evicts the rows that the window does not need. The window must have processed all appended rows.
    pub(crate) fn release(&mut self) {
        window::evict_unneeded(self.window.as_ref(), &mut self.rows);
    }

    /// Returns the row store: the buffered rows, and others that are not evicted yet.
    pub(crate) fn store(&self) -> &RowStore {
        &self.rows
    }

    /// Returns the buffered rows if their order is that of arrival.
    pub(crate) fn rows_in_order(&self) -> Option<&RowQueue> {
        self.window.rows_in_order()
    }

    /// Returns the lower bound of the rows that the window needs, which is 0 for sparse rows; `None` if it
    /// needs none.
    pub(crate) fn oldest_retained(&self) -> Option<RowId> {
        match self.window.retained_rows() {
            RetainedRows::From(oldest) => Some(oldest),
            RetainedRows::Nothing => None,
            RetainedRows::Sparse(_) => Some(0),
        }
    }

    /// Visits the buffered rows that satisfy `condition`, in the window's order. `slot` is the slot of the
    /// row in the condition's frame.
    pub(crate) fn find(
        &self,
        condition: Option<&Expr>,
        slot: usize,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize, i64),
    ) -> Result<(), EvalError> {
        self.find_row_ids(condition, slot, frame, &mut |seq| {
            let (columns, row) = self.rows.row(seq);
            visit(columns, row, self.rows.time(seq));
        })
    }

    /// Visits the row ids of the rows that [`Self::find`] would visit.
    pub(crate) fn find_row_ids(
        &self,
        condition: Option<&Expr>,
        slot: usize,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(RowId),
    ) -> Result<(), EvalError> {
        let mut rows: SmallVec<[RowRef<'_>; 8]> = frame.rows.iter().copied().collect();
        rows.resize(rows.len().max(slot + 1), None);
        let mut look = |seq: RowId| -> Result<(), EvalError> {
            if let Some(condition) = condition {
                rows[slot] = Some(self.rows.row(seq));
                let Frame { time, now, host, .. } = *frame;
                if !condition.is_true(&Frame { rows: &rows, time, now, host })? {
                    return Ok(());
                }
            }
            visit(seq);
            Ok(())
        };
        match self.window.rows_in_order() {
            Some(held) => held.iter().try_for_each(look),
            None => self.window.rows().into_iter().try_for_each(&mut look),
        }
    }
}
