//! Search for the rows that match an event.

use super::index::JoinIndex;
use super::matches::{JoinMatches, NO_ROW, RowPosition};
use super::{Join, JoinPlan, RowView, SideSource};
use crate::columns::batch::{Batch, EventKind};
use crate::columns::column::Column;
use crate::eval_error::EvalError;
use crate::expr::{EvalContext, Frame, RowRef, StoreRef};
use crate::window::{RowChanges, RowQueue};
use crate::window_operator::WindowOperator;

impl Join {
    /// Adds the matches of the rows that a side emits. `input` is the batch with these rows if the side has
    /// no window.
    pub(super) fn match_changes(
        &self,
        side: usize,
        signals: &RowChanges,
        input: Option<&Batch>,
        clock: i64,
        host: &dyn EvalContext,
        found: &mut JoinMatches,
    ) -> Result<(), EvalError> {
        if !self.plan.sides[side].triggers {
            return Ok(());
        }
        let other = 1 - side;
        for chunk in signals.chunks() {
            for signal in chunk {
                let (seq, time, kind) = (signal.seq, signal.time, signal.kind);
                if kind == EventKind::Reset {
                    match self.is_stream_side(other) {
                        true => found.push(side, NO_ROW, NO_ROW, time, kind),
                        false => found.push_with_values(side, NO_ROW, None, time, kind),
                    }
                } else if kind == EventKind::Current || self.expires_immediately {
                    let event: RowView<'_> = match (&self.operators[side], input) {
                        (Some(held), _) => held.store().row(seq),
                        (None, Some(input)) => (&input.columns, seq as usize),
                        (None, None) => continue,
                    };
                    let event = ProbeEvent { side, position: seq, row: event, time, kind, clock };
                    self.match_event(&event, host, found)?;
                }
                found.end_event(clock);
            }
            found.end_emission();
        }
        Ok(())
    }

    /// Returns whether a side is a stream, whose rows this join stores itself.
    fn is_stream_side(&self, side: usize) -> bool {
        matches!(self.plan.sides[side].source, SideSource::Stream(_))
    }

    /// Adds the matches of one event.
    fn match_event(
        &self,
        event: &ProbeEvent<'_>,
        host: &dyn EvalContext,
        found: &mut JoinMatches,
    ) -> Result<(), EvalError> {
        let ProbeEvent { side, position: at, row, time, kind, clock } = *event;
        let other = 1 - side;
        let before = found.len();
        let outer = self.plan.sides[side].outer;
        let mut rows: [RowRef<'_>; 2] = [None; 2];
        rows[side] = Some(row);
        if self.is_stream_side(other) {
            if let Some(held) = &self.operators[other] {
                match (&self.index, held.rows_in_order()) {
                    (Some(index), Some(fifo)) => self.match_by_key(event, index, held, fifo, host, found)?,
                    _ => {
                        let frame = Frame { rows: &rows, time, now: clock, host };
                        held.find_row_ids(self.plan.on.as_ref(), other, &frame, &mut |seq| {
                            found.push(side, at, seq, time, kind);
                        })?;
                    }
                }
            }
            if found.len() == before && outer {
                found.push(side, at, NO_ROW, time, kind);
            }
            return Ok(());
        }
        let frame = Frame { rows: &rows, time, now: clock, host };
        let mut add = |columns: &[Column], row: usize| {
            found.push_with_values(side, at, Some((columns, row)), time, kind);
        };
        let JoinPlan { sides, on, search, bucket_query: read, .. } = &*self.plan;
        match (sides[other].source, search, read) {
            (SideSource::Table(table), Some(search), _) => host.find(table, search, &frame, &mut add)?,
            (SideSource::Window(_, window), ..) => {
                host.search(StoreRef::Window(window), other, on.as_ref(), &frame, &mut add)?;
            }
            (SideSource::Aggregation(aggregation), _, Some(read)) => {
                host.buckets(aggregation, read, other, on.as_ref(), &frame, &mut add)?;
            }
            (SideSource::Table(_) | SideSource::Aggregation(_) | SideSource::Stream(_), ..) => {}
        }
        if found.len() == before && outer {
            found.push_with_values(side, at, None, time, kind);
        }
        Ok(())
    }

    /// Adds the matches of one event, looking up the other side's rows by key.
    #[inline]
    fn match_by_key(
        &self,
        event: &ProbeEvent<'_>,
        index: &JoinIndex,
        held: &WindowOperator,
        fifo: &RowQueue,
        host: &dyn EvalContext,
        found: &mut JoinMatches,
    ) -> Result<(), EvalError> {
        let ProbeEvent { side, position: at, row, time, kind, .. } = *event;
        let (keys, other) = (&self.plan.keys, 1 - side);
        let known = self.operators[side].as_ref().is_some_and(|held| held.rows_in_order().is_some());
        let bucket = match known {
            true => index.bucket_of(side, at),
            false => None,
        };
        // a row that has expired from its window may have been evicted from the index
        let Some(bucket) = bucket.or_else(|| index.find(keys, side, row)) else { return Ok(()) };
        let (exact, before) = (index.is_exact(bucket), found.len());
        for seq in index.rows(bucket, other) {
            if fifo.contains(seq) && self.plan.is_match(event, exact, held.store().row(seq), host)? {
                found.push(side, at, seq, time, kind);
            }
        }
        found.reverse_from(1 - side, before);
        Ok(())
    }
}

impl JoinPlan {
    /// Returns whether an event matches a row of the other side that was found by key. `exact`: the keys are
    /// known to be equal.
    #[inline]
    pub(super) fn is_match(
        &self,
        event: &ProbeEvent<'_>,
        exact: bool,
        candidate: RowView<'_>,
        host: &dyn EvalContext,
    ) -> Result<bool, EvalError> {
        let ProbeEvent { side, row, time, clock, .. } = *event;
        let keys = &self.keys;
        if !exact && !keys.are_equal(side, row, candidate) {
            return Ok(false);
        }
        let Some(rest) = &keys.residual else { return Ok(true) };
        let mut rows: [RowRef<'_>; 2] = [Some(row); 2];
        rows[1 - side] = Some(candidate);
        rest.is_true(&Frame { rows: &rows, time, now: clock, host })
    }
}

/// An event for which matches are searched.
#[derive(Clone, Copy)]
pub(super) struct ProbeEvent<'a> {
    pub side: usize,
    pub position: RowPosition,
    pub row: RowView<'a>,
    pub time: i64,
    pub kind: EventKind,
    pub clock: i64,
}
