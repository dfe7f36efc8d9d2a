//! Windows: which events a query buffers, and when they expire.
//!
//! A window refers to rows by their ids in a [`RowStore`] and reports its output as [`RowChanges`]; the
//! caller materializes the rows. The output is a function of the window's state, the chunks and the clock.

mod row_changes;
mod row_queue;
mod status;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use crate::store::RetainedRows;
pub use row_changes::{ChangeMark, RowChange, RowChanges};
pub use row_queue::RowQueue;
pub(crate) use status::more;
pub use status::{StatusContext, WindowStatus};

use crate::columns::value::Value;
use crate::eval_error::EvalError;
use crate::expr::{Expr, Frame, NoContext};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore, SEGMENT_ROWS};

/// Due times that a window scheduled, first in, first out. Not sorted: a due time queued after a later one
/// waits for it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(from = "Vec<i64>", into = "Vec<i64>")]
pub struct TimerQueue {
    /// Older due times, once there are many.
    older: Option<Box<SealedTimers>>,
    due: VecDeque<i64>,
}

/// Due times in blocks that a checkpoint shares.
#[derive(Debug, Clone, Default)]
struct SealedTimers {
    blocks: VecDeque<Arc<[i64]>>,
    /// Number of those of the first block that were removed.
    removed: usize,
}

impl SealedTimers {
    fn next_due(&self) -> Option<i64> {
        self.blocks.front().map(|block| block[self.removed])
    }

    fn pop(&mut self) -> Option<i64> {
        let due = self.next_due()?;
        self.removed += 1;
        if self.removed == SEALED_TIMERS {
            self.blocks.pop_front();
            self.removed = 0;
        }
        Some(due)
    }

    fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        self.blocks.iter().flat_map(|block| block.iter().copied()).skip(self.removed)
    }

    fn len(&self) -> usize {
        self.blocks.len() * SEALED_TIMERS - self.removed
    }
}

/// Number of due times in a block.
const SEALED_TIMERS: usize = 4096;

impl TimerQueue {
    /// Schedules a call of [`Window::on_timer`] at `due`.
    pub fn schedule(&mut self, due: i64) {
        self.due.push_back(due);
        if self.due.len() >= 2 * SEALED_TIMERS {
            self.seal();
        }
    }

    #[cold]
    fn seal(&mut self) {
        let block = self.due.drain(..SEALED_TIMERS).collect();
        self.older.get_or_insert_default().blocks.push_back(block);
    }

    /// Removes and returns the head if it is due at `now`.
    pub fn pop_due(&mut self, now: i64) -> Option<i64> {
        self.next_due().filter(|due| *due <= now)?;
        let Some(older) = &mut self.older else { return self.due.pop_front() };
        let due = older.pop();
        if older.blocks.is_empty() {
            self.older = None;
        }
        due
    }

    /// Saves the queue to a checkpoint.
    pub(crate) fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        if out.is_freezing() && self.older.is_some() {
            let timers = self.clone();
            return out.defer(move |out| timers.write(out));
        }
        self.write(out)
    }

    fn write(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        let len = self.older.as_ref().map_or(0, |older| older.len()) + self.due.len();
        out.numbers_of(len, self.iter().map(i64::cast_unsigned))
    }

    fn iter(&self) -> impl Iterator<Item = i64> + '_ {
        self.older.iter().flat_map(|older| older.iter()).chain(self.due.iter().copied())
    }

    /// Reads a saved queue.
    pub(crate) fn restored(from: &mut Reader<'_>) -> Result<Self, Error> {
        // the conversion reuses the memory of the vector
        let due: Vec<i64> = from.numbers()?.into_iter().map(u64::cast_signed).collect();
        Ok(due.into())
    }

    /// Returns the head without removing it.
    pub fn next_due(&self) -> Option<i64> {
        match &self.older {
            None => self.due.front().copied(),
            Some(older) => older.next_due(),
        }
    }
}

impl From<Vec<i64>> for TimerQueue {
    fn from(due: Vec<i64>) -> Self {
        let mut timers = Self { older: None, due: due.into() };
        while timers.due.len() >= 2 * SEALED_TIMERS {
            timers.seal();
        }
        timers.due.shrink_to(2 * SEALED_TIMERS);
        timers
    }
}

impl From<TimerQueue> for Vec<i64> {
    fn from(timers: TimerQueue) -> Self {
        timers.iter().collect()
    }
}

/// Environment of a call to a window.
pub struct WindowContext<'a> {
    /// Current clock value, in milliseconds.
    pub now: i64,
    /// Row store that the window refers to.
    pub rows: &'a mut RowStore,
    /// Receives the output.
    pub out: &'a mut RowChanges,
    /// Timers of the window.
    pub timers: &'a mut TimerQueue,
    /// True if the query wants expired events; some windows emit none otherwise. Constant over a window's
    /// life.
    pub wants_expired: bool,
    /// True if joins or on-demand queries read the buffered rows; some windows buffer fewer otherwise.
    /// Constant over a window's life.
    pub searched: bool,
}

impl WindowContext<'_> {
    /// Evaluates an expression on a row.
    pub fn eval(&self, expr: &Expr, seq: RowId) -> Result<Value, EvalError> {
        let rows = [Some(self.rows.row(seq))];
        expr.eval(&Frame { rows: &rows, time: self.rows.time(seq), now: self.now, host: &NoContext })
    }

    /// Returns whether a batch that was emitted is still needed.
    pub(crate) fn retains_sent_batches(&self) -> bool {
        self.wants_expired || self.searched
    }
}

/// Evictions while rows arrive; always the oldest rows.
#[derive(Debug)]
pub struct EvictionCounts {
    /// Number of rows evicted before each arriving row.
    pub before: Vec<u32>,
    /// Number of rows evicted after the last arriving row.
    pub after_last: u32,
}

/// A batch that a batch window completed.
#[derive(Debug)]
pub struct CompletedBatch {
    /// Index, among the arriving rows, of the row that completed the batch.
    pub completing_row: u32,
    /// Rows of the batch.
    pub rows: Range<RowId>,
}

/// A window. It stores row ids; rows arrive with ascending ids, which may have gaps.
///
/// If a call fails, the caller discards its output: see [`RowChanges::rewind`].
pub trait Window: Send {
    /// Processes a chunk of rows in order. The clock is already at the chunk's time, and timers due before it
    /// have fired.
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError>;

    /// Returns whether [`Self::process_sliding`] works for the buffered and the arriving rows, which are all
    /// in `rows`.
    fn supports_sliding_path(&self, _rows: &RowStore) -> bool {
        false
    }

    /// Processes rows that arrive as chunks of their own at `clocks`, then advances time to `until`.
    /// Equivalent to calling [`Self::process`] and [`Self::on_timer`] in order, for a query that wants no
    /// expired events.
    ///
    /// Returns `None`, with nothing changed, if some row is not emitted on arrival or the evicted rows are
    /// not always the oldest.
    fn process_sliding(
        &mut self,
        _rows: Range<RowId>,
        _clocks: &[i64],
        _until: i64,
        _context: &mut WindowContext<'_>,
    ) -> Option<EvictionCounts> {
        None
    }

    /// Processes rows that arrive as chunks of their own. Equivalent to [`Self::process`] if the output is
    /// large batches of consecutive rows, each after a reset.
    ///
    /// Returns `None`, with nothing changed, if that does not hold.
    fn process_batches(
        &mut self,
        _rows: Range<RowId>,
        _context: &mut WindowContext<'_>,
    ) -> Option<Vec<CompletedBatch>> {
        None
    }

    /// Called when a scheduled due time is reached; the clock may already be later.
    fn on_timer(&mut self, _due: i64, _context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        Ok(())
    }

    /// Returns whether the window may schedule timers.
    fn is_time_driven(&self) -> bool {
        true
    }

    /// Called when the app starts, with the clock at `context.now`.
    fn start(&mut self, _context: &mut WindowContext<'_>) {}

    /// Returns the first instant of the window's schedule after `after`. When time advances, the clock stops
    /// there, fires the timers that are due, and calls [`Self::on_schedule`]. Only windows driven by a
    /// calendar have a schedule; it is never saved.
    fn next_scheduled(&self, _after: i64) -> Option<i64> {
        None
    }

    /// Called at an instant of the schedule, with the clock at that instant.
    fn on_schedule(&mut self, _at: i64, _context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        Ok(())
    }

    /// Returns the rows that joins and on-demand queries find, in the window's order.
    fn rows(&self) -> Vec<RowId> {
        self.rows_in_order().map_or_else(Vec::new, |held| held.iter().collect())
    }

    /// Returns the rows of [`Self::rows`] without a copy if their order is that of arrival.
    fn rows_in_order(&self) -> Option<&RowQueue> {
        None
    }

    /// Returns which rows the window needs, whether joins find them or not; [`evict_unneeded`] evicts the
    /// others.
    fn retained_rows(&self) -> RetainedRows;

    /// Returns the rows that the window needs, in no particular order, if they are [`RetainedRows::Sparse`].
    fn sparse_rows(&self) -> Vec<RowId> {
        vec![]
    }

    /// Returns the column that the window overwrites in arriving rows. Expressions that use it must be
    /// computed after the window.
    fn rewritten_column(&self) -> Option<usize> {
        None
    }

    /// Reports the buffered rows and what the window waits for.
    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let mut held = self.rows();
        if held.is_empty() {
            held = self.sparse_rows();
        }
        WindowStatus::new(held.len() as u64, look.time_range(held.into_iter()), "events")
    }

    /// Saves the state to a checkpoint.
    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error>;

    /// Restores a saved state. The rows are in the store again with their former ids. Errors: the state does
    /// not belong to this window.
    fn restore(&mut self, from: &mut Reader<'_>, rows: &RowStore) -> Result<(), Error>;
}

/// Constructor of a window without events.
pub type WindowConstructor = Arc<dyn Fn() -> Box<dyn Window> + Send + Sync>;

/// Returns the ids of the rows that a window needs, ascending: the rows that a checkpoint saves.
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

/// Evicts the rows that a window does not need. All rows of the store must have been processed by the window,
/// and its row changes must have been consumed.
///
/// Cost: usually negligible, sometimes a copy of the rows that are needed; amortized constant per arriving
/// row. Bounds: a store keeps at most about twice the rows that are needed and two segments.
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
