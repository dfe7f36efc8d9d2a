//! Partitions of an app.

use super::{AppRuntime, DEPTH_MAX, Emitter, OutputHandler};
use crate::columns::batch::Batch;
use crate::eval_error::EvalError;
use crate::partition::{EventDestination, KeyId};

impl AppRuntime {
    /// Delivers events of a stream to a partition that reads it. Returns the failure, if they could not be
    /// processed.
    pub(super) fn route_to_partition(
        &mut self,
        partition: usize,
        stream: usize,
        events: &Batch,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) -> Option<EvalError> {
        match self.partitions[partition].route(stream, events, self.now, &self.stores) {
            EventDestination::AllKeys => {
                let keys = self.partitions[partition].keys();
                keys.into_iter()
                    .find_map(|key| self.deliver_to_instance(partition, key, stream, events, depth, sink))
            }
            EventDestination::Runs(cuts, failure) => {
                for cut in cuts {
                    let failure = match self.partitions[partition].key_for_event(&cut.key, self.now) {
                        Ok(key) => {
                            self.deliver_to_instance(partition, key, stream, &cut.of(events), depth, sink)
                        }
                        Err(failure) => Some(self.report_failure(partition, failure, sink)),
                    };
                    if failure.is_some() {
                        return failure;
                    }
                }
                failure.map(|failure| self.report_failure(partition, failure, sink))
            }
        }
    }

    fn report_failure(
        &self,
        partition: usize,
        failure: EvalError,
        sink: &mut dyn OutputHandler,
    ) -> EvalError {
        sink.failure(&format!("partition {}", partition + 1), &failure);
        failure
    }

    /// Delivers events of a stream, inner ones included, to the queries of a key that read it, depth first.
    pub(super) fn deliver_to_instance(
        &mut self,
        partition: usize,
        key: KeyId,
        stream: usize,
        events: &Batch,
        depth: usize,
        sink: &mut dyn OutputHandler,
    ) -> Option<EvalError> {
        if depth > DEPTH_MAX {
            let message = format!(
                "more than {DEPTH_MAX} levels of events caused by one event: do the queries insert for each other in a loop?"
            );
            let failure = EvalError::argument(message);
            sink.failure(&self.plan.catalog.streams()[stream].name, &failure);
            return None;
        }
        let plan = self.partitions[partition].plan().clone();
        plan.readers(stream).iter().find_map(|(query, port)| {
            let out = self.partitions[partition].push(key, *query, *port, events, &self.stores);
            self.emit(Emitter::InPartition { partition, key, query: *query }, out, depth, sink)
        })
    }

    /// Fires the due timers: each scheduler serves its keys by the age of their next timer, each key until
    /// none of its timers is due.
    pub(super) fn run_partition_timers(&mut self, partition: usize, sink: &mut dyn OutputHandler) {
        for scheduler in 0..self.partitions[partition].plan().schedulers().len() {
            while let Some(key) = self.partitions[partition].pop_due(scheduler, self.now) {
                while let Some((query, out)) =
                    self.partitions[partition].fire_timer(key, scheduler, self.now, &self.stores)
                {
                    self.emit(Emitter::InPartition { partition, key, query }, out, 0, sink);
                }
            }
        }
    }

    /// Runs the queries of a partition that are scheduled at `at`.
    pub(super) fn run_partition_schedules(
        &mut self,
        partition: usize,
        at: i64,
        sink: &mut dyn OutputHandler,
    ) {
        for query in self.partitions[partition].queries_scheduled_at(at) {
            for key in self.partitions[partition].keys() {
                if let Some(out) = self.partitions[partition].fire_schedule(key, query, at, &self.stores) {
                    self.emit(Emitter::InPartition { partition, key, query }, out, 0, sink);
                }
            }
        }
    }
}
