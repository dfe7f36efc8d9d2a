//! What the parts of a running engine share: log, tables, clock, health, counters.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use tidemill_log::Log;
use tidemill_log::disk::Disk;
use tidemill_types::budget::BytePool;
use tidemill_types::{Error, Result};

use crate::api::Analytics;
use crate::changes::ChangeLog;
use crate::commit::{CommitBoard, WriteLocks};
use crate::counters::source_rejections::SourceRejections;
use crate::counters::{AggregateCounts, EngineCounters};
use crate::deployment::Deployment;
use crate::directory::encryption::encrypted_disk;
use crate::host::clock::Clock;
use crate::host::disk_space::DiskSpace;
use crate::host::health::HealthBoard;
use crate::host::notifier::Notifier;
use crate::sinks::SinkSet;
use crate::state::backlog::InFlight;
use crate::state::set_aside::SetAsideRecords;
use crate::subscribe::Subscribers;
use crate::tables::TableSet;

/// How long an owner waits before it looks again whether a full tail or sink has been written.
const TAIL_POLL: Duration = Duration::from_millis(5);
/// How long an operation on the tables may go on when the engine stops.
const STORE_STOP_WAIT: Duration = Duration::from_secs(5);
/// How often an operation on the tables looks whether the engine stops.
const STOP_POLL: Duration = Duration::from_millis(100);

/// Shared services of a running engine. They know nothing of its partitions.
pub struct Services {
    /// Data directory; empty for an engine in memory.
    pub dir: PathBuf,
    /// Disk of the data directory.
    ///
    /// It decrypts and encrypts files, if there are keys.
    pub disk: Arc<dyn Disk>,
    /// The same without keys, for copies of the files as they are.
    pub stored_disk: Arc<dyn Disk>,
    /// Deployed app.
    pub deployment: Arc<Deployment>,
    /// Clock.
    pub clock: Arc<dyn Clock>,
    /// Log.
    pub log: Arc<dyn Log>,
    /// Tables.
    pub tables: TableSet,
    /// Sinks; none for an engine in memory.
    pub sinks: SinkSet,
    /// Commits of transactions of several partitions.
    pub commits: CommitBoard,
    /// Changes of documents for those who follow them.
    pub changes: ChangeLog,
    /// Documents that open transactions have written.
    pub write_locks: WriteLocks,
    /// Memory of the writes of all open transactions.
    pub transaction_memory: Arc<BytePool>,
    /// Records written but not applied.
    pub in_flight: InFlight,
    /// Free space on the disk of the data directory.
    pub disk_space: DiskSpace,
    /// In-process readers of streams.
    pub subscribers: Subscribers,
    /// SQL, once it is set.
    pub analytics: OnceLock<Arc<dyn Analytics>>,
    /// Runs of aggregate rules, by name.
    pub aggregates: Mutex<BTreeMap<String, AggregateCounts>>,
    /// Counters.
    pub counts: EngineCounters,
    /// Rejected rows of sources.
    pub source_rejections: SourceRejections,
    /// Present problems.
    pub health: HealthBoard,
    /// Rules that were logged as failing.
    pub failing_rules: Mutex<BTreeSet<String>>,
    /// Records that rules and queries do not see.
    pub set_aside: SetAsideRecords,
    /// Wakes background jobs when there is work, or when the engine stops.
    pub notifier: Notifier,
    /// Held while checkpoints are taken and the log is truncated, because two at once would write the same files.
    pub checkpointing: Mutex<()>,
    /// What a backup holds up.
    pub backups: BackupLocks,
    sources_stopping: AtomicBool,
    stopping: AtomicBool,
    checkpoints_disabled: AtomicBool,
}

/// What a backup holds up.
#[derive(Default)]
pub struct BackupLocks {
    /// Held by a backup, because one is taken at a time.
    pub one: Mutex<()>,
    /// Held while files that nobody uses any more are deleted. A backup holds it while it copies: a later run of the job
    /// deletes what it has copied.
    pub removals: Mutex<()>,
    /// Read while events are appended to the log of another partition, written while a backup decides where the logs end.
    pub forwarding: RwLock<()>,
}

impl Services {
    /// Creates the services of an engine on `dir`.
    pub fn new(
        dir: PathBuf,
        disk: Arc<dyn Disk>,
        deployment: Arc<Deployment>,
        clock: Arc<dyn Clock>,
        log: Arc<dyn Log>,
        tables: TableSet,
    ) -> Self {
        Self {
            transaction_memory: BytePool::new(
                "open transactions (setting transactions_bytes)",
                deployment.settings.transactions_bytes(),
            ),
            disk_space: DiskSpace::new(&dir, deployment.settings.reserve_bytes),
            changes: ChangeLog::new(disk.clone(), &dir, log.partitions(), &deployment.settings),
            disk: encrypted_disk(disk.clone(), &dir, &deployment.settings),
            set_aside: SetAsideRecords::in_memory(disk.clone()),
            stored_disk: disk,
            dir,
            deployment,
            clock,
            log,
            tables,
            sinks: SinkSet::default(),
            commits: CommitBoard::default(),
            write_locks: WriteLocks::default(),
            in_flight: InFlight::default(),
            subscribers: Subscribers::default(),
            analytics: OnceLock::new(),
            aggregates: Mutex::default(),
            counts: EngineCounters::default(),
            source_rejections: SourceRejections::default(),
            health: HealthBoard::default(),
            failing_rules: Mutex::default(),
            notifier: Notifier::default(),
            checkpointing: Mutex::default(),
            backups: BackupLocks::default(),
            sources_stopping: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
            checkpoints_disabled: AtomicBool::new(false),
        }
    }

    /// Adds sinks.
    pub fn with_sinks(self, sinks: SinkSet) -> Self {
        Self { sinks, ..self }
    }

    /// Adds the notes on records that are set aside.
    ///
    /// Errors: those of [`SetAsideRecords::open`].
    pub fn with_set_aside(mut self) -> Result<Self> {
        self.set_aside = SetAsideRecords::open(self.disk.clone(), &self.dir)?;
        Ok(self)
    }

    /// Rejects writes while the disk of the data directory is nearly full.
    ///
    /// Errors: `Unavailable`, which says how much is free and what would help.
    pub fn check_disk_space(&self) -> Result<()> {
        self.disk_space.check(|| self.in_flight.bytes() as u64)
    }

    /// Measures the free space that the next checks go by.
    pub fn measure_disk_space(&self) {
        self.disk_space.measure(self.in_flight.bytes() as u64);
    }

    /// Asks sources to end after their current chunk.
    pub fn set_sources_stopping(&self) {
        self.sources_stopping.store(true, Ordering::Release);
    }

    /// Returns whether sources are asked to end.
    pub fn sources_stopping(&self) -> bool {
        self.sources_stopping.load(Ordering::Acquire)
    }

    /// Returns whether the engine is stopping.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Asks loops and retries to end.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
        self.deployment.queries.stores.stop();
        self.notifier.notify();
    }

    /// Forbids checkpoints from now on: threads of the engine are given up, and may change state while one is taken.
    pub fn disable_checkpoints(&self) {
        self.checkpoints_disabled.store(true, Ordering::Release);
    }

    /// Returns whether checkpoints may be published.
    pub fn checkpoints_allowed(&self) -> bool {
        !self.checkpoints_disabled.load(Ordering::Acquire)
    }

    /// Returns whether as many rows are in no file yet as memory allows.
    pub fn tails_full(&self) -> bool {
        self.full_tails().is_some()
    }

    /// Returns which limit the rows that are in no file yet have reached, as a sentence.
    fn full_tails(&self) -> Option<String> {
        let settings = &self.deployment.settings;
        let (table, bytes, all) = self.tables.pending();
        let limit = settings.tail_bytes();
        if bytes >= limit {
            return Some(format!(
                "{bytes} bytes of table `{table}` are in no file yet (tail_bytes = {limit})"
            ));
        }
        let limit = settings.unflushed_bytes();
        (all >= limit)
            .then(|| format!("{all} bytes of all tables are in no file yet (unflushed_bytes = {limit})"))
    }

    /// Returns why records are not applied at the moment, with the error of the tables' store; `None` when nothing keeps
    /// them from it.
    pub fn applying_waits_for(&self) -> Option<String> {
        let full = self.full_tails()?;
        Some(match self.health.problem_of_any_subject("tables") {
            Some(problem) => format!("{full}; writing them fails: {problem}"),
            None => format!("{full}; they are being written"),
        })
    }

    /// Returns why records are not applied until the tables' store works again; `None` while it works.
    pub fn applying_is_blocked_by(&self) -> Option<String> {
        self.health.problem_of_any_subject("tables").and_then(|_| self.applying_waits_for())
    }

    /// Runs an operation on the tables. One that does not end is dropped some seconds after the engine is asked to stop:
    /// the store does not answer then, and the next start finishes or removes what the operation has begun.
    ///
    /// Errors: those of the operation; `Unavailable` when it was dropped.
    pub async fn until_stop<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        self.unless_stopped(operation).await?.ok_or_else(|| {
            Error::unavailable(format!(
                "the store of the tables did not answer within {} s of the stop",
                STORE_STOP_WAIT.as_secs()
            ))
        })
    }

    /// Runs work on the tables that the next start does as well, such as a merge. `None` when it was dropped as in
    /// [`Self::until_stop`], because large work may take longer than a stop waits.
    ///
    /// Errors: those of the operation.
    pub async fn unless_stopped<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<Option<T>> {
        let stopped = async {
            while !self.is_stopping() {
                tokio::time::sleep(STOP_POLL).await;
            }
            tokio::time::sleep(STORE_STOP_WAIT).await;
        };
        tokio::select! {
            biased;
            done = operation => done.map(Some),
            () = stopped => Ok(None),
        }
    }

    /// Waits while tails are full, so that memory stays bounded while the object store is unavailable.
    pub fn wait_for_tails(&self) {
        while !self.is_stopping()
            && let Some(full) = self.full_tails()
        {
            // the bytes change all the time, and a line is logged when the text changes
            let limit = full.split_once('(').map_or(full.as_str(), |(_, limit)| limit.trim_end_matches(')'));
            self.health.report_wait("tables", format!("applying waits until rows are flushed: {limit}"));
            self.notifier.notify();
            self.clock.sleep(TAIL_POLL);
        }
    }

    /// Waits while a sink has as many rows to write as memory allows. Why it does not write them is on the health board.
    pub fn wait_for_sinks(&self) {
        while !self.is_stopping() && self.sinks.is_full() {
            self.notifier.notify();
            self.clock.sleep(TAIL_POLL);
        }
    }
}
