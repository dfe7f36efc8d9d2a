//! What an event does to the partial matches that wait at a step.

use std::sync::Arc;

use super::automaton::{Automaton, Offer};
use super::plan::{Form, LogicalForm};
use super::record::Shared;
use crate::expr::EvalError;

impl Automaton {
    /// Offers an event to all that waits at step `i`, in order.
    ///
    /// Errors: the first failure of a filter; what was not offered the event goes on waiting.
    pub(super) fn offer(&mut self, i: usize, offer: &mut Offer<'_>) -> Result<(), EvalError> {
        if self.steps[i].over && self.plan.steps[i].is_absent() {
            return Ok(());
        }
        let mut list = std::mem::take(&mut self.steps[i].waiting);
        let mut kept = std::collections::VecDeque::new();
        let mut failed = None;
        while let Some(record) = list.pop_front() {
            match self.offer_one(i, &record, offer) {
                Ok(true) => kept.push_back(record),
                Ok(false) => {}
                Err(failure) => {
                    failed = Some(failure);
                    kept.push_back(record);
                    kept.append(&mut list);
                }
            }
        }
        self.steps[i].waiting = kept;
        failed.map_or(Ok(()), Err)
    }

    /// Whether the match goes on waiting at the step.
    fn offer_one(&mut self, i: usize, record: &Shared, offer: &mut Offer<'_>) -> Result<bool, EvalError> {
        let last = self.steps.len() - 1;
        let before = self.steps[last].returned;
        let kept = self.offer_to(i, record, offer)?;
        // a count at the end that needs no event has had enough with the first step
        if i == 0 && last > 0 && !before && std::mem::take(&mut self.steps[last].returned) {
            self.done(&record.lock());
        }
        Ok(kept)
    }

    fn offer_to(&mut self, i: usize, record: &Shared, offer: &mut Offer<'_>) -> Result<bool, EvalError> {
        match self.plan.steps[i].form {
            Form::Stream => {
                if !self.fits(i, &record.lock(), offer)? {
                    if self.plan.sequence {
                        self.steps[i].broken = Some(record.clone());
                        self.begin_anew(i);
                    }
                    return Ok(!self.plan.sequence);
                }
                self.fill(i, record, offer);
                record.lock().time = offer.time;
                self.pass(i, record);
                Ok(false)
            }
            Form::Count { min, max } => self.count(i, record, offer, min, max),
            Form::Side(side) if side.absent.is_some() => self.spoil_side(i, side, record, offer),
            Form::Side(side) => self.side(i, side, record, offer),
            Form::Absent(wait) => self.spoil(i, wait, record, offer),
        }
    }

    fn fill(&self, i: usize, record: &Shared, offer: &mut Offer<'_>) {
        record.lock().slots[i] = vec![offer.kept()];
    }

    fn count(
        &mut self,
        i: usize,
        record: &Shared,
        offer: &mut Offer<'_>,
        min: usize,
        max: Option<usize>,
    ) -> Result<bool, EvalError> {
        let sequence = self.plan.sequence;
        {
            let mut inner = record.lock();
            if inner.slots.iter().skip(i + 1).take(2).any(|chain| !chain.is_empty()) {
                return Ok(false);
            }
            let most = self.plan.limits.collected_max;
            if inner.slots[i].len() >= most {
                return Err(EvalError(format!("a step has collected {most} events; it can hold no more")));
            }
            inner.slots[i].push(offer.kept());
        }
        let fits = self.fits(i, &record.lock(), offer);
        let mut leaves = false;
        if let Ok(true) = fits {
            let collected = {
                let mut inner = record.lock();
                inner.time = offer.time;
                inner.slots[i].len()
            };
            if sequence && collected >= min {
                if let Some(next) = self.plan.steps[i].next {
                    self.add(next, record.clone());
                }
                if Some(collected) != max {
                    self.add(i, record.clone());
                }
            } else if !sequence && collected == min {
                leaves = self.enough(i, record);
            }
            leaves |= collected >= min && Some(collected) == max;
        }
        if std::mem::take(&mut self.steps[i].returned) {
            self.done(&record.lock());
        }
        match fits {
            Ok(true) => Ok(!leaves),
            Ok(false) => {
                record.lock().slots[i].pop();
                Ok(!sequence)
            }
            Err(failure) => {
                record.lock().slots[i].pop();
                Err(failure)
            }
        }
    }

    fn side(
        &mut self,
        i: usize,
        side: LogicalForm,
        record: &Shared,
        offer: &mut Offer<'_>,
    ) -> Result<bool, EvalError> {
        if !side.and && !record.lock().slots[side.partner].is_empty() {
            return Ok(false);
        }
        if !self.fits(i, &record.lock(), offer)? {
            return Ok(!self.plan.sequence);
        }
        self.fill(i, record, offer);
        let proceeds = match (side.and, side.partner_absent) {
            (false, _) => true,
            (true, true) => self.may_proceed(i, side.partner, record),
            (true, false) => !record.lock().slots[side.partner].is_empty(),
        };
        if !proceeds {
            return Ok(false);
        }
        record.lock().time = offer.time;
        // a pattern of nothing but `a and b` is silent when a comes last, as in the reference
        let silent = side.and && side.left && !side.partner_absent && self.steps.len() == 2;
        match silent {
            true => self.forward(i, record),
            false => self.pass(i, record),
        }
        Ok(false)
    }

    /// An event that must not come, beside another step.
    fn spoil_side(
        &mut self,
        i: usize,
        side: LogicalForm,
        record: &Shared,
        offer: &mut Offer<'_>,
    ) -> Result<bool, EvalError> {
        let sequence = self.plan.sequence;
        if !side.and && !record.lock().slots[side.partner].is_empty() {
            return Ok(false);
        }
        if !self.fits(i, &record.lock(), offer)? {
            return Ok(!sequence);
        }
        self.steps[i].spoiled = offer.time;
        if !sequence && i.min(side.partner) == 0 && matches!(side.absent, Some(Some(_))) && side.is_first() {
            // what begins the pattern waits for the next silence
            return Ok(true);
        }
        let stays_open = sequence && side.and && self.plan.steps[i].every_end.is_some();
        if side.absent == Some(None) && !stays_open {
            self.fill(i, record, offer);
        }
        if sequence {
            self.steps[side.partner].waiting.retain(|r| !Arc::ptr_eq(r, record));
        }
        Ok(false)
    }

    /// An event that must not come.
    fn spoil(
        &mut self,
        i: usize,
        wait: i64,
        record: &Shared,
        offer: &mut Offer<'_>,
    ) -> Result<bool, EvalError> {
        if !self.fits(i, &record.lock(), offer)? {
            return Ok(true);
        }
        record.lock().time = offer.time;
        if self.plan.steps[i].start && self.plan.steps[i].every_end == Some(i) {
            self.repeat(i, record);
        }
        self.ask(i, offer.time.saturating_add(wait));
        Ok(false)
    }
}
