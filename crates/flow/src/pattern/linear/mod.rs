//! Patterns and sequences of single events: `every e1=A -> e2=B`, `A, B, C`.
//!
//! They behave as the automaton does with them, faster: no match is shared between steps, so that a match is a few words
//! in a list: the values that later filters and the selection read of it. Conditions on events alone are computed for
//! whole batches; a comparison of an event with a match finds the matches that the event satisfies without looking at the
//! others.

mod columnar;
mod emit;
mod inspect;
mod match_list;
mod new_matches;
mod plan;
mod run;
mod save;
mod value_arena;

use std::sync::Arc;

use tidemill_types::FieldType;

use super::inspect::LastEvent;
use super::matches::PatternMatches;
use super::plan::PatternPlan;
use crate::batch::Batch;
use crate::column::Column;
use crate::expr::{EvalContext, EvalError};
use match_list::MatchList;
use new_matches::NewMatches;
pub(super) use plan::LinearPlan;
use run::EventRun;
use value_arena::ValueArena;

/// A chain at work.
pub(super) struct LinearMatcher {
    plan: Arc<PatternPlan>,
    layout: Arc<LinearPlan>,
    state: LinearState,
}

/// What it has seen.
struct LinearState {
    /// What waits at each step for an event.
    waiting: Box<[MatchList]>,
    /// What came to each step during the event that is worked off.
    new_matches: Box<[NewMatches]>,
    /// The first step got its first empty match.
    armed: bool,
    /// Texts and objects of matches.
    values: ValueArena,
    /// Matches that are done, and for each event that completed some where they end and what the clock showed.
    completed: Vec<u64>,
    completed_count: u32,
    ends: Vec<(u32, i64)>,
    scratch: ScratchBuffers,
}

/// Memory that is used again and again.
#[derive(Default)]
struct ScratchBuffers {
    /// For each step that has such conditions, whether the events of the batch satisfy those that are computed for all.
    masks: Vec<Vec<bool>>,
    found: Vec<u32>,
    /// What matches keep of the event, and which of it is null.
    captured: Vec<u64>,
    captured_nulls: u64,
    /// The last match that ran out of time.
    last_expired: Vec<u64>,
    /// For each step what its conditions read of a match.
    condition_inputs: Vec<Vec<Column>>,
    /// For each step the event by which what waits there was refused, and in a sequence what waited.
    rejected: Vec<RejectedEvent>,
}

/// What an event did not fit; for whoever asks why.
#[derive(Default)]
struct RejectedEvent {
    event: LastEvent,
    /// The match of a sequence that the event broke, and the event's row.
    broken_match: Vec<u64>,
    row: usize,
}

impl LinearMatcher {
    /// One that has seen nothing.
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
            completed: vec![],
            completed_count: 0,
            ends: vec![],
            scratch: work,
        };
        Self { plan, layout, state }
    }

    /// The app starts.
    pub fn start(&mut self) {
        self.state.arm(self.layout.steps[0].every_end.is_some());
    }

    /// Events of one of its streams. Errors: the first failure.
    pub fn process_batch(
        &mut self,
        port: usize,
        batch: &Batch,
        host: &dyn EvalContext,
    ) -> Result<(), EvalError> {
        let (plan, layout, state) = (&self.plan, &self.layout, &mut self.state);
        EventRun { plan, layout, state, port, batch, host }.process_batch()
    }

    /// The matches that were done since the last call.
    pub fn take_matches(&mut self) -> Option<PatternMatches> {
        emit::take_matches(&self.layout, &mut self.state)
    }
}

/// The time of a match without events.
const NEVER: i64 = -1;

impl LinearState {
    /// An empty match for the first step.
    fn arm(&mut self, again: bool) {
        if (again || !self.armed) && self.new_matches[0].is_empty() {
            self.new_matches[0].push([NEVER as u64, 0, 0].into_iter());
        }
        self.armed = true;
    }

    /// How many matches are under way.
    fn match_count(&self) -> usize {
        self.new_matches.iter().zip(&self.waiting).map(|(fresh, list)| fresh.len() + list.len()).sum()
    }
}
