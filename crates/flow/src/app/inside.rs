//! What happens inside the partitions of an app.

use super::{App, DEPTH_MAX, Origin, Sink};
use crate::batch::Batch;
use crate::expr::Failure;
use crate::partition::{KeyId, Route};

impl App {
    /// Events of a stream reach a partition that reads it: why they could not be worked off, if so.
    pub(super) fn enter(
        &mut self,
        partition: usize,
        stream: usize,
        events: &Batch,
        depth: usize,
        sink: &mut dyn Sink,
    ) -> Option<Failure> {
        match self.partitions[partition].route(stream, events, self.now, &self.shared) {
            Route::Everywhere => {
                let keys = self.partitions[partition].keys();
                keys.into_iter().find_map(|key| self.inside(partition, key, stream, events, depth, sink))
            }
            Route::Cuts(cuts, failure) => {
                for cut in cuts {
                    let failure = match self.partitions[partition].enter(&cut.key, self.now) {
                        Ok(key) => self.inside(partition, key, stream, &cut.of(events), depth, sink),
                        Err(failure) => Some(self.failed(partition, failure, sink)),
                    };
                    if failure.is_some() {
                        return failure;
                    }
                }
                failure.map(|failure| self.failed(partition, failure, sink))
            }
        }
    }

    fn failed(&self, partition: usize, failure: Failure, sink: &mut dyn Sink) -> Failure {
        sink.failure(&format!("partition {}", partition + 1), &failure);
        failure
    }

    /// Events of a stream, an inner one as well, reach the queries of a key that read it, depth first.
    pub(super) fn inside(
        &mut self,
        partition: usize,
        key: KeyId,
        stream: usize,
        events: &Batch,
        depth: usize,
        sink: &mut dyn Sink,
    ) -> Option<Failure> {
        if depth > DEPTH_MAX {
            let message = format!("events went through {DEPTH_MAX} streams without coming to an end");
            let failure = Failure(message);
            sink.failure(&self.plan.catalog.streams()[stream].name, &failure);
            return None;
        }
        let plan = self.partitions[partition].plan().clone();
        plan.readers(stream).iter().find_map(|(query, port)| {
            let out = self.partitions[partition].push(key, *query, *port, events, &self.shared);
            self.emit(Origin::Inside { partition, key, query: *query }, out, depth, sink)
        })
    }

    /// Each scheduler serves its keys by the age of their heads, each key until nothing of it is due any more.
    pub(super) fn timers_inside(&mut self, partition: usize, sink: &mut dyn Sink) {
        for scheduler in 0..self.partitions[partition].plan().schedulers().len() {
            while let Some(key) = self.partitions[partition].take_due(scheduler, self.now) {
                while let Some((query, out)) =
                    self.partitions[partition].timer(key, scheduler, self.now, &self.shared)
                {
                    self.emit(Origin::Inside { partition, key, query }, out, 0, sink);
                }
            }
        }
    }

    /// The clock stopped at an instant that calendars in a partition ask for.
    pub(super) fn instant_inside(&mut self, partition: usize, at: i64, sink: &mut dyn Sink) {
        for query in self.partitions[partition].queries_at(at) {
            for key in self.partitions[partition].keys() {
                if let Some(out) = self.partitions[partition].instant(key, query, at, &self.shared) {
                    self.emit(Origin::Inside { partition, key, query }, out, 0, sink);
                }
            }
        }
    }
}
