//! Homes of files in a cluster: all nodes have the same ones.

use tidemill_cluster::{ClusterFacts, Incarnation, Join, NodeName, Record, Remove, Timing};
use tidemill_engine::App;
use tidemill_log::{Durability, Log, NewRecord};
use tidemill_types::{ErrorKind, PartitionId};

use super::{PARTITIONS, Shared, TestNode, wait_for_owners, wait_until};
use crate::{rows, send};

/// Two files without keys, whose homes are the partitions 1 and 2.
fn app() -> App {
    let means = "
        define stream Trades (symbol string, price double);
        @primaryKey('symbol') define table Last (symbol string, price double);
        @info(name='mean') from Trades#window.length(3) select symbol, avg(price) as mean insert into Means;
        @info(name='last') from Trades select symbol, price update or insert into Last on Last.symbol == symbol;";
    let alarms = "
        define stream Means (symbol string, mean double);
        @info(name='alarm') from Means#window.lengthBatch(5) select count() as n insert into Alarms;";
    crate::quiet(App::from_texts("homes", None, &[("a.siddhi", means), ("b.siddhi", alarms)]))
}

fn trades(n: u64) -> String {
    (0..n).map(|i| format!("{{\"symbol\":\"s{}\",\"price\":{i}.0}}\n", i % 4)).collect()
}

fn places(node: &TestNode) -> Vec<String> {
    node.engine.queries().unwrap().into_iter().map(|query| query.runs).collect()
}

/// Checks that all nodes see what follows from `trades`.
fn check(nodes: &[&TestNode], trades: u64, homes: [u32; 2]) {
    let of = homes.map(|home| format!("partition {home}"));
    for node in nodes {
        wait_until("all that queries emit has arrived", || {
            node.engine.catch_up().unwrap();
            rows(&node.engine, "Alarms") == trades / 5
        });
        assert_eq!(rows(&node.engine, "Means"), trades);
        assert_eq!(places(node), [of[0].clone(), of[0].clone(), of[1].clone()]);
        let last = node.engine.query_on_demand(None, "from Last select symbol, price").unwrap();
        assert_eq!(last.len(), 4);
        let why = node.engine.why_query(None, "alarm", None).unwrap();
        assert_eq!(why.iter().map(|why| why.partition).collect::<Vec<_>>(), [homes[1]]);
    }
}

fn start(shared: &Shared, name: &str) -> TestNode {
    shared.try_start(name, name, app()).unwrap()
}

fn run(shared: &Shared, homes: [u32; 2]) {
    let (a, b) = (start(shared, "a"), start(shared, "b"));
    wait_for_owners(&[&a, &b]);
    send(&a.engine, "Trades", &trades(20));
    check(&[&a, &b], 20, homes);
    // another node continues with the state of both files
    if let Err(e) = a.engine.stop() {
        // a partition was on its way to the other node
        assert_eq!(e.kind(), ErrorKind::Conflict, "{e}");
    }
    wait_for_owners(&[&b]);
    send(&b.engine, "Trades", &trades(20));
    check(&[&b], 40, homes);
    let change = "select 'new' as symbol, 1.0 as price insert into Last";
    b.engine.query_on_demand(Some("a.siddhi"), change).unwrap();
    let c = start(shared, "c");
    wait_for_owners(&[&b, &c]);
    let new = "from Last on symbol == 'new' select price";
    assert_eq!(c.engine.query_on_demand(Some("a.siddhi"), new).unwrap().len(), 1);
}

#[test]
fn nodes_agree_on_the_homes_of_files() {
    run(&Shared::new(), [1, 2]);
}

#[test]
fn nodes_with_some_replicas_agree_on_the_homes_of_files() {
    run(&Shared::with_some_replicas(), [1, 2]);
}

/// A member of a version that knew no homes was there, and has left.
fn found_before_homes(shared: &Shared) {
    let node = NodeName::new("old").unwrap();
    let timing =
        if shared.has_some_replicas { Timing { settle_ms: 500, ..Timing::SMALL } } else { Timing::SMALL };
    let cluster = ClusterFacts {
        id: "test".into(),
        partitions: PARTITIONS,
        home_rule: 0,
        origin: String::new(),
        app: "former".into(),
        timing,
    };
    let join = Join {
        node: node.clone(),
        incarnation: Incarnation(7),
        address: "old:4700".into(),
        calls: String::new(),
        zone: String::new(),
        weight: 100,
        protocol_min: 1,
        protocol_max: 1,
        cluster,
        clock_ms: 1,
    };
    let leave = Remove { node: node.clone(), incarnation: Incarnation(7), last_sequence: 0, by: node };
    for record in [Record::Join(join), Record::Remove(leave)] {
        let payload = bytes::Bytes::from(record.encode().unwrap());
        shared
            .control
            .append(PartitionId(0), NewRecord::from(payload), Durability::Fsync)
            .unwrap()
            .wait()
            .unwrap();
    }
}

#[test]
fn a_cluster_that_was_made_before_homes_keeps_queries_in_the_first_partition() {
    let shared = Shared::with_some_replicas();
    found_before_homes(&shared);
    run(&shared, [0, 0]);
}

#[test]
fn a_node_with_a_directory_of_another_rule_is_refused() {
    let (old, new) = (Shared::new(), Shared::new());
    found_before_homes(&old);
    start(&old, "a").engine.stop().unwrap();
    let copied = new.root.path().join("a");
    std::fs::create_dir_all(&copied).unwrap();
    std::fs::copy(old.root.path().join("a/meta.json"), copied.join("meta.json")).unwrap();
    let refused = new.try_start("a", "a", app()).err().unwrap().to_string();
    assert!(
        refused.contains("belongs to another cluster") && refused.contains("name a new directory"),
        "{refused}"
    );
}
