//! `expressionBatch('condition' [, include.triggering [, stream.current]])`: batches of events for which a
//! condition holds.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use tidemill_types::FieldType;

use super::build::arity;
use super::condition::{ConditionInput, Evaluator, TimedRow};
use super::dynamic_condition::{self, ConditionSource, SavedEvaluator};
use crate::eval_error::EvalError;
use crate::expr::Expr;
use crate::registry::{Parameter, WindowInput};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::{RowId, RowStore};
use crate::window::{
    RetainedRows, RowQueue, StatusContext, Window, WindowConstructor, WindowContext, WindowStatus,
};

pub(super) fn build(parameters: &[Parameter], source: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=3, "expressionBatch('condition' [, include.triggering [, stream.current]])")?;
    let origin = ConditionSource::of(&parameters[0], source)?;
    let includes = match parameters.get(1) {
        Some(p) if p.expr.ty == FieldType::Bool => Some(p.expr.clone()),
        Some(p) => return Err(format!("include.triggering must be a bool, found `{}`", p.text)),
        None => None,
    };
    let streams = parameters.get(2).map(|p| p.flag("stream.current")).transpose()?.unwrap_or(false);
    Ok(Arc::new(move || {
        Box::new(ExpressionBatch {
            origin: origin.clone(),
            includes: includes.clone(),
            streams,
            evaluator: origin.evaluator(),
            current: RowQueue::default(),
            before: RowQueue::default(),
        })
    }))
}

/// Emits no resets: only expired events bring the aggregates back to their initial state, so expired events
/// are emitted whether the query wants them or not.
struct ExpressionBatch {
    origin: ConditionSource,
    /// Expression that decides if an event that breaks the condition belongs to the batch that it ends; `None`
    /// if it never does.
    includes: Option<Expr>,
    /// True if events are emitted on arrival and only their expiry is batched.
    streams: bool,
    evaluator: Option<Evaluator>,
    /// Batch being filled.
    current: RowQueue,
    /// Last emitted batch; empty with `streams`.
    before: RowQueue,
}

impl ExpressionBatch {
    /// Returns whether an event breaks the condition. If so, restarts the aggregates with this event.
    fn breaks(&mut self, seq: RowId, context: &WindowContext<'_>) -> Result<bool, EvalError> {
        let Some(evaluator) = &mut self.evaluator else { return Ok(false) };
        let event = |seq| TimedRow { seq, time: context.rows.time(seq) };
        let arrival = event(seq);
        let first = self.current.front().map_or(arrival, event);
        let view =
            ConditionInput { event: arrival, first, last: arrival, now: context.now, rows: context.rows };
        evaluator.add(&view)?;
        match evaluator.holds(&view) {
            Ok(true) => Ok(false),
            Ok(false) => evaluator.restart(&view).map(|()| true),
            Err(failure) => {
                evaluator.remove(&view)?;
                Err(failure)
            }
        }
    }

    fn includes(&self, seq: RowId, context: &WindowContext<'_>) -> Result<bool, EvalError> {
        self.includes.as_ref().map_or(Ok(false), |expr| Ok(context.eval(expr, seq)?.is_true()))
    }

    fn collect(&mut self, seq: RowId, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        if !self.breaks(seq, context)? {
            self.current.push(seq);
            return Ok(());
        }
        let now = context.now;
        context.out.all_expired(&self.before, now);
        self.before.clear();
        if self.current.is_empty() {
            // the event alone breaks the condition, so it belongs to no batch
            context.out.expired(seq, now);
            context.out.current(seq, now);
        } else {
            for held in self.current.iter() {
                context.out.current(held, now);
            }
            mem::swap(&mut self.current, &mut self.before);
            if self.includes(seq, context)? {
                context.out.current(seq, context.rows.time(seq));
                self.before.push(seq);
            } else {
                self.current.push(seq);
            }
        }
        context.out.end_chunk();
        Ok(())
    }

    /// Processes a row with `streams`. `arrives` is false for a row that was emitted earlier and is evaluated
    /// again under a new condition: it can only expire.
    fn process_streaming(
        &mut self,
        seq: RowId,
        arrives: bool,
        context: &mut WindowContext<'_>,
    ) -> Result<(), EvalError> {
        let (now, time) = (context.now, context.rows.time(seq));
        // a row that was emitted earlier expires with its own time if it breaks the new condition itself
        let leaves = if arrives { now } else { time };
        let breaks = self.breaks(seq, context)?;
        let current = |context: &mut WindowContext<'_>, time| {
            if arrives {
                context.out.current(seq, time);
            }
        };
        if !breaks {
            self.current.push(seq);
            current(context, time);
        } else if self.current.is_empty() {
            context.out.expired(seq, leaves);
            current(context, now);
        } else if self.includes(seq, context)? {
            current(context, time);
            context.out.all_expired(&self.current, now);
            context.out.expired(seq, leaves);
            self.current.clear();
        } else {
            context.out.all_expired(&self.current, now);
            current(context, time);
            self.current.clear();
            self.current.push(seq);
        }
        Ok(())
    }
}

impl Window for ExpressionBatch {
    fn process(&mut self, rows: Range<RowId>, context: &mut WindowContext<'_>) -> Result<(), EvalError> {
        for seq in rows {
            if let Some(evaluator) = self.origin.changed(seq, self.evaluator.as_ref(), context.rows)? {
                // a new condition is applied to the batch being filled as if its rows arrived again
                self.evaluator = Some(evaluator);
                for held in mem::take(&mut self.current).iter() {
                    if self.streams {
                        self.process_streaming(held, false, context)?;
                    } else {
                        self.collect(held, context)?;
                    }
                }
            }
            if self.streams {
                self.process_streaming(seq, true, context)?;
                context.out.end_chunk();
            } else {
                self.collect(seq, context)?;
            }
        }
        Ok(())
    }

    fn is_time_driven(&self) -> bool {
        false
    }

    fn rows_in_order(&self) -> Option<&RowQueue> {
        Some(&self.current)
    }

    fn retained_rows(&self) -> RetainedRows {
        RetainedRows::from_oldest(self.before.front().or(self.current.front()))
    }

    fn status(&self, look: &StatusContext<'_>) -> WindowStatus {
        let between = look.time_range_of_ends(self.current.front(), self.current.iter().next_back());
        let waits_for = format!(
            "an event with which `{}` is not true any more",
            self.evaluator.as_ref().map_or("the condition that events bring along", Evaluator::text)
        );
        WindowStatus::new(self.current.len(), between, waits_for)
    }

    fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        out.state(&(dynamic_condition::save(self.evaluator.as_ref()), &self.current, &self.before))
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let (evaluator, current, before): (SavedEvaluator, RowQueue, RowQueue) = from.state()?;
        self.evaluator = self.origin.restore(&evaluator).map_err(|e| from.damaged(e.to_string()))?;
        (self.current, self.before) = (current, before);
        Ok(())
    }
}
