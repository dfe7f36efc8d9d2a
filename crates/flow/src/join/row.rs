//! Single events, without batches.

use bumpalo::Bump;
use smallvec::SmallVec;

use super::matches::JoinMatches;
use super::search::ProbeEvent;
use super::{Join, JoinPlan, SideSource};
use crate::columns::batch::EventKind;
use crate::columns::column::Column;
use crate::columns::row::{ArrivingRow, Row};
use crate::columns::value_ref::ValueRef;
use crate::eval_error::EvalError;
use crate::expr::{EvalContext, RowExpr, RowFrame, RowSource, keep, vector};
use crate::processor::row_filters;
use crate::select::{RowSelect, SelectPlan};
use crate::store::RowId;

/// A join of two windows compiled for single events.
pub(crate) struct JoinRowPlan {
    /// Conditions on the events of each side before its window.
    filters: [Vec<RowExpr>; 2],
    /// Source of each column of the selection.
    columns: Vec<JoinColumn>,
}

/// A value of a match.
#[derive(Clone, Copy)]
enum JoinColumn {
    /// Column of the row of a side.
    Attribute(usize, usize),
    /// Time of the event of a side.
    Time(usize),
}

impl JoinRowPlan {
    /// Compiles a join. Errors: the reason why it needs batches.
    pub(crate) fn of(plan: &JoinPlan, select: &SelectPlan) -> Result<Self, &'static str> {
        let [left, right] = &plan.sides;
        if left.source == right.source {
            return Err("it joins a stream with itself");
        }
        let windows =
            plan.sides.iter().all(|s| s.window.is_some() && matches!(s.source, SideSource::Stream(_)));
        if !windows {
            return Err("a side of its join is not a stream with a window");
        }
        let in_order = |make: &crate::window::WindowConstructor| make().rows_in_order().is_some();
        if plan.keys.equal_columns.is_empty() || !plan.sides.iter().flat_map(|s| &s.window).all(in_order) {
            return Err("its join does not look up rows by a key");
        }
        if plan.keys.residual.as_ref().is_some_and(|rest| !vector::is_plain(rest)) {
            return Err("the condition of its join calls functions or reads tables");
        }
        if select.output_events.expired || !select.aggregates.is_empty() {
            return Err("its join emits or aggregates expired events");
        }
        let width = left.columns.len();
        let column = |column: usize| match column.checked_sub(width) {
            None => JoinColumn::Attribute(0, column),
            Some(column) if column < right.columns.len() => JoinColumn::Attribute(1, column),
            Some(column) => JoinColumn::Time(column - right.columns.len()),
        };
        // the columns of the sides come first, those of their times last, as in the matches of batches
        let columns = plan.columns.iter().map(|c| column(*c)).collect();
        Ok(Self { filters: [row_filters(&left.handlers)?, row_filters(&right.handlers)?], columns })
    }
}

/// A match as input of the selection.
struct JoinedRow<'m, 'a> {
    plan: &'m JoinRowPlan,
    /// Row of each side and its time; `None` for the missing row of an outer join.
    sides: [Option<(&'m [Column], usize, i64)>; 2],
    arena: &'a Bump,
}

impl<'a> RowSource<'a> for JoinedRow<'_, 'a> {
    #[inline]
    fn get(&self, column: usize) -> ValueRef<'a> {
        match self.plan.columns[column] {
            JoinColumn::Attribute(side, column) => match self.sides[side] {
                Some((columns, row, _)) => keep(&columns[column].value_ref(row), self.arena),
                None => ValueRef::Null,
            },
            JoinColumn::Time(side) => {
                self.sides[side].map_or(ValueRef::Null, |(.., time)| ValueRef::Long(time))
            }
        }
    }
}

/// Output of a join for a single event.
pub(crate) enum JoinRowOutput<'a> {
    /// The selected rows of the matches, which are one chunk.
    Rows(&'a [Row<'a>]),
    /// Matches of a window that emits more than the arriving event.
    Matches(Box<JoinMatches>),
}

impl Join {
    /// Processes a single event that arrives at a side.
    ///
    /// Errors: the window is full.
    pub(crate) fn process_row<'a>(
        &mut self,
        plan: &'a JoinRowPlan,
        select: &'a RowSelect,
        ArrivingRow { port: side, row, clock }: ArrivingRow<'a>,
        host: &dyn EvalContext,
        arena: &'a Bump,
    ) -> Result<JoinRowOutput<'a>, EvalError> {
        let values = row.values;
        let frame = RowFrame::of_input(&values);
        let (Some(held), Some(index)) = (&mut self.operators[side], &mut self.index) else {
            return Err(EvalError::internal("a join without windows does not process single events"));
        };
        if !plan.filters[side].iter().all(|filter| filter.is_true(&frame)) {
            return Ok(JoinRowOutput::Rows(&[]));
        }
        let seq = held.append_row(row)?;
        index.append(&self.plan.keys, side, held.store().row(seq));
        index.mark_arrived(side, seq);
        let mut changes = std::mem::take(&mut self.changes);
        changes.clear();
        let done = held.process_into(seq..seq + 1, clock, &mut changes);
        self.evict_from_index(side, seq + 1);
        let output = done.and_then(|()| {
            let (mut arrives, mut at) = (false, row.time);
            let mut plain = changes.ends.len() <= 1;
            for change in &changes.items {
                match change.kind {
                    EventKind::Current => {
                        plain &= change.seq == seq && !arrives;
                        arrives = true;
                        // a window may emit an event later than it is timed
                        at = change.time;
                    }
                    // expired events are matched for no query that is compiled for single events
                    EventKind::Expired => {}
                    EventKind::Reset => plain = false,
                }
            }
            match (plain, arrives && self.plan.sides[side].triggers) {
                (true, false) => Ok(JoinRowOutput::Rows(&[])),
                (true, true) => {
                    let event = (side, seq, at, clock);
                    self.match_row(plan, select, event, host, arena).map(JoinRowOutput::Rows)
                }
                (false, _) => {
                    let mut found = self.plan.empty_matches();
                    self.match_changes(side, &changes, None, clock, host, &mut found)?;
                    self.materialize(&mut found, [None; 2]);
                    Ok(JoinRowOutput::Matches(Box::new(found)))
                }
            }
        });
        self.changes = changes;
        self.evict_unneeded(side);
        output
    }

    /// Returns the selected matches of row `seq` of a side, which has just arrived.
    fn match_row<'a>(
        &self,
        plan: &'a JoinRowPlan,
        select: &'a RowSelect,
        (side, seq, time, clock): (usize, RowId, i64, i64),
        host: &dyn EvalContext,
        arena: &'a Bump,
    ) -> Result<&'a [Row<'a>], EvalError> {
        let other = 1 - side;
        let (Some(held), Some(others), Some(index)) =
            (&self.operators[side], &self.operators[other], &self.index)
        else {
            return Ok(&[]);
        };
        let row = held.store().row(seq);
        let event = ProbeEvent { side, position: seq, row, time, kind: EventKind::Current, clock };
        let mut found: SmallVec<[RowId; 16]> = SmallVec::new();
        // a row that its window does not hold has been evicted from the index
        let bucket = index.bucket_of(side, seq).or_else(|| index.find(&self.plan.keys, side, row));
        if let (Some(bucket), Some(fifo)) = (bucket, others.rows_in_order()) {
            let exact = index.is_exact(bucket);
            for candidate in index.rows(bucket, other) {
                if fifo.contains(candidate)
                    && self.plan.is_match(&event, exact, others.store().row(candidate), host)?
                {
                    found.push(candidate);
                }
            }
        }
        let output = |candidate: Option<RowId>| {
            let mut sides = [None; 2];
            sides[side] = Some((row.0, row.1, time));
            sides[other] = candidate.map(|seq| {
                let (columns, row) = others.store().row(seq);
                (columns, row, others.store().time(seq))
            });
            Row { values: select.project(&JoinedRow { plan, sides, arena }, arena), time }
        };
        if found.is_empty() && self.plan.sides[side].outer {
            return Ok(std::slice::from_ref(arena.alloc(output(None))));
        }
        // they were found newest first and are emitted oldest first
        Ok(arena.alloc_slice_fill_iter(found.iter().rev().map(|seq| output(Some(*seq)))))
    }
}
