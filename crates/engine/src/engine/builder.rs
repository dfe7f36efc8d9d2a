//! Builder of engines.

use std::error::Error as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use object_store::ObjectStore;
use parking_lot::Mutex;
use tidemill_flow::Connectors;
use tidemill_log::Log;
use tidemill_log::disk::Disk;
use tidemill_rpc::NodeIdentity;
use tidemill_types::{Error, PartitionId, Result};
use tidemill_zones::{ObjectDirectory, store_options};
use url::Url;

use super::{Engine, OpenedDirectory};
use crate::admin::growth::{self, ClusterLogs, GrowthReport};
use crate::app::App;
use crate::app::settings::Settings;
use crate::cluster::{self, ClusterNode, ClusterOptions, Replicas};
use crate::deploy;
use crate::digest::EffectDigests;
use crate::directory::datadir::{DataDir, deployed_app, deployed_app_on, read_meta};
use crate::directory::environment::{
    Environment, LocalLogProvider, LogProvider, SharedPartitions, TableStore,
};
use crate::directory::origin::{self, ClusterOrigin};
use crate::directory::partition_store::{PartitionStore, StateGroup};
use crate::directory::partitioning::{HomeRule, Partitioning};
use crate::directory::tables_location;
use crate::jobs::shared_state;
use crate::lifecycle::threads::EngineThreads;
use crate::node::Node;
use crate::peers::{self, PeerListener, PeerNodes};
use crate::process::clock::Clock;
use crate::process::open_apps::{AppClaim, AppPlace};
use crate::process::services::Process;
use crate::process::spawn::spawn;
use crate::shared_state::{ObjectPartitionStore, StateOwner, TakeOver, take_over};
use crate::state::set_aside::RecordNoted;

/// Records that one start sets aside at most. More of them are the fault of the app rather than of the records.
const RECORDS_SET_ASIDE_MAX: u32 = 17;

/// Opens an [`Engine`]. Made by [`Engine::builder`].
#[must_use]
pub struct EngineBuilder {
    dir: PathBuf,
    app: Option<App>,
    environment: Environment,
    clock: Option<Arc<dyn Clock>>,
    state: Option<StateLocation>,
    cluster: Option<ClusterOptions>,
}

/// Place of the state in an object store, from which another machine continues.
struct StateLocation {
    url: String,
    condition: TakeOver,
}

impl EngineBuilder {
    pub(super) fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
            app: None,
            environment: Environment::default(),
            clock: None,
            state: None,
            cluster: None,
        }
    }

    /// Deploys `app`. Without it the engine continues with the deployed app.
    pub fn app(mut self, app: App) -> Self {
        self.app = Some(app);
        self
    }

    /// Replaces the clock of the machine.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Opens the engine in a process with others, whose limits, clock and threads it shares. The app needs the setting `memory`, its share
    /// of the memory of the process, and a name that no other app in the process has. Streams and collections of the apps may have equal
    /// names: they are different ones.
    pub fn process(mut self, process: &Arc<Process>) -> Self {
        self.environment.process = Some(process.clone());
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

    /// Publishes the state of the data directory at `url` with each checkpoint, and continues with the state that another process has
    /// published there. The tables must be outside of the directory, too. Credentials come from the environment and the settings
    /// `tables_store`.
    pub fn state(mut self, url: &str, condition: TakeOver) -> Self {
        self.state = Some(StateLocation { url: url.to_owned(), condition });
        self
    }

    /// Makes the process a node of a cluster. The log and the tables must be outside of the data directory, and so must the state, see
    /// [`Self::state`], which all nodes share.
    pub fn cluster(mut self, options: ClusterOptions) -> Self {
        self.environment.shared = Some(SharedPartitions { commits: Arc::default(), origin: None });
        self.cluster = Some(options);
        self.effect_digests()
    }

    /// Computes a digest of the effects of each partition, by which nodes that apply the same log are compared. It costs a few
    /// percent of the time of applying; `system.partitions` shows it.
    pub fn effect_digests(mut self) -> Self {
        self.environment.effect_digests = EffectDigests::On;
        self
    }

    /// Makes the data directory, which no program has open, the beginning of a cluster.
    ///
    /// Errors: those of [`growth::grow`].
    pub fn grow(self, into: &dyn ClusterLogs, store: &str) -> Result<GrowthReport> {
        growth::grow(&self.dir, &self.environment, into, store)
    }

    /// Opens the data directory, recovers it, deploys the app and starts applying. Sources start with
    /// [`Engine::start_sources`].
    ///
    /// An app that cannot be deployed changes nothing: the directory opens with the one before.
    ///
    /// Errors: `Conflict` when another process holds the directory or stored data does not fit the app,
    /// `Invalid` when the app does not compile, `Corrupt` with file and position when stored data is damaged,
    /// `NotFound` without an app; in a process with others also `LimitReached` when its memory is taken, and `Invalid` and `Conflict` for
    /// an app that does not fit there.
    pub fn open(self) -> Result<Engine> {
        let Self { dir, app, mut environment, clock, state, cluster } = self;
        origin::check_not_grown(&*environment.disk, &dir)?;
        environment.clock = chosen_clock(clock, &environment, cluster.is_some())?;
        let state = match &cluster {
            Some(cluster) => {
                let (store, origin) =
                    cluster_state(state.as_ref(), &dir, app.as_ref(), cluster, &environment)?;
                environment.partition_store = store;
                if let Some(shared) = &mut environment.shared {
                    shared.origin = origin.map(Arc::new);
                }
                None
            }
            None => {
                state.map(|state| take_over_state(&state, &dir, app.as_ref(), &environment)).transpose()?
            }
        };
        if app.is_none() && !DataDir::has_app(&*environment.disk, &dir) {
            let dir = dir.display();
            return Err(Error::not_found(format!(
                "{dir}: no app is deployed in it; start with `tidemill run APP --data {dir}`"
            )));
        }
        let place = place_in_process(&dir, app.as_ref(), &environment)?;
        let partitions = app.as_ref().map_or_else(Default::default, |a| a.settings.clone()).partitions;
        let mut partitioning = Partitioning::new(partitions);
        if let Some(options) = &cluster {
            let origin = environment.shared.as_ref().and_then(|shared| shared.origin.as_deref());
            partitioning = cluster_partitioning(&*options.control, partitioning, origin, app.as_ref())?;
        }
        let data = DataDir::open(&dir, environment.disk.clone(), partitioning)?;
        if cluster.is_some() && data.partitioning().home_rule != partitioning.home_rule {
            return Err(Error::conflict(format!(
                "{}: belongs to another cluster, whose queries get their partitions by another rule: name a new directory, as that \
                 of a node is a cache",
                dir.display()
            )));
        }
        if let Some(state) = state {
            environment.partition_store = own_state(state, &data)?;
        }
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
        let joined = cluster.map(|options| join_cluster(&node, options, &data)).transpose()?;
        let (cluster, peers) = joined.map_or((None, None), |(cluster, peers)| (Some(cluster), peers));
        if cluster.is_none() {
            shared_state::publish_all(&node)?;
        }
        let threads = EngineThreads::start(&node)?;
        if let Some(part) = &cluster {
            threads.add(cluster::start(&node, part)?);
        }
        if let Some(peers) =
            peers.clone().filter(|_| cluster.as_ref().is_some_and(|part| !part.applies_all()))
        {
            let shared = node.clone();
            threads.add(vec![spawn("arrivals".into(), move || peers::run_arrivals(&shared, &peers))?]);
        }
        if let Some(place) = &place {
            let (weak, warnings) = (Arc::downgrade(&node), recovery.warnings.clone());
            place.set_health(move || Some(super::health_of(&*weak.upgrade()?, &warnings)));
        }
        let opened = Mutex::new(Some(OpenedDirectory { _data: data, _place: place }));
        let engine = Engine { node, threads, cluster, peers, opened, recovery };
        engine.wait_until_ready()?;
        Ok(engine)
    }
}

/// Returns the clock of an engine: that of the process that it shares, or the one that was given.
///
/// Errors: `Invalid` for what an engine in a process with others cannot have.
fn chosen_clock(
    given: Option<Arc<dyn Clock>>,
    environment: &Environment,
    in_cluster: bool,
) -> Result<Arc<dyn Clock>> {
    let Some(process) = &environment.process else {
        return Ok(given.unwrap_or_else(|| environment.clock.clone()));
    };
    if given.is_some() {
        return Err(Error::invalid(
            "an engine in a process with others has the clock of the process: give the clock to `Process::with_clock`",
        ));
    }
    if in_cluster {
        return Err(Error::invalid(
            "a node of a cluster has a process of its own: open it without `process`",
        ));
    }
    Ok(process.clock.clone())
}

/// Gives the app to open in `dir` its place in the process that it shares with others, if there is one.
///
/// Errors: those of [`Process::admit`]; those of reading the deployed app.
fn place_in_process(dir: &Path, app: Option<&App>, environment: &Environment) -> Result<Option<AppPlace>> {
    let Some(process) = &environment.process else { return Ok(None) };
    let disk = &*environment.disk;
    let deployed = match app {
        Some(_) => None,
        None => deployed_app_on(disk, dir)?,
    };
    let Some(app) = app.or(deployed.as_ref()) else { return Ok(None) };
    let tables = match read_meta(disk, dir) {
        Ok(meta) => meta.tables_elsewhere(&app.settings),
        // a new directory, or one that cannot be opened, for a reason that is found next
        Err(_) => app.settings.tables.clone(),
    };
    process.admit(&AppClaim { name: &app.name, dir, settings: &app.settings, tables })
}

/// Makes an engine that owns nothing a node of a cluster, whose threads are not started.
///
/// Errors: those of [`cluster::check_app`] and [`ClusterNode::new`].
fn join_cluster(
    node: &Arc<Node>,
    options: ClusterOptions,
    data: &DataDir,
) -> Result<(Arc<ClusterNode>, Option<Arc<PeerNodes>>)> {
    cluster::check_app(node)?;
    let app = node.app.deployment.app.content_hash();
    // nodes of a cluster have the same replicas
    let app = match &options.replicas {
        Replicas::All(_) => app,
        some => format!("{app}, replicas {}", some.name()),
    };
    let mut options = options;
    let (applies_all, peers) = match std::mem::replace(&mut options.replicas, Replicas::All(None)) {
        Replicas::All(peers) => (true, peers),
        Replicas::OwnerAndStandby(peers) => (false, Some(peers)),
    };
    let listener = peers.map(|peers| {
        let identity = NodeIdentity {
            cluster_id: options.cluster.clone(),
            node: options.name.as_str().to_owned(),
            incarnation: u64::try_from(node.host.clock.now().0).unwrap_or_default(),
        };
        PeerListener::bind(node, identity, peers)
    });
    let listener = listener.transpose()?;
    let calls = listener.as_ref().map(|listener| listener.address.clone());
    let part = Arc::new(ClusterNode::new(
        options,
        (calls, applies_all),
        app,
        (data.partitioning(), node.host.origin.as_deref()),
        &*node.host.clock,
    )?);
    let first_time = node.cluster.set(part.clone()).is_ok();
    debug_assert!(first_time, "a node joins once");
    let peers = listener.map(|listener| listener.join(node, &part, !applies_all)).transpose()?;
    Ok((part, peers))
}

/// Returns the store of the state that the nodes of a cluster share.
///
/// Errors: `Invalid` without one, and when log or tables are in the data directory of this node.
fn cluster_state(
    state: Option<&StateLocation>,
    dir: &Path,
    app: Option<&App>,
    cluster: &ClusterOptions,
    environment: &Environment,
) -> Result<(Arc<dyn PartitionStore>, Option<ClusterOrigin>)> {
    let app = app.ok_or_else(|| {
        Error::invalid("a node of a cluster is started with the app: `tidemill run APP --cluster …`")
    })?;
    let state = state.ok_or_else(|| {
        Error::invalid("a node of a cluster needs a place for the state that all nodes share: add --state s3://BUCKET/PATH")
    })?;
    if environment.log.id(&app.settings).is_none() {
        return Err(Error::invalid(
            "the log is in the data directory, where other nodes do not reach it: name a topic of Kafka by the setting log, as in \
             --set log=kafka://HOST:9092/TOPIC",
        ));
    }
    let options = store_options(&state.url, &app.settings.tables_store, std::env::vars())?;
    if environment.disk.open(&dir.join("log/log.meta")).is_ok() {
        return Err(Error::conflict(format!(
            "{dir}: is the data directory of a single node, with a log of its own. Make it the beginning of a cluster: `tidemill cluster create \
             --from {dir} --cluster URL --store URL`, and start nodes with new directories",
            dir = dir.display()
        )));
    }
    let runtime = tables_location::runtime()?;
    let objects = runtime.block_on(ObjectDirectory::open(&state.url, &options))?;
    let origin = runtime.block_on(ClusterOrigin::of_store(&objects))?;
    check_tables_outside(state, environment, Some(&app.settings))?;
    let partitions = origin.as_ref().map_or(app.settings.partitions, |origin| origin.partitions);
    let owner = StateOwner::of_cluster(&cluster.cluster, cluster.name.as_str(), partitions);
    let store = ObjectPartitionStore::new(objects, environment.disk.clone(), dir.to_owned(), owner)?;
    Ok((Arc::new(store.with_clock(environment.clock.clone())), origin))
}

/// Returns the partitioning of a cluster: that of its first member, or of the data directory that it was made from.
///
/// Errors: `Conflict` for the first member of such a cluster if it has another app than the directory; those of [`cluster::facts`].
fn cluster_partitioning(
    control: &dyn Log,
    of_new: Partitioning,
    origin: Option<&ClusterOrigin>,
    app: Option<&App>,
) -> Result<Partitioning> {
    let facts = cluster::facts(control)?;
    let of_origin = origin.map(ClusterOrigin::partitioning).transpose()?;
    let partitioning = of_origin.unwrap_or(of_new);
    if let Some(facts) = facts {
        return Ok(Partitioning { home_rule: HomeRule::from_number(facts.home_rule)?, ..partitioning });
    }
    let app = app.map(App::content_hash).unwrap_or_default();
    match origin {
        Some(origin) if origin.app != app => Err(Error::conflict(format!(
            "the data directory that became this cluster ran the app {}, this node {app}: start the first node with rules, queries, app.toml, \
             variables of queries, and the settings memory, documents_bytes and query_rows of the directory",
            origin.app
        ))),
        _ => Ok(partitioning),
    }
}

/// Makes the data directory what the process with the state has published, see [`take_over`].
fn take_over_state(
    state: &StateLocation,
    dir: &Path,
    app: Option<&App>,
    environment: &Environment,
) -> Result<ObjectPartitionStore> {
    let settings = app.map(|app| app.settings.clone()).unwrap_or_default();
    let options = store_options(&state.url, &settings.tables_store, std::env::vars())?;
    let objects = tables_location::runtime()?.block_on(ObjectDirectory::open(&state.url, &options))?;
    let log_in_directory = environment.log.id(&settings).is_none();
    let store = take_over(objects, &environment.disk, dir, log_in_directory, state.condition)?;
    let deployed = || deployed_app(dir).map(|app| app.map(|app| app.settings));
    let settings = if app.is_some() { Some(settings) } else { deployed()? };
    check_tables_outside(state, environment, settings.as_ref())?;
    Ok(store)
}

/// Errors: `Invalid` if the tables are in the data directory, whose state goes elsewhere.
fn check_tables_outside(
    state: &StateLocation,
    environment: &Environment,
    settings: Option<&Settings>,
) -> Result<()> {
    if environment.table_store.is_none() && settings.is_some_and(|settings| settings.tables.is_none()) {
        return Err(Error::invalid(format!(
            "the state goes to {}, but the tables are in the data directory: keep them there, too, by the setting tables, as in \
             `tables = \"{}/tables\"` under [settings]",
            state.url,
            state.url.trim_end_matches('/')
        )));
    }
    Ok(())
}

/// Makes the process of `data` the owner of its state.
fn own_state(store: ObjectPartitionStore, data: &DataDir) -> Result<Arc<dyn PartitionStore>> {
    let without = || {
        Error::invalid(
            "the data directory was made by a version that gave it no identity: its state cannot be published",
        )
    };
    let store = store.with_id(data.id().ok_or_else(without)?, data.partitions());
    store.claim(StateGroup::Directory, data.epoch())?;
    let partitions = (0..data.partitions()).map(PartitionId);
    partitions.into_iter().try_for_each(|id| store.claim(StateGroup::Partition(id), data.epoch()))?;
    Ok(Arc::new(store))
}
