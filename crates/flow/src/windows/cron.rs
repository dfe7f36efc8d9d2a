//! `cron('…')`: the events between two instants of a schedule as a batch.

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
use tidemill_types::cron::Cron;

pub(super) fn build(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=1, "cron('schedule')")?;
    let schedule = Arc::new(Cron::parse(parameters[0].constant_text("the schedule")?)?);
    Ok(Arc::new(move || Box::new(CronBatch { schedule: Arc::clone(&schedule), state: State::default() })))
}

/// Emits no resets: only expired events bring the aggregates back to their initial state, so expired events
/// are emitted whether the query wants them or not.
struct CronBatch {
    schedule: Arc<Cron>,
    state: State,
}

#[derive(Default, Serialize, Deserialize)]
struct State {
    /// Rows since the last instant of the schedule.
    current: RowQueue,
    /// Rows of the last emitted batch.
    before: RowQueue,
}

impl Window for CronBatch {
    fn process(&mut self, rows: Range<RowId>, _: &mut WindowContext<'_>) -> Result<(), EvalError> {
        self.state.current.push_all(rows);
        Ok(())
    }

    fn next_scheduled(&self, after: i64) -> Option<i64> {
        self.schedule.next_after(after)
    }

    fn on_schedule(&mut self, at: i64, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        let state = &mut self.state;
        if state.current.is_empty() {
            return Ok(());
        }
        context.out.all_expired(&state.before, at);
        context.out.all_current(&state.current, context.rows);
        mem::swap(&mut state.current, &mut state.before);
        state.current.clear();
        context.out.end_chunk();
        Ok(())
    }

    // in Siddhi 5.1 joins find nothing; here they find the last batch, as in the other batch windows
    fn rows_in_order(&self) -> Option<&RowQueue> {
        Some(&self.state.before)
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::from_oldest(self.state.before.front().or(self.state.current.front()))
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let rows = &self.state.current;
        let between = look.time_range_of_ends(rows.front(), rows.iter().next_back());
        let waits_for = match rows.is_empty() {
            true => "events; they are emitted at the next time of the schedule",
            false => "the next time of the schedule",
        };
        WindowStatus::new(rows.len(), between, waits_for)
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&self.state)
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        self.state = from.state()?;
        Ok(())
    }
}
