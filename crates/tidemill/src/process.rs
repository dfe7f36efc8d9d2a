//! Several databases in one process.

use std::path::Path;
use std::sync::Arc;

use tidemill_engine::{App, Clock, EngineBuilder, ProcessApp, ProcessLimits, SystemClock};
use tidemill_sql::{SqlOptions, StatementLimits};
use tidemill_types::Result;

use crate::{Tidemill, builder};

/// A process in which several apps run, each on a data directory of its own.
///
/// ```no_run
/// # fn main() -> tidemill::Result<()> {
/// use tidemill::{App, Process, ProcessLimits};
///
/// // 4 GiB for both apps; each says by its setting `memory` what part of it is its own
/// let process = Process::new(ProcessLimits::of_memory(4 << 30))?;
/// let rules = "event Sale { item: string, price: double } key item;";
/// let [shop, market] = ["shop", "market"].map(|name| {
///     let mut app = App::from_rules(name, rules);
///     app.settings.memory = Some(1 << 30);
///     process.open_with(format!("data/{name}"), app)
/// });
/// let (shop, market) = (shop?, market?);
/// // both have a stream `Sale`, and neither sees the events of the other
/// shop.send("Sale", &serde_json::json!({"item": "tea", "price": 3.5}))?;
/// assert_eq!(market.sql("SELECT item FROM events.\"Sale\"")?.num_rows(), 0);
/// for app in process.apps() {
///     println!("{} in {}: {:?}", app.name, app.dir.display(), app.health.problems);
/// }
/// shop.close()?; // the other one continues
/// market.close()
/// # }
/// ```
///
/// The apps have nothing in common but the process: an app can be closed, deployed anew and opened while others work, a store that is down
/// or a partition that fails is a problem of its app alone, and each directory also opens alone, as before. Limits of the process are those
/// of [`ProcessLimits`]: memory for the writes of open transactions, and memory and places of SQL statements, are shared by all apps.
/// Everything else that an app holds in memory is in its share.
pub struct Process {
    engines: Arc<tidemill_engine::Process>,
    statements: Arc<StatementLimits>,
}

impl Process {
    /// Creates a process without apps.
    ///
    /// Errors: `Invalid` for limits that cannot work; `Unavailable` when a thread cannot be started.
    pub fn new(limits: ProcessLimits) -> Result<Self> {
        Self::with_clock(limits, Arc::new(SystemClock))
    }

    /// Creates a process as [`Self::new`] does, with another clock than the machine's, for tests.
    ///
    /// Errors: those of [`Self::new`].
    pub fn with_clock(limits: ProcessLimits, clock: Arc<dyn Clock>) -> Result<Self> {
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let queries_max = limits.sql_queries_max.map_or(SqlOptions::default().queries_max, size);
        let statements = StatementLimits::new(size(limits.sql_memory_bytes()), queries_max);
        Ok(Self { engines: tidemill_engine::Process::with_clock(limits, clock)?, statements })
    }

    /// Opens a data directory with the app that is deployed in it.
    ///
    /// Errors: those of [`Tidemill::open`] and [`EngineBuilder::open`].
    pub fn open(&self, dir: impl AsRef<Path>) -> Result<Tidemill> {
        self.start(builder(dir))
    }

    /// Opens a data directory, creating it if necessary, and deploys `app` in it. The app needs the setting `memory`, its share of the memory
    /// of the process, and a name that no other open app has.
    ///
    /// Errors: those of [`Tidemill::open_with`] and [`EngineBuilder::open`].
    pub fn open_with(&self, dir: impl AsRef<Path>, app: App) -> Result<Tidemill> {
        self.start(builder(dir).app(app))
    }

    /// Opens an engine as `builder` says, with SQL over it.
    ///
    /// Errors: those of [`EngineBuilder::open`].
    pub fn start(&self, builder: EngineBuilder) -> Result<Tidemill> {
        Tidemill::over(builder.process(&self.engines).open()?, Some(&self.statements))
    }

    /// Returns the apps that are open, by name, each with its share of the memory and its problems.
    pub fn apps(&self) -> Vec<ProcessApp> {
        self.engines.apps()
    }
}
