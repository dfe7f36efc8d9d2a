//! Threads of a running engine, and the order in which they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tidemill_types::{Error, Result};

use crate::core::Core;
use crate::host::spawn::spawn;
use crate::jobs::{record_watch, timers};
use crate::partition::Partition;
use crate::sinks::{DeliverySink, StreamSink};
use crate::{delivery, jobs, sources};

/// Areas of problems that keep records from being applied until there is room on a disk, or the disk works again.
const DISK_PROBLEM_AREAS: [&str; 4] = ["log", "tables", "disk", "sinks"];
/// How long a stop waits at least, and between two looks at the problems.
const STOP_WAIT_STUCK: Duration = Duration::from_secs(1);

/// How long a stop waits for owners that are asked to end: a record that does not end is left to the next start.
const OWNERS_WAIT: Duration = Duration::from_secs(2);
/// How often a stop looks whether they have.
const OWNERS_POLL: Duration = Duration::from_millis(5);

/// Threads of an engine: owners and forwarders of its partitions, background jobs, timers, sources.
#[derive(Default)]
pub struct EngineThreads {
    owners: Mutex<Vec<JoinHandle<()>>>,
    forwarders: Mutex<Vec<JoinHandle<()>>>,
    background: Mutex<Vec<JoinHandle<()>>>,
    sources: Mutex<Vec<JoinHandle<()>>>,
    /// Set when a stop left an owner behind that did not end.
    left_behind: AtomicBool,
}

impl EngineThreads {
    /// Starts all threads but those of sources.
    ///
    /// Errors: `Unavailable` when a thread cannot be started.
    pub fn start(core: &Arc<Core>) -> Result<Self> {
        let owners = spawn_per_partition(core, "partition", |p, core| p.run_owner(core))?;
        let forwarders =
            spawn_per_partition(core, "forward", |p, core| p.run_forwarder(core, core.partitions()))?;
        let mut background = jobs::start(core)?;
        let shared = core.clone();
        background.push(spawn("timers".into(), move || timers::run(&shared))?);
        let shared = core.clone();
        background.push(spawn("record-watch".into(), move || record_watch::run(&shared))?);
        for index in 0..core.sinks.deliveries().len() {
            let shared = core.clone();
            background.push(spawn(format!("sink-{index}"), move || {
                if let Some(sink) = shared.sinks.deliveries().get(index) {
                    delivery::run(&shared, sink);
                }
            })?);
        }
        Ok(Self {
            owners: Mutex::new(owners),
            forwarders: Mutex::new(forwarders),
            background: Mutex::new(background),
            sources: Mutex::default(),
            left_behind: AtomicBool::new(false),
        })
    }

    /// Starts the sources, unless they have been started.
    pub fn start_sources(&self, core: &Arc<Core>) -> Result<()> {
        let mut sources = self.sources.lock();
        if sources.is_empty() {
            *sources = sources::start(core)?;
        }
        Ok(())
    }

    /// Waits until all sources have ended.
    pub fn join_sources(&self) {
        // a panic of a source has been printed; what it sent before is applied all the same
        join(&self.sources);
    }

    /// Returns whether a source is still being read.
    pub fn sources_running(&self) -> bool {
        self.sources.lock().iter().any(|t| !t.is_finished())
    }

    /// Stops as [`Self::stop`] does, then takes a last checkpoint and closes sinks and log. Does nothing if the threads were stopped
    /// before.
    ///
    /// Errors: those of the checkpoint and of closing the log. No acknowledged record is lost; the next start replays it.
    pub fn stop_with_checkpoint(&self, core: &Core, wait: Duration) -> Result<()> {
        if !self.stop(core, wait) {
            return Ok(());
        }
        if self.left_behind.load(Ordering::Acquire) {
            core.sinks.deliveries().iter().for_each(DeliverySink::close);
            core.changes.close();
            core.log.close()?;
            return Err(Error::unavailable(
                "a record is still being applied: there is no last checkpoint, and the next start replays the log",
            ));
        }
        let taken =
            jobs::checkpoint::checkpoint(core).and_then(|()| jobs::checkpoint::truncate_idle_logs(core));
        core.sinks.all().iter().for_each(StreamSink::close);
        core.sinks.deliveries().iter().for_each(DeliverySink::close);
        core.changes.close();
        core.tables.runtime.block_on(core.tables.zones.close_cache());
        taken.and(core.log.close())
    }

    /// Stops in order: sources, senders, owners, forwarders, background threads. Waits up to `wait` until all records are
    /// applied. Returns false if the threads were stopped before.
    pub fn stop(&self, core: &Core, wait: Duration) -> bool {
        if self.owners.lock().is_empty() {
            return false;
        }
        core.set_sources_stopping();
        join(&self.sources);
        core.partitions().iter().for_each(|p| p.backlog.stop_accepting());
        // what rules emit for other partitions is applied as well; what a failing disk holds up stays in the log
        wait_applied(core, wait);
        core.set_stopping();
        core.partitions().iter().for_each(|p| p.stop_consuming());
        core.partitions().iter().for_each(|p| p.current.stop());
        let ended = join_within(core, &self.owners, OWNERS_WAIT);
        if !ended {
            // it holds locks of its partition, which checkpoints and timers wait for
            self.left_behind.store(true, Ordering::Release);
            core.disable_checkpoints();
        }
        // owners add no more emissions; those that a failing disk held up are in the last checkpoint
        for (reply, _) in core.partitions().iter().flat_map(|p| p.outbox.close()) {
            // a caller that no longer waits is no error
            let _ = reply.send(Err(Error::unavailable(
                "the events are in the log and applied, but the engine stopped before what they emitted was sent on",
            )));
        }
        join(&self.forwarders);
        core.sinks.deliveries().iter().for_each(DeliverySink::stop);
        match ended {
            true => join(&self.background),
            false => _ = join_within(core, &self.background, OWNERS_WAIT),
        }
        true
    }
}

/// Waits until all records are applied, but not for a disk that rejects them.
fn wait_applied(core: &Core, wait: Duration) {
    let deadline = core.clock.monotonic() + wait;
    let stuck = || DISK_PROBLEM_AREAS.iter().any(|area| core.health.has_problem(area));
    core.in_flight.wait_until_drained_for(&*core.clock, wait.min(STOP_WAIT_STUCK));
    while !stuck() && core.clock.monotonic() < deadline && !core.in_flight.is_drained() {
        core.in_flight.wait_until_drained_for(&*core.clock, STOP_WAIT_STUCK.min(wait));
    }
}

fn join(threads: &Mutex<Vec<JoinHandle<()>>>) {
    for thread in threads.lock().drain(..) {
        let _ = thread.join();
    }
}

/// Joins threads that end within `wait`, and leaves the others behind. Returns whether all have ended.
fn join_within(core: &Core, threads: &Mutex<Vec<JoinHandle<()>>>, wait: Duration) -> bool {
    let deadline = core.clock.monotonic() + wait;
    let mut threads = threads.lock();
    while threads.iter().any(|thread| !thread.is_finished()) && core.clock.monotonic() < deadline {
        core.clock.sleep(OWNERS_POLL);
    }
    let (ended, left): (Vec<_>, Vec<_>) = threads.drain(..).partition(JoinHandle::is_finished);
    for thread in ended {
        let _ = thread.join();
    }
    left.is_empty()
}

fn spawn_per_partition(
    core: &Arc<Core>,
    name: &str,
    body: fn(&Partition, &Core),
) -> Result<Vec<JoinHandle<()>>> {
    (0..core.partitions().len())
        .map(|p| {
            let core = core.clone();
            spawn(format!("{name}-{p}"), move || body(&core.partitions()[p], &core))
        })
        .collect()
}
