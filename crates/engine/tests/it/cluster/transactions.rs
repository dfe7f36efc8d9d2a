//! Transactions and ordered inserts over several partitions, sent to all nodes of a cluster at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_docs::{DocumentCommand, FindOptions};
use tidemill_engine::{App, Engine};
use tidemill_types::{ErrorKind, Value};

use super::{Shared, TestNode, wait_for_owners, wait_until};
use crate::quiet;
use crate::transactions::{ACCOUNTS, BALANCE, open_accounts, total, transfer};

/// Transfers that each node tries.
const TRANSFERS: u64 = 120;

fn app() -> App {
    quiet(App::from_rules("bank", "entity Account key id; entity Transfer key id;"))
}

/// Returns the ids of the transfers that were written down.
fn transfers(engine: &Engine) -> Vec<String> {
    let documents = engine.document_snapshot().unwrap();
    let all = documents.find("Transfer", bson::rawdoc! {}.as_ref(), &FindOptions::default()).unwrap();
    let id = |doc: &bytes::Bytes| {
        let doc = bson::raw::RawDocument::from_bytes(doc).unwrap();
        doc.get_str("_id").unwrap().to_owned()
    };
    let mut ids: Vec<String> = all.iter().map(id).collect();
    ids.sort_unstable();
    ids
}

/// Sends transfers to a node. Returns those that were committed, and those of unknown outcome.
fn run_transfers(node: &TestNode, name: &str, seed: u64) -> (Vec<String>, Vec<String>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let (mut committed, mut unknown) = (Vec::new(), Vec::new());
    for n in 0..TRANSFERS {
        let id = format!("{name}{n}");
        let (from, to) = (rng.random_range(0..ACCOUNTS), rng.random_range(0..ACCOUNTS));
        match transfer(&node.engine, &id, from, to, rng.random_range(1..20)) {
            Ok(()) => committed.push(id),
            Err(e) if e.kind() == ErrorKind::Conflict => {}
            Err(e) if e.kind() == ErrorKind::Unavailable => unknown.push(id),
            Err(e) => panic!("{e}"),
        }
    }
    (committed, unknown)
}

#[test]
fn transfers_of_all_nodes_move_all_or_nothing() {
    move_all_or_nothing(&Shared::new());
}

#[test]
fn transfers_of_nodes_with_some_replicas_move_all_or_nothing() {
    move_all_or_nothing(&Shared::with_some_replicas());
}

fn move_all_or_nothing(shared: &Shared) {
    let seed: u64 = rand::rng().random();
    println!("seed {seed}");
    let nodes = ["a", "b", "c"].map(|name| (name, shared.try_start(name, name, app()).unwrap()));
    match shared.has_some_replicas {
        true => super::wait_until_spread(&nodes.each_ref().map(|(_, node)| node)),
        false => wait_for_owners(&nodes.each_ref().map(|(_, node)| node)),
    }
    // an ordered insert over all partitions
    open_accounts(&nodes[0].1.engine);
    let done = AtomicBool::new(false);
    let reads = AtomicU64::new(0);
    let outcomes = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                for (name, node) in &nodes {
                    // a node that is cut off refuses reads
                    let Ok(documents) = node.engine.document_snapshot() else { continue };
                    assert_eq!(total(&documents), ACCOUNTS * BALANCE, "at node {name}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let writers: Vec<_> = (0..)
            .zip(&nodes)
            .map(|(n, (name, node))| scope.spawn(move || run_transfers(node, name, seed ^ n)))
            .collect();
        // the owner of the partition that orders them changes meanwhile
        wait_until("some transfers are there", || {
            nodes.iter().any(|(_, node)| transfers(&node.engine).len() > 30)
        });
        let ordering = nodes.iter().find(|(_, node)| super::connectors::owns_first_partition(node));
        let (name, ordering) = ordering.unwrap_or(&nodes[0]);
        println!("{name} is cut off");
        ordering.control.set_cut_off(true);
        wait_until("others own its partitions", || super::owned(ordering) == 0);
        ordering.control.set_cut_off(false);
        let outcomes: Vec<_> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
        outcomes
    });
    assert!(reads.load(Ordering::Relaxed) > 0);
    let committed: Vec<&String> = outcomes.iter().flat_map(|(committed, _)| committed).collect();
    let unknown: Vec<&String> = outcomes.iter().flat_map(|(_, unknown)| unknown).collect();
    assert!(committed.len() > 100, "{} committed, {} of unknown outcome", committed.len(), unknown.len());
    wait_for_owners(&nodes.each_ref().map(|(_, node)| node));
    let first = transfers(&nodes[0].1.engine);
    for (name, node) in &nodes {
        assert_eq!(total(&node.engine.document_snapshot().unwrap()), ACCOUNTS * BALANCE, "at node {name}");
        assert_eq!(transfers(&node.engine), first, "at node {name}");
    }
    committed.iter().for_each(|id| assert!(first.contains(id), "{id} was committed"));
    let others = first.iter().filter(|id| !committed.contains(id));
    others.for_each(|id| assert!(unknown.contains(&id), "{id} was refused"));
}

#[test]
fn an_ordered_insert_stops_at_the_first_refused_document_of_any_partition() {
    let shared = Shared::new();
    let nodes = ["a", "b"].map(|name| shared.try_start(name, name, app()).unwrap());
    wait_for_owners(&nodes.each_ref());
    stop_at_first_refused(&nodes[0], &nodes[1]);
}

#[test]
fn an_ordered_insert_of_nodes_with_some_replicas_stops_at_the_first_refused_document() {
    let shared = Shared::with_some_replicas();
    let nodes = ["a", "b", "c"].map(|name| shared.try_start(name, name, app()).unwrap());
    super::wait_until_spread(&nodes.each_ref());
    stop_at_first_refused(&nodes[0], &nodes[2]);
}

fn stop_at_first_refused(a: &TestNode, b: &TestNode) {
    let insert = |ids: &[i32]| {
        let document = |id: &i32| bson::rawdoc! { "_id": *id }.into_bytes().into();
        DocumentCommand::Insert {
            collection: "Note".into(),
            docs: ids.iter().map(document).collect(),
            ordered: true,
        }
    };
    let outcome = a.engine.write_documents(insert(&[1, 2, 3, 4, 5, 6]), None).unwrap();
    assert_eq!((outcome.inserted, outcome.errors.len()), (6, 0));
    // the other node has them, and refuses one that is there
    let outcome = b.engine.write_documents(insert(&[7, 8, 4, 9, 10]), None).unwrap();
    assert_eq!((outcome.inserted, outcome.errors.len()), (2, 1), "{outcome:?}");
    assert_eq!(outcome.errors[0].index, 2);
    let notes = a.engine.document_snapshot().unwrap();
    let has = |id: i64| notes.get("Note", &Value::Int(id)).unwrap().is_some();
    assert_eq!((1..=10).map(has).collect::<Vec<_>>(), [[true; 8].as_slice(), &[false; 2]].concat());
}
