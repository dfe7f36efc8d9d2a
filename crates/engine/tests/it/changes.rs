//! Following the changes of documents: each once, in order, over restarts.

use std::collections::BTreeMap;
use std::path::Path;

use bson::raw::RawDocument;
use bson::{Document, doc};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_docs::{DocBytes, DocumentCommand};
use tidemill_engine::{App, ChangeEvent, ChangePosition, ChangeScope, ChangeStart, Engine};
use tidemill_types::ErrorKind;

use crate::{quiet, send};

const RULES: &str = "
    event Order { id: string, customer: string, amount: double } key customer id id;
    entity Customer key id;
    entity Other key id;
    relation Order.who(): Customer by customer;
    rule Count { when { o: Order(); c: o.who(); } then { update c.orders += 1; } }
    rule First { when { o: Order(); not o.who(); } then { insert Customer { id: o.customer, orders: 1 }; } }
";

fn open(dir: &Path, partitions: u32) -> Engine {
    let mut app = quiet(App::from_rules("shop", RULES));
    app.settings.partitions = partitions;
    Engine::open(dir, Some(app)).unwrap()
}

fn bytes(doc: &Document) -> DocBytes {
    bson::RawDocumentBuf::try_from(doc).unwrap().into_bytes().into()
}

fn document(bytes: &DocBytes) -> Document {
    RawDocument::from_bytes(bytes).unwrap().try_into().unwrap()
}

fn insert(engine: &Engine, collection: &str, docs: &[Document]) {
    let docs = docs.iter().map(bytes).collect();
    engine
        .write_documents(DocumentCommand::Insert { collection: collection.into(), docs, ordered: true }, None)
        .unwrap();
}

fn update(engine: &Engine, id: i32, update: &Document) {
    let command = DocumentCommand::Update {
        collection: "Other".into(),
        filter: bytes(&doc! { "_id": id }),
        update: bytes(update),
        multi: false,
        upsert: true,
        upsert_id: None,
    };
    engine.write_documents(command, None).unwrap();
}

fn all() -> ChangeScope {
    ChangeScope::All
}

fn describe(change: &ChangeEvent) -> String {
    let part = |name: &str, part: &Option<DocBytes>| {
        part.as_ref().map_or_else(String::new, |part| format!(" {name} {}", document(part)))
    };
    let id = change.id.as_ref().map_or_else(String::new, |id| document(id).get("_id").unwrap().to_string());
    let (document, update) = (part("to", &change.document), part("by", &change.update));
    format!("{:?} {} {id}{document}{update}{}", change.kind, change.collection, part("from", &change.before))
}

#[test]
fn every_kind_of_change_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let engine = open(dir.path(), 1);
    insert(&engine, "Other", &[doc! { "_id": 0, "early": true }]);
    let before = engine.now();
    let mut stream = engine.watch(all(), ChangeStart::Now).unwrap();
    let mut only = engine.watch(ChangeScope::Collection("Customer".into()), ChangeStart::Now).unwrap();
    insert(&engine, "Other", &[doc! { "_id": 1, "a": 1, "b": 2 }]);
    update(&engine, 1, &doc! { "$set": { "a": 5 }, "$unset": { "b": 1 } });
    update(&engine, 1, &doc! { "$set": { "a": 5 } });
    let replace = DocumentCommand::Replace {
        collection: "Other".into(),
        filter: bytes(&doc! { "_id": 1 }),
        doc: bytes(&doc! { "c": 1 }),
        upsert: false,
        upsert_id: None,
    };
    engine.write_documents(replace, None).unwrap();
    for order in ["o1", "o2"] {
        send(&engine, "Order", &format!(r#"{{"id":"{order}","customer":"ann","amount":1}}"#));
    }
    let mut transaction = engine.begin_transaction().unwrap();
    let delete = |id: i32| DocumentCommand::Delete {
        collection: "Other".into(),
        filter: bytes(&doc! { "_id": id }),
        multi: false,
    };
    transaction.write(delete(1)).unwrap();
    let add = DocumentCommand::Update {
        collection: "Other".into(),
        filter: bytes(&doc! { "_id": 0 }),
        update: bytes(&doc! { "$set": { "late": true } }),
        multi: false,
        upsert: false,
        upsert_id: None,
    };
    transaction.write(add).unwrap();
    transaction.commit(None, None).unwrap();
    engine.write_documents(delete(0), None).unwrap();
    engine.write_documents(DocumentCommand::Drop { collection: "Other".into() }, None).unwrap();
    let told: Vec<_> =
        stream.next(100, usize::MAX).unwrap().iter().map(|(change, _)| describe(change)).collect();
    assert_eq!(
        told,
        [
            r#"Insert Other 1 to { "_id": 1, "id": 1, "a": 1, "b": 2 }"#,
            r#"Update Other 1 by { "updatedFields": { "a": 5 }, "removedFields": ["b"], "truncatedArrays": [] }"#,
            r#"Replace Other 1 to { "_id": 1, "id": 1, "c": 1 }"#,
            r#"Insert Customer "ann" to { "_id": "ann", "id": "ann", "orders": 1 }"#,
            r#"Update Customer "ann" by { "updatedFields": { "orders": 2 }, "removedFields": [], "truncatedArrays": [] }"#,
            r#"Delete Other 1"#,
            r#"Update Other 0 by { "updatedFields": { "late": true }, "removedFields": [], "truncatedArrays": [] }"#,
            r#"Delete Other 0"#,
            r#"Drop Other "#,
        ]
    );
    assert_eq!(only.next(100, usize::MAX).unwrap().len(), 2);
    assert!(only.is_at_end() && only.next(100, usize::MAX).unwrap().is_empty());
    let mut since = engine.watch(all(), ChangeStart::At(engine.now())).unwrap();
    assert!(since.next(1, usize::MAX).unwrap().is_empty());
    let too_early = engine.watch(all(), ChangeStart::At(before)).err().unwrap();
    assert_eq!(too_early.kind(), ErrorKind::NotFound, "no changes were kept at that time");
}

#[test]
fn a_stream_goes_on_after_a_restart_with_each_change_once() {
    let seed = std::env::var("SEED").map_or(3, |seed| seed.parse().unwrap());
    println!("SEED={seed}");
    let mut rng = StdRng::seed_from_u64(seed);
    let dir = tempfile::tempdir().unwrap();
    let mut position: Option<ChangePosition> = None;
    // the last value of each document that the consumer knows, and that was written
    let (mut known, mut written) = (BTreeMap::new(), BTreeMap::new());
    for round in 0..8 {
        let engine = open(dir.path(), 3);
        let mut stream = match position.take() {
            Some(position) => engine.watch(all(), ChangeStart::After(position)).unwrap(),
            None => engine.watch(all(), ChangeStart::Now).unwrap(),
        };
        for _ in 0..300 {
            let id = rng.random_range(0..20);
            update(&engine, id, &doc! { "$inc": { "n": 1 } });
            *written.entry(id).or_insert(0) += 1;
            if rng.random_bool(0.01) {
                engine.checkpoint().unwrap();
            }
            if rng.random_bool(0.1) {
                // a consumer that has taken only some of a batch, and is then killed
                let before = stream.position().clone();
                let changes = stream.next(rng.random_range(1..40), usize::MAX).unwrap();
                let taken = rng.random_range(0..=changes.len());
                for (change, _) in &changes[..taken] {
                    follow(&mut known, change);
                }
                if let Some((_, after)) = changes[..taken].last() {
                    let encoded = after.to_bytes();
                    let after = ChangePosition::from_bytes(&encoded).unwrap();
                    stream = engine.watch(all(), ChangeStart::After(after)).unwrap();
                } else {
                    stream = engine.watch(all(), ChangeStart::After(before)).unwrap();
                }
            }
        }
        if round == 7 {
            while !stream.is_at_end() {
                for (change, _) in stream.next(1000, usize::MAX).unwrap() {
                    follow(&mut known, &change);
                }
            }
        }
        position = Some(stream.position().clone());
        match round % 2 {
            0 => engine.abandon(),
            _ => engine.stop().unwrap(),
        }
    }
    assert_eq!(known, written);
}

/// Returns document and new value of a change.
fn value(change: &ChangeEvent) -> (i32, i32) {
    let id = document(change.id.as_ref().unwrap()).get_i32("_id").unwrap();
    let n = match (&change.document, &change.update) {
        (Some(inserted), _) => document(inserted).get_i32("n").unwrap(),
        (None, Some(update)) => document(update).get_document("updatedFields").unwrap().get_i32("n").unwrap(),
        _ => panic!("{}", describe(change)),
    };
    (id, n)
}

fn follow(known: &mut BTreeMap<i32, i32>, change: &ChangeEvent) {
    let (id, n) = value(change);
    let last = known.insert(id, n).unwrap_or(0);
    assert_eq!(n, last + 1, "a change of document {id} is missing, doubled or out of order");
}

#[test]
fn images_are_kept_where_they_are_wanted_and_old_changes_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut app = quiet(App::from_rules("shop", RULES));
    app.settings.partitions = 1;
    app.settings.change_stream_bytes = 100 << 10;
    app.settings.segment_bytes = 64 << 10;
    let engine = Engine::open(dir.path(), Some(app)).unwrap();
    let spec =
        tidemill_docs::CollectionSpec { change_images: true, ..tidemill_docs::CollectionSpec::new("Imaged") };
    engine.write_documents(DocumentCommand::CreateCollection(spec), None).unwrap();
    let mut stream = engine.watch(all(), ChangeStart::Now).unwrap();
    let start = stream.position().clone();
    insert(&engine, "Imaged", &[doc! { "_id": 1, "a": 1 }]);
    for update in [doc! { "$set": { "a": 2 } }, doc! { "$set": { "b": 1 } }] {
        let command = DocumentCommand::Update {
            collection: "Imaged".into(),
            filter: bytes(&doc! {}),
            update: bytes(&update),
            multi: true,
            upsert: false,
            upsert_id: None,
        };
        engine.write_documents(command, None).unwrap();
    }
    let told = stream.next(9, usize::MAX).unwrap();
    assert_eq!(
        describe(&told[2].0),
        r#"Update Imaged 1 to { "_id": 1, "a": 2, "b": 1 } by { "updatedFields": { "b": 1 }, "removedFields": [], "truncatedArrays": [] } from { "_id": 1, "a": 2 }"#
    );
    for n in 0..400 {
        insert(&engine, "Other", &[doc! { "_id": n, "text": "x".repeat(1000) }]);
    }
    engine.checkpoint().unwrap();
    assert_eq!(engine.watch(all(), ChangeStart::After(start)).err().unwrap().kind(), ErrorKind::NotFound);
    assert_eq!(
        stream.next(1000, usize::MAX).unwrap_err().kind(),
        ErrorKind::NotFound,
        "the reader was too slow"
    );
}
