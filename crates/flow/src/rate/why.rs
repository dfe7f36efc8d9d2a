//! What an output rate holds back.

use super::{Rate, RatePlan, Which};
use crate::why::{RateState, when};

impl Rate {
    /// What waits, and for what.
    pub(crate) fn why(&self, written: &str) -> RateState {
        let held = self.held.len() as u64 + self.waiting.len();
        let due = self.timers.next();
        let round = |due: Option<i64>| match due {
            Some(due) => format!("the clock: the round ends at {}", when(due)),
            None => "an event".into(),
        };
        let waits_for = match self.plan {
            RatePlan::Events(Which::All, n) => more(n.saturating_sub(held), "the round is full"),
            RatePlan::Events(Which::Last, n) => more(n.saturating_sub(self.count), "the round is full"),
            RatePlan::Events(Which::First, n) => match (self.groups.len(), self.groups.values().next()) {
                (0, _) => "an event: the first of a round goes on at once".into(),
                (1, Some(seen)) if *seen > 0 => {
                    more(n.saturating_sub(seen.unsigned_abs()), "the next one goes on")
                }
                (groups, _) => format!("the first event of a round of {n} in one of {groups} groups"),
            },
            RatePlan::Time(Which::First, period) => match self.groups.values().min() {
                None => "an event: the first of a round goes on at once".into(),
                Some(passed) => {
                    format!("the first event from {} on", when(passed.saturating_add(period)))
                }
            },
            RatePlan::Time(Which::All | Which::Last, _) => round(due),
            RatePlan::Snapshot(..) => match due {
                Some(due) => format!("the clock: the next snapshot is at {}", when(due)),
                None => round(None),
            },
        };
        RateState { rate: written.to_owned(), held, due, waits_for }
    }
}

fn more(n: u64, then: &str) -> String {
    match n {
        1 => format!("1 more event, then {then}"),
        n => format!("{n} more events, then {then}"),
    }
}
