//! `lengthBatch(n [, stream.current])`: batches of `n` events.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::build::arity;
use crate::eval_error::EvalError;
use crate::registry::{Parameter, WindowInput};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{
    CompletedBatch, RetainedRows, RowQueue, StatusContext, Window, WindowConstructor, WindowContext,
    WindowStatus, more,
};

pub(super) fn build(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=2, "lengthBatch(n [, stream.current])")?;
    let n = parameters[0].count("the length")?;
    let streams = parameters.get(1).map(|p| p.flag("stream.current")).transpose()?.unwrap_or(false);
    Ok(Arc::new(move || Box::new(LengthBatch { n, streams, state: State::default() })))
}

/// Minimum batch length for the batched path: processing smaller batches on their own does not pay.
const LARGE: u64 = 64;

struct LengthBatch {
    n: u64,
    /// True if events are emitted on arrival and only their expiry is batched.
    streams: bool,
    state: State,
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Batch being filled.
    current: RowQueue,
    /// Rows that wait to expire: the last emitted batch, or with `streams` the batch being emitted.
    before: RowQueue,
    /// With `streams`, number of emitted events of the running batch, which need not be buffered for the
    /// count.
    passed: u64,
}

impl LengthBatch {
    fn collect(&mut self, seq: RowId, context: &mut WindowContext<'_>) {
        let state = &mut self.state;
        state.current.push(seq);
        if state.current.len() < self.n {
            return;
        }
        if context.wants_expired {
            context.out.all_expired(&state.before, context.now);
        }
        context.out.reset(context.now);
        context.out.all_current(&state.current, context.rows);
        mem::swap(&mut state.current, &mut state.before);
        state.current.clear();
        // Unless expired events are wanted, Siddhi 5.1 never drops an emitted batch. Here a join finds the
        // last one, as it does when they are wanted.
        if !context.retains_sent_batches() {
            state.before.clear();
        }
    }

    fn process_streaming(&mut self, seq: RowId, context: &mut WindowContext<'_>) {
        let state = &mut self.state;
        if state.passed == self.n {
            if context.wants_expired {
                context.out.all_expired(&state.before, context.now);
            }
            context.out.reset(context.now);
            state.before.clear();
            state.passed = 0;
        }
        context.out.current(seq, context.rows.time(seq));
        state.passed += 1;
        if context.retains_sent_batches() {
            state.before.push(seq);
        }
    }
}

impl Window for LengthBatch {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        for seq in rows {
            if self.n == 0 {
                context.out.current(seq, context.rows.time(seq));
                if context.wants_expired {
                    context.out.expired(seq, context.now);
                }
                context.out.reset(context.now);
            } else if self.streams {
                self.process_streaming(seq, context);
            } else {
                self.collect(seq, context);
            }
            context.out.end_chunk();
        }
        Ok(())
    }

    fn process_batches(
        &mut self,
        rows: Range<RowId>,
        context: &mut WindowContext<'_>,
    ) -> Option<Vec<CompletedBatch>> {
        let current = &mut self.state.current;
        let whole = current.is_contiguous_with(rows.start) && self.state.before.is_empty();
        if self.n < LARGE || self.streams || context.retains_sent_batches() || !whole {
            return None;
        }
        let first = current.front().unwrap_or(rows.start);
        let batches = (rows.end - first) / self.n;
        current.push_all(rows.clone());
        current.pop_all(batches * self.n);
        let batch = |i: u64| {
            let end = first + (i + 1) * self.n;
            CompletedBatch { completing_row: (end - 1 - rows.start) as u32, rows: end - self.n..end }
        };
        Some((0..batches).map(batch).collect())
    }

    fn is_time_driven(&self) -> bool {
        false
    }

    fn rows_in_order(&self) -> Option<&RowQueue> {
        Some(&self.state.before)
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::from_oldest(self.state.before.front().or(self.state.current.front()))
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let state = &self.state;
        if self.streams {
            let more = more(self.n.saturating_sub(state.passed), "events");
            let waits_for = format!("{more} to pass at once; with the one behind all of them leave");
            return WindowStatus::new(state.passed, None, waits_for).of(self.n);
        }
        let between = look.time_range_of_ends(state.current.front(), state.current.iter().next_back());
        WindowStatus::filling(state.current.len(), self.n, "events", between)
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&self.state)
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        self.state = from.state()?;
        Ok(())
    }
}
