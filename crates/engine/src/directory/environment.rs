//! What an engine takes from outside instead of reaching for it, so that tests and other deployments replace it.

use std::path::Path;
use std::sync::Arc;

use object_store::ObjectStore;
use tidemill_flow::Connectors;
use tidemill_log::disk::{Disk, OsDisk};
use tidemill_log::{LocalLog, Log, LogClock, LogOptions};
use tidemill_types::{Error, Result};
use url::Url;

use crate::app::settings::Settings;
use crate::commit::CommitBoard;
use crate::digest::EffectDigests;
use crate::directory::origin::ClusterOrigin;
use crate::directory::partition_store::{LocalPartitionStore, PartitionStore};
use crate::process::clock::{Clock, SystemClock};
use crate::process::services::Process;

/// A log that was opened.
pub struct OpenedLog {
    /// The log.
    pub log: Arc<dyn Log>,
    /// Descriptions of what opening it repaired.
    pub warnings: Vec<String>,
}

/// Opens the log of a data directory. A deploy opens and closes it more than once.
pub trait LogProvider: Send + Sync {
    /// Opens the log with `partitions` partitions. A log in this process takes the times of records from `clock`.
    ///
    /// Errors: `Corrupt` for damaged records, `Unavailable` when the log cannot be reached.
    fn open(
        &self,
        data_dir: &Path,
        settings: &Settings,
        partitions: u32,
        clock: &Arc<dyn Clock>,
    ) -> Result<OpenedLog>;

    /// Returns what distinguishes the log from all others, if it is not part of the data directory: several nodes may use
    /// it, each with a directory of its own.
    fn id(&self, _settings: &Settings) -> Option<String> {
        None
    }
}

/// Opens the log in the directory `log` of the data directory.
pub struct LocalLogProvider {
    /// Disk of the segments.
    pub disk: Arc<dyn Disk>,
}

impl LogProvider for LocalLogProvider {
    fn open(
        &self,
        data_dir: &Path,
        settings: &Settings,
        partitions: u32,
        clock: &Arc<dyn Clock>,
    ) -> Result<OpenedLog> {
        if settings.log.is_some() {
            return Err(Error::invalid(
                "the setting log names another log than the files in the data directory: open that one with \
                 `EngineBuilder::log`",
            ));
        }
        let clock = Arc::clone(clock);
        let options = LogOptions {
            segment_bytes: settings.segment_bytes,
            repair: settings.log_repair,
            clock: LogClock::new(move || clock.now()),
            encryption: settings.encryption.of_log("tidemill log"),
            ..LogOptions::new(partitions)
        };
        open_local_log(self.disk.clone(), data_dir, options)
    }
}

/// Opens the log in the directory `log` of a data directory, with other options than [`LocalLogProvider`] has.
///
/// Errors: those of [`LocalLog::open_on`].
pub fn open_local_log(disk: Arc<dyn Disk>, data_dir: &Path, options: LogOptions) -> Result<OpenedLog> {
    let (log, reports) = LocalLog::open_on(disk, data_dir.join("log"), options)?;
    let warnings = reports.iter().filter(|r| r.cut.is_some()).map(ToString::to_string).collect();
    Ok(OpenedLog { log: Arc::new(log), warnings })
}

/// An object store, and the URL in it below which the tables are.
#[derive(Clone)]
pub struct TableStore {
    /// The whole store.
    pub store: Arc<dyn ObjectStore>,
    /// Location of the tables.
    pub url: Url,
}

/// Services of processes that own partitions of one log in turn.
#[derive(Clone)]
pub struct SharedPartitions {
    /// Commits of transactions of several partitions.
    pub commits: Arc<CommitBoard>,
    /// Data directory that the log continues, if it does.
    pub origin: Option<Arc<ClusterOrigin>>,
}

/// Environment of an engine; by default that of the machine.
#[derive(Clone)]
pub struct Environment {
    /// Process that the engine shares with others; by default it has one of its own.
    pub process: Option<Arc<Process>>,
    /// Clock; that of the process, if that is shared.
    pub clock: Arc<dyn Clock>,
    /// Disk of the data directory.
    pub disk: Arc<dyn Disk>,
    /// Log.
    pub log: Arc<dyn LogProvider>,
    /// Store of the tables; by default the one that the setting `tables` names.
    pub table_store: Option<TableStore>,
    /// Treatment of the app's connections to other systems.
    pub connectors: Connectors,
    /// Partitions that the engine is given while it runs; by default it owns all of them as long as it runs.
    pub shared: Option<SharedPartitions>,
    /// Keeps the state of partitions for the process that owns them next; by default that is one on the same data directory.
    pub partition_store: Arc<dyn PartitionStore>,
    /// Choice whether partitions compute digests of their effects; by default they do not.
    pub effect_digests: EffectDigests,
    /// True if the thread that waits for the object store does the work itself, so that a simulation repeats
    /// it exactly.
    pub single_threaded: bool,
}

impl Environment {
    /// Returns the process to open a data directory in.
    ///
    /// Errors: `Unavailable` when a thread cannot be started.
    pub fn process_for(&self, settings: &Settings) -> Result<Arc<Process>> {
        match &self.process {
            Some(shared) => Ok(shared.clone()),
            None => Process::of_one_engine(settings, self.clock.clone(), self.single_threaded),
        }
    }
}

impl Default for Environment {
    fn default() -> Self {
        let disk: Arc<dyn Disk> = Arc::new(OsDisk);
        let log = LocalLogProvider { disk: disk.clone() };
        Self {
            process: None,
            clock: Arc::new(SystemClock),
            disk,
            log: Arc::new(log),
            table_store: None,
            connectors: Connectors::default(),
            shared: None,
            partition_store: Arc::new(LocalPartitionStore),
            effect_digests: EffectDigests::default(),
            single_threaded: false,
        }
    }
}
