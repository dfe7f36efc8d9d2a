//! The automaton: partial matches, and where they wait.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use super::inspect::Looked;
use super::matches::Matches;
use super::plan::{Form, Reference, StatePlan};
use super::record::{Record, Row, Shared};
use super::too_many;
use crate::batch::{Batch, Kind};
use crate::column::Column;
use crate::expr::{EvalContext, EvalError, Frame};
use crate::window::TimerQueue;

/// Works off every form of pattern and sequence.
pub(super) struct Automaton {
    pub(super) plan: Arc<StatePlan>,
    pub(super) steps: Vec<StepState>,
    /// The matches that are done and were not taken yet.
    matches: Matches,
    /// The clock.
    pub(super) now: i64,
}

/// What waits at a step.
#[derive(Default)]
pub(super) struct StepState {
    /// Partial matches that came during the event that is worked off.
    pub fresh: VecDeque<Shared>,
    /// Those that wait for an event.
    pub waiting: VecDeque<Shared>,
    /// It got its first empty match.
    pub armed: bool,
    /// A count at the end has had enough: the match is done when an event is offered to it next, or to the first step.
    pub returned: bool,
    /// A counted first step begins anew with the next event.
    pub begin_anew: bool,
    /// An absence that is over for good.
    pub over: bool,
    /// When an absence was last asked to look.
    pub asked: i64,
    /// When an event last spoiled the absent side of a logical step; 0 for not since it was last looked at.
    pub spoiled: i64,
    /// Its scheduler.
    pub timers: TimerQueue,
    /// What its filters read of a match.
    scratch: Vec<Column>,
    /// The last event that it was offered.
    pub looked: Looked,
    /// The match of a sequence that the event broke.
    pub broken: Option<Shared>,
}

/// An event that is offered to steps.
pub(super) struct Offer<'a> {
    pub batch: &'a Batch,
    pub row: usize,
    pub time: i64,
    pub host: &'a dyn EvalContext,
    /// The event as matches keep it, made when the first one does.
    kept: Option<Arc<Row>>,
}

impl Offer<'_> {
    pub fn kept(&mut self) -> Arc<Row> {
        let (batch, row, time) = (self.batch, self.row, self.time);
        self.kept
            .get_or_insert_with(|| {
                Arc::new(Row { time, values: batch.columns.iter().map(|c| c.get(row)).collect() })
            })
            .clone()
    }
}

impl Automaton {
    /// One that has seen nothing.
    pub fn new(plan: Arc<StatePlan>) -> Self {
        let scratch = |references: &[Reference]| references.iter().map(|r| Column::new(r.ty)).collect();
        let steps =
            plan.steps.iter().map(|s| StepState { scratch: scratch(&s.references), ..StepState::default() });
        let steps = steps.collect();
        let matches = Self::no_matches(&plan);
        Self { plan, steps, matches, now: 0 }
    }

    fn no_matches(plan: &StatePlan) -> Matches {
        Matches { batch: Batch::new(plan.columns.iter().map(|r| r.ty)), ..Matches::default() }
    }

    /// The app starts.
    pub fn start(&mut self, now: i64) {
        self.now = now;
        for i in 0..self.steps.len() {
            if self.plan.steps[i].start {
                self.arm(i);
                self.begin_wait(i);
            }
        }
    }

    /// The matches that were done since the last call.
    pub fn take_matches(&mut self) -> Option<Matches> {
        let done = !self.matches.batch.is_empty();
        done.then(|| std::mem::replace(&mut self.matches, Self::no_matches(&self.plan)))
    }

    /// Events of one of its streams.
    ///
    /// Errors: a filter failed, or there are too many partial matches.
    pub fn events(&mut self, port: usize, batch: &Batch, host: &dyn EvalContext) -> Result<(), EvalError> {
        let together = self.plan.goes_on_together(port);
        for (rows, clock) in batch.chunks() {
            for row in rows.filter(|row| batch.kinds[*row] == Kind::Current) {
                let done = self.event(port, batch, row, clock, host);
                self.matches.end_event(self.now, together);
                done?;
            }
        }
        let last = (0..batch.len()).rev().find(|row| batch.kinds[*row] == Kind::Current);
        for (step, state) in self.plan.steps.iter().zip(&mut self.steps) {
            if let Some(row) = last.filter(|_| step.stream == port) {
                state.looked.note(batch, row, self.now, 0..batch.columns.len());
            }
        }
        Ok(())
    }

    /// What was done since the last call was done by one timer.
    pub(super) fn end_timer(&mut self) {
        self.matches.end_event(self.now, false);
    }

    fn event(
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
            (0..self.steps.len()).for_each(|i| self.renew(i));
        } else {
            for i in 0..self.steps.len() {
                if self.plan.steps[i].stream == stream {
                    self.renew(i);
                }
            }
        }
        let held: usize = self.steps.iter().map(|s| s.fresh.len() + s.waiting.len()).sum();
        if held >= self.plan.limits.partial_matches_max {
            return Err(too_many(held, &self.plan.limits));
        }
        if self.plan.sequence {
            self.steps.iter_mut().for_each(|step| step.broken = None);
        }
        let mut offer = Offer { batch, row, time, host, kept: None };
        for i in (0..self.steps.len()).rev() {
            let i = self.plan.sides_in_order(i);
            if self.plan.steps[i].stream == stream {
                self.offer(i, &mut offer)?;
            }
        }
        Ok(())
    }

    /// Whether a match took too long when the time is `time`.
    pub(super) fn ran_out(&self, record: &Record, time: i64) -> bool {
        let Some(within) = self.plan.within else { return false };
        let starts = self.plan.steps.iter().zip(&record.slots).take_while(|(step, _)| step.start);
        starts
            .filter_map(|(_, chain)| chain.first())
            .any(|row| row.time.abs_diff(time) > within.unsigned_abs())
    }

    fn expire(&mut self, time: i64) {
        if self.plan.within.is_none() {
            return;
        }
        for i in 0..self.steps.len() {
            let mut last = None;
            let mut note = |record: &Shared| {
                let mut inner = record.lock();
                if !inner.expired {
                    inner.expired = true;
                    last = Some(record.clone());
                }
            };
            while let Some(record) = self.steps[i].waiting.front().filter(|r| self.ran_out(&r.lock(), time)) {
                note(record);
                self.steps[i].waiting.pop_front();
            }
            if self.steps[i].fresh.iter().any(|r| self.ran_out(&r.lock(), time)) {
                let fresh = std::mem::take(&mut self.steps[i].fresh);
                let (out, kept) =
                    fresh.into_iter().partition::<VecDeque<_>, _>(|r| self.ran_out(&r.lock(), time));
                out.iter().for_each(note);
                self.steps[i].fresh = kept;
            }
            if let (Some(record), Some(first)) = (last, self.plan.steps[i].every_in) {
                self.repeat(first, &record);
                self.renew(first);
            }
        }
    }

    /// An empty match for a first step.
    pub(super) fn arm(&mut self, i: usize) {
        let step = &self.plan.steps[i];
        let absent_next = step.next.is_some_and(|next| self.plan.steps[next].is_absent());
        if self.steps[i].armed && step.every_end.is_none() && !(self.plan.sequence && absent_next) {
            return;
        }
        self.steps[i].armed = true;
        let record = Arc::new(Mutex::new(Record::empty(self.steps.len())));
        self.add(i, record);
    }

    /// A sequence goes on with the next event: what still waits was broken by it.
    pub(super) fn reset(&mut self, i: usize) {
        let plan = self.plan.clone();
        let step = &plan.steps[i];
        if let Form::Side(side) = step.form {
            if side.and && self.steps[i].waiting.len() != self.steps[side.partner].waiting.len() {
                return;
            }
            self.steps[side.partner].waiting.clear();
        }
        self.steps[i].waiting.clear();
        let begins = step.start && (self.steps[i].fresh.is_empty() || matches!(step.form, Form::Absent(_)));
        let goes_on =
            || step.every_end.is_none() && step.next.is_some_and(|n| !self.steps[n].waiting.is_empty());
        if begins && !goes_on() {
            self.arm(i);
        }
    }

    /// What came during earlier events may meet the next one.
    pub(super) fn renew(&mut self, i: usize) {
        if std::mem::take(&mut self.steps[i].begin_anew) {
            self.arm(i);
        }
        let partner = match self.plan.steps[i].form {
            Form::Side(side) => Some(side.partner),
            _ => None,
        };
        for i in std::iter::once(i).chain(partner) {
            let step = &mut self.steps[i];
            if step.fresh.len() > 1 {
                // empty ones last
                step.fresh.make_contiguous().sort_by_key(|r| match r.lock().time {
                    -1 => (true, 0),
                    time => (false, time),
                });
            }
            step.waiting.append(&mut step.fresh);
        }
    }

    /// A match comes to a step.
    pub(super) fn add(&mut self, i: usize, record: Shared) {
        let sequence = self.plan.sequence;
        match self.plan.steps[i].form {
            Form::Stream => self.add_fresh(i, record, sequence),
            Form::Count { min, .. } => {
                self.add_fresh(i, record.clone(), sequence);
                if min == 0 && record.lock().slots[i].is_empty() {
                    self.enough(i, &record);
                }
            }
            Form::Side(side) => {
                let sides = [i, side.partner];
                if sides.iter().any(|s| self.steps[*s].over) {
                    return;
                }
                let start = self.plan.steps[i].start;
                let time = record.lock().time;
                for s in sides {
                    self.add_fresh(s, record.clone(), sequence || start);
                    if let (false, Some(wait)) = (start, self.plan.steps[s].wait()) {
                        self.steps[s].timers.schedule(time.saturating_add(wait));
                    }
                }
            }
            Form::Absent(wait) => {
                if self.steps[i].over {
                    return;
                }
                if sequence {
                    self.steps[i].fresh.clear();
                }
                let time = record.lock().time;
                self.steps[i].fresh.push_back(record);
                if !self.plan.steps[i].start {
                    self.ask(i, time.saturating_add(wait));
                }
            }
        }
    }

    fn add_fresh(&mut self, i: usize, record: Shared, only_first: bool) {
        if !only_first || self.steps[i].fresh.is_empty() {
            self.steps[i].fresh.push_back(record);
        }
    }

    pub(super) fn ask(&mut self, i: usize, at: i64) {
        self.steps[i].asked = at;
        self.steps[i].timers.schedule(at);
    }

    /// A copy of a match begins the `every` group anew that starts with step `first`.
    pub(super) fn repeat(&mut self, first: usize, record: &Shared) {
        let mut copy = record.lock().clone();
        copy.expired = false;
        if let Form::Side(_) = self.plan.steps[first].form
            && copy.slots[first].iter().any(|row| row.is_silence())
        {
            // The silence of the side named first: the next one may be over already. Behind that of the other side the
            // round begins with it.
            copy.time = -1;
        }
        copy.slots.iter_mut().skip(first).for_each(Vec::clear);
        let time = copy.time;
        let copy = Arc::new(Mutex::new(copy));
        match self.plan.steps[first].form {
            Form::Side(side) => self.steps[side.partner].fresh.push_back(copy.clone()),
            Form::Absent(wait) => self.ask(first, time.saturating_add(wait)),
            _ => {}
        }
        self.steps[first].fresh.push_back(copy);
    }

    /// A match has what step `i` wants.
    pub(super) fn pass(&mut self, i: usize, record: &Shared) {
        if self.plan.steps[i].next.is_none() {
            self.done(&record.lock());
        }
        self.forward(i, record);
        self.begin_anew(i);
    }

    /// To the next step, and to the beginning of the group that ends here.
    pub(super) fn forward(&mut self, i: usize, record: &Shared) {
        let (next, every) = (self.plan.steps[i].next, self.plan.steps[i].every_end);
        if let Some(next) = next {
            self.add(next, record.clone());
        }
        if let Some(first) = every {
            self.repeat(first, record);
        }
    }

    /// A sequence whose first step may be left out begins anew when the second had its event.
    pub(super) fn begin_anew(&mut self, i: usize) {
        let first = &self.plan.steps[0];
        if self.plan.sequence && first.next == Some(i) && matches!(first.form, Form::Count { min: 0, .. }) {
            self.steps[0].begin_anew = true;
        }
    }

    /// A count has as many events as it needs, in a pattern or from the beginning; whether it leaves the step.
    pub(super) fn enough(&mut self, i: usize, record: &Shared) -> bool {
        let last = self.plan.steps[i].next.is_none();
        self.steps[i].returned |= last;
        self.forward(i, record);
        last
    }

    pub(super) fn done(&mut self, record: &Record) {
        let done = &mut self.matches.batch;
        for (column, reference) in done.columns.iter_mut().zip(&self.plan.columns) {
            column.push(record.read(reference));
        }
        done.times.push(record.time);
        done.kinds.push(Kind::Current);
    }

    /// Whether the event passes the filters of step `i`, given a match.
    pub(super) fn fits(&mut self, i: usize, record: &Record, offer: &Offer<'_>) -> Result<bool, EvalError> {
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
