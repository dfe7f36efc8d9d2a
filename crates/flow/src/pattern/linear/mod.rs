//! Linear patterns and sequences, whose steps are single events: `every e1=A -> e2=B`, `A, B, C`.
//!
//! Results are those of the automaton, but faster. No match is shared between steps, so a match is a few
//! words in a list: the values that later filters and the selection read of it. Conditions on events alone
//! are evaluated for whole batches. A comparison of an event with a match uses an index to find the matches
//! that the event satisfies.

mod columnar;
mod emit;
mod inspect;
mod match_list;
mod new_matches;
mod plan;
mod row;
mod run;
mod save;
mod value_arena;

use std::sync::Arc;

use tidemill_types::FieldType;

use super::inspect::LastEvent;
use super::matches::PatternMatches;
use super::plan::PatternPlan;
use crate::columns::batch::Batch;
use crate::columns::column::Column;
use crate::eval_error::EvalError;
use crate::expr::EvalContext;
use match_list::MatchList;
use new_matches::NewMatches;
pub(super) use plan::LinearPlan;
pub(crate) use row::PatternRowPlan;
use run::EventRun;
use value_arena::ValueArena;

/// Matcher of a linear pattern.
pub(super) struct LinearMatcher {
    plan: Arc<PatternPlan>,
    layout: Arc<LinearPlan>,
    state: LinearState,
}

/// Matches under way, completed matches and scratch memory.
struct LinearState {
    /// Matches that wait at each step for an event.
    waiting: Box<[MatchList]>,
    /// Matches that reached each step during the current event; they become visible to the next event.
    new_matches: Box<[NewMatches]>,
    /// Set once the first step got its first empty match.
    armed: bool,
    /// Strings and objects of matches.
    values: ValueArena,
    /// Number of matches from which a checkpoint writes a copy of them later.
    copied_from: usize,
    /// Completed matches as words, their number, and in `ends`, for each event that completed some, the
    /// number of matches up to and including its own, and its clock.
    completed: Vec<u64>,
    completed_count: u32,
    ends: Vec<(u32, i64)>,
    scratch: ScratchBuffers,
}

/// Buffers that are reused between events.
#[derive(Default)]
struct ScratchBuffers {
    /// For each step, whether the events of the batch satisfy the step's vectorized conditions; empty for a
    /// step without any.
    masks: Vec<Vec<bool>>,
    found: Vec<u32>,
    /// Values that matches capture of the current event, and the marks of those that are null.
    captured: Vec<u64>,
    captured_nulls: u64,
    /// The match that expired last.
    last_expired: Vec<u64>,
    /// For each step, one row with the values that its conditions read of a match.
    condition_inputs: Vec<Vec<Column>>,
    /// For each step, the last event that its matches rejected.
    rejected: Vec<RejectedEvent>,
}

/// An event that a step rejected, recorded for reports on why nothing matches.
#[derive(Default)]
struct RejectedEvent {
    event: LastEvent,
    /// The match of a sequence that the event broke, and the event's row; empty if none.
    broken_match: Vec<u64>,
    row: usize,
}

impl LinearMatcher {
    /// Creates a matcher in its initial state.
    pub fn new(plan: Arc<PatternPlan>, layout: Arc<LinearPlan>) -> Self {
        let scratch =
            |step: &plan::LinearStep| step.references.iter().map(|(_, ty)| Column::new(*ty)).collect();
        let work = ScratchBuffers {
            masks: vec![vec![]; layout.steps.len()],
            condition_inputs: layout.steps.iter().map(scratch).collect(),
            rejected: layout.steps.iter().map(|_| RejectedEvent::default()).collect(),
            ..ScratchBuffers::default()
        };
        let state = LinearState {
            waiting: layout.steps.iter().map(|s| MatchList::new(s.width, s.index.as_ref())).collect(),
            new_matches: layout.steps.iter().map(|s| NewMatches::new(s.width)).collect(),
            armed: false,
            values: ValueArena::new(
                layout.captures_type(FieldType::String),
                layout.captures_type(FieldType::Object),
            ),
            copied_from: usize::MAX,
            completed: vec![],
            completed_count: 0,
            ends: vec![],
            scratch: work,
        };
        Self { plan, layout, state }
    }

    /// Adds the first empty match; called when the app starts.
    pub fn start(&mut self) {
        self.state.arm(self.layout.steps[0].every_end.is_some());
    }

    /// Processes a batch of events of input stream `port`. Errors: the first failure of a condition.
    pub fn process_batch(
        &mut self,
        port: usize,
        batch: &Batch,
        host: &dyn EvalContext,
    ) -> Result<(), EvalError> {
        let (plan, layout, state) = (&self.plan, &self.layout, &mut self.state);
        EventRun { plan, layout, state, port, batch, host }.process_batch()
    }

    /// Takes the matches completed since the last call.
    pub fn take_matches(&mut self) -> Option<PatternMatches> {
        emit::take_matches(&self.layout, &mut self.state)
    }
}

/// Time of a match without events.
const NEVER: i64 = -1;

impl LinearState {
    /// Adds an empty match to the first step, at most once unless `again` is set.
    fn arm(&mut self, again: bool) {
        if (again || !self.armed) && self.new_matches[0].is_empty() {
            self.new_matches[0].push([NEVER as u64, 0, 0].into_iter());
        }
        self.armed = true;
    }

    /// Returns the number of partial matches.
    fn match_count(&self) -> usize {
        self.new_matches.iter().zip(&self.waiting).map(|(fresh, list)| fresh.len() + list.len()).sum()
    }
}
