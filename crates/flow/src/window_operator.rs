//! Window operator: a window with its row buffer and its timers.

mod steps;
mod why;

use tidemill_types::FieldType;

use crate::columns::batch::{Batch, EventKind, EventRow};
use crate::columns::column::Column;
use crate::columns::row::Row;
use crate::eval_error::EvalError;
use crate::limits::Limits;
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{
    self, CompletedBatch, EvictionCounts, RowChange, RowChanges, TimerQueue, Window, WindowConstructor,
    WindowContext,
};

/// Capacity, in row changes, above which the change buffer is dropped instead of reused.
const REUSED_CHANGES_MAX: usize = 1024;

/// Window operator: the window logic, the row buffer that it indexes into, and its pending timers.
pub(crate) struct WindowOperator {
    window: Box<dyn Window>,
    rows: RowStore,
    timers: TimerQueue,
    wants_expired: bool,
    searched: bool,
    /// Maximum number of buffered rows.
    rows_max: usize,
    /// Output of the last call that processed a chunk or timer in place; kept to reuse its memory.
    signals: RowChanges,
}

/// Output of a window for a batch of input chunks.
pub(crate) struct WindowOutput {
    pub(crate) signals: RowChanges,
    /// Clock value of each output chunk, in milliseconds.
    pub(crate) clocks: Vec<i64>,
    /// Index of the input chunk that caused each output chunk; `None` if a timer did.
    pub(crate) origins: Vec<Option<u32>>,
    /// Row id of the first row of the input.
    pub(crate) first: RowId,
    /// Input chunks that failed: index and error.
    pub(crate) failed: Vec<(u32, EvalError)>,
    /// Errors of the timers that failed.
    pub(crate) timer_failures: Vec<EvalError>,
}

/// Rows that were appended to the row store and are not yet processed by the window.
pub(crate) struct AppendedRows {
    /// Number of rows that the store had before.
    kept: u64,
    /// Row id of the first appended row.
    pub(crate) first: RowId,
}

/// Evictions while rows were appended.
pub(crate) struct SlidingEvictions {
    /// Number of rows evicted before each appended row, and after the last.
    pub(crate) counts: EvictionCounts,
    /// The oldest buffered row before the call; evictions begin with it, in ascending order.
    pub(crate) oldest: RowId,
}

impl WindowOutput {
    /// Closes the current output chunk and records its clock and originating input chunk.
    fn end_call(&mut self, clock: i64, origin: Option<u32>) {
        self.signals.end_chunk();
        self.clocks.resize(self.signals.ends.len(), clock);
        self.origins.resize(self.signals.ends.len(), origin);
    }
}

impl WindowOperator {
    /// Creates an operator without rows. `searched`: whether joins or on-demand queries read the window.
    pub(crate) fn new(
        make: &WindowConstructor,
        types: &[FieldType],
        wants_expired: bool,
        searched: bool,
    ) -> Self {
        let rows = RowStore::new(types.to_vec());
        let rows_max = Limits::default().window_rows;
        let (timers, signals) = (TimerQueue::default(), RowChanges::default());
        Self { window: make(), rows, timers, wants_expired, searched, rows_max, signals }
    }

    fn call(
        &mut self,
        now: i64,
        out: &mut Batch,
        what: impl FnOnce(&mut dyn Window, &mut WindowContext<'_>) -> Result<(), EvalError>,
    ) -> Result<(), EvalError> {
        let mut signals = RowChanges::default();
        self.emit_chunk(now, &mut signals, what)?;
        self.materialize(&signals, now, out);
        window::evict_unneeded(self.window.as_ref(), &mut self.rows);
        Ok(())
    }

    /// Sets the maximum number of buffered rows.
    pub(crate) fn set_rows_max(&mut self, rows_max: usize) {
        self.rows_max = rows_max;
    }

    /// Errors: the store cannot take `more` rows within the limit.
    fn check_capacity(&self, more: usize) -> Result<(), EvalError> {
        check_capacity(self.rows.rows(), more, self.rows_max)
    }

    /// Returns an empty batch with the columns of the window's output.
    pub(crate) fn empty(&self) -> Batch {
        Batch::new(self.rows.types().iter().copied())
    }

    /// Starts the window when the app starts. Output and errors are discarded.
    pub(crate) fn start(&mut self, now: i64) {
        let mut nothing = self.empty();
        let start = |window: &mut dyn Window, context: &mut WindowContext<'_>| {
            window.start(context);
            Ok(())
        };
        self.call(now, &mut nothing, start).ok();
    }

    /// Processes the chunk `rows` of `input` and appends the output to `out`; `ids` as for [`Self::append`].
    pub(crate) fn process_chunk(
        &mut self,
        input: &Batch,
        ids: Option<&[u32]>,
        rows: std::ops::Range<usize>,
        clock: i64,
        out: &mut Batch,
    ) -> Result<(), EvalError> {
        self.check_capacity(rows.len())?;
        let count = rows.len() as u64;
        let first = self.rows.append_with(input, ids, rows);
        self.call(clock, out, |window, context| window.process(first..first + count, context))
    }

    /// Processes `input` as one chunk and stores the changes for [`Self::output`]. The caller then calls
    /// [`Self::evict_unneeded`]. `ids` as for [`Self::append`].
    pub(crate) fn process_chunk_in_place(
        &mut self,
        input: &Batch,
        ids: Option<&[u32]>,
        clock: i64,
    ) -> Result<(), EvalError> {
        self.check_capacity(input.len())?;
        let AppendedRows { first, .. } = self.append(input, ids);
        let mut signals = self.take_changes();
        let done = self.process_into(first..first + input.len() as RowId, clock, &mut signals);
        self.signals = signals;
        done
    }

    /// Processes a row as a chunk of its own and stores the changes for [`Self::changes`] and [`Self::output`]. The
    /// caller then calls [`Self::evict_unneeded`]. `group` is the last column if the row lacks it. Returns the row's id.
    #[inline]
    pub(crate) fn process_row(
        &mut self,
        row: Row<'_>,
        group: Option<u32>,
        clock: i64,
    ) -> Result<RowId, EvalError> {
        self.check_capacity(1)?;
        let seq = self.rows.append_row(row, group);
        let mut signals = self.take_changes();
        let done = self.process_into(seq..seq + 1, clock, &mut signals);
        self.signals = signals;
        done.map(|()| seq)
    }

    /// Returns the changes of the last in-place call.
    pub(crate) fn changes(&self) -> &RowChanges {
        &self.signals
    }

    /// Fires the next timer if it is due at `now` and stores the changes for [`Self::output`]; `None` if none
    /// is due. The caller then calls [`Self::evict_unneeded`].
    pub(crate) fn fire_timer_in_place(&mut self, now: i64) -> Option<Result<(), EvalError>> {
        let mut signals = self.take_changes();
        let done = self.fire_timer_into(now, &mut signals);
        self.signals = signals;
        done
    }

    /// Takes the change buffer, emptied; replaces it by a new one if it has grown too large.
    fn take_changes(&mut self) -> RowChanges {
        let mut signals = std::mem::take(&mut self.signals);
        signals.clear();
        if signals.items.capacity() > REUSED_CHANGES_MAX {
            signals = RowChanges::default();
        }
        signals
    }

    /// Returns the number of rows emitted by the last [`Self::process_chunk_in_place`] or
    /// [`Self::fire_timer_in_place`].
    pub(crate) fn output_len(&self) -> usize {
        self.signals.items.len()
    }

    /// Returns the rows emitted by the last in-place call, grouped by chunk; borrows from the row store
    /// instead of copying.
    pub(crate) fn output(&self) -> impl Iterator<Item = impl Iterator<Item = EventRow<'_>> + Clone> {
        let row = |signal: &RowChange| {
            let (columns, row) = match signal.kind {
                EventKind::Reset => (&[][..], 0),
                EventKind::Current | EventKind::Expired => self.rows.row(signal.seq),
            };
            EventRow { kind: signal.kind, time: signal.time, columns, row }
        };
        self.signals.chunks().map(move |chunk| chunk.iter().map(row))
    }

    /// Returns a copy of [`Self::output`] as a batch.
    pub(crate) fn output_batch(&self, clock: i64) -> Batch {
        let mut out = self.empty();
        self.materialize(&self.signals, clock, &mut out);
        out
    }

    /// Fires the next timer if it is due at `now` and returns its output; `None` if none is due.
    pub(crate) fn fire_timer(&mut self, now: i64) -> Option<Result<Batch, EvalError>> {
        let due = self.timers.pop_due(now)?;
        let mut out = self.empty();
        Some(self.call(now, &mut out, |window, context| window.on_timer(due, context)).map(|()| out))
    }

    /// Returns when the next timer is due.
    pub(crate) fn next_timer(&self) -> Option<i64> {
        self.timers.next_due()
    }

    /// Appends the rows of `input` to the row store, which assigns their row ids, before the window processes
    /// them.
    ///
    /// `ids` is the last column if `input` does not contain it.
    pub(crate) fn append(&mut self, input: &Batch, ids: Option<&[u32]>) -> AppendedRows {
        let kept = self.rows.rows();
        AppendedRows { kept, first: self.rows.append_with(input, ids, 0..input.len()) }
    }

    /// Returns whether [`Self::process_sliding`] may be used: the query wants no expired events, and the
    /// buffered rows and those appended from row id `first` on are evicted oldest first as others arrive.
    pub(crate) fn supports_sliding_path(&self, first: RowId) -> bool {
        let whole = self.window.rows_in_order().is_some_and(|held| held.is_contiguous_with(first));
        whole && !self.wants_expired && self.window.supports_sliding_path(&self.rows)
    }

    /// Returns whether the appended rows are within the row limit.
    pub(crate) fn has_capacity_for(&self, entered: &AppendedRows) -> bool {
        self.rows.next_id() - entered.first + entered.kept <= self.rows_max as u64
    }

    /// Processes all chunks of `input`, each a single row, for a query that wants no expired events; `ticks`
    /// as for [`Self::process_all`]. Returns `None`, with nothing changed, if the window does not work that
    /// way.
    ///
    /// The caller must have checked [`Self::supports_sliding_path`].
    pub(crate) fn process_sliding(
        &mut self,
        input: &Batch,
        first: RowId,
        ticks: &[i64],
    ) -> Option<SlidingEvictions> {
        let oldest = self.window.rows_in_order()?.front().unwrap_or(first);
        let now = ticks.last().copied().unwrap_or(i64::MIN);
        let rows = first..first + input.len() as RowId;
        let slide = self.with_window(now, &mut RowChanges::default(), |window, context| {
            window.process_sliding(rows, &input.chunk_clocks, now, context)
        })?;
        Some(SlidingEvictions { counts: slide, oldest })
    }

    /// Processes all chunks of `input`, each a single row, from row id `first` on. Returns `None`, with
    /// nothing changed, if the window does not emit large batches.
    pub(crate) fn process_batches(&mut self, input: &Batch, first: RowId) -> Option<Vec<CompletedBatch>> {
        let rows = first..first + input.len() as RowId;
        self.with_window(i64::MIN, &mut RowChanges::default(), |window, context| {
            window.process_batches(rows, context)
        })
    }

    /// Processes all chunks of `input`, whose rows are already appended; before each chunk, fires the timers
    /// that are due. `ticks` are the ascending clock values at which time stops on its way. The output refers
    /// to rows in [`Self::rows`]; after reading it, the caller calls [`Self::evict_unneeded`].
    pub(crate) fn process_all(
        &mut self,
        input: &Batch,
        entered: AppendedRows,
        ticks: &[i64],
    ) -> WindowOutput {
        let AppendedRows { kept, first } = entered;
        let mut all = WindowOutput {
            signals: RowChanges::default(),
            clocks: vec![],
            origins: vec![],
            first,
            failed: vec![],
            timer_failures: vec![],
        };
        let Self { window, rows, timers, wants_expired, searched, rows_max, .. } = self;
        let (wants_expired, searched, rows_max) = (*wants_expired, *searched, *rows_max);
        let run_timers = |window: &mut dyn Window,
                          rows: &mut RowStore,
                          timers: &mut TimerQueue,
                          until: i64,
                          all: &mut WindowOutput| {
            while let Some(due) = timers.pop_due(until) {
                let now = ticks[ticks.partition_point(|tick| *tick < due)];
                let mark = all.signals.mark();
                let out = &mut all.signals;
                let mut context = WindowContext { now, rows, out, timers, wants_expired, searched };
                if let Err(failure) = window.on_timer(due, &mut context) {
                    all.signals.rewind(mark);
                    all.timer_failures.push(failure);
                }
                all.end_call(now, None);
            }
        };
        for (number, (chunk, now)) in input.chunks().enumerate() {
            run_timers(window.as_mut(), rows, timers, now, &mut all);
            let mark = all.signals.mark();
            let out = &mut all.signals;
            let mut context = WindowContext { now, rows, out, timers, wants_expired, searched };
            let numbers = first + chunk.start as u64..first + chunk.end as u64;
            let room = check_capacity(kept, chunk.end, rows_max);
            if let Err(failure) = room.and_then(|()| window.process(numbers, &mut context)) {
                all.signals.rewind(mark);
                all.failed.push((number as u32, failure));
            }
            all.end_call(now, Some(number as u32));
        }
        if let Some(last) = ticks.last() {
            run_timers(window.as_mut(), rows, timers, *last, &mut all);
        }
        all
    }

    /// Returns the row store.
    pub(crate) fn rows(&self) -> &RowStore {
        &self.rows
    }

    /// Evicts the rows that the window does not need.
    pub(crate) fn evict_unneeded(&mut self) {
        window::evict_unneeded(self.window.as_ref(), &mut self.rows);
    }

    /// Returns the first instant after `after` at which the window wants the clock to stop.
    pub(crate) fn next_scheduled(&self, after: i64) -> Option<i64> {
        self.window.next_scheduled(after)
    }

    /// Processes an instant of the window's schedule and returns the output.
    pub(crate) fn fire_schedule(&mut self, at: i64) -> Result<Batch, EvalError> {
        let mut out = self.empty();
        self.call(at, &mut out, |window, context| window.on_schedule(at, context))?;
        Ok(out)
    }

    /// Lets the next [`Self::save`] share the rows, if there are at least `rows_min`.
    pub(crate) fn share(&mut self, rows_min: usize) {
        self.rows.share(rows_min);
    }

    /// Saves the state to a checkpoint.
    pub(crate) fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        self.rows.save(self.window.retained_rows(), || self.window.sparse_rows(), out)?;
        self.timers.save(out)?;
        self.window.save(out)
    }

    /// Restores a saved state. Errors: the window refers to rows that the store does not have.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        self.rows.restore(from)?;
        self.timers = TimerQueue::restored(from)?;
        self.window.restore(from, &self.rows)?;
        let there = match self.window.retained_rows() {
            window::RetainedRows::Nothing => true,
            window::RetainedRows::From(oldest) => self.rows.has(oldest),
            window::RetainedRows::Sparse(_) => {
                self.window.sparse_rows().iter().all(|seq| self.rows.has(*seq))
            }
        };
        if there { Ok(()) } else { Err(from.damaged("the window refers to rows that do not exist")) }
    }

    fn materialize(&self, signals: &RowChanges, clock: i64, out: &mut Batch) {
        let mut start = 0;
        for end in &signals.ends {
            for signal in &signals.items[start..*end] {
                match signal.kind {
                    EventKind::Reset => out.columns.iter_mut().for_each(Column::push_null),
                    EventKind::Current | EventKind::Expired => {
                        let (columns, row) = self.rows.row(signal.seq);
                        for (column, from) in out.columns.iter_mut().zip(columns) {
                            column.push_from(from, row);
                        }
                    }
                }
                out.times.push(signal.time);
                out.kinds.push(signal.kind);
            }
            out.end_chunk(clock);
            start = *end;
        }
    }
}

/// Errors: `more` rows in addition to `kept` exceed the limit.
fn check_capacity(kept: u64, more: usize, rows_max: usize) -> Result<(), EvalError> {
    match kept + more as u64 > rows_max as u64 {
        false => Ok(()),
        true => Err(EvalError::limit("window", rows_max, "rows")),
    }
}
