//! Builder of engines.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use parking_lot::Mutex;
use tidemill_flow::Connectors;
use tidemill_log::disk::Disk;
use tidemill_types::{Error, Result};
use url::Url;

use super::Engine;
use crate::app::App;
use crate::deploy;
use crate::directory::datadir::DataDir;
use crate::directory::environment::{Environment, LocalLogProvider, LogProvider, TableStore};
use crate::lifecycle::threads::EngineThreads;
use crate::process::clock::Clock;
use crate::state::set_aside::RecordNoted;

/// Records that one start sets aside at most. More of them are the fault of the app rather than of the records.
const RECORDS_SET_ASIDE_MAX: u32 = 17;

/// Opens an [`Engine`]. Made by [`Engine::builder`].
#[must_use]
pub struct EngineBuilder {
    dir: PathBuf,
    app: Option<App>,
    environment: Environment,
}

impl EngineBuilder {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), app: None, environment: Environment::default() }
    }

    /// Deploys `app`. Without it the engine continues with the deployed app.
    pub fn app(mut self, app: App) -> Self {
        self.app = Some(app);
        self
    }

    /// Replaces the clock of the machine.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.environment.clock = clock;
        self
    }

    /// Replaces the log in the data directory.
    pub fn log(mut self, log: Arc<dyn LogProvider>) -> Self {
        self.environment.log = log;
        self
    }

    /// Replaces the disk of the data directory: of the log, the checkpoints and the files of the deployment. Local tables are
    /// on the disk of the machine all the same; see [`Self::table_store`].
    pub fn disk(mut self, disk: Arc<dyn Disk>) -> Self {
        self.environment.disk = disk.clone();
        self.log(Arc::new(LocalLogProvider { disk }))
    }

    /// Stores the tables at `url` in `store` instead of the location that the setting `tables` names.
    pub fn table_store(mut self, store: Arc<dyn ObjectStore>, url: Url) -> Self {
        self.environment.table_store = Some(TableStore { store, url });
        self
    }

    /// Connects the app with other systems: its sources and sinks must be in this catalog, or they are left out. Without
    /// it, an app with such sources and sinks is refused.
    pub fn connectors(mut self, connectors: Connectors) -> Self {
        self.environment.connectors = connectors;
        self
    }

    /// Opens the data directory, recovers it, deploys the app and starts applying. Sources start with
    /// [`Engine::start_sources`].
    ///
    /// An app that cannot be deployed changes nothing: the directory opens with the one before.
    ///
    /// Errors: `Conflict` when another process holds the directory or stored data does not fit the app,
    /// `Invalid` when the app does not compile, `Corrupt` with file and position when stored data is damaged,
    /// `NotFound` without an app.
    pub fn open(self) -> Result<Engine> {
        let Self { dir, app, environment } = self;
        if app.is_none() && !DataDir::has_app(&*environment.disk, &dir) {
            let dir = dir.display();
            return Err(Error::not_found(format!(
                "{dir}: no app is deployed in it; start with `tidemill run APP --data {dir}`"
            )));
        }
        let partitions = app.as_ref().map_or_else(Default::default, |a| a.settings.clone()).partitions;
        let data = DataDir::open(&dir, environment.disk.clone(), partitions)?;
        let mut attempts = 1..RECORDS_SET_ASIDE_MAX;
        let (node, recovery) = loop {
            match deploy::open(&data, app.clone(), &environment) {
                // the next attempt sets the record aside
                Err(e)
                    if e.source().is_some_and(|source| source.is::<RecordNoted>())
                        && attempts.next().is_some() =>
                {
                    tracing::error!("{e}");
                }
                opened => break opened?,
            }
        };
        let threads = EngineThreads::start(&node)?;
        Ok(Engine { node, threads, data: Mutex::new(Some(data)), recovery })
    }
}
