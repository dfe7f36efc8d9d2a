//! Latency of reads by `_id` while the owner applies records that change a million documents and another thread
//! scans the collection: `cargo bench -p tidemill-docs --bench reads [-- SECONDS [DOCUMENTS]]`.
//!
//! `lock` has the store behind a read-write lock that the owner holds for a record and a reader for a read;
//! `snapshot` has readers of the snapshot that the owner publishes after each record. A read that takes longer
//! than [`INTERVAL`] counts also for the reads that would have begun meanwhile.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bson::{doc, rawdoc};
use tidemill_docs::{
    Collection, CollectionSpec, DocumentCommand, Filter, FindOptions, IndexSpec, Store, StoreLimits,
    StoreSnapshot,
};
use tidemill_types::{Timestamp, Value};

/// Time between two reads by `_id`.
const INTERVAL: Duration = Duration::from_micros(200);

/// The allocator that the `tidemill` binary uses.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How readers and the owner share a store.
trait SharedStore: Sync {
    fn read<T>(&self, read: impl FnOnce(&Collection) -> T) -> T;
    fn apply(&self, record: &DocumentCommand);
}

struct Locked(RwLock<Store>);

impl SharedStore for Locked {
    fn read<T>(&self, read: impl FnOnce(&Collection) -> T) -> T {
        let store = self.0.read().unwrap_or_else(PoisonError::into_inner);
        read(store.collection("flights").expect("created at the start"))
    }

    fn apply(&self, record: &DocumentCommand) {
        let mut store = self.0.write().unwrap_or_else(PoisonError::into_inner);
        store.apply(record, Timestamp(0)).expect("a good command");
    }
}

struct Published {
    owner: RwLock<Store>,
    snapshot: ArcSwap<StoreSnapshot>,
}

impl SharedStore for Published {
    fn read<T>(&self, read: impl FnOnce(&Collection) -> T) -> T {
        let snapshot = self.snapshot.load_full();
        read(snapshot.collection("flights").expect("created at the start"))
    }

    fn apply(&self, record: &DocumentCommand) {
        let mut store = self.owner.write().unwrap_or_else(PoisonError::into_inner);
        store.apply(record, Timestamp(0)).expect("a good command");
        self.snapshot.store(Arc::new(store.snapshot()));
    }
}

fn main() {
    let arguments: Vec<u64> = std::env::args().filter_map(|a| a.parse().ok()).collect();
    let seconds = Duration::from_secs(arguments.first().copied().unwrap_or(20));
    let documents = arguments.get(1).copied().unwrap_or(1_000_000);
    println!(
        "{:<9} {:>8} {:>10} {:>10} {:>12} {:>12} {:>8} {:>6}",
        "", "reads", "p50 us", "p99 us", "p99.9 us", "max us", "records", "scans"
    );
    measure("lock", &Locked(RwLock::new(store(documents))), documents, seconds);
    let owner = store(documents);
    let snapshot = ArcSwap::from_pointee(owner.snapshot());
    measure("snapshot", &Published { owner: RwLock::new(owner), snapshot }, documents, seconds);
}

fn store(documents: u64) -> Store {
    let mut store = Store::new(StoreLimits::default());
    let mut spec = CollectionSpec::new("flights");
    spec.indexes.push(IndexSpec::ascending("gate"));
    store.create_collection(&spec).expect("a good definition");
    let flights = store.collection_mut("flights").expect("created above");
    for n in 0..documents as i64 {
        let doc = doc! { "_id": n, "gate": format!("A{}", n % 200), "delay_min": n % 60, "changes": 0_i64 };
        flights.insert(bson::serialize_to_vec(&doc).expect("a literal document").into()).expect("ids differ");
    }
    store
}

/// Runs owner, scan and reads by `_id` for a time, and prints what the reads took.
fn measure(name: &str, store: &impl SharedStore, documents: u64, time: Duration) {
    let record = DocumentCommand::Update {
        collection: "flights".into(),
        filter: rawdoc! {}.into_bytes().into(),
        update: rawdoc! { "$inc": { "changes": 1_i64 } }.into_bytes().into(),
        multi: true,
        upsert: false,
        upsert_id: None,
    };
    let unindexed = Filter::parse(&rawdoc! { "delay_min": { "$gt": 58 } }).expect("a good filter");
    let done = AtomicBool::new(false);
    let (records, scans) = (AtomicU64::new(0), AtomicU64::new(0));
    let mut latencies = std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                store.apply(&record);
                records.fetch_add(1, Ordering::Relaxed);
            }
        });
        scope.spawn(|| {
            while !done.load(Ordering::Acquire) {
                black_box(store.read(|c| c.find(&unindexed, &FindOptions::default())).expect("a good find"));
                scans.fetch_add(1, Ordering::Relaxed);
            }
        });
        let latencies = read_by_id(store, documents, time);
        done.store(true, Ordering::Release);
        latencies
    });
    latencies.sort_unstable();
    let at = |share: f64| {
        let place = ((latencies.len() - 1) as f64 * share) as usize;
        latencies[place].as_nanos() as f64 / 1000.0
    };
    println!(
        "{name:<9} {:>8} {:>10.1} {:>10.1} {:>12.1} {:>12.1} {:>8} {:>6}",
        latencies.len(),
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0),
        records.into_inner(),
        scans.into_inner()
    );
}

fn read_by_id(store: &impl SharedStore, documents: u64, time: Duration) -> Vec<Duration> {
    let start = Instant::now();
    let mut latencies = Vec::new();
    let mut id = 0;
    while start.elapsed() < time {
        std::thread::sleep(INTERVAL);
        id = (id + 7919) % documents;
        let begin = Instant::now();
        let found = store.read(|c| c.get(&Value::Int(id as i64)).cloned());
        let mut took = begin.elapsed();
        assert!(found.is_some(), "document {id} is missing");
        latencies.push(took);
        while took > INTERVAL {
            took -= INTERVAL;
            latencies.push(took);
        }
    }
    latencies
}
