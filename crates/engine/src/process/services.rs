//! Services that the apps of a process share.
//!
//! ```text
//! Process                        clock, runtime of the object stores, memory of transactions, room on disks
//!  ├─ Host of data/shop    2 GiB     log, tables, backlog, health: its share is its setting `memory`
//!  └─ Host of data/fleet   1 GiB     …
//! ```
//!
//! An app holds documents, tails, backlogs and caches for as long as it likes. They are in its own share, so that an app whose store is
//! down cannot take the memory of another one. Writes of open transactions and the memory of SQL statements are given back soon, so all
//! apps take them from one pool. `docs/rfcs/0039-two-apps-in-one-process.md` has the reasons.

use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_types::budget::BytePool;
use tidemill_types::{Error, Result};

use crate::app::settings::Settings;
use crate::process::clock::{Clock, SystemClock};
use crate::process::disk_space::Disks;
use crate::process::limits::ProcessLimits;
use crate::process::open_apps::{AppClaim, AppPlace, OpenApps, ProcessApp};
use crate::process::spawn::lower_priority;
use crate::process::store_runtime::StoreRuntime;

/// Services of a process, and its limits. An engine that is opened without one has a process of its own.
///
/// ```no_run
/// # fn main() -> tidemill_types::Result<()> {
/// use tidemill_engine::{App, Engine, Process, ProcessLimits};
///
/// let process = Process::new(ProcessLimits::of_memory(4 << 30))?;
/// let open = |name: &str| {
///     let mut app = App::from_rules(name, "event Order { id: string } key id;");
///     app.settings.memory = Some(1 << 30);
///     Engine::builder(format!("data/{name}")).app(app).process(&process).open()
/// };
/// let (shop, fleet) = (open("shop")?, open("fleet")?);
/// # drop((shop, fleet));
/// # Ok(())
/// # }
/// ```
pub struct Process {
    /// Clock of all apps.
    pub(crate) clock: Arc<dyn Clock>,
    /// Runs requests to the object stores.
    pub(crate) runtime: Arc<StoreRuntime>,
    /// Memory of the writes of all open transactions.
    pub(crate) transaction_memory: Arc<BytePool>,
    /// Room on the disks of the data directories.
    pub(crate) disks: Disks,
    /// Held while the state of a partition is serialised for a checkpoint, which needs a processor, and memory beside the state. No store
    /// and no disk is waited for meanwhile.
    pub(crate) serialising: Mutex<()>,
    /// Apps, and the limits that they share; `None` for the process of one engine, whose settings are the limits.
    apps: Option<(ProcessLimits, Arc<OpenApps>)>,
}

impl Process {
    /// Creates a process for several apps, on the clock of the machine.
    ///
    /// Errors: `Invalid` for limits that cannot work; `Unavailable` when a thread cannot be started.
    pub fn new(limits: ProcessLimits) -> Result<Arc<Self>> {
        Self::with_clock(limits, Arc::new(SystemClock))
    }

    /// Creates a process for several apps, with another clock than the machine's, for tests.
    ///
    /// Errors: those of [`Self::new`].
    pub fn with_clock(limits: ProcessLimits, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        Self::shared(limits, clock, store_runtime(false)?)
    }

    /// Creates a process for several apps of a simulation, which has one thread.
    #[cfg(feature = "sim")]
    pub(crate) fn simulated(limits: ProcessLimits, clock: Arc<dyn Clock>) -> Result<Arc<Self>> {
        Self::shared(limits, clock, store_runtime(true)?)
    }

    fn shared(limits: ProcessLimits, clock: Arc<dyn Clock>, runtime: StoreRuntime) -> Result<Arc<Self>> {
        limits.check()?;
        let memory = BytePool::new(
            "open transactions of all apps (limit transactions_bytes of the process)",
            limits.transactions_bytes(),
        );
        let process = Self::with_memory(clock, runtime, memory);
        Ok(Arc::new(Self { apps: Some((limits, Arc::default())), ..process }))
    }

    /// Creates the process of one engine.
    ///
    /// Errors: `Unavailable` when a thread cannot be started.
    pub(crate) fn of_one_engine(
        settings: &Settings,
        clock: Arc<dyn Clock>,
        single_threaded: bool,
    ) -> Result<Arc<Self>> {
        Ok(Self::on_runtime(settings, clock, store_runtime(single_threaded)?))
    }

    /// Creates the process of one engine on a runtime.
    pub(crate) fn on_runtime(settings: &Settings, clock: Arc<dyn Clock>, runtime: StoreRuntime) -> Arc<Self> {
        let pool = "open transactions (setting transactions_bytes)";
        Arc::new(Self::with_memory(clock, runtime, BytePool::new(pool, settings.transactions_bytes())))
    }

    fn with_memory(clock: Arc<dyn Clock>, runtime: StoreRuntime, transaction_memory: Arc<BytePool>) -> Self {
        Self {
            clock,
            runtime: Arc::new(runtime),
            transaction_memory,
            disks: Disks::default(),
            serialising: Mutex::default(),
            apps: None,
        }
    }

    /// Returns the limits that all apps share; `None` for the process of one engine.
    pub fn limits(&self) -> Option<&ProcessLimits> {
        self.apps.as_ref().map(|(limits, _)| limits)
    }

    /// Returns the apps that are open, by name, each with its problems.
    pub fn apps(&self) -> Vec<ProcessApp> {
        self.apps.as_ref().map_or_else(Vec::new, |(_, apps)| apps.list())
    }

    /// Gives an app its place; the process of one engine has none to give.
    ///
    /// Errors: those of [`OpenApps::admit`].
    pub(crate) fn admit(&self, claim: &AppClaim<'_>) -> Result<Option<AppPlace>> {
        self.apps.as_ref().map(|(limits, apps)| apps.admit(limits, claim)).transpose()
    }
}

fn store_runtime(single_threaded: bool) -> Result<StoreRuntime> {
    let mut builder = match single_threaded {
        true => tokio::runtime::Builder::new_current_thread(),
        false => tokio::runtime::Builder::new_multi_thread(),
    };
    builder
        .worker_threads(1)
        .thread_name("object-store")
        .on_thread_start(lower_priority)
        .enable_all()
        .build()
        .map(StoreRuntime::new)
        .map_err(|e| Error::unavailable("cannot start the object store's threads").with_source(e))
}
