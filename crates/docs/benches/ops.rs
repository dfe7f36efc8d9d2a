//! Benchmarks of the document store: `cargo bench -p tidemill-docs --bench ops`.

use bson::doc;
use divan::{Bencher, black_box};
use tidemill_docs::{CollectionSpec, DocBytes, Filter, FindOptions, IndexSpec, Store, StoreLimits, Update};
use tidemill_types::{Timestamp, Value};

/// Number of documents in the collection.
const DOCS: i64 = 100_000;

/// The allocator that the `tidemill` binary uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    divan::main();
}

/// Returns a document of fifteen fields, about 400 bytes.
fn flight(n: i64) -> DocBytes {
    let doc = doc! {
        "_id": format!("LH{n:06}"), "carrier": "LH", "fl_no": n, "gate": format!("A{}", n % 200),
        "from": "FRA", "to": "JFK", "departed": false, "on_time": true, "delay_min": (n % 60) as i32,
        "aircraft": "A380-800", "registration": "D-AIMA", "seats": 509, "sched": bson::DateTime::from_millis(1_357_035_420_000 + n),
        "remarks": "an inbound aircraft is late; boarding starts after it was cleaned and catered, some time after its arrival",
        "crew": { "captain": "K. Meier", "cabin": 18 },
    };
    bson::serialize_to_vec(&doc).expect("a literal document").into()
}

fn store() -> Store {
    let mut store = Store::new(StoreLimits::default());
    let mut spec = CollectionSpec::new("flights");
    spec.indexes.push(IndexSpec::ascending("gate"));
    store.create_collection(&spec).expect("a good definition");
    let flights = store.collection_mut("flights").expect("just made");
    for n in 0..DOCS {
        flights.insert(flight(n)).expect("ids differ");
    }
    store
}

#[divan::bench(sample_size = 100)]
fn get_by_id(bencher: Bencher) {
    let store = store();
    let flights = store.collection("flights").expect("made by store()");
    let ids: Vec<String> = (0..DOCS).map(|n| format!("LH{:06}", n * 7919 % DOCS)).collect();
    let mut at = 0;
    bencher.bench_local(|| {
        at = (at + 1) % ids.len();
        black_box(flights.get(&Value::str(&ids[at]))).is_some()
    });
}

#[divan::bench(sample_size = 1000)]
fn insert(bencher: Bencher) {
    let mut store = Store::new(StoreLimits::default());
    let mut spec = CollectionSpec::new("flights");
    spec.indexes.push(IndexSpec::ascending("gate"));
    store.create_collection(&spec).expect("a good definition");
    let flights = store.collection_mut("flights").expect("just made");
    let docs: Vec<DocBytes> = (0..200_000).map(flight).collect();
    let mut at = 0;
    bencher.bench_local(|| {
        if at == docs.len() {
            at = 0;
        }
        at += 1;
        flights.insert(docs[at - 1].clone()).is_ok()
    });
}

#[divan::bench(sample_size = 100)]
fn update_set_two_fields(bencher: Bencher) {
    let doc = flight(1);
    let doc = bson::RawDocument::from_bytes(&doc).expect("a good document");
    let update = Update::new().set("departed", true).set("on_time", false);
    bencher.bench_local(|| update.apply(black_box(doc), Timestamp(0)));
}

#[divan::bench(sample_size = 100)]
fn update_one_by_id(bencher: Bencher) {
    let mut store = store();
    let flights = store.collection_mut("flights").expect("made by store()");
    let updates = [true, false].map(|b| Update::new().set("departed", b).set("on_time", !b));
    let ids: Vec<String> = (0..DOCS).map(|n| format!("LH{:06}", n * 7919 % DOCS)).collect();
    let mut at = 0;
    bencher.bench_local(|| {
        at += 1;
        flights.update_one_by_id(&Value::str(&ids[at % ids.len()]), &updates[at % 2], Timestamp(0)).is_ok()
    });
}

/// Updates of one document, with a snapshot for readers after every `records`; the last one stays.
#[divan::bench(sample_size = 10_000, sample_count = 20, args = [1, 64, 10_000])]
fn update_one_by_id_and_publish(bencher: Bencher, records: usize) {
    let mut store = store();
    let updates = [true, false].map(|b| Update::new().set("departed", b).set("on_time", !b));
    let ids: Vec<String> = (0..DOCS).map(|n| format!("LH{:06}", n * 7919 % DOCS)).collect();
    let mut published = store.snapshot();
    let mut at = 0;
    bencher.bench_local(|| {
        at += 1;
        let flights = store.collection_mut("flights").expect("made by store()");
        let id = Value::str(&ids[at % ids.len()]);
        let changed = flights.update_one_by_id(&id, &updates[at % 2], Timestamp(0)).is_ok();
        if at % records == 0 {
            published = store.snapshot();
        }
        changed
    });
    black_box(published);
}

/// Inserts, with a snapshot for readers after every `records`.
#[divan::bench(sample_size = 10_000, sample_count = 20, args = [1, 64])]
fn insert_and_publish(bencher: Bencher, records: usize) {
    let mut store = Store::new(StoreLimits::default());
    let mut spec = CollectionSpec::new("flights");
    spec.indexes.push(IndexSpec::ascending("gate"));
    store.create_collection(&spec).expect("a good definition");
    let docs: Vec<DocBytes> = (0..200_000).map(flight).collect();
    let mut published = store.snapshot();
    let mut at = 0;
    bencher.bench_local(|| {
        at += 1;
        let flights = store.collection_mut("flights").expect("just made");
        let inserted = flights.insert(docs[at - 1].clone()).is_ok();
        if at % records == 0 {
            published = store.snapshot();
        }
        inserted
    });
    black_box(published);
}

/// Takes a snapshot of 100 000 documents.
#[divan::bench(sample_size = 100)]
fn snapshot(bencher: Bencher) {
    let store = store();
    bencher.bench_local(|| store.snapshot());
}

/// Finds 500 documents of 100 000.
#[divan::bench(sample_size = 100)]
fn find_by_index(bencher: Bencher) {
    let store = store();
    let flights = store.collection("flights").expect("made by store()");
    bencher.bench_local(|| flights.find_by("gate", &Value::str("A77")).count());
}

/// Scans 100 000 documents for a range of a field without an index.
#[divan::bench(sample_count = 20)]
fn scan_filter(bencher: Bencher) {
    let store = store();
    let flights = store.collection("flights").expect("made by store()");
    let filter =
        Filter::parse(&bson::rawdoc! { "delay_min": { "$gte": 58 }, "to": "JFK" }).expect("a good filter");
    bencher.bench_local(|| flights.find(&filter, &FindOptions::default()).map(|d| d.len()));
}

/// Validates one document.
#[divan::bench(sample_size = 100)]
fn validate(bencher: Bencher) {
    let doc = flight(1);
    bencher.bench_local(|| tidemill_docs::validate(black_box(doc.clone())).is_ok());
}
