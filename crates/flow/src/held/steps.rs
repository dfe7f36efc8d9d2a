//! A window for those who look at its rows themselves: what it puts out as signals, and what it holds.

use std::ops::Range;

use smallvec::SmallVec;

use super::Held;
use crate::batch::Batch;
use crate::column::Column;
use crate::expr::{Expr, Failure, Frame, RowRef};
use crate::store::{RowStore, Seq};
use crate::window::{self, Context, Fifo, Needs, Signals, Window};

impl Held {
    /// Does something with the window, the clock showing `now`.
    pub(super) fn ask<R>(
        &mut self,
        now: i64,
        out: &mut Signals,
        what: impl FnOnce(&mut dyn Window, &mut Context<'_>) -> R,
    ) -> R {
        let mut context = Context {
            now,
            rows: &mut self.rows,
            out,
            timers: &mut self.timers,
            wants_expired: self.wants_expired,
            searched: self.searched,
        };
        what(self.window.as_mut(), &mut context)
    }

    /// The same, where what it puts out is a chunk.
    pub(super) fn signal(
        &mut self,
        now: i64,
        out: &mut Signals,
        what: impl FnOnce(&mut dyn Window, &mut Context<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.ask(now, out, what)?;
        out.end_chunk();
        Ok(())
    }

    /// Adds rows that are going to arrive; the number of the first.
    ///
    /// Errors: that it has no room for them.
    pub(crate) fn append(&mut self, input: &Batch) -> Result<Seq, Failure> {
        self.has_room(input.len())?;
        Ok(self.rows.append(input, 0..input.len()))
    }

    /// A chunk of rows that were added arrives.
    pub(crate) fn step(&mut self, rows: Range<Seq>, clock: i64, out: &mut Signals) -> Result<(), Failure> {
        self.signal(clock, out, |window, context| window.arrive(rows, context))
    }

    /// Its next timer runs, if it is due at `now`.
    pub(crate) fn timer_step(&mut self, now: i64, out: &mut Signals) -> Option<Result<(), Failure>> {
        let due = self.timers.take_due(now)?;
        Some(self.signal(now, out, |window, context| window.timer(due, context)))
    }

    /// An instant of its schedule was reached.
    pub(crate) fn instant_step(&mut self, at: i64, out: &mut Signals) -> Result<(), Failure> {
        self.signal(at, out, |window, context| window.instant(at, context))
    }

    /// Lets go of the rows that it does not need; all that were added must have arrived.
    pub(crate) fn release(&mut self) {
        window::forget(self.window.as_ref(), &mut self.rows);
    }

    /// Its rows, and others that are not forgotten yet.
    pub(crate) fn store(&self) -> &RowStore {
        &self.rows
    }

    /// What it holds, when its order is that of arrival.
    pub(crate) fn fifo(&self) -> Option<&Fifo> {
        self.window.fifo()
    }

    /// The oldest row that it needs, when it needs all from there on; none when it needs nothing.
    pub(crate) fn oldest(&self) -> Option<Seq> {
        match self.window.needs() {
            Needs::From(oldest) => Some(oldest),
            Needs::Nothing => None,
            Needs::Scattered(_) => Some(0),
        }
    }

    /// Shows the held rows that satisfy `condition`, in which a row has slot `slot`, in the window's order.
    pub(crate) fn find(
        &self,
        condition: Option<&Expr>,
        slot: usize,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(&[Column], usize, i64),
    ) -> Result<(), Failure> {
        self.find_rows(condition, slot, frame, &mut |seq| {
            let (columns, row) = self.rows.row(seq);
            visit(columns, row, self.rows.time(seq));
        })
    }

    /// The same by their numbers.
    pub(crate) fn find_rows(
        &self,
        condition: Option<&Expr>,
        slot: usize,
        frame: &Frame<'_>,
        visit: &mut dyn FnMut(Seq),
    ) -> Result<(), Failure> {
        let mut rows: SmallVec<[RowRef<'_>; 8]> = frame.rows.iter().copied().collect();
        rows.resize(rows.len().max(slot + 1), None);
        let mut look = |seq: Seq| -> Result<(), Failure> {
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
        match self.window.fifo() {
            Some(held) => held.iter().try_for_each(look),
            None => self.window.held().into_iter().try_for_each(&mut look),
        }
    }
}
