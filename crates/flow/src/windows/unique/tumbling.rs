//! Unique windows that emit events in batches.

use std::mem;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::super::key::KeyEncoder;
use super::super::time_batch::TimeSpans;
use super::UniqueBatch;
use crate::columns::value::format_time;
use crate::eval_error::EvalError;
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{RetainedRows, StatusContext, Window, WindowContext, WindowStatus, more};

/// Condition for emitting a batch.
pub(super) enum BatchTrigger {
    /// Number of keys.
    Length(usize),
    /// End of a span of the clock.
    Time(TimeSpans),
    /// Number of keys or end of a span, whichever comes first.
    Either {
        spans: TimeSpans,
        n: usize,
        /// Set once `n` keys arrived before the end of the span; further events of the span are ignored.
        full: bool,
    },
}

impl BatchTrigger {
    fn spans(&mut self) -> Option<&mut TimeSpans> {
        match self {
            Self::Length(_) => None,
            Self::Time(spans) | Self::Either { spans, .. } => Some(spans),
        }
    }
}

/// Batches of one event per key. Output: `[batch before-…, R, batch+…]`, with the clock as timestamp of the
/// batch's events.
pub(super) struct UniqueTumbling {
    keys: KeyEncoder,
    /// True if the first event of a key stays instead of the newest.
    first: bool,
    until: BatchTrigger,
    current: UniqueBatch,
    /// Rows of the last emitted batch; empty if sent batches are not retained.
    before: Vec<RowId>,
}

#[derive(Serialize, Deserialize)]
struct State {
    current: UniqueBatch,
    before: Vec<RowId>,
    spans: Option<TimeSpans>,
    full: bool,
}

impl UniqueTumbling {
    pub(super) fn new(keys: KeyEncoder, first: bool, until: BatchTrigger) -> Self {
        Self { keys, first, until, current: UniqueBatch::default(), before: vec![] }
    }

    fn put(&mut self, seq: RowId, context: &WindowContext<'_>) -> Result<(), EvalError> {
        let key = self.keys.encode(seq, context)?;
        if self.first {
            self.current.put_first(key, seq);
        } else {
            self.current.put(key, seq);
        }
        Ok(())
    }

    fn flush(&mut self, context: &mut WindowContext<'_>) {
        let now = context.now;
        for seq in mem::take(&mut self.before) {
            if context.wants_expired {
                context.out.expired(seq, now);
            }
        }
        if !self.current.rows().is_empty() {
            context.out.reset(now);
        }
        for seq in self.current.rows() {
            context.out.current(*seq, now);
        }
        if context.retains_sent_batches() {
            self.before.extend(self.current.rows());
        }
        self.current.clear();
        context.out.end_chunk();
    }

    /// Returns whether the running span has ended. The caller then emits the rows collected so far, unless
    /// the batch was emitted before the end, and calls [`Self::next_span`].
    fn span_ends(&mut self, context: &mut WindowContext<'_>) -> bool {
        self.until.spans().is_some_and(|spans| spans.has_ended(context))
    }

    fn next_span(&mut self, context: &mut WindowContext<'_>) {
        let nothing_left = self.before.is_empty() && self.current.rows().is_empty();
        if let Some(spans) = self.until.spans() {
            spans.advance(nothing_left, context);
        }
    }
}

impl Window for UniqueTumbling {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        let ends = self.span_ends(context);
        if let BatchTrigger::Either { full, .. } = &mut self.until
            && *full
        {
            *full = !ends;
            if ends {
                self.next_span(context);
            }
            return Ok(());
        }
        for seq in rows {
            self.put(seq, context)?;
            match &mut self.until {
                BatchTrigger::Length(n) if self.current.rows().len() == *n => self.flush(context),
                BatchTrigger::Either { n, full, .. } if self.current.rows().len() == *n => {
                    *full = true;
                    self.flush(context);
                    break;
                }
                _ => {}
            }
        }
        if ends {
            if !matches!(self.until, BatchTrigger::Either { full: true, .. }) {
                self.flush(context);
            }
            self.next_span(context);
        }
        Ok(())
    }

    fn on_timer(&mut self, _due: i64, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        if !self.span_ends(context) {
            return Ok(());
        }
        match &mut self.until {
            BatchTrigger::Either { full, .. } if *full => *full = false,
            _ => self.flush(context),
        }
        self.next_span(context);
        Ok(())
    }

    fn rows(&self) -> Vec<RowId> {
        self.before.clone()
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::sparse(self.before.len() + self.current.rows().len())
    }

    fn sparse_rows(&self) -> Vec<RowId> {
        [&self.before, self.current.rows()].concat()
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let rows = self.current.rows();
        let (held, between) = (rows.len() as u64, look.time_range(rows.iter().copied()));
        match &self.until {
            BatchTrigger::Length(n) => WindowStatus::filling(held, *n as u64, "keys", between),
            BatchTrigger::Time(spans) => WindowStatus::spanning(held, between, spans.end()),
            BatchTrigger::Either { spans, n, full: false } => {
                let mut waits = WindowStatus::spanning(held, between, spans.end()).of(*n as u64);
                waits.waits_for += &format!(", or {}", more((*n as u64).saturating_sub(held), "keys"));
                waits
            }
            BatchTrigger::Either { spans, full: true, .. } => {
                let end = spans.end();
                let begins = end.map_or_else(String::new, |end| format!(" at {}", format_time(end)));
                WindowStatus::new(
                    0,
                    None,
                    format!("the next span{begins}: this one went out, what comes is ignored"),
                )
                .due(end)
            }
        }
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        let (spans, full) = match &self.until {
            BatchTrigger::Length(_) => (None, false),
            BatchTrigger::Time(spans) => (Some(spans.clone()), false),
            BatchTrigger::Either { spans, full, .. } => (Some(spans.clone()), *full),
        };
        out.state(&State { current: self.current.clone(), before: self.before.clone(), spans, full })
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let state: State = from.state()?;
        if let Some((spans, saved)) = self.until.spans().zip(state.spans.as_ref()) {
            spans.resume(saved);
        }
        if let BatchTrigger::Either { full, .. } = &mut self.until {
            *full = state.full;
        }
        (self.current, self.before) = (state.current, state.before);
        Ok(())
    }
}
