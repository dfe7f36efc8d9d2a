//! Late events that correct what was put out: `@late(policy='correct', allowed='1 min')`.
//!
//! Two apps of one plan stand behind a [`CorrectingRuntime`]. The *leading* one gets events as they come, so that what comes
//! out in time comes out at once. The *lagging* one has seen, in order of event time, what can no longer be preceded by
//! anything: events more than `allowed` behind the clock. The events between them are [kept](buffer), and so are the
//! [rows that were put out](outputs) for them.
//!
//! A late event goes to its place among the events kept. Then the leading app is made anew: it takes the lagging one's
//! state, gets the events kept in their order, and what it puts out now is compared with what was put out before. Rows
//! that are new are put out, rows that are no longer so are taken back. Windows, patterns, tables and aggregations need
//! no code for this: their state *is* that of a run in order.
//!
//! As the lagging app goes on it puts out what the leading one has put out before; that is how rows become final.
//!
//! ```text
//!             lagging                                     leading
//!   ─────────────┤ ○ ○ ○ ○ ○ ○ ○ events kept ○ ○ ○ ○ ○ ○ ○ ├──────▶ time
//!     final      │ rows that were put out and may change   │ clock
//! ```
//!
//! How it is used and why it is so is told in `docs/rfcs/0004-corrections.md`.

mod buffer;
mod outputs;
mod replay_buffer;
mod runner;
mod save;

use std::sync::Arc;

use tidemill_lang::siddhi::ast::OnDemandQuery;
use tidemill_lang::{FileId, SourceFile, siddhi};

use crate::batch::Batch;
use crate::column::Column;
use crate::explain::QueryReport;
use crate::expr::EvalError;
use crate::plan::AppPlan;
use crate::runtime::{AppRuntime, OutputHandler};
use crate::snapshot::RestoreMode;
use crate::stream_batch::{self, StreamBatch};
use buffer::InputBuffer;
use outputs::{ConfirmingOutput, EmittedRows, RecordingOutput};

pub use runner::AppRunner;

/// Events that have to be final before the lagging app takes them: many at once cost less.
const COMMIT_STEP_EVENTS: usize = 1024;

/// What a corrected app puts out.
pub trait RetractionHandler: OutputHandler {
    /// Rows that a stream got before are not so: time and values are those that they had.
    fn retracted(&mut self, stream: &str, events: &Batch);
}

/// An event that came more than what is allowed behind the clock: the queries do not see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateEvent {
    /// The part that it stands in.
    pub part: usize,
    /// The row there.
    pub row: usize,
    /// How far behind the clock it was, milliseconds.
    pub behind: i64,
}

/// An app whose late events correct what it has put out.
///
/// What it has put out less what it has taken back is, after each [`settle`](Self::apply_corrections), what an [`AppRuntime`] would have
/// put out that got the same events, each by itself, in order of their times; events of one time in order of arrival.
pub struct CorrectingRuntime {
    plan: Arc<AppPlan>,
    /// How late an event may be, milliseconds.
    allowed_lateness: i64,
    speculative: AppRuntime,
    committed: AppRuntime,
    /// Whether the leading app was started.
    speculative_started: bool,
    /// Whether the lagging app was.
    committed_started: bool,
    /// The greatest event time so far; none before the start.
    clock: Option<i64>,
    buffer: InputBuffer,
    /// What was put out and is not final.
    emitted: EmittedRows,
    /// What the lagging app has put out though nobody had before; the next settling puts it out.
    not_emitted: EmittedRows,
    /// Whether something came that the leading app has not seen in its place.
    corrections_pending: bool,
    commit_step: usize,
    /// The state of the lagging app, as long as that has not moved.
    committed_state: Option<Vec<u8>>,
}

impl CorrectingRuntime {
    /// An app that has not started; it starts with its first event, or when [told](Self::start). `allowed`: how far
    /// behind the clock an event may be, milliseconds.
    pub fn new(plan: Arc<AppPlan>, allowed: i64) -> Self {
        let leading = AppRuntime::new(plan.clone());
        Self {
            committed: AppRuntime::new(plan.clone()),
            buffer: InputBuffer::new(&plan.catalog),
            emitted: EmittedRows::new(&plan.catalog),
            not_emitted: EmittedRows::new(&plan.catalog),
            plan,
            allowed_lateness: allowed,
            speculative: leading,
            speculative_started: false,
            committed_started: false,
            clock: None,
            corrections_pending: false,
            commit_step: COMMIT_STEP_EVENTS,
            committed_state: None,
        }
    }

    /// How many events have to be final before the lagging app takes them, 1,024 unless said. It makes no difference
    /// to what comes out.
    #[must_use]
    pub fn with_commit_step(mut self, events: usize) -> Self {
        self.commit_step = events.max(1);
        self
    }

    /// The app that has seen everything; between two [settlings](Self::apply_corrections) perhaps not late events.
    pub fn app(&self) -> &AppRuntime {
        &self.speculative
    }

    /// The greatest event time so far; none before the start.
    pub fn clock(&self) -> Option<i64> {
        self.clock
    }

    /// Events and rows that are kept because they may change.
    pub fn rows(&self) -> usize {
        self.buffer.len() + self.emitted.len()
    }

    /// Starts it at `now`, whatever comes first.
    pub fn start(&mut self, now: i64, sink: &mut dyn RetractionHandler) {
        self.clock = Some(now);
        self.speculative_started = true;
        self.speculative.start(now, &mut RecordingOutput::of(&mut self.emitted, Some(sink)));
        self.committed_started = true;
        self.committed.start(
            now,
            &mut ConfirmingOutput { emitted: &mut self.emitted, not_emitted: &mut self.not_emitted },
        );
    }

    /// Moves the clock, unless it is there already. Nothing happens before the start.
    pub fn advance(&mut self, to: i64, sink: &mut dyn RetractionHandler) {
        if self.clock.is_none_or(|clock| to <= clock) {
            return;
        }
        self.clock = Some(to);
        self.buffer.push_clock(to);
        self.corrections_pending |= !self.speculative_started;
        if !self.corrections_pending {
            self.speculative.advance(to, &mut RecordingOutput::of(&mut self.emitted, Some(sink)));
        }
    }

    /// Hands events in, each by itself; `order` as in [`AppRuntime::send_batch`]. What comes in time is put out at once, late events
    /// count from the next [`settle`](Self::apply_corrections) on. Which ones came too late is told; they are left out.
    ///
    /// Errors: the parts do not fit, or no more can be kept; then nothing was taken, but the clock goes on.
    pub fn send_batch(
        &mut self,
        parts: Vec<StreamBatch>,
        order: Option<&[u16]>,
        sink: &mut dyn RetractionHandler,
    ) -> Result<Vec<LateEvent>, EvalError> {
        for part in &parts {
            self.speculative.check(part.stream, &part.columns, part.times.len())?;
        }
        let order = stream_batch::checked_order(&parts, order)?;
        let sorted = self.classify(&parts, &order);
        let Some((clock, earliest)) = sorted.span else { return Ok(sorted.late) };
        let first = sorted.accepted[0];
        self.clock = Some(clock);
        self.ensure_capacity(
            sorted.accepted.len(),
            clock.saturating_sub(self.allowed_lateness).min(earliest),
        )?;
        for (part, row) in &sorted.accepted {
            let StreamBatch { stream, columns, times } = &parts[*part];
            self.buffer.push_event(*stream, columns, *row, times[*row]);
        }
        if self.corrections_pending || !sorted.in_order {
            self.corrections_pending = true;
            return Ok(sorted.late);
        }
        let mut recording = RecordingOutput::of(&mut self.emitted, Some(sink));
        if !self.speculative_started {
            self.speculative_started = true;
            self.speculative.start(parts[first.0].times[first.1], &mut recording);
        }
        if sorted.late.is_empty() {
            self.speculative.send_batch(parts, Some(&order), &mut recording)?;
        } else {
            let (parts, order) = select_events(&parts, &sorted.accepted);
            self.speculative.send_batch(parts, Some(&order), &mut recording)?;
        }
        Ok(sorted.late)
    }

    /// Which events are taken, and whether they come in order.
    fn classify(&self, parts: &[StreamBatch], order: &[u16]) -> ClassifiedEvents {
        let mut next = vec![0; parts.len()];
        let mut clock = self.clock;
        let mut found = ClassifiedEvents {
            accepted: Vec::with_capacity(order.len()),
            late: vec![],
            in_order: true,
            span: None,
        };
        for part in order {
            let part = usize::from(*part);
            let row = next[part];
            next[part] += 1;
            let time = parts[part].times[row];
            let behind = clock.map_or(0, |clock| clock.saturating_sub(time));
            if behind > self.allowed_lateness {
                found.late.push(LateEvent { part, row, behind });
                continue;
            }
            found.in_order &= behind <= 0;
            found.accepted.push((part, row));
            let now = clock.map_or(time, |clock| clock.max(time));
            clock = Some(now);
            found.span = Some((now, found.span.map_or(time, |(_, earliest)| time.min(earliest))));
        }
        found
    }

    /// Lets what is final go where there is no room for so many events.
    fn ensure_capacity(&mut self, events: usize, horizon: i64) -> Result<(), EvalError> {
        let most = self.plan.limits().corrected_rows;
        if self.rows() + events <= most {
            return Ok(());
        }
        self.commit_before(horizon, 1);
        if self.rows() + events <= most {
            return Ok(());
        }
        Err(EvalError(format!(
            "`@late(policy='correct')` keeps {} rows that may still change: at most {most} events and rows put out; \
             a shorter time than allowed='{} millisec' needs fewer",
            self.rows(),
            self.allowed_lateness
        )))
    }

    /// The lagging app takes what is before `horizon`, if that are at least so many events.
    fn commit_before(&mut self, horizon: i64, least: usize) {
        self.buffer.sort();
        let ready = self.buffer.count_before(horizon);
        if ready < least {
            return;
        }
        let mut confirming =
            ConfirmingOutput { emitted: &mut self.emitted, not_emitted: &mut self.not_emitted };
        if !self.committed_started {
            // what is asked before the first event does not start an app
            let Some(first) = self.buffer.first_time().filter(|first| *first < horizon) else { return };
            self.committed_started = true;
            self.committed.start(first, &mut confirming);
        }
        self.buffer.replay(ready, &mut self.committed, &mut confirming);
        self.buffer.drop_front(ready);
        self.committed_state = None;
        self.corrections_pending |= !self.not_emitted.is_empty();
    }

    /// Works late events in: what changes by them is put out and taken back, stream by stream, first what is taken back.
    /// To be called behind each call or group of calls, and before the app is asked or saved.
    ///
    /// Errors: the state of the app cannot be copied; late events wait for the next time.
    pub fn apply_corrections(&mut self, sink: &mut dyn RetractionHandler) -> Result<(), EvalError> {
        if let Some(clock) = self.clock {
            self.commit_before(clock.saturating_sub(self.allowed_lateness), self.commit_step);
        }
        if !self.corrections_pending {
            return Ok(());
        }
        let mut app = self.copy_committed()?;
        let mut outputs = std::mem::replace(&mut self.not_emitted, EmittedRows::new(&self.plan.catalog));
        let of_lagging = outputs.lengths();
        let failed = std::mem::take(&mut outputs.failures);
        self.buffer.sort();
        self.speculative_started = self.committed_started || self.buffer.first_time().is_some();
        self.replay_buffered(&mut app, &mut outputs);
        let difference = self.emitted.difference(&outputs, &failed);
        outputs.drop_front(&of_lagging);
        (self.emitted, self.speculative, self.corrections_pending) = (outputs, app, false);
        difference.emit(self.clock.unwrap_or_default(), sink);
        Ok(())
    }

    /// An app that stands where the lagging one does.
    fn copy_committed(&mut self) -> Result<AppRuntime, EvalError> {
        let mut app = AppRuntime::new(self.plan.clone());
        if !self.committed_started {
            return Ok(app);
        }
        let state = match self.committed_state.take() {
            Some(state) => state,
            None => {
                let mut state = Vec::new();
                self.committed.save(&mut state)?;
                state
            }
        };
        app.restore(&mut state.as_slice(), RestoreMode::Exactly)?;
        self.committed_state = Some(state);
        Ok(app)
    }

    /// An app that stands where the lagging one does gets all events kept.
    fn replay_buffered(&self, app: &mut AppRuntime, outputs: &mut EmittedRows) {
        let mut recording = RecordingOutput::of(outputs, None);
        if !self.committed_started
            && let Some(first) = self.buffer.first_time()
        {
            app.start(first, &mut recording);
        }
        self.buffer.replay(self.buffer.len(), app, &mut recording);
    }

    /// Runs an on-demand query, as [`AppRuntime::on_demand`] does. One that changes a table belongs to the clock's time: where
    /// later events turn out to come before it, it is run behind them.
    ///
    /// Errors: those of [`AppRuntime::on_demand`]; late events were not [settled](Self::apply_corrections).
    pub fn on_demand(&mut self, query: &str) -> Result<Batch, EvalError> {
        if self.corrections_pending {
            return Err(EvalError("late events were not worked in yet".into()));
        }
        let read = siddhi::parse_on_demand(&SourceFile::new(FileId(0), "query", query));
        let found = self.speculative.on_demand(query)?;
        if matches!(read, Ok(OnDemandQuery::Change(_))) {
            self.buffer.push_change(self.clock.unwrap_or(i64::MIN), query);
        }
        Ok(found)
    }

    /// Why a query puts nothing out: see [`AppRuntime::why`]. Counts begin anew with each correction.
    ///
    /// Errors: those of [`AppRuntime::why`].
    pub fn why(&self, query: &str, key: Option<&str>) -> tidemill_types::Result<QueryReport> {
        self.speculative.why(query, key)
    }
}

/// What is taken of events that came together.
struct ClassifiedEvents {
    /// Part and row of each, in order of arrival.
    accepted: Vec<(usize, usize)>,
    late: Vec<LateEvent>,
    /// Whether no event taken is behind the clock.
    in_order: bool,
    /// The clock behind them, and the earliest time among them; none when none is taken.
    span: Option<(i64, i64)>,
}

/// These events of the parts, with their order.
fn select_events(parts: &[StreamBatch], taken: &[(usize, usize)]) -> (Vec<StreamBatch>, Vec<u16>) {
    let rows_of = |number: usize| -> Vec<u32> {
        taken.iter().filter(|(part, _)| *part == number).map(|(_, row)| *row as u32).collect()
    };
    let pick = |(number, part): (usize, &StreamBatch)| {
        let rows = rows_of(number);
        let column = |from: &Column| {
            let mut column = Column::new(from.ty());
            column.gather(from, &rows);
            column
        };
        StreamBatch {
            stream: part.stream,
            columns: part.columns.iter().map(column).collect(),
            times: rows.iter().map(|row| part.times[*row as usize]).collect(),
        }
    };
    let order = taken.iter().map(|(part, _)| *part as u16).collect();
    (parts.iter().enumerate().map(pick).collect(), order)
}
