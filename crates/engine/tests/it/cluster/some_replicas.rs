//! Nodes that have replicas of some partitions, and ask each other for the rest.

use bson::{doc, rawdoc};
use bytes::Bytes;
use tidemill_docs::{Direction, DocumentCommand, FindOptions, SortOrder};
use tidemill_engine::{BodyFormat, Engine, EventSelector, SendOptions, SessionWrite};
use tidemill_types::{ErrorKind, Value};

use super::{Shared, TestNode, check, orders, wait_until, wait_until_spread};
use crate::{ledger, rows, send};

fn three_nodes(shared: &Shared) -> [TestNode; 3] {
    let nodes = ["a", "b", "c"].map(|name| shared.start(name));
    wait_until_spread(&nodes.each_ref());
    nodes
}

fn bytes(document: bson::Document) -> Bytes {
    bson::serialize_to_vec(&document).unwrap().into()
}

fn insert(engine: &Engine, documents: impl Iterator<Item = bson::Document>) {
    let docs = documents.map(bytes).collect();
    let insert = DocumentCommand::Insert { collection: "Note".into(), docs, ordered: true };
    let outcome = engine.write_documents(insert, None).unwrap();
    assert!(outcome.errors.is_empty(), "{outcome:?}");
}

fn update(id: i32, change: bson::Document, upsert: bool) -> DocumentCommand {
    DocumentCommand::Update {
        collection: "Note".into(),
        filter: bytes(doc! { "_id": id }),
        update: bytes(change),
        multi: false,
        upsert,
        upsert_id: None,
    }
}

/// Returns the ids of what a query finds.
fn find(engine: &Engine, filter: &bson::RawDocumentBuf, options: &FindOptions) -> Vec<i32> {
    let found = engine.find_documents("Note", filter, options).unwrap();
    let id = |document: &Bytes| bson::RawDocument::from_bytes(document).unwrap().get_i32("_id").unwrap();
    found.iter().map(id).collect()
}

#[test]
fn every_node_reads_and_writes_all_documents() {
    let shared = Shared::with_some_replicas();
    let nodes = three_nodes(&shared);
    let engines = nodes.each_ref().map(|node| &node.engine);
    insert(engines[0], (0..200).map(|id| doc! { "_id": id, "n": id % 7, "city": format!("c{}", id % 3) }));
    let by_n = |direction| SortOrder::default().then("n", direction).then("_id", Direction::Ascending);
    for (at, engine) in engines.iter().enumerate() {
        // reads
        let all = find(engine, &rawdoc! {}, &FindOptions::default());
        assert_eq!(all, (0..200).collect::<Vec<_>>(), "in the order of insertion, at {at}");
        let sorted = FindOptions {
            sort: by_n(Direction::Descending),
            skip: 3,
            limit: Some(4),
            ..FindOptions::default()
        };
        assert_eq!(find(engine, &rawdoc! { "city": "c1" }, &sorted), [76, 97, 118, 139], "at {at}");
        assert_eq!(engine.count_documents("Note", &rawdoc! { "n": { "$lt": 2 } }).unwrap(), 58);
        assert_eq!(engine.count_documents("Note", &rawdoc! {}).unwrap(), 200);
        let depends = rawdoc! { "$expr": { "$eq": ["$n", { "$mod": ["$_id", 7] }] }, "city": "c0" };
        assert_eq!(find(engine, &depends, &FindOptions::default()).len(), 67);
        let note = |id: i32| engine.collection("Note").find_one(&Value::Int(id.into())).unwrap();
        assert!((0..200).all(|id| note(id).is_some()) && note(200).is_none());
        let info = engine.collections().unwrap().into_iter().find(|info| info.name == "Note").unwrap();
        assert_eq!(info.documents, 200);

        // writes, by a filter that says which partition has the document, and by one that does not
        let id = 10 * at as i32;
        let outcome =
            engine.write_documents(update(id, doc! { "$set": { "by": at as i32 } }, false), None).unwrap();
        assert_eq!((outcome.matched, outcome.modified), (1, 1));
        let found = DocumentCommand::FindAndModify {
            collection: "Note".into(),
            filter: bytes(doc! { "city": "c2", "taken": null }),
            sort: Some(bytes(doc! { "n": -1, "_id": -1 })),
            change: tidemill_docs::Modification::Update(bytes(doc! { "$set": { "taken": at as i32 } })),
            upsert: false,
            upsert_id: None,
        };
        let outcome = engine.write_documents(found, None).unwrap();
        let before = outcome.before.expect("the document as it was");
        let before = bson::RawDocument::from_bytes(&before).unwrap();
        assert_eq!(before.get_i32("_id").unwrap(), [188, 167, 146][at]);
        let many = DocumentCommand::Update {
            collection: "Note".into(),
            filter: bytes(doc! { "n": at as i32 }),
            update: bytes(doc! { "$inc": { "many": 1 } }),
            multi: true,
            upsert: false,
            upsert_id: None,
        };
        let modified = (0..200).filter(|id| id % 7 == at as i32).count() as u64;
        assert_eq!(engine.write_documents(many, None).unwrap().modified, modified);
        // an error of a document comes back
        let again = DocumentCommand::Insert {
            collection: "Note".into(),
            docs: vec![bytes(doc! { "_id": 150 + at as i32 })],
            ordered: true,
        };
        let outcome = engine.write_documents(again, None).unwrap();
        assert_eq!(outcome.errors[0].error.code(), 11000, "{outcome:?}");
    }
    for engine in engines {
        assert_eq!(
            find(engine, &rawdoc! { "by": { "$exists": true } }, &FindOptions::default()),
            [0, 10, 20]
        );
        assert_eq!(find(engine, &rawdoc! { "many": 1 }, &FindOptions::default()).len(), 29 + 29 + 29);
    }
}

#[test]
fn a_statement_of_a_session_is_executed_once_whichever_node_it_is_sent_to() {
    let shared = Shared::with_some_replicas();
    let nodes = three_nodes(&shared);
    insert(&nodes[0].engine, std::iter::once(doc! { "_id": -1 }));
    let session = |number| SessionWrite { session: Bytes::from_static(b"session"), number, statement: 0 };
    for number in 0..12 {
        let change = update(number as i32, doc! { "$inc": { "n": 1 } }, true);
        let first = nodes[number as usize % 3].engine.write_session_documents(
            change.clone(),
            None,
            Some(&session(number)),
        );
        let first = first.unwrap();
        for node in &nodes {
            let again =
                node.engine.write_session_documents(change.clone(), None, Some(&session(number))).unwrap();
            assert_eq!(again, first);
        }
    }
    assert_eq!(nodes[0].engine.count_documents("Note", &rawdoc! { "n": 1 }).unwrap(), 12);
}

#[test]
fn a_transaction_reads_its_own_writes_in_partitions_of_other_nodes() {
    let shared = Shared::with_some_replicas();
    let nodes = three_nodes(&shared);
    insert(&nodes[0].engine, (0..40).map(|id| doc! { "_id": id, "n": id }));
    for (at, node) in nodes.iter().enumerate() {
        let engine = &node.engine;
        let base = 100 * (at as i32 + 1);
        let mut transaction = engine.begin_transaction().unwrap();
        let docs = (base..base + 8).map(|id| bytes(doc! { "_id": id, "n": -1 })).collect();
        transaction
            .write(DocumentCommand::Insert { collection: "Note".into(), docs, ordered: true })
            .unwrap();
        let many = DocumentCommand::Update {
            collection: "Note".into(),
            filter: bytes(doc! { "n": { "$lt": 4 } }),
            update: bytes(doc! { "$inc": { "n": 1000 } }),
            multi: true,
            upsert: false,
            upsert_id: None,
        };
        let before = engine.count_documents("Note", &rawdoc! { "n": { "$lt": 4 } }).unwrap();
        assert_eq!(transaction.write(many).unwrap().modified, before + 8);
        let delete = |id: i32| DocumentCommand::Delete {
            collection: "Note".into(),
            filter: bytes(doc! { "_id": id }),
            multi: false,
        };
        assert_eq!(transaction.write(delete(base)).unwrap().deleted, 1);
        assert_eq!(transaction.write(delete(20 + at as i32)).unwrap().deleted, 1);
        let count = |filter: bson::RawDocumentBuf| transaction.documents().count("Note", &filter).unwrap();
        assert_eq!(count(rawdoc! { "n": { "$lt": 4 } }), 0);
        assert_eq!(count(rawdoc! { "n": 999, "_id": { "$gte": base } }), 7);
        assert_eq!(count(rawdoc! { "_id": base }), 0);
        assert_eq!(count(rawdoc! {}), 40 + 7 * at as u64 + 7 - at as u64 - 1);
        // others see nothing of it
        assert_eq!(engine.count_documents("Note", &rawdoc! { "_id": base + 1 }).unwrap(), 0);
        // one that is there already ends the transaction
        transaction.commit(None, None).unwrap();
        let mut transaction = engine.begin_transaction().unwrap();
        let docs = vec![bytes(doc! { "_id": base + 1 })];
        let outcome = transaction
            .write(DocumentCommand::Insert { collection: "Note".into(), docs, ordered: true })
            .unwrap();
        assert_eq!(outcome.errors[0].error.code(), 11000);
        drop(transaction);
        // of two that write a document, the second one fails
        let (mut first, mut second) =
            (nodes[0].engine.begin_transaction().unwrap(), nodes[2].engine.begin_transaction().unwrap());
        for transaction in [&mut first, &mut second] {
            transaction.write(update(30 + at as i32, doc! { "$inc": { "n": 1 } }, false)).unwrap();
            transaction.write(update(base + 2, doc! { "$inc": { "n": 1 } }, false)).unwrap();
        }
        first.commit(None, None).unwrap();
        assert_eq!(second.commit(None, None).unwrap_err().kind(), ErrorKind::Conflict);
    }
    for node in &nodes {
        assert_eq!(node.engine.count_documents("Note", &rawdoc! { "n": 999 }).unwrap(), 3 * 6);
    }
}

#[test]
fn events_are_answered_read_and_explained_at_any_node() {
    let shared = Shared::with_some_replicas();
    let nodes = three_nodes(&shared);
    let mut sent = 0;
    for writer in &nodes {
        // `send` waits for what follows from the events
        let reply = send(&writer.engine, "Order", &orders(sent, 40));
        sent += 40;
        assert_eq!(reply.events.as_ref().map(|ids| ids.iter().flatten().count()), Some(40), "{reply:?}");
        assert!(!reply.emitted.as_ref().unwrap().is_empty(), "{reply:?}");
        // a repetition is counted
        let options = SendOptions { wait: true, ..SendOptions::default() };
        let again =
            writer.engine.send_json("Order", orders(0, 10).as_bytes(), BodyFormat::Ndjson, &options).unwrap();
        assert_eq!(again.duplicates, Some(10));
        for reader in &nodes {
            reader.engine.catch_up().unwrap();
            assert_eq!(rows(&reader.engine, "Order"), sent, "{}", ledger(&reader.engine));
        }
        let id = reply.events.unwrap()[3].clone().unwrap().parse().unwrap();
        for reader in &nodes {
            check(reader, sent);
            let explained = reader.engine.why(None, &EventSelector::Id(id)).unwrap();
            assert!(!explained.is_empty(), "{id}");
        }
    }
    // the ledger of all partitions, at each node
    let flushed = || nodes.iter().for_each(|node| node.engine.flush().unwrap());
    for step in ["in tails", "in files"] {
        for node in &nodes {
            let streams = node.engine.streams().unwrap();
            let order = streams.iter().find(|stream| stream.schema.name == "Order").unwrap();
            assert_eq!((order.ledger.stored, order.rows_in_table), (sent, sent), "{step}");
            assert!(streams.iter().all(|stream| stream.balances()), "{step}: {}", ledger(&node.engine));
            assert_eq!(rows(&node.engine, "Order"), sent, "{step}");
            let rules = node.engine.rules().unwrap();
            assert!(rules.iter().map(|rule| rule.fired).sum::<u64>() >= sent, "{step}");
        }
        flushed();
    }
    // events as they are applied are followed at a node that applies all of them
    let refused = nodes[0].engine.subscribe("Order").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
}

#[test]
fn a_node_without_replicas_serves_all_the_same() {
    let shared = Shared::with_some_replicas();
    let nodes = three_nodes(&shared);
    insert(&nodes[0].engine, (0..20).map(|id| doc! { "_id": id }));
    // more nodes than replicas
    let names: Vec<String> = (0..7).map(|n| format!("more{n}")).collect();
    let more: Vec<TestNode> = names.iter().map(|name| shared.start(name)).collect();
    let has_none = |node: &&TestNode| {
        node.engine.cluster_status().unwrap().partitions.iter().all(|partition| partition.role == "none")
    };
    wait_until("partitions are spread", || more.iter().any(|node| !has_none(&node)));
    let idle = more.iter().find(has_none).expect("4 partitions have 8 replicas, and there are 10 nodes");
    assert_eq!(find(&idle.engine, &rawdoc! {}, &FindOptions::default()), (0..20).collect::<Vec<_>>());
    let outcome = idle.engine.write_documents(update(3, doc! { "$set": { "n": 1 } }, false), None).unwrap();
    assert_eq!(outcome.modified, 1);
    let mut transaction = idle.engine.begin_transaction().unwrap();
    (0..20).for_each(|id| _ = transaction.write(update(id, doc! { "$inc": { "n": 1 } }, false)).unwrap());
    transaction.commit(None, None).unwrap();
    assert_eq!(nodes[1].engine.count_documents("Note", &rawdoc! { "n": { "$gte": 1 } }).unwrap(), 20);
    send(&idle.engine, "Order", &orders(0, 20));
    check(idle, 20);
    assert_eq!(idle.engine.collection_names().unwrap(), nodes[0].engine.collection_names().unwrap());
}
