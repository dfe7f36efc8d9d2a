use std::sync::Arc;

use bson::{doc, rawdoc};
use tidemill_docs::{Direction, DocumentCommand, FindOptions, SortOrder};
use tidemill_engine::{App, Engine, ManualClock};
use tidemill_types::Timestamp;

use crate::open;

fn bytes(doc: bson::Document) -> bytes::Bytes {
    bson::RawDocumentBuf::try_from(&doc).unwrap().into_bytes().into()
}

fn insert(engine: &Engine, docs: Vec<bson::Document>) -> tidemill_docs::CommandOutcome {
    let docs = docs.into_iter().map(bytes).collect();
    engine
        .write_documents(
            DocumentCommand::Insert { collection: "Customer".into(), docs, ordered: false },
            None,
        )
        .unwrap()
}

#[test]
fn writes_find_their_partition_and_survive() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let outcome = insert(&engine, (0..20).map(|i| doc! {"id": format!("c{i}"), "n": i}).collect());
    assert_eq!((outcome.inserted, outcome.errors.len()), (20, 0));
    let again = insert(&engine, vec![doc! {"id": "c3"}]);
    assert_eq!((again.inserted, again.errors.len()), (0, 1));
    let some = insert(
        &engine,
        vec![doc! {"id": "n1", "n": 0}, doc! {"id": "c4"}, doc! {"id": "n2", "n": 1}, doc! {"id": "c5"}],
    );
    let places: Vec<usize> = some.errors.iter().map(|e| e.index).collect();
    assert_eq!((some.inserted, places), (2, vec![1, 3]), "places are those of the request");
    let operators = DocumentCommand::Replace {
        collection: "Customer".into(),
        filter: bytes(doc! {"_id": "c1"}),
        doc: bytes(doc! {"$set": {"n": 1}}),
        upsert: true,
        upsert_id: None,
    };
    assert!(engine.write_documents(operators, None).is_err(), "an update is no replacement");
    let update = DocumentCommand::Update {
        collection: "Customer".into(),
        filter: bytes(doc! {"n": {"$gte": 10}}),
        update: bytes(doc! {"$inc": {"n": 100}}),
        multi: true,
        upsert: false,
        upsert_id: None,
    };
    assert_eq!(engine.write_documents(update, None).unwrap().modified, 10);
    let delete =
        DocumentCommand::Delete { collection: "Customer".into(), filter: bytes(doc! {"n": 5}), multi: false };
    assert_eq!(engine.write_documents(delete, None).unwrap().deleted, 1);
    engine.abandon();
    drop(engine);
    let engine = open(dir.path());
    let options = FindOptions {
        bounds: None,
        natural: None,
        sort: SortOrder::default().then("n", Direction::Descending),
        skip: 1,
        limit: Some(3),
        ..FindOptions::default()
    };
    let found: Vec<i64> = engine
        .find_documents("Customer", &rawdoc! {}, &options)
        .unwrap()
        .iter()
        .map(|d| {
            bson::RawDocument::from_bytes(d).unwrap().get("n").unwrap().unwrap().as_i32().unwrap().into()
        })
        .collect();
    assert_eq!(found, [118, 117, 116]);
    assert_eq!(engine.collections().unwrap().iter().find(|c| c.name == "Customer").unwrap().documents, 21);
    assert!(
        engine
            .find_documents("Custommer", &rawdoc! {}, &options)
            .unwrap_err()
            .to_string()
            .contains("Did you mean `Customer`?")
    );
}

#[test]
fn a_collection_is_made_by_its_first_document() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path());
    let docs = vec![bytes(doc! {"a": 1}), bytes(doc! {"a": 2})];
    engine
        .write_documents(DocumentCommand::Insert { collection: "notes".into(), docs, ordered: true }, None)
        .unwrap();
    let found = engine.find_documents("notes", &rawdoc! {"a": 2}, &FindOptions::default()).unwrap();
    assert_eq!(found.len(), 1);
    assert!(bson::RawDocument::from_bytes(&found[0]).unwrap().get_object_id("_id").is_ok());
}

/// Documents of a file and of the embedded API have the same identity; what contradicts itself is told.
#[test]
fn the_id_of_an_entity_is_its_key() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("customers.ndjson");
    std::fs::write(&file, "{\"id\":\"a\"}\n{\"_id\":\"b\",\"n\":1}\n{\"_id\":\"c\",\"id\":\"d\"}\n").unwrap();
    let mut app = crate::app();
    app.documents.push(tidemill_engine::DocumentsConfig { collection: "Customer".into(), path: file });
    let engine = Engine::open(&dir.path().join("data"), Some(app)).unwrap();
    engine.start_sources().unwrap();
    engine.wait_idle();
    let mut found: Vec<bson::Document> = engine
        .collection_documents("Customer")
        .unwrap()
        .unwrap()
        .iter()
        .map(|d| bson::deserialize_from_slice(d).unwrap())
        .collect();
    found.sort_by_key(|d| d.get_str("_id").unwrap().to_owned());
    assert_eq!(found, [doc! { "_id": "a", "id": "a" }, doc! { "_id": "b", "id": "b", "n": 1 }]);
    let problems = engine.health().problems.join("; ");
    assert!(problems.contains("line 3") && problems.contains("entity Customer"), "{problems}");

    let outcome = insert(&engine, vec![doc! { "_id": "e" }, doc! { "_id": "f", "id": "g" }]);
    assert_eq!((outcome.inserted, outcome.errors[0].index), (1, 1));
    assert_eq!(outcome.errors[0].error.code(), 121);
}

/// The order of insertion is that of the log, whatever the clock of the machine says.
#[test]
fn documents_stay_in_order_when_the_clock_is_set_back() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::default());
    let open = || {
        let mut app = App::from_rules("docs", "");
        app.settings.partitions = 4;
        Engine::builder(dir.path()).app(app).clock(clock.clone()).open().unwrap()
    };
    let id = |n: i32| format!("{:08x}", n.wrapping_mul(-1_640_531_527));
    let mut expected = Vec::new();
    let mut engine = open();
    for (step, time) in [(0, 5_000_000), (1, 9_000_000), (2, 3_000_000), (3, 4_000_000), (4, 9_500_000)] {
        clock.set(Timestamp(time));
        let numbers: Vec<i32> = (step * 10..step * 10 + 10).collect();
        let docs = numbers.iter().map(|n| bytes(doc! { "_id": id(*n) })).collect();
        let insert = DocumentCommand::Insert { collection: "things".into(), docs, ordered: step % 2 == 0 };
        match step {
            // a transaction
            3 => {
                let mut transaction = engine.begin_transaction().unwrap();
                transaction.write(insert).unwrap();
                transaction.commit(None, None).unwrap();
            }
            _ => drop(engine.write_documents(insert, None).unwrap()),
        }
        expected.extend(numbers.into_iter().map(id));
        if step == 2 {
            // what the last records say holds after a restart, too
            engine.stop().unwrap();
            drop(engine);
            engine = open();
        }
    }
    let check = |engine: &Engine| {
        let found = engine.find_documents("things", &rawdoc! {}, &FindOptions::default()).unwrap();
        let ids = found.iter().map(|document| {
            let document: bson::Document = bson::deserialize_from_slice(document).unwrap();
            document.get_str("_id").unwrap().to_owned()
        });
        assert_eq!(ids.collect::<Vec<_>>(), expected);
    };
    check(&engine);
    engine.checkpoint().unwrap();
    engine.stop().unwrap();
    drop(engine);
    check(&open());
}
