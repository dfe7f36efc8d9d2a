//! Report on why a join emits nothing.

use super::{Join, SideSource};
use crate::explain::{
    EventSamples, InputText, JoinSideReport, LastEventReport, QueryText, SampledEvent,
    first_failed_condition, named_values,
};
use crate::expr::{EvalContext, Frame, RowRef, StoreRef};
use crate::processor::Handler;

impl Join {
    /// Reports on the sides, left first.
    pub(crate) fn why(
        &self,
        written: &QueryText,
        notes: Option<&EventSamples>,
        now: i64,
        host: &dyn EvalContext,
    ) -> Vec<JoinSideReport> {
        let side = |side: usize| -> Option<JoinSideReport> {
            let plan = &self.plan.sides[side];
            let texts = written.sides.get(side)?;
            let (arrived, kept) =
                notes.map(|notes| &notes.sides[side]).map_or((0, None), |(n, k)| (*n, Some(k)));
            let last =
                kept.filter(|kept| kept.is_present()).map(|kept| self.last_event(side, kept, written, host));
            Some(JoinSideReport {
                side: texts.name.clone(),
                reads: match plan.source {
                    SideSource::Stream(_) => "stream",
                    SideSource::Window(..) => "window",
                    SideSource::Table(_) => "table",
                    SideSource::Aggregation(_) => "aggregation",
                }
                .into(),
                arrived,
                triggers: plan.triggers,
                window: self.operators[side].as_ref().map(|held| held.why(texts, now)),
                rows: self.row_count(side, now, host),
                last,
            })
        };
        (0..2).filter_map(side).collect()
    }

    /// Returns the number of rows of a side; `None` for an aggregation.
    fn row_count(&self, side: usize, now: i64, host: &dyn EvalContext) -> Option<u64> {
        match (self.plan.sides[side].source, &self.operators[side]) {
            (SideSource::Stream(_), held) => Some(held.as_ref().map_or(0, |held| held.visible_row_count())),
            (SideSource::Aggregation(_), _) => None,
            (SideSource::Table(_) | SideSource::Window(..), _) => {
                self.count(side, false, &Frame { rows: &[], time: now, now, host })
            }
        }
    }

    /// Counts the rows of a side, or with `matching` only those that satisfy the join condition.
    fn count(&self, side: usize, matching: bool, frame: &Frame<'_>) -> Option<u64> {
        let on = self.plan.on.as_ref().filter(|_| matching);
        let mut rows = 0;
        let found = match (self.plan.sides[side].source, &self.operators[side]) {
            (SideSource::Stream(_), Some(held)) => held.find_row_ids(on, side, frame, &mut |_| rows += 1),
            (SideSource::Stream(_), None) => Ok(()),
            (SideSource::Aggregation(_), _) => return None,
            (SideSource::Table(table), _) => {
                frame.host.search(StoreRef::Table(table), side, on, frame, &mut |_, _| rows += 1)
            }
            (SideSource::Window(_, window), _) => {
                frame.host.search(StoreRef::Window(window), side, on, frame, &mut |_, _| rows += 1)
            }
        };
        found.ok().map(|()| rows)
    }

    fn last_event(
        &self,
        side: usize,
        kept: &SampledEvent,
        written: &QueryText,
        host: &dyn EvalContext,
    ) -> LastEventReport {
        let plan = &self.plan.sides[side];
        let none = InputText::default();
        let texts = written.sides.get(side).unwrap_or(&none);
        let kept_out = first_failed_condition(kept, &plan.handlers, texts, host);
        // the condition may read a column that a function adds, which the sampled event does not have
        let plain = plan.handlers.iter().all(|handler| matches!(handler, Handler::Filter(_)));
        let mut rows: [RowRef<'_>; 2] = [None; 2];
        rows[side] = Some((kept.columns.as_slice(), 0));
        let frame = Frame { rows: &rows, time: kept.time, now: kept.clock, host };
        let matched = plain && plan.triggers && kept_out.is_none();
        let matches = matched.then(|| self.count(1 - side, true, &frame)).flatten();
        let prefix = format!("{}.", texts.name);
        let values = self.plan.on.iter().filter(|_| plain);
        let values = values.flat_map(|on| named_values(on, side, &texts.names, &prefix, &frame)).collect();
        LastEventReport { time: kept.time, values, kept_out, matches }
    }
}
