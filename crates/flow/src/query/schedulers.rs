//! The schedulers of a query. If many copies of a query run, each scheduler serves all copies before the next
//! scheduler does.

use super::{Query, QueryPlan};
use crate::columns::batch::Batch;
use crate::eval_error::EvalError;
use crate::expr::EvalContext;
use crate::output_rate::{OutputRateLimiter, OutputRatePlan};
use crate::pattern::PatternPlan;
use crate::processor::{Handler, StatefulHandler};
use crate::window::WindowConstructor;
use crate::window_operator::WindowOperator;

/// A scheduler of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheduler {
    /// Scheduler of the stream processors before the window.
    Before,
    /// Scheduler of the window, of the pattern, or of the left side of a join: first its stream processors,
    /// then its window.
    Input,
    /// Scheduler of the right side of a join.
    Right,
    /// Scheduler of the stream processors after the window.
    After,
    /// Scheduler of the output rate limiter.
    Rate,
}

fn any_has_timers(handlers: &[Handler]) -> bool {
    handlers.iter().any(|handler| matches!(handler, Handler::Stateful(StatefulHandler::Processor(_))))
}

impl Scheduler {
    /// All schedulers in the order in which they are served.
    pub const ALL: [Self; 5] = [Self::Before, Self::Input, Self::Right, Self::After, Self::Rate];
}

impl QueryPlan {
    /// Returns the schedulers that the query needs, in the order in which they are served.
    pub fn schedulers(&self) -> Vec<Scheduler> {
        let clocked =
            |window: &Option<WindowConstructor>| window.as_ref().is_some_and(|make| make().is_time_driven());
        let side = |side: usize| {
            let side = self.join.as_ref().map(|join| &join.sides[side]);
            side.is_some_and(|side| clocked(&side.window) || any_has_timers(&side.handlers))
        };
        let waits = |state: &PatternPlan| state.steps.iter().any(|step| step.absence_duration().is_some());
        let input = clocked(&self.window) || self.state.as_deref().is_some_and(waits) || side(0);
        [
            any_has_timers(&self.before).then_some(Scheduler::Before),
            input.then_some(Scheduler::Input),
            side(1).then_some(Scheduler::Right),
            any_has_timers(&self.after).then_some(Scheduler::After),
            self.rate.as_ref().is_some_and(OutputRatePlan::has_ticks).then_some(Scheduler::Rate),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Query {
    /// Returns when the next timer of a scheduler is due.
    pub fn next_timer_of(&self, scheduler: Scheduler) -> Option<i64> {
        match (scheduler, &self.join) {
            (Scheduler::Before, _) => self.before.due(),
            (Scheduler::After, _) => self.after.due(),
            (Scheduler::Rate, _) => self.rate.as_deref().and_then(OutputRateLimiter::next_timer),
            (Scheduler::Input, Some(join)) => join.next_timer_of(0),
            (Scheduler::Right, Some(join)) => join.next_timer_of(1),
            (Scheduler::Input, None) => match &self.machine {
                Some(machine) => machine.next_timer(),
                None => self.window.as_deref().and_then(WindowOperator::next_timer),
            },
            (Scheduler::Right, None) => None,
        }
    }

    /// Fires the next timer of a scheduler if it is due at `now`; `None` if none is due.
    pub fn fire_timer_of(
        &mut self,
        scheduler: Scheduler,
        now: i64,
        host: &dyn EvalContext,
    ) -> Option<Result<Batch, EvalError>> {
        match scheduler {
            Scheduler::Rate => return self.rate.as_mut()?.fire_timer(now).map(Ok),
            Scheduler::Before => {
                let out = self.before.fire_timer(now, host)?;
                return Some(out.and_then(|out| self.process_handled(&out, host)));
            }
            Scheduler::After => {
                let out = self.after.fire_timer(now, host)?;
                return Some(out.and_then(|out| self.select_events(&out, host)));
            }
            Scheduler::Input | Scheduler::Right => {}
        }
        if let Some(join) = &mut self.join {
            let side = usize::from(scheduler == Scheduler::Right);
            let pairs = join.fire_timer_of(side, now, host)?;
            return Some(pairs.and_then(|pairs| self.select_joined(pairs, host)));
        }
        if let Some(machine) = &mut self.machine {
            return machine.fire_timer(now).then(|| self.select_timer_matches(host));
        }
        let held = self.window.as_mut()?;
        if self.plan.after.is_empty() {
            let done = held.fire_timer_in_place(now)?;
            return Some(done.and_then(|()| self.select_window_output(now, host)));
        }
        let out = held.fire_timer(now)?;
        Some(out.and_then(|out| self.process_after_window(out, host)))
    }

    /// Returns the output of the matches that a timer completed.
    pub(super) fn select_timer_matches(&mut self, host: &dyn EvalContext) -> Result<Batch, EvalError> {
        self.select_matches(host).and_then(|out| self.limit_output(out))
    }
}
