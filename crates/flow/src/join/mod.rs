//! Joins: a row that arrives at one side, or expires from it, is matched with the rows of the other side.

mod compile;
mod index;
mod keys;
mod matches;
mod row;
mod search;
mod sliding;
mod why;

use std::ops::Range;
use std::sync::Arc;

use tidemill_types::FieldType;

use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::eval_error::EvalError;
use crate::expr::{BucketQuery, EvalContext, Expr, TableSearch};
use crate::processor::{Handler, HandlerChain};
use crate::snapshot::{Error, Reader, SnapshotWriter};
use crate::store::RowId;
use crate::window::{RowChanges, WindowConstructor};
use crate::window_operator::WindowOperator;
use index::JoinIndex;
use keys::JoinKeys;

pub(crate) use compile::{compile, no_window_on_window};
pub(crate) use matches::JoinMatches;
use matches::SideColumn;
pub(crate) use row::{JoinRowOutput, JoinRowPlan};

/// A row: columns, and its index in them.
type RowView<'a> = (&'a [Column], usize);

/// A compiled join.
#[derive(Clone)]
pub struct JoinPlan {
    /// Left and right.
    pub sides: [SidePlan; 2],
    /// The join condition; the sides are slots 0 and 1.
    pub on: Option<Expr>,
    /// The condition, decomposed into equal columns and the rest.
    pub keys: JoinKeys,
    /// Search in the table, if a side is one.
    pub search: Option<TableSearch>,
    /// Buckets to read, if a side is an aggregation.
    pub bucket_query: Option<BucketQuery>,
    /// The columns to emit, counted over the left side, then the right one, then the times of both.
    pub columns: Vec<usize>,
}

/// One side of a join.
#[derive(Clone)]
pub struct SidePlan {
    /// The stream or store that the side reads.
    pub source: SideSource,
    /// Types of the input of the handlers.
    pub input_types: Vec<FieldType>,
    /// Types of the side's columns, including those that handlers add.
    pub columns: Vec<FieldType>,
    /// Handlers applied to arriving events.
    pub handlers: Vec<Handler>,
    /// The side's window. `None` for a store, and for a stream whose events expire immediately.
    pub window: Option<WindowConstructor>,
    /// True if arriving events are matched.
    pub triggers: bool,
    /// True if events without a match are emitted, too.
    pub outer: bool,
}

/// Kind of source that a side reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideSource {
    /// The stream with this index.
    Stream(usize),
    /// A named window: the stream that it emits, and its index.
    Window(usize, usize),
    /// The table with this index.
    Table(usize),
    /// The aggregation with this index.
    Aggregation(usize),
}

impl JoinPlan {
    /// Returns the streams that the join reads, each with the side to which its events go.
    pub fn reads(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.sides.iter().enumerate().filter_map(|(side, plan)| match plan.source {
            SideSource::Stream(stream) => Some((stream, side)),
            SideSource::Window(stream, _) if plan.triggers => Some((stream, side)),
            SideSource::Window(..) | SideSource::Table(_) | SideSource::Aggregation(_) => None,
        })
    }

    /// Creates an empty list of matches with the plan's columns.
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

/// Runtime of a join.
pub(crate) struct Join {
    plan: Arc<JoinPlan>,
    /// The handlers of each side.
    handlers: [HandlerChain; 2],
    operators: [Option<WindowOperator>; 2],
    /// True if an event of a side without a window is also matched as an expired one, right after its
    /// arrival.
    expires_immediately: bool,
    /// Index of the window rows by the columns that must be equal; `None` without such columns, or if no
    /// window evicts in order.
    index: Option<JoinIndex>,
    changes: RowChanges,
}

impl Join {
    /// Creates a join in its initial state. `wants_expired`: whether its expired output is needed.
    /// `aggregates`: whether the output goes into aggregates.
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

    /// Starts handlers and windows; called once when the app starts.
    pub(crate) fn start(&mut self, now: i64) {
        self.handlers.iter_mut().for_each(|handlers| handlers.start(now));
        self.windows().for_each(|held| held.start(now));
    }

    /// Sets the maximum number of rows of each window.
    pub(crate) fn set_rows_max(&mut self, rows_max: usize) {
        self.windows().for_each(|held| held.set_rows_max(rows_max));
    }

    /// Iterates over the windows, left first.
    pub(crate) fn windows(&mut self) -> impl Iterator<Item = &mut WindowOperator> {
        self.operators.iter_mut().flatten()
    }

    /// Writes the state: that of the handlers, then that of the windows, left first.
    pub(crate) fn save(&self, out: &mut SnapshotWriter<'_>) -> Result<(), Error> {
        for handlers in self.handlers.iter().filter(|h| h.have_state()) {
            out.json(&handlers.save())?;
        }
        self.operators.iter().flatten().try_for_each(|held| held.save(out))
    }

    /// Restores a state written by [`Self::save`].
    pub(crate) fn restore(&mut self, from: &mut Reader<'_>) -> Result<(), Error> {
        for handlers in self.handlers.iter_mut().filter(|h| h.have_state()) {
            let state = from.json()?;
            handlers.restore(&state).map_err(|e| from.damaged(e.to_string()))?;
        }
        self.windows().try_for_each(|held| held.restore(from))?;
        (0..2).for_each(|side| self.rebuild_index(side));
        Ok(())
    }

    /// Processes events that arrive at a side. Returns the matches of the rows that its window emits for each
    /// chunk.
    pub(crate) fn process(
        &mut self,
        side: usize,
        input: &Batch,
        host: &dyn EvalContext,
    ) -> Result<JoinMatches, EvalError> {
        let handled = self.handlers[side].push(input, host)?;
        self.process_handled(side, &handled, host)
    }

    /// Processes events that have passed the side's handlers.
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

    /// Processes a batch for each side, interleaved. Each turn is a side and the number of its chunks to
    /// process next.
    pub(crate) fn interleave(
        &mut self,
        inputs: [&Batch; 2],
        turns: impl Iterator<Item = (usize, usize)>,
        host: &dyn EvalContext,
    ) -> Result<JoinMatches, EvalError> {
        let plan = self.plan.clone();
        let mut found = plan.empty_matches();
        // window rows stay in the store until the matches are materialized, so both batches can be appended
        // first
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

    /// Appends the rows of a batch to the store of a side's window, though they have not arrived at the
    /// window yet. Returns the id of the first row.
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

    /// Processes a chunk whose rows have been appended to the side's store.
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
                    // without a window, each event expires right after it arrived
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

    /// Evicts the arrived rows that the side's window no longer needs from the index.
    fn evict_from_index(&mut self, side: usize, arrived: RowId) {
        if let (Some(index), Some(held)) = (&mut self.index, &self.operators[side]) {
            index.evict_below(side, held.oldest_retained().unwrap_or(arrived).min(arrived));
        }
    }

    /// Rebuilds the index of a side from the rows that its window needs.
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

    /// Materializes the values of matched rows. `inputs` are the batches of sides without a window.
    fn materialize(&self, found: &mut JoinMatches, inputs: [Option<&Batch>; 2]) {
        for (side, input) in inputs.into_iter().enumerate() {
            match (&self.operators[side], input) {
                (Some(held), _) => found.gather_from_store(side, held.store()),
                (None, Some(input)) => {
                    let row = |row| (input.columns.as_slice(), row as usize);
                    found.gather(side, row, |row| input.times[row as usize]);
                }
                // all positions of this side are `NO_ROW`
                (None, None) => found.gather(side, |_| (&[], 0), |_| 0),
            }
        }
    }

    fn evict_unneeded(&mut self, side: usize) {
        if let Some(held) = &mut self.operators[side] {
            held.release();
        }
    }

    /// Fires the next timer of a side's handlers, or else of its window, if one is due at `now`. Returns the
    /// matches of the emitted rows.
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

    /// Returns the due time of the next timer of a side.
    pub(crate) fn next_timer_of(&self, side: usize) -> Option<i64> {
        let window = self.operators[side].as_ref().and_then(WindowOperator::next_timer);
        self.handlers[side].due().into_iter().chain(window).min()
    }

    /// Returns the first instant after `after` at which one of the windows is scheduled to run.
    pub(crate) fn next_scheduled(&self, after: i64) -> Option<i64> {
        self.operators.iter().flatten().filter_map(|held| held.next_scheduled(after)).min()
    }

    /// Runs the windows that are scheduled at `at`. Returns the matches of the emitted rows.
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

    /// Matches the rows that a window emits without an arrival.
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
