//! Absence: what happens when nothing happened.

use std::sync::Arc;

use super::automaton::Automaton;
use super::plan::{Form, LogicalForm};
use super::record::{Row, Shared};

impl Automaton {
    /// A first step that waits for silence counts it from the start of the app.
    pub(super) fn begin_wait(&mut self, i: usize) {
        if let Some(wait) = self.plan.steps[i].wait() {
            self.ask(i, self.now.saturating_add(wait));
        }
    }

    /// When the next of its timers is due.
    pub fn next_timer(&self) -> Option<i64> {
        self.steps.iter().filter_map(|step| step.timers.next_due()).min()
    }

    /// Runs the next of its timers that is due at `now`; whether there was one.
    pub fn timer(&mut self, now: i64) -> bool {
        self.now = now;
        let due = (0..self.steps.len()).find_map(|i| Some((i, self.steps[i].timers.pop_due(now)?)));
        let Some((i, due)) = due else { return false };
        if !self.steps[i].over {
            match self.plan.steps[i].form {
                Form::Absent(wait) => self.silence(i, wait, due),
                Form::Side(side) => self.silent_side(i, side, due),
                _ => {}
            }
            self.end_timer();
        }
        true
    }

    fn silence(&mut self, i: usize, wait: i64, due: i64) {
        let plan = self.plan.clone();
        let step = &plan.steps[i];
        let nothing = step.start && self.steps[i].fresh.is_empty() && self.steps[i].waiting.is_empty();
        // a sequence without `every` is not tried again
        let again = !(plan.sequence && step.every_end.is_none() && self.steps[i].asked > 0);
        if nothing && again {
            let record = super::record::Record::empty(self.steps.len());
            self.add(i, Arc::new(parking_lot::Mutex::new(record)));
        } else if plan.sequence && !self.steps[i].fresh.is_empty() {
            self.reset(i);
        }
        self.renew(i);
        let mut passed: Vec<Shared> = Vec::new();
        let asked = self.steps[i].asked;
        for record in std::mem::take(&mut self.steps[i].waiting) {
            let (out, time) = {
                let inner = record.lock();
                (self.ran_out(&inner, due), inner.time)
            };
            if out {
                if let (Some(_), Some(first)) = (step.every_in, step.every_end.filter(|first| *first != i)) {
                    self.repeat(first, &record);
                }
            } else if due >= if time == -1 { asked } else { time.saturating_add(wait) } {
                record.lock().time = due;
                passed.push(record);
            } else {
                self.steps[i].waiting.push_back(record);
            }
        }
        if let Some(first) = step.every_in {
            self.renew(first);
        }
        let none = passed.is_empty();
        for record in passed {
            self.pass(i, &record);
            if step.start && step.every_end.is_none() {
                self.steps[i].over = true;
            }
        }
        if self.now > due.saturating_add(wait) {
            self.steps[i].asked = self.now.saturating_add(wait);
        }
        if none && self.steps[i].asked < due {
            self.ask(i, due.saturating_add(wait));
        }
    }

    fn silent_side(&mut self, i: usize, side: LogicalForm, due: i64) {
        let plan = self.plan.clone();
        let step = &plan.steps[i];
        let Some(wait) = step.wait() else { return };
        let mut none = true;
        if due >= self.steps[i].spoiled.saturating_add(wait) {
            if plan.sequence {
                if !self.steps[i].fresh.is_empty() {
                    self.reset(i);
                } else if step.start && self.steps[i].waiting.is_empty() {
                    let record = super::record::Record::empty(self.steps.len());
                    self.add(i, Arc::new(parking_lot::Mutex::new(record)));
                }
            }
            self.renew(i);
            let mut out = None;
            let mut passed: Vec<Shared> = Vec::new();
            for record in std::mem::take(&mut self.steps[i].waiting) {
                let mut inner = record.lock();
                let since = inner.slots[i].first().map_or(inner.time, |row| row.time);
                if self.ran_out(&inner, due) {
                    drop(inner);
                    out = Some(record);
                } else if due < since.saturating_add(wait) {
                    drop(inner);
                    self.steps[i].waiting.push_back(record);
                } else {
                    let other = !inner.slots[side.partner].is_empty();
                    if !other {
                        // the silence is what fills this side
                        inner.slots[i].push(Arc::new(Row { time: due, values: Box::default() }));
                    }
                    let passes = other == side.and;
                    drop(inner);
                    if passes {
                        passed.push(record);
                    }
                }
            }
            if let (Some(record), Some(first)) = (out, step.every_in) {
                self.repeat(first, &record);
                self.renew(first);
            }
            none = passed.is_empty();
            for record in passed {
                record.lock().time = due;
                self.pass(i, &record);
                if step.start && step.every_end.is_none() {
                    self.steps[i].over = true;
                    if !side.and && side.partner_absent {
                        self.steps[side.partner].over = true;
                    }
                }
            }
            self.steps[i].spoiled = 0;
        }
        if step.every_end.is_some() || none && step.start {
            let from = match self.steps[i].spoiled {
                0 => self.now,
                spoiled => spoiled,
            };
            self.steps[i].timers.schedule(from.saturating_add(wait));
        }
    }

    /// Whether a match may go on from the side beside absence `absent`.
    pub(super) fn may_proceed(&mut self, i: usize, absent: usize, record: &Shared) -> bool {
        let every = self.plan.steps[i].every_end.is_some();
        let spoiled = self.steps[absent].spoiled > 0;
        if self.plan.sequence && !every && spoiled {
            return false;
        }
        let filled = !record.lock().slots[absent].is_empty();
        match self.plan.steps[absent].wait() {
            Some(_) => filled,
            None if !every => !filled,
            None => {
                if spoiled {
                    self.steps[absent].spoiled = 0;
                    self.arm(absent);
                }
                !spoiled
            }
        }
    }
}
