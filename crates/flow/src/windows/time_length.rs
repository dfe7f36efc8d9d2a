//! `timeLength(span, n)`: the events of the last `span`, at most `n` of them.

use std::ops::Range;
use std::sync::Arc;

use super::build::arity;
use super::time_eviction::TimeEviction;
use crate::eval_error::EvalError;
use crate::registry::{Parameter, WindowInput};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{
    RetainedRows, RowQueue, StatusContext, Window, WindowConstructor, WindowContext, WindowStatus,
};

pub(super) fn build(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 2..=2, "timeLength(span, n)")?;
    let span = parameters[0].span("the span")?;
    let n = parameters[1].count("the length")?;
    Ok(Arc::new(move || Box::new(TimeLength { n, rows: TimeEviction::new(span) })))
}

/// Evicts by age like `time` and by number like `length`. With `n` = 0, events pass and never expire.
struct TimeLength {
    n: u64,
    rows: TimeEviction,
}

impl TimeLength {
    fn evict_due(&mut self, context: &mut WindowContext<'_>) {
        while let Some(seq) = self.rows.pop_due(context.now, context.rows) {
            context.out.expired(seq, context.now);
        }
    }
}

impl Window for TimeLength {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        for seq in rows {
            self.evict_due(context);
            if self.rows.rows().len() >= self.n
                && let Some(oldest) = self.rows.pop(context.rows)
            {
                context.out.expired(oldest, context.now);
            }
            let time = context.rows.time(seq);
            context.out.current(seq, time);
            if self.n > 0 {
                self.rows.push(seq, time);
            }
            context.timers.schedule(self.rows.due(time));
        }
        context.out.end_chunk();
        Ok(())
    }

    fn on_timer(&mut self, _due: i64, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        self.evict_due(context);
        context.out.end_chunk();
        Ok(())
    }

    fn rows_in_order(&self) -> Option<&RowQueue> {
        Some(self.rows.rows())
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::from_oldest(self.rows.rows().front())
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let held = self.rows.rows();
        let between = look.time_range_of_ends(held.front(), held.iter().next_back());
        let due = between.map(|(oldest, _)| self.rows.due(oldest));
        let mut waits = WindowStatus::time_eviction(held.len(), between, due, "leaves").of(self.n);
        if held.len() >= self.n && self.n > 0 {
            waits.waits_for += ", or with the next event: it is full";
        }
        waits
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(self.rows.state())
    }

    // Siddhi 5.1 loses the state of this window; here it is restored like that of any other
    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        self.rows.resume(from.state()?);
        Ok(())
    }
}
