//! A window at work: what it holds, and when it wants to be called.

mod steps;
mod why;

use tidemill_types::FieldType;

use crate::batch::{Batch, Kind};
use crate::column::Column;
use crate::expr::Failure;
use crate::limits::Limits;
use crate::select::Row;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowStore, Seq};
use crate::window::{self, Context, MakeWindow, Signal, Signals, Slide, Timers, Tumbled, Window};

/// Memory for more of what a window says is not kept.
const SIGNALS_KEPT: usize = 1024;

/// A window, its rows, and when it wants to be called.
pub(crate) struct Held {
    window: Box<dyn Window>,
    rows: RowStore,
    timers: Timers,
    wants_expired: bool,
    searched: bool,
    /// Most rows that are kept.
    rows_max: usize,
    /// What the window said last, kept for its memory.
    signals: Signals,
}

/// What a window put out of many chunks.
pub(crate) struct Windowed {
    pub(crate) signals: Signals,
    /// The clock at each of its chunks.
    pub(crate) clocks: Vec<i64>,
    /// The chunk of the input that each comes from; none for what a timer put out.
    pub(crate) origins: Vec<Option<u32>>,
    /// The number of the first row that arrived.
    pub(crate) first: Seq,
    /// The chunks of the input that could not be worked off, and why.
    pub(crate) failed: Vec<(u32, Failure)>,
    /// What failed when a timer ran.
    pub(crate) broken: Vec<Failure>,
}

/// Rows that are on their way to a window.
pub(crate) struct Entered {
    /// How many it kept before.
    kept: u64,
    /// The number of the first.
    pub(crate) first: Seq,
}

/// What left a window while rows arrived.
pub(crate) struct Slid {
    /// How many left before each.
    pub(crate) slide: Slide,
    /// The row that was the oldest before: from there on they leave.
    pub(crate) oldest: Seq,
}

impl Windowed {
    /// What was put out since belongs to one call.
    fn called(&mut self, clock: i64, origin: Option<u32>) {
        self.signals.end_chunk();
        self.clocks.resize(self.signals.ends.len(), clock);
        self.origins.resize(self.signals.ends.len(), origin);
    }
}

impl Held {
    /// A window without rows. `searched` says whether joins or on-demand queries look at it.
    pub(crate) fn new(make: &MakeWindow, types: &[FieldType], wants_expired: bool, searched: bool) -> Self {
        let rows = RowStore::new(types.to_vec());
        let rows_max = Limits::default().window_rows;
        let (timers, signals) = (Timers::default(), Signals::default());
        Self { window: make(), rows, timers, wants_expired, searched, rows_max, signals }
    }

    fn call(
        &mut self,
        now: i64,
        out: &mut Batch,
        what: impl FnOnce(&mut dyn Window, &mut Context<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut signals = Signals::default();
        self.signal(now, &mut signals, what)?;
        self.put_together(&signals, now, out);
        window::forget(self.window.as_ref(), &mut self.rows);
        Ok(())
    }

    /// Another greatest number of rows.
    pub(crate) fn set_rows_max(&mut self, rows_max: usize) {
        self.rows_max = rows_max;
    }

    /// Errors: that there is no room for so many rows more.
    fn has_room(&self, more: usize) -> Result<(), Failure> {
        has_room(self.rows.rows(), more, self.rows_max)
    }

    /// A batch for what it puts out.
    pub(crate) fn empty(&self) -> Batch {
        Batch::new(self.rows.types().iter().copied())
    }

    /// The app starts.
    pub(crate) fn start(&mut self, now: i64) {
        let mut nothing = self.empty();
        let start = |window: &mut dyn Window, context: &mut Context<'_>| {
            window.start(context);
            Ok(())
        };
        self.call(now, &mut nothing, start).ok();
    }

    /// The chunk `rows` of `input` arrives; `ids` as for [`Self::enter`].
    pub(crate) fn arrive(
        &mut self,
        input: &Batch,
        ids: Option<&[u32]>,
        rows: std::ops::Range<usize>,
        clock: i64,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        self.has_room(rows.len())?;
        let count = rows.len() as u64;
        let first = self.rows.append_with(input, ids, rows);
        self.call(clock, out, |window, context| window.arrive(first..first + count, context))
    }

    /// One chunk arrives: what the window says of it; then [`Self::forget`]. `ids` as for [`Self::enter`].
    pub(crate) fn arrive_alone(
        &mut self,
        input: &Batch,
        ids: Option<&[u32]>,
        clock: i64,
    ) -> Result<(), Failure> {
        self.has_room(input.len())?;
        let Entered { first, .. } = self.enter(input, ids);
        let mut signals = self.take_signals();
        let done = self.step(first..first + input.len() as Seq, clock, &mut signals);
        self.signals = signals;
        done
    }

    /// The same for its next timer that is due at `now`, if there is one.
    pub(crate) fn timer_alone(&mut self, now: i64) -> Option<Result<(), Failure>> {
        let mut signals = self.take_signals();
        let done = self.timer_step(now, &mut signals);
        self.signals = signals;
        done
    }

    /// Memory for what the window says.
    fn take_signals(&mut self) -> Signals {
        let mut signals = std::mem::take(&mut self.signals);
        signals.clear();
        if signals.items.capacity() > SIGNALS_KEPT {
            signals = Signals::default();
        }
        signals
    }

    /// How many rows the window spoke of in [`Self::arrive_alone`] or [`Self::timer_alone`].
    pub(crate) fn said_rows(&self) -> usize {
        self.signals.items.len()
    }

    /// What it said of them, chunk by chunk, where they lie.
    pub(crate) fn said(&self) -> impl Iterator<Item = impl Iterator<Item = Row<'_>> + Clone> {
        let row = |signal: &Signal| {
            let (columns, row) = match signal.kind {
                Kind::Reset => (&[][..], 0),
                Kind::Current | Kind::Expired => self.rows.row(signal.seq),
            };
            Row { kind: signal.kind, time: signal.time, columns, row }
        };
        self.signals.chunks().map(move |chunk| chunk.iter().map(row))
    }

    /// The same as a batch.
    pub(crate) fn said_batch(&self, clock: i64) -> Batch {
        let mut out = self.empty();
        self.put_together(&self.signals, clock, &mut out);
        out
    }

    /// What its next timer that is due at `now` puts out, if there is one.
    pub(crate) fn timer(&mut self, now: i64) -> Option<Result<Batch, Failure>> {
        let due = self.timers.take_due(now)?;
        let mut out = self.empty();
        Some(self.call(now, &mut out, |window, context| window.timer(due, context)).map(|()| out))
    }

    /// When its next timer is due.
    pub(crate) fn next_timer(&self) -> Option<i64> {
        self.timers.next()
    }

    /// The rows of `input` get their numbers, before they arrive.
    ///
    /// `ids` is the last column, where it is not in `input`.
    pub(crate) fn enter(&mut self, input: &Batch, ids: Option<&[u32]>) -> Entered {
        let kept = self.rows.rows();
        Entered { kept, first: self.rows.append_with(input, ids, 0..input.len()) }
    }

    /// Whether the rows that are held, and those that entered from number `first` on, leave oldest first as others
    /// arrive, with nobody who looks at what leaves.
    pub(crate) fn slides(&self, first: Seq) -> bool {
        let whole = self.window.fifo().is_some_and(|held| held.goes_on_with(first));
        whole && !self.wants_expired && self.window.slides(&self.rows)
    }

    /// Whether there is room for all that entered.
    pub(crate) fn fits(&self, entered: &Entered) -> bool {
        self.rows.next() - entered.first + entered.kept <= self.rows_max as u64
    }

    /// All chunks of `input` arrive, each a row, for somebody who looks only at what arrives; `ticks` as for [`Self::run`].
    /// None where that is not how the window works; nothing has happened then.
    ///
    /// Before, [`Self::slides`] is to be asked.
    pub(crate) fn slide(&mut self, input: &Batch, first: Seq, ticks: &[i64]) -> Option<Slid> {
        let oldest = self.window.fifo()?.front().unwrap_or(first);
        let now = ticks.last().copied().unwrap_or(i64::MIN);
        let rows = first..first + input.len() as Seq;
        let slide = self.ask(now, &mut Signals::default(), |window, context| {
            window.slide(rows, &input.clocks, now, context)
        })?;
        Some(Slid { slide, oldest })
    }

    /// All chunks of `input` arrive, each a row; `first` is the number of the first. None where the window does not put
    /// out large batches; nothing has happened then.
    pub(crate) fn tumble(&mut self, input: &Batch, first: Seq) -> Option<Vec<Tumbled>> {
        let rows = first..first + input.len() as Seq;
        self.ask(i64::MIN, &mut Signals::default(), |window, context| window.tumble(rows, context))
    }

    /// All chunks of `input` arrive, whose rows have entered; before each, the timers run that are due. `ticks` are the
    /// instants at which the clock stood on its way, ascending. What was put out is looked up in [`Self::rows`]; then
    /// [`Self::forget`].
    pub(crate) fn run(&mut self, input: &Batch, entered: Entered, ticks: &[i64]) -> Windowed {
        let Entered { kept, first } = entered;
        let mut all = Windowed {
            signals: Signals::default(),
            clocks: vec![],
            origins: vec![],
            first,
            failed: vec![],
            broken: vec![],
        };
        let Self { window, rows, timers, wants_expired, searched, rows_max, .. } = self;
        let (wants_expired, searched, rows_max) = (*wants_expired, *searched, *rows_max);
        let run_timers = |window: &mut dyn Window,
                          rows: &mut RowStore,
                          timers: &mut Timers,
                          until: i64,
                          all: &mut Windowed| {
            while let Some(due) = timers.take_due(until) {
                let now = ticks[ticks.partition_point(|tick| *tick < due)];
                let mark = all.signals.mark();
                let out = &mut all.signals;
                let mut context = Context { now, rows, out, timers, wants_expired, searched };
                if let Err(failure) = window.timer(due, &mut context) {
                    all.signals.rewind(mark);
                    all.broken.push(failure);
                }
                all.called(now, None);
            }
        };
        for (number, (chunk, now)) in input.chunks().enumerate() {
            run_timers(window.as_mut(), rows, timers, now, &mut all);
            let mark = all.signals.mark();
            let out = &mut all.signals;
            let mut context = Context { now, rows, out, timers, wants_expired, searched };
            let numbers = first + chunk.start as u64..first + chunk.end as u64;
            let room = has_room(kept, chunk.end, rows_max);
            if let Err(failure) = room.and_then(|()| window.arrive(numbers, &mut context)) {
                all.signals.rewind(mark);
                all.failed.push((number as u32, failure));
            }
            all.called(now, Some(number as u32));
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
    pub(crate) fn forget(&mut self) {
        window::forget(self.window.as_ref(), &mut self.rows);
    }

    /// The first instant later than `after` at which it wants the clock to stop.
    pub(crate) fn next_instant(&self, after: i64) -> Option<i64> {
        self.window.next_instant(after)
    }

    /// What it puts out at such an instant.
    pub(crate) fn instant(&mut self, at: i64) -> Result<Batch, Failure> {
        let mut out = self.empty();
        self.call(at, &mut out, |window, context| window.instant(at, context))?;
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
        self.timers = Timers::restored(from)?;
        self.window.restore(from, &self.rows)?;
        let there = match self.window.needs() {
            window::Needs::Nothing => true,
            window::Needs::From(oldest) => self.rows.has(oldest),
            window::Needs::Scattered(_) => self.window.scattered().iter().all(|seq| self.rows.has(*seq)),
        };
        if there { Ok(()) } else { Err(from.damaged("the window holds rows that are not there")) }
    }

    fn put_together(&self, signals: &Signals, clock: i64, out: &mut Batch) {
        let mut start = 0;
        for end in &signals.ends {
            for signal in &signals.items[start..*end] {
                match signal.kind {
                    Kind::Reset => out.columns.iter_mut().for_each(Column::push_null),
                    Kind::Current | Kind::Expired => {
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
fn has_room(kept: u64, more: usize, rows_max: usize) -> Result<(), Failure> {
    match kept + more as u64 > rows_max as u64 {
        false => Ok(()),
        true => Err(Failure(format!("a window keeps {rows_max} rows, the most it may"))),
    }
}
