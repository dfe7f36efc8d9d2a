//! Reads of older versions.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use object_store::{ObjectStore, ObjectStoreExt};
use tidemill_types::{ErrorKind, Timestamp};
use tidemill_zones::{Clock, Table, VersionAt, Zones, ZonesOptions};

use crate::lifecycle::url_path;
use crate::support::{START, flush_all, memory, options, push, rows_of, stream, url};

const MINUTE: i64 = 60_000_000;

/// A table whose clock stands until it is set.
struct Watch {
    store: Arc<dyn ObjectStore>,
    now: Arc<AtomicI64>,
    table: Arc<Table>,
}

impl Watch {
    async fn open(options: ZonesOptions) -> Self {
        let (store, now) = (memory(), Arc::new(AtomicI64::new(START)));
        let clock: Clock = {
            let now = now.clone();
            Arc::new(move || Timestamp(now.load(Ordering::Relaxed)))
        };
        let zones = Zones::with_store(store.clone(), url(), 1, options, clock).await.unwrap();
        let table = zones.table(&stream("Flight"), 4).await.unwrap();
        Self { store, now, table }
    }

    /// Flushes record `offset` with 10 rows a minute after what was before.
    async fn flush(&self, offset: u64) {
        self.now.fetch_add(MINUTE, Ordering::Relaxed);
        push(&self.table, 0, offset, 10);
        flush_all(&self.table).await.unwrap().unwrap();
    }

    /// Returns the number of rows at `at`, each of which must be there once.
    async fn rows(&self, at: VersionAt) -> usize {
        let snapshot = self.table.snapshot_at(at).await.unwrap();
        let rows = rows_of(&self.store, &snapshot).await;
        assert!(snapshot.tail.is_empty() && rows.values().all(|count| *count == 1));
        rows.len()
    }

    async fn refused(&self, at: VersionAt) -> String {
        let error = self.table.snapshot_at(at).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
        error.to_string()
    }
}

fn at(minutes: i64) -> VersionAt {
    VersionAt::Time(Timestamp(START + minutes * MINUTE))
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_are_read_by_number_and_by_time() {
    let settings = ZonesOptions { delta_checkpoint_commits: 4, ..options() };
    let watch = Watch::open(settings).await;
    for offset in 0..10 {
        watch.flush(offset).await;
    }
    push(&watch.table, 0, 10, 10);
    for version in 0..=10 {
        assert_eq!(watch.rows(VersionAt::Version(version)).await, 10 * version as usize);
        assert_eq!(watch.rows(at(version as i64)).await, 10 * version as usize, "at the commit");
        assert_eq!(
            watch.rows(VersionAt::Time(Timestamp(START + version as i64 * MINUTE + 1))).await,
            10 * version as usize
        );
    }
    assert_eq!(watch.rows(at(1_000_000)).await, 100, "the tail is in no version");
    assert!(watch.refused(VersionAt::Version(11)).await.contains("its newest is 10"));
    assert!(
        watch
            .refused(at(-1))
            .await
            .contains("its oldest version that can be read, 0, is of 2013-01-01T10:00:00Z")
    );

    let versions = watch.table.versions().await.unwrap();
    let numbers: Vec<u64> = versions.iter().map(|v| v.version).collect();
    assert_eq!(numbers, (0..=10).collect::<Vec<_>>());
    let last = &versions[10];
    assert_eq!((last.operation.as_str(), last.files_added, last.files_removed), ("WRITE", 1, 0));
    assert_eq!(last.committed, Timestamp(START + 10 * MINUTE));
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_files_are_read_until_they_are_deleted() {
    let settings = ZonesOptions { removed_retention_s: 600, ..options() };
    let watch = Watch::open(settings).await;
    for offset in 0..8 {
        watch.flush(offset).await;
    }
    watch.now.fetch_add(MINUTE, Ordering::Relaxed);
    watch.table.consolidate().await.unwrap().expect("eight files are merged");
    assert_eq!(watch.table.versions().await.unwrap()[9].files_removed, 8);
    for version in [3, 8, 9] {
        assert_eq!(watch.rows(VersionAt::Version(version)).await, 10 * version.min(8) as usize);
    }
    watch.now.fetch_add(11 * MINUTE, Ordering::Relaxed);
    assert_eq!(watch.table.remove_old_files().await.unwrap(), 8);
    let gone = watch.refused(VersionAt::Version(3)).await;
    assert!(gone.contains("3 of its 3 files are gone") && gone.contains("600 seconds"), "{gone}");
    assert_eq!(watch.rows(VersionAt::Version(9)).await, 80);
}

#[tokio::test(flavor = "multi_thread")]
async fn versions_before_the_oldest_checkpoint_are_gone_with_their_entries() {
    let settings = ZonesOptions { delta_checkpoint_commits: 4, ..options() };
    let watch = Watch::open(settings).await;
    for offset in 0..10 {
        watch.flush(offset).await;
    }
    // as the cleanup of the Delta log does
    for version in 0..6 {
        let entry = format!("_delta_log/{version:020}.json");
        watch.store.delete(&url_path(&entry)).await.unwrap();
    }
    let oldest = watch.table.versions().await.unwrap()[0].version;
    assert!((6..=8).contains(&oldest), "{oldest}");
    for version in oldest..=10 {
        assert_eq!(watch.rows(VersionAt::Version(version)).await, 10 * version as usize);
    }
    let gone = watch.refused(VersionAt::Version(oldest - 1)).await;
    assert!(gone.contains(&format!("the oldest that can is {oldest}")), "{gone}");
    let gone = watch.refused(at(2)).await;
    assert!(gone.contains(&format!("its oldest version that can be read, {oldest},")), "{gone}");
}
