//! Tests of checkpoints: reading returns what was written, and every damage is detected.

use std::io::{self, Read, Write};

use bson::{doc, rawdoc};
use tidemill_docs::{
    BsonDocument, CollectionSpec, Direction, DocBytes, DocumentCommand, Filter, FindOptions, GeoIndexKind,
    GeoIndexSpec, IndexSpec, Sequence, Store, StoreLimits, TextIndexSpec,
};
use tidemill_types::{ErrorKind, Timestamp, Value};

fn bytes(doc: bson::Document) -> DocBytes {
    bson::serialize_to_vec(&doc).unwrap().into()
}

fn sample() -> Store {
    let mut store = Store::new(StoreLimits::default());
    let mut spec = CollectionSpec::new("flights");
    spec.shard_key = Some("gate".into());
    spec.indexes.push(IndexSpec::ascending("tags"));
    store.create_collection(&spec).unwrap();
    store.create_collection(&CollectionSpec::new("empty")).unwrap();
    let flights = store.collection_mut("flights").unwrap();
    for n in 0..3000 {
        flights.insert(bytes(doc! { "_id": n, "gate": format!("A{}", n % 7), "tags": [n % 3, n % 5], "text": "x".repeat(n as usize % 90) })).unwrap();
    }
    flights.insert(bytes(doc! { "_id": "large", "text": "y".repeat(300_000) })).unwrap();
    for n in (0..3000).filter(|n| n % 4 != 0) {
        flights.delete_by_id(&Value::Int(n)).unwrap();
    }
    store
}

fn written(store: &Store) -> Vec<u8> {
    let mut out = Vec::new();
    store.snapshot().write_to(&mut out).unwrap();
    out
}

#[test]
fn a_loaded_store_is_the_saved_one() {
    let store = sample();
    let saved = written(&store);
    let loaded = Store::read_from(&mut saved.as_slice(), StoreLimits::default()).unwrap();
    assert_eq!(loaded.collection_names().collect::<Vec<_>>(), ["empty", "flights"]);
    assert_eq!(loaded.bytes(), store.bytes());
    let (old, new) = (store.collection("flights").unwrap(), loaded.collection("flights").unwrap());
    assert_eq!(old.spec(), new.spec());
    assert_eq!(old.documents(), new.documents());
    let filter = Filter::parse(&rawdoc! { "tags": 2 }).unwrap();
    assert_eq!(
        old.find(&filter, &FindOptions::default()).unwrap(),
        new.find(&filter, &FindOptions::default()).unwrap()
    );
    assert_eq!(written(&loaded), saved);
}

#[test]
fn a_snapshot_is_of_its_moment_and_what_follows_is_left_alone() {
    let mut store = sample();
    let snapshot = store.snapshot();
    store.collection_mut("flights").unwrap().delete_by_id(&Value::Int(0)).unwrap();
    let mut out = Vec::new();
    snapshot.write_to(&mut out).unwrap();
    out.extend_from_slice(b"rest");
    let mut input = out.as_slice();
    let loaded = Store::read_from(&mut input, StoreLimits::default()).unwrap();
    assert_eq!(input, b"rest");
    assert!(loaded.collection("flights").unwrap().get(&Value::Int(0)).is_some());
}

#[test]
fn damage_is_found_with_its_place() {
    let mut store = Store::new(StoreLimits::default());
    store.create_collection(&CollectionSpec::new("c")).unwrap();
    store.collection_mut("c").unwrap().insert(bytes(doc! { "_id": 1, "a": "text" })).unwrap();
    let saved = written(&store);
    for at in 0..saved.len() {
        for bit in 0..8 {
            let mut damaged = saved.clone();
            damaged[at] ^= 1 << bit;
            let e = Store::read_from(&mut damaged.as_slice(), StoreLimits::default()).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Corrupt, "byte {at} bit {bit}: {e}");
            assert!(e.message().contains("byte "), "{e}");
        }
        let e = Store::read_from(&mut &saved[..at], StoreLimits::default()).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Corrupt, "cut at {at}: {e}");
    }
    let e = Store::read_from(&mut b"TMDOCS\0\x07".as_slice(), StoreLimits::default()).unwrap_err();
    assert!(e.message().contains("format version 7, expected 2"), "{e}");
}

#[test]
fn limits_hold_while_loading() {
    let saved = written(&sample());
    let limits = StoreLimits { store_bytes_max: 10_000, ..StoreLimits::default() };
    let e = Store::read_from(&mut saved.as_slice(), limits).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::LimitReached, "{e}");
}

/// Accepts a number of bytes, then fails; reading always fails.
struct Failing(usize);

impl Read for Failing {
    fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
        Err(io::Error::other("the disk is gone"))
    }
}

impl Write for Failing {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if self.0 == 0 {
            return Err(io::Error::other("the disk is full"));
        }
        let n = buf.len().min(self.0);
        self.0 -= n;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn failing_disks_are_told() {
    let e = Store::read_from(&mut Failing(0), StoreLimits::default()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
    for room in [0, 5, 8, 12, 100, 70_000] {
        let e = sample().snapshot().write_to(&mut Failing(room)).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Unavailable, "{e}");
        assert!(e.message().contains("the disk is full"), "{e}");
    }
}

#[test]
fn the_first_version_can_be_read() {
    // written by format version 1: collection `c` with an index, documents {_id: 1, a: "x"} and {_id: 2}
    let file = include_bytes!("../fixtures/checkpoint-1.bin");
    let store = Store::read_from(&mut file.as_slice(), StoreLimits::default()).unwrap();
    let c = store.collection("c").unwrap();
    assert_eq!(c.spec().indexes[0].name, "a_1");
    assert_eq!(c.documents(), [bytes(doc! { "_id": 1, "a": "x" }), bytes(doc! { "_id": 2 })]);
    // documents without a sequence are written as they were, but for the version
    let mut expected = file.to_vec();
    expected[7] = 2;
    assert_eq!(written(&store), expected);
}

#[test]
fn the_order_of_insertion_is_kept() {
    let mut store = Store::new(StoreLimits::default());
    store.create_collection(&CollectionSpec::new("c")).unwrap();
    let id = |n: i32| format!("{:x}", n.wrapping_mul(-1_640_531_527));
    for n in 0..5000 {
        store.set_record(n as u64, Timestamp(1_700_000_000_000_000 + i64::from(n) * 1300));
        let c = store.collection_mut("c").unwrap();
        c.insert(bytes(doc! { "_id": id(n), "text": "x".repeat(n as usize % 90) })).unwrap();
    }
    for n in (0..5000).filter(|n| n % 3 == 0 || *n > 4990) {
        store.collection_mut("c").unwrap().delete_by_id(&Value::Str(id(n).into())).unwrap();
    }
    let saved = written(&store);
    let mut loaded = Store::read_from(&mut saved.as_slice(), StoreLimits::default()).unwrap();
    let sequences = |store: &Store| {
        let c = store.collection("c").unwrap();
        (0..5000).map(|n| c.sequence(&Value::Str(id(n).into()))).collect::<Vec<_>>()
    };
    assert_eq!(sequences(&loaded), sequences(&store));
    assert_eq!(sequences(&store)[1], Some(Sequence::new(Timestamp(1_700_000_000_001_300), 0)));
    assert_eq!(written(&loaded), saved);
    // about two bytes a document
    let plain: usize = loaded.collection("c").unwrap().iter().map(|document| document.len()).sum();
    assert!(saved.len() < plain + 5000 * 5, "{} bytes for {plain} of documents", saved.len());
    // what follows gets the same sequence, although the last document is gone
    for store in [&mut store, &mut loaded] {
        store.set_record(9000, Timestamp(1));
        store.collection_mut("c").unwrap().insert(bytes(doc! { "_id": "next" })).unwrap();
    }
    let next = |store: &Store| store.collection("c").unwrap().sequence(&Value::Str("next".into())).unwrap();
    assert_eq!(next(&store), next(&loaded));
    assert_eq!(next(&store), Sequence::new(Timestamp(1_700_000_000_000_000 + 4999 * 1300), 0));
}

#[test]
fn every_option_of_an_index_is_kept() {
    let mut store = Store::new(StoreLimits::default());
    store.create_collection(&CollectionSpec::new("c")).unwrap();
    let index = |name: &str, path: &str| IndexSpec { name: name.into(), ..IndexSpec::ascending(path) };
    let document = |filter: bson::RawDocumentBuf| Some(BsonDocument::new(&filter));
    let geo = |kind, min: Option<f64>, version| GeoIndexSpec {
        kind,
        paths: vec!["p".into()],
        bits: min.map(|_| 20),
        min,
        max: min.map(|min| -min),
        version,
    };
    for spec in [
        IndexSpec { sparse: true, unique: true, hidden: true, ..index("sparse", "a") },
        IndexSpec { hashed: Some("a".into()), ..index("hashed", "a") },
        IndexSpec { partial_filter: document(rawdoc! { "a": { "$gt": 5 } }), ..index("partial", "b") },
        IndexSpec { wildcard_projection: document(rawdoc! { "a": 1 }), ..index("wildcard", "$**") },
        IndexSpec { expire_after_seconds: Some(60), ..index("expiry", "t") },
        IndexSpec { collation: document(rawdoc! { "locale": "en" }), ..index("collation", "b") },
        IndexSpec { geo: Some(geo(GeoIndexKind::Sphere, None, Some(2))), ..index("sphere", "p") },
        IndexSpec { geo: Some(geo(GeoIndexKind::Plane, Some(-7.5), None)), ..index("plane", "p") },
        IndexSpec {
            fields: ["a", "_fts", "_ftsx"].map(|path| (path.to_owned(), Direction::Ascending)).into(),
            text: Some(TextIndexSpec {
                weights: vec![("$**".into(), 1.0), ("b".into(), 2.5)],
                default_language: "german".into(),
                language_override: "l".into(),
                version: 2,
            }),
            ..index("text", "a")
        },
    ] {
        let command = DocumentCommand::CreateIndex { collection: "c".into(), index: spec };
        assert_eq!(DocumentCommand::from_bytes(&command.to_bytes().unwrap()).unwrap(), command);
        store.apply(&command, Timestamp(0)).unwrap();
    }
    let c = store.collection_mut("c").unwrap();
    for (id, a) in [(1, 3), (2, 7)] {
        c.insert(bytes(doc! { "_id": id, "a": a, "b": "x", "p": [1, 2] })).unwrap();
    }
    let loaded = Store::read_from(&mut written(&store).as_slice(), StoreLimits::default()).unwrap();
    assert_eq!(loaded.collection("c").unwrap().spec(), store.collection("c").unwrap().spec());
    assert_eq!(loaded.bytes(), store.bytes());
}

#[test]
fn an_index_without_options_is_written_as_it_always_was() {
    let plain = bson::serialize_to_document(&IndexSpec::ascending("a")).unwrap();
    assert_eq!(plain, doc! { "name": "a_1", "fields": [["a", "ascending"]], "unique": false });
    let collection = bson::serialize_to_document(&CollectionSpec::new("c")).unwrap();
    assert_eq!(collection, doc! { "name": "c", "shard_key": null, "replicated": false, "indexes": [] });
}
