//! Aggregations of an app.

use std::borrow::Cow;

use super::{AppRuntime, OutputHandler};
use crate::columns::batch::Batch;
use crate::eval_error::EvalError;
use crate::processor::apply_handlers;
use crate::select::FailedChunks;

impl AppRuntime {
    /// Adds events of a stream to the aggregations that read it. Returns the failure, if there was one.
    pub(super) fn aggregate(
        &mut self,
        stream: usize,
        events: &Batch,
        sink: &mut dyn OutputHandler,
    ) -> Option<EvalError> {
        for i in 0..self.stores.aggregations.len() {
            let plan = self.stores.aggregations[i].plan().clone();
            if plan.stream != stream {
                continue;
            }
            let done = apply_handlers(&plan.handlers, events, &self.stores);
            if let Err(failure) = done.and_then(|events| self.push_events(i, &events, sink)) {
                sink.failure(&plan.name, &failure);
                return Some(failure);
            }
        }
        None
    }

    /// Adds events as [`Self::aggregate`] does, for a batch whose chunks succeed or fail separately. Returns
    /// the chunks that did not fail, for the queries.
    pub(crate) fn aggregate_each<'b>(
        &mut self,
        stream: usize,
        events: &'b Batch,
        sink: &mut dyn OutputHandler,
    ) -> Cow<'b, Batch> {
        let mut rest = Cow::Borrowed(events);
        for i in 0..self.stores.aggregations.len() {
            let plan = self.stores.aggregations[i].plan().clone();
            if plan.stream != stream {
                continue;
            }
            let at_once = apply_handlers(&plan.handlers, &rest, &self.stores)
                .and_then(|events| self.push_events(i, &events, sink));
            if at_once.is_ok() {
                continue;
            }
            // a batch that failed has added nothing
            let mut failed = FailedChunks::new();
            for (chunk, (rows, clock)) in rest.chunks().enumerate() {
                let one = rest.chunk(rows, clock);
                let done = apply_handlers(&plan.handlers, &one, &self.stores)
                    .and_then(|events| self.push_events(i, &events, sink));
                if let Err(failure) = done {
                    sink.failure(&plan.name, &failure);
                    failed.push((chunk as u32, failure));
                }
            }
            rest = Cow::Owned(rest.without_chunks(&failed).into_owned());
        }
        rest
    }

    /// Adds events to an aggregation and writes what that changes in its store. What goes wrong there is reported; the
    /// events are in the aggregation.
    fn push_events(
        &mut self,
        aggregation: usize,
        events: &Batch,
        sink: &mut dyn OutputHandler,
    ) -> Result<(), EvalError> {
        let aggregation = &mut self.stores.aggregations[aggregation];
        aggregation.push(events)?;
        for failure in aggregation.write_changes() {
            sink.failure(&aggregation.plan().name, &failure);
        }
        Ok(())
    }

    /// Purges the aggregations whose purge is scheduled for `at`.
    pub(super) fn purge_aggregations(&mut self, at: i64, sink: &mut dyn OutputHandler) {
        let due = self.stores.aggregations.iter_mut().filter(|a| a.next_purge() == Some(at));
        for aggregation in due {
            for failure in aggregation.purge(at) {
                sink.failure(&aggregation.plan().name, &failure);
            }
        }
    }

    /// Skips purges up to `to` that would purge nothing and at which no timer is due.
    pub(crate) fn skip_purges(&mut self, to: i64) {
        if !self.stores.aggregations.is_empty() {
            let until = self.next_timer().map_or(to, |due| due.min(to));
            self.stores.aggregations.iter_mut().for_each(|a| a.skip_purges(until));
        }
    }
}
