//! What waits in a chain, for whoever asks.

use super::list::TIME;
use super::plan::{Capture, Read};
use super::run::read_word;
use super::{Chain, NEVER};
use crate::column::Column;
use crate::expr::EvalContext;
use crate::state::inspect::{Partial, StepReport, name_of, step_name};
use crate::state::plan::{Reference, Which};

impl Chain {
    /// What waits at each step.
    pub fn inspect(&self, host: &dyn EvalContext) -> Vec<StepReport> {
        (0..self.layout.steps.len()).map(|i| self.inspect_step(i, host)).collect()
    }

    fn inspect_step(&self, i: usize, host: &dyn EvalContext) -> StepReport {
        let (list, fresh) = (&self.state.waiting[i], &self.state.fresh[i]);
        let refusal = &self.state.work.refused[i];
        let broken = Some(refusal.broken.as_slice()).filter(|words| !words.is_empty());
        let refused = broken.or(list.iter().next_back()).and_then(|found| {
            let columns = self.layout.steps[i].references.iter().map(|(read, ty)| {
                let mut column = Column::new(*ty);
                column.push(read_word(&self.layout, &self.state.values, found, *read, *ty));
                column
            });
            refusal.looked.refused(&self.plan, i, &columns.collect::<Vec<_>>(), host)
        });
        let newest = fresh.iter().next_back().or(list.iter().next_back());
        StepReport {
            step: step_name(&self.plan, i),
            waiting: list.len() + fresh.len(),
            due: None,
            newest: newest.map(|found| self.partial(i, found)),
            refused,
        }
    }

    fn partial(&self, i: usize, found: &[u64]) -> Partial {
        let value = |(at, capture): (usize, &Capture)| {
            let Capture { step, what, ty } = *capture;
            let name = name_of(&self.plan, &Reference { step, which: Which::Newest, what, ty });
            (name, read_word(&self.layout, &self.state.values, found, Read::Capture(at), ty))
        };
        let kept = self.layout.captures.iter().enumerate().take(self.layout.steps[i].width);
        Partial {
            time: Some(found[TIME] as i64).filter(|time| *time != NEVER),
            collected: 0,
            values: kept.map(value).collect(),
        }
    }
}
