//! Writing of sinks.

use tidemill_types::{Error, Result};

use crate::delivery;
use crate::node::Node;
use crate::sinks::{DeliverySink, StreamSink};

/// Area of the problems of sinks.
const AREA: &str = "sinks";
/// Area of the problems of queues of sinks.
const QUEUE_AREA: &str = "sink queues";

/// Returns whether rows wait for a sink, by its position, and it may be tried.
pub fn is_due(node: &Node, sink: usize) -> bool {
    node.app.sinks.all().get(sink).is_some_and(|sink| sink.is_due(node.host.clock.monotonic()))
}

/// Writes what waits for a sink, unless it failed a moment ago.
pub fn run(node: &Node, sink: usize) {
    let Some(sink) = node.app.sinks.all().get(sink) else { return };
    if sink.may_try(node.host.clock.monotonic()) {
        // the failure is on the health board, and the sink is tried again
        let _ = observed(node, sink, StreamSink::flush);
    }
}

/// Writes what waits for all sinks. A sink that fails does not keep the others from it.
///
/// Errors: the first failure.
pub fn flush_all(node: &Node) -> Result<()> {
    let files = node.app.sinks.all().iter().map(|sink| observed(node, sink, StreamSink::flush));
    let delivered = node.app.sinks.deliveries().iter().map(|sink| delivery::wait_drained(node, sink));
    first_failure(files.chain(delivered))
}

/// Commits all sinks, so that checkpoints may pass the records applied so far. A sink that fails does not keep the
/// others from it.
///
/// Errors: the first failure.
pub fn commit_all(node: &Node) -> Result<()> {
    let commit = |sink: &StreamSink| sink.commit(&*node.host.log);
    let files = node.app.sinks.all().iter().map(|sink| observed(node, sink, commit));
    let queues = node.app.sinks.deliveries().iter();
    first_failure(files.chain(queues.map(|sink| store(node, sink, DeliverySink::store_own))))
}

/// Commits what sinks have of a partition, so that its checkpoint may pass the records applied so far.
///
/// Errors: as [`commit_all`].
#[cfg(feature = "sim")]
pub fn commit_partition(node: &Node, id: tidemill_types::PartitionId) -> Result<()> {
    let commit = |sink: &StreamSink| sink.commit(&*node.host.log);
    let files = node.app.sinks.all().iter().map(|sink| observed(node, sink, commit));
    let queues = node.app.sinks.deliveries().iter();
    first_failure(files.chain(queues.map(|sink| store(node, sink, |sink| sink.store_partition(id)))))
}

/// Uses a sink and reports the outcome on the health board.
fn observed(node: &Node, sink: &StreamSink, step: impl FnOnce(&StreamSink) -> Result<()>) -> Result<()> {
    let result = step(sink);
    match &result {
        Ok(()) => {
            sink.reset_retry();
            node.host.health.clear_problem_of(AREA, sink.name());
        }
        Err(e) => {
            sink.delay_retry(node.host.clock.monotonic());
            let problem = format!("{}: {e}; the events wait and the sink is tried again", sink.name());
            node.host.health.report_problem_of(AREA, sink.name(), problem);
        }
    }
    result
}

fn first_failure(results: impl Iterator<Item = Result<()>>) -> Result<()> {
    let failures: Vec<Error> = results.filter_map(Result::err).collect();
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// Stores the events that wait for a connector, when too many are in memory.
pub fn store_if_full(node: &Node, sink: usize) {
    let Some(sink) = node.app.sinks.deliveries().get(sink) else { return };
    if sink.is_memory_full() {
        // the failure is on the health board, and the next run tries again
        let _ = store(node, sink, DeliverySink::store);
    }
}

/// Stores what waits in queues of a sink and reports the outcome on the health board.
fn store(node: &Node, sink: &DeliverySink, step: impl FnOnce(&DeliverySink) -> Result<()>) -> Result<()> {
    let stored = step(sink);
    match &stored {
        Ok(()) => node.host.health.clear_problem_of(QUEUE_AREA, sink.name()),
        Err(e) => {
            let problem = format!("{}: the events that wait cannot be stored: {e}", sink.name());
            node.host.health.report_problem_of(QUEUE_AREA, sink.name(), problem);
        }
    }
    stored
}
