//! Tables of apps in Redis, as `@store(type='redis')` makes them.

use std::sync::Arc;

use arrow_array::RecordBatch;
use redis::Value as RedisValue;
use tidemill_connect::{
    StoreArithmetic, StoreComparison, StoreConfig, StoreContext, StoreExpr, StoreMonitor, StoreUpdate,
    TableStore, WritePosition, runtime,
};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{
    ErrorKind, Field, FieldType, Offset, PartitionId, StreamSchema, Timestamp, Value, row_value,
};

use crate::helpers::{free_port, wait_until};
use crate::servers;

const COLUMNS: [(&str, FieldType); 3] =
    [("symbol", FieldType::String), ("volume", FieldType::Long), ("price", FieldType::Float)];

fn name() -> String {
    uuid::Uuid::new_v4().simple().to_string()
}

fn schema() -> Arc<StreamSchema> {
    let fields = COLUMNS.map(|(name, ty)| Field::new(name, ty)).into();
    Arc::new(StreamSchema { name: "T".into(), fields, key: None, id: vec![], time: None })
}

/// Table with these columns as primary key and an index of the volume.
struct Table {
    url: String,
    name: String,
    store: Box<dyn TableStore>,
}

fn try_open(
    name: &str,
    options: &[(&str, &str)],
    primary_key: &[usize],
    monitor: &Arc<StoreMonitor>,
) -> Result<Box<dyn TableStore>, String> {
    let context = StoreContext {
        table: name.into(),
        writer: "stocks.siddhi".into(),
        schema: schema(),
        primary_key: primary_key.into(),
        indexes: vec![1],
        special_indexes: vec![],
        long_texts: vec![],
        monitor: monitor.clone(),
    };
    let options = options.iter().map(|(n, v)| ((*n).into(), (*v).into())).collect();
    let config = StoreConfig { kind: "redis".into(), options };
    tidemill_connectors::catalog().create_store(&config, &context).map_err(|e| e.to_string())
}

impl Table {
    fn open(url: &str, name: &str, primary_key: &[usize], extra: &[(&str, &str)]) -> Self {
        let nodes = url.trim_start_matches("redis://");
        let options = [&[("nodes", nodes)], extra].concat();
        let store = try_open(name, &options, primary_key, &Arc::default()).unwrap();
        Self { url: url.into(), name: name.into(), store }
    }

    fn insert(&mut self, rows: &[(&str, i64)], at: Option<WritePosition>) -> Vec<usize> {
        self.store.insert(&stocks(rows), at).unwrap().iter().map(|refused| refused.row).collect()
    }

    /// Returns rows as `symbol volume`, sorted.
    fn find(&mut self, condition: Option<&StoreExpr>, given: (&str, i64)) -> Vec<String> {
        let rows = self.store.find(condition, &stocks(&[given]), None).unwrap();
        let cell = |column, row| match row_value(&rows, column, row) {
            Value::Str(text) => text.to_string(),
            value => value.to_string(),
        };
        let mut rows: Vec<_> =
            (0..rows.num_rows()).map(|row| format!("{} {}", cell(0, row), cell(1, row))).collect();
        rows.sort();
        rows
    }

    fn all(&mut self) -> Vec<String> {
        self.find(None, ("", 0))
    }

    /// Runs a command of another client; `T` stands for the name of the table.
    fn command(&self, words: &str) -> RedisValue {
        runtime().block_on(async {
            let client = redis::Client::open(self.url.as_str()).unwrap();
            let mut connection = client.get_multiplexed_async_connection().await.unwrap();
            let mut command = redis::Cmd::new();
            for word in words.split(' ') {
                command.arg(word.replace("T:", &format!("{}:", self.name)));
            }
            command.query_async(&mut connection).await.unwrap()
        })
    }

    fn number(&self, words: &str) -> i64 {
        match self.command(words) {
            RedisValue::Int(n) => n,
            other => panic!("{other:?}"),
        }
    }
}

fn stocks(rows: &[(&str, i64)]) -> RecordBatch {
    let mut batch = BatchBuilder::new(schema());
    for (symbol, volume) in rows {
        let symbol = if *symbol == "null" { FieldValue::Missing } else { FieldValue::Text((*symbol).into()) };
        batch.push_values(&[symbol, FieldValue::Int(*volume), FieldValue::Float(1.5)], Timestamp(0)).unwrap();
    }
    batch.finish()
}

fn at(offset: u64, call: u32) -> Option<WritePosition> {
    Some(WritePosition { partition: PartitionId(0), offset: Offset(offset), call })
}

fn column(column: usize) -> Box<StoreExpr> {
    Box::new(StoreExpr::Column(column))
}

fn parameter(parameter: usize) -> Box<StoreExpr> {
    Box::new(StoreExpr::Parameter(parameter))
}

fn is(of: usize) -> StoreExpr {
    StoreExpr::Compare(StoreComparison::Eq, column(of), parameter(of))
}

/// Adds the parameter to the volume.
fn adding(condition: StoreExpr) -> StoreUpdate {
    StoreUpdate {
        condition,
        set: vec![(1, StoreExpr::Arithmetic(StoreArithmetic::Add, column(1), parameter(1)))],
    }
}

#[test]
fn rows_are_found_and_changed_in_order() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    let mut table = Table::open(url, &name(), &[0], &[]);
    assert_eq!(table.insert(&[("A", 1), ("B", 2), ("A", 3), ("null", 1), ("C", 2)], at(1, 0)), [2, 3]);
    assert_eq!(table.all(), ["A 1", "B 2", "C 2"]);
    assert_eq!(table.find(Some(&is(0)), ("B", 0)), ["B 2"]);
    assert_eq!(table.find(Some(&is(0)), ("b", 0)), [""; 0]);
    assert_eq!(table.find(Some(&is(1)), ("", 2)), ["B 2", "C 2"]);
    let more = StoreExpr::Compare(StoreComparison::Gt, column(1), parameter(1));
    let both =
        |left: &StoreExpr, right: &StoreExpr| StoreExpr::And(left.clone().into(), right.clone().into());
    assert_eq!(table.find(Some(&both(&more, &is(0))), ("B", 1)), ["B 2"]);
    assert_eq!(table.find(Some(&both(&is(0), &more)), ("B", 2)), [""; 0]);
    let either = StoreExpr::Or(is(0).into(), is(1).into());
    assert_eq!(table.find(Some(&either), ("A", 2)), ["A 1", "B 2", "C 2"]);
    assert_eq!(table.store.find(None, &stocks(&[("", 0)]), Some(2)).unwrap().num_rows(), 2);
    let error = table.store.find(Some(&more), &stocks(&[("", 0)]), None).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(
        text.contains("compare the primary key (`symbol`) or a column with an index (`volume`) by `==`"),
        "{text}"
    );

    let events = stocks(&[("A", 10), ("none", 1), ("A", 20)]);
    assert_eq!(table.store.update(&adding(is(0)), &events, None, at(2, 0)).unwrap(), []);
    assert_eq!(table.all(), ["A 31", "B 2", "C 2"]);
    // rows that an earlier event has put into the set of an index, or taken out, count as changed
    let events = stocks(&[("", 2), ("", 4), ("", 2)]);
    assert_eq!(table.store.update(&adding(is(1)), &events, None, at(3, 0)).unwrap(), []);
    assert_eq!(table.all(), ["A 31", "B 8", "C 8"]);
    assert_eq!(table.find(Some(&is(1)), ("", 8)), ["B 8", "C 8"]);
    assert_eq!(table.number("EXISTS T:volume:2 T:volume:4"), 0);

    let replace = StoreUpdate { condition: is(0), set: vec![(1, StoreExpr::Parameter(1))] };
    let events = stocks(&[("D", 5), ("B", 7), ("D", 6), ("null", 1)]);
    let refused = table.store.update(&replace, &events, Some(&events), at(4, 0)).unwrap();
    assert_eq!(refused.iter().map(|refused| refused.row).collect::<Vec<_>>(), [3], "{refused:?}");
    assert_eq!(table.all(), ["A 31", "B 7", "C 8", "D 6"]);

    // a row gets another key, unless there is one
    let rename = StoreUpdate { condition: is(1), set: vec![(0, StoreExpr::Parameter(0))] };
    let events = stocks(&[("E", 7), ("A", 8)]);
    let refused = table.store.update(&rename, &events, None, at(5, 0)).unwrap();
    assert!(refused.len() == 1 && refused[0].reason.contains("same primary key"), "{refused:?}");
    assert_eq!(table.all(), ["A 31", "C 8", "D 6", "E 7"]);

    assert_eq!(
        table.store.delete(Some(&is(0)), &stocks(&[("A", 0), ("D", 0), ("x", 0)]), at(6, 0)).unwrap(),
        []
    );
    assert_eq!(table.store.delete(Some(&is(1)), &stocks(&[("", 7)]), at(7, 0)).unwrap(), []);
    assert_eq!(table.all(), ["C 8"]);
    assert_eq!(table.store.delete(None, &stocks(&[("", 7)]), at(8, 0)).unwrap(), []);
    assert_eq!(table.all(), [""; 0]);
    assert_eq!(table.number("EXISTS T:volume:8 T:volume:7 T:C"), 0);
}

#[test]
fn a_record_that_is_applied_again_changes_nothing() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    let name = name();
    for _ in 0..2 {
        // without a primary key each insert makes another row
        let mut table = Table::open(url, &name, &[], &[]);
        for call in 0..3 {
            assert_eq!(table.insert(&[(["A", "B", "C"][call as usize], 1)], at(7, call)), [0; 0]);
        }
        assert_eq!(table.all(), ["A 1", "B 1", "C 1"]);
        let mut keyed = Table::open(url, &format!("{name}-keyed"), &[0], &[]);
        assert_eq!(keyed.insert(&[("A", 1), ("A", 2)], at(8, 0)), [1]);
        assert_eq!(keyed.insert(&[("B", 1)], at(8, 1)), [0; 0]);
        assert_eq!(keyed.insert(&[("A", 1)], at(7, 0)), [0; 0]);
        assert_eq!(keyed.all(), ["A 1", "B 1"]);
    }
}

/// The server is killed again and again while records count rows up.
#[test]
fn writes_happen_once_when_the_server_is_killed() {
    let Some(server) = servers::own("redis") else { return };
    let url = server.address("SERVERS_REDIS").to_owned();
    let mut table = Table::open(&url, &name(), &[0], &[]);
    table.insert(&[("A", 0), ("B", 0)], at(0, 0));
    let writer = std::thread::spawn(move || {
        for offset in 1..=500 {
            let events = stocks(&[("A", 1), ("B", 2), ("A", 1)]);
            assert_eq!(table.store.update(&adding(is(0)), &events, None, at(offset, 0)).unwrap(), []);
        }
        table.all()
    });
    for _ in 0..3 {
        std::thread::sleep(std::time::Duration::from_millis(150));
        server.kill();
        server.start_again();
    }
    assert_eq!(writer.join().unwrap(), ["A 1000", "B 1000"]);
}

#[test]
fn changes_of_other_clients_are_not_lost() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    let name = name();
    Table::open(url, &name, &[0], &[]).insert(&[("A", 0)], None);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut table = Table::open(url, &name, &[0], &[]);
                for _ in 0..200 {
                    table.store.update(&adding(is(0)), &stocks(&[("A", 1)]), None, None).unwrap();
                }
            });
        }
    });
    let mut table = Table::open(url, &name, &[0], &[]);
    assert_eq!(table.all(), ["A 600"]);
    assert_eq!(table.find(Some(&is(1)), ("", 600)), ["A 600"]);
}

#[test]
fn keys_are_those_of_siddhi() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    let mut table = Table::open(url, &name(), &[0], &[]);
    table.insert(&[("A", 5)], None);
    assert_eq!(table.number("HLEN T:A"), 3);
    assert_eq!(table.number("SISMEMBER T:volume:5 T:A"), 1);
    // as Siddhi's store writes it, with an empty text for null
    table.command("HSET T:B symbol B volume 6 price 1.0E10");
    table.command("SADD T:volume:6 T:B");
    table.command("HSET T:C symbol C volume  price 2.5");
    // something else with a name that looks like a row
    table.command("HSET T:x:y field value");
    table.command("SET T:D text");
    assert_eq!(table.find(Some(&is(1)), ("", 6)), ["B 6"]);
    assert_eq!(table.all(), ["A 5", "B 6", "C missing"]);
    let refused = table.store.insert(&stocks(&[("D", 1), ("E", 1)]), None).unwrap();
    assert!(refused.len() == 1 && refused[0].reason.contains("belongs to something else"), "{refused:?}");
    // a value that does not have the type of the column
    table.command("HSET T:F symbol F volume many");
    let error = table.store.find(Some(&is(0)), &stocks(&[("F", 0)]), None).unwrap_err().to_string();
    assert!(error.contains("has `many` in the field `volume`; expected a value of type long"), "{error}");
    // the parts of a key of several columns stay apart
    let mut table = Table::open(url, &name(), &[0, 1], &[("table.name", "composite*[x]")]);
    table.store.delete(None, &stocks(&[("", 0)]), None).unwrap();
    assert_eq!(table.insert(&[("a:1", 2), ("a", 12), ("a\\", 1), ("a:1", 2)], None), [3]);
    assert_eq!(table.all(), ["a 12", "a:1 2", "a\\ 1"]);
    let key = StoreExpr::And(is(0).into(), is(1).into());
    assert_eq!(table.find(Some(&key), ("a:1", 2)), ["a:1 2"]);
}

#[test]
fn rows_expire() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    for (on_update, on_read) in [("false", "false"), ("true", "false"), ("false", "true")] {
        let options = [("ttl.seconds", "1000"), ("ttl.on.update", on_update), ("ttl.on.read", on_read)];
        let mut table = Table::open(url, &name(), &[0], &options);
        table.insert(&[("A", 1)], None);
        let is_new = |n: i64| (900..=1000).contains(&n);
        assert!(is_new(table.number("TTL T:A")) && is_new(table.number("TTL T:volume:1")));
        table.command("EXPIRE T:A 100");
        table.store.update(&adding(is(0)), &stocks(&[("A", 0)]), None, None).unwrap();
        assert_eq!(is_new(table.number("TTL T:A")), on_update == "true");
        table.command("EXPIRE T:A 100");
        table.all();
        assert_eq!(is_new(table.number("TTL T:A")), on_read == "true");
        // a row that has expired leaves its index
        table.command("DEL T:A");
        assert_eq!(table.find(Some(&is(1)), ("", 1)), [""; 0]);
        table.store.update(&adding(is(1)), &stocks(&[("", 1)]), None, None).unwrap();
        assert_eq!(table.number("EXISTS T:volume:1"), 0);
    }
}

#[test]
fn a_call_waits_for_the_server_until_it_is_stopped() {
    let address = format!("127.0.0.1:{}", free_port());
    let nodes = format!("{address}@hunter2");
    let monitor = Arc::new(StoreMonitor::default());
    let mut store = try_open("down", &[("nodes", &nodes)], &[0], &monitor).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| store.insert(&stocks(&[("A", 1)]), at(0, 0)));
        wait_until("the problem is told", || monitor.problems().contains_key("down"));
        let problem = monitor.problems().remove("down").unwrap();
        assert!(problem.contains(&address) && !problem.contains("hunter2"), "{problem}");
        monitor.stop();
        assert_eq!(waiting.join().unwrap().unwrap_err().kind(), ErrorKind::Unavailable);
    });
}

#[test]
fn logins_work_and_wrong_ones_keep_their_secret() {
    let Some(server) = servers::shared("redis") else { return };
    let url = server.address("SERVERS_REDIS");
    let nodes = url.trim_start_matches("redis://");
    for (password, is_right) in [("tidemill", true), ("hunter2", false)] {
        let monitor = Arc::new(StoreMonitor::default());
        let with_login = url.replace("redis://", &format!("redis://tidemill:{password}@"));
        for options in [
            vec![("nodes", nodes), ("username", "tidemill"), ("password", password)],
            vec![("url", with_login.as_str())],
        ] {
            let mut store = try_open(&name(), &options, &[0], &monitor).unwrap();
            if !is_right {
                monitor.stop();
            }
            let found = store.find(None, &stocks(&[("", 0)]), None);
            match is_right {
                true => assert_eq!(found.unwrap().num_rows(), 0),
                false => {
                    let text = found.unwrap_err().to_string();
                    assert!(text.contains("authentication") || text.contains("WRONGPASS"), "{text}");
                    assert!(!text.contains("hunter2"), "{text}");
                }
            }
        }
    }
}

#[test]
fn wrong_options_are_refused() {
    let error = |options: &[(&str, &str)]| match try_open("T", options, &[0], &Arc::default()) {
        Ok(_) => panic!("the options {options:?} are taken"),
        Err(e) => e,
    };
    for (found, expected) in [
        (error(&[("nodes", "hunter2")]), "expected one server: `host:port`"),
        (error(&[("nodes", "a:1,b:2")]), "expected one server: `host:port`"),
        (error(&[("nodes", "a:0@hunter2")]), "expected one server: `host:port`"),
        (error(&[("cluster.mode", "true"), ("nodes", "a:1,b:2")]), "Redis Cluster is not supported"),
        (error(&[("url", "redis://h"), ("host", "h")]), "`url` has the address already"),
        (error(&[("url", "http://u:hunter2@h")]), "no URL of Redis"),
        (error(&[("ttl.seconds", "0")]), "expected an integer from 1"),
        (error(&[("ttl.onUpdate", "true")]), "has no such option"),
        (error(&[("username", "u")]), "a user needs a password"),
    ] {
        assert!(found.contains(expected) && !found.contains("hunter2"), "{found}\nexpected {expected}");
    }
}
