//! Writing of sinks.

use tidemill_types::{Error, Result};

use crate::core::Core;
use crate::delivery;
use crate::sinks::{DeliverySink, StreamSink};

/// Area of the problems of sinks.
const AREA: &str = "sinks";
/// Area of the problems of queues of sinks.
const QUEUE_AREA: &str = "sink queues";

/// Returns whether rows wait for a sink, by its position, and it may be tried.
pub fn is_due(core: &Core, sink: usize) -> bool {
    core.sinks.all().get(sink).is_some_and(|sink| sink.is_due(core.clock.monotonic()))
}

/// Writes what waits for a sink, unless it failed a moment ago.
pub fn run(core: &Core, sink: usize) {
    let Some(sink) = core.sinks.all().get(sink) else { return };
    if sink.may_try(core.clock.monotonic()) {
        // the failure is on the health board, and the sink is tried again
        let _ = observed(core, sink, StreamSink::flush);
    }
}

/// Writes what waits for all sinks. A sink that fails does not keep the others from it.
///
/// Errors: the first failure.
pub fn flush_all(core: &Core) -> Result<()> {
    let files = core.sinks.all().iter().map(|sink| observed(core, sink, StreamSink::flush));
    let delivered = core.sinks.deliveries().iter().map(|sink| delivery::wait_drained(core, sink));
    first_failure(files.chain(delivered))
}

/// Commits all sinks, so that checkpoints may pass the records applied so far. A sink that fails does not keep the
/// others from it.
///
/// Errors: the first failure.
pub fn commit_all(core: &Core) -> Result<()> {
    let commit = |sink: &StreamSink| sink.commit(&*core.log);
    let files = core.sinks.all().iter().map(|sink| observed(core, sink, commit));
    first_failure(files.chain(core.sinks.deliveries().iter().map(|sink| store(core, sink))))
}

/// Uses a sink and reports the outcome on the health board.
fn observed(core: &Core, sink: &StreamSink, step: impl FnOnce(&StreamSink) -> Result<()>) -> Result<()> {
    let result = step(sink);
    match &result {
        Ok(()) => {
            sink.reset_retry();
            core.health.clear_problem_of(AREA, sink.name());
        }
        Err(e) => {
            sink.delay_retry(core.clock.monotonic());
            let problem = format!("{}: {e}; the events wait and the sink is tried again", sink.name());
            core.health.report_problem_of(AREA, sink.name(), problem);
        }
    }
    result
}

fn first_failure(results: impl Iterator<Item = Result<()>>) -> Result<()> {
    let failures: Vec<Error> = results.filter_map(Result::err).collect();
    failures.into_iter().next().map_or(Ok(()), Err)
}

/// Stores the events that wait for a connector, when too many are in memory.
pub fn store_if_full(core: &Core, sink: usize) {
    let Some(sink) = core.sinks.deliveries().get(sink) else { return };
    if sink.is_memory_full() {
        // the failure is on the health board, and the next run tries again
        let _ = store(core, sink);
    }
}

fn store(core: &Core, sink: &DeliverySink) -> Result<()> {
    let stored = sink.store();
    match &stored {
        Ok(()) => core.health.clear_problem_of(QUEUE_AREA, sink.name()),
        Err(e) => {
            let problem = format!("{}: the events that wait cannot be stored: {e}", sink.name());
            core.health.report_problem_of(QUEUE_AREA, sink.name(), problem);
        }
    }
    stored
}
