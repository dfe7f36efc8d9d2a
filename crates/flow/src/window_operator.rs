//! A window at work: what it holds, and when it wants to be called.

mod steps;
mod why;

use tidemill_types::FieldType;

use crate::batch::{Batch, EventKind};
use crate::column::Column;
use crate::expr::EvalError;
use crate::limits::Limits;
use crate::select::EventRow;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowId, RowStore};
use crate::window::{
    self, CompletedBatch, EvictionCounts, RowChange, RowChanges, TimerQueue, Window, WindowConstructor,
    WindowContext,
};

/// Memory for more of what a window says is not kept.
const REUSED_CHANGES_MAX: usize = 1024;

/// A window, its rows, and when it wants to be called.
pub(crate) struct WindowOperator {
    window: Box<dyn Window>,
    rows: RowStore,
    timers: TimerQueue,
    wants_expired: bool,
    searched: bool,
    /// Most rows that are kept.
    rows_max: usize,
    /// What the window said last, kept for its memory.
    signals: RowChanges,
}

/// What a window put out of many chunks.
pub(crate) struct WindowOutput {
    pub(crate) signals: RowChanges,
    /// The clock at each of its chunks.
    pub(crate) clocks: Vec<i64>,
    /// The chunk of the input that each comes from; none for what a timer put out.
    pub(crate) origins: Vec<Option<u32>>,
    /// The number of the first row that arrived.
    pub(crate) first: RowId,
    /// The chunks of the input that could not be worked off, and why.
    pub(crate) failed: Vec<(u32, EvalError)>,
    /// What failed when a timer ran.
    pub(crate) timer_failures: Vec<EvalError>,
}

/// Rows that are on their way to a window.
pub(crate) struct AppendedRows {
    /// How many it kept before.
    kept: u64,
    /// The number of the first.
    pub(crate) first: RowId,
}

/// What left a window while rows arrived.
pub(crate) struct SlidingEvictions {
    /// How many left before each.
    pub(crate) counts: EvictionCounts,
    /// The row that was the oldest before: from there on they leave.
    pub(crate) oldest: RowId,
}

impl WindowOutput {
    /// What was put out since belongs to one call.
    fn end_call(&mut self, clock: i64, origin: Option<u32>) {
        self.signals.end_chunk();
        self.clocks.resize(self.signals.ends.len(), clock);
        self.origins.resize(self.signals.ends.len(), origin);
    }
}

impl WindowOperator {
    /// A window without rows. `searched` says whether joins or on-demand queries look at it.
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

    /// Another greatest number of rows.
    pub(crate) fn set_rows_max(&mut self, rows_max: usize) {
        self.rows_max = rows_max;
    }

    /// Errors: that there is no room for so many rows more.
    fn check_capacity(&self, more: usize) -> Result<(), EvalError> {
        check_capacity(self.rows.rows(), more, self.rows_max)
    }

    /// A batch for what it puts out.
    pub(crate) fn empty(&self) -> Batch {
        Batch::new(self.rows.types().iter().copied())
    }

    /// The app starts.
    pub(crate) fn start(&mut self, now: i64) {
        let mut nothing = self.empty();
        let start = |window: &mut dyn Window, context: &mut WindowContext<'_>| {
            window.start(context);
            Ok(())
        };
        self.call(now, &mut nothing, start).ok();
    }

    /// The chunk `rows` of `input` arrives; `ids` as for [`Self::append`].
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

    /// One chunk arrives: what the window says of it; then [`Self::evict_unneeded`]. `ids` as for [`Self::append`].
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

    /// The same for its next timer that is due at `now`, if there is one.
    pub(crate) fn fire_timer_in_place(&mut self, now: i64) -> Option<Result<(), EvalError>> {
        let mut signals = self.take_changes();
        let done = self.fire_timer_into(now, &mut signals);
        self.signals = signals;
        done
    }

    /// Memory for what the window says.
    fn take_changes(&mut self) -> RowChanges {
        let mut signals = std::mem::take(&mut self.signals);
        signals.clear();
        if signals.items.capacity() > REUSED_CHANGES_MAX {
            signals = RowChanges::default();
        }
        signals
    }

    /// How many rows the window spoke of in [`Self::process_chunk_in_place`] or [`Self::fire_timer_in_place`].
    pub(crate) fn output_len(&self) -> usize {
        self.signals.items.len()
    }

    /// What it said of them, chunk by chunk, where they lie.
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

    /// The same as a batch.
    pub(crate) fn output_batch(&self, clock: i64) -> Batch {
        let mut out = self.empty();
        self.materialize(&self.signals, clock, &mut out);
        out
    }

    /// What its next timer that is due at `now` puts out, if there is one.
    pub(crate) fn fire_timer(&mut self, now: i64) -> Option<Result<Batch, EvalError>> {
        let due = self.timers.pop_due(now)?;
        let mut out = self.empty();
        Some(self.call(now, &mut out, |window, context| window.on_timer(due, context)).map(|()| out))
    }

    /// When its next timer is due.
    pub(crate) fn next_timer(&self) -> Option<i64> {
        self.timers.next_due()
    }

    /// The rows of `input` get their numbers, before they arrive.
    ///
    /// `ids` is the last column, where it is not in `input`.
    pub(crate) fn append(&mut self, input: &Batch, ids: Option<&[u32]>) -> AppendedRows {
        let kept = self.rows.rows();
        AppendedRows { kept, first: self.rows.append_with(input, ids, 0..input.len()) }
    }

    /// Whether the rows that are held, and those that entered from number `first` on, leave oldest first as others
    /// arrive, with nobody who looks at what leaves.
    pub(crate) fn supports_sliding_path(&self, first: RowId) -> bool {
        let whole = self.window.rows_in_order().is_some_and(|held| held.is_contiguous_with(first));
        whole && !self.wants_expired && self.window.supports_sliding_path(&self.rows)
    }

    /// Whether there is room for all that entered.
    pub(crate) fn has_capacity_for(&self, entered: &AppendedRows) -> bool {
        self.rows.next_id() - entered.first + entered.kept <= self.rows_max as u64
    }

    /// All chunks of `input` arrive, each a row, for somebody who looks only at what arrives; `ticks` as for [`Self::process_all`].
    /// None where that is not how the window works; nothing has happened then.
    ///
    /// Before, [`Self::supports_sliding_path`] is to be asked.
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

    /// All chunks of `input` arrive, each a row; `first` is the number of the first. None where the window does not put
    /// out large batches; nothing has happened then.
    pub(crate) fn process_batches(&mut self, input: &Batch, first: RowId) -> Option<Vec<CompletedBatch>> {
        let rows = first..first + input.len() as RowId;
        self.with_window(i64::MIN, &mut RowChanges::default(), |window, context| {
            window.process_batches(rows, context)
        })
    }

    /// All chunks of `input` arrive, whose rows have entered; before each, the timers run that are due. `ticks` are the
    /// instants at which the clock stood on its way, ascending. What was put out is looked up in [`Self::rows`]; then
    /// [`Self::evict_unneeded`].
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

    /// The rows that it holds.
    pub(crate) fn rows(&self) -> &RowStore {
        &self.rows
    }

    /// Lets go of what the window does not need.
    pub(crate) fn evict_unneeded(&mut self) {
        window::evict_unneeded(self.window.as_ref(), &mut self.rows);
    }

    /// The first instant later than `after` at which it wants the clock to stop.
    pub(crate) fn next_scheduled(&self, after: i64) -> Option<i64> {
        self.window.next_scheduled(after)
    }

    /// What it puts out at such an instant.
    pub(crate) fn fire_schedule(&mut self, at: i64) -> Result<Batch, EvalError> {
        let mut out = self.empty();
        self.call(at, &mut out, |window, context| window.on_schedule(at, context))?;
        Ok(out)
    }

    /// Writes its state.
    pub(crate) fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        self.rows.save(self.window.as_ref(), out)?;
        self.timers.save(out)?;
        self.window.save(out)
    }

    /// Takes a state back.
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
        if there { Ok(()) } else { Err(from.damaged("the window holds rows that are not there")) }
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

/// Errors: that beside `kept` rows there is no room for so many more.
fn check_capacity(kept: u64, more: usize, rows_max: usize) -> Result<(), EvalError> {
    match kept + more as u64 > rows_max as u64 {
        false => Ok(()),
        true => Err(EvalError(format!("a window keeps {rows_max} rows, the most it may"))),
    }
}
