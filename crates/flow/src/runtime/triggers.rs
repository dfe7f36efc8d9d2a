//! Triggers after downtime.

use super::AppRuntime;
use crate::plan::Trigger;

impl AppRuntime {
    /// Prepares triggers for an advance to `to` after downtime: a trigger that has been due for more than
    /// `standstill` milliseconds fires once, for the last of the instants that it has missed, and then
    /// continues as before.
    ///
    /// Without this call it fires for each of them, which is right if the clock is that of the events.
    pub fn skip_triggers(&mut self, to: i64, standstill: i64) {
        for (next, (_, trigger)) in self.triggers.iter_mut().zip(&self.plan.triggers) {
            let Some(due) = next.filter(|due| to.saturating_sub(*due) > standstill) else { continue };
            *next = trigger.last_until(due, to).or(Some(due));
        }
    }
}

impl Trigger {
    /// Returns the last instant up to `to`; `due` is one that is not later.
    fn last_until(&self, due: i64, to: i64) -> Option<i64> {
        match self {
            Self::Start => None,
            Self::Every(period) => {
                let period = (*period).max(1);
                Some(due.saturating_add((to.saturating_sub(due) / period).saturating_mul(period)))
            }
            Self::Cron(cron) => {
                // go back by growing distances until an instant is found, then forward to the last one
                let mut back = 1_000;
                let mut found = loop {
                    let from = to.saturating_sub(back);
                    if from < due {
                        break due;
                    }
                    match cron.next_after(from).filter(|at| *at <= to) {
                        Some(at) => break at,
                        None => back = back.saturating_mul(2),
                    }
                };
                while let Some(at) = cron.next_after(found).filter(|at| *at <= to) {
                    found = at;
                }
                Some(found)
            }
        }
    }
}
