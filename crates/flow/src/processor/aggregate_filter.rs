//! Filters with aggregates over their input events: `[sum(a) < 10]`.

use std::fmt;
use std::sync::Arc;

use serde_json::Value as Json;

use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::eval_error::EvalError;
use crate::expr::{EvalContext, Expr, Frame, INPUT};
use crate::registry::{AggregateCall, Aggregator};

/// A compiled filter. The event is slot 0 of the condition, the values of the aggregates are slot 1.
#[derive(Clone)]
pub struct AggregateFilter {
    /// Condition on an event.
    pub condition: Expr,
    /// The aggregates in the condition.
    pub aggregates: Arc<[AggregateCall]>,
}

impl fmt::Debug for AggregateFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Totals").field("condition", &self.condition).finish_non_exhaustive()
    }
}

/// Runtime state of the aggregates of a filter.
pub(crate) struct AggregateFilterState {
    states: Vec<Box<dyn Aggregator>>,
    values: Vec<Column>,
}

impl AggregateFilter {
    pub(crate) fn initial_state(&self) -> AggregateFilterState {
        AggregateFilterState {
            states: self.aggregates.iter().map(|a| (a.make)()).collect(),
            values: self.aggregates.iter().map(|a| Column::new(a.ty)).collect(),
        }
    }
}

impl AggregateFilterState {
    /// Returns the events that satisfy the condition. Every event is first added to the aggregates, or
    /// removed from them if it is expired. A reset clears them and always passes.
    pub(crate) fn filter(
        &mut self,
        plan: &AggregateFilter,
        input: &Batch,
        host: &dyn EvalContext,
    ) -> Result<Batch, EvalError> {
        let mut out = Batch::new(input.columns.iter().map(Column::ty));
        for (rows, now) in input.chunks() {
            for row in rows {
                let (kind, time) = (input.kinds[row], input.times[row]);
                let source = Some((input.columns.as_slice(), row));
                if kind == EventKind::Reset {
                    self.states.iter_mut().for_each(|s| s.reset());
                    out.push_row(input, row, kind, time);
                    continue;
                }
                self.update(plan, kind, &Frame { rows: &[source], time, now, host })?;
                const { assert!(INPUT == 0, "the event is slot 0") };
                let rows = [source, Some((self.values.as_slice(), 0))];
                if plan.condition.is_true(&Frame { rows: &rows, time, now, host })? {
                    out.push_row(input, row, kind, time);
                }
            }
            out.end_chunk(now);
        }
        Ok(out)
    }

    fn update(
        &mut self,
        plan: &AggregateFilter,
        kind: EventKind,
        frame: &Frame<'_>,
    ) -> Result<(), EvalError> {
        for ((state, call), value) in self.states.iter_mut().zip(&*plan.aggregates).zip(&mut self.values) {
            let args = call.args.iter().map(|a| a.eval(frame)).collect::<Result<Vec<_>, _>>()?;
            match kind {
                EventKind::Expired => state.remove(&args)?,
                _ => state.add(&args)?,
            }
            value.truncate(0);
            value.push(state.value());
        }
        Ok(())
    }

    pub(crate) fn save(&self) -> Json {
        Json::Array(self.states.iter().map(|s| s.save()).collect())
    }

    pub(crate) fn restore(&mut self, saved: &Json) -> Result<(), EvalError> {
        let saved = saved.as_array().filter(|saved| saved.len() == self.states.len());
        let saved = saved.ok_or_else(|| EvalError::state("the saved state does not match this filter"))?;
        self.states.iter_mut().zip(saved).try_for_each(|(state, saved)| state.restore(saved))
    }
}
