//! Late events that correct earlier output: `@late(policy='correct', allowed='1 min')`.
//!
//! A [`CorrectingRuntime`] runs two instances of one app. The *speculative* one processes events as they
//! arrive, so that output for timely events is emitted immediately. The *committed* one has processed, in
//! order of event time, the events that no accepted event can precede any more: those more than `allowed`
//! behind the clock. The events in between are [buffered](buffer), and so are the [rows emitted](outputs) for
//! them.
//!
//! A late event is inserted into the buffer by its time. Then the speculative app is rebuilt: it starts from
//! the state of the committed one and processes the buffered events in order, and its output is compared with
//! the earlier output. New rows are emitted, rows that no longer result are retracted. Windows, patterns,
//! tables and aggregations need no code for this: their state *is* that of a run in order.
//!
//! The committed app produces output that the speculative one has emitted before; this is how rows become
//! final.
//!
//! ```text
//!             committed                                   speculative
//!   ───────────────┤ ○ ○ ○ ○ ○ ○ buffered events ○ ○ ○ ○ ○ ○ ├──────▶ time
//!      final       │ rows that were emitted and may change   │ clock
//! ```
//!
//! `docs/rfcs/0004-corrections.md` describes the use and the reasons of this design.

mod buffer;
mod outputs;
mod replay_buffer;
mod runner;
mod save;

use std::sync::Arc;

use tidemill_lang::siddhi::ast::OnDemandQuery;
use tidemill_lang::{FileId, SourceFile, siddhi};

use crate::columns::batch::Batch;
use crate::columns::column::Column;
use crate::eval_error::EvalError;
use crate::explain::QueryReport;
use crate::plan::AppPlan;
use crate::runtime::{self, AppRuntime, OutputHandler, StreamBatch};
use crate::snapshot::RestoreMode;
use buffer::InputBuffer;
use outputs::{ConfirmingOutput, EmittedRows, RecordingOutput};

pub use runner::AppRunner;

/// Minimum number of final events that the committed app processes in one step, since large steps cost less.
const COMMIT_STEP_EVENTS: usize = 1024;

/// Receiver of the output of a correcting app.
pub trait RetractionHandler: OutputHandler {
    /// Handles the retraction of rows that were emitted to a stream earlier; times and values are those of
    /// the emitted rows.
    fn retracted(&mut self, stream: &str, events: &Batch);
}

/// An event that was later than allowed. The queries do not see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LateEvent {
    /// Index of the part that contains the event.
    pub part: usize,
    /// Row of the event in that part.
    pub row: usize,
    /// Time that the event was behind the clock, milliseconds.
    pub behind: i64,
}

/// An app whose late events correct its earlier output.
///
/// After each [`Self::apply_corrections`], the emitted output without the retracted rows is that of an
/// [`AppRuntime`] which gets the same events ordered by time, each as a chunk of its own. Events of one time
/// are in order of arrival.
pub struct CorrectingRuntime {
    plan: Arc<AppPlan>,
    /// Maximum lateness of an event, milliseconds.
    allowed_lateness: i64,
    speculative: AppRuntime,
    committed: AppRuntime,
    /// Set once the speculative app was started.
    speculative_started: bool,
    /// Set once the committed app was started.
    committed_started: bool,
    /// The greatest event time so far, milliseconds; `None` before the start.
    clock: Option<i64>,
    buffer: InputBuffer,
    /// Emitted rows that are not final.
    emitted: EmittedRows,
    /// Output of the committed app that was not emitted before; the next correction emits it.
    not_emitted: EmittedRows,
    /// Set while the speculative app has input to process in time order.
    corrections_pending: bool,
    commit_step: usize,
    /// The state of the committed app; `None` once it has processed more.
    committed_state: Option<Vec<u8>>,
}

impl CorrectingRuntime {
    /// Creates an app that has not started. It starts with its first event, or by [`Self::start`]. `allowed`:
    /// maximum lateness of an event, milliseconds.
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

    /// Sets the minimum number of final events that the committed app processes in one step, 1,024 by
    /// default. It does not affect the output.
    #[must_use]
    pub fn with_commit_step(mut self, events: usize) -> Self {
        self.commit_step = events.max(1);
        self
    }

    /// Returns the speculative app. It may lack late events until the next [`Self::apply_corrections`].
    pub fn app(&self) -> &AppRuntime {
        &self.speculative
    }

    /// Returns the greatest event time so far, milliseconds; `None` before the start.
    pub fn clock(&self) -> Option<i64> {
        self.clock
    }

    /// Returns the number of buffered events and of emitted rows that are not final.
    pub fn rows(&self) -> usize {
        self.buffer.len() + self.emitted.len()
    }

    /// Starts the app at `now`, regardless of later input.
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

    /// Advances the clock to `to`, unless it is there already. Does nothing before the start.
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

    /// Processes events, each as a chunk of its own; `order` as in [`AppRuntime::send_batch`]. Output for
    /// timely events is emitted immediately; late events take effect with the next
    /// [`Self::apply_corrections`]. Returns the events that came too late, which are ignored.
    ///
    /// Errors: the parts do not fit, or the buffer is full. No event is taken then, but the clock advances.
    pub fn send_batch(
        &mut self,
        parts: Vec<StreamBatch>,
        order: Option<&[u16]>,
        sink: &mut dyn RetractionHandler,
    ) -> Result<Vec<LateEvent>, EvalError> {
        for part in &parts {
            self.speculative.check(part.stream, &part.columns, part.times.len())?;
        }
        let order = runtime::checked_order(&parts, order)?;
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

    /// Determines which events are accepted, and whether they are in order.
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

    /// Commits final input if the limit leaves no room for `events` more. Errors: the limit is exceeded even
    /// so.
    fn ensure_capacity(&mut self, events: usize, horizon: i64) -> Result<(), EvalError> {
        let most = self.plan.limits().corrected_rows;
        if self.rows() + events <= most {
            return Ok(());
        }
        self.commit_before(horizon, 1);
        if self.rows() + events <= most {
            return Ok(());
        }
        let remedy = format!("a shorter time than allowed='{} millisec' needs fewer", self.allowed_lateness);
        let full = EvalError::limit(
            "`@late(policy='correct')`",
            most,
            "events and emitted rows that may still change",
        );
        Err(full.with_remedy(remedy))
    }

    /// Lets the committed app process the input before `horizon`, if there are at least `least` entries.
    fn commit_before(&mut self, horizon: i64, least: usize) {
        self.buffer.sort();
        let ready = self.buffer.count_before(horizon);
        if ready < least {
            return;
        }
        let mut confirming =
            ConfirmingOutput { emitted: &mut self.emitted, not_emitted: &mut self.not_emitted };
        if !self.committed_started {
            // on-demand queries before the first event do not start an app
            let Some(first) = self.buffer.first_time().filter(|first| *first < horizon) else { return };
            self.committed_started = true;
            self.committed.start(first, &mut confirming);
        }
        self.buffer.replay(ready, &mut self.committed, &mut confirming);
        self.buffer.drop_front(ready);
        self.committed_state = None;
        self.corrections_pending |= !self.not_emitted.is_empty();
    }

    /// Applies late events: emits and retracts the difference that they make, retractions first, each stream
    /// by stream. To be called after each call or series of calls, and before the app is queried or saved.
    ///
    /// Errors: the state of the app cannot be copied. The late events stay pending.
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

    /// Creates an app with the state of the committed one.
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

    /// Lets an app with the state of the committed one process all buffered input.
    fn replay_buffered(&self, app: &mut AppRuntime, outputs: &mut EmittedRows) {
        let mut recording = RecordingOutput::of(outputs, None);
        if !self.committed_started
            && let Some(first) = self.buffer.first_time()
        {
            app.start(first, &mut recording);
        }
        self.buffer.replay(self.buffer.len(), app, &mut recording);
    }

    /// Runs an on-demand query, as [`AppRuntime::on_demand`] does. A query that changes a table has the
    /// clock's time: after a correction it runs after the late events before that time.
    ///
    /// Errors: those of [`AppRuntime::on_demand`]; corrections are pending (see [`Self::apply_corrections`]).
    pub fn on_demand(&mut self, query: &str) -> Result<Batch, EvalError> {
        if self.corrections_pending {
            return Err(EvalError::request(
                "cannot run the query: late events are pending (call `apply_corrections` first)",
            ));
        }
        let read = siddhi::parse_on_demand(&SourceFile::new(FileId(0), "query", query));
        let found = self.speculative.on_demand(query)?;
        if matches!(read, Ok(OnDemandQuery::Change(_))) {
            self.buffer.push_change(self.clock.unwrap_or(i64::MIN), query);
        }
        Ok(found)
    }

    /// Reports why a query emits nothing: see [`AppRuntime::why`]. Each correction resets the counts.
    ///
    /// Errors: those of [`AppRuntime::why`].
    pub fn why(&self, query: &str, key: Option<&str>) -> tidemill_types::Result<QueryReport> {
        self.speculative.why(query, key)
    }
}

/// Classification of the events of a call.
struct ClassifiedEvents {
    /// Part and row of each accepted event, in order of arrival.
    accepted: Vec<(usize, usize)>,
    late: Vec<LateEvent>,
    /// True if no accepted event is behind the clock.
    in_order: bool,
    /// The clock after the accepted events, and their earliest time; `None` if no event is accepted.
    span: Option<(i64, i64)>,
}

/// Returns parts with the selected events only, and their order.
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
