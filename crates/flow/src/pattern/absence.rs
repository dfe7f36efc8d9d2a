//! Absence steps (`not A for t`): timers, and what follows when the absence holds.

use std::sync::Arc;

use super::nfa::NfaMatcher;
use super::partial_match::{MatchedEvent, SharedMatch};
use super::plan::{LogicalStepSide, StepKind};

impl NfaMatcher {
    /// Schedules the check of a first step that is an absence; its duration counts from the start of the app.
    pub(super) fn start_absence_timer(&mut self, i: usize) {
        if let Some(wait) = self.plan.steps[i].absence_duration() {
            self.schedule_check(i, self.now.saturating_add(wait));
        }
    }

    /// Returns the due time of the next timer, milliseconds.
    pub fn next_timer(&self) -> Option<i64> {
        self.steps.iter().filter_map(|step| step.timers.next_due()).min()
    }

    /// Fires the next timer due at `now` of the first step that has one. Returns whether there was one.
    pub fn fire_timer(&mut self, now: i64) -> bool {
        self.now = now;
        let due = (0..self.steps.len()).find_map(|i| Some((i, self.steps[i].timers.pop_due(now)?)));
        let Some((i, due)) = due else { return false };
        if !self.steps[i].finished {
            match self.plan.steps[i].kind {
                StepKind::Absent(wait) => self.absence(i, wait, due),
                StepKind::Side(side) => self.absent_side(i, side, due),
                _ => {}
            }
            self.end_timer();
        }
        true
    }

    fn absence(&mut self, i: usize, wait: i64, due: i64) {
        let plan = self.plan.clone();
        let step = &plan.steps[i];
        let nothing =
            step.is_first && self.steps[i].new_matches.is_empty() && self.steps[i].waiting.is_empty();
        // a sequence without `every` is not tried a second time
        let again = !(plan.sequence && step.every_end.is_none() && self.steps[i].last_check > 0);
        if nothing && again {
            let record = super::partial_match::PartialMatch::empty(self.steps.len());
            self.enter_step(i, Arc::new(parking_lot::Mutex::new(record)));
        } else if plan.sequence && !self.steps[i].new_matches.is_empty() {
            self.reset(i);
        }
        self.promote_new_matches(i);
        let mut passed: Vec<SharedMatch> = Vec::new();
        let asked = self.steps[i].last_check;
        for record in std::mem::take(&mut self.steps[i].waiting) {
            let (out, time) = {
                let inner = record.lock();
                (self.is_expired(i, &inner, due), inner.time)
            };
            if out {
                if let (Some(_), Some(first)) = (step.every_in, step.every_end.filter(|first| *first != i)) {
                    self.restart_every(first, &record);
                }
            } else if due >= if time == -1 { asked } else { time.saturating_add(wait) } {
                record.lock().time = due;
                passed.push(record);
            } else {
                self.steps[i].waiting.push_back(record);
            }
        }
        if let Some(first) = step.every_in {
            self.promote_new_matches(first);
        }
        let none = passed.is_empty();
        for record in passed {
            self.complete_step(i, &record);
            if step.is_first && step.every_end.is_none() {
                self.steps[i].finished = true;
            }
        }
        if self.now > due.saturating_add(wait) {
            self.steps[i].last_check = self.now.saturating_add(wait);
        }
        if none && self.steps[i].last_check < due {
            self.schedule_check(i, due.saturating_add(wait));
        }
    }

    fn absent_side(&mut self, i: usize, side: LogicalStepSide, due: i64) {
        let plan = self.plan.clone();
        let step = &plan.steps[i];
        let Some(wait) = step.absence_duration() else { return };
        let mut none = true;
        if due >= self.steps[i].violated_at.saturating_add(wait) {
            if plan.sequence {
                if !self.steps[i].new_matches.is_empty() {
                    self.reset(i);
                } else if step.is_first && self.steps[i].waiting.is_empty() {
                    let record = super::partial_match::PartialMatch::empty(self.steps.len());
                    self.enter_step(i, Arc::new(parking_lot::Mutex::new(record)));
                }
            }
            self.promote_new_matches(i);
            let mut out = None;
            let mut passed: Vec<SharedMatch> = Vec::new();
            for record in std::mem::take(&mut self.steps[i].waiting) {
                let mut inner = record.lock();
                let since = inner.slots[i].first().map_or(inner.time, |row| row.time);
                if self.is_expired(i, &inner, due) {
                    drop(inner);
                    out = Some(record);
                } else if due < since.saturating_add(wait) {
                    drop(inner);
                    self.steps[i].waiting.push_back(record);
                } else {
                    let other = !inner.slots[side.partner].is_empty();
                    if !other {
                        // the absence fills this side
                        inner.slots[i].push(Arc::new(MatchedEvent { time: due, values: Box::default() }));
                    }
                    let passes = other == side.and;
                    drop(inner);
                    if passes {
                        passed.push(record);
                    }
                }
            }
            if let (Some(record), Some(first)) = (out, step.every_in) {
                self.restart_every(first, &record);
                self.promote_new_matches(first);
            }
            none = passed.is_empty();
            for record in passed {
                record.lock().time = due;
                self.complete_step(i, &record);
                if step.is_first && step.every_end.is_none() {
                    self.steps[i].finished = true;
                    if !side.and && side.partner_absent {
                        self.steps[side.partner].finished = true;
                    }
                }
            }
            self.steps[i].violated_at = 0;
        }
        if step.every_end.is_some() || none && step.is_first {
            let from = match self.steps[i].violated_at {
                0 => self.now,
                spoiled => spoiled,
            };
            self.steps[i].timers.schedule(from.saturating_add(wait));
        }
    }

    /// Returns whether a match may proceed from step `i`, whose partner in the logical step is the absence
    /// `absent`.
    pub(super) fn may_proceed(&mut self, i: usize, absent: usize, record: &SharedMatch) -> bool {
        let every = self.plan.steps[i].every_end.is_some();
        let spoiled = self.steps[absent].violated_at > 0;
        if self.plan.sequence && !every && spoiled {
            return false;
        }
        let filled = !record.lock().slots[absent].is_empty();
        match self.plan.steps[absent].absence_duration() {
            Some(_) => filled,
            None if !every => !filled,
            None => {
                if spoiled {
                    self.steps[absent].violated_at = 0;
                    self.arm(absent);
                }
                !spoiled
            }
        }
    }
}
