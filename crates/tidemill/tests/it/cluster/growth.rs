//! The data directory of a single node that becomes a cluster.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tidemill::bson::{self, Document, doc};
use tidemill::engine::crash_points;
use tidemill::{Engine, LogAtUrl, Tidemill};
use tidemill_test_servers::free_port;

use super::{Cluster, Node, PATIENCE, wait_until};
use crate::{interrupt, run, served, tidemill};

/// Replaced by the port of the receiver.
const QUERIES: &str = "
define stream Order (id string, customer string, amount double);
@sink(type='http', publisher.url='http://127.0.0.1:RECEIVER/sums', @map(type='json'))
define stream Sums (n long, total double);
from Order#window.length(5) select count() as n, sum(amount) as total insert into Sums;
from every e1=Order[amount > 500] -> e2=Order[customer == e1.customer and amount < 1]
select e1.id as first, e2.id as second insert into Pairs;
";

/// Another system, which counts the requests that it accepts.
struct Receiver {
    port: u16,
    bodies: Arc<Mutex<Vec<String>>>,
    is_open: Arc<AtomicBool>,
}

impl Receiver {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (bodies, is_open) = (Arc::<Mutex<Vec<String>>>::default(), Arc::new(AtomicBool::new(true)));
        let (taken, open) = (bodies.clone(), is_open.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (taken, open) = (taken.clone(), open.clone());
                std::thread::spawn(move || receive(stream, &taken, &open));
            }
        });
        Self { port, bodies, is_open }
    }

    fn received(&self) -> usize {
        self.bodies.lock().unwrap().len()
    }
}

/// Answers the requests of a connection.
fn receive(stream: TcpStream, taken: &Mutex<Vec<String>>, is_open: &AtomicBool) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    loop {
        let mut length = 0;
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let field = line.to_ascii_lowercase();
            length = field.strip_prefix("content-length:").map_or(length, |n| n.trim().parse().unwrap());
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let accepts = is_open.load(Ordering::Acquire);
        if accepts {
            taken.lock().unwrap().push(String::from_utf8(body).unwrap());
        }
        let status = if accepts { "200 OK" } else { "503 Service Unavailable" };
        if write!(stream, "HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").is_err() {
            return;
        }
    }
}

/// A connection of a MongoDB driver.
pub(super) struct Mongo(TcpStream);

impl Mongo {
    pub(super) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(stream)
    }

    pub(super) fn command(&mut self, command: Document) -> Document {
        let mut body = vec![0_u8; 4];
        body.push(0);
        body.extend(bson::serialize_to_vec(&command).unwrap());
        let length = (body.len() + 16) as i32;
        let header: Vec<u8> = [length, 1, 0, 2013].into_iter().flat_map(i32::to_le_bytes).collect();
        self.0.write_all(&[header, body].concat()).unwrap();
        let mut header = [0; 16];
        self.0.read_exact(&mut header).unwrap();
        let length = i32::from_le_bytes(header[..4].try_into().unwrap()) as usize;
        let mut reply = vec![0; length - 16];
        self.0.read_exact(&mut reply).unwrap();
        bson::deserialize_from_slice(&reply[5..]).unwrap()
    }

    /// Returns the changes of totals after a token, or from now on, and the token behind them.
    fn changes(&mut self, after: Option<Document>) -> Result<(Vec<Document>, Document), Document> {
        let options = after.map_or_else(|| doc! {}, |token| doc! { "resumeAfter": token });
        let pipeline = vec![doc! { "$changeStream": options }];
        let mut reply = self.command(
            doc! { "aggregate": "Total", "pipeline": pipeline, "cursor": {}, "$db": "docs", "maxTimeMS": 60_000 },
        );
        if reply.get("cursor").is_none() {
            return Err(reply);
        }
        let id = reply.get_document("cursor").unwrap().get_i64("id").unwrap();
        let mut changes = Vec::new();
        let mut batch = "firstBatch";
        loop {
            let cursor = reply.get_document("cursor").unwrap_or_else(|_| panic!("{reply}"));
            let found = cursor.get_array(batch).unwrap();
            if found.is_empty() && batch == "nextBatch" {
                return Ok((changes, cursor.get_document("postBatchResumeToken").unwrap().clone()));
            }
            changes.extend(found.iter().map(|change| change.as_document().unwrap().clone()));
            batch = "nextBatch";
            reply =
                self.command(doc! { "getMore": id, "collection": "Total", "$db": "docs", "maxTimeMS": 200 });
        }
    }
}

/// Checks that changes raise each total by one, and notes where they have come.
fn follow_totals(changes: &[Document], totals: &mut BTreeMap<String, i64>) {
    for change in changes {
        let id = change.get_document("documentKey").unwrap().get_str("_id").unwrap().to_owned();
        let fields = match change.get_str("operationType").unwrap() {
            "insert" => change.get_document("fullDocument").unwrap(),
            _ => change.get_document("updateDescription").unwrap().get_document("updatedFields").unwrap(),
        };
        let n = fields.get("n").unwrap();
        let n = n.as_i64().or_else(|| n.as_i32().map(i64::from)).unwrap_or_else(|| panic!("{change}"));
        let before = totals.insert(id.clone(), n).unwrap_or_default();
        assert_eq!(n, before + 1, "a change of {id} is missing, or comes twice: {change}");
    }
}

impl Cluster {
    fn single(&self, more: &[&str]) -> Node {
        let data = self.data("single");
        let app = self.app.display().to_string();
        let arguments = ["run", &app, "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
        let mut command = tidemill(&arguments);
        command.args(more);
        self.add_credentials(&mut command);
        Node { name: "single".into(), serving: served(command, &data, "Serving ") }
    }

    pub(super) fn stop_single(node: Node) {
        let mut node = node;
        interrupt(node.serving.child.id());
        assert!(node.serving.child.wait().unwrap().success());
    }

    /// Returns the command that makes the single node the beginning of the cluster.
    pub(super) fn create(&self) -> Command {
        let log = format!("kafka://{}/{}?replication=1", self.kafka.address("SERVERS_KAFKA"), self.topic);
        let store = format!("s3://tidemill/{}", self.topic);
        let from = self.data("single").display().to_string();
        let mut command =
            tidemill(&["cluster", "create", "--from", &from, "--cluster", &log, "--store", &store]);
        command.arg("--unsafe-single-broker");
        self.add_credentials(&mut command);
        command
    }

    fn add_credentials(&self, command: &mut Command) {
        command.env("AWS_ENDPOINT", self.s3.address("SERVERS_S3")).env("AWS_ALLOW_HTTP", "true");
        command.env("AWS_ACCESS_KEY_ID", "tidemill").env("AWS_SECRET_ACCESS_KEY", "tidemill");
    }

    pub(super) fn start_with(&self, name: &str, more: &[&str]) -> Node {
        let more = [&["--unsafe-single-broker"], more].concat();
        let serving = served(self.command(name, &more), &self.data(name), "Ready: ");
        assert!(serving.base.starts_with("http://"), "the node {name} does not start");
        Node { name: name.to_owned(), serving }
    }
}

pub(super) fn succeeds(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

pub(super) fn refused(mut command: Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    String::from_utf8(output.stderr).unwrap()
}

impl Node {
    fn send_one(&self, id: &str, customer: &str, amount: u64) {
        let body = format!("{{\"id\":\"{id}\",\"customer\":\"{customer}\",\"amount\":{amount}}}\n");
        let url = format!("{}/api/v1/streams/Order?wait=true", self.serving.base);
        let token = format!("Bearer {}", self.serving.token);
        let request =
            ureq::post(url).header("authorization", token).header("content-type", "application/x-ndjson");
        let reply: Value = request.send(body).unwrap().body_mut().read_json().unwrap();
        assert_eq!(reply["accepted"], 1, "{reply}");
    }

    fn send_to(&self, stream: &str, from: u64, n: u64) {
        let event = |i| format!("{{\"id\":\"o{i}\",\"customer\":\"c\",\"amount\":1}}\n");
        let url = format!("{}/api/v1/streams/{stream}?wait=true", self.serving.base);
        let token = format!("Bearer {}", self.serving.token);
        let request =
            ureq::post(url).header("authorization", token).header("content-type", "application/x-ndjson");
        let body: String = (from..from + n).map(event).collect();
        let reply: Value = request.send(body).unwrap().body_mut().read_json().unwrap();
        assert_eq!(reply["accepted"], n, "{reply}");
    }

    fn waiting(&self) -> u64 {
        let token = format!("Bearer {}", self.serving.token);
        let request = ureq::get(format!("{}/api/v1/sinks", self.serving.base)).header("authorization", token);
        let sinks: Value = request.call().unwrap().body_mut().read_json().unwrap();
        sinks
            .as_array()
            .unwrap_or_else(|| panic!("{sinks}"))
            .iter()
            .map(|sink| sink["waiting"].as_u64().unwrap())
            .sum()
    }
}

#[test]
fn a_directory_continues_as_a_cluster() {
    if let Some(cluster) = Cluster::new() {
        continues_as_a_cluster(&cluster);
    }
}

#[test]
fn a_directory_continues_as_a_cluster_with_some_replicas() {
    if let Some(cluster) = Cluster::with_some_replicas() {
        continues_as_a_cluster(&cluster);
    }
}

fn continues_as_a_cluster(cluster: &Cluster) {
    let receiver = Receiver::new();
    let queries = QUERIES.replace("RECEIVER", &receiver.port.to_string());
    std::fs::write(cluster.app.join("queries.siddhi"), queries).unwrap();
    let port = free_port().to_string();
    let mongo = ["--mongo", &format!("127.0.0.1:{port}"), "--mongo-without-login"].map(str::to_owned);
    let mongo = mongo.each_ref().map(String::as_str);

    let single = cluster.single(&mongo);
    let mut driver = Mongo::connect(port.parse().unwrap());
    // changes are kept from the first change stream on
    let (none, begin) = driver.changes(None).unwrap();
    assert_eq!(none, []);
    single.send(0, 20);
    wait_until("all is audited", || single.sql("SELECT sum(n) AS n FROM docs.\"Total\"")[0]["n"] == 20);
    let mut totals = BTreeMap::new();
    let (seen, token) = driver.changes(Some(begin.clone())).unwrap();
    follow_totals(&seen, &mut totals);
    assert_eq!(totals.values().sum::<i64>(), 20);
    wait_until("the sums are delivered", || receiver.received() == 20);
    // the rest waits, in the change stream and for the other system; a pattern and a window are in progress
    receiver.is_open.store(false, Ordering::Release);
    single.send(20, 6);
    let sums = || single.sql("SELECT count(*) AS n FROM events.\"Sums\"")[0]["n"].as_u64().unwrap();
    // partitions are applied beside each other: the next one is sent when the window has the one before
    for (n, (id, amount)) in (26..).zip([("w1", 10), ("w2", 20), ("w3", 30), ("big", 900)]) {
        wait_until("the window has the former orders", || sums() == n);
        single.send_one(id, "zed", amount);
    }
    single.check(30);
    wait_until("sums wait", || single.waiting() == 10);
    let text = refused(cluster.create());
    assert!(text.contains("has this data directory open"), "{text}");
    let ledger = "SELECT stream, stored, duplicate FROM system.ledger ORDER BY stream";
    let before = single.sql(ledger);
    Cluster::stop_single(single);

    let text = succeeds(cluster.create());
    assert!(text.contains("tables with") && text.contains("tidemill run APP --data NEW"), "{text}");
    // another run has nothing to do, and the directory does not start as a second truth
    succeeds(cluster.create());
    let (_, text) = run(&["serve", "--data", cluster.data("single").to_str().unwrap()], 1);
    assert!(text.contains("has become the cluster") && text.contains("grown.json"), "{text}");

    let (port_a, port_b) = (free_port(), free_port());
    let mongo_at =
        |port: u16| ["--mongo".into(), format!("127.0.0.1:{port}"), "--mongo-without-login".into()];
    let start = |name: &str, port: u16| {
        let more = mongo_at(port);
        cluster.start_with(name, &more.each_ref().map(|part: &String| part.as_str()))
    };
    let mut nodes = vec![start("a", port_a), start("b", port_b)];
    nodes[0].wait_for_owners(&["a", "b"]);
    for node in &nodes {
        assert_eq!(node.sql(ledger), before, "{}", node.name);
        node.check(30);
    }
    // what was waiting is delivered once
    receiver.is_open.store(true, Ordering::Release);
    wait_until("the rest of the sums is delivered", || receiver.received() == 30);
    // events that were there are recognized
    nodes[1].send(0, 20);
    nodes[0].check(30);
    let duplicates = "SELECT duplicate FROM system.ledger WHERE stream = 'Order'";
    assert_eq!(nodes[0].sql(duplicates)[0]["duplicate"], 20);
    // the pattern and the window continue
    nodes[1].send_one("pair", "zed", 0);
    nodes[0].check(31);
    wait_until("the pattern has matched", || {
        nodes[0].sql("SELECT first, second FROM events.\"Pairs\"")
            == json!([{"first": "big", "second": "pair"}])
    });
    let window = "SELECT n, total FROM events.\"Sums\" ORDER BY _time DESC, _offset DESC, _row DESC LIMIT 1";
    // four of the five orders in it were sent to the directory
    assert_eq!(nodes[1].sql(window), json!([{"n": 5, "total": 960.0}]));
    wait_until("the new sum is delivered", || receiver.received() == 31);
    // the change stream is resumed across the growth, at each node and with tokens of the directory
    for port in [port_a, port_b] {
        let mut driver = Mongo::connect(port);
        let mut resumed = totals.clone();
        let (changes, after) = driver.changes(Some(token.clone())).unwrap();
        follow_totals(&changes, &mut resumed);
        assert_eq!(resumed.values().sum::<i64>(), 31);
        let (changes, _) = driver.changes(Some(after)).unwrap();
        assert_eq!(changes, [], "the token behind them is one of the cluster");
        let mut all = BTreeMap::new();
        follow_totals(&driver.changes(Some(begin.clone())).unwrap().0, &mut all);
        assert_eq!(all, resumed);
    }
    // one of the two is lost
    let owner = nodes[0].cluster()["partitions"][0]["owner"].as_str().unwrap().to_owned();
    let at = nodes.iter().position(|node| node.name == owner).unwrap();
    nodes.remove(at).serving.kill();
    nodes[0].wait_for_owners(&[&nodes[0].name]);
    nodes[0].send(100, 20);
    nodes[0].check(51);
    wait_until("all sums are delivered", || receiver.received() >= 51);
    let wrong = "SELECT * FROM system.ledger WHERE NOT balanced";
    assert_eq!(nodes[0].sql(wrong), json!([]));
}

#[test]
fn a_growth_that_cannot_be_right_is_refused_before_anything_is_written() {
    let Some(cluster) = Cluster::new() else { return };
    let settings = |text: &str| std::fs::write(cluster.app.join("app.toml"), text).unwrap();
    settings("[settings]\npartitions = 2\n");
    let single = cluster.single(&[]);
    single.send(0, 10);
    Cluster::stop_single(single);
    let kafka = cluster.kafka.address("SERVERS_KAFKA");
    let with = |option: &str, value: &str| {
        let mut command = tidemill(&["cluster", "create"]);
        let defaults = cluster.create();
        let arguments: Vec<String> =
            defaults.get_args().skip(2).map(|part| part.to_str().unwrap().to_owned()).collect();
        let at = arguments.iter().position(|part| part == option).unwrap();
        for (n, argument) in arguments.iter().enumerate() {
            command.arg(if n == at + 1 { value } else { argument });
        }
        defaults.get_envs().for_each(|(name, value)| match value {
            Some(value) => _ = command.env(name, value),
            None => _ = command.env_remove(name),
        });
        command
    };
    let topic = |name: &str| format!("kafka://{kafka}/{name}-{}?replication=1", cluster.topic);
    let local = |topic: &str, data: &str, partitions: &str| {
        settings(&format!("[settings]\npartitions = {partitions}\n"));
        let data = cluster.data(data);
        let app = cluster.app.display().to_string();
        let arguments =
            ["run", &app, "--data", data.to_str().unwrap(), "--log", topic, "--listen", "127.0.0.1:0"];
        let node = Node { name: "local".into(), serving: served(tidemill(&arguments), &data, "Serving ") };
        node.send(0, 10);
        Cluster::stop_single(node);
        settings("[settings]\npartitions = 2\n");
    };

    // topics of others
    local(&topic("used"), "used", "2");
    let text = refused(with("--cluster", &topic("used")));
    assert!(text.contains("is in use: the next record of partition"), "{text}");
    local(&topic("other"), "other", "3");
    let text = refused(with("--cluster", &topic("other")));
    assert!(text.contains("the topic has 3 partitions, 2 are asked for"), "{text}");
    // the log of that directory is in Kafka
    let text = refused(with("--from", cluster.data("used").to_str().unwrap()));
    assert!(text.contains("no log in files"), "{text}");
    // stores
    let mut command = cluster.create();
    command.env("AWS_SECRET_ACCESS_KEY", "wrong");
    let text = refused(command);
    assert!(text.contains("cannot be used") && text.contains("credentials"), "{text}");
    let text = refused(with("--store", "nowhere://x"));
    assert!(text.contains("nowhere"), "{text}");
    // the directory of a single node is not one of a cluster
    let text = refused(cluster.command("single", &["--unsafe-single-broker"]));
    assert!(text.contains("tidemill cluster create"), "{text}");
    let text = refused(with("--from", cluster.data("nothing").to_str().unwrap()));
    assert!(text.contains("is no data directory"), "{text}");

    // what nodes of a cluster do not run
    let file_sink = "@sink(type='file', file.uri='audits.json', @map(type='json'))
        define stream Audited (amount_class string);";
    std::fs::write(cluster.app.join("audits.siddhi"), file_sink).unwrap();
    Cluster::stop_single(cluster.single(&[]));
    let text = refused(cluster.create());
    assert!(text.contains("sinks of the type `file`"), "{text}");
    std::fs::remove_file(cluster.app.join("audits.siddhi")).unwrap();
    Cluster::stop_single(cluster.single(&[]));

    // none of it has changed anything
    let single = cluster.single(&[]);
    single.check(10);
    Cluster::stop_single(single);
    succeeds(cluster.create());
    // the store is in use now
    settings("[settings]\npartitions = 2\n");
    let other = cluster.data("other-single");
    let app = cluster.app.display().to_string();
    run(&["run", &app, "--data", other.to_str().unwrap(), "--until-idle"], 0);
    let mut command = with("--from", other.to_str().unwrap());
    command.args(["--cluster", &topic("third")]);
    let text = refused(with_last(&command));
    assert!(text.contains("a cluster is there, made from the directory"), "{text}");
    // a node with another store does not begin without the state
    let mut command = cluster.command("lost", &["--unsafe-single-broker"]);
    command.args(["--store", &format!("s3://tidemill/{}-empty", cluster.topic)]);
    let text = refused(with_last(&command));
    assert!(text.contains("it continues a data directory"), "{text}");
    // and the first one runs the app of the directory
    std::fs::write(cluster.app.join("more.rules"), "event More { id: string } key id;").unwrap();
    let text = refused(cluster.command("changed", &["--unsafe-single-broker"]));
    assert!(text.contains("ran the app"), "{text}");
    std::fs::remove_file(cluster.app.join("more.rules")).unwrap();
    cluster.start("a").check(10);
}

/// Returns the command with the last value of each option.
fn with_last(command: &Command) -> Command {
    let arguments: Vec<&str> = command.get_args().map(|part| part.to_str().unwrap()).collect();
    let mut kept: Vec<&str> = Vec::new();
    for (n, argument) in arguments.iter().enumerate() {
        let is_option =
            argument.starts_with("--") && arguments.get(n + 1).is_some_and(|next| !next.starts_with("--"));
        let comes_again = is_option && arguments[n + 1..].contains(argument);
        let is_value_of_dropped = n > 0 && {
            let option = arguments[n - 1];
            option.starts_with("--") && !argument.starts_with("--") && arguments[n..].contains(&option)
        };
        if !comes_again && !is_value_of_dropped {
            kept.push(argument);
        }
    }
    let mut last = tidemill(&kept);
    command.get_envs().for_each(|(name, value)| match value {
        Some(value) => _ = last.env(name, value),
        None => _ = last.env_remove(name),
    });
    last
}

#[test]
fn flights_that_begin_at_a_single_node_come_out_as_on_one_node() {
    let Some(cluster) = Cluster::new() else { return };
    let cluster = Cluster { app: crate::root().join("examples/flights"), ..cluster };
    let expected = crate::root().join("examples/flights/data/expected.json");
    let expected: Value = serde_json::from_str(&std::fs::read_to_string(expected).unwrap()).unwrap();
    let app = cluster.app.display().to_string();
    let data = cluster.data("single");
    let arguments = ["run", &app, "--data", data.to_str().unwrap(), "--listen", "127.0.0.1:0"];
    // it serves before its sources have ended
    let serving = served(tidemill(&arguments), &data, "Listening on ");
    let single = Node { name: "single".into(), serving };
    let take_offs = expected["events"]["TakeOffEvent"].as_u64().unwrap();
    wait_until("a part of the flights is there", || single.stored("TakeOffEvent") > take_offs / 4);
    let stored = single.stored("TakeOffEvent");
    // a crash: the growth applies what is in the log
    drop(single);
    assert!(stored < take_offs, "the sources have a rest to read");

    succeeds(cluster.create());
    let nodes = [cluster.start("a"), cluster.start("b")];
    for node in &nodes {
        let late = "SELECT sum(late) AS n FROM docs.\"DelayRecord\"";
        wait_until("all is counted", || {
            node.stored("TakeOffEvent") == take_offs
                && node.sql(late)[0]["n"].as_f64() == expected["late_takeoffs"].as_f64()
        });
        for stream in ["TakeOffEvent", "LandingEvent", "CancelEvent"] {
            let count = node.sql(&format!("SELECT count(*) AS n FROM events.\"{stream}\""))[0]["n"].clone();
            assert_eq!(count, expected["events"][stream], "{stream} at {}", node.name);
        }
        let wrong = "SELECT * FROM system.ledger WHERE NOT balanced OR duplicate > 0";
        assert_eq!(node.sql(wrong), json!([]), "{}", node.name);
    }
}

#[test]
fn tables_in_an_object_store_stay_or_are_copied_and_former_streams_are_kept() {
    for place in ["tables", "former-tables"] {
        let Some(cluster) = Cluster::new() else { return };
        let settings = format!(
            "[settings]\npartitions = 2\nflush_interval = '100ms'\ntables = 's3://tidemill/{}/{place}'\n",
            cluster.topic
        );
        std::fs::write(cluster.app.join("app.toml"), settings).unwrap();
        let former = "event Former { id: string, customer: string, amount: double } key id;";
        std::fs::write(cluster.app.join("former.rules"), former).unwrap();
        let single = cluster.single(&[]);
        single.send(0, 40);
        single.send_to("Former", 0, 7);
        single.check(40);
        Cluster::stop_single(single);
        std::fs::remove_file(cluster.app.join("former.rules")).unwrap();
        // many starts make the epoch of the directory later than those that a new cluster begins with
        for _ in 0..5 {
            Cluster::stop_single(cluster.single(&[]));
        }
        let text = succeeds(cluster.create());
        assert_eq!(text.contains("The tables stay in"), place == "tables", "{text}");
        assert_eq!(text.contains("are copied to"), place != "tables", "{text}");
        let node = cluster.start("a");
        node.check(40);
        assert_eq!(node.sql("SELECT count(*) AS n FROM events.\"Former\"")[0]["n"], 7);
        node.send(40, 20);
        node.check(60);
        let in_files = "SELECT sum(rows) AS n FROM system.zones WHERE stream = 'Order'";
        wait_until("the node has written files", || node.sql(in_files)[0]["n"] == 60);
        // one that has nothing of it
        cluster.start("b").check(60);
    }
}

#[test]
fn an_encrypted_directory_is_refused() {
    let Some(cluster) = Cluster::new() else { return };
    let keys = cluster.dir.path().join("keys");
    std::fs::write(&keys, run(&["keys", "new", "one"], 0).0).unwrap();
    let settings =
        format!("[settings]\npartitions = 2\n[settings.encryption]\nkey_file = '{}'\n", keys.display());
    std::fs::write(cluster.app.join("app.toml"), settings).unwrap();
    Cluster::stop_single(cluster.single(&[]));
    let text = refused(cluster.create());
    assert!(text.contains("it is encrypted"), "{text}");
    Cluster::stop_single(cluster.single(&[]));
}

/// Steps that a growth announces: at each of them it may be interrupted.
const STEPS: [&str; 8] = [
    "note in the store",
    "copy the tables",
    "copy a table",
    "publish a partition",
    "note in the directory",
    "write beside",
    "create the log",
    "let nodes start",
];

#[test]
fn a_growth_that_is_interrupted_is_continued_and_no_half_of_it_starts() {
    for step in STEPS {
        let Some(cluster) = Cluster::new() else { return };
        let app = "event Order { id: string, amount: double } key id id id;";
        std::fs::write(cluster.app.join("shop.rules"), app).unwrap();
        std::fs::write(cluster.app.join("app.toml"), "[settings]\npartitions = 2\n").unwrap();
        interrupted_at(&cluster, step);
    }
}

fn interrupted_at(cluster: &Cluster, step: &'static str) {
    let dir = cluster.data("single");
    let store = format!("file://{}", cluster.dir.path().join("store").display());
    let log = format!("kafka://{}/{}?replication=1", cluster.kafka.address("SERVERS_KAFKA"), cluster.topic);
    let send = |from: u64| {
        let app = tidemill::App::read(&cluster.app, &[]).unwrap();
        let tidemill = Tidemill::open_with(&dir, app).unwrap();
        for n in from..from + 20 {
            tidemill.send("Order", &json!({"id": format!("o{n}"), "amount": 1.5})).unwrap();
        }
        tidemill.close().unwrap();
    };
    send(0);
    let is_interrupted = {
        let (dir, store) = (dir.clone(), store.clone());
        let url = format!("{log}&requirements=unsafe_single_broker");
        let grow = move || {
            let logs = tidemill::cluster_logs(&url).unwrap();
            let is_there = move |text: &str| match step {
                "write beside" => text.starts_with(step) && text.ends_with("grown.json"),
                _ => text.starts_with(step),
            };
            let crash = move |text: &str| assert!(!is_there(text), "interrupted");
            let builder = Engine::builder(&dir).log(Arc::new(LogAtUrl::default()));
            crash_points::watch(crash, || builder.grow(&*logs, &store).map(drop))
        };
        std::thread::scope(|scope| scope.spawn(grow).join()).is_err()
    };
    assert!(is_interrupted, "{step}: the growth does not come to this step");
    let command = |arguments: &[&str]| {
        let mut command = tidemill(arguments);
        command.args(["--cluster", &log, "--store", &store, "--unsafe-single-broker"]);
        command
    };
    let (app, node) = (cluster.app.display().to_string(), cluster.data("a"));
    let node_arguments =
        ["run", &app, "--data", node.to_str().unwrap(), "--node", "a", "--listen", "127.0.0.1:0"];
    let has_begun = dir_has(cluster.dir.path(), "store/state/growing.json");
    assert_eq!(has_begun, step != "note in the store", "{step}");
    if has_begun {
        let text = refused(command(&node_arguments));
        assert!(text.contains("is becoming this cluster"), "{step}: {text}");
    }
    let mut sent = 20;
    match dir_has(&dir, "grown.json") {
        true => assert!(Tidemill::open(&dir).is_err(), "{step}"),
        false => {
            send(sent);
            sent += 20;
        }
    }
    let from = dir.display().to_string();
    succeeds(command(&["cluster", "create", "--from", &from]));
    assert!(Tidemill::open(&dir).is_err(), "{step}");
    let serving = served(command(&node_arguments), &node, "Ready: ");
    let node = Node { name: "a".into(), serving };
    let counts = "SELECT count(*) AS n, count(DISTINCT id) AS ids FROM events.\"Order\"";
    assert_eq!(node.sql(counts), json!([{"n": sent, "ids": sent}]), "{step}");
    let wrong = "SELECT * FROM system.ledger WHERE NOT balanced";
    assert_eq!(node.sql(wrong), json!([]), "{step}");
}

fn dir_has(dir: &Path, name: &str) -> bool {
    dir.join(name).exists()
}
