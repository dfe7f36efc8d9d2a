//! Nodes of a cluster as processes of their own, over Kafka and an object store.

mod backups;
mod distributed;
mod growth;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tidemill_test_servers::{SharedServer, shared};

use crate::{Serving, root, run, served, tidemill};

/// Rules that update documents and emit into other partitions.
const RULES: &str = "
event Order { id: string, customer: string, amount: double } key customer id id;
event Audit { amount_class: string, order: string } key amount_class;
entity Total key id;
relation Audit.total(): Total by amount_class;
rule BigOne { when { o: Order(amount >= 100); } then { emit Audit { amount_class: \"big\", order: o.id }; } }
rule SmallOne { when { o: Order(amount < 100); } then { emit Audit { amount_class: \"small\", order: o.id }; } }
rule Audited priority 1 { when { a: Audit(); t: a.total(); } then { update t.n += 1; } }
rule FirstAudit { when { a: Audit(); not a.total(); } then { insert Total { id: a.amount_class, n: 1 }; } }
";

/// Time that a step may take on a machine that is busy with other work.
const PATIENCE: Duration = Duration::from_secs(300);

struct Cluster {
    dir: tempfile::TempDir,
    app: PathBuf,
    kafka: SharedServer,
    s3: SharedServer,
    topic: String,
    has_some_replicas: bool,
}

impl Cluster {
    /// Returns one without nodes. `None`, with a message, where the servers cannot be had.
    fn new() -> Option<Self> {
        let (kafka, s3) = (shared("kafka")?, shared("s3")?);
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("app")).unwrap();
        std::fs::write(dir.path().join("app/shop.rules"), RULES).unwrap();
        let app = dir.path().join("app");
        let topic = format!("orders-{}", uuid::Uuid::new_v4());
        Some(Self { dir, app, kafka, s3, topic, has_some_replicas: false })
    }

    /// Returns one whose partitions have an owner and one standby.
    fn with_some_replicas() -> Option<Self> {
        let cluster = Self::new()?;
        std::fs::write(cluster.dir.path().join("secret"), "a secret of this test\n").unwrap();
        Some(Self { has_some_replicas: true, ..cluster })
    }

    fn command(&self, name: &str, more: &[&str]) -> std::process::Command {
        let path = |name: &str| self.dir.path().join(name).display().to_string();
        let log = format!("kafka://{}/{}?replication=1", self.kafka.address("SERVERS_KAFKA"), self.topic);
        let store = format!("s3://tidemill/{}", self.topic);
        let (app, data) = (self.app.display().to_string(), path(name));
        let arguments = ["run", &app, "--data", &data, "--cluster", &log, "--store", &store, "--node", name];
        let mut command = tidemill(&arguments);
        command.args(["--listen", "127.0.0.1:0"]).args(more);
        if self.has_some_replicas {
            command.args(["--replicas", "2", "--peers", "127.0.0.1:0", "--peers-secret", &path("secret")]);
        }
        command.env("AWS_ENDPOINT", self.s3.address("SERVERS_S3")).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", "tidemill").env("AWS_SECRET_ACCESS_KEY", "tidemill");
        command
    }

    fn start(&self, name: &str) -> Node {
        let data = self.dir.path().join(name);
        let serving = served(self.command(name, &["--unsafe-single-broker"]), &data, "Ready: ");
        assert!(serving.base.starts_with("http://"), "the node {name} does not start");
        Node { name: name.to_owned(), serving }
    }

    fn data(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }
}

struct Node {
    name: String,
    serving: Serving,
}

impl Node {
    fn send(&self, from: u64, n: u64) {
        let order =
            |i| format!("{{\"id\":\"o{i}\",\"customer\":\"c{}\",\"amount\":{}}}\n", i % 10, (i % 4) * 50);
        let body: String = (from..from + n).map(order).collect();
        let url = format!("{}/api/v1/streams/Order?wait=true", self.serving.base);
        let token = format!("Bearer {}", self.serving.token);
        let request =
            ureq::post(url).header("authorization", token).header("content-type", "application/x-ndjson");
        let reply: Value = request.send(body).unwrap().body_mut().read_json().unwrap();
        assert_eq!(reply["rejected"], json!([]), "{reply}");
    }

    fn sql(&self, query: &str) -> Value {
        let url = format!("{}/api/v1/sql?format=json", self.serving.base);
        let token = format!("Bearer {}", self.serving.token);
        let request = ureq::post(url).header("authorization", token).header("content-type", "text/plain");
        request.send(query).unwrap().body_mut().read_json().unwrap()
    }

    /// Returns the events of a stream that the node has stored, without a wait for those that others have acknowledged.
    fn stored(&self, stream: &str) -> u64 {
        let token = format!("Bearer {}", self.serving.token);
        let request = ureq::get(format!("{}/metrics", self.serving.base)).header("authorization", token);
        let text = request.call().unwrap().body_mut().read_to_string().unwrap();
        let prefix = format!("tidemill_events_stored_total{{stream=\"{stream}\"");
        let line = text.lines().find(|line| line.starts_with(&prefix));
        let (_, value) = line.and_then(|line| line.rsplit_once(' ')).unwrap_or_else(|| panic!("{text}"));
        value.parse::<f64>().unwrap() as u64
    }

    fn cluster(&self) -> Value {
        let token = format!("Bearer {}", self.serving.token);
        let request =
            ureq::get(format!("{}/api/v1/cluster", self.serving.base)).header("authorization", token);
        request.call().unwrap().body_mut().read_json().unwrap()
    }

    /// Waits until all partitions belong to nodes of these names.
    fn wait_for_owners(&self, names: &[&str]) {
        wait_until("the owners are others", || {
            let cluster = self.cluster();
            let partitions = cluster["partitions"].as_array().unwrap();
            partitions
                .iter()
                .all(|partition| names.contains(&partition["owner"].as_str().unwrap_or_default()))
        });
    }

    /// Waits until what follows from `orders` orders is there, and checks that nothing is there twice.
    fn check(&self, orders: u64) {
        wait_until("all that rules emit has arrived", || {
            self.sql("SELECT count(*) AS n FROM events.Audit")[0]["n"] == orders
        });
        let counts = "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM events.\"Order\"";
        assert_eq!(self.sql(counts), json!([{"n": orders, "ids": orders}]), "{}", self.name);
        assert_eq!(self.sql("SELECT sum(n) AS n FROM docs.\"Total\"")[0]["n"], orders, "{}", self.name);
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "after {PATIENCE:?} it is not so: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nodes_over_kafka_answer_alike_and_take_over_from_a_killed_one() {
    if let Some(cluster) = Cluster::new() {
        answer_alike_and_take_over(&cluster);
    }
}

#[test]
fn nodes_with_some_replicas_answer_alike_and_take_over_from_a_killed_one() {
    if let Some(cluster) = Cluster::with_some_replicas() {
        answer_alike_and_take_over(&cluster);
    }
}

fn answer_alike_and_take_over(cluster: &Cluster) {
    let mut nodes = vec![cluster.start("a"), cluster.start("b"), cluster.start("c")];
    nodes[0].wait_for_owners(&["a", "b", "c"]);
    let mut sent = 0;
    for node in &nodes {
        node.send(sent, 50);
        sent += 50;
    }
    nodes.iter().for_each(|node| node.check(sent));
    // a repetition to another node
    nodes[2].send(0, 50);
    nodes[1].check(sent);

    let status = run(&["cluster", "status", "--data", cluster.data("a").to_str().unwrap()], 0).0;
    assert!(status.contains("seen by a (member)") && status.contains("  c  "), "{status}");

    // the owner is killed while events come
    let owner = nodes[0].cluster()["partitions"][0]["owner"].as_str().unwrap().to_owned();
    let at = nodes.iter().position(|node| node.name == owner).unwrap();
    let mut killed = nodes.remove(at);
    nodes[0].send(sent, 20);
    killed.serving.kill();
    nodes[1].send(sent + 20, 30);
    sent += 50;
    let left: Vec<&str> = nodes.iter().map(|node| node.name.as_str()).collect();
    nodes[0].wait_for_owners(&left);
    nodes.iter().for_each(|node| node.check(sent));

    // it comes back, and applies what it has missed
    let again = cluster.start(&owner);
    again.check(sent);
    again.send(sent, 10);
    nodes[0].check(sent + 10);
}

#[test]
fn flights_come_out_as_on_one_node_although_their_reader_is_killed() {
    if let Some(cluster) = Cluster::new() {
        flights_come_out_as_on_one_node(cluster);
    }
}

#[test]
fn flights_of_nodes_with_some_replicas_come_out_as_on_one_node() {
    if let Some(cluster) = Cluster::with_some_replicas() {
        flights_come_out_as_on_one_node(cluster);
    }
}

fn flights_come_out_as_on_one_node(cluster: Cluster) {
    let cluster = Cluster { app: root().join("examples/flights"), ..cluster };
    let expected: Value = serde_json::from_str(
        &std::fs::read_to_string(root().join("examples/flights/data/expected.json")).unwrap(),
    )
    .unwrap();
    let mut nodes = vec![cluster.start("a"), cluster.start("b"), cluster.start("c")];
    nodes[0].wait_for_owners(&["a", "b", "c"]);
    let reader = nodes[0].cluster()["partitions"][0]["owner"].as_str().unwrap().to_owned();
    let at = nodes.iter().position(|node| node.name == reader).unwrap();
    let mut killed = nodes.remove(at);
    let take_offs = expected["events"]["TakeOffEvent"].as_u64().unwrap();
    let stored = |node: &Node| match cluster.has_some_replicas {
        // the metrics are those of the node's partitions
        true => node.sql("SELECT count(*) AS n FROM events.\"TakeOffEvent\"")[0]["n"].as_u64().unwrap(),
        false => node.stored("TakeOffEvent"),
    };
    wait_until("a part of the flights is there", || stored(&nodes[0]) > take_offs / 4);
    killed.serving.kill();
    for node in &nodes {
        let late = "SELECT sum(late) AS n FROM docs.\"DelayRecord\"";
        wait_until("all is counted", || {
            stored(node) == take_offs && node.sql(late)[0]["n"].as_f64() == expected["late_takeoffs"].as_f64()
        });
        for stream in ["TakeOffEvent", "LandingEvent", "CancelEvent"] {
            let count = node.sql(&format!("SELECT count(*) AS n FROM events.\"{stream}\""))[0]["n"].clone();
            assert_eq!(count, expected["events"][stream], "{stream} at {}", node.name);
        }
        let late = "SELECT count(*) AS n FROM docs.\"Flight\" WHERE on_time = false";
        assert_eq!(node.sql(late)[0]["n"], expected["late_takeoffs"], "{}", node.name);
        let wrong = "SELECT * FROM system.ledger WHERE NOT balanced OR duplicate > 0";
        assert_eq!(node.sql(wrong), json!([]), "{}", node.name);
    }
}

#[test]
fn what_a_cluster_cannot_run_or_trust_is_refused() {
    let Some(cluster) = Cluster::new() else { return };
    let refused = |command: &mut std::process::Command| {
        let output = command.output().unwrap();
        assert!(!output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = refused(&mut cluster.command("a", &[]));
    assert!(text.contains("unsafe_single_broker") || text.contains("replicated"), "{text}");
    let file_sink = "@sink(type='file', file.uri='audits{partition}.json', @map(type='json'))
        define stream Audited (amount_class string);";
    std::fs::write(cluster.dir.path().join("app/audits.siddhi"), file_sink).unwrap();
    let text = refused(&mut cluster.command("a", &["--unsafe-single-broker"]));
    assert!(text.contains("sinks of the type `file`"), "{text}");
    let alone = refused(&mut tidemill(&["run", "app", "--data", "data", "--store", "s3://tidemill/x"]));
    assert!(alone.contains("--cluster"), "{alone}");
    let data: &Path = &cluster.data("none");
    let (_, text) = run(&["cluster", "status", "--data", data.to_str().unwrap()], 1);
    assert!(text.contains("no node runs"), "{text}");
}

#[test]
#[cfg(feature = "kafka")]
fn a_signal_ends_a_node_that_waits_for_its_log() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    std::fs::write(path("shop.rules"), RULES).unwrap();
    // it accepts connections and answers nothing
    let broker = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let log = format!("kafka://{}/orders?replication=1", broker.local_addr().unwrap());
    let store = format!("file://{}", path("store"));
    let arguments =
        ["run", &path("shop.rules"), "--data", &path("data"), "--cluster", &log, "--store", &store];
    let mut node = tidemill(&arguments).args(["--node", "a", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    let _connection = broker.accept().unwrap();
    crate::interrupt(node.id());
    let code = node.wait().unwrap().code();
    assert_eq!(code, Some(130), "128 and the number of SIGINT");
}
