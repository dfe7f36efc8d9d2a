//! The engine of a simulation: the real one without threads, on simulated devices.

use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use object_store::ObjectStoreExt;
use parking_lot::Mutex;
use tidemill_encryption::OpenKeyRing;
use tidemill_flow::Connectors;
use tidemill_log::disk::{Disk, FileReader};
use tidemill_log::sim_disk::SimDisk;
use tidemill_log::{LogClock, LogOptions};
use tidemill_types::{Error, Result, Timestamp};
use tidemill_zones::ZonesOptions;
use tidemill_zones::sim_store::FaultyStore;
use url::Url;

use super::digests::DigestAudit;
use crate::admin::backup;
use crate::app::App;
use crate::app::settings::Settings;
use crate::deploy;
use crate::directory::datadir;
use crate::directory::datadir::{DataDir, RestoredFrom};
use crate::directory::environment::{Environment, LogProvider, OpenedLog, TableStore, open_local_log};
use crate::directory::partitioning::Partitioning;
use crate::lifecycle::report::StartupReport;
use crate::lifecycle::{opening, reopen};
use crate::node::Node;
use crate::partition::Partition;
use crate::planted_bugs::PLANTED_FAILURE;
use crate::process::clock::Clock;
use crate::process::services::Process;

/// Start of the simulated time: 2020-01-01T00:00:00Z.
const START_TIME: i64 = 1_577_836_800_000_000;
pub(super) const PARTITIONS: u32 = 3;
const DIR: &str = "/data";

/// Rules and queries of the simulated app; [`super::model`] knows what they must do. An order passes through up to three
/// partitions.
const RULES: &str = "
    event Order { id: string, customer: string, region: string, amount: long } key customer id id;
    event Big { id: string, region: string, amount: long } key id;
    event Sale { id: string, region: string, amount: long } key region;
    entity Seen key id;
    entity Account key id;
    entity Region key name;
    relation Big.seen(): Seen by id;
    relation Sale.of(): Region by region;
    rule BigOrder {
        when { o: Order(amount >= 50); }
        then { emit Big { id: o.id, region: o.region, amount: o.amount }; }
    }
    rule SeenAgain priority 2 { when { b: Big(); s: b.seen(); } then { update s.n += 1; } }
    rule SeenFirst priority 1 { when { b: Big(); not b.seen(); } then { insert Seen { id: b.id, n: 1 }; } }
    rule Sell { when { b: Big(); } then { emit Sale { id: b.id, region: b.region, amount: b.amount }; } }
    rule AddRegion priority 2 { when { s: Sale(); r: s.of(); } then { update r.total += s.amount; } }
    rule NewRegion priority 1 {
        when { s: Sale(); not s.of(); }
        then { insert Region { name: s.region, total: s.amount }; }
    }
";
const QUERIES: &str = "
    @key('region')
    define stream Sale (id string, region string, amount long);
    @key('customer')
    define stream Order (id string, customer string, region string, amount long);
    @info(name='totals')
    from Sale select region, sum(amount) as total, count() as n group by region insert into Totals;
    @info(name='orders')
    from Order select id, count() as n insert into Counted;
";

/// Queries with timers and random numbers, which only the auditor of digests checks.
const TIMED_QUERIES: &str = "
    @key('customer')
    define stream Order (id string, customer string, region string, amount long);
    @info(name='recent')
    from Order#window.time(20 sec) select region, sum(amount) as total, UUID() as draw group by region
    insert all events into Recent;
    @info(name='intervals')
    from Order#window.timeBatch(5 sec) select count() as n, UUID() as draw insert into Intervals;
";

/// Returns whether the app of a seed has queries with timers. Most seeds are without: their steps are those of earlier versions.
pub(super) fn is_timed(seed: u64) -> bool {
    seed % 4 == 1
}

/// Sleeps after which somebody makes room on a full disk.
const SLEEPS_UNTIL_ROOM: u32 = 20;

/// Clock of a simulation. A sleep advances it. The engine sleeps when it retries: while the power is gone a sleep stops it,
/// because it would retry for ever, and after some sleeps on a full disk somebody makes room there.
pub struct SimClock {
    now: AtomicI64,
    sleeps: AtomicU32,
    /// Disks of the machines, each with the engine on it.
    power: Mutex<Vec<(SimDisk, Weak<Node>)>>,
}

impl SimClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self { now: AtomicI64::new(START_TIME), sleeps: AtomicU32::new(0), power: Mutex::default() })
    }

    /// Advances the time by `duration`.
    pub fn advance(&self, duration: Duration) {
        self.now.fetch_add(duration.as_micros() as i64, Ordering::SeqCst);
    }
}

impl Clock for SimClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.now.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.now.load(Ordering::SeqCst).unsigned_abs())
    }

    fn block_until(&self, deadline: Duration) -> Duration {
        // no one else runs who could end the wait
        self.advance(deadline.saturating_sub(self.monotonic()));
        Duration::ZERO
    }

    fn sleep(&self, duration: Duration) {
        self.advance(duration);
        let sleeps = self.sleeps.fetch_add(1, Ordering::SeqCst);
        for (disk, node) in &*self.power.lock() {
            if sleeps % SLEEPS_UNTIL_ROOM == SLEEPS_UNTIL_ROOM - 1 {
                disk.set_room(None);
            }
            if disk.is_stopped()
                && let Some(node) = node.upgrade()
            {
                node.set_stopping();
            }
        }
    }
}

struct SimLogProvider(SimDisk, Arc<DigestAudit>);

impl LogProvider for SimLogProvider {
    fn open(
        &self,
        data_dir: &Path,
        settings: &Settings,
        partitions: u32,
        clock: &Arc<dyn Clock>,
    ) -> Result<OpenedLog> {
        let clock = Arc::clone(clock);
        let options = LogOptions {
            segment_bytes: settings.segment_bytes,
            // no thread, no time of the machine, no randomness of the machine
            background_sync_ms: 0,
            retry_wait_ms: 0,
            salt: 7,
            clock: LogClock::new(move || clock.now()),
            encryption: settings.encryption.of_log("tidemill log"),
            ..LogOptions::new(partitions)
        };
        let opened = open_local_log(Arc::new(self.0.clone()), data_dir, options)?;
        self.1.forget_lost(&*opened.log);
        Ok(opened)
    }
}

/// Devices that outlive the process.
pub struct Machine {
    pub disk: SimDisk,
    pub store: Arc<FaultyStore>,
    pub clock: Arc<SimClock>,
    /// Process of the engine, if others are in it.
    pub process: Option<Arc<Process>>,
    /// Digests of what the engines on it have applied.
    pub digests: Arc<DigestAudit>,
    /// True if the app has queries with timers.
    pub timed: bool,
    /// Keys, if data is encrypted.
    pub keys: Option<OpenKeyRing>,
}

impl Machine {
    /// Creates devices for an app, see [`is_timed`].
    pub fn new(timed: bool) -> Self {
        let store = FaultyStore::over(Arc::new(object_store::memory::InMemory::new()));
        Self {
            disk: SimDisk::default(),
            store,
            clock: SimClock::new(),
            process: None,
            digests: Arc::default(),
            timed,
            keys: None,
        }
    }

    /// Starts an engine.
    pub fn start(&self) -> Result<SimEngine> {
        let disk: Arc<dyn Disk> = Arc::new(self.disk.clone());
        let url = Url::parse("memory:///tables").expect("a valid URL");
        let environment = Environment {
            process: self.process.clone(),
            clock: self.clock.clone(),
            disk: disk.clone(),
            log: Arc::new(SimLogProvider(self.disk.clone(), self.digests.clone())),
            table_store: Some(TableStore { store: self.store.clone(), url }),
            shared: None,
            single_threaded: true,
            effect_digests: self.digests.observing(),
            connectors: Connectors::Refused,
            ..Environment::default()
        };
        // the engine that was on this machine has ended
        self.clock.power.lock().retain(|(_, node)| node.strong_count() > 0);
        let data = DataDir::open(Path::new(DIR), disk, Partitioning::new(PARTITIONS))?;
        let mut app = app(self.timed);
        app.settings.encryption.keys.clone_from(&self.keys);
        let (node, recovery) = deploy::open(&data, Some(app), &environment)?;
        self.clock.power.lock().push((self.disk.clone(), Arc::downgrade(&node)));
        Ok(SimEngine { node, recovery, _data: data })
    }
}

impl Machine {
    /// Returns a machine on which the data directory of `node` was restored from a backup. Its devices have no faults.
    pub fn restored(&self, node: &Node) -> Result<Self> {
        let digests = Arc::new(self.digests.fork());
        let copy = Self { keys: self.keys.clone(), digests, ..Self::new(self.timed) };
        copy.clock.advance(self.clock.monotonic() - copy.clock.monotonic());
        backup::copy(node, (&copy.disk, Path::new(DIR)))?;
        let manifest = Path::new(DIR).join(backup::MANIFEST);
        let failed = |e: std::io::Error| Error::unavailable("the copy").with_source(e);
        copy.disk.remove(&manifest).map_err(failed)?;
        let origin = RestoredFrom { id: None, time: String::new(), tables: None };
        datadir::give_new_identity(&copy.disk, Path::new(DIR), origin)?;
        let tables = Path::new(DIR).join("tables");
        for path in copy.disk.names().iter().filter(|path| path.starts_with(&tables)) {
            let mut bytes = Vec::new();
            let file = copy.disk.open(path).map_err(failed)?;
            FileReader::new(file).read_to_end(&mut bytes).map_err(failed)?;
            let below = path.strip_prefix(DIR).unwrap_or(path).to_string_lossy();
            let object = object_store::path::Path::from(below.as_ref());
            let put = node.host.runtime.block_on(copy.store.put(&object, bytes.into()));
            put.map_err(|e| Error::unavailable("the copy").with_source(e))?;
        }
        Ok(copy)
    }
}

/// Sinks of [`app_with_sinks`], of the streams of [`QUERIES`].
const SINKS: [(&str, &str); 2] = [
    ("@key('customer')\n    define stream Order", "@sink(type='ledger') "),
    ("@key('region')\n    define stream Sale", "@sink(type='ledger') @sink(type='mailbox') "),
];

/// Returns the app with sinks to a system outside.
pub(super) fn app_with_sinks(timed: bool) -> App {
    let mut queries = QUERIES.to_owned();
    for (stream, sinks) in SINKS {
        queries = queries.replacen(stream, &format!("{sinks}{stream}"), 1);
    }
    app_of(&queries, timed)
}

pub(super) fn app(timed: bool) -> App {
    app_of(QUERIES, timed)
}

fn app_of(queries: &str, timed: bool) -> App {
    let files = [("sim.siddhi", queries), ("timed.siddhi", TIMED_QUERIES)];
    let mut app = App::from_texts("sim", Some(RULES), &files[..if timed { 2 } else { 1 }]);
    app.settings.partitions = PARTITIONS;
    app.settings.segment_bytes = 4 << 10;
    // The default: all ids are in memory. Partitions are replayed by threads of their own, and files with ids that these
    // wrote would make the order of the disk's operations differ from run to run.
    // the simulated disk does not report its free space
    app.settings.reserve_bytes = 0;
    app.settings.zones = ZonesOptions {
        retry_attempts: 2,
        retry_backoff_ms: 0,
        delta_checkpoint_commits: 5,
        merge_tablets: 2,
        removed_retention_s: 60,
        ..app.settings.zones.clone()
    };
    app
}

/// An engine whose threads are steps.
pub struct SimEngine {
    pub node: Arc<Node>,
    pub recovery: StartupReport,
    pub(super) _data: DataDir,
}

impl SimEngine {
    /// Opens partitions that have stopped, applies records and forwards emissions until nothing waits.
    pub fn drain(&self) {
        while !self.node.host.is_stopping() {
            let mut worked = self.reopen();
            for partition in self.partitions() {
                worked |= partition.apply_queued();
                worked |= partition.forward_next();
            }
            if !worked {
                return;
            }
        }
    }

    /// Returns the partitions that work: those that answer, standbys, and those that are being opened.
    pub fn partitions(&self) -> Vec<Arc<Partition>> {
        let mut working = self.node.owned.replicas();
        working.retain(|partition| !partition.has_failed());
        [working, self.node.owned.opening()].concat()
    }

    /// Returns why a partition has stopped applying its log, if that was not planted.
    pub fn failure(&self) -> Option<String> {
        let problem = self.node.host.health.problem_of_any_subject("apply");
        problem.filter(|problem| !problem.contains(PLANTED_FAILURE))
    }

    /// Takes the next step in opening partitions that have stopped. Returns whether there was one.
    pub fn reopen(&self) -> bool {
        if self.failure().is_some() {
            return false;
        }
        let served = opening::serve_caught_up(&self.node);
        // devices that fail may fail it
        let stopped = reopen::stopped(&self.node);
        let begun = stopped.iter().filter_map(|former| reopen::begin(&self.node, former).ok()).count();
        begun > 0 || !served.is_empty()
    }
}
