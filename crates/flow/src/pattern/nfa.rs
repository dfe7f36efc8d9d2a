//! The automaton: partial matches, and the steps at which they wait.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::inspect::LastEvent;
use super::matches::PatternMatches;
use super::partial_match::{MatchedEvent, PartialMatch, SharedMatch};
use super::plan::{MatchReference, PatternPlan, StepKind};
use super::too_many;
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::eval_error::EvalError;
use crate::expr::{EvalContext, Frame};
use crate::window::TimerQueue;

/// Matcher for every form of pattern and sequence.
pub(super) struct NfaMatcher {
    pub(super) plan: Arc<PatternPlan>,
    pub(super) steps: Vec<StepState>,
    /// Completed matches that were not taken yet.
    matches: PatternMatches,
    /// Current time, milliseconds.
    pub(super) now: i64,
}

/// State of a step.
#[derive(Default)]
pub(super) struct StepState {
    /// Partial matches that reached the step during the current event; not visible to this event.
    pub new_matches: VecDeque<SharedMatch>,
    /// Partial matches that wait for an event.
    pub waiting: VecDeque<SharedMatch>,
    /// Set once the step got its first empty match.
    pub armed: bool,
    /// Set when a counted last step has its minimum: the match completes when an event is next offered to
    /// this step or to the first one.
    pub completes_when_offered: bool,
    /// Set when a counted first step must get an empty match before the next event.
    pub restart_pending: bool,
    /// Set when an absence is complete and will not be matched again.
    pub finished: bool,
    /// Time of the absence check that was last scheduled.
    pub last_check: i64,
    /// Time of the last event that violated the absent side of a logical step; 0 if none did since the last
    /// check.
    pub violated_at: i64,
    /// Due times of the step's absence checks.
    pub timers: TimerQueue,
    /// One row with the values that the filters read of a match.
    scratch: Vec<Column>,
    /// The event that was last offered to the step.
    pub last_event: LastEvent,
    /// The match of a sequence that the current event broke.
    pub broken_match: Option<SharedMatch>,
}

/// The event that is offered to the steps.
pub(super) struct CandidateEvent<'a> {
    pub batch: &'a Batch,
    pub row: usize,
    pub time: i64,
    pub host: &'a dyn EvalContext,
    /// The event as matches store it; created when the first match stores it.
    shared: Option<Arc<MatchedEvent>>,
}

impl CandidateEvent<'_> {
    pub fn share(&mut self) -> Arc<MatchedEvent> {
        let (batch, row, time) = (self.batch, self.row, self.time);
        self.shared
            .get_or_insert_with(|| {
                Arc::new(MatchedEvent { time, values: batch.columns.iter().map(|c| c.get(row)).collect() })
            })
            .clone()
    }
}

impl NfaMatcher {
    /// Creates a matcher in its initial state.
    pub fn new(plan: Arc<PatternPlan>) -> Self {
        let scratch = |references: &[MatchReference]| references.iter().map(|r| Column::new(r.ty)).collect();
        let steps =
            plan.steps.iter().map(|s| StepState { scratch: scratch(&s.references), ..StepState::default() });
        let steps = steps.collect();
        let matches = Self::no_matches(&plan);
        Self { plan, steps, matches, now: 0 }
    }

    fn no_matches(plan: &PatternPlan) -> PatternMatches {
        PatternMatches { batch: Batch::new(plan.columns.iter().map(|r| r.ty)), ..PatternMatches::default() }
    }

    /// Adds the first empty matches and schedules the absences of the first step; called when the app starts.
    pub fn start(&mut self, now: i64) {
        self.now = now;
        for i in 0..self.steps.len() {
            if self.plan.steps[i].is_first {
                self.arm(i);
                self.start_absence_timer(i);
            }
        }
    }

    /// Takes the matches completed since the last call.
    pub fn take_matches(&mut self) -> Option<PatternMatches> {
        let done = !self.matches.batch.is_empty();
        done.then(|| std::mem::replace(&mut self.matches, Self::no_matches(&self.plan)))
    }

    /// Processes the current events of a batch of input stream `port`.
    ///
    /// Errors: a filter failed, or there are too many partial matches.
    pub fn process_batch(
        &mut self,
        port: usize,
        batch: &Batch,
        host: &dyn EvalContext,
    ) -> Result<(), EvalError> {
        let together = self.plan.emits_matches_together(port);
        for (rows, clock) in batch.chunks() {
            for row in rows.filter(|row| batch.kinds[*row] == EventKind::Current) {
                let done = self.process_event(port, batch, row, clock, host);
                self.matches.end_event(self.now, together);
                done?;
            }
        }
        let last = (0..batch.len()).rev().find(|row| batch.kinds[*row] == EventKind::Current);
        for (step, state) in self.plan.steps.iter().zip(&mut self.steps) {
            if let Some(row) = last.filter(|_| step.stream == port) {
                state.last_event.record(batch, row, self.now, 0..batch.columns.len());
            }
        }
        Ok(())
    }

    /// Assigns the matches completed since the last call to one timer.
    pub(super) fn end_timer(&mut self) {
        self.matches.end_event(self.now, false);
    }

    fn process_event(
        &mut self,
        stream: usize,
        batch: &Batch,
        row: usize,
        now: i64,
        host: &dyn EvalContext,
    ) -> Result<(), EvalError> {
        self.now = now;
        let time = batch.times[row];
        self.expire(time);
        if self.plan.sequence {
            (0..self.steps.len()).rev().for_each(|i| self.reset(i));
            (0..self.steps.len()).for_each(|i| self.promote_new_matches(i));
        } else {
            for i in 0..self.steps.len() {
                if self.plan.steps[i].stream == stream {
                    self.promote_new_matches(i);
                }
            }
        }
        let held: usize = self.steps.iter().map(|s| s.new_matches.len() + s.waiting.len()).sum();
        if held >= self.plan.limits.partial_matches_max {
            return Err(too_many(&self.plan.limits));
        }
        if self.plan.sequence {
            self.steps.iter_mut().for_each(|step| step.broken_match = None);
        }
        let mut offer = CandidateEvent { batch, row, time, host, shared: None };
        for i in (0..self.steps.len()).rev() {
            let i = self.plan.step_in_offer_order(i);
            if self.plan.steps[i].stream == stream {
                self.offer(i, &mut offer)?;
            }
        }
        Ok(())
    }

    /// Returns whether a match that is at step `at` exceeds at time `time` the `within` of the pattern, or that of a
    /// part that it has begun and not completed.
    pub(super) fn is_expired(&self, at: usize, record: &PartialMatch, time: i64) -> bool {
        let is_over = |chain: &Vec<Arc<MatchedEvent>>, within: i64| {
            chain.first().is_some_and(|row| row.time.abs_diff(time) > within.unsigned_abs())
        };
        let mut begins = self.plan.steps.iter().zip(&record.slots).take_while(|(step, _)| step.is_first);
        if self.plan.within.is_some_and(|within| begins.any(|(_, chain)| is_over(chain, within))) {
            return true;
        }
        let mut parts = self.plan.parts.iter().filter(|part| (part.first..=part.last).contains(&at));
        parts.any(|part| {
            let second_side = match self.plan.steps[part.first].kind {
                StepKind::Side(side) => side.partner,
                _ => part.first,
            };
            let mut begins = [part.first, second_side].into_iter().map(|step| &record.slots[step]);
            begins.any(|chain| is_over(chain, part.within))
        })
    }

    fn expire(&mut self, time: i64) {
        if self.plan.within.is_none() && self.plan.parts.is_empty() {
            return;
        }
        let in_order = self.plan.parts.is_empty();
        for i in 0..self.steps.len() {
            let mut last = None;
            let mut note = |record: &SharedMatch| {
                let mut inner = record.lock();
                if !inner.expired {
                    inner.expired = true;
                    last = Some(record.clone());
                }
            };
            while let Some(record) =
                self.steps[i].waiting.front().filter(|r| self.is_expired(i, &r.lock(), time))
            {
                note(record);
                self.steps[i].waiting.pop_front();
            }
            let is_out = |r: &SharedMatch| self.is_expired(i, &r.lock(), time);
            // matches wait in the order in which they began, but not in that in which they began a part
            let waiting_out = !in_order && self.steps[i].waiting.iter().any(is_out);
            let new_out = self.steps[i].new_matches.iter().any(is_out);
            if waiting_out {
                let all = std::mem::take(&mut self.steps[i].waiting);
                let (out, kept) = self.split_expired(i, all, time);
                out.iter().for_each(&mut note);
                self.steps[i].waiting = kept;
            }
            if new_out {
                let all = std::mem::take(&mut self.steps[i].new_matches);
                let (out, kept) = self.split_expired(i, all, time);
                out.iter().for_each(&mut note);
                self.steps[i].new_matches = kept;
            }
            if let (Some(record), Some(first)) = (last, self.plan.steps[i].every_in) {
                self.restart_every(first, &record);
                self.promote_new_matches(first);
            }
        }
    }

    /// Splits the matches of step `at` into those that are expired at `time` and the others.
    fn split_expired(
        &self,
        at: usize,
        all: VecDeque<SharedMatch>,
        time: i64,
    ) -> (VecDeque<SharedMatch>, VecDeque<SharedMatch>) {
        all.into_iter().partition(|record| self.is_expired(at, &record.lock(), time))
    }

    /// Adds an empty match to first step `i`, unless it had its only one.
    pub(super) fn arm(&mut self, i: usize) {
        let step = &self.plan.steps[i];
        let absent_next = step.next.is_some_and(|next| self.plan.steps[next].is_absence());
        if self.steps[i].armed && step.every_end.is_none() && !(self.plan.sequence && absent_next) {
            return;
        }
        self.steps[i].armed = true;
        let record = Arc::new(Mutex::new(PartialMatch::empty(self.steps.len())));
        self.enter_step(i, record);
    }

    /// Prepares step `i` of a sequence for the next event: drops the matches that still wait, because the
    /// last event broke them, and adds an empty match to a first step if none is under way.
    pub(super) fn reset(&mut self, i: usize) {
        let plan = self.plan.clone();
        let step = &plan.steps[i];
        if let StepKind::Side(side) = step.kind {
            if side.and && self.steps[i].waiting.len() != self.steps[side.partner].waiting.len() {
                return;
            }
            self.steps[side.partner].waiting.clear();
        }
        self.steps[i].waiting.clear();
        let begins = step.is_first
            && (self.steps[i].new_matches.is_empty() || matches!(step.kind, StepKind::Absent(_)));
        let goes_on =
            || step.every_end.is_none() && step.next.is_some_and(|n| !self.steps[n].waiting.is_empty());
        if begins && !goes_on() {
            self.arm(i);
        }
    }

    /// Makes the matches that reached step `i` during earlier events visible to the next event.
    pub(super) fn promote_new_matches(&mut self, i: usize) {
        if std::mem::take(&mut self.steps[i].restart_pending) {
            self.arm(i);
        }
        let partner = match self.plan.steps[i].kind {
            StepKind::Side(side) => Some(side.partner),
            _ => None,
        };
        for i in std::iter::once(i).chain(partner) {
            let step = &mut self.steps[i];
            if step.new_matches.len() > 1 {
                // empty matches last
                step.new_matches.make_contiguous().sort_by_key(|r| match r.lock().time {
                    -1 => (true, 0),
                    time => (false, time),
                });
            }
            step.waiting.append(&mut step.new_matches);
        }
    }

    /// Adds a match to step `i`.
    pub(super) fn enter_step(&mut self, i: usize, record: SharedMatch) {
        let sequence = self.plan.sequence;
        match self.plan.steps[i].kind {
            StepKind::Stream => self.push_new_match(i, record, sequence),
            StepKind::Count { min, .. } => {
                self.push_new_match(i, record.clone(), sequence);
                if min == 0 && record.lock().slots[i].is_empty() {
                    self.reach_min_count(i, &record);
                }
            }
            StepKind::Side(side) => {
                let sides = [i, side.partner];
                if sides.iter().any(|s| self.steps[*s].finished) {
                    return;
                }
                let start = self.plan.steps[i].is_first;
                let time = record.lock().time;
                for s in sides {
                    self.push_new_match(s, record.clone(), sequence || start);
                    if let (false, Some(wait)) = (start, self.plan.steps[s].absence_duration()) {
                        self.steps[s].timers.schedule(time.saturating_add(wait));
                    }
                }
            }
            StepKind::Absent(wait) => {
                if self.steps[i].finished {
                    return;
                }
                if sequence {
                    self.steps[i].new_matches.clear();
                }
                let time = record.lock().time;
                self.steps[i].new_matches.push_back(record);
                if !self.plan.steps[i].is_first {
                    self.schedule_check(i, time.saturating_add(wait));
                }
            }
        }
    }

    fn push_new_match(&mut self, i: usize, record: SharedMatch, only_first: bool) {
        if !only_first || self.steps[i].new_matches.is_empty() {
            self.steps[i].new_matches.push_back(record);
        }
    }

    pub(super) fn schedule_check(&mut self, i: usize, at: i64) {
        self.steps[i].last_check = at;
        self.steps[i].timers.schedule(at);
    }

    /// Restarts the `every` group that begins with step `first`, with a copy of a match.
    pub(super) fn restart_every(&mut self, first: usize, record: &SharedMatch) {
        let mut copy = record.lock().clone();
        copy.expired = false;
        if let StepKind::Side(side) = self.plan.steps[first].kind {
            let offered_first = if side.is_offered_first() { first } else { side.partner };
            if copy.slots[offered_first].iter().any(|row| row.is_absence()) {
                // An absence filled the side that is offered events first, and the next absence may already be
                // over: time -1 makes it complete at its check. After an absence of the other side, the next
                // round begins at the time of that absence.
                copy.time = -1;
            }
        }
        copy.slots.iter_mut().skip(first).for_each(Vec::clear);
        let time = copy.time;
        let copy = Arc::new(Mutex::new(copy));
        match self.plan.steps[first].kind {
            StepKind::Side(side) => self.steps[side.partner].new_matches.push_back(copy.clone()),
            StepKind::Absent(wait) => self.schedule_check(first, time.saturating_add(wait)),
            _ => {}
        }
        self.steps[first].new_matches.push_back(copy);
    }

    /// Handles a match whose step `i` is satisfied: emits it if the step is the last, and advances it.
    pub(super) fn complete_step(&mut self, i: usize, record: &SharedMatch) {
        if self.plan.steps[i].next.is_none() {
            self.emit_match(&record.lock());
        }
        self.advance(i, record);
        self.restart_sequence(i);
    }

    /// Passes the match to the next step, and restarts the `every` group that ends with step `i`.
    pub(super) fn advance(&mut self, i: usize, record: &SharedMatch) {
        let (next, every) = (self.plan.steps[i].next, self.plan.steps[i].every_end);
        if let Some(next) = next {
            self.enter_step(next, record.clone());
        }
        if let Some(first) = every {
            self.restart_every(first, record);
        }
    }

    /// Restarts a sequence with an optional first step when the second step received an event.
    pub(super) fn restart_sequence(&mut self, i: usize) {
        let first = &self.plan.steps[0];
        if self.plan.sequence && first.next == Some(i) && matches!(first.kind, StepKind::Count { min: 0, .. })
        {
            self.steps[0].restart_pending = true;
        }
    }

    /// Handles a counted step that has its minimum of events: in a pattern, or with a minimum of 0 on entry.
    /// Returns whether the match leaves the step, which it does at the last step.
    pub(super) fn reach_min_count(&mut self, i: usize, record: &SharedMatch) -> bool {
        let last = self.plan.steps[i].next.is_none();
        self.steps[i].completes_when_offered |= last;
        self.advance(i, record);
        last
    }

    pub(super) fn emit_match(&mut self, record: &PartialMatch) {
        let done = &mut self.matches.batch;
        for (column, reference) in done.columns.iter_mut().zip(&self.plan.columns) {
            column.push(record.read(reference));
        }
        done.times.push(record.time);
        done.kinds.push(EventKind::Current);
    }

    /// Returns whether the event satisfies the filters of step `i`, given a match.
    pub(super) fn satisfies_filters(
        &mut self,
        i: usize,
        record: &PartialMatch,
        offer: &CandidateEvent<'_>,
    ) -> Result<bool, EvalError> {
        let step = &self.plan.steps[i];
        if step.filters.is_empty() {
            return Ok(true);
        }
        let scratch = &mut self.steps[i].scratch;
        for (column, reference) in scratch.iter_mut().zip(&step.references) {
            column.truncate(0);
            column.push(record.read(reference));
        }
        let rows = [Some((offer.batch.columns.as_slice(), offer.row)), Some((scratch.as_slice(), 0))];
        let frame = Frame { rows: &rows, time: offer.time, now: self.now, host: offer.host };
        for filter in &step.filters {
            if !filter.is_true(&frame)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests;
