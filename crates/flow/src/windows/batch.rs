//! `batch([n])`: the events of one call as a batch.

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
    RetainedRows, RowQueue, StatusContext, Window, WindowConstructor, WindowContext, WindowStatus,
};

pub(super) fn build(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 0..=1, "batch([n])")?;
    let n = parameters.first().map(|p| p.count("the length")).transpose()?.unwrap_or(0);
    Ok(Arc::new(move || Box::new(BatchWindow { n, state: State::default() })))
}

/// Treats each chunk as a batch. With `n`, splits the chunk into batches of `n` rows, which expire at the
/// same time.
struct BatchWindow {
    /// Batch length; 0 to emit chunks undivided.
    n: u64,
    state: State,
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Rows of the last chunk; empty if sent batches are not retained.
    before: RowQueue,
    /// Set once a batch was emitted since the last reset.
    came: bool,
}

impl Window for BatchWindow {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        let state = &mut self.state;
        if rows.is_empty() {
            return Ok(());
        }
        if context.wants_expired && !state.before.is_empty() {
            context.out.all_expired(&state.before, context.now);
            if mem::take(&mut state.came) {
                context.out.reset(context.now);
            }
        }
        state.before.clear();
        for (seq, i) in rows.clone().zip(0_u64..) {
            if i == 0 || self.n > 0 && i.is_multiple_of(self.n) {
                // expired events belong to the chunk of the first batch
                if i > 0 {
                    context.out.end_chunk();
                }
                if mem::replace(&mut state.came, true) {
                    context.out.reset(context.now);
                }
            }
            context.out.current(seq, context.rows.time(seq));
        }
        context.out.end_chunk();
        // In Siddhi 5.1, joins find nothing unless expired events are wanted. Here they always find the last
        // chunk.
        if context.retains_sent_batches() {
            state.before.push_all(rows);
        }
        Ok(())
    }

    fn is_time_driven(&self) -> bool {
        false
    }

    fn rows_in_order(&self) -> Option<&RowQueue> {
        Some(&self.state.before)
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::from_oldest(self.state.before.front())
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let held = &self.state.before;
        let between = look.time_range_of_ends(held.front(), held.iter().next_back());
        WindowStatus::new(
            held.len(),
            between,
            "the next events that are sent together: they are emitted at once",
        )
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&self.state)
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        self.state = from.state()?;
        Ok(())
    }
}
