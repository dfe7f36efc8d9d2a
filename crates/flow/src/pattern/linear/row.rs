//! Single events, without columns.

use bumpalo::Bump;
use tidemill_types::FieldType;

use super::LinearMatcher;
use super::match_list::{HEADER_WORDS, MARKS, TIME};
use super::plan::{ComparisonOperand, IndexedComparison, LinearPlan, LinearStep, ValueSource};
use super::run::{CurrentEvent, EventRun, RunEvents};
use super::value_arena::ValueArena;
use crate::catalog::Catalog;
use crate::columns::column::Column;
use crate::columns::row::{ArrivingRow, Row, RowOutput};
use crate::columns::value_ref::ValueRef;
use crate::eval_error::EvalError;
use crate::expr::{EvalContext, NoContext, RowExpr, RowFrame, RowSource, keep};
use crate::pattern::plan::PatternPlan;
use crate::select::RowSelect;

/// A linear pattern compiled for single events.
pub(crate) struct PatternRowPlan {
    steps: Vec<RowStep>,
}

struct RowStep {
    /// Conditions on the event alone.
    conditions: Vec<RowExpr>,
    /// Types of the event's columns.
    types: Vec<FieldType>,
}

impl PatternRowPlan {
    /// Compiles a pattern. Errors: the reason why it needs batches.
    pub(crate) fn of(plan: &PatternPlan, catalog: &Catalog) -> Result<Self, &'static str> {
        let linear = plan.linear_plan().ok_or("a step of its pattern is more than one event")?;
        let step = |step: &LinearStep| {
            let stored = |index: &IndexedComparison| {
                [&index.event, &index.of_match].iter().all(|x| matches!(x, ComparisonOperand::Stored(_)))
            };
            if !step.rest.is_empty() || !step.index.as_ref().is_none_or(stored) {
                return Err("a filter of its pattern is more than comparisons with a value of another event");
            }
            let conditions = step.vectorized.iter().chain(&step.event_only).map(RowExpr::of);
            let attributes = &catalog.streams()[step.stream].attributes;
            Ok(RowStep {
                conditions: conditions
                    .collect::<Option<_>>()
                    .ok_or("a filter of its pattern calls functions")?,
                types: attributes.iter().map(|(_, ty)| *ty).collect(),
            })
        };
        Ok(Self { steps: linear.steps.iter().map(step).collect::<Result<_, _>>()? })
    }
}

/// A single event as input of a run.
#[derive(Clone, Copy)]
struct SingleEvent<'a> {
    values: &'a [ValueRef<'a>],
    plan: &'a PatternRowPlan,
}

impl RunEvents for SingleEvent<'_> {
    #[inline]
    fn value(&self, column: usize, _: usize) -> ValueRef<'_> {
        self.values.get(column).copied().unwrap_or_default()
    }

    fn columns(&self) -> &[Column] {
        // no condition of the plan is evaluated on columns
        &[]
    }

    #[inline]
    fn satisfies(
        &self,
        _: &LinearPlan,
        i: usize,
        _: &[bool],
        _: CurrentEvent,
        _: &dyn EvalContext,
    ) -> Result<bool, EvalError> {
        let frame = RowFrame::of_input(&self.values);
        Ok(self.plan.steps[i].conditions.iter().all(|condition| condition.is_true(&frame)))
    }
}

/// A completed match as input of the selection.
struct CompletedMatch<'m, 'a> {
    words: &'m [u64],
    layout: &'m LinearPlan,
    values: &'m ValueArena,
    arena: &'a Bump,
}

impl<'a> RowSource<'a> for CompletedMatch<'_, 'a> {
    #[inline]
    fn get(&self, column: usize) -> ValueRef<'a> {
        let (source, ty) = self.layout.columns[column];
        match source {
            ValueSource::True => ValueRef::Bool(true),
            ValueSource::Null => ValueRef::Null,
            ValueSource::Capture(at) if self.words[MARKS] >> at & 1 == 1 => ValueRef::Null,
            ValueSource::Capture(at) => {
                keep(&self.values.value_ref(self.words[HEADER_WORDS + at], ty), self.arena)
            }
        }
    }
}

impl LinearMatcher {
    /// Processes a single event and returns the output of the matches that it completes.
    ///
    /// Errors: there are too many partial matches.
    pub fn process_row<'a>(
        &mut self,
        plan: &'a PatternRowPlan,
        select: &'a RowSelect,
        ArrivingRow { port, row, clock }: ArrivingRow<'a>,
        arena: &'a Bump,
    ) -> Result<RowOutput<'a>, EvalError> {
        let state = &mut self.state;
        state.scratch.rejected.iter_mut().for_each(|refusal| refusal.broken_match.clear());
        let batch = SingleEvent { values: row.values, plan };
        let event = CurrentEvent { row: 0, time: row.time, now: clock };
        let mut run =
            EventRun { plan: &self.plan, layout: &self.layout, state, port, batch, host: &NoContext };
        let done = run.process_row(event);
        if done.is_ok() {
            run.record_row(row, clock);
        }
        let state = &mut self.state;
        if state.ends.is_empty() {
            return done.map(|()| RowOutput::NOTHING);
        }
        let (layout, values) = (&*self.layout, &state.values);
        let output = |words| {
            let found = CompletedMatch { words, layout, values, arena };
            Row { values: select.project(&found, arena), time: words[TIME] as i64 }
        };
        let completed = state.completed.chunks_exact(HEADER_WORDS + layout.captures.len());
        // after a failure the matches that it completed are not emitted
        let rows = done.map(|()| &*arena.alloc_slice_fill_iter(completed.map(output)));
        let is_chunk = state.ends.len() == 1;
        state.completed.clear();
        state.completed_count = 0;
        state.ends.clear();
        Ok(RowOutput::Rows { rows: rows?, is_chunk })
    }
}

impl EventRun<'_, SingleEvent<'_>> {
    /// Records the event for reports on why nothing matches.
    fn record_row(&mut self, row: Row<'_>, now: i64) {
        let steps = self.layout.steps.iter().zip(&self.batch.plan.steps);
        for ((step, types), refusal) in steps.zip(&mut self.state.scratch.rejected) {
            if step.stream == self.port && (!self.plan.sequence || !refusal.broken_match.is_empty()) {
                refusal.event.record_row(row, now, &types.types, &step.event_columns);
            }
        }
    }
}
