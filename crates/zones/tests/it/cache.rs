//! The cache of tablets, in front of a real S3 server. A proxy counts what is read from that.

use std::path::{Path as FsPath, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use rand::rngs::StdRng;
use rand::{RngCore, SeedableRng};
use tidemill_test_servers::{FaultyHttp, SharedServer, shared};
use tidemill_types::Timestamp;
use tidemill_zones::{RowRewrite, Zones, ZonesOptions};

use crate::support::{flush_all, options, push, stream};

const MIB: u64 = 1 << 20;

/// A bucket behind a proxy, and a directory for the cache.
struct Place {
    dir: tempfile::TempDir,
    prefix: String,
    proxy: FaultyHttp,
    _server: SharedServer,
}

impl Place {
    /// `None`, with a message, where the server cannot be had.
    fn new() -> Option<Self> {
        let server = shared("s3")?;
        let proxy = FaultyHttp::start(server.address("SERVERS_S3"), 1);
        let prefix = uuid::Uuid::new_v4().to_string();
        Some(Self { dir: tempfile::tempdir().unwrap(), prefix, proxy, _server: server })
    }

    fn cache_dir(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    async fn try_open(&self, zones: ZonesOptions) -> tidemill_types::Result<Zones> {
        let options = [
            ("endpoint", self.proxy.url()),
            ("access_key_id", "tidemill"),
            ("secret_access_key", "tidemill"),
            ("allow_http", "true"),
        ];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Zones::open(&format!("s3://tidemill/{}", self.prefix), 1, zones, &options).await
    }

    /// Opens with a cache of `memory` and `disk` MiB.
    async fn open(&self, memory: u64, disk: u64) -> Zones {
        let cache = ZonesOptions {
            cache_memory_bytes: memory * MIB,
            cache_disk_bytes: disk * MIB,
            cache_dir: Some(self.cache_dir()),
            ..options()
        };
        self.try_open(cache).await.unwrap()
    }

    /// Writes files of `mib` MiB with the names of tablets, and random content.
    async fn tablets(&self, zones: &Zones, count: usize, mib: u64) -> Vec<(Path, Bytes)> {
        let mut rng = StdRng::seed_from_u64(count as u64);
        let mut written = Vec::new();
        for _ in 0..count {
            // The last block is not full.
            let mut bytes = vec![0; (mib * MIB) as usize - 1_000];
            rng.fill_bytes(&mut bytes);
            let bytes = Bytes::from(bytes);
            let path = format!("{}/T/tablets/0/{}.parquet", self.prefix, uuid::Uuid::new_v4());
            let path = Path::from(path);
            zones.object_store().put(&path, PutPayload::from(bytes.clone())).await.unwrap();
            written.push((path, bytes));
        }
        self.reads();
        written
    }

    /// Returns how many reads of tablets arrived since the last call.
    fn reads(&self) -> usize {
        let requests = self.proxy.take_requests();
        requests.iter().filter(|r| r.method == "GET" && r.target.contains("/tablets/")).count()
    }
}

/// Reads ranges of a file in the ways that readers of Parquet do, and compares them.
async fn check(store: &Arc<dyn ObjectStore>, (path, bytes): &(Path, Bytes)) {
    let size = bytes.len() as u64;
    let ranges = [0..10, MIB - 5..MIB + 5, size - 100..size, 0..size, 7..7];
    let found = store.get_ranges(path, &ranges).await.unwrap();
    for (range, found) in ranges.iter().zip(&found) {
        assert!(bytes[range.start as usize..range.end as usize] == *found, "{range:?}");
    }
    let one = store.get_range(path, size - 8..size).await.unwrap();
    assert_eq!(one, bytes[bytes.len() - 8..]);
}

fn disk_bytes(dir: &FsPath) -> u64 {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_is_not_read_again_also_after_a_restart() {
    let Some(place) = Place::new() else { return };
    let zones = place.open(32, 64).await;
    let files = place.tablets(&zones, 3, 3).await;
    let store = zones.query_store();
    for file in &files {
        check(&store, file).await;
    }
    assert!(place.reads() >= 3);
    for file in &files {
        check(&store, file).await;
    }
    assert_eq!(place.reads(), 0);
    let stats = zones.cache_stats().unwrap();
    assert_eq!((stats.misses, stats.missed_bytes, stats.errors), (9, 9 * MIB - 3_000, 0));
    zones.close_cache().await;
    drop((zones, store));

    let zones = place.open(32, 64).await;
    let store = zones.query_store();
    for file in &files {
        check(&store, file).await;
    }
    assert_eq!(place.reads(), 0, "the disk has them: {:?}", zones.cache_stats());
    assert_eq!(zones.cache_stats().unwrap().disk_hits, 9);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scan_displaces_nothing_that_is_read_again_and_again() {
    let Some(place) = Place::new() else { return };
    let zones = place.open(8, 0).await;
    let hot = place.tablets(&zones, 1, 2).await.remove(0);
    let files = place.tablets(&zones, 16, 4).await;
    let store = zones.query_store();
    for _ in 0..4 {
        check(&store, &hot).await;
    }
    for (path, bytes) in &files {
        assert!(store.get_range(path, 0..bytes.len() as u64).await.unwrap() == *bytes);
        let memory = zones.cache_stats().unwrap().memory_bytes;
        assert!(memory <= 8 * MIB, "{memory} bytes");
    }
    place.reads();
    check(&store, &hot).await;
    assert_eq!(place.reads(), 0, "64 MiB passed through a memory of 8 MiB");
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold() {
    let Some(place) = Place::new() else { return };
    let zones = place.open(8, 32).await;
    let files = place.tablets(&zones, 16, 4).await;
    let store = zones.query_store();
    for file in files.iter().chain(&files) {
        check(&store, file).await;
        let memory = zones.cache_stats().unwrap().memory_bytes;
        assert!(memory <= 8 * MIB, "{memory} bytes");
        let disk = disk_bytes(&place.cache_dir());
        assert!(disk > 0 && disk <= 32 * MIB, "{disk} bytes");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_files_of_the_cache_yield_no_wrong_byte() {
    let Some(place) = Place::new() else { return };
    let zones = place.open(32, 64).await;
    let files = place.tablets(&zones, 3, 3).await;
    let store = zones.query_store();
    for file in &files {
        check(&store, file).await;
    }
    zones.close_cache().await;
    drop((zones, store));
    let mut damaged = 0;
    for entry in std::fs::read_dir(place.cache_dir()).unwrap() {
        let path = entry.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        // Every 64 KiB, but not in the first pages, so that entries are found and turn out to be damaged.
        for at in (100_000..bytes.len()).step_by(64 << 10) {
            damaged += usize::from(bytes[at] != 0);
            bytes[at] ^= 0x10;
        }
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(damaged > 50, "{damaged} bytes");
    let zones = place.open(32, 64).await;
    let store = zones.query_store();
    place.reads();
    for file in &files {
        check(&store, file).await;
    }
    assert!(place.reads() > 0, "damaged blocks are read from the store");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_that_cannot_be_used_is_told() {
    let Some(place) = Place::new() else { return };
    std::fs::write(place.cache_dir(), "a file").unwrap();
    let cache = ZonesOptions { cache_dir: Some(place.cache_dir()), ..options() };
    let error = place.try_open(cache).await.err().unwrap().to_string();
    assert!(error.contains("zones.cache_disk_bytes = 0"), "{error}");
    assert!(error.contains(place.cache_dir().to_str().unwrap()), "{error}");
    let without_disk = place.open(32, 0).await;
    assert!(without_disk.cache_stats().is_some());
    let small = ZonesOptions { cache_memory_bytes: 5, ..options() };
    let error = place.try_open(small).await.err().unwrap().to_string();
    assert!(error.contains("zones.cache_memory_bytes is 5: expected at least 8388608"), "{error}");
    let off = place.try_open(ZonesOptions { cache_memory_bytes: 0, ..options() }).await.unwrap();
    assert!(off.cache_stats().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_files_leave_the_cache() {
    let Some(place) = Place::new() else { return };
    let settings = ZonesOptions { removed_retention_s: 0, cache_dir: Some(place.cache_dir()), ..options() };
    let zones = place.try_open(settings).await.unwrap();
    let table = zones.table(&stream("Flight"), 4).await.unwrap();
    push(&table, 0, 0, 10);
    flush_all(&table).await.unwrap();
    let tablet = table.tablets()[0].clone();
    let store = zones.query_store();
    store.get_range(&tablet.path, 0..tablet.size).await.unwrap();
    let cached = zones.cache_stats().unwrap().memory_bytes;
    assert!(cached >= tablet.size);
    let all = Arc::new(|batch: &arrow_array::RecordBatch| {
        Ok(RowRewrite::Retain(arrow_array::BooleanArray::from(vec![false; batch.num_rows()])))
    });
    table.rewrite(all).await.unwrap();
    let removed_at = std::time::SystemTime::now();
    while table.remove_old_files().await.unwrap() == 0 {
        assert!(removed_at.elapsed().unwrap().as_secs() < 60, "the file is old a millisecond later");
    }
    assert!(zones.cache_stats().unwrap().memory_bytes < cached);
    assert!(store.get_range(&tablet.path, 0..tablet.size).await.is_err());
    assert_eq!(table.expire(Timestamp(0)).await.unwrap(), 0);
}
