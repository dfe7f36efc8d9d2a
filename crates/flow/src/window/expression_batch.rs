//! `expressionBatch('condition' [, include.triggering [, stream.current]])`: the events for which a condition holds
//! together.

use std::mem;
use std::ops::Range;
use std::sync::Arc;

use tidemill_types::FieldType;

use super::build::arity;
use super::condition::{ConditionInput, Evaluator, TimedRow};
use super::dynamic_condition::{self, ConditionSource, SavedEvaluator};
use super::row_queue::RowQueue;
use super::{
    Parameter, RetainedRows, StatusContext, Window, WindowConstructor, WindowContext, WindowInput,
    WindowStatus,
};
use crate::expr::{EvalError, Expr};
use crate::snapshot::{Error, Reader, Writer};
use crate::store::{RowId, RowStore};

pub(super) fn build(parameters: &[Parameter], source: &WindowInput<'_>) -> Result<WindowConstructor, String> {
    arity(parameters, 1..=3, "expressionBatch('condition' [, include.triggering [, stream.current]])")?;
    let origin = ConditionSource::of(&parameters[0], source)?;
    let includes = match parameters.get(1) {
        Some(p) if p.expr.ty == FieldType::Bool => Some(p.expr.clone()),
        Some(p) => return Err(format!("include.triggering is to be a bool, not `{}`", p.text)),
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

/// No reset goes out: totals are brought back by the leavers alone, so they go out whether anybody wants them or not.
struct ExpressionBatch {
    origin: ConditionSource,
    /// Whether an event that breaks the condition belongs to the batch that it ends.
    includes: Option<Expr>,
    /// Events pass at once; only their leaving is in batches.
    streams: bool,
    evaluator: Option<Evaluator>,
    /// The batch being filled.
    current: RowQueue,
    /// The batch that went out; none with `streams`.
    before: RowQueue,
}

impl ExpressionBatch {
    /// Whether an event breaks the condition; then the aggregates begin anew with it.
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
            // it does not fit into any batch
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

    /// `arrives` is not set for an event that had passed and comes once more under a new condition: it can only leave.
    fn process_streaming(
        &mut self,
        seq: RowId,
        arrives: bool,
        context: &mut WindowContext<'_>,
    ) -> Result<(), EvalError> {
        let (now, time) = (context.now, context.rows.time(seq));
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
            context.out.expired(seq, now);
            current(context, now);
        } else if self.includes(seq, context)? {
            current(context, time);
            context.out.all_expired(&self.current, now);
            context.out.expired(seq, now);
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
                // under a new condition the batch being filled comes once more
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

    fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        out.state(&(dynamic_condition::save(self.evaluator.as_ref()), &self.current, &self.before))
    }

    fn restore(&mut self, from: &mut Reader<'_>, _: &RowStore) -> Result<(), Error> {
        let (evaluator, current, before): (SavedEvaluator, RowQueue, RowQueue) = from.state()?;
        self.evaluator = self.origin.restore(&evaluator).map_err(|e| from.damaged(e.0))?;
        (self.current, self.before) = (current, before);
        Ok(())
    }
}
