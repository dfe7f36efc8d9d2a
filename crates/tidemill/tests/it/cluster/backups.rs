//! A cluster that is backed up while it works, restored as a single node, and made a cluster again.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};
use tidemill::bson::{Bson, Document, doc};
use tidemill_test_servers::free_port;

use super::growth::{Mongo, refused, succeeds};
use super::{Cluster, Node, wait_until};
use crate::{run, served, tidemill};

/// A window over all orders.
const QUERIES: &str = "
define stream Order (id string, customer string, amount double);
from Order#window.length(5) select count() as n, sum(amount) as total insert into Sums;
";
/// States are replaced and files written all the time.
const SETTINGS: &str = "[settings]
partitions = 4
flush_interval = '100ms'
checkpoint_interval = '300ms'
dedupe_ids = 128
";

/// Port of MongoDB's protocol, and the arguments by which a node listens there.
struct MongoPort {
    port: u16,
    arguments: [String; 3],
}

impl MongoPort {
    fn new() -> Self {
        let port = free_port();
        let arguments = ["--mongo".into(), format!("127.0.0.1:{port}"), "--mongo-without-login".into()];
        Self { port, arguments }
    }

    fn arguments(&self) -> [&str; 3] {
        self.arguments.each_ref().map(String::as_str)
    }
}

/// Inserts a note, then two documents by a transaction. Returns whether the note, and the transaction, were acknowledged: another transaction may
/// be in the way, and a node that is too busy to keep its lease does not know.
fn write_documents(driver: &mut Mongo, writer: usize, n: u64, session: &Document) -> (bool, bool) {
    let id = |kind: &str| format!("{kind}-{writer}-{n}");
    let is_inserted = |reply: &Document| reply.get("n") == Some(&Bson::Int32(1));
    let note = doc! { "_id": id("note"), "n": n as i64 };
    let note = driver.command(doc! { "insert": "notes", "documents": [note], "$db": "docs" });
    let number = n as i64 + 1;
    let in_transaction = |mut command: Document, starts: bool| {
        command.extend(doc! { "lsid": session.clone(), "txnNumber": number, "autocommit": false });
        if starts {
            command.insert("startTransaction", true);
        }
        command
    };
    for side in ["left", "right"] {
        let insert =
            doc! { "insert": "pairs", "documents": [{ "_id": id(side), "pair": id("pair") }], "$db": "docs" };
        if !is_inserted(&driver.command(in_transaction(insert, side == "left"))) {
            return (is_inserted(&note), false);
        }
    }
    let commit = driver.command(in_transaction(doc! { "commitTransaction": 1, "$db": "admin" }, false));
    (is_inserted(&note), commit.get_f64("ok").is_ok_and(|ok| ok == 1.0))
}

/// Sends orders until the node takes them: one that is too busy to keep its lease may not know whether it has.
fn send(node: &Node, from: u64) {
    let body: String = (from..from + 10)
        .map(|i| format!("{{\"id\":\"o{i}\",\"customer\":\"c{}\",\"amount\":{}}}\n", i % 10, i % 4 * 50))
        .collect();
    let url = format!("{}/api/v1/streams/Order?wait=true", node.serving.base);
    wait_until("the node takes orders", || {
        let token = format!("Bearer {}", node.serving.token);
        let request =
            ureq::post(&url).header("authorization", token).header("content-type", "application/x-ndjson");
        match request.send(&body) {
            Ok(_) => true,
            Err(ureq::Error::StatusCode(503)) => false,
            Err(e) => panic!("{e}"),
        }
    });
}

/// Takes a backup, again while the node has just been removed from the cluster, as it is too busy.
fn take_backup(data: &Path, to: &Path) -> String {
    loop {
        let output = tidemill(&["backup", "--data", data.to_str().unwrap(), "--to", to.to_str().unwrap()])
            .output()
            .unwrap();
        if output.status.success() {
            return String::from_utf8(output.stdout).unwrap();
        }
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("not backed up by this node"), "{text}");
    }
}

/// Returns the ids of a collection.
fn ids(node: &Node, collection: &str) -> BTreeSet<String> {
    let found = node.sql(&format!("SELECT _id AS id FROM docs.\"{collection}\""));
    let ids = found.as_array().unwrap_or_else(|| panic!("{found}")).iter();
    let all: Vec<String> = ids.map(|row| row["id"].as_str().unwrap().to_owned()).collect();
    let distinct: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(distinct.len(), all.len(), "a document of {collection} is there twice");
    distinct
}

/// What a node has acknowledged.
#[derive(Default)]
struct Acknowledged {
    orders: AtomicU64,
    /// Numbers of the notes that are inserted.
    notes: Mutex<Vec<u64>>,
    /// Numbers of the pairs that are committed.
    pairs: Mutex<Vec<u64>>,
}

#[derive(Debug, Clone)]
struct Counts {
    orders: u64,
    notes: Vec<u64>,
    pairs: Vec<u64>,
}

impl Acknowledged {
    fn counts(&self) -> Counts {
        Counts {
            orders: self.orders.load(Ordering::Acquire),
            notes: self.notes.lock().unwrap().clone(),
            pairs: self.pairs.lock().unwrap().clone(),
        }
    }
}

/// Sets of orders do not meet.
fn first_order(writer: usize) -> u64 {
    1_000_000 * (writer as u64 + 1)
}

#[test]
fn a_cluster_is_backed_up_under_load_and_restored() {
    if let Some(cluster) = Cluster::new() {
        back_up_and_restore(cluster, &["a", "b"]);
    }
}

#[test]
fn a_cluster_with_some_replicas_is_backed_up_under_load_and_restored() {
    if let Some(cluster) = Cluster::with_some_replicas() {
        back_up_and_restore(cluster, &["a", "b", "c"]);
    }
}

fn back_up_and_restore(mut cluster: Cluster, names: &[&str]) {
    std::fs::write(cluster.app.join("queries.siddhi"), QUERIES).unwrap();
    std::fs::write(cluster.app.join("app.toml"), SETTINGS).unwrap();
    let ports: Vec<MongoPort> = names.iter().map(|_| MongoPort::new()).collect();
    let start = |(name, port): (&&str, &MongoPort)| cluster.start_with(name, &port.arguments());
    let nodes: Vec<Node> = names.iter().zip(&ports).map(start).collect();
    nodes[0].wait_for_owners(names);
    let backup = cluster.data("backup");
    let before = work_until_backed_up(&cluster, &nodes, &ports, &backup);
    nodes.into_iter().for_each(|mut node| node.serving.kill());

    let text = run(&["verify", "--from", backup.to_str().unwrap()], 0).0;
    assert!(text.contains("ok") && !text.contains("DAMAGED"), "{text}");
    let restored = cluster.data("single");
    let text = restore(&backup, &restored);
    assert!(text.contains(&format!("of the cluster {}", cluster.topic)), "{text}");
    let (ledger, window) = check_restored(&restored, &before);

    // the directory becomes another cluster, with a topic and a store of its own
    cluster.topic = format!("again-{}", cluster.topic);
    succeeds(cluster.create());
    let nodes: Vec<Node> = names.iter().map(|name| cluster.start(&format!("{name}2"))).collect();
    for node in &nodes {
        assert_eq!(node.sql(LEDGER), ledger, "{}", node.name);
        assert_eq!(node.sql(WINDOW), window, "{}", node.name);
    }
    let orders = orders(&nodes[0]);
    nodes[1].send(0, 50);
    nodes[0].check(orders + 50);
    nodes[0].send(first_order(0), before[0].orders);
    nodes[1].check(orders + 50);
    assert_eq!(nodes[0].sql("SELECT * FROM system.ledger WHERE NOT balanced"), json!([]));
}

const LEDGER: &str = "SELECT stream, stored, duplicate FROM system.ledger ORDER BY stream";
const WINDOW: &str =
    "SELECT n, total FROM events.\"Sums\" ORDER BY _time DESC, _offset DESC, _row DESC LIMIT 1";

fn orders(node: &Node) -> u64 {
    node.sql("SELECT count(*) AS n FROM events.\"Order\"")[0]["n"].as_u64().unwrap()
}

/// Lets clients write at all nodes, and takes a backup by the last one meanwhile. Returns what the nodes had acknowledged before it began.
fn work_until_backed_up(
    cluster: &Cluster,
    nodes: &[Node],
    ports: &[MongoPort],
    backup: &Path,
) -> Vec<Counts> {
    let done = AtomicBool::new(false);
    let acknowledged: Vec<Acknowledged> = nodes.iter().map(|_| Acknowledged::default()).collect();
    std::thread::scope(|scope| {
        let _done = SetAtEnd(&done);
        for (writer, (node, port)) in nodes.iter().zip(ports).enumerate() {
            let (counts, done) = (&acknowledged[writer], &done);
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    send(node, first_order(writer) + counts.orders.load(Ordering::Acquire));
                    counts.orders.fetch_add(10, Ordering::AcqRel);
                }
            });
            scope.spawn(move || {
                let mut driver = Mongo::connect(port.port);
                let id = Bson::Binary(tidemill::bson::Binary {
                    subtype: tidemill::bson::spec::BinarySubtype::Uuid,
                    bytes: uuid::Uuid::new_v4().as_bytes().to_vec(),
                });
                let session = doc! { "id": id };
                for n in 0.. {
                    if done.load(Ordering::Acquire) {
                        return;
                    }
                    let (note, pair) = write_documents(&mut driver, writer, n, &session);
                    counts.notes.lock().unwrap().extend(note.then_some(n));
                    counts.pairs.lock().unwrap().extend(pair.then_some(n));
                }
            });
        }
        let is_enough =
            |counts: Counts| counts.orders >= 200 && counts.notes.len() >= 15 && counts.pairs.len() >= 10;
        wait_until("the nodes have work", || acknowledged.iter().all(|one| is_enough(one.counts())));
        let node = nodes.last().unwrap();
        let data = cluster.data(&node.name);
        // the places of backups are checked
        let (_, text) = run(&["backup", "--data", data.to_str().unwrap(), "--to", data.to_str().unwrap()], 1);
        assert!(text.contains("lies inside the data directory"), "{text}");
        let before: Vec<Counts> = acknowledged.iter().map(Acknowledged::counts).collect();
        let text = take_backup(&data, backup);
        assert!(text.contains(&format!("Backup of the cluster {}", cluster.topic)), "{text}");
        before
    })
}

fn restore(backup: &Path, to: &Path) -> String {
    let text = run(&["restore", "--from", backup.to_str().unwrap(), "--data", to.to_str().unwrap()], 0).0;
    assert!(text.contains("tidemill cluster create --from"), "{text}");
    text
}

/// Starts the restored directory as a single node, and compares it with what was acknowledged. Returns its ledger, and the last state of its
/// window.
fn check_restored(data: &Path, before: &[Counts]) -> (Value, Value) {
    let arguments = ["serve", "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    let node = Node { name: "restored".into(), serving: served(tidemill(&arguments), data, "Ready: ") };
    let orders = orders(&node);
    assert!(orders >= before.iter().map(|counts| counts.orders).sum(), "{orders} orders of {before:?}");
    // each order and what follows from it is there once
    node.check(orders);
    let sums = "SELECT count(*) AS n FROM events.\"Sums\"";
    wait_until("the window has all orders", || node.sql(sums)[0]["n"] == orders);
    assert_eq!(node.sql("SELECT * FROM system.ledger WHERE NOT balanced"), json!([]));
    let known = node.sql("SELECT id FROM events.\"Order\"");
    let known: BTreeSet<&str> =
        known.as_array().unwrap().iter().map(|row| row["id"].as_str().unwrap()).collect();
    let (notes, pairs) = (ids(&node, "notes"), ids(&node, "pairs"));
    for (writer, counts) in before.iter().enumerate() {
        for n in first_order(writer)..first_order(writer) + counts.orders {
            assert!(known.contains(format!("o{n}").as_str()), "order {n} was acknowledged");
        }
        for n in &counts.notes {
            assert!(notes.contains(&format!("note-{writer}-{n}")), "note {writer} {n} was acknowledged");
        }
        for n in &counts.pairs {
            assert!(pairs.contains(&format!("left-{writer}-{n}")), "pair {writer} {n} was committed");
        }
    }
    for id in &pairs {
        let other = match id.strip_prefix("left") {
            Some(rest) => format!("right{rest}"),
            None => id.replacen("right", "left", 1),
        };
        assert!(pairs.contains(&other), "the transaction with {id} is there in part");
    }
    let found = (node.sql(LEDGER), node.sql(WINDOW));
    Cluster::stop_single(node);
    found
}

/// Ends the other threads of a test, also when it fails.
struct SetAtEnd<'a>(&'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

#[test]
fn a_backup_by_a_node_that_does_not_run_or_without_its_store_is_refused() {
    let Some(cluster) = Cluster::new() else { return };
    let node = cluster.start("a");
    node.wait_for_owners(&["a"]);
    node.send(0, 20);
    node.check(20);
    let (data, backup) = (cluster.data("a"), cluster.data("backup"));
    let command =
        || tidemill(&["backup", "--data", data.to_str().unwrap(), "--to", backup.to_str().unwrap()]);
    // a backup that was interrupted is replaced
    std::fs::create_dir(cluster.data("backup.incomplete")).unwrap();
    std::fs::write(cluster.data("backup.incomplete").join("rest"), "x").unwrap();
    succeeds(command());
    assert!(!cluster.data("backup.incomplete").exists() && backup.join("backup.json").exists());
    let text = refused(command());
    assert!(text.contains("is not empty"), "{text}");
    std::fs::remove_dir_all(&backup).unwrap();
    Cluster::stop_single(node);
    let text = refused(command());
    assert!(text.contains("A cluster is backed up by a node that runs"), "{text}");
    assert!(!backup.exists() && !cluster.data("backup.incomplete").exists());
}
