//! Two windows that let their oldest rows go as others arrive: what each holds at an arrival is told by two numbers.

use super::Join;
use super::matches::{Matches, NOTHING};
use super::search::Event;
use crate::batch::{Batch, Kind};
use crate::expr::{Failure, Host};
use crate::held::Slid;
use crate::store::Seq;

/// A side while its rows arrive.
struct Side<'a> {
    input: &'a Batch,
    /// The number of the first row of `input`.
    first: Seq,
    slid: Slid,
    /// The oldest row that is held, and the number behind the last.
    held: (Seq, Seq),
}

impl Join {
    /// Whether [`Self::slide`] may work off these batches, whose first rows have these numbers.
    pub(super) fn slides(&self, inputs: [&Batch; 2], first: [Seq; 2]) -> bool {
        let slides = |side: usize| self.held[side].as_ref().is_some_and(|held| held.slides(first[side]));
        let each = |input: &&Batch| input.ends.len() == input.len();
        self.index.is_some() && !self.leaves && inputs.iter().all(each) && slides(0) && slides(1)
    }

    /// Rows that have entered the sides arrive in turns: so many of a side are next.
    pub(super) fn slide(
        &mut self,
        inputs: [&Batch; 2],
        first: [Seq; 2],
        turns: impl Iterator<Item = (usize, usize)>,
        host: &dyn Host,
        found: &mut Matches,
    ) -> Result<(), Failure> {
        let mut side = |side: usize| -> Result<Side<'_>, Failure> {
            let (input, first) = (inputs[side], first[side]);
            let slid = self.held[side].as_mut().and_then(|held| held.slide(input, first, &input.clocks));
            let slid = slid.ok_or_else(|| Failure("a window lets other rows go than its oldest".into()))?;
            let held = (slid.oldest, first);
            Ok(Side { input, first, slid, held })
        };
        let mut sides = [side(0)?, side(1)?];
        let mut next = [0; 2];
        for (turn, count) in turns {
            let until = (next[turn] + count).min(inputs[turn].len());
            for row in next[turn]..until {
                let of = &mut sides[turn];
                of.held.0 += Seq::from(of.slid.slide.before[row]);
                of.held.1 = of.first + row as Seq + 1;
                if let Some(index) = &mut self.index {
                    index.forget_below(turn, of.held.0);
                }
                self.match_sliding(turn, row, &sides, host, found)?;
            }
            next[turn] = until;
        }
        Ok(())
    }

    /// Adds the matches of row `row` of side `side`, which has just arrived.
    #[inline]
    fn match_sliding(
        &self,
        side: usize,
        row: usize,
        sides: &[Side<'_>; 2],
        host: &dyn Host,
        found: &mut Matches,
    ) -> Result<(), Failure> {
        let plan = &*self.plan;
        let other = 1 - side;
        let (Some(index), Some(held), true) = (&self.index, &self.held[other], plan.sides[side].triggers)
        else {
            return Ok(());
        };
        let Side { input, first, .. } = sides[side];
        let (at, time, clock) = (first + row as Seq, input.times[row], input.clocks[row]);
        let event = Event { side, at, row: (&input.columns, row), time, kind: Kind::Current, clock };
        let before = found.len();
        let (oldest, end) = sides[other].held;
        if let Some(bucket) = index.bucket_of(side, at) {
            for seq in index.rows(bucket, other) {
                // what has left is not in the index any more, what has not arrived is there already
                debug_assert!(seq >= oldest);
                if seq >= end {
                    break;
                }
                if self.is_match(&event, held.store().row(seq), host)? {
                    found.push(side, at, seq, time, Kind::Current);
                }
            }
        }
        if found.len() == before && plan.sides[side].outer {
            found.push(side, at, NOTHING, time, Kind::Current);
        }
        found.end_event(clock);
        found.end_emission();
        Ok(())
    }
}
