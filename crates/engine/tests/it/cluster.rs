//! Nodes of a cluster in one process. Their logs are shared, and nodes are cut off from them.

mod backups;
mod changes;
mod connectors;
mod homes;
mod some_replicas;
mod transactions;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::memory::InMemory;
use tidemill_cluster::{NodeName, Timing};
use tidemill_engine::cluster::{ClusterOptions, PeerOptions, Replicas, Secret, Security};
use tidemill_engine::simulation::SharedLog;
use tidemill_engine::{App, Clock, Engine, LogProvider, OpenedLog, Settings, TakeOver};
use tidemill_log::{Log, MemoryLog};
use tidemill_types::{ErrorKind, Result};
use url::Url;

use crate::{app, document, ledger, rows, send};

/// Time that a step of the cluster may take on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(120);
pub const PARTITIONS: u32 = 4;

/// What the nodes share.
pub struct Shared {
    root: tempfile::TempDir,
    tables: Arc<InMemory>,
    log: Arc<MemoryLog>,
    control: Arc<MemoryLog>,
    /// True if a partition has an owner and one standby, and nodes ask each other.
    has_some_replicas: bool,
}

/// A node, with its ways to the logs.
pub struct TestNode {
    pub engine: Engine,
    log: Arc<SharedLog>,
    control: Arc<SharedLog>,
}

struct Provider(Arc<dyn Log>);

impl LogProvider for Provider {
    fn open(&self, _: &Path, _: &Settings, _: u32, _: &Arc<dyn Clock>) -> Result<OpenedLog> {
        Ok(OpenedLog { log: self.0.clone(), warnings: Vec::new() })
    }

    fn id(&self, _: &Settings) -> Option<String> {
        Some("shared".into())
    }
}

impl Shared {
    pub fn new() -> Self {
        Self {
            root: tempfile::tempdir().unwrap(),
            tables: Arc::new(InMemory::new()),
            log: Arc::new(MemoryLog::new(PARTITIONS)),
            control: Arc::new(MemoryLog::new(1)),
            has_some_replicas: false,
        }
    }

    /// Creates what nodes share that have replicas of some partitions.
    pub fn with_some_replicas() -> Self {
        Self { has_some_replicas: true, ..Self::new() }
    }

    pub fn start(&self, name: &str) -> TestNode {
        self.try_start(name, name, app()).unwrap()
    }

    fn replicas(&self) -> Replicas {
        match self.has_some_replicas {
            false => Replicas::All(None),
            true => Replicas::OwnerAndStandby(PeerOptions {
                listen: ([127, 0, 0, 1], 0).into(),
                advertise: None,
                security: Security::Secret(Secret::new(*b"a secret of this test").unwrap()),
            }),
        }
    }

    /// Starts a node in a directory of this name.
    pub fn try_start(&self, dir: &str, name: &str, app: App) -> Result<TestNode> {
        let log = Arc::new(SharedLog::new(self.log.clone()));
        self.try_start_on((log.clone(), log), dir, name, app)
    }

    /// Starts a node with its way to the log, and the log as its engine has it.
    fn try_start_on(
        &self,
        (log, of_engine): (Arc<SharedLog>, Arc<dyn Log>),
        dir: &str,
        name: &str,
        mut app: App,
    ) -> Result<TestNode> {
        let control = Arc::new(SharedLog::new(self.control.clone()));
        let options = ClusterOptions {
            cluster: "test".into(),
            name: NodeName::new(name).unwrap(),
            address: format!("{name}:4700"),
            zone: String::new(),
            weight: 100,
            replicas: self.replicas(),
            timing: match self.has_some_replicas {
                // partitions move soon
                true => Timing { settle_ms: 500, ..Timing::SMALL },
                false => Timing::SMALL,
            },
            control: control.clone(),
        };
        app.settings.partitions = PARTITIONS;
        let state = format!("file://{}", self.root.path().join("state").display());
        let engine = Engine::builder(self.root.path().join(dir))
            .log(Arc::new(Provider(of_engine)))
            .table_store(self.tables.clone(), Url::parse("memory:///tables").unwrap())
            .state(&state, TakeOver::Lossless)
            .cluster(options)
            .app(app)
            .open()?;
        Ok(TestNode { engine, log, control })
    }
}

/// Waits until `is_so`.
pub fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "after {PATIENCE:?} it is not so: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Returns the number of partitions that a node owns and answers for.
pub fn owned(node: &TestNode) -> usize {
    let status = node.engine.cluster_status().unwrap();
    status.partitions.iter().filter(|partition| partition.role == "owner").count()
}

/// Waits until these nodes own all partitions together.
pub fn wait_for_owners(nodes: &[&TestNode]) {
    wait_until("each partition has an owner", || {
        nodes.iter().map(|node| owned(node)).sum::<usize>() == PARTITIONS as usize
            && nodes.iter().all(|node| node.engine.catch_up().is_ok())
    });
}

/// Waits until each of these nodes owns a partition, and lacks one.
fn wait_until_spread(nodes: &[&TestNode]) {
    let roles = |node: &&TestNode| -> Vec<&str> {
        node.engine.cluster_status().unwrap().partitions.iter().map(|partition| partition.role).collect()
    };
    let start = Instant::now();
    while !nodes.iter().map(roles).all(|roles| roles.contains(&"owner") && roles.contains(&"none")) {
        let now = || -> Vec<String> {
            let problems =
                |node: &&TestNode| format!("{:?} {:?}", roles(node), node.engine.health().problems);
            nodes.iter().map(problems).collect()
        };
        assert!(start.elapsed() < PATIENCE, "after {PATIENCE:?} partitions are not spread: {:#?}", now());
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_for_owners(nodes);
}

fn orders(from: u64, n: u64) -> String {
    let order = |i| format!("{{\"id\":\"o{i}\",\"customer\":\"c{}\",\"amount\":{}}}\n", i % 10, (i % 4) * 50);
    (from..from + n).map(order).collect()
}

/// Checks that a node sees the outcome of `orders` orders.
fn check(node: &TestNode, orders: u64) {
    let engine = &node.engine;
    // what rules emit arrives in other partitions soon
    wait_until("all that rules emit has arrived", || {
        engine.catch_up().unwrap();
        rows(engine, "Audit") == orders
    });
    assert_eq!(rows(engine, "Order"), orders, "{}", ledger(engine));
    let count = |id: &str| {
        let total: serde_json::Value = serde_json::from_str(&document(engine, "Total", id)).unwrap();
        total["n"].as_u64().unwrap()
    };
    assert_eq!(count("small") + count("big"), orders, "{}", ledger(engine));
}

#[test]
fn nodes_share_partitions_and_take_over_from_one_that_is_cut_off() {
    take_over(&Shared::new());
}

#[test]
fn nodes_with_some_replicas_take_over_from_one_that_is_cut_off() {
    take_over(&Shared::with_some_replicas());
}

fn take_over(shared: &Shared) {
    let (a, b, c) = (shared.start("a"), shared.start("b"), shared.start("c"));
    match shared.has_some_replicas {
        true => wait_until_spread(&[&a, &b, &c]),
        false => wait_for_owners(&[&a, &b, &c]),
    }

    // what one node acknowledges, another one sees at once
    let mut sent = 0;
    for (writer, reader) in [(&a, &b), (&b, &c), (&c, &a)] {
        send(&writer.engine, "Order", &orders(sent, 100));
        sent += 100;
        reader.engine.catch_up().unwrap();
        assert_eq!(rows(&reader.engine, "Order"), sent, "{}", ledger(&reader.engine));
    }
    [&a, &b, &c].into_iter().for_each(|node| check(node, sent));

    // a repetition is one at every node
    send(&b.engine, "Order", &orders(0, 50));
    check(&c, sent);

    // its partitions get other owners, while it does not know that it is removed
    a.control.set_cut_off(true);
    wait_for_owners(&[&b, &c]);
    send(&a.engine, "Order", &orders(sent, 50));
    send(&b.engine, "Order", &orders(sent + 50, 50));
    sent += 100;
    [&b, &c].into_iter().for_each(|node| check(node, sent));

    // one that is cut off from the log as well does not answer from what it has
    a.log.set_cut_off(true);
    let refused = a.engine.get_document("Total", &"small".into()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");

    // it comes back as another member
    a.log.set_cut_off(false);
    a.control.set_cut_off(false);
    wait_until("it is a member again", || a.engine.cluster_status().unwrap().standing == "member");
    wait_for_owners(&[&a, &b, &c]);
    check(&a, sent);

    // one that leaves in order gives its partitions away
    b.engine.stop().unwrap();
    wait_for_owners(&[&a, &c]);
    send(&c.engine, "Order", &orders(sent, 50));
    sent += 50;
    [&a, &c].into_iter().for_each(|node| check(node, sent));

    // a new one begins with the state that the owners have published
    for node in [&a, &c] {
        // a partition may be on its way to another node
        wait_until("a checkpoint is taken", || match node.engine.checkpoint() {
            Ok(()) => true,
            Err(e) => {
                println!("{e}");
                false
            }
        });
    }
    let d = shared.start("d");
    wait_for_owners(&[&a, &c, &d]);
    check(&d, sent);
}

#[test]
fn nodes_that_do_not_fit_are_refused() {
    let shared = Shared::new();
    let first = shared.start("a");
    wait_for_owners(&[&first]);
    let same_name = shared.try_start("other", "a", app()).err().unwrap();
    assert_eq!(same_name.kind(), ErrorKind::Conflict, "{same_name}");
    assert!(same_name.to_string().contains("is alive"), "{same_name}");
    let other_app = App::from_rules("shop", "event Other { id: string } key id;");
    let other_app = shared.try_start("b", "b", other_app).err().unwrap();
    assert_eq!(other_app.kind(), ErrorKind::Conflict, "{other_app}");
    let mut other_bounds = app();
    other_bounds.settings.query_rows += 1;
    let other_bounds = shared.try_start("b", "b", other_bounds).err().unwrap();
    assert_eq!(other_bounds.kind(), ErrorKind::Conflict, "{other_bounds}");
    assert!(other_bounds.to_string().contains("query_rows"), "{other_bounds}");
    send(&first.engine, "Order", &orders(0, 10));
    check(&first, 10);
}

#[test]
fn a_node_starts_while_others_append_and_flush() {
    let shared = Shared::new();
    let a = shared.start("a");
    wait_for_owners(&[&a]);
    send(&a.engine, "Order", &orders(0, 10));
    check(&a, 10);
    a.engine.flush().unwrap();
    // the tables have what came after the node had opened the log
    let log = Arc::new(SharedLog::opened_when_empty(shared.log.clone()));
    let b = shared.try_start_on((log.clone(), log), "b", "b", app()).unwrap();
    wait_for_owners(&[&a, &b]);
    check(&b, 10);
}

#[test]
fn a_node_that_is_refused_while_it_runs_is_not_ready() {
    let shared = Shared::new();
    let (a, b) = (shared.start("a"), shared.start("b"));
    wait_for_owners(&[&a, &b]);
    a.control.set_cut_off(true);
    wait_for_owners(&[&b]);
    let second_a = shared.try_start("other", "a", app()).unwrap();
    assert!(a.engine.health().ready, "it does not know yet");
    a.control.set_cut_off(false);
    wait_until("the first one is refused", || {
        a.engine.cluster_status().unwrap().standing.starts_with("refused")
    });
    wait_until("the first one is not ready", || !a.engine.health().ready);
    wait_for_owners(&[&b, &second_a]);
    assert!(b.engine.health().ready && second_a.engine.health().ready);
}
