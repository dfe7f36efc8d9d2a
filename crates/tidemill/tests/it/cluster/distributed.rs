//! Statements that nodes execute together.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use super::{Cluster, Node, wait_until};
use crate::served;

/// Small files of both tables stay apart, each statement reads them, and each scan is large.
const SETTINGS: &str = "name = \"shop\"\n[settings]\nflush_interval = \"200ms\"\nzones.merge_tablets = 1000\n\
    sql.hot_bytes = 0\nsql.cached_plans = 0\nsql.distributed_bytes = 1\n";

const STATEMENTS: [&str; 5] = [
    "SELECT count(*) AS n, sum(amount) AS s, min(id) AS first, max(id) AS last FROM events.\"Order\" WHERE amount >= 0",
    "SELECT customer, count(*) AS n, avg(amount) AS a FROM events.\"Order\" GROUP BY customer ORDER BY customer",
    "SELECT id, amount FROM events.\"Order\" WHERE amount > 100 ORDER BY id DESC LIMIT 5",
    "SELECT o.customer, count(*) AS n FROM events.\"Order\" o JOIN events.\"Audit\" a ON a.\"order\" = o.id
        WHERE o.amount > 20 AND a.amount_class = 'small' GROUP BY o.customer ORDER BY 1",
    "SELECT count(DISTINCT id) AS ids FROM events.\"Order\" WHERE customer <> 'c1'",
];

impl Cluster {
    /// Starts a node that knows the others. With `alone` it executes each statement by itself.
    fn start_knowing(&self, name: &str, alone: bool) -> Node {
        std::fs::write(self.app.join("app.toml"), SETTINGS).unwrap();
        let secret = self.dir.path().join("secret");
        std::fs::write(&secret, "a secret of this test\n").unwrap();
        let mut command = self.command(name, &["--unsafe-single-broker"]);
        if !self.has_some_replicas {
            command.args(["--peers", "127.0.0.1:0", "--peers-secret", secret.to_str().unwrap()]);
        }
        if alone {
            command.env("TIDEMILL_SETTINGS__SQL__DISTRIBUTED_BYTES", "0");
        }
        let serving = served(command, &self.data(name), "Ready: ");
        assert!(serving.base.starts_with("http://"), "the node {name} does not start");
        Node { name: name.to_owned(), serving }
    }
}

/// Returns the plan of a statement, with what `EXPLAIN` or `EXPLAIN ANALYZE` says about its scans.
fn plan(node: &Node, explain: &str, statement: &str) -> String {
    let rows = node.sql(&format!("{explain} {statement}"));
    rows.as_array().unwrap().iter().filter_map(|row| row["plan"].as_str()).collect::<Vec<_>>().join("\n")
}

/// Sends orders until nodes of these names read parts of them for `node`. Returns how many there are.
fn send_until_distributed(node: &Node, others: &[&str]) -> u64 {
    let mut sent = 0;
    wait_until("other nodes read a part", || {
        node.send(sent, 20);
        sent += 20;
        let plan = plan(node, "EXPLAIN", STATEMENTS[0]);
        others.iter().all(|other| plan.contains(&format!("{other} ")) && plan.contains("DistributedExec"))
    });
    wait_until("all that rules emit has arrived", || {
        node.sql("SELECT count(*) AS n FROM events.\"Audit\"")[0]["n"] == sent
    });
    sent
}

fn results(node: &Node) -> Vec<Value> {
    STATEMENTS.iter().map(|statement| node.sql(statement)).collect()
}

fn signal(node: &Node, name: &str) {
    let pid = node.serving.pid().to_string();
    assert!(std::process::Command::new("kill").args([name, &pid]).status().unwrap().success());
}

#[test]
fn statements_of_nodes_with_some_replicas_are_distributed() {
    let Some(cluster) = Cluster::with_some_replicas() else { return };
    let (a, b, mut c) = (
        cluster.start_knowing("a", false),
        cluster.start_knowing("b", true),
        cluster.start_knowing("c", false),
    );
    a.wait_for_owners(&["a", "b", "c"]);
    let sent = send_until_distributed(&a, &["b", "c"]);
    let expected = results(&b);
    assert_eq!(expected[0][0]["n"], json!(sent));
    assert_eq!(results(&a), expected);
    let analyzed = plan(&a, "EXPLAIN ANALYZE", STATEMENTS[1]);
    for other in ["b", "c"] {
        let rows =
            analyzed.split(&format!("rows_of_{other}=")).nth(1).unwrap_or_else(|| panic!("{analyzed}"));
        assert!(rows.starts_with(|c: char| ('1'..='9').contains(&c)), "{analyzed}");
    }
    let plan_of_b = plan(&b, "EXPLAIN", STATEMENTS[0]);
    assert!(!plan_of_b.contains("DistributedExec"), "{plan_of_b}");

    // a frozen node, then a killed one, while statements run: each has all of its rows
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut rounds = 0;
            while !done.load(Ordering::Acquire) || rounds == 0 {
                assert_eq!(results(&a), expected, "round {rounds}");
                rounds += 1;
            }
        });
        signal(&c, "-STOP");
        wait_until("the frozen node is removed", || owners(&b).iter().all(|owner| owner != "c"));
        c.serving.kill();
        wait_until("the node is asked no longer", || {
            asking.is_finished() || !plan(&a, "EXPLAIN", STATEMENTS[0]).contains("; c ")
        });
        done.store(true, Ordering::Release);
        asking.join().unwrap();
    });
    assert_eq!(results(&a), expected);
    assert!(plan(&a, "EXPLAIN ANALYZE", STATEMENTS[1]).contains("rows_of_b="));
}

fn owners(node: &Node) -> Vec<String> {
    let cluster = node.cluster();
    let owner = |partition: &Value| partition["owner"].as_str().unwrap_or_default().to_owned();
    cluster["partitions"].as_array().unwrap().iter().map(owner).collect()
}

#[test]
fn statements_of_nodes_with_all_replicas_are_distributed_where_they_know_each_other() {
    let Some(cluster) = Cluster::new() else { return };
    let (a, b) = (cluster.start_knowing("a", false), cluster.start_knowing("b", true));
    send_until_distributed(&a, &["b"]);
    assert_eq!(results(&a), results(&b));
    assert!(plan(&a, "EXPLAIN ANALYZE", STATEMENTS[1]).contains("rows_of_b="));
}
