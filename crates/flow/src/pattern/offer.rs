//! Transitions of the partial matches at a step when an event is offered.

use std::sync::Arc;

use super::nfa::{CandidateEvent, NfaMatcher};
use super::partial_match::SharedMatch;
use super::plan::{LogicalStepSide, StepKind};
use crate::eval_error::EvalError;

impl NfaMatcher {
    /// Offers an event to the matches that wait at step `i`, in order.
    ///
    /// Errors: the first failure of a filter; the failed match and those after it keep waiting.
    pub(super) fn offer(&mut self, i: usize, offer: &mut CandidateEvent<'_>) -> Result<(), EvalError> {
        if self.steps[i].finished && self.plan.steps[i].is_absence() {
            return Ok(());
        }
        let mut list = std::mem::take(&mut self.steps[i].waiting);
        let mut kept = std::collections::VecDeque::new();
        let mut failed = None;
        while let Some(record) = list.pop_front() {
            match self.offer_match(i, &record, offer) {
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

    /// Offers the event to one match. Returns whether the match keeps waiting at the step.
    fn offer_match(
        &mut self,
        i: usize,
        record: &SharedMatch,
        offer: &mut CandidateEvent<'_>,
    ) -> Result<bool, EvalError> {
        let last = self.steps.len() - 1;
        let before = self.steps[last].completes_when_offered;
        let kept = self.match_step(i, record, offer)?;
        // a last step with a minimum count of 0 is satisfied together with the first step
        if i == 0 && last > 0 && !before && std::mem::take(&mut self.steps[last].completes_when_offered) {
            self.emit_match(&record.lock());
        }
        Ok(kept)
    }

    fn match_step(
        &mut self,
        i: usize,
        record: &SharedMatch,
        offer: &mut CandidateEvent<'_>,
    ) -> Result<bool, EvalError> {
        match self.plan.steps[i].kind {
            StepKind::Stream => {
                if !self.satisfies_filters(i, &record.lock(), offer)? {
                    if self.plan.sequence {
                        self.steps[i].broken_match = Some(record.clone());
                        self.restart_sequence(i);
                    }
                    return Ok(!self.plan.sequence);
                }
                self.set_event(i, record, offer);
                record.lock().time = offer.time;
                self.complete_step(i, record);
                Ok(false)
            }
            StepKind::Count { min, max } => self.match_count(i, record, offer, min, max),
            StepKind::Side(side) if side.absent.is_some() => self.violate_absent_side(i, side, record, offer),
            StepKind::Side(side) => self.match_logical_side(i, side, record, offer),
            StepKind::Absent(wait) => self.violate_absence(i, wait, record, offer),
        }
    }

    fn set_event(&self, i: usize, record: &SharedMatch, offer: &mut CandidateEvent<'_>) {
        record.lock().slots[i] = vec![offer.share()];
    }

    fn match_count(
        &mut self,
        i: usize,
        record: &SharedMatch,
        offer: &mut CandidateEvent<'_>,
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
                return Err(EvalError::limit("pattern step", most, "collected events"));
            }
            inner.slots[i].push(offer.share());
        }
        let fits = self.satisfies_filters(i, &record.lock(), offer);
        let mut leaves = false;
        if let Ok(true) = fits {
            let collected = {
                let mut inner = record.lock();
                inner.time = offer.time;
                inner.slots[i].len()
            };
            if sequence && collected >= min {
                if let Some(next) = self.plan.steps[i].next {
                    self.enter_step(next, record.clone());
                }
                if Some(collected) != max {
                    self.enter_step(i, record.clone());
                }
            } else if !sequence && collected == min {
                leaves = self.reach_min_count(i, record);
            }
            leaves |= collected >= min && Some(collected) == max;
        }
        if std::mem::take(&mut self.steps[i].completes_when_offered) {
            self.emit_match(&record.lock());
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

    fn match_logical_side(
        &mut self,
        i: usize,
        side: LogicalStepSide,
        record: &SharedMatch,
        offer: &mut CandidateEvent<'_>,
    ) -> Result<bool, EvalError> {
        if !side.and && !record.lock().slots[side.partner].is_empty() {
            return Ok(false);
        }
        if !self.satisfies_filters(i, &record.lock(), offer)? {
            return Ok(!self.plan.sequence);
        }
        self.set_event(i, record, offer);
        let proceeds = match (side.and, side.partner_absent) {
            (false, _) => true,
            (true, true) => self.may_proceed(i, side.partner, record),
            (true, false) => !record.lock().slots[side.partner].is_empty(),
        };
        if !proceeds {
            return Ok(false);
        }
        record.lock().time = offer.time;
        // as in Siddhi 5.1, a pattern that is only `a and b` emits nothing when `a` comes last
        let silent = side.and && side.left && !side.partner_absent && self.steps.len() == 2;
        match silent {
            true => self.advance(i, record),
            false => self.complete_step(i, record),
        }
        Ok(false)
    }

    /// Handles an event of the absent side of a logical step. Returns whether the match keeps waiting at the
    /// step.
    fn violate_absent_side(
        &mut self,
        i: usize,
        side: LogicalStepSide,
        record: &SharedMatch,
        offer: &mut CandidateEvent<'_>,
    ) -> Result<bool, EvalError> {
        let sequence = self.plan.sequence;
        if !side.and && !record.lock().slots[side.partner].is_empty() {
            return Ok(false);
        }
        if !self.satisfies_filters(i, &record.lock(), offer)? {
            return Ok(!sequence);
        }
        self.steps[i].violated_at = offer.time;
        if !sequence
            && i.min(side.partner) == 0
            && matches!(side.absent, Some(Some(_)))
            && side.is_offered_first()
        {
            // at the start of a pattern the match waits for the next absence
            return Ok(true);
        }
        let stays_open = sequence && side.and && self.plan.steps[i].every_end.is_some();
        if side.absent == Some(None) && !stays_open {
            self.set_event(i, record, offer);
        }
        if sequence {
            self.steps[side.partner].waiting.retain(|r| !Arc::ptr_eq(r, record));
        }
        Ok(false)
    }

    /// Handles an event of an absence step. Returns whether the match keeps waiting at the step.
    fn violate_absence(
        &mut self,
        i: usize,
        wait: i64,
        record: &SharedMatch,
        offer: &mut CandidateEvent<'_>,
    ) -> Result<bool, EvalError> {
        if !self.satisfies_filters(i, &record.lock(), offer)? {
            return Ok(true);
        }
        record.lock().time = offer.time;
        if self.plan.steps[i].is_first && self.plan.steps[i].every_end == Some(i) {
            self.restart_every(i, record);
        }
        self.schedule_check(i, offer.time.saturating_add(wait));
        Ok(false)
    }
}
