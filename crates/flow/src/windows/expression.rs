//! `expression('condition')`: the newest events for which a condition holds.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use super::build::arity;
use super::condition::{ConditionInput, Evaluator, TimedRow};
use super::dynamic_condition::{self, ConditionSource, SavedEvaluator};
use crate::eval_error::EvalError;
use crate::registry::{Parameter, WindowInput};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{
    RetainedRows, RowQueue, StatusContext, Window, WindowConstructor, WindowContext, WindowStatus,
};

pub(super) fn build(parameters: &[Parameter], source: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=1, "expression('condition')")?;
    let origin = ConditionSource::of(&parameters[0], source)?;
    Ok(Arc::new(move || {
        Box::new(ExpressionWindow {
            evaluator: origin.evaluator(),
            origin: origin.clone(),
            held: RowQueue::default(),
        })
    }))
}

/// Adds each arriving row, then evicts the oldest rows while the condition is false, at worst the arriving
/// row itself.
///
/// Unqualified attributes are those of the arriving row, and after an eviction those of the row evicted last.
struct ExpressionWindow {
    origin: ConditionSource,
    evaluator: Option<Evaluator>,
    held: RowQueue,
}

impl ExpressionWindow {
    fn process_row(&mut self, seq: RowId, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        let Some(evaluator) = &mut self.evaluator else { return Ok(()) };
        let (now, rows) = (context.now, &*context.rows);
        let event = |seq| TimedRow { seq, time: rows.time(seq) };
        let arrival = event(seq);
        let first = self.held.front().map_or(arrival, event);
        let view = ConditionInput { event: arrival, first, last: arrival, now, rows };
        evaluator.add(&view)?;
        self.held.push(seq);
        let mut holds = match evaluator.holds(&view) {
            Ok(holds) => holds,
            Err(failure) => {
                // the arriving row is dropped; the buffered rows stay without it
                self.held.pop_back();
                evaluator.remove(&view)?;
                return Err(failure);
            }
        };
        while !holds && let Some(oldest) = self.held.pop() {
            context.out.expired(oldest, now);
            let leaver = TimedRow { seq: oldest, time: now };
            let first = self.held.front().map_or(leaver, event);
            let last = if oldest == seq { leaver } else { arrival };
            let view = ConditionInput { event: leaver, first, last, now, rows };
            evaluator.remove(&view)?;
            holds = evaluator.holds(&view)?;
        }
        Ok(())
    }
}

impl Window for ExpressionWindow {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        for seq in rows {
            if let Some(evaluator) = self.origin.changed(seq, self.evaluator.as_ref(), context.rows)? {
                // a new condition is applied to all buffered rows as if they arrived again
                self.evaluator = Some(evaluator);
                for held in mem::take(&mut self.held).iter() {
                    self.process_row(held, context)?;
                }
            }
            self.process_row(seq, context)?;
            context.out.current(seq, context.rows.time(seq));
        }
        context.out.end_chunk();
        Ok(())
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
        let waits_for = format!(
            "events; the oldest leave while `{}` is not true",
            self.evaluator.as_ref().map_or("the condition that events bring along", Evaluator::text)
        );
        WindowStatus::new(self.held.len(), between, waits_for)
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&(dynamic_condition::save(self.evaluator.as_ref()), &self.held))
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let (evaluator, held): (SavedEvaluator, RowQueue) = from.state()?;
        self.evaluator = self.origin.restore(&evaluator).map_err(|e| from.damaged(e.to_string()))?;
        self.held = held;
        Ok(())
    }
}
