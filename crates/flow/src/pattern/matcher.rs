//! A pattern or a sequence at work.

use std::sync::Arc;

use super::inspect::StepStatus;
use super::linear::LinearMatcher;
use super::matches::PatternMatches;
use super::nfa::NfaMatcher;
use super::plan::PatternPlan;
use crate::batch::Batch;
use crate::expr::{EvalContext, EvalError};
use crate::snapshot::{Error, Reader, Writer};

/// A pattern or a sequence at work.
///
/// Bounds: partial matches and collected events up to the plan's [`Limits`](super::PatternLimits); an event that would take it
/// beyond fails.
pub struct PatternMatcher {
    kind: MatcherKind,
}

enum MatcherKind {
    Linear(Box<LinearMatcher>),
    Nfa(Box<NfaMatcher>),
}

impl PatternMatcher {
    /// One that has seen nothing.
    pub fn new(plan: Arc<PatternPlan>) -> Self {
        let work = match plan.linear_plan().cloned() {
            Some(layout) => MatcherKind::Linear(Box::new(LinearMatcher::new(plan, layout))),
            None => MatcherKind::Nfa(Box::new(NfaMatcher::new(plan))),
        };
        Self { kind: work }
    }

    /// One that has no shortcut for patterns of single events: slower, with the same results, to compare with.
    pub fn new_reference(plan: Arc<PatternPlan>) -> Self {
        Self { kind: MatcherKind::Nfa(Box::new(NfaMatcher::new(plan))) }
    }

    /// The app starts.
    pub fn start(&mut self, now: i64) {
        match &mut self.kind {
            MatcherKind::Linear(chain) => chain.start(),
            MatcherKind::Nfa(automaton) => automaton.start(now),
        }
    }

    /// Events of one of its streams, number `port`; each is taken on its own, and of those that arrive only.
    ///
    /// Errors: a filter failed, or there are too many partial matches. What came behind that event was not taken.
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

    /// The matches that were done since the last call.
    pub fn take_matches(&mut self) -> Option<PatternMatches> {
        match &mut self.kind {
            MatcherKind::Linear(chain) => chain.take_matches(),
            MatcherKind::Nfa(automaton) => automaton.take_matches(),
        }
    }

    /// Runs the next of its timers that is due at `now`; whether there was one.
    pub fn fire_timer(&mut self, now: i64) -> bool {
        match &mut self.kind {
            MatcherKind::Linear(_) => false,
            MatcherKind::Nfa(automaton) => automaton.fire_timer(now),
        }
    }

    /// When the next of its timers is due.
    pub fn next_timer(&self) -> Option<i64> {
        match &self.kind {
            MatcherKind::Linear(_) => None,
            MatcherKind::Nfa(automaton) => automaton.next_timer(),
        }
    }

    /// What waits at each step, and why it goes on waiting.
    ///
    /// The conditions are computed anew for this, on the last event of the last batch that the step was offered.
    pub fn inspect(&self, host: &dyn EvalContext) -> Vec<StepStatus> {
        match &self.kind {
            MatcherKind::Linear(chain) => chain.inspect(host),
            MatcherKind::Nfa(automaton) => automaton.inspect(host),
        }
    }

    /// Writes its state.
    pub fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        match &self.kind {
            MatcherKind::Linear(chain) => chain.save(out),
            MatcherKind::Nfa(automaton) => automaton.save(out),
        }
    }

    /// Takes a saved state back.
    ///
    /// Errors: it is none of this pattern.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        match &mut self.kind {
            MatcherKind::Linear(chain) => chain.restore(from),
            MatcherKind::Nfa(automaton) => automaton.restore(from),
        }
    }
}
