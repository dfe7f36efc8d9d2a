//! Common patterns over all events of a batch at once, with the results of one event after the other.
//!
//! - `every e1=S[…] -> e2=S[x > e1.x]`: what waits is ordered as it came, for an event takes all that are less. So those
//!   that it takes are the last ones.
//! - `every e1=S[…], e2=S[x > e1.x], …`: whether events that follow each other match is told by their columns, each
//!   shifted against the one before.

use std::collections::VecDeque;

use super::list::{BEGIN, HEAD, List, MARKS, TIME};
use super::plan::{Capture, ChainPlan, Index, Pair, Side};
use super::run::{Event, Run, admit, mask_of, words};
use super::{Fresh, State};
use crate::batch::Kind;
use crate::column::{Column, Data};
use crate::expr::{Comparison, EvalError};
use crate::state::conditions::{Domain, holds};
use crate::state::plan::What;

/// Fewer events are worked off one by one.
const EVENTS_MIN: usize = 64;
/// So many events at the end of a batch are worked off one by one: who asks why nothing matches asks about them.
const LAST: usize = 32;

/// Numbers of a column without nulls.
#[derive(Clone, Copy)]
enum Numbers<'a> {
    Double(&'a [f64]),
    Long(&'a [i64]),
}

impl<'a> Numbers<'a> {
    fn of(column: &'a Column, domain: Domain) -> Option<Self> {
        match (column.data(), domain) {
            _ if !column.nulls().is_empty() => None,
            (Data::Double(values), Domain::Double) => Some(Self::Double(values)),
            (Data::Long(values), Domain::Whole) => Some(Self::Long(values)),
            _ => None,
        }
    }
}

/// What waits: it was there before the batch, or it began with an event of the batch.
#[derive(Clone, Copy)]
enum Begun {
    Before(usize),
    At(usize),
}

impl ChainPlan {
    /// Whether it has two steps of one stream, and any number of matches may begin.
    fn is_pair(&self) -> Option<(&Index, usize)> {
        let [first, second] = self.steps.as_slice() else { return None };
        let index = second.index.as_ref()?;
        let (Side::At(column), Side::At(capture)) = (&index.event, &index.of_match) else { return None };
        let ordered = matches!(index.op, Comparison::Gt | Comparison::Ge | Comparison::Lt | Comparison::Le);
        let same = self.captures[*capture].what == What::Attribute(*column);
        let plain = second.masked.is_empty() && second.pairs.is_empty() && second.rest.is_empty();
        let alone = first.alone.is_empty() && second.alone.is_empty();
        let once = second.every_end.is_none() && second.every_in.is_none() && second.last;
        let fits = self.starts_always && first.stream == second.stream;
        (fits && ordered && same && plain && alone && once).then_some((index, *column))
    }

    /// Whether all its steps are of one stream, and their conditions compare numbers of events.
    fn is_row(&self) -> bool {
        let attribute = |pair: &Pair| matches!(self.captures[pair.capture].what, What::Attribute(_));
        let plain = |i: usize| {
            let step = &self.steps[i];
            step.stream == self.steps[0].stream
                && step.index.is_none()
                && step.alone.is_empty()
                && step.rest.is_empty()
                && step.pairs.iter().all(attribute)
                && (i == 0 || step.every_end.is_none() && step.every_in.is_none())
        };
        self.starts_always && (0..self.steps.len()).all(plain)
    }
}

impl Run<'_> {
    /// How many of the first events of the batch are done; the others go one by one.
    pub(super) fn in_columns(&mut self) -> Result<usize, EvalError> {
        let batch = self.batch;
        let rows = batch.len();
        let singly = batch.ends.len() == rows && batch.kinds.iter().all(|kind| *kind == Kind::Current);
        let here = self.layout.starts_always && self.layout.steps[0].stream == self.port;
        if rows < EVENTS_MIN || !singly || !here {
            return Ok(0);
        }
        // the empty match from which others come takes its place
        self.renew(0);
        if self.state.waiting[0].len() != 1 || !self.state.fresh[0].is_empty() {
            return Ok(0);
        }
        if self.plan.sequence && self.plan.within.is_none() && self.layout.is_row() {
            return self.follow();
        }
        match self.layout.is_pair() {
            Some((index, column)) if !self.plan.sequence => {
                Ok(match Numbers::of(&batch.columns[column], index.domain) {
                    Some(Numbers::Double(values)) if values.iter().all(|x| !x.is_nan()) => {
                        self.pairs(index, values, f64::from_bits)
                    }
                    Some(Numbers::Long(values)) => self.pairs(index, values, |word| word as i64),
                    _ => 0,
                })
            }
            _ => Ok(0),
        }
    }

    /// Two steps; `values` are those of the events that are compared.
    fn pairs<T: PartialOrd + Copy>(&mut self, index: &Index, values: &[T], of_word: fn(u64) -> T) -> usize {
        let (layout, batch) = (self.layout, self.batch);
        let Side::At(capture) = index.of_match else { return 0 };
        let stride = HEAD + layout.steps[1].width;
        let mut before: Vec<u64> = Vec::new();
        let all = self.state.waiting[1].iter().chain(self.state.fresh[1].iter());
        all.for_each(|found| before.extend_from_slice(found));
        let there = before.len() / stride;
        let keys: Vec<T> = before.chunks_exact(stride).map(|found| of_word(found[HEAD + capture])).collect();
        let is_null = |found: &[u64]| found[MARKS] & mask_of(stride - HEAD) >> capture & 1 == 1;
        // the last one is the first that an event takes
        let in_order = |pair: &[T]| match index.op {
            Comparison::Gt | Comparison::Ge => pair[0] >= pair[1],
            _ => pair[0] <= pair[1],
        };
        // of what comes in the order of its times the first one runs out of it first
        let begins = before.chunks_exact(stride).map(|found| found[BEGIN] as i64);
        let in_time = self.plan.within.is_none() || begins.chain(batch.times.iter().copied()).is_sorted();
        let many = self.state.held() + batch.len() >= self.plan.limits.partial_matches_max;
        if many
            || !in_time
            || there > batch.len()
            || before.chunks_exact(stride).any(is_null)
            || !keys.windows(2).all(in_order)
        {
            return 0;
        }
        let mut waiting: VecDeque<(T, Begun)> =
            keys.into_iter().enumerate().map(|(i, key)| (key, Begun::Before(i))).collect();
        let begin = |begun: Begun| match begun {
            Begun::Before(i) => before[i * stride + BEGIN] as i64,
            Begun::At(row) => batch.times[row],
        };
        let within = self.plan.within.map(i64::unsigned_abs);
        let starts = std::mem::take(&mut self.state.work.masks[0]);
        let anything = layout.steps[0].masked.is_empty();
        let mut last_begun = None;
        for (row, x) in values.iter().enumerate() {
            let time = batch.times[row];
            if let Some(within) = within {
                let ran_out = |(_, begun): &(T, Begun)| begin(*begun).abs_diff(time) > within;
                while waiting.front().is_some_and(ran_out) {
                    waiting.pop_front();
                }
            }
            let kept = waiting.iter().rev().take_while(|(key, _)| holds(index.op, *x, *key)).count();
            let kept = waiting.len() - kept;
            if kept < waiting.len() {
                let done = self.state.done_count;
                for (_, begun) in waiting.range(kept..) {
                    let head = self.state.done.len();
                    match *begun {
                        Begun::Before(i) => {
                            let found = &before[i * stride..(i + 1) * stride];
                            self.state.done.extend_from_slice(found);
                            self.state.done[head + MARKS] &= mask_of(stride - HEAD);
                            self.state.done[head + TIME] = time as u64;
                        }
                        Begun::At(first) => {
                            self.state.done.extend_from_slice(&[time as u64, batch.times[first] as u64, 0]);
                            self.complete(head, 0, first);
                        }
                    }
                    self.complete(head, 1, row);
                    self.state.done_count += 1;
                }
                waiting.truncate(kept);
                self.end_event(done, batch.clocks[row]);
            }
            if anything || starts[row] {
                waiting.push_back((*x, Begun::At(row)));
                last_begun = Some(row);
            }
        }
        self.state.work.masks[0] = starts;
        self.state.waiting[1].clear();
        self.state.fresh[1].clear();
        for (_, begun) in waiting {
            let (found, is_new) = match begun {
                Begun::Before(i) => (before[i * stride..(i + 1) * stride].to_vec(), false),
                Begun::At(row) => {
                    let time = batch.times[row] as u64;
                    let mut found = vec![time, time, 0];
                    found[MARKS] = words(layout, 0, batch, row, &mut self.state.values, &mut found);
                    (found, row + 1 == batch.len())
                }
            };
            // what began with the last event meets the next one
            match is_new {
                true => self.state.fresh[1].push(found.into_iter()),
                false => {
                    let State { waiting, values, work, .. } = &mut *self.state;
                    admit(layout, 1, &mut waiting[1], values, &mut work.scratch[1], &found);
                }
            }
        }
        if let Some(row) = last_begun {
            let time = batch.times[row] as u64;
            self.state.waiting[0].iter_mut().for_each(|found| found[TIME] = time);
        }
        self.sweep_if_full();
        batch.len()
    }

    /// Steps of a sequence.
    fn follow(&mut self) -> Result<usize, EvalError> {
        let (layout, batch) = (self.layout, self.batch);
        let steps = layout.steps.len();
        let until = batch.len() - LAST;
        if until < 2 * steps {
            return Ok(0);
        }
        let Some(alive) = self.matches_of_rows(until + 1 - steps) else { return Ok(0) };
        // what began before the batch ends with its first events, or not at all
        for row in 0..steps - 1 {
            self.one(row)?;
        }
        for first in (0..alive.len()).filter(|first| alive[*first]) {
            let last = first + steps - 1;
            let head = self.state.done.len();
            self.state.done.extend_from_slice(&[batch.times[last] as u64, batch.times[first] as u64, 0]);
            for i in 0..steps {
                self.complete(head, i, first + i);
            }
            self.state.done_count += 1;
            self.state.ends.push((self.state.done_count, batch.clocks[last]));
        }
        // of all that only what begins now is left when the last ones come
        self.state.waiting[1..].iter_mut().for_each(List::clear);
        self.state.fresh[1..].iter_mut().for_each(Fresh::clear);
        for row in until + 1 - steps..until {
            self.one(row)?;
        }
        self.sweep_if_full();
        Ok(until)
    }

    /// For each of so many events whether a match begins with it. None where a column cannot be compared here.
    fn matches_of_rows(&self, starts: usize) -> Option<Vec<bool>> {
        let mut alive = vec![true; starts];
        for (i, step) in self.layout.steps.iter().enumerate() {
            if !step.masked.is_empty() {
                let mask = &self.state.work.masks[i][i..i + starts];
                alive.iter_mut().zip(mask).for_each(|(alive, holds)| *alive &= holds);
            }
            for pair in &step.pairs {
                let Capture { step: earlier, what: What::Attribute(column), .. } =
                    self.layout.captures[pair.capture]
                else {
                    return None;
                };
                let numbers = |column: usize| Numbers::of(self.batch.columns.get(column)?, pair.domain);
                match (numbers(pair.column)?, numbers(column)?) {
                    (Numbers::Double(a), Numbers::Double(b)) => {
                        narrow(&mut alive, pair.op, &a[i..], &b[earlier..]);
                    }
                    (Numbers::Long(a), Numbers::Long(b)) => {
                        narrow(&mut alive, pair.op, &a[i..], &b[earlier..]);
                    }
                    _ => return None,
                }
            }
        }
        Some(alive)
    }

    /// The event of a row by itself.
    fn one(&mut self, row: usize) -> Result<(), EvalError> {
        self.single(Event { row, time: self.batch.times[row], now: self.batch.clocks[row] })
    }

    /// Adds to the last match that is done, which begins at `head`, what it keeps of a row at a step.
    #[inline]
    fn complete(&mut self, head: usize, i: usize, row: usize) {
        let State { done, values, .. } = &mut *self.state;
        let marks = words(self.layout, i, self.batch, row, values, done);
        done[head + MARKS] |= marks;
    }
}

/// Leaves those alive for which `a op b` holds.
fn narrow<T: PartialOrd + Copy>(alive: &mut [bool], op: Comparison, a: &[T], b: &[T]) {
    let pairs = alive.iter_mut().zip(a.iter().zip(b));
    match op {
        Comparison::Eq => pairs.for_each(|(alive, (a, b))| *alive &= a == b),
        Comparison::Ne => pairs.for_each(|(alive, (a, b))| *alive &= a != b),
        Comparison::Lt => pairs.for_each(|(alive, (a, b))| *alive &= a < b),
        Comparison::Le => pairs.for_each(|(alive, (a, b))| *alive &= a <= b),
        Comparison::Gt => pairs.for_each(|(alive, (a, b))| *alive &= a > b),
        Comparison::Ge => pairs.for_each(|(alive, (a, b))| *alive &= a >= b),
    }
}
