//! Status report of a query.

use super::Query;
use crate::explain::{HavingReport, QueryReport, ReadOnlyContext, first_failed_condition};
use crate::expr::EvalContext;
use crate::pattern::why as pattern;
use crate::processor::Handler;

impl Query {
    /// Reports why the query emits nothing, with the clock at `now`.
    pub(crate) fn why(&self, now: i64, host: &dyn EvalContext) -> QueryReport {
        let host = &ReadOnlyContext(host);
        let (plan, seen) = (&*self.plan, &self.stats);
        let written = &*plan.source_text;
        let notes = seen.samples.as_deref();
        let kept_out =
            notes.and_then(|n| first_failed_condition(&n.rejected, &plan.before, &written.input, host));
        QueryReport {
            query: plan.name.clone(),
            clock: now,
            arrived: seen.arrived,
            passed: (!plan.before.is_empty()).then_some(seen.passed),
            emitted: seen.emitted,
            emitted_at: (seen.emitted > 0).then_some(seen.emitted_at),
            kept_out,
            processor_due: self.before.due().into_iter().chain(self.after.due()).min(),
            window: self.window.as_ref().map(|held| held.why(&written.input, now)),
            pattern: self.machine.as_ref().zip(plan.state.as_ref()).map(|(m, plan)| pattern(m, plan, host)),
            sides: self.join.as_ref().map(|join| join.why(written, notes, now, host)).unwrap_or_default(),
            on: written.on.clone(),
            having: self.having(now, host),
            rate: self.rate.as_ref().map(|rate| rate.why(&written.rate)),
            ..QueryReport::default()
        }
    }

    fn having(&self, now: i64, host: &dyn EvalContext) -> Option<HavingReport> {
        let condition = self.plan.source_text.having.clone();
        let judged = self.selector.why(now, host)?;
        // a stateful handler after the window may drop events, which is not visible here
        let filtered = self.plan.after.iter().any(|handler| matches!(handler, Handler::Stateful(_)));
        Some(HavingReport { condition, ..judged }).filter(|_| !filtered)
    }
}
