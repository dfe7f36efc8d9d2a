//! `length(n)`: the last `n` events.

use std::ops::Range;
use std::sync::Arc;

use super::build::arity;
use crate::eval_error::EvalError;
use crate::registry::{Parameter, WindowInput};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{
    EvictionCounts, RetainedRows, RowQueue, StatusContext, Window, WindowConstructor, WindowContext,
    WindowStatus,
};

pub(super) fn build(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=1, "length(n)")?;
    let n = parameters[0].count("the length")?;
    Ok(Arc::new(move || Box::new(LengthWindow { n, held: RowQueue::default() })))
}

struct LengthWindow {
    n: u64,
    held: RowQueue,
}

impl Window for LengthWindow {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        for seq in rows {
            let time = context.rows.time(seq);
            if self.n == 0 {
                context.out.current(seq, time);
                context.out.expired(seq, time);
                context.out.reset(context.now);
                continue;
            }
            if self.held.len() == self.n
                && let Some(oldest) = self.held.pop()
            {
                context.out.expired(oldest, context.now);
            }
            context.out.current(seq, time);
            self.held.push(seq);
        }
        context.out.end_chunk();
        Ok(())
    }

    fn supports_sliding_path(&self, _: &RowStore) -> bool {
        self.n > 0
    }

    fn process_sliding(
        &mut self,
        rows: Range<RowId>,
        _: &[i64],
        _: i64,
        _: &mut WindowContext<'_>,
    ) -> Option<EvictionCounts> {
        if self.n == 0 {
            return None;
        }
        let count = rows.end - rows.start;
        let room = (self.n - self.held.len()).min(count);
        let before = (0..count).map(|i| u32::from(i >= room)).collect();
        self.held.push_all(rows);
        self.held.pop_all(count - room);
        Some(EvictionCounts { before, after_last: 0 })
    }

    fn is_time_driven(&self) -> bool {
        false
    }

    fn rows_in_order(&self) -> Option<&RowQueue> {
        Some(&self.held)
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::from_oldest(self.held.front())
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let between = look.time_range_of_ends(self.held.front(), self.held.iter().next_back());
        WindowStatus::sliding(self.held.len(), self.n, "events", between)
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&self.held)
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        self.held = from.state()?;
        Ok(())
    }
}
