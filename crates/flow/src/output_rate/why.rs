//! Status report of an output rate limiter.

use super::{OutputRateLimiter, OutputRatePlan, RateSelection};
use crate::columns::value::format_time;
use crate::explain::OutputRateReport;

impl OutputRateLimiter {
    /// Reports the pending events and what the limiter waits for.
    pub(crate) fn why(&self, written: &str) -> OutputRateReport {
        let held = self.buffered.len() as u64 + self.pending.len();
        let due = self.timers.next_due();
        let round = |due: Option<i64>| match due {
            Some(due) => format!("the clock: the round ends at {}", format_time(due)),
            None => "an event".into(),
        };
        let waits_for = match self.plan {
            OutputRatePlan::Events(RateSelection::All, n) => {
                more(n.saturating_sub(held), "the round is full")
            }
            OutputRatePlan::Events(RateSelection::Last, n) => {
                more(n.saturating_sub(self.count), "the round is full")
            }
            OutputRatePlan::Events(RateSelection::First, n) => {
                match (self.groups.len(), self.groups.values().next()) {
                    (0, _) => "an event: the first of a round goes on at once".into(),
                    (1, Some(seen)) if *seen > 0 => {
                        more(n.saturating_sub(seen.unsigned_abs()), "the next one goes on")
                    }
                    (groups, _) => format!("the first event of a round of {n} in one of {groups} groups"),
                }
            }
            OutputRatePlan::Time(RateSelection::First, period) => match self.groups.values().min() {
                None => "an event: the first of a round goes on at once".into(),
                Some(passed) => {
                    format!("the first event from {} on", format_time(passed.saturating_add(period)))
                }
            },
            OutputRatePlan::Time(RateSelection::All | RateSelection::Last, _) => round(due),
            OutputRatePlan::Snapshot(..) => match due {
                Some(due) => format!("the clock: the next snapshot is at {}", format_time(due)),
                None => round(None),
            },
        };
        OutputRateReport { rate: written.to_owned(), held, due, waits_for }
    }
}

fn more(n: u64, then: &str) -> String {
    match n {
        1 => format!("1 more event, then {then}"),
        n => format!("{n} more events, then {then}"),
    }
}
