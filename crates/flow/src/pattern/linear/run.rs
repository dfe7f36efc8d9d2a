//! Event processing of linear patterns.

use tidemill_types::FieldType;

use super::match_list::{BEGIN, HEADER_WORDS, MARKS, MatchKey, MatchList, TIME};
use super::new_matches::NewMatches;
use super::plan::{
    Capture, CaptureComparison, ComparisonOperand, IndexedComparison, LinearPlan, ValueSource,
};
use super::value_arena::{ValueArena, word_double, word_float};
use super::{LinearState, NEVER};
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::columns::value::Value;
use crate::columns::value_ref::ValueRef;
use crate::eval_error::EvalError;
use crate::expr::{Comparison, EvalContext, Expr, Frame, NoContext, RowRef};
use crate::pattern::conditions::{ComparisonDomain, holds};
use crate::pattern::matches::group_ends;
use crate::pattern::plan::{PatternPlan, ReferenceKind};
use crate::pattern::{mask, too_many};

/// Events that a run processes: a batch, or a single one.
pub(super) trait RunEvents: Copy {
    /// Returns a value of an event; null for a column that its stream does not have.
    fn value(&self, column: usize, row: usize) -> ValueRef<'_>;

    /// Keeps a value of an event of type `ty` in an arena, see [`ValueArena::keep`].
    #[inline]
    fn keep(&self, (column, ty): (usize, FieldType), row: usize, values: &mut ValueArena) -> Option<u64> {
        values.keep(self.value(column, row), ty)
    }

    /// Returns the columns of the events, for conditions that are evaluated on columns.
    fn columns(&self) -> &[Column];

    /// Returns whether an event satisfies the conditions of step `i` on the event alone; `mask` are those that were
    /// evaluated for the whole batch.
    fn satisfies(
        &self,
        layout: &LinearPlan,
        i: usize,
        mask: &[bool],
        event: CurrentEvent,
        host: &dyn EvalContext,
    ) -> Result<bool, EvalError>;
}

impl RunEvents for &Batch {
    #[inline]
    fn value(&self, column: usize, row: usize) -> ValueRef<'_> {
        self.columns.get(column).map_or(ValueRef::Null, |column| column.value_ref(row))
    }

    #[inline]
    fn keep(&self, (column, _): (usize, FieldType), row: usize, values: &mut ValueArena) -> Option<u64> {
        values.keep_of(self.columns.get(column)?, row)
    }

    fn columns(&self) -> &[Column] {
        &self.columns
    }

    fn satisfies(
        &self,
        layout: &LinearPlan,
        i: usize,
        mask: &[bool],
        event: CurrentEvent,
        host: &dyn EvalContext,
    ) -> Result<bool, EvalError> {
        let step = &layout.steps[i];
        if !step.vectorized.is_empty() && !mask[event.row] {
            return Ok(false);
        }
        let rows = [Some((self.columns.as_slice(), event.row))];
        let frame = Frame { rows: &rows, time: event.time, now: event.now, host };
        for condition in &step.event_only {
            if !condition.is_true(&frame)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Processing of one batch of events, or of a single one.
pub(super) struct EventRun<'a, E = &'a Batch> {
    pub plan: &'a PatternPlan,
    pub layout: &'a LinearPlan,
    pub state: &'a mut LinearState,
    pub port: usize,
    pub batch: E,
    pub host: &'a dyn EvalContext,
}

/// The event that is being processed.
#[derive(Clone, Copy)]
pub(super) struct CurrentEvent {
    pub row: usize,
    pub time: i64,
    pub now: i64,
}

impl EventRun<'_, &Batch> {
    pub fn process_batch(&mut self) -> Result<(), EvalError> {
        self.compute_masks();
        self.state.scratch.rejected.iter_mut().for_each(|refusal| refusal.broken_match.clear());
        let done = self.process_columnar()?;
        for (rows, now) in self.batch.chunks().skip(done) {
            for row in rows {
                if self.batch.kinds[row] == EventKind::Current {
                    self.process_row(CurrentEvent { row, time: self.batch.times[row], now })?;
                }
            }
        }
        self.record_last_event();
        Ok(())
    }

    /// Records the last event of the batch, or the one that broke a sequence, for reports on why nothing
    /// matches.
    fn record_last_event(&mut self) {
        let last = (0..self.batch.len()).rev().find(|row| self.batch.kinds[*row] == EventKind::Current);
        let now = self.batch.chunk_clocks.last().copied().unwrap_or_default();
        let sequence = self.plan.sequence;
        for (step, refusal) in self.layout.steps.iter().zip(&mut self.state.scratch.rejected) {
            let row =
                if sequence { Some(refusal.row).filter(|_| !refusal.broken_match.is_empty()) } else { last };
            if let Some(row) = row.filter(|_| step.stream == self.port) {
                refusal.event.record(self.batch, row, now, step.event_columns.iter().copied());
            }
        }
    }

    fn compute_masks(&mut self) {
        for (step, mask) in self.layout.steps.iter().zip(&mut self.state.scratch.masks) {
            if step.stream == self.port && !step.vectorized.is_empty() {
                mask.clear();
                mask.resize(self.batch.len(), true);
                step.vectorized.iter().for_each(|condition| mask::narrow(condition, self.batch, mask));
            }
        }
    }
}

impl<E: RunEvents> EventRun<'_, E> {
    /// Processes one event and closes its group of completed matches.
    pub(super) fn process_row(&mut self, event: CurrentEvent) -> Result<(), EvalError> {
        let before = self.state.completed_count;
        let done = self.process_event(event);
        self.end_event(before, event.now);
        done?;
        self.sweep_if_full();
        Ok(())
    }

    /// Assigns the matches completed since there were `before` to one event.
    pub(super) fn end_event(&mut self, before: u32, clock: i64) {
        if self.state.completed_count == before {
            return;
        }
        let together = self.plan.emits_matches_together(self.port);
        let ends = group_ends(before, self.state.completed_count, together);
        self.state.ends.extend(ends.map(|end| (end, clock)));
    }

    pub(super) fn sweep_if_full(&mut self) {
        if self.state.values.is_full() {
            self.state.sweep(self.layout);
        }
    }

    fn process_event(&mut self, event: CurrentEvent) -> Result<(), EvalError> {
        let layout = self.layout;
        if let Some(within) = self.plan.within {
            self.expire(event.time, within.unsigned_abs());
        }
        // a first step that any event may match keeps its empty match waiting
        let first = usize::from(layout.restarts_always);
        if self.plan.sequence {
            self.state.waiting[first..].iter_mut().for_each(MatchList::clear);
            let every = layout.steps[0].every_end.is_some();
            if self.state.new_matches[0].is_empty() && (first == 0 || self.state.waiting[0].len() == 0) {
                self.state.arm(every);
            }
            (0..layout.steps.len()).for_each(|i| self.promote_new_matches(i));
        } else {
            let port = self.port;
            let reads = |i: &usize| layout.steps[*i].stream == port;
            (0..layout.steps.len()).filter(reads).for_each(|i| self.promote_new_matches(i));
        }
        let held = self.state.match_count();
        if held >= self.plan.limits.partial_matches_max {
            return Err(too_many(&self.plan.limits));
        }
        for i in (first..layout.steps.len()).rev() {
            if layout.steps[i].stream == self.port && self.state.waiting[i].len() > 0 {
                self.offer(i, event)?;
            }
        }
        if layout.restarts_always && layout.steps[0].stream == self.port && self.state.waiting[0].len() > 0 {
            self.start_match(event)?;
        }
        Ok(())
    }

    /// Begins a match with the event if it satisfies the first step; the empty match keeps waiting.
    fn start_match(&mut self, event: CurrentEvent) -> Result<(), EvalError> {
        if !self.satisfies_event_conditions(0, event)? {
            if self.plan.sequence {
                self.state.record_broken_match(0, None, event.row);
                self.state.waiting[0].iter_mut().for_each(|found| found[TIME] = NEVER as u64);
            }
            return Ok(());
        }
        self.state.waiting[0].iter_mut().for_each(|found| found[TIME] = event.time as u64);
        if self.plan.sequence && !self.state.new_matches[1].is_empty() {
            return Ok(());
        }
        self.capture(0, event);
        let LinearState { new_matches: fresh, scratch: work, .. } = &mut *self.state;
        let time = event.time as u64;
        fresh[1].push_words([time, time, work.captured_nulls], &[], &work.captured);
        Ok(())
    }

    /// Drops the matches that exceed `within`. Only a match with a first event can.
    fn expire(&mut self, time: i64, within: u64) {
        for (i, step) in self.layout.steps.iter().enumerate().skip(1) {
            let ran_out = |found: &[u64]| (found[BEGIN] as i64).abs_diff(time) > within;
            let LinearState { waiting, new_matches: fresh, scratch: work, .. } = &mut *self.state;
            let (list, fresh) = (&mut waiting[i], &mut fresh[i]);
            work.last_expired.clear();
            let mut note = |found: &[u64]| {
                work.last_expired.clear();
                work.last_expired.extend_from_slice(found);
            };
            while let Some(found) = list.first().filter(|found| ran_out(found)) {
                note(found);
                list.remove_first();
            }
            fresh.extract(ran_out, note);
            if let (false, Some(first)) = (work.last_expired.is_empty(), step.every_in) {
                let out = std::mem::take(&mut work.last_expired);
                self.state.restart_every(self.layout, first, &out);
                self.promote_new_matches(first);
                self.state.scratch.last_expired = out;
            }
        }
    }

    /// Makes the matches that reached step `i` during earlier events visible to the next event.
    pub(super) fn promote_new_matches(&mut self, i: usize) {
        let LinearState { waiting, new_matches: fresh, scratch: work, values, .. } = &mut *self.state;
        let (list, fresh) = (&mut waiting[i], &mut fresh[i]);
        if fresh.is_empty() {
            return;
        }
        fresh.sort();
        for found in fresh.iter() {
            push_waiting(self.layout, i, list, values, &mut work.condition_inputs[i], found);
        }
        fresh.clear();
    }

    /// Offers an event to the matches that wait at step `i`, in order.
    fn offer(&mut self, i: usize, event: CurrentEvent) -> Result<(), EvalError> {
        let step = &self.layout.steps[i];
        if !self.satisfies_event_conditions(i, event)? {
            if self.plan.sequence {
                self.state.record_broken_match(i, None, event.row);
                self.state.waiting[i].clear();
            }
            return Ok(());
        }
        let key = step.index.as_ref().map(|index| self.event_key(index, event));
        let mut found = std::mem::take(&mut self.state.scratch.found);
        found.clear();
        self.state.waiting[i].find(key, &mut found);
        let mut kept = false;
        let mut failed = None;
        for place in &found {
            let place = *place as usize;
            match self.satisfies_match_conditions(i, place, event) {
                Ok(true) => {
                    if !std::mem::replace(&mut kept, true) {
                        self.capture(i, event);
                    }
                    self.state.complete_step(self.layout, self.plan.sequence, i, place, event.time);
                    self.state.waiting[i].remove(place);
                }
                Ok(false) if self.plan.sequence => {
                    self.state.record_broken_match(i, Some(place), event.row);
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
            self.state.waiting[i].compact_if_needed();
        }
        self.state.scratch.found = found;
        failed.map_or(Ok(()), Err)
    }

    /// Returns whether the event satisfies the conditions on the event alone.
    fn satisfies_event_conditions(&self, i: usize, event: CurrentEvent) -> Result<bool, EvalError> {
        self.batch.satisfies(self.layout, i, &self.state.scratch.masks[i], event, self.host)
    }

    /// Returns whether event and match satisfy the conditions on both, except that of the index.
    #[inline]
    fn satisfies_match_conditions(
        &mut self,
        i: usize,
        place: usize,
        event: CurrentEvent,
    ) -> Result<bool, EvalError> {
        let step = &self.layout.steps[i];
        let LinearState { waiting, values, scratch: work, .. } = &mut *self.state;
        let found = waiting[i].get(place);
        for pair in &step.capture_comparisons {
            let value = self.batch.value(pair.column, event.row);
            let text = |word| values.text(word);
            if !pair_holds(pair, value, found, &self.layout.captures[pair.capture], text) {
                return Ok(false);
            }
        }
        if step.rest.is_empty() {
            return Ok(true);
        }
        fill_condition_inputs(&mut work.condition_inputs[i], &step.references, &|read, ty| {
            read_word(self.layout, values, found, read, ty)
        });
        let of_match = Some((work.condition_inputs[i].as_slice(), 0));
        let rows = [Some((self.batch.columns(), event.row)), of_match];
        let frame = Frame { rows: &rows, time: event.time, now: event.now, host: self.host };
        for condition in &step.rest {
            if !condition.is_true(&frame)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn event_key(&self, index: &IndexedComparison, event: CurrentEvent) -> MatchKey {
        match &index.event {
            ComparisonOperand::Stored(column) => {
                let value = self.batch.value(*column, event.row);
                match index.domain {
                    ComparisonDomain::Long => MatchKey::Long(value.as_i64()),
                    ComparisonDomain::Double => MatchKey::Double(value.as_f64()),
                    ComparisonDomain::Float => MatchKey::Double(value.as_f32().map(f64::from)),
                    ComparisonDomain::String => {
                        MatchKey::Long(value.as_str().map(|text| self.state.values.hash(text)))
                    }
                }
            }
            ComparisonOperand::Computed(expr) => {
                let rows = [Some((self.batch.columns(), event.row))];
                key(index.domain, &evaluate(expr, &rows, event.time, event.now))
            }
        }
    }

    /// Stores the captures of the event at step `i` in the scratch buffer.
    pub(super) fn capture(&mut self, i: usize, event: CurrentEvent) {
        let LinearState { scratch: work, values, .. } = &mut *self.state;
        work.captured.clear();
        work.captured_nulls =
            push_captures(self.layout, i, (self.batch, event.row), event.time, values, &mut work.captured);
    }
}

/// Appends the captures of a row at step `i` to `out`. Returns the marks of those that are null.
#[inline]
pub(super) fn push_captures(
    layout: &LinearPlan,
    i: usize,
    (events, row): (impl RunEvents, usize),
    time: i64,
    values: &mut ValueArena,
    out: &mut Vec<u64>,
) -> u64 {
    let step = &layout.steps[i];
    let mut marks = 0;
    for at in step.width..step.width + step.own_captures {
        let word = match layout.captures[at].kind {
            ReferenceKind::Time => Some(time as u64),
            ReferenceKind::Presence => Some(1),
            ReferenceKind::Attribute(column) => events.keep((column, layout.captures[at].ty), row, values),
        };
        if word.is_none() {
            marks |= 1 << at;
        }
        out.push(word.unwrap_or_default());
    }
    marks
}

impl LinearState {
    /// Advances the match at index `place` past step `i`: completes it, or passes it to the next step.
    #[inline]
    fn complete_step(&mut self, layout: &LinearPlan, sequence: bool, i: usize, place: usize, time: i64) {
        let step = &layout.steps[i];
        let found = self.waiting[i].get(place);
        let marks = found[MARKS] & all_nulls_mask(step.width) | self.scratch.captured_nulls;
        let begin = if i == 0 { time as u64 } else { found[BEGIN] };
        let head = [time as u64, begin, marks];
        if step.is_last {
            self.completed.extend_from_slice(&head);
            self.completed.extend_from_slice(&found[HEADER_WORDS..]);
            self.completed.extend_from_slice(&self.scratch.captured);
            self.completed_count += 1;
        } else if !sequence || self.new_matches[i + 1].is_empty() {
            self.new_matches[i + 1].push_words(head, &found[HEADER_WORDS..], &self.scratch.captured);
        }
        if let Some(first) = step.every_end {
            restart_from(layout, &mut self.new_matches, first, found, time);
        }
    }

    /// Records the match of a sequence that an event broke: that at index `place`, or the first.
    #[inline]
    fn record_broken_match(&mut self, i: usize, place: Option<usize>, row: usize) {
        let list = &self.waiting[i];
        let Some(found) = place.map_or_else(|| list.first(), |place| Some(list.get(place))) else { return };
        let refusal = &mut self.scratch.rejected[i];
        refusal.row = row;
        refusal.broken_match.clear();
        refusal.broken_match.extend_from_slice(found);
    }

    /// Restarts the `every` group that begins with step `first`, with a copy of a match.
    fn restart_every(&mut self, layout: &LinearPlan, first: usize, found: &[u64]) {
        restart_from(layout, &mut self.new_matches, first, found, found[TIME] as i64);
    }

    /// Drops strings and objects that no match references.
    fn sweep(&mut self, layout: &LinearPlan) {
        let types: Vec<_> = layout.captures.iter().map(|c| c.ty).collect();
        let stride = HEADER_WORDS + types.len();
        let waiting = self.waiting.iter_mut().flat_map(MatchList::iter_mut);
        let fresh = self.new_matches.iter_mut().flat_map(NewMatches::iter_mut);
        let all = waiting.chain(fresh).chain(self.completed.chunks_exact_mut(stride));
        let words = all.flat_map(|found| {
            let (head, values) = found.split_at_mut(HEADER_WORDS);
            let marks = head[MARKS];
            let values = values.iter_mut().zip(&types).enumerate();
            values.filter(move |(at, _)| marks >> at & 1 == 0).map(|(_, (word, ty))| (word, *ty))
        });
        let beside = |ty| matches!(ty, FieldType::String | FieldType::Object);
        self.values.sweep(words.filter(|(_, ty)| beside(*ty)));
        self.scratch.rejected.iter_mut().for_each(|refusal| refusal.broken_match.clear());
    }
}

fn restart_from(layout: &LinearPlan, fresh: &mut [NewMatches], first: usize, found: &[u64], time: i64) {
    let width = layout.steps[first].width;
    let begin = if first == 0 { 0 } else { found[BEGIN] };
    let head = [time as u64, begin, found[MARKS] & all_nulls_mask(width)];
    fresh[first].push_words(head, &found[HEADER_WORDS..HEADER_WORDS + width], &[]);
}

/// Returns the null marks of the first `width` captures.
pub(super) fn all_nulls_mask(width: usize) -> u64 {
    (1 << width) - 1
}

fn pair_holds<'t>(
    pair: &CaptureComparison,
    value: ValueRef<'_>,
    found: &[u64],
    capture: &Capture,
    captured_text: impl Fn(u64) -> &'t str,
) -> bool {
    let (op, word) = (pair.op, found[HEADER_WORDS + pair.capture]);
    if found[MARKS] >> pair.capture & 1 == 1 || value.is_null() {
        return op == Comparison::Ne;
    }
    match pair.domain {
        ComparisonDomain::Double => {
            holds(op, value.as_f64().unwrap_or(f64::NAN), word_double(word, capture.ty))
        }
        ComparisonDomain::Long => holds(op, value.as_i64().unwrap_or_default(), word as i64),
        ComparisonDomain::Float => {
            holds(op, f64::from(value.as_f32().unwrap_or(f32::NAN)), word_float(word, capture.ty))
        }
        ComparisonDomain::String => holds(op, value.as_str().unwrap_or_default(), captured_text(word)),
    }
}

/// Appends a match to those that wait at step `i`.
#[inline]
pub(super) fn push_waiting(
    layout: &LinearPlan,
    i: usize,
    list: &mut MatchList,
    values: &ValueArena,
    scratch: &mut [Column],
    found: &[u64],
) {
    let step = &layout.steps[i];
    let key = step.index.as_ref().map(|index| {
        match_key(index, layout, values, found, &mut |expr| {
            fill_condition_inputs(scratch, &step.references, &|read, ty| {
                read_word(layout, values, found, read, ty)
            });
            let time = found[TIME] as i64;
            evaluate(expr, &[None, Some((scratch, 0))], time, time)
        })
    });
    list.push(found, key);
}

/// Computes the key of a match for the index of its list.
fn match_key(
    index: &IndexedComparison,
    layout: &LinearPlan,
    values: &ValueArena,
    found: &[u64],
    compute: &mut dyn FnMut(&Expr) -> Value,
) -> MatchKey {
    match &index.of_match {
        ComparisonOperand::Stored(capture) => {
            let (word, ty) = (found[HEADER_WORDS + capture], layout.captures[*capture].ty);
            let there = found[MARKS] >> capture & 1 == 0;
            match index.domain {
                ComparisonDomain::Long => MatchKey::Long(there.then_some(word as i64)),
                ComparisonDomain::Double => MatchKey::Double(there.then(|| word_double(word, ty))),
                ComparisonDomain::Float => MatchKey::Double(there.then(|| word_float(word, ty))),
                ComparisonDomain::String => MatchKey::Long(there.then(|| values.hash(values.text(word)))),
            }
        }
        ComparisonOperand::Computed(expr) => key(index.domain, &compute(expr)),
    }
}

fn key(domain: ComparisonDomain, value: &Value) -> MatchKey {
    match domain {
        ComparisonDomain::Long | ComparisonDomain::String => MatchKey::Long(value.as_i64()),
        ComparisonDomain::Double => MatchKey::Double(value.as_f64()),
        ComparisonDomain::Float => MatchKey::Double(value.as_f64().map(|_| f64::from(mask::to_f32(value)))),
    }
}

/// Evaluates an expression that cannot fail.
fn evaluate(expr: &Expr, rows: &[RowRef<'_>], time: i64, now: i64) -> Value {
    expr.eval(&Frame { rows, time, now, host: &NoContext }).unwrap_or_default()
}

/// Fills `scratch`, one row, with the values that conditions read of a match.
pub(super) fn fill_condition_inputs(
    scratch: &mut [Column],
    references: &[(ValueSource, FieldType)],
    read: &dyn Fn(ValueSource, FieldType) -> Value,
) {
    for (column, (from, ty)) in scratch.iter_mut().zip(references) {
        column.truncate(0);
        column.push(read(*from, *ty));
    }
}

/// Reads a value of a match.
pub(super) fn read_word(
    layout: &LinearPlan,
    values: &ValueArena,
    found: &[u64],
    read: ValueSource,
    ty: FieldType,
) -> Value {
    match read {
        ValueSource::True => Value::Bool(true),
        ValueSource::Null => Value::Null,
        ValueSource::Capture(at) if found[MARKS] >> at & 1 == 1 || at >= layout.captures.len() => Value::Null,
        ValueSource::Capture(at) => {
            found.get(HEADER_WORDS + at).map_or(Value::Null, |word| values.get(*word, ty))
        }
    }
}
