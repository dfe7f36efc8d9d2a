//! Fast path for joins of two windows that only evict their oldest row when another arrives. The rows of such
//! a window at each arrival are given by two row ids.

use super::Join;
use super::matches::{JoinMatches, NO_ROW};
use super::search::ProbeEvent;
use crate::columns::batch::{Batch, EventKind};
use crate::eval_error::EvalError;
use crate::expr::EvalContext;
use crate::store::RowId;
use crate::window_operator::SlidingEvictions;

/// A side during the processing of its batch.
struct SideWindow<'a> {
    input: &'a Batch,
    /// Id of the first row of `input`.
    first: RowId,
    evictions: SlidingEvictions,
    /// Id of the oldest row that was not evicted.
    oldest: RowId,
}

impl Join {
    /// Returns whether [`Self::process_sliding`] supports these batches, whose first rows have the ids
    /// `first`.
    pub(super) fn supports_sliding_path(&self, inputs: [&Batch; 2], first: [RowId; 2]) -> bool {
        let slides = |side: usize| {
            self.operators[side].as_ref().is_some_and(|held| held.supports_sliding_path(first[side]))
        };
        let each = |input: &&Batch| input.chunk_ends.len() == input.len();
        self.index.is_some() && !self.expires_immediately && inputs.iter().all(each) && slides(0) && slides(1)
    }

    /// Processes rows that were appended to the sides' stores. Each turn is a side and the number of its rows
    /// to process next.
    pub(super) fn process_sliding(
        &mut self,
        inputs: [&Batch; 2],
        first: [RowId; 2],
        turns: impl Iterator<Item = (usize, usize)>,
        host: &dyn EvalContext,
        found: &mut JoinMatches,
    ) -> Result<(), EvalError> {
        let mut side = |side: usize| -> Result<SideWindow<'_>, EvalError> {
            let (input, first) = (inputs[side], first[side]);
            let slid = self.operators[side]
                .as_mut()
                .and_then(|held| held.process_sliding(input, first, &input.chunk_clocks));
            let slid = slid.ok_or_else(|| EvalError::internal("a sliding join needs a FIFO window"))?;
            let oldest = slid.oldest;
            Ok(SideWindow { input, first, evictions: slid, oldest })
        };
        let mut sides = [side(0)?, side(1)?];
        let (plan, held) = (&*self.plan, &self.operators);
        let Some(index) = &mut self.index else { return Ok(()) };
        let by_keys_alone = plan.keys.residual.is_none();
        // an estimate: two matches per event
        found.reserve(2 * inputs.iter().map(|input| input.len()).sum::<usize>());
        let mut next = [0; 2];
        for (turn, count) in turns {
            let other = 1 - turn;
            let until = (next[turn] + count).min(inputs[turn].len());
            for row in next[turn]..until {
                let SideWindow { input, first, evictions: slid, oldest } = &mut sides[turn];
                *oldest += RowId::from(slid.counts.before[row]);
                let at = *first + row as RowId;
                index.expire_below(turn, *oldest);
                let bucket = index.mark_arrived(turn, at);
                if !plan.sides[turn].triggers {
                    continue;
                }
                let (time, clock) = (input.times[row], input.chunk_clocks[row]);
                let others = found.other_rows(other);
                let before = others.len();
                if let Some(bucket) = bucket {
                    let exact = index.is_exact(bucket);
                    let rows = index.rows(bucket, other);
                    if exact && by_keys_alone {
                        rows.for_each(|seq| others.push(seq));
                    } else if let Some(held) = &held[other] {
                        let kind = EventKind::Current;
                        let event = ProbeEvent {
                            side: turn,
                            position: at,
                            row: (&input.columns, row),
                            time,
                            kind,
                            clock,
                        };
                        for seq in rows {
                            if plan.is_match(&event, exact, held.store().row(seq), host)? {
                                others.push(seq);
                            }
                        }
                    }
                }
                if others.len() == before && plan.sides[turn].outer {
                    others.push(NO_ROW);
                }
                found.end_current_event(turn, at, time, clock);
            }
            next[turn] = until;
        }
        found.finish_current_events();
        (0..2).for_each(|side| index.evict_below(side, sides[side].oldest));
        Ok(())
    }
}
