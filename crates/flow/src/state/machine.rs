//! A pattern or a sequence at work.

use std::sync::Arc;

use super::automaton::Automaton;
use super::chain::Chain;
use super::inspect::StepReport;
use super::matches::Matches;
use super::plan::StatePlan;
use crate::batch::Batch;
use crate::expr::{EvalContext, EvalError};
use crate::snapshot::{Error, Reader, Writer};

/// A pattern or a sequence at work.
///
/// Bounds: partial matches and collected events up to the plan's [`Limits`](super::Limits); an event that would take it
/// beyond fails.
pub struct Machine {
    work: Work,
}

enum Work {
    Chain(Box<Chain>),
    Automaton(Box<Automaton>),
}

impl Machine {
    /// One that has seen nothing.
    pub fn new(plan: Arc<StatePlan>) -> Self {
        let work = match plan.chain().cloned() {
            Some(layout) => Work::Chain(Box::new(Chain::new(plan, layout))),
            None => Work::Automaton(Box::new(Automaton::new(plan))),
        };
        Self { work }
    }

    /// One that has no shortcut for patterns of single events: slower, with the same results, to compare with.
    pub fn without_shortcuts(plan: Arc<StatePlan>) -> Self {
        Self { work: Work::Automaton(Box::new(Automaton::new(plan))) }
    }

    /// The app starts.
    pub fn start(&mut self, now: i64) {
        match &mut self.work {
            Work::Chain(chain) => chain.start(),
            Work::Automaton(automaton) => automaton.start(now),
        }
    }

    /// Events of one of its streams, number `port`; each is taken on its own, and of those that arrive only.
    ///
    /// Errors: a filter failed, or there are too many partial matches. What came behind that event was not taken.
    pub fn events(&mut self, port: usize, batch: &Batch, host: &dyn EvalContext) -> Result<(), EvalError> {
        match &mut self.work {
            Work::Chain(chain) => chain.events(port, batch, host),
            Work::Automaton(automaton) => automaton.events(port, batch, host),
        }
    }

    /// The matches that were done since the last call.
    pub fn take_matches(&mut self) -> Option<Matches> {
        match &mut self.work {
            Work::Chain(chain) => chain.take_matches(),
            Work::Automaton(automaton) => automaton.take_matches(),
        }
    }

    /// Runs the next of its timers that is due at `now`; whether there was one.
    pub fn timer(&mut self, now: i64) -> bool {
        match &mut self.work {
            Work::Chain(_) => false,
            Work::Automaton(automaton) => automaton.timer(now),
        }
    }

    /// When the next of its timers is due.
    pub fn next_timer(&self) -> Option<i64> {
        match &self.work {
            Work::Chain(_) => None,
            Work::Automaton(automaton) => automaton.next_timer(),
        }
    }

    /// What waits at each step, and why it goes on waiting.
    ///
    /// The conditions are computed anew for this, on the last event of the last batch that the step was offered.
    pub fn inspect(&self, host: &dyn EvalContext) -> Vec<StepReport> {
        match &self.work {
            Work::Chain(chain) => chain.inspect(host),
            Work::Automaton(automaton) => automaton.inspect(host),
        }
    }

    /// Writes its state.
    pub fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        match &self.work {
            Work::Chain(chain) => chain.save(out),
            Work::Automaton(automaton) => automaton.save(out),
        }
    }

    /// Takes a saved state back.
    ///
    /// Errors: it is none of this pattern.
    pub fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        match &mut self.work {
            Work::Chain(chain) => chain.restore(from),
            Work::Automaton(automaton) => automaton.restore(from),
        }
    }
}
