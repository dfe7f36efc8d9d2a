//! `externalTime(attribute, span)`: the events of the last `span`, measured by an attribute.

use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_types::FieldType;

use super::build::arity;
use crate::columns::value::format_time;
use crate::eval_error::EvalError;
use crate::registry::{Parameter, WindowInput};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{
    EvictionCounts, RetainedRows, RowQueue, StatusContext, Window, WindowConstructor, WindowContext,
    WindowStatus,
};

pub(super) fn build(parameters: &[Parameter], _: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 2..=2, "externalTime(attribute, span)")?;
    let column = parameters[0].column("the time", &[FieldType::Long])?;
    let span = parameters[1].span("the span")?;
    let state = State { held: RowQueue::default(), due: i64::MAX };
    Ok(Arc::new(move || Box::new(ExternalTime { column, span, state: state.clone() })))
}

/// Independent of the clock: only arriving events evict others. A value smaller than earlier ones evicts
/// none.
struct ExternalTime {
    column: usize,
    span: i64,
    state: State,
}

#[derive(Clone, Serialize, Deserialize)]
struct State {
    held: RowQueue,
    /// Value of the attribute at which the oldest row is evicted; `i64::MAX` without rows.
    due: i64,
}

/// Checks that every row has a time. Errors: a time is null.
pub(super) fn require_times(rows: Range<RowId>, column: usize, store: &RowStore) -> Result<(), EvalError> {
    for seq in rows {
        if store.long(seq, column).is_none() {
            return Err(null());
        }
    }
    Ok(())
}

fn null() -> EvalError {
    EvalError::null("the time attribute of the window")
}

impl ExternalTime {
    #[inline]
    fn due(&self, rows: &RowStore, seq: RowId) -> i64 {
        rows.long(seq, self.column).unwrap_or(i64::MIN).saturating_add(self.span)
    }
}

impl Window for ExternalTime {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        if rows.end - rows.start > 1 {
            // if one row of a chunk fails, none of the chunk is buffered
            require_times(rows.clone(), self.column, context.rows)?;
        }
        for seq in rows {
            let Some(now) = context.rows.long(seq, self.column) else { return Err(null()) };
            while now >= self.state.due
                && let Some(oldest) = self.state.held.pop()
            {
                context.out.expired(oldest, now);
                self.state.due = match self.state.held.front() {
                    Some(head) => self.due(context.rows, head),
                    None => i64::MAX,
                };
            }
            context.out.current(seq, context.rows.time(seq));
            if self.state.held.is_empty() {
                self.state.due = now.saturating_add(self.span);
            }
            self.state.held.push(seq);
        }
        context.out.end_chunk();
        Ok(())
    }

    fn supports_sliding_path(&self, rows: &RowStore) -> bool {
        rows.i64_cursor(self.column).is_some()
    }

    fn process_sliding(
        &mut self,
        rows: Range<RowId>,
        _: &[i64],
        _: i64,
        context: &mut WindowContext<'_>,
    ) -> Option<EvictionCounts> {
        let store = &*context.rows;
        let mut arriving = store.i64_cursor(self.column)?;
        let mut heads = store.i64_cursor(self.column)?;
        let mut due = self.state.due;
        let mut head = self.state.held.front().unwrap_or(rows.start);
        let left = |seq: RowId| {
            let now = arriving.get(seq);
            let first = head;
            while now >= due && head < seq {
                head += 1;
                due = if head < seq { heads.get(head).saturating_add(self.span) } else { i64::MAX };
            }
            if head == seq {
                due = now.saturating_add(self.span);
            }
            (head - first) as u32
        };
        let before = rows.clone().map(left).collect();
        let held = &mut self.state.held;
        let first = held.front().unwrap_or(rows.start);
        held.push_all(rows);
        held.pop_all(head - first);
        self.state.due = due;
        Some(EvictionCounts { before, after_last: 0 })
    }

    fn is_time_driven(&self) -> bool {
        false
    }

    fn rows_in_order(&self) -> Option<&RowQueue> {
        Some(&self.state.held)
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::from_oldest(self.state.held.front())
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let held = &self.state.held;
        let between = look.time_range_of_ends(held.front(), held.iter().next_back());
        let waits_for = match held.is_empty() {
            true => "an event".to_owned(),
            false => {
                let name = look.name(self.column);
                format!(
                    "an event with {name} from {} on: with it the oldest leaves",
                    format_time(self.state.due)
                )
            }
        };
        WindowStatus::new(held.len(), between, waits_for)
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&self.state)
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        self.state = from.state()?;
        Ok(())
    }
}
