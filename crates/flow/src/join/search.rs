//! What an event of one side is matched with.

use super::index::Index;
use super::matches::{At, Matches, NOTHING};
use super::{Join, JoinPlan, Rows, Source};
use crate::batch::{Batch, Kind};
use crate::column::Column;
use crate::expr::{EvalContext, EvalError, Frame, RowRef, StoreRef};
use crate::window::{RowChanges, RowQueue};
use crate::window_operator::WindowOperator;

impl Join {
    /// Adds the matches of what a side lets out; `input` is the batch in which its rows lie when it has no window.
    pub(super) fn matches(
        &self,
        side: usize,
        signals: &RowChanges,
        input: Option<&Batch>,
        clock: i64,
        host: &dyn EvalContext,
        found: &mut Matches,
    ) -> Result<(), EvalError> {
        if !self.plan.sides[side].triggers {
            return Ok(());
        }
        let other = 1 - side;
        for chunk in signals.chunks() {
            for signal in chunk {
                let (seq, time, kind) = (signal.seq, signal.time, signal.kind);
                if kind == Kind::Reset {
                    match self.is_held(other) {
                        true => found.push(side, NOTHING, NOTHING, time, kind),
                        false => found.push_taken(side, NOTHING, None, time, kind),
                    }
                } else if kind == Kind::Current || self.leaves {
                    let event: Rows<'_> = match (&self.held[side], input) {
                        (Some(held), _) => held.store().row(seq),
                        (None, Some(input)) => (&input.columns, seq as usize),
                        (None, None) => continue,
                    };
                    let event = Event { side, at: seq, row: event, time, kind, clock };
                    self.match_one(&event, host, found)?;
                }
                found.end_event(clock);
            }
            found.end_emission();
        }
        Ok(())
    }

    /// Whether a side is a stream: what it holds is found here.
    fn is_held(&self, side: usize) -> bool {
        matches!(self.plan.sides[side].source, Source::Stream(_))
    }

    /// Adds the matches of one event.
    fn match_one(
        &self,
        event: &Event<'_>,
        host: &dyn EvalContext,
        found: &mut Matches,
    ) -> Result<(), EvalError> {
        let Event { side, at, row, time, kind, clock } = *event;
        let other = 1 - side;
        let before = found.len();
        let outer = self.plan.sides[side].outer;
        let mut rows: [RowRef<'_>; 2] = [None; 2];
        rows[side] = Some(row);
        if self.is_held(other) {
            if let Some(held) = &self.held[other] {
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
                found.push(side, at, NOTHING, time, kind);
            }
            return Ok(());
        }
        let frame = Frame { rows: &rows, time, now: clock, host };
        let mut add = |columns: &[Column], row: usize| {
            found.push_taken(side, at, Some((columns, row)), time, kind);
        };
        let JoinPlan { sides, on, search, read, .. } = &*self.plan;
        match (sides[other].source, search, read) {
            (Source::Table(table), Some(search), _) => host.find(table, search, &frame, &mut add)?,
            (Source::Window(_, window), ..) => {
                host.search(StoreRef::Window(window), other, on.as_ref(), &frame, &mut add)?;
            }
            (Source::Aggregation(aggregation), _, Some(read)) => {
                host.buckets(aggregation, read, other, on.as_ref(), &frame, &mut add)?;
            }
            (Source::Table(_) | Source::Aggregation(_) | Source::Stream(_), ..) => {}
        }
        if found.len() == before && outer {
            found.push_taken(side, at, None, time, kind);
        }
        Ok(())
    }

    /// The same where the other side's rows are found by their keys.
    #[inline]
    fn match_by_key(
        &self,
        event: &Event<'_>,
        index: &Index,
        held: &WindowOperator,
        fifo: &RowQueue,
        host: &dyn EvalContext,
        found: &mut Matches,
    ) -> Result<(), EvalError> {
        let Event { side, at, row, time, kind, .. } = *event;
        let (keys, other) = (&self.plan.keys, 1 - side);
        let known = self.held[side].as_ref().is_some_and(|held| held.rows_in_order().is_some());
        let bucket = match known {
            true => index.bucket_of(side, at),
            false => None,
        };
        // a row that has left its window may have left the index, too
        let Some(bucket) = bucket.or_else(|| index.find(keys, side, row)) else { return Ok(()) };
        let (exact, before) = (index.is_exact(bucket), found.len());
        for seq in index.rows(bucket, other) {
            if fifo.contains(seq) && self.plan.is_match(event, exact, held.store().row(seq), host)? {
                found.push(side, at, seq, time, kind);
            }
        }
        found.turn(1 - side, before);
        Ok(())
    }
}

impl JoinPlan {
    /// Whether an event and a row of the other side, found by their keys, match; `exact` tells that their keys are equal.
    #[inline]
    pub(super) fn is_match(
        &self,
        event: &Event<'_>,
        exact: bool,
        candidate: Rows<'_>,
        host: &dyn EvalContext,
    ) -> Result<bool, EvalError> {
        let Event { side, row, time, clock, .. } = *event;
        let keys = &self.keys;
        if !exact && !keys.hold(side, row, candidate) {
            return Ok(false);
        }
        let Some(rest) = &keys.rest else { return Ok(true) };
        let mut rows: [RowRef<'_>; 2] = [Some(row); 2];
        rows[1 - side] = Some(candidate);
        rest.is_true(&Frame { rows: &rows, time, now: clock, host })
    }
}

/// An event that is matched.
#[derive(Clone, Copy)]
pub(super) struct Event<'a> {
    pub side: usize,
    pub at: At,
    pub row: Rows<'a>,
    pub time: i64,
    pub kind: Kind,
    pub clock: i64,
}
