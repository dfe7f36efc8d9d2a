//! What happens to the aggregations of an app.

use std::borrow::Cow;

use super::{App, Sink};
use crate::batch::Batch;
use crate::expr::Failure;
use crate::query::handle;
use crate::select::FailedChunks;

impl App {
    /// Events of a stream are worked into the aggregations that read it: what failed, if something did.
    pub(super) fn aggregate(
        &mut self,
        stream: usize,
        events: &Batch,
        sink: &mut dyn Sink,
    ) -> Option<Failure> {
        for i in 0..self.shared.aggregations.len() {
            let plan = self.shared.aggregations[i].plan().clone();
            if plan.stream != stream {
                continue;
            }
            let done = handle(&plan.before, events, &self.shared);
            if let Err(failure) = done.and_then(|events| self.shared.aggregations[i].push(&events)) {
                sink.failure(&plan.name, &failure);
                return Some(failure);
            }
        }
        None
    }

    /// The same for many chunks, each by itself; what is left of them for the queries.
    pub(crate) fn aggregate_each<'b>(
        &mut self,
        stream: usize,
        events: &'b Batch,
        sink: &mut dyn Sink,
    ) -> Cow<'b, Batch> {
        let mut rest = Cow::Borrowed(events);
        for i in 0..self.shared.aggregations.len() {
            let plan = self.shared.aggregations[i].plan().clone();
            if plan.stream != stream {
                continue;
            }
            let at_once = handle(&plan.before, &rest, &self.shared)
                .and_then(|events| self.shared.aggregations[i].push(&events));
            if at_once.is_ok() {
                continue;
            }
            // of what failed as a whole nothing was worked in
            let mut failed = FailedChunks::new();
            for (chunk, (rows, clock)) in rest.chunks().enumerate() {
                let one = rest.chunk(rows, clock);
                let done = handle(&plan.before, &one, &self.shared)
                    .and_then(|events| self.shared.aggregations[i].push(&events));
                if let Err(failure) = done {
                    sink.failure(&plan.name, &failure);
                    failed.push((chunk as u32, failure));
                }
            }
            rest = Cow::Owned(rest.without(&failed).into_owned());
        }
        rest
    }

    /// Those that are to forget what is too old at `at` do so.
    pub(super) fn purge_aggregations(&mut self, at: i64) {
        let due = self.shared.aggregations.iter_mut().filter(|a| a.next_purge() == Some(at));
        due.for_each(|a| a.purge(at));
    }

    /// Leaves out purges up to `to` that would forget nothing and at which no timer is due.
    pub(crate) fn skip_purges(&mut self, to: i64) {
        if !self.shared.aggregations.is_empty() {
            let until = self.next_timer().map_or(to, |due| due.min(to));
            self.shared.aggregations.iter_mut().for_each(|a| a.skip_purges(until));
        }
    }
}
