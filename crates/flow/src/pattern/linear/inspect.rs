//! Reports on the partial matches of a linear pattern.

use super::match_list::TIME;
use super::plan::{Capture, ValueSource};
use super::run::read_word;
use super::{LinearMatcher, NEVER};
use crate::columns::column::Column;
use crate::expr::EvalContext;
use crate::pattern::inspect::{PartialMatchStatus, StepStatus, name_of, step_name};
use crate::pattern::plan::{EventSelector, MatchReference};

impl LinearMatcher {
    /// Returns the status of each step.
    pub fn inspect(&self, host: &dyn EvalContext) -> Vec<StepStatus> {
        (0..self.layout.steps.len()).map(|i| self.inspect_step(i, host)).collect()
    }

    fn inspect_step(&self, i: usize, host: &dyn EvalContext) -> StepStatus {
        let (list, fresh) = (&self.state.waiting[i], &self.state.new_matches[i]);
        let refusal = &self.state.scratch.rejected[i];
        let broken = Some(refusal.broken_match.as_slice()).filter(|words| !words.is_empty());
        let refused = broken.or(list.iter().next_back()).and_then(|found| {
            let columns = self.layout.steps[i].references.iter().map(|(read, ty)| {
                let mut column = Column::new(*ty);
                column.push(read_word(&self.layout, &self.state.values, found, *read, *ty));
                column
            });
            refusal.event.first_failed_condition(&self.plan, i, &columns.collect::<Vec<_>>(), host)
        });
        let newest = fresh.iter().next_back().or(list.iter().next_back());
        StepStatus {
            step: step_name(&self.plan, i),
            waiting: list.len() + fresh.len(),
            due: None,
            newest: newest.map(|found| self.partial_match(i, found)),
            failed_condition: refused,
        }
    }

    fn partial_match(&self, i: usize, found: &[u64]) -> PartialMatchStatus {
        let value = |(at, capture): (usize, &Capture)| {
            let Capture { step, kind: what, ty } = *capture;
            let name = name_of(
                &self.plan,
                &MatchReference { step, selector: EventSelector::Newest, kind: what, ty },
            );
            (name, read_word(&self.layout, &self.state.values, found, ValueSource::Capture(at), ty))
        };
        let kept = self.layout.captures.iter().enumerate().take(self.layout.steps[i].width);
        PartialMatchStatus {
            time: Some(found[TIME] as i64).filter(|time| *time != NEVER),
            collected: 0,
            values: kept.map(value).collect(),
        }
    }
}
