//! Matches: pairs of rows, materialized column by column for the selection.

use tidemill_types::FieldType;

use super::RowView;
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::eval_error::EvalError;
use crate::expr::EvalContext;
use crate::select::{COLUMNAR_ROWS_MIN, SelectPlan, Selector};
use crate::store::RowStore;

/// Position of a row: its id in a window's store, or its index in a batch.
pub(super) type RowPosition = u64;
/// No row, as the other side of an outer match.
pub(super) const NO_ROW: RowPosition = RowPosition::MAX;

/// A value that is read of a side's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SideColumn {
    /// The column with this index.
    Attribute(usize),
    /// The time of the event; null if it is unknown.
    Time,
}

/// Matches in chunks for the selection, one for each event with matches. Several chunks may form one
/// emission.
pub(crate) struct JoinMatches {
    /// Columns of the left side, and of the right one.
    columns: [Vec<(SideColumn, Column)>; 2],
    /// For each side, the rows of the matches whose values are not materialized yet.
    positions: [Vec<RowPosition>; 2],
    /// True for a side whose times are needed.
    has_time: [bool; 2],
    /// Indexes into `positions` of the rows that expire, with their time of expiry, which replaces the
    /// event's time.
    expiry_times: [Vec<(usize, i64)>; 2],
    times: Vec<i64>,
    kinds: Vec<EventKind>,
    chunk_ends: Vec<u32>,
    chunk_clocks: Vec<i64>,
    /// For each emission, the number of chunks up to its end.
    emissions: Vec<u32>,
}

impl JoinMatches {
    /// Creates an empty list of matches. `columns` are the columns that are read of each side, with their
    /// types.
    pub(super) fn new(columns: [Vec<(SideColumn, FieldType)>; 2]) -> Self {
        let timed =
            [0, 1].map(|side: usize| columns[side].iter().any(|(value, _)| *value == SideColumn::Time));
        Self {
            has_time: timed,
            expiry_times: [vec![], vec![]],
            columns: columns.map(|of| of.into_iter().map(|(i, ty)| (i, Column::new(ty))).collect()),
            positions: [vec![], vec![]],
            times: vec![],
            kinds: vec![],
            chunk_ends: vec![],
            chunk_clocks: vec![],
            emissions: vec![],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns the list to which the caller appends the rows of side `other` that match the next event. Each
    /// event ends with [`Self::end_current_event`].
    #[inline]
    pub(super) fn other_rows(&mut self, other: usize) -> &mut Vec<RowPosition> {
        &mut self.positions[other]
    }

    /// Completes the matches of a current event, row `event` of side `side`, with the appended rows of the
    /// other side, which are newest first. [`Self::finish_current_events`] adds kinds and emissions later.
    #[inline]
    pub(super) fn end_current_event(&mut self, side: usize, event: RowPosition, time: i64, clock: i64) {
        let [left, right] = &mut self.positions;
        let (events, others) = if side == 0 { (left, right) } else { (right, left) };
        let before = events.len();
        match others.len() - before {
            0 => return,
            1 => {
                events.push(event);
                self.times.push(time);
            }
            count => {
                others[before..].reverse();
                events.resize(before + count, event);
                self.times.resize(self.times.len() + count, time);
            }
        }
        self.chunk_ends.push(self.times.len() as u32);
        self.chunk_clocks.push(clock);
    }

    /// Adds the kinds and emissions of matches added by [`Self::end_current_event`]: each chunk is an
    /// emission.
    pub(super) fn finish_current_events(&mut self) {
        self.kinds.resize(self.times.len(), EventKind::Current);
        let emissions = self.emissions.last().map_or(1, |last| last + 1);
        self.emissions.extend(emissions..=self.chunk_ends.len() as u32);
    }

    /// Adds a match of row `event` of side `side` with row `other` of the other side.
    #[inline]
    pub(super) fn push(
        &mut self,
        side: usize,
        event: RowPosition,
        other: RowPosition,
        time: i64,
        kind: EventKind,
    ) {
        self.record_expiry_time(side, time, kind);
        self.positions[side].push(event);
        self.positions[1 - side].push(other);
        self.times.push(time);
        self.kinds.push(kind);
    }

    /// Records the time of expiry of the next row of a side if it is an expired one.
    #[inline]
    fn record_expiry_time(&mut self, side: usize, time: i64, kind: EventKind) {
        if self.has_time[side] && kind == EventKind::Expired {
            self.expiry_times[side].push((self.positions[side].len(), time));
        }
    }

    /// Reserves space for `more` matches, each of an event of its own.
    pub(super) fn reserve(&mut self, more: usize) {
        self.positions.iter_mut().for_each(|at| at.reserve(more));
        self.times.reserve(more);
        self.kinds.reserve(more);
        self.chunk_ends.reserve(more);
        self.chunk_clocks.reserve(more);
        self.emissions.reserve(more);
    }

    /// Reverses the rows of side `other` in the matches from `first` on: they were found newest first and are
    /// emitted oldest first.
    #[inline]
    pub(super) fn reverse_from(&mut self, other: usize, first: usize) {
        let found = self.times.len() - first;
        if found > 1 {
            let from = self.positions[other].len() - found;
            self.positions[other][from..].reverse();
        }
    }

    /// Adds a match like [`Self::push`], but copies the values of the other row immediately.
    pub(super) fn push_with_values(
        &mut self,
        side: usize,
        event: RowPosition,
        other: Option<RowView<'_>>,
        time: i64,
        kind: EventKind,
    ) {
        for (value, column) in &mut self.columns[1 - side] {
            match (other, *value) {
                (Some((columns, row)), SideColumn::Attribute(i)) => column.push_from(&columns[i], row),
                // a reference to this time can only test whether the row exists
                (Some(_), SideColumn::Time) => column.push(crate::columns::value::Value::Long(0)),
                (None, _) => column.push_null(),
            }
        }
        self.record_expiry_time(side, time, kind);
        self.positions[side].push(event);
        self.times.push(time);
        self.kinds.push(kind);
    }

    /// Ends the chunk with the matches of one event.
    #[inline]
    pub(super) fn end_event(&mut self, clock: i64) {
        let end = self.times.len() as u32;
        if self.chunk_ends.last().copied().unwrap_or(0) < end {
            self.chunk_ends.push(end);
            self.chunk_clocks.push(clock);
        }
    }

    /// Ends an emission with the chunks added since the last one.
    #[inline]
    pub(super) fn end_emission(&mut self) {
        let end = self.chunk_ends.len() as u32;
        if self.emissions.last().copied().unwrap_or(0) < end {
            self.emissions.push(end);
        }
    }

    /// Materializes the values of a side for the matches added since the last call.
    pub(super) fn gather<'r>(
        &mut self,
        side: usize,
        row: impl Fn(RowPosition) -> RowView<'r>,
        time: impl Fn(RowPosition) -> i64,
    ) {
        let at = std::mem::take(&mut self.positions[side]);
        for (value, column) in &mut self.columns[side] {
            let SideColumn::Attribute(i) = *value else {
                push_times(column, &at, &self.expiry_times[side], &time);
                continue;
            };
            for at in &at {
                match *at {
                    NO_ROW => column.push_null(),
                    at => {
                        let (columns, row) = row(at);
                        column.push_from(&columns[i], row);
                    }
                }
            }
        }
        self.positions[side] = at;
        self.positions[side].clear();
        self.expiry_times[side].clear();
    }

    /// Materializes as [`Self::gather`] does, for the rows of a window's store.
    pub(super) fn gather_from_store(&mut self, side: usize, rows: &RowStore) {
        if self.positions[side].contains(&NO_ROW) {
            return self.gather(side, |seq| rows.row(seq), |seq| rows.time(seq));
        }
        for (value, column) in &mut self.columns[side] {
            let SideColumn::Attribute(i) = *value else {
                push_times(column, &self.positions[side], &self.expiry_times[side], &|seq| rows.time(seq));
                continue;
            };
            let taken = rows.gather(i, self.positions[side].iter().map(|seq| Some(*seq)));
            match column.is_empty() {
                true => *column = taken,
                false => column.extend_range(&taken, 0..taken.len()),
            }
        }
        self.positions[side].clear();
        self.expiry_times[side].clear();
    }

    /// Applies the selection; its output has a chunk for each emission.
    pub(crate) fn select(self, selector: &mut Selector, host: &dyn EvalContext) -> Result<Batch, EvalError> {
        let Self { columns, times, kinds, chunk_ends: ends, chunk_clocks: clocks, emissions, .. } = self;
        // values of both sides, then their times
        let (values, side_times): (Vec<_>, Vec<_>) =
            columns.into_iter().flatten().partition(|(value, _)| *value != SideColumn::Time);
        let mut columns: Vec<Column> =
            values.into_iter().chain(side_times).map(|(_, column)| column).collect();
        if times.len() >= COLUMNAR_ROWS_MIN {
            // columns that the selection passes through are shared, not copied
            columns.iter_mut().for_each(Column::share);
        }
        let pairs =
            Batch { columns, times, kinds, chunk_ends: ends, chunk_clocks: clocks, ..Batch::default() };
        if emissions.len() == pairs.chunk_ends.len() {
            return selector.process(&pairs, host);
        }
        let plan = selector.plan();
        let wanted = plan.output_events;
        if passes_all(plan) {
            let mut out = selector.process(&pairs, host)?;
            (out.chunk_ends, out.chunk_clocks) = (vec![], vec![]);
            let (mut row, mut end) = (0, 0);
            for emission in emissions {
                let last = emission as usize - 1;
                for kind in &pairs.kinds[row..pairs.chunk_ends[last] as usize] {
                    end += u32::from(match kind {
                        EventKind::Current => wanted.current,
                        EventKind::Expired => wanted.expired,
                        EventKind::Reset => false,
                    });
                }
                row = pairs.chunk_ends[last] as usize;
                if out.chunk_ends.last().copied().unwrap_or(0) < end {
                    out.chunk_ends.push(end);
                    out.chunk_clocks.push(pairs.chunk_clocks[last]);
                }
            }
            return Ok(out);
        }
        let mut all = Batch::new(plan.types());
        let mut chunks = pairs.chunks();
        let mut first = 0;
        for end in emissions {
            let mut one = Batch::new(pairs.columns.iter().map(Column::ty));
            let mut now = 0;
            for (rows, clock) in chunks.by_ref().take((end - first) as usize) {
                rows.for_each(|row| one.push_row(&pairs, row, pairs.kinds[row], pairs.times[row]));
                one.end_chunk(clock);
                now = clock;
            }
            first = end;
            let out = selector.process(&one, host)?;
            (0..out.len()).for_each(|row| all.push_row(&out, row, out.kinds[row], out.times[row]));
            all.end_chunk(now);
        }
        Ok(all)
    }
}

/// Appends the times of rows. `leaving` has, by index, the times of expiry of those that expire.
fn push_times(
    column: &mut Column,
    at: &[RowPosition],
    leaving: &[(usize, i64)],
    time: &impl Fn(RowPosition) -> i64,
) {
    let mut leaving = leaving.iter().peekable();
    for (i, at) in at.iter().enumerate() {
        let left = leaving.next_if(|(place, _)| *place == i).map(|(_, time)| *time);
        match *at {
            NO_ROW => column.push_null(),
            at => column.push(crate::columns::value::Value::Long(left.unwrap_or_else(|| time(at)))),
        }
    }
}

/// Returns whether the selection passes every event of the kinds that it emits.
fn passes_all(plan: &SelectPlan) -> bool {
    plan.aggregates.is_empty()
        && plan.group_by.is_empty()
        && plan.having.is_none()
        && plan.order_by.is_empty()
        && plan.offset == 0
        && plan.limit.is_none()
}
