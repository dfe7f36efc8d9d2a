//! `time(span)`: the events of the last `span` of the clock. `delay(span)`: emits events when they are `span`
//! old.

use std::ops::Range;
use std::sync::Arc;

use super::build::arity;
use super::time_eviction::TimeEviction;
use crate::eval_error::EvalError;
use crate::registry::{Parameter, WindowInput};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{
    EvictionCounts, RetainedRows, RowQueue, StatusContext, Window, WindowConstructor, WindowContext,
    WindowStatus,
};

pub(super) fn build(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=1, "time(span)")?;
    let span = parameters[0].span("the span")?;
    Ok(Arc::new(move || {
        Box::new(TimeWindow { rows: TimeEviction::new(span), asked: i64::MIN, delays: false })
    }))
}

pub(super) fn delay(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=1, "delay(span)")?;
    let span = parameters[0].span("the span")?;
    Ok(Arc::new(move || {
        Box::new(TimeWindow { rows: TimeEviction::new(span), asked: i64::MIN, delays: true })
    }))
}

/// Evicts an event when its age reaches the span: just before an arrival, or by a timer.
struct TimeWindow {
    rows: TimeEviction,
    /// Greatest timestamp for which a timer was scheduled; only a greater one schedules another.
    asked: i64,
    /// True if events are emitted only when they leave; then none expires, and the buffered ones are still to
    /// be emitted.
    delays: bool,
}

impl TimeWindow {
    #[inline]
    fn evict_due(&mut self, context: &mut WindowContext<'_>) {
        while let Some(seq) = self.rows.pop_due(context.now, context.rows) {
            match self.delays {
                true => context.out.current(seq, context.now),
                false => context.out.expired(seq, context.now),
            }
        }
    }
}

impl Window for TimeWindow {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        for seq in rows {
            // also for the second event of a chunk: the first one may be too old already
            self.evict_due(context);
            let time = context.rows.time(seq);
            if !self.delays {
                context.out.current(seq, time);
            }
            self.rows.push(seq, time);
            if self.asked < time {
                self.asked = time;
                context.timers.schedule(self.rows.due(time));
            }
        }
        context.out.end_chunk();
        Ok(())
    }

    fn supports_sliding_path(&self, _: &RowStore) -> bool {
        !self.delays
    }

    fn process_sliding(
        &mut self,
        rows: Range<RowId>,
        clocks: &[i64],
        until: i64,
        context: &mut WindowContext<'_>,
    ) -> Option<EvictionCounts> {
        if self.delays {
            return None;
        }
        let mut times = context.rows.time_cursor();
        for seq in rows.clone() {
            let time = times.get(seq);
            if self.asked < time {
                self.asked = time;
                context.timers.schedule(self.rows.due(time));
            }
        }
        // a timer due before an arrival evicts no row that the arrival would not evict
        let due = std::iter::from_fn(|| context.timers.pop_due(until)).last();
        Some(self.rows.process_sliding(rows, clocks, due.map(|_| until), context.rows))
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
        WindowStatus::time_eviction(
            held.len(),
            between,
            due,
            if self.delays { "comes out" } else { "leaves" },
        )
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&(self.rows.state(), self.asked))
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let (rows, asked) = from.state()?;
        self.rows.resume(rows);
        self.asked = asked;
        Ok(())
    }
}
