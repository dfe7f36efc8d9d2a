//! Patterns and sequences of single events: `every e1=A -> e2=B`, `A, B, C`.
//!
//! They behave as the automaton does with them, faster: no match is shared between steps, so that a match is a few words
//! in a list: the values that later filters and the selection read of it. Conditions on events alone are computed for
//! whole batches; a comparison of an event with a match finds the matches that the event satisfies without looking at the
//! others.

mod columns;
mod emit;
mod fresh;
mod inspect;
mod list;
mod plan;
mod run;
mod save;
mod values;

use std::sync::Arc;

use tidemill_types::FieldType;

use super::inspect::Looked;
use super::matches::Matches;
use super::plan::StatePlan;
use crate::batch::Batch;
use crate::column::Column;
use crate::expr::{EvalContext, EvalError};
use fresh::Fresh;
use list::List;
pub(super) use plan::ChainPlan;
use run::Run;
use values::Values;

/// A chain at work.
pub(super) struct Chain {
    plan: Arc<StatePlan>,
    layout: Arc<ChainPlan>,
    state: State,
}

/// What it has seen.
struct State {
    /// What waits at each step for an event.
    waiting: Box<[List]>,
    /// What came to each step during the event that is worked off.
    fresh: Box<[Fresh]>,
    /// The first step got its first empty match.
    armed: bool,
    /// Texts and objects of matches.
    values: Values,
    /// Matches that are done, and for each event that completed some where they end and what the clock showed.
    done: Vec<u64>,
    done_count: u32,
    ends: Vec<(u32, i64)>,
    work: Work,
}

/// Memory that is used again and again.
#[derive(Default)]
struct Work {
    /// For each step that has such conditions, whether the events of the batch satisfy those that are computed for all.
    masks: Vec<Vec<bool>>,
    found: Vec<u32>,
    /// What matches keep of the event, and which of it is null.
    own: Vec<u64>,
    own_marks: u64,
    /// The last match that ran out of time.
    out: Vec<u64>,
    /// For each step what its conditions read of a match.
    scratch: Vec<Vec<Column>>,
    /// For each step the event by which what waits there was refused, and in a sequence what waited.
    refused: Vec<Refusal>,
}

/// What an event did not fit; for whoever asks why.
#[derive(Default)]
struct Refusal {
    looked: Looked,
    /// The match of a sequence that the event broke, and the event's row.
    broken: Vec<u64>,
    row: usize,
}

impl Chain {
    /// One that has seen nothing.
    pub fn new(plan: Arc<StatePlan>, layout: Arc<ChainPlan>) -> Self {
        let scratch =
            |step: &plan::ChainStep| step.references.iter().map(|(_, ty)| Column::new(*ty)).collect();
        let work = Work {
            masks: vec![vec![]; layout.steps.len()],
            scratch: layout.steps.iter().map(scratch).collect(),
            refused: layout.steps.iter().map(|_| Refusal::default()).collect(),
            ..Work::default()
        };
        let state = State {
            waiting: layout.steps.iter().map(|s| List::new(s.width, s.index.as_ref())).collect(),
            fresh: layout.steps.iter().map(|s| Fresh::new(s.width)).collect(),
            armed: false,
            values: Values::new(layout.has(FieldType::String), layout.has(FieldType::Object)),
            done: vec![],
            done_count: 0,
            ends: vec![],
            work,
        };
        Self { plan, layout, state }
    }

    /// The app starts.
    pub fn start(&mut self) {
        self.state.arm(self.layout.steps[0].every_end.is_some());
    }

    /// Events of one of its streams. Errors: the first failure.
    pub fn events(&mut self, port: usize, batch: &Batch, host: &dyn EvalContext) -> Result<(), EvalError> {
        let (plan, layout, state) = (&self.plan, &self.layout, &mut self.state);
        Run { plan, layout, state, port, batch, host }.events()
    }

    /// The matches that were done since the last call.
    pub fn take_matches(&mut self) -> Option<Matches> {
        emit::take(&self.layout, &mut self.state)
    }
}

/// The time of a match without events.
const NEVER: i64 = -1;

impl State {
    /// An empty match for the first step.
    fn arm(&mut self, again: bool) {
        if (again || !self.armed) && self.fresh[0].is_empty() {
            self.fresh[0].push([NEVER as u64, 0, 0].into_iter());
        }
        self.armed = true;
    }

    /// How many matches are under way.
    fn held(&self) -> usize {
        self.fresh.iter().zip(&self.waiting).map(|(fresh, list)| fresh.len() + list.len()).sum()
    }
}
