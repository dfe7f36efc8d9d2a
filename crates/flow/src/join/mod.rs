//! Joins: what arrives at one side, or leaves it, is matched with what the other side holds.

mod compile;
mod index;
mod keys;
mod matches;
mod search;
mod sliding;
mod why;

use std::ops::Range;
use std::sync::Arc;

use tidemill_types::FieldType;

use crate::aggregation::BucketQuery;
use crate::batch::{Batch, EventKind};
use crate::column::Column;
use crate::expr::{EvalContext, EvalError, Expr};
use crate::processor::HandlerChain;
use crate::query::Handler;
use crate::snapshot::{Error, Reader, Writer};
use crate::store::RowId;
use crate::table::TableSearch;
use crate::window::{RowChanges, WindowConstructor};
use crate::window_operator::WindowOperator;
use index::JoinIndex;
use keys::JoinKeys;

pub(crate) use compile::{compile, no_window_on_window};
pub(crate) use matches::JoinMatches;
use matches::SideColumn;

/// A row: columns, and its place in them.
type RowView<'a> = (&'a [Column], usize);

/// A compiled join.
#[derive(Clone)]
pub struct JoinPlan {
    /// Left and right.
    pub sides: [SidePlan; 2],
    /// What a match must satisfy, the sides being slots 0 and 1.
    pub on: Option<Expr>,
    /// The same taken apart.
    pub keys: JoinKeys,
    /// How a side is searched that is a table.
    pub search: Option<TableSearch>,
    /// Which buckets are read of a side that is an aggregation.
    pub bucket_query: Option<BucketQuery>,
    /// The columns that come out, counted over the left side and then the right one; behind them come the times of both.
    pub columns: Vec<usize>,
}

/// One side.
#[derive(Clone)]
pub struct SidePlan {
    /// What it reads.
    pub source: SideSource,
    /// The types of what comes to its handlers.
    pub input_types: Vec<FieldType>,
    /// The types of its columns: with what handlers add.
    pub columns: Vec<FieldType>,
    /// What is done to events that arrive.
    pub handlers: Vec<Handler>,
    /// Its window.
    pub window: Option<WindowConstructor>,
    /// Whether what arrives is matched.
    pub triggers: bool,
    /// Whether it comes out without a match.
    pub outer: bool,
}

/// What a side reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideSource {
    /// A stream.
    Stream(usize),
    /// A named window: the stream of what it puts out, and its number.
    Window(usize, usize),
    /// A table.
    Table(usize),
    /// An aggregation.
    Aggregation(usize),
}

impl JoinPlan {
    /// The streams that it reads, each with the side to which its events go.
    pub fn reads(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.sides.iter().enumerate().filter_map(|(side, plan)| match plan.source {
            SideSource::Stream(stream) => Some((stream, side)),
            SideSource::Window(stream, _) if plan.triggers => Some((stream, side)),
            SideSource::Window(..) | SideSource::Table(_) | SideSource::Aggregation(_) => None,
        })
    }

    /// No matches so far.
    fn empty_matches(&self) -> JoinMatches {
        let [left, right] = [0, 1].map(|side: usize| self.sides[side].columns.len());
        let of = |side: usize| {
            let (from, to) = if side == 0 { (0, left) } else { (left, left + right) };
            self.columns.iter().filter_map(move |c| match *c {
                c if (from..to).contains(&c) => {
                    Some((SideColumn::Attribute(c - from), self.sides[side].columns[c - from]))
                }
                c => (c == left + right + side).then_some((SideColumn::Time, FieldType::Long)),
            })
        };
        JoinMatches::new([of(0).collect(), of(1).collect()])
    }
}

/// A join at work.
pub(crate) struct Join {
    plan: Arc<JoinPlan>,
    /// The handlers of each side.
    handlers: [HandlerChain; 2],
    operators: [Option<WindowOperator>; 2],
    /// Whether an event of a side without a window leaves at once, for somebody to see.
    expires_immediately: bool,
    /// The rows that the windows hold, by the columns that must be equal.
    index: Option<JoinIndex>,
    changes: RowChanges,
}

impl Join {
    /// A join that has seen nothing. `wants_expired` says whether its expired outputs are wanted, `aggregates` whether
    /// they are worked into aggregates.
    pub(crate) fn new(plan: Arc<JoinPlan>, wants_expired: bool, aggregates: bool) -> Self {
        let held = [0, 1].map(|side: usize| {
            let side = &plan.sides[side];
            side.window.as_ref().map(|make| WindowOperator::new(make, &side.columns, wants_expired, true))
        });
        let before = [0, 1]
            .map(|side: usize| HandlerChain::new(&plan.sides[side].handlers, &plan.sides[side].input_types));
        let indexed = !plan.keys.equal_columns.is_empty()
            && held.iter().flatten().any(|held| held.rows_in_order().is_some());
        let index = indexed.then(JoinIndex::default);
        let leaves = wants_expired || aggregates;
        Self {
            plan,
            handlers: before,
            operators: held,
            expires_immediately: leaves,
            index,
            changes: RowChanges::default(),
        }
    }

    /// The app starts.
    pub(crate) fn start(&mut self, now: i64) {
        self.handlers.iter_mut().for_each(|handlers| handlers.start(now));
        self.windows().for_each(|held| held.start(now));
    }

    /// Another greatest number of rows for each window.
    pub(crate) fn set_rows_max(&mut self, rows_max: usize) {
        self.windows().for_each(|held| held.set_rows_max(rows_max));
    }

    /// The windows, left first.
    pub(crate) fn windows(&mut self) -> impl Iterator<Item = &mut WindowOperator> {
        self.operators.iter_mut().flatten()
    }

    /// Writes its state: that of its handlers, then of its windows, left first.
    pub(crate) fn save(&self, out: &mut Writer<'_>) -> Result<(), Error> {
        for handlers in self.handlers.iter().filter(|h| h.have_state()) {
            out.json(&handlers.save())?;
        }
        self.operators.iter().flatten().try_for_each(|held| held.save(out))
    }

    /// Takes a state back.
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        for handlers in self.handlers.iter_mut().filter(|h| h.have_state()) {
            let state = from.json()?;
            handlers.restore(&state).map_err(|e| from.damaged(e.0))?;
        }
        self.windows().try_for_each(|held| held.restore(from))?;
        (0..2).for_each(|side| self.rebuild_index(side));
        Ok(())
    }

    /// Events arrive at a side: the matches of what its window puts out of each chunk.
    pub(crate) fn process(
        &mut self,
        side: usize,
        input: &Batch,
        host: &dyn EvalContext,
    ) -> Result<JoinMatches, EvalError> {
        let handled = self.handlers[side].push(input, host)?;
        self.process_handled(side, &handled, host)
    }

    /// The same behind the side's handlers.
    fn process_handled(
        &mut self,
        side: usize,
        input: &Batch,
        host: &dyn EvalContext,
    ) -> Result<JoinMatches, EvalError> {
        let mut found = self.plan.empty_matches();
        let first = self.append(side, input)?;
        for (rows, clock) in input.chunks() {
            self.process_chunk(side, input, first, rows, clock, host, &mut found)?;
        }
        self.materialize(&mut found, [Some(input); 2]);
        self.evict_unneeded(side);
        Ok(found)
    }

    /// Batches arrive at the sides and take turns: so many chunks of the batch of a side are next.
    pub(crate) fn interleave(
        &mut self,
        inputs: [&Batch; 2],
        turns: impl Iterator<Item = (usize, usize)>,
        host: &dyn EvalContext,
    ) -> Result<JoinMatches, EvalError> {
        let plan = self.plan.clone();
        let mut found = plan.empty_matches();
        // rows of windows stay where they are until all is put together
        let at_once =
            self.operators.iter().all(Option::is_some) && plan.sides.iter().all(|s| s.handlers.is_empty());
        let first = match at_once {
            true => [self.append(0, inputs[0])?, self.append(1, inputs[1])?],
            false => [0; 2],
        };
        if at_once && self.supports_sliding_path(inputs, first) {
            self.process_sliding(inputs, first, turns, host, &mut found)?;
            self.materialize(&mut found, [None; 2]);
            (0..2).for_each(|side| self.evict_unneeded(side));
            return Ok(found);
        }
        let mut next = [0; 2];
        for (side, chunks) in turns {
            let input = inputs[side];
            let until = (next[side] + chunks).min(input.chunk_ends.len());
            for chunk in next[side]..until {
                let start = if chunk == 0 { 0 } else { input.chunk_ends[chunk - 1] };
                let (rows, clock) =
                    (start as usize..input.chunk_ends[chunk] as usize, input.chunk_clocks[chunk]);
                if at_once {
                    self.process_chunk(side, input, first[side], rows, clock, host, &mut found)?;
                    continue;
                }
                let mut one = Batch::new(input.columns.iter().map(Column::ty));
                rows.for_each(|row| one.push_row(input, row, input.kinds[row], input.times[row]));
                one.end_chunk(clock);
                let handled = self.handlers[side].push(&one, host)?;
                let one = handled.as_ref();
                let first = self.append(side, one)?;
                for (rows, clock) in one.chunks() {
                    self.process_chunk(side, one, first, rows, clock, host, &mut found)?;
                }
                self.materialize(&mut found, [Some(one); 2]);
                self.evict_unneeded(side);
            }
            next[side] = until;
        }
        self.materialize(&mut found, [None; 2]);
        (0..2).for_each(|side| self.evict_unneeded(side));
        Ok(found)
    }

    /// The rows of a batch enter the store of a side's window, though they have not arrived at it; the number of the
    /// first.
    fn append(&mut self, side: usize, input: &Batch) -> Result<RowId, EvalError> {
        let Some(held) = &mut self.operators[side] else { return Ok(0) };
        let first = held.try_append(input)?;
        if let Some(index) = &mut self.index
            && held.rows_in_order().is_some()
        {
            index.append_all(&self.plan.keys, side, &input.columns, input.len());
            debug_assert_eq!(index.end(side), held.store().next_id());
        }
        Ok(first)
    }

    /// A chunk arrives at a side whose rows have entered it.
    #[allow(clippy::too_many_arguments)]
    fn process_chunk(
        &mut self,
        side: usize,
        input: &Batch,
        first: RowId,
        rows: Range<usize>,
        clock: i64,
        host: &dyn EvalContext,
        found: &mut JoinMatches,
    ) -> Result<(), EvalError> {
        let mut signals = std::mem::take(&mut self.changes);
        signals.clear();
        match &mut self.operators[side] {
            Some(held) => {
                let numbers = first + rows.start as RowId..first + rows.end as RowId;
                if let Some(index) = &mut self.index
                    && held.rows_in_order().is_some()
                {
                    numbers.clone().for_each(|seq| {
                        index.mark_arrived(side, seq);
                    });
                }
                held.process_into(numbers, clock, &mut signals)?;
                self.evict_from_index(side, first + rows.end as RowId);
            }
            None => {
                let leaves =
                    self.expires_immediately && matches!(self.plan.sides[side].source, SideSource::Stream(_));
                for row in rows {
                    let (seq, time) = (row as RowId, input.times[row]);
                    match input.kinds[row] {
                        EventKind::Reset => signals.reset(time),
                        EventKind::Expired => signals.expired(seq, time),
                        EventKind::Current => signals.current(seq, time),
                    }
                    // each event leaves right behind itself
                    if leaves {
                        signals.expired(seq, clock);
                    }
                }
                signals.end_chunk();
            }
        }
        let matched = self.match_changes(side, &signals, Some(input), clock, host, found);
        self.changes = signals;
        matched
    }

    /// The index lets go of what a window does not need of the rows that have arrived.
    fn evict_from_index(&mut self, side: usize, arrived: RowId) {
        if let (Some(index), Some(held)) = (&mut self.index, &self.operators[side]) {
            index.evict_below(side, held.oldest_retained().unwrap_or(arrived).min(arrived));
        }
    }

    /// The index is made again of what a window needs.
    fn rebuild_index(&mut self, side: usize) {
        let (Some(index), Some(held)) = (&mut self.index, &self.operators[side]) else { return };
        if held.rows_in_order().is_none() {
            return;
        }
        let rows = held.store();
        let oldest = held.oldest_retained().unwrap_or(rows.next_id());
        index.clear(side, oldest);
        for seq in rows.ids_from(oldest) {
            while index.end(side) < seq {
                index.skip_row(side);
            }
            index.append(&self.plan.keys, side, rows.row(seq));
            index.mark_arrived(side, seq);
        }
        while index.end(side) < rows.next_id() {
            index.skip_row(side);
        }
    }

    /// Takes the values of matched rows; `inputs` are the batches of sides that hold nothing.
    fn materialize(&self, found: &mut JoinMatches, inputs: [Option<&Batch>; 2]) {
        for (side, input) in inputs.into_iter().enumerate() {
            match (&self.operators[side], input) {
                (Some(held), _) => found.gather_from_store(side, held.store()),
                (None, Some(input)) => {
                    let row = |row| (input.columns.as_slice(), row as usize);
                    found.gather(side, row, |row| input.times[row as usize]);
                }
                // there is nothing but rows that are not there
                (None, None) => found.gather(side, |_| (&[], 0), |_| 0),
            }
        }
    }

    fn evict_unneeded(&mut self, side: usize) {
        if let Some(held) = &mut self.operators[side] {
            held.release();
        }
    }

    /// The matches of what the next timer of a side's handlers or else of its window lets out, if one is due at `now`.
    pub(crate) fn fire_timer_of(
        &mut self,
        side: usize,
        now: i64,
        host: &dyn EvalContext,
    ) -> Option<Result<JoinMatches, EvalError>> {
        if let Some(out) = self.handlers[side].fire_timer(now, host) {
            return Some(out.and_then(|out| self.process_handled(side, &out, host)));
        }
        let mut signals = RowChanges::default();
        let done = self.operators[side].as_mut()?.fire_timer_into(now, &mut signals)?;
        Some(done.and_then(|()| self.match_window_output(side, &signals, now, host)))
    }

    /// When the next timer of a side is due.
    pub(crate) fn next_timer_of(&self, side: usize) -> Option<i64> {
        let window = self.operators[side].as_ref().and_then(WindowOperator::next_timer);
        self.handlers[side].due().into_iter().chain(window).min()
    }

    /// The first instant later than `after` at which one of its windows wants the clock to stop.
    pub(crate) fn next_scheduled(&self, after: i64) -> Option<i64> {
        self.operators.iter().flatten().filter_map(|held| held.next_scheduled(after)).min()
    }

    /// The matches of what its windows let out at such an instant.
    pub(crate) fn fire_schedule(
        &mut self,
        at: i64,
        host: &dyn EvalContext,
    ) -> Result<Vec<JoinMatches>, EvalError> {
        let mut all = Vec::new();
        for side in 0..2 {
            if let Some(held) = &mut self.operators[side]
                && held.next_scheduled(at - 1) == Some(at)
            {
                let mut signals = RowChanges::default();
                held.fire_schedule_into(at, &mut signals)?;
                all.push(self.match_window_output(side, &signals, at, host)?);
            }
        }
        Ok(all)
    }

    /// The matches of what a window lets out without an arrival.
    fn match_window_output(
        &mut self,
        side: usize,
        signals: &RowChanges,
        clock: i64,
        host: &dyn EvalContext,
    ) -> Result<JoinMatches, EvalError> {
        let mut found = self.plan.empty_matches();
        if let Some(held) = &self.operators[side] {
            let arrived = held.store().next_id();
            self.evict_from_index(side, arrived);
        }
        self.match_changes(side, signals, None, clock, host, &mut found)?;
        self.materialize(&mut found, [None; 2]);
        self.evict_unneeded(side);
        Ok(found)
    }
}
