//! Windows: which events a query holds, and when they leave.
//!
//! A window sees rows by their numbers in a [`RowStore`] and says what goes on as [`RowChanges`]; the rows themselves are
//! put together by whoever runs it. What a window emits is a function of its state, the chunks and the clock.

mod batch;
mod build;
mod condition;
mod cron;
mod dynamic_condition;
mod expression;
mod expression_batch;
mod external_time;
mod external_time_batch;
mod frequent;
mod key;
mod length;
mod length_batch;
mod lossy_frequent;
mod row_changes;
mod row_queue;
mod session;
mod sort;
mod status;
mod time;
mod time_batch;
mod time_eviction;
mod time_length;
mod unique;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub(crate) use build::register;
pub use build::{Attribute, Parameter, WindowInput};
pub use row_changes::{RowChange, RowChanges, Savepoint};
pub use row_queue::RowQueue;
pub use status::{StatusContext, WindowStatus};

use crate::expr::{EvalError, Expr, Frame, NoContext};
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowId, RowStore, SEGMENT_ROWS};
use crate::value::Value;

/// The due times that one scheduler was asked for, in the order in which it was asked, not sorted: a due time behind a
/// later one waits for it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct TimerQueue {
    due: VecDeque<i64>,
}

impl TimerQueue {
    /// Asks for a call at `due`.
    pub fn schedule(&mut self, due: i64) {
        self.due.push_back(due);
    }

    /// The head, if it is due at `now`; it is taken.
    pub fn pop_due(&mut self, now: i64) -> Option<i64> {
        self.due.front().copied().filter(|due| *due <= now)?;
        self.due.pop_front()
    }

    /// Writes what was asked for.
    pub(crate) fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.numbers(self.due.iter().map(|due| due.cast_unsigned()))
    }

    /// What was written.
    pub(crate) fn restored(from: &mut Reader<'_>) -> Result<Self, Error> {
        // in the same memory
        let due: Vec<i64> = from.numbers()?.into_iter().map(u64::cast_signed).collect();
        Ok(Self { due: due.into() })
    }

    /// The head.
    pub fn next_due(&self) -> Option<i64> {
        self.due.front().copied()
    }
}

/// What a window works with.
pub struct WindowContext<'a> {
    /// The clock, milliseconds.
    pub now: i64,
    /// The rows.
    pub rows: &'a mut RowStore,
    /// What goes on.
    pub out: &'a mut RowChanges,
    /// When it wants to be called.
    pub timers: &'a mut TimerQueue,
    /// Whether anybody wants expired events; some windows do not put them out otherwise. The same for a window's life.
    pub wants_expired: bool,
    /// Whether joins or on-demand queries look at what it holds; some windows hold less otherwise. The same for a
    /// window's life.
    pub searched: bool,
}

impl WindowContext<'_> {
    /// The value of an expression on a row.
    pub fn eval(&self, expr: &Expr, seq: RowId) -> Result<Value, EvalError> {
        let rows = [Some(self.rows.row(seq))];
        expr.eval(&Frame { rows: &rows, time: self.rows.time(seq), now: self.now, host: &NoContext })
    }

    /// Whether a batch that went out is still needed.
    fn retains_sent_batches(&self) -> bool {
        self.wants_expired || self.searched
    }
}

/// What leaves a window while rows arrive: always its oldest.
#[derive(Debug)]
pub struct EvictionCounts {
    /// For each row that arrives how many leave before it.
    pub before: Vec<u32>,
    /// How many leave behind the last one.
    pub after_last: u32,
}

/// A batch that comes out of a window.
#[derive(Debug)]
pub struct CompletedBatch {
    /// The number of the row with whose arrival it does, among those that arrive.
    pub completing_row: u32,
    /// Its rows.
    pub rows: Range<RowId>,
}

/// Which rows a window still needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetainedRows {
    /// None that arrived so far.
    Nothing,
    /// This one and all later ones.
    From(RowId),
    /// So many, here and there: [`Window::sparse_rows`] says which.
    Sparse(usize),
}

impl RetainedRows {
    fn from_oldest(oldest: Option<RowId>) -> Self {
        oldest.map_or(Self::Nothing, Self::From)
    }

    fn sparse(rows: usize) -> Self {
        if rows == 0 { Self::Nothing } else { Self::Sparse(rows) }
    }
}

/// A window. It holds numbers of rows; they arrive with ever greater numbers, not without gaps.
///
/// On an error, what it put out in the failed call counts for nothing: see [`RowChanges::rewind`].
pub trait Window: Send {
    /// A chunk arrived, in order. The clock stands at its time already, and timers due before it have run.
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError>;

    /// Whether [`Self::process_sliding`] works for the rows that are held and those that are about to arrive, all in `rows`.
    fn supports_sliding_path(&self, _rows: &RowStore) -> bool {
        false
    }

    /// Rows arrive one after the other at the instants `clocks`, and the clock goes on to `until`: the same as
    /// [`Self::process`] and [`Self::on_timer`] in their order, for somebody who looks only at what arrives.
    ///
    /// `None`: not every row comes out as it arrives, or what leaves is not the oldest; then nothing has changed.
    fn process_sliding(
        &mut self,
        _rows: Range<RowId>,
        _clocks: &[i64],
        _until: i64,
        _context: &mut WindowContext<'_>,
    ) -> Option<EvictionCounts> {
        None
    }

    /// Rows arrive one after the other: the same as [`Self::process`], where what comes out is large batches of rows
    /// that follow each other, each behind a reset.
    ///
    /// `None`: that is not so; then nothing has changed.
    fn process_batches(
        &mut self,
        _rows: Range<RowId>,
        _context: &mut WindowContext<'_>,
    ) -> Option<Vec<CompletedBatch>> {
        None
    }

    /// A due time that it asked for was reached; the clock may stand later.
    fn on_timer(&mut self, _due: i64, _context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        Ok(())
    }

    /// Whether it may ask for timers.
    fn is_time_driven(&self) -> bool {
        true
    }

    /// The app starts; the clock stands at `context.now`.
    fn start(&mut self, _context: &mut WindowContext<'_>) {}

    /// The first instant of its schedule later than `after`. The clock stops there on its way, runs the timers that
    /// are due, and calls [`Self::on_schedule`]. Only windows that go by a calendar have one; it is never saved.
    fn next_scheduled(&self, _after: i64) -> Option<i64> {
        None
    }

    /// An instant of its schedule was reached; the clock stands there.
    fn on_schedule(&mut self, _at: i64, _context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        Ok(())
    }

    /// What joins and on-demand queries find, in the window's order.
    fn rows(&self) -> Vec<RowId> {
        self.rows_in_order().map_or_else(Vec::new, |held| held.iter().collect())
    }

    /// The same where it lies, when its order is that of arrival.
    fn rows_in_order(&self) -> Option<&RowQueue> {
        None
    }

    /// Which rows it needs, held or not; [`evict_unneeded`] lets the others go.
    fn retained_rows(&self) -> RetainedRows;

    /// The rows it needs, in no particular order, when they are [`RetainedRows::Sparse`].
    fn sparse_rows(&self) -> Vec<RowId> {
        vec![]
    }

    /// The column that it writes in arriving rows. What is computed from it must be computed behind the window.
    fn rewritten_column(&self) -> Option<usize> {
        None
    }

    /// What it holds and waits for, for whoever asks why nothing comes out.
    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let mut held = self.rows();
        if held.is_empty() {
            held = self.sparse_rows();
        }
        WindowStatus::new(held.len() as u64, look.time_range(held.into_iter()), "events")
    }

    /// Its state, for a checkpoint.
    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error>;

    /// Takes a saved state back; the rows are there again under the same numbers. Errors: that it is none of this
    /// window.
    fn restore(&mut self, from: &mut Reader<'_>, rows: &RowStore) -> Result<(), Error>;
}

/// Makes a window without events.
pub type WindowConstructor = Arc<dyn Fn() -> Box<dyn Window> + Send + Sync>;

/// The rows that a window needs, ascending: what a checkpoint keeps of its store.
pub fn retained_row_ids(window: &dyn Window, rows: &RowStore) -> Vec<RowId> {
    match window.retained_rows() {
        RetainedRows::Nothing => vec![],
        RetainedRows::From(oldest) => rows.ids_from(oldest),
        RetainedRows::Sparse(_) => {
            let mut kept = window.sparse_rows();
            kept.sort_unstable();
            kept
        }
    }
}

/// Lets go of the rows that a window does not need, to be called when all rows of the store have arrived at it and its
/// signals have been worked off.
///
/// Cost: nothing much, and now and then a copy of the rows that are needed; per row that arrives it is bounded. Bounds: a
/// store keeps at most about twice the rows that are needed and two segments.
pub fn evict_unneeded(window: &dyn Window, rows: &mut RowStore) {
    match window.retained_rows() {
        RetainedRows::Nothing => rows.evict_below(rows.next_id()),
        RetainedRows::From(oldest) => rows.evict_below(oldest),
        RetainedRows::Sparse(count) => {
            if rows.rows() > 2 * (count as u64 + SEGMENT_ROWS) {
                rows.retain_only(&retained_row_ids(window, rows));
            }
        }
    }
}
