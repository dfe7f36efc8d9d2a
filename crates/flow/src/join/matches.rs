//! Matches: pairs of rows on their way to the selection, put together column by column.

use tidemill_types::FieldType;

use super::Rows;
use crate::batch::{Batch, Kind};
use crate::column::Column;
use crate::expr::{EvalContext, EvalError};
use crate::select::{COLUMNAR_ROWS_MIN, Plan, Selector};
use crate::store::RowStore;

/// Where a row lies: its number, or its place in a batch.
pub(super) type At = u64;
/// No row: what an outer join shows beside an event without a match.
pub(super) const NOTHING: At = At::MAX;

/// What is wanted of a side's row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// A column.
    Of(usize),
    /// The time of the event; null where there is none.
    Time,
}

/// Matches in chunks for the selection, one for each event that has some; several chunks may be one emission.
pub(crate) struct Matches {
    /// Columns of the left side, then of the right one.
    columns: [Vec<(Value, Column)>; 2],
    /// For each match the row of a side, where its values are still to be taken from there.
    at: [Vec<At>; 2],
    /// Whether the times of a side are wanted.
    timed: [bool; 2],
    /// Of the rows in `at` those that leave, with their time: it is when they leave.
    leaving: [Vec<(usize, i64)>; 2],
    times: Vec<i64>,
    kinds: Vec<Kind>,
    ends: Vec<u32>,
    clocks: Vec<i64>,
    /// The chunks behind each emission.
    emissions: Vec<u32>,
}

impl Matches {
    /// No matches. `columns` are those that are wanted of each side, with their types.
    pub(super) fn new(columns: [Vec<(Value, FieldType)>; 2]) -> Self {
        let timed = [0, 1].map(|side: usize| columns[side].iter().any(|(value, _)| *value == Value::Time));
        Self {
            timed,
            leaving: [vec![], vec![]],
            columns: columns.map(|of| of.into_iter().map(|(i, ty)| (i, Column::new(ty))).collect()),
            at: [vec![], vec![]],
            times: vec![],
            kinds: vec![],
            ends: vec![],
            clocks: vec![],
            emissions: vec![],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.times.len()
    }

    /// The rows of side `other` that the next event is matched with are put here; then [`Self::end_current`].
    #[inline]
    pub(super) fn others(&mut self, other: usize) -> &mut Vec<At> {
        &mut self.at[other]
    }

    /// The rows of the other side that were put there, newest first, are the matches of row `event` of side `side`, a
    /// current event. Their kinds and emissions are added by [`Self::end_currents`].
    #[inline]
    pub(super) fn end_current(&mut self, side: usize, event: At, time: i64, clock: i64) {
        let [left, right] = &mut self.at;
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
        self.ends.push(self.times.len() as u32);
        self.clocks.push(clock);
    }

    /// See [`Self::end_current`].
    pub(super) fn end_currents(&mut self) {
        self.kinds.resize(self.times.len(), Kind::Current);
        let emissions = self.emissions.last().map_or(1, |last| last + 1);
        self.emissions.extend(emissions..=self.ends.len() as u32);
    }

    /// Adds a match of row `event` of side `side`; `other` is the row of the other side.
    #[inline]
    pub(super) fn push(&mut self, side: usize, event: At, other: At, time: i64, kind: Kind) {
        self.note_leaving(side, time, kind);
        self.at[side].push(event);
        self.at[1 - side].push(other);
        self.times.push(time);
        self.kinds.push(kind);
    }

    /// The next row of a side, if it leaves, has this time.
    #[inline]
    fn note_leaving(&mut self, side: usize, time: i64, kind: Kind) {
        if self.timed[side] && kind == Kind::Expired {
            self.leaving[side].push((self.at[side].len(), time));
        }
    }

    /// Room for so many matches more, each of its own event.
    pub(super) fn reserve(&mut self, more: usize) {
        self.at.iter_mut().for_each(|at| at.reserve(more));
        self.times.reserve(more);
        self.kinds.reserve(more);
        self.ends.reserve(more);
        self.clocks.reserve(more);
        self.emissions.reserve(more);
    }

    /// The rows of side `other` in the matches from `first` on come the other way round: what was found newest first
    /// comes out oldest first.
    #[inline]
    pub(super) fn turn(&mut self, other: usize, first: usize) {
        let found = self.times.len() - first;
        if found > 1 {
            let from = self.at[other].len() - found;
            self.at[other][from..].reverse();
        }
    }

    /// As [`Self::push`], with the values of the other row, where those are taken at once.
    pub(super) fn push_taken(
        &mut self,
        side: usize,
        event: At,
        other: Option<Rows<'_>>,
        time: i64,
        kind: Kind,
    ) {
        for (value, column) in &mut self.columns[1 - side] {
            match (other, *value) {
                (Some((columns, row)), Value::Of(i)) => column.push_from(&columns[i], row),
                // whoever asks for it asks only whether there is a row
                (Some(_), Value::Time) => column.push(crate::value::Value::Long(0)),
                (None, _) => column.push_null(),
            }
        }
        self.note_leaving(side, time, kind);
        self.at[side].push(event);
        self.times.push(time);
        self.kinds.push(kind);
    }

    /// What was added since are the matches of one event.
    #[inline]
    pub(super) fn end_event(&mut self, clock: i64) {
        let end = self.times.len() as u32;
        if self.ends.last().copied().unwrap_or(0) < end {
            self.ends.push(end);
            self.clocks.push(clock);
        }
    }

    /// The chunks that were added since come out together.
    #[inline]
    pub(super) fn end_emission(&mut self) {
        let end = self.ends.len() as u32;
        if self.emissions.last().copied().unwrap_or(0) < end {
            self.emissions.push(end);
        }
    }

    /// Takes the values of the rows of a side that were matched since the last time.
    pub(super) fn gather<'r>(&mut self, side: usize, row: impl Fn(At) -> Rows<'r>, time: impl Fn(At) -> i64) {
        let at = std::mem::take(&mut self.at[side]);
        for (value, column) in &mut self.columns[side] {
            let Value::Of(i) = *value else {
                push_times(column, &at, &self.leaving[side], &time);
                continue;
            };
            for at in &at {
                match *at {
                    NOTHING => column.push_null(),
                    at => {
                        let (columns, row) = row(at);
                        column.push_from(&columns[i], row);
                    }
                }
            }
        }
        self.at[side] = at;
        self.at[side].clear();
        self.leaving[side].clear();
    }

    /// The same where the rows are those of a window.
    pub(super) fn gather_held(&mut self, side: usize, rows: &RowStore) {
        if self.at[side].contains(&NOTHING) {
            return self.gather(side, |seq| rows.row(seq), |seq| rows.time(seq));
        }
        for (value, column) in &mut self.columns[side] {
            let Value::Of(i) = *value else {
                push_times(column, &self.at[side], &self.leaving[side], &|seq| rows.time(seq));
                continue;
            };
            let taken = rows.gather(i, self.at[side].iter().map(|seq| Some(*seq)));
            match column.is_empty() {
                true => *column = taken,
                false => column.extend_range(&taken, 0..taken.len()),
            }
        }
        self.at[side].clear();
        self.leaving[side].clear();
    }

    /// What the selection makes of them: a chunk for each emission.
    pub(crate) fn select(self, selector: &mut Selector, host: &dyn EvalContext) -> Result<Batch, EvalError> {
        let Self { columns, times, kinds, ends, clocks, emissions, .. } = self;
        // values of both sides, then their times
        let (values, side_times): (Vec<_>, Vec<_>) =
            columns.into_iter().flatten().partition(|(value, _)| *value != Value::Time);
        let mut columns: Vec<Column> =
            values.into_iter().chain(side_times).map(|(_, column)| column).collect();
        if times.len() >= COLUMNAR_ROWS_MIN {
            // what goes on as it is goes on without a copy
            columns.iter_mut().for_each(Column::share);
        }
        let pairs = Batch { columns, times, kinds, ends, clocks, ..Batch::default() };
        if emissions.len() == pairs.ends.len() {
            return selector.process(&pairs, host);
        }
        let plan = selector.plan();
        let wanted = plan.output_events;
        if passes_all(plan) {
            let mut out = selector.process(&pairs, host)?;
            (out.ends, out.clocks) = (vec![], vec![]);
            let (mut row, mut end) = (0, 0);
            for emission in emissions {
                let last = emission as usize - 1;
                for kind in &pairs.kinds[row..pairs.ends[last] as usize] {
                    end += u32::from(match kind {
                        Kind::Current => wanted.current,
                        Kind::Expired => wanted.expired,
                        Kind::Reset => false,
                    });
                }
                row = pairs.ends[last] as usize;
                if out.ends.last().copied().unwrap_or(0) < end {
                    out.ends.push(end);
                    out.clocks.push(pairs.clocks[last]);
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

/// Adds the times of rows; those of `leaving`, by their place, have the time at which they leave.
fn push_times(column: &mut Column, at: &[At], leaving: &[(usize, i64)], time: &impl Fn(At) -> i64) {
    let mut leaving = leaving.iter().peekable();
    for (i, at) in at.iter().enumerate() {
        let left = leaving.next_if(|(place, _)| *place == i).map(|(_, time)| *time);
        match *at {
            NOTHING => column.push_null(),
            at => column.push(crate::value::Value::Long(left.unwrap_or_else(|| time(at)))),
        }
    }
}

/// Whether every event of a wanted kind comes out.
fn passes_all(plan: &Plan) -> bool {
    plan.aggregates.is_empty()
        && plan.group_by.is_empty()
        && plan.having.is_none()
        && plan.order_by.is_empty()
        && plan.offset == 0
        && plan.limit.is_none()
}
