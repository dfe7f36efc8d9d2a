//! Threads of a running engine, and the order in which they end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tidemill_types::{Error, Result};

use crate::jobs::{record_watch, timers};
use crate::lifecycle::reopen;
use crate::node::Node;
use crate::process::spawn::spawn;
use crate::sinks::{DeliverySink, StreamSink};
use crate::{delivery, jobs, sources};

/// Areas of problems that keep records from being applied until there is room on a disk, or the disk works again.
const DISK_PROBLEM_AREAS: [&str; 4] = ["log", "tables", "disk", "sinks"];
/// Minimum time that a stop waits, and interval between two looks at the problems.
const STOP_WAIT_STUCK: Duration = Duration::from_secs(1);

/// Maximum time that a stop waits for owners that are asked to end: a record that does not end is left to the
/// next start.
const OWNERS_WAIT: Duration = Duration::from_secs(2);
/// Interval at which a stop checks whether background threads have ended.
const THREADS_POLL: Duration = Duration::from_millis(5);

/// Answer to those whose record is applied, when what it emitted cannot be sent on.
const STOPPED_BEFORE_SENT: &str =
    "the events are in the log and applied, but the engine stopped before what they emitted was sent on";

/// Threads of an engine beside those of its partitions: background jobs, timers, sources.
pub struct EngineThreads {
    /// Opens partitions again that have stopped.
    opener: Mutex<Vec<JoinHandle<()>>>,
    background: Mutex<Vec<JoinHandle<()>>>,
    sources: Mutex<Vec<JoinHandle<()>>>,
    stopped: AtomicBool,
    /// Set when a stop left an owner behind that did not end.
    left_behind: AtomicBool,
}

impl EngineThreads {
    /// Starts all threads but those of sources; those of partitions too.
    ///
    /// Errors: `Unavailable` when a thread cannot be started.
    pub fn start(node: &Arc<Node>) -> Result<Self> {
        node.owned.all().iter().try_for_each(|partition| partition.start_threads())?;
        let mut background = jobs::start(node)?;
        let shared = node.clone();
        background.push(spawn("timers".into(), move || timers::run(&shared))?);
        let shared = node.clone();
        background.push(spawn("record-watch".into(), move || record_watch::run(&shared))?);
        for index in 0..node.app.sinks.deliveries().len() {
            let shared = node.clone();
            background.push(spawn(format!("sink-{index}"), move || {
                if let Some(sink) = shared.app.sinks.deliveries().get(index) {
                    delivery::run(&shared, sink);
                }
            })?);
        }
        let shared = node.clone();
        let opener = spawn("opener".into(), move || reopen::run(&shared))?;
        Ok(Self {
            opener: Mutex::new(vec![opener]),
            background: Mutex::new(background),
            sources: Mutex::default(),
            stopped: AtomicBool::new(false),
            left_behind: AtomicBool::new(false),
        })
    }

    /// Adds threads that end when the engine stops.
    pub fn add(&self, threads: Vec<JoinHandle<()>>) {
        self.background.lock().extend(threads);
    }

    /// Starts the sources, unless they have been started.
    pub fn start_sources(&self, node: &Arc<Node>) -> Result<()> {
        let mut sources = self.sources.lock();
        if sources.is_empty() {
            *sources = sources::start(node)?;
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
    pub fn stop_with_checkpoint(&self, node: &Node, wait: Duration) -> Result<()> {
        if let Some(cluster) = node.cluster.get() {
            cluster.leave(node);
        }
        if !self.stop(node, wait) {
            return Ok(());
        }
        // a partition whose owner was left behind keeps its checkpoint, and the next start replays its log
        let taken = jobs::checkpoint::checkpoint(node);
        if self.left_behind.load(Ordering::Acquire) {
            node.app.sinks.deliveries().iter().for_each(DeliverySink::close);
            node.host.changes.close();
            node.host.log.close()?;
            return taken.and(Err(Error::unavailable("a record is still being applied")));
        }
        let taken = taken.and(jobs::checkpoint::truncate_idle_logs(node));
        node.app.sinks.all().iter().for_each(StreamSink::close);
        node.app.sinks.deliveries().iter().for_each(DeliverySink::close);
        node.host.changes.close();
        node.host.runtime.block_on(node.host.zones.close_cache());
        taken.and(node.host.log.close())
    }

    /// Stops in order: sources, senders, owners, forwarders, background threads. Waits up to `wait` until all records are
    /// applied. Returns false if the threads were stopped before.
    pub fn stop(&self, node: &Node, wait: Duration) -> bool {
        if self.stopped.swap(true, Ordering::AcqRel) {
            return false;
        }
        node.app.set_sources_stopping();
        join(&self.sources);
        node.host.stop_accepting();
        // what rules emit for other partitions is applied as well; what a failing disk holds up stays in the log
        wait_applied(node, wait);
        node.set_stopping();
        // no partition is opened from now on
        join(&self.opener);
        let owned = [node.owned.replicas(), node.owned.opening()].concat();
        owned.iter().for_each(|p| p.request_stop());
        let deadline = node.host.clock.monotonic() + OWNERS_WAIT;
        // each is asked, also after one that does not end
        let ended = owned.iter().filter(|p| !p.stop_owner(&*node.host.clock, deadline)).count() == 0;
        if !ended {
            self.left_behind.store(true, Ordering::Release);
        }
        owned.iter().for_each(|p| p.stop_forwarder(STOPPED_BEFORE_SENT));
        node.app.sinks.deliveries().iter().for_each(DeliverySink::stop);
        match ended {
            true => join(&self.background),
            false => _ = join_within(node, &self.background, OWNERS_WAIT),
        }
        true
    }
}

/// Waits until all records are applied, but not for a disk that rejects them.
fn wait_applied(node: &Node, wait: Duration) {
    let deadline = node.host.clock.monotonic() + wait;
    let stuck = || DISK_PROBLEM_AREAS.iter().any(|area| node.host.health.has_problem(area));
    node.host.in_flight.wait_until_drained_for(&*node.host.clock, wait.min(STOP_WAIT_STUCK));
    while !stuck() && node.host.clock.monotonic() < deadline && !node.host.in_flight.is_drained() {
        node.host.in_flight.wait_until_drained_for(&*node.host.clock, STOP_WAIT_STUCK.min(wait));
    }
}

fn join(threads: &Mutex<Vec<JoinHandle<()>>>) {
    for thread in threads.lock().drain(..) {
        let _ = thread.join();
    }
}

/// Joins threads that end within `wait`, and leaves the others behind. Returns whether all have ended.
fn join_within(node: &Node, threads: &Mutex<Vec<JoinHandle<()>>>, wait: Duration) -> bool {
    let deadline = node.host.clock.monotonic() + wait;
    let mut threads = threads.lock();
    while threads.iter().any(|thread| !thread.is_finished()) && node.host.clock.monotonic() < deadline {
        node.host.clock.sleep(THREADS_POLL);
    }
    let (ended, left): (Vec<_>, Vec<_>) = threads.drain(..).partition(JoinHandle::is_finished);
    for thread in ended {
        let _ = thread.join();
    }
    left.is_empty()
}
