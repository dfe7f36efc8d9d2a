//! What all parts of a running engine share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Condvar, Mutex};
use tidemill_log::{Durability, Log};
use tidemill_rules::Program;
use tidemill_types::{Error, Offset, PartitionId, Result, StreamSchema};
use tidemill_zones::{Table, Zones};

use crate::apply_queue::InFlight;
use crate::clock::Clock;
use crate::disk_space::DiskSpace;
use crate::entry::Streams;
use crate::partition::Partition;
use crate::queries::{Partitioner, Queries};
use crate::source_rejections::SourceRejections;
use crate::subscribe::Subscribers;
use crate::{Analytics, App, LedgerCounts, Settings};

/// The shared parts of a running engine.
pub struct Core {
    /// The data directory.
    pub dir: PathBuf,
    /// The deployed app.
    pub app: App,
    /// Settings in force.
    pub settings: Settings,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// The log.
    pub log: Arc<dyn Log>,
    /// The compiled rules.
    pub program: Arc<Program>,
    /// The compiled queries.
    pub queries: Arc<Queries>,
    /// Which partition an event belongs to.
    pub partitioner: Partitioner,
    /// Streams by name, for decoding.
    pub streams: Streams,
    /// Tables by position of their stream in the program.
    pub tables: Vec<Arc<Table>>,
    /// The table of refused rows.
    pub rejected: Arc<Table>,
    /// Its declaration.
    pub rejected_schema: Arc<StreamSchema>,
    /// All tables.
    pub zones: Zones,
    /// Streams with stored events that the app does not declare, and their tables, once they are opened.
    pub former_tables: OnceLock<Vec<(Arc<StreamSchema>, Arc<Table>)>>,
    /// Runs what talks to the object store.
    pub runtime: tokio::runtime::Runtime,
    /// Records written but not applied.
    pub in_flight: InFlight,
    /// Room on the disk of the data directory.
    pub disk_space: DiskSpace,
    /// In-process readers.
    pub subscribers: Subscribers,
    /// SQL, once there is one.
    pub analytics: OnceLock<Arc<dyn Analytics>>,
    /// Runs and failures of aggregate rules.
    pub aggregates: Mutex<BTreeMap<String, AggregateCounts>>,
    /// Counters for metrics.
    pub counts: EngineCounters,
    /// Rows of sources that were refused.
    pub source_rejections: SourceRejections,
    /// Signals maintenance that there is work, or that it is time to stop.
    pub notifier: Notifier,
    /// Held while checkpoints are taken and the log is cut: two at once would write the same files.
    pub checkpointing: Mutex<()>,
    partitions: OnceLock<Vec<Partition>>,
    problems: Mutex<BTreeMap<&'static str, String>>,
    source_problems: Mutex<BTreeMap<String, String>>,
    sources_stopping: AtomicBool,
    stopping: AtomicBool,
    checkpoints_disabled: AtomicBool,
}

/// What an aggregate rule did.
#[derive(Debug, Clone, Default)]
pub struct AggregateCounts {
    /// Runs that ended well.
    pub runs: u64,
    /// Runs that failed.
    pub errors: u64,
    /// The latest failure.
    pub last_error: Option<String>,
}

/// Counters that are only ever added to.
#[derive(Default)]
pub struct EngineCounters {
    /// Rows accepted from senders and sources.
    pub accepted: AtomicU64,
    /// Records applied.
    pub records: AtomicU64,
    /// Events applied, emitted ones included.
    pub applied: AtomicU64,
    /// Tablets committed.
    pub tablets: AtomicU64,
    /// Checkpoints published.
    pub checkpoints: AtomicU64,
    /// Microseconds spent in flushes.
    pub flush_us: AtomicU64,
}

/// A condition that maintenance sleeps on.
#[derive(Default)]
pub struct Notifier {
    signals: Mutex<u64>,
    changed: Condvar,
}

impl Notifier {
    /// Wakes all that wait.
    pub fn notify(&self) {
        *self.signals.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits for a signal that the caller has not seen, or until `timeout` is over. `seen` counts the signals that it
    /// has seen; 0 at first.
    pub fn wait(&self, seen: &mut u64, timeout: std::time::Duration) {
        let mut signals = self.signals.lock();
        if *signals == *seen {
            self.changed.wait_for(&mut signals, timeout);
        }
        *seen = *signals;
    }
}

/// The parts that [`Core::new`] puts together.
pub struct CoreParts {
    pub dir: PathBuf,
    pub app: App,
    pub clock: Arc<dyn Clock>,
    pub log: Arc<dyn Log>,
    pub program: Arc<Program>,
    pub queries: Arc<Queries>,
    pub partitioner: Partitioner,
    pub tables: Vec<Arc<Table>>,
    pub rejected: Arc<Table>,
    pub rejected_schema: Arc<StreamSchema>,
    pub zones: Zones,
    pub runtime: tokio::runtime::Runtime,
}

impl Core {
    /// A core without partitions; [`Self::set_partitions`] follows.
    pub fn new(parts: CoreParts) -> Self {
        let streams =
            parts.program.streams().iter().map(|s| (s.name.clone(), (s.clone(), s.batch_schema()))).collect();
        let space = DiskSpace::new(&parts.dir, parts.app.settings.reserve_bytes);
        Self {
            settings: parts.app.settings.clone(),
            dir: parts.dir,
            app: parts.app,
            clock: parts.clock,
            log: parts.log,
            partitioner: parts.partitioner,
            queries: parts.queries,
            program: parts.program,
            streams,
            tables: parts.tables,
            rejected: parts.rejected,
            rejected_schema: parts.rejected_schema,
            zones: parts.zones,
            former_tables: OnceLock::new(),
            runtime: parts.runtime,
            in_flight: InFlight::default(),
            disk_space: space,
            subscribers: Subscribers::default(),
            analytics: OnceLock::new(),
            aggregates: Mutex::default(),
            counts: EngineCounters::default(),
            source_rejections: SourceRejections::default(),
            notifier: Notifier::default(),
            checkpointing: Mutex::default(),
            partitions: OnceLock::new(),
            problems: Mutex::default(),
            source_problems: Mutex::default(),
            sources_stopping: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            checkpoints_disabled: AtomicBool::new(false),
        }
    }

    /// Gives the core its recovered partitions, once.
    pub fn set_partitions(&self, partitions: Vec<Partition>) {
        let first_time = self.partitions.set(partitions).is_ok();
        debug_assert!(first_time, "partitions are recovered once");
    }

    /// All partitions by number.
    pub fn partitions(&self) -> &[Partition] {
        self.partitions.get().map_or(&[], Vec::as_slice)
    }

    /// Tables with the stream each belongs to, the refused rows' last.
    pub fn all_tables(&self) -> impl Iterator<Item = (&Arc<StreamSchema>, &Arc<Table>)> {
        self.program
            .streams()
            .iter()
            .zip(&self.tables)
            .chain(std::iter::once((&self.rejected_schema, &self.rejected)))
    }

    /// Refuses writes while the disk of the data directory runs low.
    ///
    /// Errors: `Unavailable`, which says how much is free and what would help.
    pub fn check_disk_space(&self) -> Result<()> {
        self.disk_space.check(|| self.pending_bytes())
    }

    /// Looks how much room the disk has, for the checks that follow.
    pub fn measure_disk_space(&self) {
        self.disk_space.measure(self.pending_bytes());
    }

    /// Bytes that wait to be applied, and may not be on the disk yet.
    fn pending_bytes(&self) -> u64 {
        self.partitions().iter().map(|p| p.apply_queue.depth().1 as u64).sum()
    }

    /// Tables of streams that the app does not declare any more. Nothing joins them.
    pub fn former_tables(&self) -> &[(Arc<StreamSchema>, Arc<Table>)] {
        self.former_tables.get().map_or(&[], Vec::as_slice)
    }

    /// Remembers a problem of `area` for health and logs it when it is new.
    pub fn report_problem(&self, area: &'static str, problem: String) {
        let mut problems = self.problems.lock();
        if problems.get(area) != Some(&problem) {
            tracing::error!(area, "{problem}");
            problems.insert(area, problem);
        }
    }

    /// Forgets the problem of `area`.
    pub fn clear_problem(&self, area: &'static str) {
        if self.problems.lock().remove(area).is_some() {
            tracing::info!(area, "the problem is over");
        }
    }

    /// Remembers that a source could not be read to its end, or not whole.
    pub fn report_source_problem(&self, source: &str, error: &Error) {
        tracing::error!(source, error = %error, "a source has a problem");
        self.source_problems.lock().insert(source.to_owned(), error.to_string());
    }

    /// Whether a problem of `area` is present.
    pub fn has_problem(&self, area: &str) -> bool {
        self.problems.lock().contains_key(area)
    }

    /// Present problems.
    pub fn problems(&self) -> Vec<String> {
        let sources = self.source_problems();
        self.problems
            .lock()
            .iter()
            .map(|(area, problem)| format!("{area}: {problem}"))
            .chain(sources)
            .collect()
    }

    /// Problems of sources.
    pub fn source_problems(&self) -> Vec<String> {
        self.source_problems
            .lock()
            .iter()
            .map(|(source, problem)| format!("source {source}: {problem}"))
            .collect()
    }

    /// Lets sources end after the chunk they are at.
    pub fn set_sources_stopping(&self) {
        self.sources_stopping.store(true, Ordering::Release);
    }

    /// Whether sources are to end.
    pub fn sources_stopping(&self) -> bool {
        self.sources_stopping.load(Ordering::Acquire)
    }

    /// The ledger of `stream` over all partitions.
    pub fn ledger(&self, stream: &str) -> LedgerCounts {
        let mut total = LedgerCounts::default();
        for partition in self.partitions() {
            if let Some(counts) = partition.state.read().ledger.get(stream) {
                total.add(counts);
            }
        }
        total
    }

    /// Flushes when a tail is full; for replay, which has no maintenance beside it.
    pub fn flush_full_tails(&self) -> Result<()> {
        if self.tails_full() { crate::maintenance::flush(self) } else { Ok(()) }
    }

    /// Whether the engine is being stopped.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Lets loops and retries end.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
        self.notifier.notify();
    }

    /// No checkpoint may be published any more: a partition stopped in the middle of its log.
    pub fn disable_checkpoints(&self) {
        self.checkpoints_disabled.store(true, Ordering::Release);
    }

    /// Whether checkpoints may be published.
    pub fn checkpoints_allowed(&self) -> bool {
        !self.checkpoints_disabled.load(Ordering::Acquire)
    }

    fn tails_full(&self) -> bool {
        self.all_tables().any(|(_, t)| t.pending_bytes() >= self.settings.tail_bytes)
    }

    /// Waits while a table's tail is full, so that memory stays bounded while the object store is away.
    pub fn wait_for_tails(&self) {
        while !self.is_stopping() && self.tails_full() {
            self.report_problem("tables", "a table's tail is full and waits to be flushed".into());
            self.notifier.notify();
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// Makes the log durable up to what is applied and returns that, per partition: what may be flushed. A partition
    /// whose log cannot be synced is cut where it is durable; the failure is returned beside it.
    pub fn sync_applied(&self) -> (Vec<(PartitionId, Offset)>, Option<Error>) {
        let (mut cut, mut failed) = (Vec::new(), None);
        for partition in self.partitions() {
            let mut next = partition.applied();
            let last = next.0.checked_sub(1).map(Offset);
            if let Some(e) = last.and_then(|last| self.log.sync(partition.id, last, Durability::Fsync).err())
            {
                next = next.min(self.log.durable(partition.id));
                failed = Some(e);
            }
            cut.extend(next.0.checked_sub(1).map(|last| (partition.id, Offset(last))));
        }
        (cut, failed)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    #[test]
    fn signal_between_two_waits_is_seen_by_each_waiter() {
        let wake = super::Notifier::default();
        wake.notify();
        let (mut one, mut other) = (0, 0);
        wake.wait(&mut one, Duration::from_secs(3600));
        wake.wait(&mut other, Duration::from_secs(3600));
        wake.notify();
        wake.wait(&mut one, Duration::from_secs(3600));
        assert_eq!((one, other), (2, 1));
    }
}
