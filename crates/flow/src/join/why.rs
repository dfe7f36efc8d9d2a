//! What a join tells of itself.

use super::{Join, Source};
use crate::expr::{EvalContext, Frame, RowRef, StoreRef};
use crate::query::Handler;
use crate::why::{Kept, LastEvent, Notes, SideState, SideWritten, Written, refused, shown};

impl Join {
    /// Its sides, left first.
    pub(crate) fn why(
        &self,
        written: &Written,
        notes: Option<&Notes>,
        now: i64,
        host: &dyn EvalContext,
    ) -> Vec<SideState> {
        let side = |side: usize| -> Option<SideState> {
            let plan = &self.plan.sides[side];
            let texts = written.sides.get(side)?;
            let (arrived, kept) =
                notes.map(|notes| &notes.sides[side]).map_or((0, None), |(n, k)| (*n, Some(k)));
            let last = kept.filter(|kept| kept.is_there()).map(|kept| self.last(side, kept, written, host));
            Some(SideState {
                side: texts.name.clone(),
                reads: match plan.source {
                    Source::Stream(_) => "stream",
                    Source::Window(..) => "window",
                    Source::Table(_) => "table",
                    Source::Aggregation(_) => "aggregation",
                }
                .into(),
                arrived,
                triggers: plan.triggers,
                window: self.held[side].as_ref().map(|held| held.why(texts, now)),
                rows: self.rows(side, now, host),
                last,
            })
        };
        (0..2).filter_map(side).collect()
    }

    /// The rows that a side holds.
    fn rows(&self, side: usize, now: i64, host: &dyn EvalContext) -> Option<u64> {
        match (self.plan.sides[side].source, &self.held[side]) {
            (Source::Stream(_), held) => Some(held.as_ref().map_or(0, |held| held.visible_row_count())),
            (Source::Aggregation(_), _) => None,
            (Source::Table(_) | Source::Window(..), _) => {
                self.count(side, false, &Frame { rows: &[], time: now, now, host })
            }
        }
    }

    /// How many rows of a side there are, or with `matching` satisfy the condition.
    fn count(&self, side: usize, matching: bool, frame: &Frame<'_>) -> Option<u64> {
        let on = self.plan.on.as_ref().filter(|_| matching);
        let mut rows = 0;
        let found = match (self.plan.sides[side].source, &self.held[side]) {
            (Source::Stream(_), Some(held)) => held.find_row_ids(on, side, frame, &mut |_| rows += 1),
            (Source::Stream(_), None) => Ok(()),
            (Source::Aggregation(_), _) => return None,
            (Source::Table(table), _) => {
                frame.host.search(StoreRef::Table(table), side, on, frame, &mut |_, _| rows += 1)
            }
            (Source::Window(_, window), _) => {
                frame.host.search(StoreRef::Window(window), side, on, frame, &mut |_, _| rows += 1)
            }
        };
        found.ok().map(|()| rows)
    }

    fn last(&self, side: usize, kept: &Kept, written: &Written, host: &dyn EvalContext) -> LastEvent {
        let plan = &self.plan.sides[side];
        let none = SideWritten::default();
        let texts = written.sides.get(side).unwrap_or(&none);
        let kept_out = refused(kept, &plan.before, texts, host);
        // a condition may look at what a function adds behind the event
        let plain = plan.before.iter().all(|handler| matches!(handler, Handler::Filter(_)));
        let mut rows: [RowRef<'_>; 2] = [None; 2];
        rows[side] = Some((kept.columns.as_slice(), 0));
        let frame = Frame { rows: &rows, time: kept.time, now: kept.clock, host };
        let matched = plain && plan.triggers && kept_out.is_none();
        let matches = matched.then(|| self.count(1 - side, true, &frame)).flatten();
        let prefix = format!("{}.", texts.name);
        let values = self.plan.on.iter().filter(|_| plain);
        let values = values.flat_map(|on| shown(on, side, &texts.names, &prefix, &frame)).collect();
        LastEvent { time: kept.time, values, kept_out, matches }
    }
}
