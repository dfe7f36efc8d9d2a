//! Tests that nothing grows past its limit, and that a rejected change has no effect.

use bson::doc;
use tidemill_docs::{
    CollectionSpec, Direction, DocBytes, Filter, FindOptions, IndexSpec, Limits, SortOrder, Store, Update,
};
use tidemill_types::{ErrorKind, Timestamp, Value};

fn bytes(doc: bson::Document) -> DocBytes {
    bson::serialize_to_vec(&doc).unwrap().into()
}

fn store(limits: Limits) -> Store {
    let mut store = Store::new(limits);
    store.create_collection(&CollectionSpec::new("c")).unwrap();
    store
}

#[test]
fn the_store_fills_up_and_frees_up() {
    let mut store = store(Limits { store_bytes_max: 100_000, ..Limits::default() });
    let c = store.collection_mut("c").unwrap();
    c.create_index(IndexSpec::ascending("text")).unwrap();
    let mut n = 0;
    let e = loop {
        match c.insert(bytes(doc! { "_id": n, "text": "x".repeat(100) })) {
            Ok(_) => n += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(e.kind(), ErrorKind::LimitReached);
    assert!(e.message().contains("store_bytes_max"), "{e}");
    assert_eq!(c.len(), n as usize);
    let grow = Update::new().set("text", "y".repeat(5000));
    let e = c.update_one_by_id(&Value::Int(0), &grow, Timestamp(0)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::LimitReached);
    assert!(c.create_index(IndexSpec::ascending("_id.x")).is_err());
    for id in 0..n {
        c.delete_by_id(&Value::Int(id)).unwrap().unwrap();
    }
    assert_eq!((c.len(), c.bytes()), (0, 0));
    assert_eq!(store.bytes(), 0);
}

#[test]
fn accounting_is_exact_after_any_change() {
    let mut store = store(Limits::default());
    let c = store.collection_mut("c").unwrap();
    c.create_index(IndexSpec::ascending("tags")).unwrap();
    for n in 0..5000_i64 {
        c.insert(bytes(doc! { "_id": n, "tags": ["a long text that does not lie inline", n] })).unwrap();
        if n % 3 == 0 {
            let update = Update::new().set("tags", "short").set("more", "x".repeat(n as usize % 50));
            c.update_one_by_id(&Value::Int(n), &update, Timestamp(0)).unwrap();
        }
        if n % 2 == 0 {
            c.delete_by_id(&Value::Int(n / 2)).unwrap();
        }
    }
    let mut out = Vec::new();
    store.snapshot().write_to(&mut out).unwrap();
    let again = Store::read_from(&mut out.as_slice(), Limits::default()).unwrap();
    assert_eq!(again.bytes(), store.bytes());
    assert!(store.drop_collection("c"));
    assert_eq!(store.bytes(), 0);
}

#[test]
fn documents_and_depth() {
    let mut store = store(Limits { document_bytes_max: 1000, depth_max: 5, ..Limits::default() });
    let c = store.collection_mut("c").unwrap();
    assert_eq!(c.insert(bytes(doc! { "_id": 1, "x": "y".repeat(1000) })).unwrap_err().code(), 10334);
    c.insert(bytes(doc! { "_id": 1, "x": "y".repeat(800), "d": { "a": { "b": {} } } })).unwrap();
    for (update, code) in [
        (Update::new().set("z", "z".repeat(200)), 10334),
        (Update::new().set("d.a.b.c.e", 1), 0),
        (Update::new().set("d.a.b.c.e.f", 1), 28),
        (Update::new().set("q.a.b.c.e.f", 1), 15),
        (Update::new().push("q", doc! { "a": { "b": { "c": {} } } }), 15),
    ] {
        let result = c.update_one_by_id(&Value::Int(1), &update, Timestamp(0));
        assert_eq!(result.map_or_else(|e| e.code(), |_| 0), code, "{update:?}");
    }
    let rename =
        Update::parse(&bson::rawdoc! { "$rename": { "d": "q.r.s" } }, tidemill_types::Timestamp(0)).unwrap();
    assert_eq!(c.update_one_by_id(&Value::Int(1), &rename, Timestamp(0)).unwrap_err().code(), 15);
}

#[test]
fn sorts_are_bounded_and_a_limit_helps() {
    let mut store = store(Limits { sort_bytes_max: 10_000, ..Limits::default() });
    let c = store.collection_mut("c").unwrap();
    for n in 0..1000 {
        c.insert(bytes(doc! { "_id": n, "x": (n * 7919) % 1000 })).unwrap();
    }
    let sort = SortOrder::default().then("x", Direction::Ascending);
    let mut options = FindOptions { sort, ..FindOptions::default() };
    let e = c.find(&Filter::all(), &options).unwrap_err();
    assert_eq!((e.code(), e.kind()), (292, ErrorKind::LimitReached));
    options.limit = Some(10);
    let found = c.find(&Filter::all(), &options).unwrap();
    let xs: Vec<i32> =
        found.iter().map(|d| bson::RawDocument::from_bytes(d).unwrap().get_i32("x").unwrap()).collect();
    assert_eq!(xs, (0..10).collect::<Vec<_>>());
    c.create_index(IndexSpec::ascending("x")).unwrap();
    options.limit = None;
    assert_eq!(c.find(&Filter::all(), &options).unwrap().len(), 1000);
}

#[test]
fn collections_and_indexes_are_counted() {
    let mut store = store(Limits { collections_max: 2, indexes_max: 1, ..Limits::default() });
    store.create_collection(&CollectionSpec::new("d")).unwrap();
    assert_eq!(
        store.create_collection(&CollectionSpec::new("e")).unwrap_err().kind(),
        ErrorKind::LimitReached
    );
    let c = store.collection_mut("c").unwrap();
    c.create_index(IndexSpec::ascending("x")).unwrap();
    assert!(c.create_index(IndexSpec::ascending("y")).unwrap_err().message().contains("indexes_max"));
}

#[test]
fn bytes_that_are_no_document_do_not_get_in() {
    let mut store = store(Limits::default());
    let c = store.collection_mut("c").unwrap();
    let good = bytes(doc! { "_id": 1, "s": "text" });
    for at in 0..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= 0x80;
        // some changes yield another valid document; none may make the store fail
        if c.insert(bad.into()).is_ok() {
            let filter = Filter::parse(&bson::rawdoc! { "s": { "$regex": "t" } }).unwrap();
            c.find(&filter, &FindOptions::default()).unwrap();
        }
    }
    assert_eq!(c.insert(DocBytes::new()).unwrap_err().code(), 22);
}
