//! Columnar evaluation of common patterns over a whole batch, with the results of row-at-a-time processing.
//!
//! - `every e1=S[…] -> e2=S[x > e1.x]`: an event completes every waiting match with a lesser `e1.x`. The keys
//!   of the remaining matches thus never increase in order of arrival, and the completed ones are the last.
//! - `every e1=S[…], e2=S[x > e1.x], …`: whether consecutive events match is computed from their columns,
//!   each shifted by one row against that of the step before.

use std::collections::VecDeque;

use super::match_list::{BEGIN, HEADER_WORDS, MARKS, MatchList, TIME};
use super::plan::{Capture, CaptureComparison, ComparisonOperand, IndexedComparison, LinearPlan};
use super::run::{CurrentEvent, EventRun, all_nulls_mask, push_captures, push_waiting};
use super::{LinearState, NewMatches};
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::{Column, Data};
use crate::eval_error::EvalError;
use crate::expr::Comparison;
use crate::pattern::conditions::{ComparisonDomain, holds};
use crate::pattern::plan::ReferenceKind;

/// Minimum number of events; smaller batches are processed row at a time.
const COLUMNAR_EVENTS_MIN: usize = 64;
/// Number of events at the end of a batch that are processed row at a time, because reports on why nothing
/// matches read the state that these leave.
const ROW_AT_A_TIME_TAIL: usize = 32;

/// Numeric column without nulls.
#[derive(Clone, Copy)]
enum NumericColumn<'a> {
    Double(&'a [f64]),
    Long(&'a [i64]),
}

impl<'a> NumericColumn<'a> {
    fn of(column: &'a Column, domain: ComparisonDomain) -> Option<Self> {
        match (column.data(), domain) {
            _ if !column.nulls().is_empty() => None,
            (Data::Double(values), ComparisonDomain::Double) => Some(Self::Double(values)),
            (Data::Long(values), ComparisonDomain::Long) => Some(Self::Long(values)),
            _ => None,
        }
    }
}

/// Origin of a waiting match: it was waiting before the batch, or it began with a row of the batch.
#[derive(Clone, Copy)]
enum MatchStart {
    BeforeBatch(usize),
    AtRow(usize),
}

impl LinearPlan {
    /// Returns the comparison and its column if the plan has two steps on one stream and a match may begin
    /// with any event.
    fn as_two_step(&self) -> Option<(&IndexedComparison, usize)> {
        let [first, second] = self.steps.as_slice() else { return None };
        let index = second.index.as_ref()?;
        let (ComparisonOperand::Stored(column), ComparisonOperand::Stored(capture)) =
            (&index.event, &index.of_match)
        else {
            return None;
        };
        let ordered = matches!(index.op, Comparison::Gt | Comparison::Ge | Comparison::Lt | Comparison::Le);
        let same = self.captures[*capture].kind == ReferenceKind::Attribute(*column);
        let plain =
            second.vectorized.is_empty() && second.capture_comparisons.is_empty() && second.rest.is_empty();
        let alone = first.event_only.is_empty() && second.event_only.is_empty();
        let once = second.every_end.is_none() && second.every_in.is_none() && second.is_last;
        let fits = self.restarts_always && first.stream == second.stream;
        (fits && ordered && same && plain && alone && once).then_some((index, *column))
    }

    /// Returns whether all steps read one stream and their conditions compare numbers of events.
    fn is_single_stream_sequence(&self) -> bool {
        let attribute = |pair: &CaptureComparison| {
            matches!(self.captures[pair.capture].kind, ReferenceKind::Attribute(_))
        };
        let plain = |i: usize| {
            let step = &self.steps[i];
            step.stream == self.steps[0].stream
                && step.index.is_none()
                && step.event_only.is_empty()
                && step.rest.is_empty()
                && step.capture_comparisons.iter().all(attribute)
                && (i == 0 || step.every_end.is_none() && step.every_in.is_none())
        };
        self.restarts_always && (0..self.steps.len()).all(plain)
    }
}

impl EventRun<'_, &Batch> {
    /// Processes a prefix of the batch column-wise. Returns its length; the caller processes the other rows
    /// one at a time.
    pub(super) fn process_columnar(&mut self) -> Result<usize, EvalError> {
        let batch = self.batch;
        let rows = batch.len();
        let singly =
            batch.chunk_ends.len() == rows && batch.kinds.iter().all(|kind| *kind == EventKind::Current);
        let here = self.layout.restarts_always && self.layout.steps[0].stream == self.port;
        if rows < COLUMNAR_EVENTS_MIN || !singly || !here {
            return Ok(0);
        }
        // move the empty match, from which all others start, to the waiting list
        self.promote_new_matches(0);
        if self.state.waiting[0].len() != 1 || !self.state.new_matches[0].is_empty() {
            return Ok(0);
        }
        if self.plan.sequence && self.plan.within.is_none() && self.layout.is_single_stream_sequence() {
            return self.match_sequence();
        }
        match self.layout.as_two_step() {
            Some((index, column)) if !self.plan.sequence => {
                Ok(match NumericColumn::of(&batch.columns[column], index.domain) {
                    Some(NumericColumn::Double(values)) if values.iter().all(|x| !x.is_nan()) => {
                        self.match_two_steps(index, values, f64::from_bits)
                    }
                    Some(NumericColumn::Long(values)) => {
                        self.match_two_steps(index, values, |word| word as i64)
                    }
                    _ => 0,
                })
            }
            _ => Ok(0),
        }
    }

    /// Matches a pattern of two steps. `values` are the compared values, one per event.
    fn match_two_steps<T: PartialOrd + Copy>(
        &mut self,
        index: &IndexedComparison,
        values: &[T],
        of_word: fn(u64) -> T,
    ) -> usize {
        let (layout, batch) = (self.layout, self.batch);
        let ComparisonOperand::Stored(capture) = index.of_match else { return 0 };
        let stride = HEADER_WORDS + layout.steps[1].width;
        let mut before: Vec<u64> = Vec::new();
        let all = self.state.waiting[1].iter().chain(self.state.new_matches[1].iter());
        all.for_each(|found| before.extend_from_slice(found));
        let there = before.len() / stride;
        let keys: Vec<T> =
            before.chunks_exact(stride).map(|found| of_word(found[HEADER_WORDS + capture])).collect();
        let is_null =
            |found: &[u64]| found[MARKS] & all_nulls_mask(stride - HEADER_WORDS) >> capture & 1 == 1;
        // an event completes the last match before any other
        let in_order = |pair: &[T]| match index.op {
            Comparison::Gt | Comparison::Ge => pair[0] >= pair[1],
            _ => pair[0] <= pair[1],
        };
        // if begin times are ascending, the front of the queue expires first
        let begins = before.chunks_exact(stride).map(|found| found[BEGIN] as i64);
        let in_time = self.plan.within.is_none() || begins.chain(batch.times.iter().copied()).is_sorted();
        let many = self.state.match_count() + batch.len() >= self.plan.limits.partial_matches_max;
        if many
            || !in_time
            || there > batch.len()
            || before.chunks_exact(stride).any(is_null)
            || !keys.windows(2).all(in_order)
        {
            return 0;
        }
        let mut waiting: VecDeque<(T, MatchStart)> =
            keys.into_iter().enumerate().map(|(i, key)| (key, MatchStart::BeforeBatch(i))).collect();
        let begin = |begun: MatchStart| match begun {
            MatchStart::BeforeBatch(i) => before[i * stride + BEGIN] as i64,
            MatchStart::AtRow(row) => batch.times[row],
        };
        let within = self.plan.within.map(i64::unsigned_abs);
        let starts = std::mem::take(&mut self.state.scratch.masks[0]);
        let anything = layout.steps[0].vectorized.is_empty();
        let mut last_begun = None;
        for (row, x) in values.iter().enumerate() {
            let time = batch.times[row];
            if let Some(within) = within {
                let ran_out = |(_, begun): &(T, MatchStart)| begin(*begun).abs_diff(time) > within;
                while waiting.front().is_some_and(ran_out) {
                    waiting.pop_front();
                }
            }
            let kept = waiting.iter().rev().take_while(|(key, _)| holds(index.op, *x, *key)).count();
            let kept = waiting.len() - kept;
            if kept < waiting.len() {
                let done = self.state.completed_count;
                for (_, begun) in waiting.range(kept..) {
                    let head = self.state.completed.len();
                    match *begun {
                        MatchStart::BeforeBatch(i) => {
                            let found = &before[i * stride..(i + 1) * stride];
                            self.state.completed.extend_from_slice(found);
                            self.state.completed[head + MARKS] &= all_nulls_mask(stride - HEADER_WORDS);
                            self.state.completed[head + TIME] = time as u64;
                        }
                        MatchStart::AtRow(first) => {
                            self.state.completed.extend_from_slice(&[
                                time as u64,
                                batch.times[first] as u64,
                                0,
                            ]);
                            self.append_captures(head, 0, first);
                        }
                    }
                    self.append_captures(head, 1, row);
                    self.state.completed_count += 1;
                }
                waiting.truncate(kept);
                self.end_event(done, batch.chunk_clocks[row]);
            }
            if anything || starts[row] {
                waiting.push_back((*x, MatchStart::AtRow(row)));
                last_begun = Some(row);
            }
        }
        self.state.scratch.masks[0] = starts;
        self.state.waiting[1].clear();
        self.state.new_matches[1].clear();
        for (_, begun) in waiting {
            let (found, is_new) = match begun {
                MatchStart::BeforeBatch(i) => (before[i * stride..(i + 1) * stride].to_vec(), false),
                MatchStart::AtRow(row) => {
                    let time = batch.times[row] as u64;
                    let mut found = vec![time, time, 0];
                    found[MARKS] = push_captures(
                        layout,
                        0,
                        (batch, row),
                        batch.times[row],
                        &mut self.state.values,
                        &mut found,
                    );
                    (found, row + 1 == batch.len())
                }
            };
            // a match that began with the last event becomes visible to the next event
            match is_new {
                true => self.state.new_matches[1].push(found.into_iter()),
                false => {
                    let LinearState { waiting, values, scratch: work, .. } = &mut *self.state;
                    push_waiting(layout, 1, &mut waiting[1], values, &mut work.condition_inputs[1], &found);
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

    /// Matches a sequence. Returns the number of events processed: 0 if the batch is too short or a column
    /// cannot be compared here.
    fn match_sequence(&mut self) -> Result<usize, EvalError> {
        let (layout, batch) = (self.layout, self.batch);
        let steps = layout.steps.len();
        let until = batch.len() - ROW_AT_A_TIME_TAIL;
        if until < 2 * steps {
            return Ok(0);
        }
        let Some(alive) = self.matching_starts(until + 1 - steps) else { return Ok(0) };
        // a match that began before the batch is completed by its first rows, or broken
        for row in 0..steps - 1 {
            self.process_one(row)?;
        }
        for first in (0..alive.len()).filter(|first| alive[*first]) {
            let last = first + steps - 1;
            let head = self.state.completed.len();
            self.state.completed.extend_from_slice(&[batch.times[last] as u64, batch.times[first] as u64, 0]);
            for i in 0..steps {
                self.append_captures(head, i, first + i);
            }
            self.state.completed_count += 1;
            self.state.ends.push((self.state.completed_count, batch.chunk_clocks[last]));
        }
        // drop all partial matches: those still incomplete at `until` begin with the rows below
        self.state.waiting[1..].iter_mut().for_each(MatchList::clear);
        self.state.new_matches[1..].iter_mut().for_each(NewMatches::clear);
        for row in until + 1 - steps..until {
            self.process_one(row)?;
        }
        self.sweep_if_full();
        Ok(until)
    }

    /// Returns for each of the first `starts` rows whether a match begins with it; `None` if a column cannot
    /// be compared here.
    fn matching_starts(&self, starts: usize) -> Option<Vec<bool>> {
        let mut alive = vec![true; starts];
        for (i, step) in self.layout.steps.iter().enumerate() {
            if !step.vectorized.is_empty() {
                let mask = &self.state.scratch.masks[i][i..i + starts];
                alive.iter_mut().zip(mask).for_each(|(alive, holds)| *alive &= holds);
            }
            for pair in &step.capture_comparisons {
                let Capture { step: earlier, kind: ReferenceKind::Attribute(column), .. } =
                    self.layout.captures[pair.capture]
                else {
                    return None;
                };
                let numbers = |column: usize| NumericColumn::of(self.batch.columns.get(column)?, pair.domain);
                match (numbers(pair.column)?, numbers(column)?) {
                    (NumericColumn::Double(a), NumericColumn::Double(b)) => {
                        narrow(&mut alive, pair.op, &a[i..], &b[earlier..]);
                    }
                    (NumericColumn::Long(a), NumericColumn::Long(b)) => {
                        narrow(&mut alive, pair.op, &a[i..], &b[earlier..]);
                    }
                    _ => return None,
                }
            }
        }
        Some(alive)
    }

    /// Processes the event of one row.
    fn process_one(&mut self, row: usize) -> Result<(), EvalError> {
        self.process_row(CurrentEvent { row, time: self.batch.times[row], now: self.batch.chunk_clocks[row] })
    }

    /// Appends the captures of `row` at step `i` to the last completed match, which begins at word `head`.
    #[inline]
    fn append_captures(&mut self, head: usize, i: usize, row: usize) {
        let LinearState { completed: done, values, .. } = &mut *self.state;
        let marks = push_captures(self.layout, i, (self.batch, row), self.batch.times[row], values, done);
        done[head + MARKS] |= marks;
    }
}

/// Clears `alive` where `a op b` does not hold.
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
