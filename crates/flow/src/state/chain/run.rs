//! What events do to the matches of a chain.

use tidemill_types::FieldType;

use super::fresh::Fresh;
use super::list::{BEGIN, HEAD, Key, List, MARKS, TIME};
use super::plan::{Capture, ChainPlan, Index, Pair, Read, Side};
use super::values::{Values, double, single, text, whole, word_double, word_single};
use super::{NEVER, State};
use crate::batch::{Batch, Kind};
use crate::column::{Column, Data};
use crate::expr::{Comparison, EvalContext, EvalError, Expr, Frame, NoContext, RowRef};
use crate::state::conditions::{Domain, holds};
use crate::state::matches::ends;
use crate::state::plan::{StatePlan, What};
use crate::state::{mask, too_many};
use crate::value::Value;

/// Events on their way through a chain.
pub(super) struct Run<'a> {
    pub plan: &'a StatePlan,
    pub layout: &'a ChainPlan,
    pub state: &'a mut State,
    pub port: usize,
    pub batch: &'a Batch,
    pub host: &'a dyn EvalContext,
}

/// The event that is worked off.
#[derive(Clone, Copy)]
pub(super) struct Event {
    pub row: usize,
    pub time: i64,
    pub now: i64,
}

impl Run<'_> {
    pub fn events(&mut self) -> Result<(), EvalError> {
        self.masks();
        self.state.work.refused.iter_mut().for_each(|refusal| refusal.broken.clear());
        let done = self.in_columns()?;
        for (rows, now) in self.batch.chunks().skip(done) {
            for row in rows {
                if self.batch.kinds[row] == Kind::Current {
                    self.single(Event { row, time: self.batch.times[row], now })?;
                }
            }
        }
        self.look();
        Ok(())
    }

    /// One event, with what it completes.
    pub(super) fn single(&mut self, event: Event) -> Result<(), EvalError> {
        let before = self.state.done_count;
        let done = self.event(event);
        self.end_event(before, event.now);
        done?;
        self.sweep_if_full();
        Ok(())
    }

    /// The matches that were done since there were `before` belong to one event.
    pub(super) fn end_event(&mut self, before: u32, clock: i64) {
        if self.state.done_count == before {
            return;
        }
        let together = self.plan.goes_on_together(self.port);
        let ends = ends(before, self.state.done_count, together);
        self.state.ends.extend(ends.map(|end| (end, clock)));
    }

    pub(super) fn sweep_if_full(&mut self) {
        if self.state.values.is_full() {
            self.state.sweep(self.layout);
        }
    }

    /// Notes the last event of the batch, or the one that broke a sequence, for whoever asks why nothing matches.
    fn look(&mut self) {
        let last = (0..self.batch.len()).rev().find(|row| self.batch.kinds[*row] == Kind::Current);
        let now = self.batch.clocks.last().copied().unwrap_or_default();
        let sequence = self.plan.sequence;
        for (step, refusal) in self.layout.steps.iter().zip(&mut self.state.work.refused) {
            let row = if sequence { Some(refusal.row).filter(|_| !refusal.broken.is_empty()) } else { last };
            if let Some(row) = row.filter(|_| step.stream == self.port) {
                refusal.looked.note(self.batch, row, now, step.looks_at.iter().copied());
            }
        }
    }

    fn masks(&mut self) {
        for (step, mask) in self.layout.steps.iter().zip(&mut self.state.work.masks) {
            if step.stream == self.port && !step.masked.is_empty() {
                mask.clear();
                mask.resize(self.batch.len(), true);
                step.masked.iter().for_each(|condition| mask::narrow(condition, self.batch, mask));
            }
        }
    }

    fn event(&mut self, event: Event) -> Result<(), EvalError> {
        let layout = self.layout;
        if let Some(within) = self.plan.within {
            self.expire(event.time, within.unsigned_abs());
        }
        // where the first step takes any number of events, its empty match stays where it is
        let first = usize::from(layout.starts_always);
        if self.plan.sequence {
            self.state.waiting[first..].iter_mut().for_each(List::clear);
            let every = layout.steps[0].every_end.is_some();
            if self.state.fresh[0].is_empty() && (first == 0 || self.state.waiting[0].len() == 0) {
                self.state.arm(every);
            }
            (0..layout.steps.len()).for_each(|i| self.renew(i));
        } else {
            let port = self.port;
            let reads = |i: &usize| layout.steps[*i].stream == port;
            (0..layout.steps.len()).filter(reads).for_each(|i| self.renew(i));
        }
        let held = self.state.held();
        if held >= self.plan.limits.partial_matches_max {
            return Err(too_many(held, &self.plan.limits));
        }
        for i in (first..layout.steps.len()).rev() {
            if layout.steps[i].stream == self.port && self.state.waiting[i].len() > 0 {
                self.offer(i, event)?;
            }
        }
        if layout.starts_always && layout.steps[0].stream == self.port && self.state.waiting[0].len() > 0 {
            self.start(event)?;
        }
        Ok(())
    }

    /// A match begins with the event, if it fits; the empty match from which it comes stays.
    fn start(&mut self, event: Event) -> Result<(), EvalError> {
        if !self.is_fit(0, event)? {
            if self.plan.sequence {
                self.state.note_broken(0, None, event.row);
                self.state.waiting[0].iter_mut().for_each(|found| found[TIME] = NEVER as u64);
            }
            return Ok(());
        }
        self.state.waiting[0].iter_mut().for_each(|found| found[TIME] = event.time as u64);
        if self.plan.sequence && !self.state.fresh[1].is_empty() {
            return Ok(());
        }
        self.keep(0, event);
        let State { fresh, work, .. } = &mut *self.state;
        let time = event.time as u64;
        fresh[1].push_words([time, time, work.own_marks], &[], &work.own);
        Ok(())
    }

    /// Drops what took too long. Only a match that has its first event can.
    fn expire(&mut self, time: i64, within: u64) {
        for (i, step) in self.layout.steps.iter().enumerate().skip(1) {
            let ran_out = |found: &[u64]| (found[BEGIN] as i64).abs_diff(time) > within;
            let State { waiting, fresh, work, .. } = &mut *self.state;
            let (list, fresh) = (&mut waiting[i], &mut fresh[i]);
            work.out.clear();
            let mut note = |found: &[u64]| {
                work.out.clear();
                work.out.extend_from_slice(found);
            };
            while let Some(found) = list.first().filter(|found| ran_out(found)) {
                note(found);
                list.remove_first();
            }
            fresh.take_out(ran_out, note);
            if let (false, Some(first)) = (work.out.is_empty(), step.every_in) {
                let out = std::mem::take(&mut work.out);
                self.state.repeat(self.layout, first, &out);
                self.renew(first);
                self.state.work.out = out;
            }
        }
    }

    /// What came during earlier events may meet the next one.
    pub(super) fn renew(&mut self, i: usize) {
        let State { waiting, fresh, work, values, .. } = &mut *self.state;
        let (list, fresh) = (&mut waiting[i], &mut fresh[i]);
        if fresh.is_empty() {
            return;
        }
        fresh.sort();
        for found in fresh.iter() {
            admit(self.layout, i, list, values, &mut work.scratch[i], found);
        }
        fresh.clear();
    }

    /// Offers an event to all that waits at a step, in order.
    fn offer(&mut self, i: usize, event: Event) -> Result<(), EvalError> {
        let step = &self.layout.steps[i];
        if !self.is_fit(i, event)? {
            if self.plan.sequence {
                self.state.note_broken(i, None, event.row);
                self.state.waiting[i].clear();
            }
            return Ok(());
        }
        let key = step.index.as_ref().map(|index| self.event_key(index, event));
        let mut found = std::mem::take(&mut self.state.work.found);
        found.clear();
        self.state.waiting[i].find(key, &mut found);
        let mut kept = false;
        let mut failed = None;
        for place in &found {
            let place = *place as usize;
            match self.fits(i, place, event) {
                Ok(true) => {
                    if !std::mem::replace(&mut kept, true) {
                        self.keep(i, event);
                    }
                    self.state.pass(self.layout, self.plan.sequence, i, place, event.time);
                    self.state.waiting[i].remove(place);
                }
                Ok(false) if self.plan.sequence => {
                    self.state.note_broken(i, Some(place), event.row);
                    self.state.waiting[i].remove(place);
                }
                Ok(false) => {}
                Err(failure) => {
                    failed = Some(failure);
                    break;
                }
            }
        }
        if !found.is_empty() {
            self.state.waiting[i].tidy();
        }
        self.state.work.found = found;
        failed.map_or(Ok(()), Err)
    }

    /// Whether the event satisfies the conditions that look at nothing else.
    fn is_fit(&self, i: usize, event: Event) -> Result<bool, EvalError> {
        let step = &self.layout.steps[i];
        if !step.masked.is_empty() && !self.state.work.masks[i][event.row] {
            return Ok(false);
        }
        let rows = [Some((self.batch.columns.as_slice(), event.row))];
        let frame = Frame { rows: &rows, time: event.time, now: event.now, host: self.host };
        for condition in &step.alone {
            if !condition.is_true(&frame)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whether event and match satisfy the conditions on both, save that of the index.
    #[inline]
    fn fits(&mut self, i: usize, place: usize, event: Event) -> Result<bool, EvalError> {
        let step = &self.layout.steps[i];
        let State { waiting, values, work, .. } = &mut *self.state;
        let found = waiting[i].get(place);
        for pair in &step.pairs {
            let column = &self.batch.columns[pair.column];
            let value = |word| values.text(word);
            if !pair_holds(pair, column, event.row, found, &self.layout.captures[pair.capture], value) {
                return Ok(false);
            }
        }
        if step.rest.is_empty() {
            return Ok(true);
        }
        fill(&mut work.scratch[i], &step.references, &|read, ty| {
            read_word(self.layout, values, found, read, ty)
        });
        let of_match = Some((work.scratch[i].as_slice(), 0));
        let rows = [Some((self.batch.columns.as_slice(), event.row)), of_match];
        let frame = Frame { rows: &rows, time: event.time, now: event.now, host: self.host };
        for condition in &step.rest {
            if !condition.is_true(&frame)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn event_key(&self, index: &Index, event: Event) -> Key {
        match &index.event {
            Side::At(column) => {
                let column = &self.batch.columns[*column];
                let there = !column.is_null(event.row);
                match index.domain {
                    Domain::Whole => Key::Whole(there.then(|| whole(column, event.row))),
                    Domain::Double => Key::Double(there.then(|| double(column, event.row))),
                    Domain::Single => Key::Double(there.then(|| single(column, event.row))),
                    Domain::Text => {
                        Key::Whole(there.then(|| self.state.values.hash(text(column, event.row))))
                    }
                }
            }
            Side::Computed(expr) => {
                let rows = [Some((self.batch.columns.as_slice(), event.row))];
                key(index.domain, &evaluate(expr, &rows, event.time, event.now))
            }
        }
    }

    /// What matches keep of the event at this step.
    pub(super) fn keep(&mut self, i: usize, event: Event) {
        let State { work, values, .. } = &mut *self.state;
        work.own.clear();
        work.own_marks = words(self.layout, i, self.batch, event.row, values, &mut work.own);
    }
}

/// Adds to `out` what matches keep of a row at step `i`; the marks of what of it is null.
#[inline]
pub(super) fn words(
    layout: &ChainPlan,
    i: usize,
    batch: &Batch,
    row: usize,
    values: &mut Values,
    out: &mut Vec<u64>,
) -> u64 {
    let step = &layout.steps[i];
    let mut marks = 0;
    for at in step.width..step.width + step.own {
        let word = match layout.captures[at].what {
            What::Time => Some(batch.times[row] as u64),
            What::Presence => Some(1),
            What::Attribute(column) => batch.columns.get(column).and_then(|column| values.keep(column, row)),
        };
        if word.is_none() {
            marks |= 1 << at;
        }
        out.push(word.unwrap_or_default());
    }
    marks
}

impl State {
    /// A match has what step `i` wants.
    #[inline]
    fn pass(&mut self, layout: &ChainPlan, sequence: bool, i: usize, place: usize, time: i64) {
        let step = &layout.steps[i];
        let found = self.waiting[i].get(place);
        let marks = found[MARKS] & mask_of(step.width) | self.work.own_marks;
        let begin = if i == 0 { time as u64 } else { found[BEGIN] };
        let head = [time as u64, begin, marks];
        if step.last {
            self.done.extend_from_slice(&head);
            self.done.extend_from_slice(&found[HEAD..]);
            self.done.extend_from_slice(&self.work.own);
            self.done_count += 1;
        } else if !sequence || self.fresh[i + 1].is_empty() {
            self.fresh[i + 1].push_words(head, &found[HEAD..], &self.work.own);
        }
        if let Some(first) = step.every_end {
            again(layout, &mut self.fresh, first, found, time);
        }
    }

    /// Notes the match of a sequence that an event broke: that at `place`, or the first.
    #[inline]
    fn note_broken(&mut self, i: usize, place: Option<usize>, row: usize) {
        let list = &self.waiting[i];
        let Some(found) = place.map_or_else(|| list.first(), |place| Some(list.get(place))) else { return };
        let refusal = &mut self.work.refused[i];
        refusal.row = row;
        refusal.broken.clear();
        refusal.broken.extend_from_slice(found);
    }

    /// A copy of a match begins anew with step `first`.
    fn repeat(&mut self, layout: &ChainPlan, first: usize, found: &[u64]) {
        again(layout, &mut self.fresh, first, found, found[TIME] as i64);
    }

    /// Lets go of texts and objects that no match needs.
    fn sweep(&mut self, layout: &ChainPlan) {
        let types: Vec<_> = layout.captures.iter().map(|c| c.ty).collect();
        let stride = HEAD + types.len();
        let waiting = self.waiting.iter_mut().flat_map(List::iter_mut);
        let fresh = self.fresh.iter_mut().flat_map(Fresh::iter_mut);
        let all = waiting.chain(fresh).chain(self.done.chunks_exact_mut(stride));
        let words = all.flat_map(|found| {
            let (head, values) = found.split_at_mut(HEAD);
            let marks = head[MARKS];
            let values = values.iter_mut().zip(&types).enumerate();
            values.filter(move |(at, _)| marks >> at & 1 == 0).map(|(_, (word, ty))| (word, *ty))
        });
        let beside = |ty| matches!(ty, FieldType::String | FieldType::Object);
        self.values.sweep(words.filter(|(_, ty)| beside(*ty)));
        self.work.refused.iter_mut().for_each(|refusal| refusal.broken.clear());
    }
}

fn again(layout: &ChainPlan, fresh: &mut [Fresh], first: usize, found: &[u64], time: i64) {
    let width = layout.steps[first].width;
    let begin = if first == 0 { 0 } else { found[BEGIN] };
    let head = [time as u64, begin, found[MARKS] & mask_of(width)];
    fresh[first].push_words(head, &found[HEAD..HEAD + width], &[]);
}

/// The marks of the first `width` values.
pub(super) fn mask_of(width: usize) -> u64 {
    (1 << width) - 1
}

fn pair_holds<'t>(
    pair: &Pair,
    column: &Column,
    row: usize,
    found: &[u64],
    capture: &Capture,
    value: impl Fn(u64) -> &'t str,
) -> bool {
    let (op, word) = (pair.op, found[HEAD + pair.capture]);
    if found[MARKS] >> pair.capture & 1 == 1 || column.is_null(row) {
        return op == Comparison::Ne;
    }
    match (pair.domain, column.data()) {
        (Domain::Double, Data::Double(values)) => holds(op, values[row], word_double(word, capture.ty)),
        (Domain::Double, _) => holds(op, double(column, row), word_double(word, capture.ty)),
        (Domain::Whole, _) => holds(op, whole(column, row), word as i64),
        (Domain::Single, _) => holds(op, single(column, row), word_single(word, capture.ty)),
        (Domain::Text, _) => holds(op, text(column, row), value(word)),
    }
}

/// A match joins those that wait at a step.
#[inline]
pub(super) fn admit(
    layout: &ChainPlan,
    i: usize,
    list: &mut List,
    values: &Values,
    scratch: &mut [Column],
    found: &[u64],
) {
    let step = &layout.steps[i];
    let key = step.index.as_ref().map(|index| {
        match_key(index, layout, values, found, &mut |expr| {
            fill(scratch, &step.references, &|read, ty| read_word(layout, values, found, read, ty));
            let time = found[TIME] as i64;
            evaluate(expr, &[None, Some((scratch, 0))], time, time)
        })
    });
    list.push(found, key);
}

/// What the matches of a list are found by.
fn match_key(
    index: &Index,
    layout: &ChainPlan,
    values: &Values,
    found: &[u64],
    compute: &mut dyn FnMut(&Expr) -> Value,
) -> Key {
    match &index.of_match {
        Side::At(capture) => {
            let (word, ty) = (found[HEAD + capture], layout.captures[*capture].ty);
            let there = found[MARKS] >> capture & 1 == 0;
            match index.domain {
                Domain::Whole => Key::Whole(there.then_some(word as i64)),
                Domain::Double => Key::Double(there.then(|| word_double(word, ty))),
                Domain::Single => Key::Double(there.then(|| word_single(word, ty))),
                Domain::Text => Key::Whole(there.then(|| values.hash(values.text(word)))),
            }
        }
        Side::Computed(expr) => key(index.domain, &compute(expr)),
    }
}

fn key(domain: Domain, value: &Value) -> Key {
    match domain {
        Domain::Whole | Domain::Text => Key::Whole(value.as_i64()),
        Domain::Double => Key::Double(value.as_f64()),
        Domain::Single => Key::Double(value.as_f64().map(|_| f64::from(mask::single(value)))),
    }
}

/// The value of something that cannot fail.
fn evaluate(expr: &Expr, rows: &[RowRef<'_>], time: i64, now: i64) -> Value {
    expr.eval(&Frame { rows, time, now, host: &NoContext }).unwrap_or_default()
}

/// Puts what conditions read of a match where they look for it.
pub(super) fn fill(
    scratch: &mut [Column],
    references: &[(Read, FieldType)],
    read: &dyn Fn(Read, FieldType) -> Value,
) {
    for (column, (from, ty)) in scratch.iter_mut().zip(references) {
        column.truncate(0);
        column.push(read(*from, *ty));
    }
}

/// A value of a match.
pub(super) fn read_word(
    layout: &ChainPlan,
    values: &Values,
    found: &[u64],
    read: Read,
    ty: FieldType,
) -> Value {
    match read {
        Read::True => Value::Bool(true),
        Read::Null => Value::Null,
        Read::Capture(at) if found[MARKS] >> at & 1 == 1 || at >= layout.captures.len() => Value::Null,
        Read::Capture(at) => found.get(HEAD + at).map_or(Value::Null, |word| values.get(*word, ty)),
    }
}
