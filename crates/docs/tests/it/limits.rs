//! Tests that nothing grows past its limit, and that a rejected change has no effect.

use bson::doc;
use tidemill_docs::{
    CollectionSpec, Direction, DocBytes, Filter, FindOptions, IndexSpec, SortOrder, Store, StoreLimits,
    Update,
};
use tidemill_types::{ErrorKind, Timestamp, Value};

fn bytes(doc: bson::Document) -> DocBytes {
    bson::serialize_to_vec(&doc).unwrap().into()
}

fn store(limits: StoreLimits) -> Store {
    let mut store = Store::new(limits);
    store.create_collection(&CollectionSpec::new("c")).unwrap();
    store
}

#[test]
fn the_store_fills_up_and_frees_up() {
    let mut store = store(StoreLimits { store_bytes_max: 100_000, ..StoreLimits::default() });
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
    let mut store = store(StoreLimits::default());
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
    let again = Store::read_from(&mut out.as_slice(), StoreLimits::default()).unwrap();
    assert_eq!(again.bytes(), store.bytes());
    assert!(store.drop_collection("c"));
    assert_eq!(store.bytes(), 0);
}

#[test]
fn documents_and_depth() {
    let mut store = store(StoreLimits { document_bytes_max: 1000, depth_max: 5, ..StoreLimits::default() });
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
    let mut store = store(StoreLimits { sort_bytes_max: 10_000, ..StoreLimits::default() });
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
    let mut store = store(StoreLimits { collections_max: 2, indexes_max: 1, ..StoreLimits::default() });
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
    let mut store = store(StoreLimits::default());
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

fn evaluated(expression: bson::Document) -> tidemill_docs::Result<tidemill_docs::EvalValue> {
    let document = bytes(doc! { "e": expression });
    let raw = bson::RawDocument::from_bytes(&document).unwrap();
    let expression = raw.get("e").unwrap().unwrap();
    tidemill_docs::Expression::parse(expression)?.eval(bson::RawDocument::from_bytes(&document).unwrap())
}

/// Each of them would need more memory, time or stack than there is.
#[test]
fn small_expressions_do_not_make_large_values() {
    let range = |count: i32| doc! { "$range": [0, count] };
    let reduce = |count: i32, start: &str, body: bson::Bson| {
        doc! { "$reduce": { "input": range(count), "initialValue": start, "in": body } }
    };
    let double = |name: &str| doc! { name: ["$$value", "$$value"] };
    let map = |input: bson::Document, body: bson::Document| doc! { "$map": { "input": input, "in": body } };
    let million = || range(1_000_000);
    let ones: Vec<i32> = vec![1; 1500];
    for (expression, code) in [
        (reduce(60, "text", double("$concat").into()), 2),
        (reduce(60, "text", bson::bson!(["$$value", "$$value"])), 146),
        (reduce(60, "text", doc! { "a": "$$value", "b": "$$value" }.into()), 146),
        (reduce(1_000_000, "text", bson::bson!(["$$value"])), 15),
        (reduce(1_000_000, "text", doc! { "a": "$$value" }.into()), 15),
        (map(million(), map(million(), doc! { "$add": [1, 1] })), 146),
        (doc! { "$map": { "input": million(), "in": { "$literal": "x".repeat(100_000) } } }, 146),
        (doc! { "$zip": { "inputs": [ones.clone(), ones.iter().map(|n| vec![*n]).collect::<Vec<_>>()] } }, 0),
        (
            doc! { "$zip": { "inputs": bson::Bson::Array(std::iter::once(bson::Bson::from(range(1000))).chain(std::iter::repeat_n(bson::Bson::Array(vec![]), 1500)).collect()), "useLongestLength": true } },
            2,
        ),
        (doc! { "$size": { "$split": ["a".repeat(1_100_000), "a"] } }, 2),
    ] {
        let start = std::time::Instant::now();
        match evaluated(expression) {
            Ok(_) => assert_eq!(code, 0),
            Err(e) => assert_eq!(e.code(), code, "{e}"),
        }
        assert!(start.elapsed().as_secs() < 300, "{:?}", start.elapsed());
    }
}

#[test]
fn characters_are_counted_and_trimmed_in_one_pass() {
    let text = "ä".repeat(90_000);
    let characters: String = (0x4E00..0x9FFF).filter_map(char::from_u32).chain(['ä']).collect();
    let start = std::time::Instant::now();
    let trimmed = evaluated(doc! { "$trim": { "input": text.clone(), "chars": characters } }).unwrap();
    assert_eq!(trimmed, Some("".into()));
    let found = evaluated(doc! { "$regexFindAll": { "input": text, "regex": "ä" } }).unwrap().unwrap();
    assert_eq!(found.as_array().unwrap()[89_999].as_document().unwrap().get("idx"), Some(&89_999.into()));
    assert!(start.elapsed().as_secs() < 120, "{:?}", start.elapsed());
}

#[test]
fn an_update_does_not_make_a_document_far_beyond_the_limit() {
    let mut store = store(StoreLimits::default());
    let c = store.collection_mut("c").unwrap();
    let arrays: bson::Document = (0..2000).map(|n| (format!("a{n}"), bson::Bson::Array(vec![]))).collect();
    let mut document = doc! { "_id": 1 };
    document.extend(arrays);
    c.insert(bytes(document)).unwrap();
    // 20 GB of nulls
    let set: bson::Document = (0..2000).map(|n| (format!("a{n}.1000000"), 1.into())).collect();
    let update =
        Update::parse(&bson::RawDocumentBuf::try_from(&doc! { "$set": set }).unwrap(), Timestamp(0)).unwrap();
    let start = std::time::Instant::now();
    let e = c.update_one_by_id(&Value::Int(1), &update, Timestamp(0)).unwrap_err();
    assert_eq!(e.code(), 10334, "{e}");
    assert!(start.elapsed().as_secs() < 120, "{:?}", start.elapsed());
}

#[test]
fn the_least_number_is_out_of_range_of_a_date() {
    let e = evaluated(doc! { "$dateFromParts": { "year": 2020, "day": i64::MIN } }).unwrap_err();
    assert_eq!(e.code(), 2, "{e}");
}
