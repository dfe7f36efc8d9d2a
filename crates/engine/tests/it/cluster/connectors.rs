//! Sources and sinks of a cluster: one node reads, owners deliver, and others take over from where they were.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidemill_engine::App;

use super::{PARTITIONS, Shared, TestNode, wait_for_owners, wait_until};
use crate::connectors::outside::Outside;
use crate::{ledger, quiet, rows};

/// Returns an app whose events come from outside and go there.
fn app(outside: &Arc<Outside>) -> App {
    let text = "
        @source(type='outside') @key('k') define stream In (k string, n long);
        @sink(type='outside') @key('k') define stream Out (k string, n long);
        from In select k, n insert into Out;";
    quiet(App::from_texts("c", None, &[("c.siddhi", text)])).with_connectors(outside.catalog())
}

fn start(shared: &Shared, name: &str, outside: &Arc<Outside>) -> TestNode {
    let node = shared.try_start(name, name, app(outside)).unwrap();
    node.engine.start_sources().unwrap();
    node
}

/// Lets messages with the numbers from `from` on arrive outside.
fn arrive(outside: &Outside, from: usize, count: usize) {
    outside.inbox.lock().extend((from..from + count).map(|n| format!("{{\"k\":\"k{}\",\"n\":{n}}}", n % 7)));
}

/// Waits until a node has stored these events, each once.
fn check_stored(node: &TestNode, count: usize) {
    // a replica that comes here between two looks begins with an earlier state
    let rows = |stream: &str| {
        node.engine.catch_up().unwrap();
        rows(&node.engine, stream)
    };
    wait_until("the events have been read", || rows("Out") >= count as u64);
    assert_eq!(rows("In"), count as u64, "{}", ledger(&node.engine));
    assert_eq!(rows("Out"), count as u64, "{}", ledger(&node.engine));
}

/// Waits until the other system has all of these events, and checks that it has each once.
fn check_delivered(outside: &Outside, count: usize) {
    wait_until("the events have been delivered", || outside.outbox.lock().len() >= count);
    let mut doubled = outside.numbers();
    let mut next = 0;
    doubled.retain(|number| {
        let is_next = *number == next;
        next += i64::from(is_next);
        !is_next
    });
    assert_eq!((next, doubled), (count as i64, vec![]), "events up to here, and those that came again");
}

/// Waits until no node keeps events for the sink: the owners have delivered them, and the others know it.
fn wait_until_nothing_waits(nodes: &[&TestNode]) {
    wait_until("no node keeps events", || {
        nodes.iter().flat_map(|node| node.engine.sinks()).all(|sink| sink.waiting_bytes == 0)
    });
}

#[test]
fn another_node_reads_and_delivers_what_is_left() {
    read_and_deliver(&Shared::new());
}

#[test]
fn another_node_with_some_replicas_reads_and_delivers_what_is_left() {
    read_and_deliver(&Shared::with_some_replicas());
}

fn read_and_deliver(shared: &Shared) {
    let outside = Outside::new();
    outside.remembers.store(true, Ordering::Relaxed);
    let mut nodes: Vec<_> = ["a", "b", "c"].iter().map(|name| Some(start(shared, name, &outside))).collect();
    wait_for_owners(&refs(&nodes));
    let mut sent = 0;
    for round in 0..3 {
        arrive(&outside, sent, 300);
        sent += 300;
        if round == 1 {
            // some of the events have not been delivered when their node fails
            outside.fails_after.store(outside.outbox.lock().len() + 40, Ordering::Relaxed);
        }
        check_stored(refs(&nodes)[0], sent);
        check_delivered(&outside, sent);
        arrive(&outside, sent, 100);
        sent += 100;
        // the node that reads is one of those that fail, at any point of its work
        let reader = nodes.iter().position(|node| node.as_ref().is_some_and(owns_first_partition));
        if let Some(failed) = reader.and_then(|index| nodes[index].take()) {
            failed.engine.abandon();
            let name = ["d", "e", "f"][round];
            nodes.push(Some(start(shared, name, &outside)));
        }
        wait_for_owners(&refs(&nodes));
        refs(&nodes).into_iter().for_each(|node| check_stored(node, sent));
        check_delivered(&outside, sent);
    }
}

#[test]
fn a_sink_without_positions_gets_nothing_again_that_its_owner_has_announced() {
    let (shared, outside) = (Shared::new(), Outside::new());
    let (a, b) = (start(&shared, "a", &outside), start(&shared, "b", &outside));
    wait_for_owners(&[&a, &b]);
    arrive(&outside, 0, 200);
    check_delivered(&outside, 200);
    wait_until_nothing_waits(&[&a, &b]);

    // while the other system is down, the node that follows a partition keeps its events as well
    outside.is_down.store(true, Ordering::Relaxed);
    arrive(&outside, 200, 200);
    check_stored(&b, 400);
    let waiting = |node: &TestNode| node.engine.sinks().iter().map(|sink| sink.waiting).sum::<u64>();
    wait_until("the owners have the events", || waiting(&a) + waiting(&b) == 200);
    assert!(waiting(&b) < 200, "both nodes own partitions");
    a.engine.abandon();
    wait_until("all partitions have moved", || super::owned(&b) == PARTITIONS as usize);
    wait_until("the other node has the events", || waiting(&b) == 200);
    outside.is_down.store(false, Ordering::Relaxed);
    check_delivered(&outside, 400);
    wait_until_nothing_waits(&[&b]);
}

pub fn owns_first_partition(node: &TestNode) -> bool {
    let status = node.engine.cluster_status().unwrap();
    status.partitions.first().is_some_and(|partition| partition.role == "owner")
}

fn refs(nodes: &[Option<TestNode>]) -> Vec<&TestNode> {
    nodes.iter().flatten().collect()
}
