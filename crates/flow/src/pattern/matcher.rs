//! Runtime of a pattern or a sequence.

use std::sync::Arc;

use bumpalo::Bump;

use super::inspect::StepStatus;
use super::linear::{LinearMatcher, PatternRowPlan};
use super::matches::PatternMatches;
use super::nfa::NfaMatcher;
use super::plan::PatternPlan;
use crate::columns::batch::Batch;
use crate::columns::row::{ArrivingRow, RowOutput};
use crate::eval_error::EvalError;
use crate::expr::EvalContext;
use crate::select::RowSelect;
use crate::snapshot::{Error, Reader, SnapshotWriter};

/// Runtime of a pattern or a sequence.
///
/// Bounds: partial matches and collected events up to [`PatternLimits`](super::PatternLimits); an event that
/// would exceed them fails.
pub struct PatternMatcher {
    kind: MatcherKind,
}

enum MatcherKind {
    Linear(Box<LinearMatcher>),
    Nfa(Box<NfaMatcher>),
}

impl PatternMatcher {
    /// Creates a matcher in its initial state.
    pub fn new(plan: Arc<PatternPlan>) -> Self {
        let work = match plan.linear_plan().cloned() {
            Some(layout) => MatcherKind::Linear(Box::new(LinearMatcher::new(plan, layout))),
            None => MatcherKind::Nfa(Box::new(NfaMatcher::new(plan))),
        };
        Self { kind: work }
    }

    /// Creates a matcher that uses the automaton even for linear patterns. Slower, with equal results; for
    /// comparison.
    pub fn new_reference(plan: Arc<PatternPlan>) -> Self {
        Self { kind: MatcherKind::Nfa(Box::new(NfaMatcher::new(plan))) }
    }

    /// Starts the pattern; called once when the app starts.
    pub fn start(&mut self, now: i64) {
        match &mut self.kind {
            MatcherKind::Linear(chain) => chain.start(),
            MatcherKind::Nfa(automaton) => automaton.start(now),
        }
    }

    /// Processes the current events of a batch of input stream `port`, row at a time; other rows are ignored.
    ///
    /// Errors: a filter failed, or there are too many partial matches. The events after the failed one are
    /// not processed.
    pub fn process_batch(
        &mut self,
        port: usize,
        batch: &Batch,
        host: &dyn EvalContext,
    ) -> Result<(), EvalError> {
        match &mut self.kind {
            MatcherKind::Linear(chain) => chain.process_batch(port, batch, host),
            MatcherKind::Nfa(automaton) => automaton.process_batch(port, batch, host),
        }
    }

    /// Processes a single event as a batch of one row, and returns the output of the matches that it completes.
    pub(crate) fn process_row<'a>(
        &mut self,
        plan: &'a PatternRowPlan,
        select: &'a RowSelect,
        event: ArrivingRow<'a>,
        arena: &'a Bump,
    ) -> Result<RowOutput<'a>, EvalError> {
        match &mut self.kind {
            MatcherKind::Linear(chain) => chain.process_row(plan, select, event, arena),
            MatcherKind::Nfa(_) => Err(EvalError::internal("the automaton does not process single events")),
        }
    }

    /// Takes the matches completed since the last call.
    pub fn take_matches(&mut self) -> Option<PatternMatches> {
        match &mut self.kind {
            MatcherKind::Linear(chain) => chain.take_matches(),
            MatcherKind::Nfa(automaton) => automaton.take_matches(),
        }
    }

    /// Fires the next timer that is due at `now`. Returns whether there was one.
    pub fn fire_timer(&mut self, now: i64) -> bool {
        match &mut self.kind {
            MatcherKind::Linear(_) => false,
            MatcherKind::Nfa(automaton) => automaton.fire_timer(now),
        }
    }

    /// Returns the due time of the next timer, milliseconds.
    pub fn next_timer(&self) -> Option<i64> {
        match &self.kind {
            MatcherKind::Linear(_) => None,
            MatcherKind::Nfa(automaton) => automaton.next_timer(),
        }
    }

    /// Reports the matches that wait at each step, and why they wait.
    ///
    /// Evaluates the conditions again, on the event of the last batch that was last offered to the step.
    pub fn inspect(&self, host: &dyn EvalContext) -> Vec<StepStatus> {
        match &self.kind {
            MatcherKind::Linear(chain) => chain.inspect(host),
            MatcherKind::Nfa(automaton) => automaton.inspect(host),
        }
    }

    /// Lets the next [`Self::save`] copy the matches, to be written later, if there are at least `matches_min`. Those of the automaton are
    /// written at once.
    pub fn share(&mut self, matches_min: usize) {
        match &mut self.kind {
            MatcherKind::Linear(chain) => chain.share(matches_min),
            MatcherKind::Nfa(_) => {}
        }
    }

    /// Writes the state.
    pub fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        match &self.kind {
            MatcherKind::Linear(chain) => chain.save(out),
            MatcherKind::Nfa(automaton) => automaton.save(out),
        }
    }

    /// Restores a state written by [`Self::save`].
    ///
    /// Errors: the state belongs to another pattern.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        match &mut self.kind {
            MatcherKind::Linear(chain) => chain.restore(from),
            MatcherKind::Nfa(automaton) => automaton.restore(from),
        }
    }
}
