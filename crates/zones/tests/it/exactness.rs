//! Snapshots during concurrent pushes, flushes and merges contain each pushed row once.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use object_store::{ObjectStore, ObjectStoreExt};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_types::Offset;
use tidemill_zones::{Table, TableSnapshot, ZonesOptions};

use crate::support::{batch, count, memory, options, p, read_parquet, stream, zones};

const PARTITIONS: u32 = 3;
const RECORDS: u64 = 150;

/// Per partition: all offsets below it are pushed completely.
type Pushed = Arc<[AtomicU64; PARTITIONS as usize]>;

fn rows_of_record(partition: u32, offset: u64) -> usize {
    ((offset * 31 + u64::from(partition) * 7) % 13) as usize
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_snapshot_has_every_row_once() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or_else(rand::random);
    println!("SEED={seed}");
    let store = memory();
    let settings =
        ZonesOptions { tablet_rows_max: 400, delta_checkpoint_commits: 7, merge_tablets: 4, ..options() };
    let t = zones(&store, 1, settings).await.table(&stream("Flight"), PARTITIONS).await.unwrap();
    let pushed: Pushed = Arc::default();
    let done = Arc::new(AtomicBool::new(false));

    let pushers: Vec<_> = (0..PARTITIONS).map(|n| push_all(t.clone(), n, pushed.clone(), seed)).collect();
    let flushers: Vec<_> = (0..2)
        .map(|n| tokio::spawn(flush_some(t.clone(), pushed.clone(), done.clone(), seed + 100 + n)))
        .collect();
    let merger = tokio::spawn(merge_some(t.clone(), done.clone()));
    let reader = tokio::spawn(check_some(store.clone(), t.clone(), pushed.clone(), done.clone()));
    for pusher in pushers {
        tokio::task::spawn_blocking(move || pusher.join().unwrap()).await.unwrap();
    }
    done.store(true, Ordering::SeqCst);
    for flusher in flushers {
        flusher.await.unwrap();
    }
    let merges = merger.await.unwrap();
    let snapshots = reader.await.unwrap();
    println!("{snapshots} snapshots, {merges} merges, {} tablets", t.tablets().len());
    assert!(merges > 3);

    let total: usize = (0..PARTITIONS).flat_map(|n| (0..RECORDS).map(move |o| rows_of_record(n, o))).sum();
    let mut cache = HashMap::new();
    assert_eq!(exact(&store, &t.snapshot(), &mut cache).await.len(), total);
    assert_eq!(t.pending_rows() + t.tablet_rows(), total as u64);
}

fn push_all(t: Arc<Table>, n: u32, pushed: Pushed, seed: u64) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut rng = StdRng::seed_from_u64(seed + u64::from(n));
        for offset in 0..RECORDS {
            t.push(p(n), Offset(offset), batch(n, offset, rows_of_record(n, offset))).unwrap();
            pushed[n as usize].store(offset + 1, Ordering::SeqCst);
            // Flushes must keep up, so that there are many.
            while t.committed(p(n)).map_or(0, |o| o.0) + 25 < offset {
                std::thread::yield_now();
            }
            if rng.random_range(0..4) == 0 {
                std::thread::yield_now();
            }
        }
    })
}

async fn flush_some(t: Arc<Table>, pushed: Pushed, done: Arc<AtomicBool>, seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    while !done.load(Ordering::SeqCst) {
        let mut upto = Vec::new();
        for n in 0..PARTITIONS {
            let end = pushed[n as usize].load(Ordering::SeqCst);
            if end > 0 && rng.random_range(0..3) > 0 {
                upto.push((p(n), Offset(rng.random_range(0..end))));
            }
        }
        t.flush(&upto).await.unwrap();
        tokio::task::yield_now().await;
    }
}

async fn merge_some(t: Arc<Table>, done: Arc<AtomicBool>) -> usize {
    let mut merges = 0;
    while !done.load(Ordering::SeqCst) {
        merges += usize::from(t.consolidate().await.unwrap().is_some());
        tokio::task::yield_now().await;
    }
    merges
}

async fn check_some(
    store: Arc<dyn ObjectStore>,
    t: Arc<Table>,
    pushed: Pushed,
    done: Arc<AtomicBool>,
) -> usize {
    let mut cache = HashMap::new();
    let mut snapshots = 0;
    let mut version = 0;
    loop {
        let last = done.load(Ordering::SeqCst);
        let before: Vec<u64> = pushed.iter().map(|n| n.load(Ordering::SeqCst)).collect();
        let snapshot = t.snapshot();
        assert!(snapshot.version >= version);
        version = snapshot.version;
        let seen = exact(&store, &snapshot, &mut cache).await;
        for (n, end) in before.into_iter().enumerate() {
            for offset in 0..end {
                for row in 0..rows_of_record(n as u32, offset) {
                    let key = (n as i32, offset as i64, row as i32);
                    assert!(seen.contains_key(&key), "{key:?} is missing at version {version}");
                }
            }
        }
        snapshots += 1;
        if last {
            return snapshots;
        }
        tokio::task::yield_now().await;
    }
}

/// Returns the rows of a snapshot and checks that each is present once; tablets are read once.
async fn exact(
    store: &Arc<dyn ObjectStore>,
    snapshot: &TableSnapshot,
    cache: &mut HashMap<String, BTreeMap<(i32, i64, i32), usize>>,
) -> BTreeMap<(i32, i64, i32), usize> {
    let mut seen = BTreeMap::new();
    for tablet in snapshot.tablets.iter() {
        if !cache.contains_key(&tablet.name) {
            let mut rows = BTreeMap::new();
            let bytes = store.get(&tablet.path).await.unwrap().bytes().await.unwrap();
            read_parquet(bytes).iter().for_each(|b| count(b, &mut rows));
            cache.insert(tablet.name.clone(), rows);
        }
        for (key, n) in &cache[&tablet.name] {
            *seen.entry(*key).or_default() += n;
        }
    }
    snapshot.tail.iter().for_each(|b| count(b, &mut seen));
    if let Some((key, n)) = seen.iter().find(|(_, n)| **n != 1) {
        panic!("{key:?} is there {n} times at version {}", snapshot.version);
    }
    seen
}
