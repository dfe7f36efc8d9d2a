//! A data directory and its devices.

use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crossbeam_channel::Sender;
use parking_lot::{Mutex, RwLock};
use tidemill_log::disk::Disk;
use tidemill_log::{Durability, Log, Ticket};
use tidemill_types::{Error, PartitionId, Result};
use tidemill_zones::Zones;

use crate::app::settings::Settings;
use crate::appender::LogAppender;
use crate::apply::ApplyReply;
use crate::changes::ChangeLog;
use crate::commit::{CommitBoard, Decision, Outcomes, PartReplies, SharedCommit, WriteLocks};
use crate::digest::EffectDigests;
use crate::directory::encryption::encrypted_disk;
use crate::directory::environment::SharedPartitions;
use crate::directory::log_id::LogId;
use crate::directory::origin::ClusterOrigin;
use crate::directory::partition_store::{LocalPartitionStore, PartitionStore};
use crate::entry::Entry;
use crate::process::clock::Clock;
use crate::process::disk_space::DiskSpace;
use crate::process::health::HealthBoard;
use crate::process::notifier::Notifier;
use crate::process::services::Process;
use crate::process::store_runtime::StoreRuntime;
use crate::state::backlog::InFlight;
use crate::state::set_aside::SetAsideRecords;

/// Time that an operation on the tables has to end when the engine stops.
const STORE_STOP_WAIT: Duration = Duration::from_secs(5);
/// Interval at which an operation on the tables checks for a stop.
const STOP_POLL: Duration = Duration::from_millis(100);

/// Devices and services of a data directory: they live as long as it is open, and know neither its app nor its partitions.
pub struct Host {
    /// Data directory; empty for an engine in memory.
    pub dir: PathBuf,
    /// Disk of the data directory.
    ///
    /// It decrypts and encrypts files, if there are keys.
    pub disk: Arc<dyn Disk>,
    /// The same without keys, for copies of the files as they are.
    pub stored_disk: Arc<dyn Disk>,
    /// Services of the process, which other data directories may share.
    pub process: Arc<Process>,
    /// Clock of the process.
    pub clock: Arc<dyn Clock>,
    /// Log of all partitions.
    pub log: Arc<dyn Log>,
    /// Identity of the log.
    pub log_id: LogId,
    /// Data directory that the log continues, in a cluster that was made from one.
    pub origin: Option<Arc<ClusterOrigin>>,
    /// Tables of the data directory in their object store.
    pub zones: Zones,
    /// Runs requests to the object store, in the process.
    pub runtime: Arc<StoreRuntime>,
    /// Choice whether partitions compute digests of their effects.
    pub effect_digests: EffectDigests,
    /// Keeps the state of partitions for the process that owns them next.
    pub partition_store: Arc<dyn PartitionStore>,
    /// Commits of transactions of several partitions; processes that share partitions share them.
    pub commits: Arc<CommitBoard>,
    /// Callers that wait for parts of transactions, which the partitions of a cluster order.
    pub part_replies: PartReplies<Result<ApplyReply>>,
    /// Outcomes of records that other nodes have appended.
    pub outcomes: Outcomes<ApplyReply>,
    /// Replicas in this process, as participants of transactions.
    pub participants: OnceLock<Weak<dyn Participants>>,
    /// Asks other processes for their votes on transactions.
    pub votes_elsewhere: OnceLock<Arc<dyn VotesElsewhere>>,
    /// Changes of documents for those who follow them.
    pub changes: ChangeLog,
    /// Documents that open transactions have written.
    pub write_locks: WriteLocks,
    /// Records written but not applied.
    pub in_flight: InFlight,
    /// Free space on the disk of the data directory.
    pub disk_space: Arc<DiskSpace>,
    /// Present problems.
    pub health: HealthBoard,
    /// Records that rules and queries do not see.
    pub set_aside: SetAsideRecords,
    /// Wakes background jobs when there is work, or when the engine stops.
    pub notifier: Notifier,
    /// Held while checkpoints are taken and the log is truncated, because two at once would write the same files.
    pub checkpointing: Mutex<()>,
    /// Locks that pause other work during a backup.
    pub backups: BackupLocks,
    /// By partition of the log.
    appenders: Vec<LogAppender>,
    stopping: AtomicBool,
    checkpoints_disabled: AtomicBool,
}

/// Replicas in this process, as participants of transactions.
pub trait Participants: Send + Sync {
    /// Returns the decision on a transaction, if one of the replicas has applied it.
    fn decision(&self, commit: &SharedCommit) -> Option<Decision>;

    /// Returns whether each replica that a decision names has applied its record.
    fn have_applied(&self, decision: &Decision) -> bool;
}

/// Votes of partitions that other processes apply.
pub trait VotesElsewhere: Send + Sync {
    /// Asks for the votes on a transaction that are missing on the board, unless they are being asked for. They come to the board.
    fn ask(&self, commit: &SharedCommit);
}

/// Locks that pause other work during a backup.
#[derive(Default)]
pub struct BackupLocks {
    /// Held by a backup, because one is taken at a time.
    pub one: Mutex<()>,
    /// Held while files that are no longer used are deleted. A backup holds it while it copies: a later run
    /// of the job deletes what it has copied.
    pub removals: Mutex<()>,
    /// Read while events are appended to the log of another partition, written while a backup decides where the logs end.
    pub forwarding: RwLock<()>,
}

impl Host {
    /// Creates a host on `dir`.
    pub fn new(
        dir: PathBuf,
        disk: Arc<dyn Disk>,
        settings: &Settings,
        process: Arc<Process>,
        log: Arc<dyn Log>,
        zones: Zones,
    ) -> Self {
        let in_flight = InFlight::default();
        let disk_space = Arc::new(DiskSpace::new(&dir, settings.reserve_bytes, &process.disks));
        let appender = |partition| {
            let backlog_bytes = settings.inbox_bytes() as usize;
            LogAppender::new(partition, log.clone(), in_flight.clone(), disk_space.clone(), backlog_bytes)
        };
        let appenders = (0..log.partitions()).map(PartitionId).map(appender).collect();
        Self {
            disk_space,
            changes: ChangeLog::new(disk.clone(), &dir, log.partitions(), settings),
            disk: encrypted_disk(disk.clone(), &dir, settings),
            set_aside: SetAsideRecords::in_memory(disk.clone()),
            stored_disk: disk,
            appenders,
            partition_store: Arc::new(LocalPartitionStore),
            effect_digests: EffectDigests::default(),
            dir,
            clock: process.clock.clone(),
            runtime: process.runtime.clone(),
            process,
            log,
            log_id: LogId::default(),
            origin: None,
            zones,
            commits: Arc::default(),
            part_replies: PartReplies::default(),
            outcomes: Outcomes::default(),
            participants: OnceLock::new(),
            votes_elsewhere: OnceLock::new(),
            write_locks: WriteLocks::default(),
            in_flight,
            health: HealthBoard::default(),
            notifier: Notifier::default(),
            checkpointing: Mutex::default(),
            backups: BackupLocks::default(),
            stopping: AtomicBool::new(false),
            checkpoints_disabled: AtomicBool::new(false),
        }
    }

    /// Shares partitions with other processes: the commits of their transactions.
    pub fn with_shared(self, shared: &SharedPartitions) -> Self {
        Self { commits: shared.commits.clone(), origin: shared.origin.clone(), ..self }
    }

    /// Adds the store of the state of partitions.
    pub fn with_partition_store(self, partition_store: Arc<dyn PartitionStore>) -> Self {
        Self { partition_store, ..self }
    }

    /// Sets whether partitions compute digests of their effects.
    pub fn with_effect_digests(self, effect_digests: EffectDigests) -> Self {
        Self { effect_digests, ..self }
    }

    /// Adds the identity of the log.
    pub fn with_log_id(self, log_id: LogId) -> Self {
        Self { log_id, ..self }
    }

    /// Names the app in the log lines about problems, where a process has several.
    pub fn with_app_name(self, name: &str) -> Self {
        Self { health: HealthBoard::of_app(name), ..self }
    }

    /// Adds the notes on records that are set aside.
    ///
    /// Errors: those of [`SetAsideRecords::open`].
    pub fn with_set_aside(mut self) -> Result<Self> {
        self.set_aside = SetAsideRecords::open(self.disk.clone(), &self.dir)?;
        Ok(self)
    }

    /// Appends an entry to the log of a partition, from which its owner gets it. The reply comes only if the owner is in this
    /// process.
    ///
    /// Errors: those of [`Log::append`]; the entry is then not in the log. `NotFound` for a partition that the log does not have.
    pub fn append(
        &self,
        partition: PartitionId,
        entry: Entry,
        durability: Durability,
        reply: Option<Sender<Result<ApplyReply>>>,
    ) -> Result<Ticket> {
        self.appender(partition)?.append(entry, durability, reply)
    }

    /// Waits until a partition has room for more records that wait to be applied. `reason` says why records are not applied, if
    /// something keeps them from it.
    ///
    /// Errors: `LimitReached` with the reason after `timeout`, `Unavailable` when the engine is stopping; `NotFound` for a partition
    /// that the log does not have.
    pub fn wait_for_room(
        &self,
        partition: PartitionId,
        timeout: Duration,
        reason: impl Fn() -> Option<String>,
    ) -> Result<()> {
        self.appender(partition)?.backlog.wait_for_room(&*self.clock, timeout, reason)
    }

    /// Returns the number of records, and their bytes, that this process appended to a partition and that are not applied.
    pub fn backlog_depth(&self, partition: PartitionId) -> (usize, usize) {
        self.appender(partition).map_or((0, 0), |appender| appender.backlog.depth())
    }

    /// Rejects senders from now on.
    pub fn stop_accepting(&self) {
        self.appenders.iter().for_each(|appender| appender.backlog.stop_accepting());
    }

    /// Returns the number of partitions of the log, regardless of their owners.
    pub fn partitions(&self) -> usize {
        self.appenders.len()
    }

    /// Returns the ids of these partitions, in order.
    pub fn partition_ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.log.partitions()).map(PartitionId)
    }

    fn appender(&self, partition: PartitionId) -> Result<&LogAppender> {
        self.appenders.get(partition.0 as usize).ok_or_else(|| {
            Error::not_found(format!("partition {partition}: the log has {}", self.appenders.len()))
        })
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

    /// Returns whether the engine is stopping.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Asks loops and retries to end.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
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
}
