//! `timeBatch(span [, start] [, stream.current])`: the events of each span of the clock together.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_types::FieldType;

use super::build::arity;
use super::row_queue::RowQueue;
use super::{
    Parameter, RetainedRows, StatusContext, Window, WindowConstructor, WindowContext, WindowInput,
    WindowStatus,
};
use crate::expr::EvalError;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowId, RowStore};

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

/// Spans of the clock, one after the other. They begin with the first event.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct TimeSpans {
    #[serde(skip)]
    span: i64,
    /// An instant at which some span begins.
    #[serde(skip)]
    start: Option<i64>,
    /// The end of the running span.
    end: Option<i64>,
}

impl TimeSpans {
    pub(super) fn new(span: i64, start: Option<i64>) -> Self {
        Self { span, start, end: None }
    }

    /// Whether the running span has ended; then [`Self::advance`] is to be called.
    #[inline]
    pub(super) fn has_ended(&mut self, context: &mut WindowContext<'_>) -> bool {
        let now = context.now;
        let end = match self.end {
            Some(end) => end,
            None => {
                let end = match self.start {
                    // as in the reference a start in the future puts the first end one span further
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

    /// Begins the next span. Of several that have ended meanwhile each has its timer, which is due at once; but when
    /// nothing is left that could come out, the clock is caught up with in one step.
    pub(super) fn advance(&mut self, nothing_left: bool, context: &mut WindowContext<'_>) {
        let Some(end) = self.end else { return };
        let ended = if nothing_left { (context.now.saturating_sub(end) / self.span).max(0) } else { 0 };
        let end = ended.saturating_mul(self.span).saturating_add(end).saturating_add(self.span);
        context.timers.schedule(end);
        self.end = Some(end);
    }

    /// The end of the running span; `None` before the first event.
    pub(super) fn end(&self) -> Option<i64> {
        self.end
    }

    /// Takes over where the spans of a saved state stand. The reference forgets it and begins a new span with the
    /// first event after a restart; here spans go on.
    pub(super) fn resume(&mut self, saved: &Self) {
        self.end = saved.end;
    }
}

/// The next instant after `time` that lies whole spans from `start`; with a `start` later than `time` the one behind it.
pub(super) fn grid_end(time: i64, start: i64, span: i64) -> i64 {
    let into = time.wrapping_sub(start).wrapping_rem(span);
    time.saturating_add(span.saturating_sub(into))
}

struct TimeBatch {
    /// Events pass at once; only their leaving is in batches.
    streams: bool,
    state: State,
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    spans: TimeSpans,
    /// The events of the running span.
    current: RowQueue,
    /// What waits to expire: the span that went out, or with `streams` the running one.
    before: RowQueue,
    /// Whether anything came since the last reset.
    came: bool,
}

impl TimeBatch {
    fn flush(&mut self, context: &mut WindowContext<'_>) {
        let state = &mut self.state;
        if context.wants_expired {
            context.out.all_expired(&state.before, context.now);
        }
        // Where nobody wants expired events the reference never forgets a span that went out; a join finds the last one
        // here, as it does when somebody wants them.
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

    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
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
