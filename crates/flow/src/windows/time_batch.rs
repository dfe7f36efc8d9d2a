//! `timeBatch(span [, start] [, stream.current])`: the events of each span of the clock as a batch.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_types::FieldType;

use super::build::arity;
use crate::eval_error::EvalError;
use crate::registry::{Parameter, WindowInput};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{
    RetainedRows, RowQueue, StatusContext, Window, WindowConstructor, WindowContext, WindowStatus,
};

pub(super) fn build(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=3, "timeBatch(span [, start] [, stream.current])")?;
    let span = parameters[0].period("the span")?;
    let (start, streams) = match &parameters[1..] {
        [] => (None, false),
        [flag] if flag.expr.ty == FieldType::Bool => (None, flag.flag("stream.current")?),
        [start] => (Some(start.instant("the start")?), false),
        [start, flag, ..] => (Some(start.instant("the start")?), flag.flag("stream.current")?),
    };
    Ok(Arc::new(move || {
        let spans = TimeSpans::new(span, start);
        Box::new(TimeBatch { streams, state: State { spans, ..State::default() } })
    }))
}

/// Consecutive spans of the clock, beginning with the first event.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct TimeSpans {
    #[serde(skip)]
    span: i64,
    /// An instant at which some span begins; `None` for the time of the first event.
    #[serde(skip)]
    start: Option<i64>,
    /// End of the running span; `None` before the first event.
    end: Option<i64>,
}

impl TimeSpans {
    pub(super) fn new(span: i64, start: Option<i64>) -> Self {
        Self { span, start, end: None }
    }

    /// Returns whether the running span has ended; the caller must then call [`Self::advance`]. Begins the
    /// first span if none is running.
    #[inline]
    pub(super) fn has_ended(&mut self, context: &mut WindowContext<'_>) -> bool {
        let now = context.now;
        let end = match self.end {
            Some(end) => end,
            None => {
                let end = match self.start {
                    // as in Siddhi 5.1, a start in the future moves the first end by one span
                    Some(start) => grid_end(now, start, self.span),
                    None => now.saturating_add(self.span),
                };
                context.timers.schedule(end);
                self.end = Some(end);
                end
            }
        };
        now >= end
    }

    /// Begins the next span. If several spans have ended in the meantime, each gets its own timer, which is
    /// due at once; but with `nothing_left` to emit, they are skipped in one step.
    pub(super) fn advance(&mut self, nothing_left: bool, context: &mut WindowContext<'_>) {
        let Some(end) = self.end else { return };
        let ended = if nothing_left { (context.now.saturating_sub(end) / self.span).max(0) } else { 0 };
        let end = ended.saturating_mul(self.span).saturating_add(end).saturating_add(self.span);
        context.timers.schedule(end);
        self.end = Some(end);
    }

    /// Returns the end of the running span; `None` before the first event.
    pub(super) fn end(&self) -> Option<i64> {
        self.end
    }

    /// Restores the end of the running span. Siddhi 5.1 forgets it and begins a new span with the first event
    /// after a restart; here the running span continues.
    pub(super) fn resume(&mut self, saved: &Self) {
        self.end = saved.end;
    }
}

/// Returns the next instant after `time` that is a multiple of `span` away from `start`; if `start` is later
/// than `time`, the instant after that one.
pub(super) fn grid_end(time: i64, start: i64, span: i64) -> i64 {
    let into = time.wrapping_sub(start).wrapping_rem(span);
    time.saturating_add(span.saturating_sub(into))
}

struct TimeBatch {
    /// True if events are emitted on arrival and only their expiry is batched.
    streams: bool,
    state: State,
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    spans: TimeSpans,
    /// Events of the running span; empty with `streams`.
    current: RowQueue,
    /// Rows that wait to expire: the last emitted span, or with `streams` the running one.
    before: RowQueue,
    /// Set once an event arrived since the last reset.
    came: bool,
}

impl TimeBatch {
    fn flush(&mut self, context: &mut WindowContext<'_>) {
        let state = &mut self.state;
        if context.wants_expired {
            context.out.all_expired(&state.before, context.now);
        }
        // Unless expired events are wanted, Siddhi 5.1 never drops an emitted span. Here a join finds the
        // last one, as it does when they are wanted.
        state.before.clear();
        if mem::take(&mut state.came) {
            context.out.reset(context.now);
        }
        context.out.all_current(&state.current, context.rows);
        if context.retains_sent_batches() {
            mem::swap(&mut state.current, &mut state.before);
        }
        state.current.clear();
        state.spans.advance(state.before.is_empty(), context);
    }
}

impl Window for TimeBatch {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        let ends = self.state.spans.has_ended(context);
        self.state.came |= !rows.is_empty();
        if self.streams {
            for seq in rows.clone() {
                context.out.current(seq, context.rows.time(seq));
            }
            if context.retains_sent_batches() {
                self.state.before.push_all(rows);
            }
        } else {
            self.state.current.push_all(rows);
        }
        if ends {
            self.flush(context);
        }
        context.out.end_chunk();
        Ok(())
    }

    fn on_timer(&mut self, _due: i64, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        if self.state.spans.has_ended(context) {
            self.flush(context);
            context.out.end_chunk();
        }
        Ok(())
    }

    fn rows_in_order(&self) -> Option<&RowQueue> {
        Some(&self.state.before)
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::from_oldest(self.state.before.front().or(self.state.current.front()))
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let state = &self.state;
        let rows = if self.streams { &state.before } else { &state.current };
        let between = look.time_range_of_ends(rows.front(), rows.iter().next_back());
        WindowStatus::spanning(rows.len(), between, state.spans.end())
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&self.state)
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let mut spans = self.state.spans.clone();
        self.state = from.state()?;
        spans.resume(&self.state.spans);
        self.state.spans = spans;
        Ok(())
    }
}
