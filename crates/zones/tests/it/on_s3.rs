//! The event store on a real S3 server: races, merges, removal, crashes and sweeps.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use arrow_array::BooleanArray;
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore};
use tidemill_test_servers::{SharedServer, shared};
use tidemill_types::{ErrorKind, Offset, Timestamp};
use tidemill_zones::sim_store::FaultyStore;
use tidemill_zones::{RowRewrite, RowRewriter, Table, Zones, ZonesOptions};

use crate::support::{START, assert_rows, batch, flush_all, options, p, push, stream};

/// A prefix of its own in the bucket of a server that runs.
struct Bucket {
    location: String,
    options: Vec<(String, String)>,
    _server: SharedServer,
}

impl Bucket {
    /// `None`, with a message, where the server cannot be had.
    fn open() -> Option<Self> {
        let server = shared("s3")?;
        let location = format!("s3://{}/{}", server.address("SERVERS_S3_BUCKET"), uuid::Uuid::new_v4());
        let options = [
            ("endpoint", server.address("SERVERS_S3")),
            ("access_key_id", "tidemill"),
            ("secret_access_key", "tidemill"),
            ("region", "us-east-1"),
            ("allow_http", "true"),
        ];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        Some(Self { location, options, _server: server })
    }

    async fn zones(&self, epoch: u64) -> Zones {
        Zones::open(&self.location, epoch, merging(), &self.options).await.unwrap()
    }

    async fn table(&self, epoch: u64) -> Arc<Table> {
        self.zones(epoch).await.table(&stream("Flight"), 4).await.unwrap()
    }

    /// Opens the table at a time `hours` from now; with faults, through them.
    async fn table_later(&self, epoch: u64, hours: i64, faults: Option<&Arc<FaultyStore>>) -> Arc<Table> {
        let zones = self.zones(epoch).await;
        let store = faults.map_or_else(|| zones.object_store(), |faults| faults.clone());
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let now = Timestamp(now.as_micros() as i64 + hours * 3_600_000_000);
        let url = zones.root_url().clone();
        let zones = Zones::with_store(store, url, epoch, merging(), Arc::new(move || now)).await.unwrap();
        zones.table(&stream("Flight"), 4).await.unwrap()
    }

    async fn store(&self) -> Arc<dyn ObjectStore> {
        self.zones(0).await.object_store()
    }

    async fn tablets(&self) -> Vec<String> {
        let prefix = self.location.splitn(4, '/').nth(3).unwrap();
        let dir = object_store::path::Path::from(format!("{prefix}/Flight/tablets"));
        let files: Vec<ObjectMeta> = self.store().await.list(Some(&dir)).try_collect().await.unwrap();
        files.into_iter().map(|file| file.location.to_string()).collect()
    }
}

fn merging() -> ZonesOptions {
    ZonesOptions { merge_tablets: 3, delta_checkpoint_commits: 10, ..options() }
}

fn delete_odd() -> RowRewriter {
    Arc::new(|batch| {
        let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>();
        Ok(RowRewrite::Retain(ids.iter().map(|id| id.map(|id| id % 2 == 0)).collect::<BooleanArray>()))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_race_and_owners_change() {
    let Some(bucket) = Bucket::open() else { return };
    let mut tasks = Vec::new();
    for n in 0..3 {
        let table = bucket.table(1).await;
        tasks.push(tokio::spawn(async move {
            for offset in 0..15 {
                push(&table, n, offset, 20);
                flush_all(&table).await.unwrap().unwrap();
            }
            table
        }));
    }
    let mut old = Vec::new();
    for task in tasks {
        old.push(task.await.unwrap());
    }
    let table = bucket.table(2).await;
    assert_eq!((table.snapshot().version, table.tablet_rows()), (45, 900));
    push(&table, 0, 15, 20);
    flush_all(&table).await.unwrap().unwrap();
    push(&old[0], 0, 15, 20);
    assert_eq!(flush_all(&old[0]).await.unwrap_err().kind(), ErrorKind::Conflict);
    let store = bucket.store().await;
    assert_rows(&store, &table, 920).await;
    assert_eq!(bucket.tablets().await.len(), table.tablets().len(), "a refused commit leaves no file");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_are_created_by_one_of_many() {
    let Some(bucket) = Bucket::open() else { return };
    let create = |n: u32| {
        let bucket = &bucket;
        async move {
            let table = bucket.table(1).await;
            push(&table, n, 0, 10);
            flush_all(&table).await.unwrap().unwrap();
        }
    };
    futures::join!(create(0), create(1), create(2), create(3));
    let table = bucket.table(2).await;
    assert_eq!((table.snapshot().version, table.tablet_rows()), (4, 40));
}

#[tokio::test(flavor = "multi_thread")]
async fn tablets_are_merged_rewritten_and_expire() {
    let Some(bucket) = Bucket::open() else { return };
    let table = bucket.table(1).await;
    for offset in 0..12 {
        push(&table, (offset % 4) as u32, offset, 40);
        flush_all(&table).await.unwrap().unwrap();
        while table.consolidate().await.unwrap().is_some() {}
    }
    let store = bucket.store().await;
    assert!(table.tablets().len() < 6, "{} tablets", table.tablets().len());
    assert_rows(&store, &table, 480).await;
    assert_rows(&store, &*bucket.table(2).await, 480).await;

    let table = bucket.table(2).await;
    assert_eq!(table.rewrite(delete_odd()).await.unwrap().deleted, 240);
    assert_rows(&store, &table, 240).await;
    assert_eq!(table.expire(Timestamp(START - 1)).await.unwrap(), 0);
    push(&table, 0, 20, 10);
    flush_all(&table).await.unwrap();
    assert_eq!(table.expire(Timestamp(START + 4_000_000_000)).await.unwrap(), 250);
    for table in [table, bucket.table(3).await] {
        assert_eq!((table.tablet_rows(), table.removed_rows()), (0, 490));
        assert_eq!(table.committed(p(0)), Some(Offset(20)), "removed rows do not come back from the log");
    }
    // After the retention nothing is left.
    assert!(!bucket.tablets().await.is_empty());
    let table = bucket.table_later(3, 49, None).await;
    assert!(table.remove_old_files().await.unwrap() > 12);
    assert_eq!(bucket.tablets().await, Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_request_loses_and_doubles_nothing() {
    let Some(first) = Bucket::open() else { return };
    let mut bucket = first;
    for crash_at in 0.. {
        let faults = FaultyStore::over(bucket.store().await);
        let table = bucket.table_later(1, 0, Some(&faults)).await;
        for offset in 0..3 {
            push(&table, 0, offset, 40);
            flush_all(&table).await.unwrap().unwrap();
        }
        push(&table, 3, 7, 5);
        faults.fail_after(crash_at);
        let survived = [
            table.consolidate().await.is_ok(),
            flush_all(&table).await.is_ok(),
            table.rewrite(delete_odd()).await.is_ok(),
        ];
        drop(table);

        let table = bucket.table_later(2, 0, None).await;
        if table.committed(p(3)) != Some(Offset(7)) {
            push(&table, 3, 7, 5);
            flush_all(&table).await.unwrap();
        }
        let store = bucket.store().await;
        let rows = table.tablet_rows() as usize;
        assert_eq!(rows + table.removed_rows() as usize, 125, "crash at request {crash_at}");
        assert_rows(&store, &table, rows).await;
        // After the retention no file is left that the table does not use.
        let table = bucket.table_later(2, 49, None).await;
        table.remove_old_files().await.unwrap();
        table.sweep_orphans().await.unwrap();
        assert_rows(&store, &table, rows).await;
        let files = bucket.tablets().await;
        assert_eq!(files.len(), table.tablets().len(), "crash at request {crash_at}: {files:?}");
        if survived == [true; 3] {
            assert!(crash_at > 5 && faults.operations.load(SeqCst) > 5);
            return;
        }
        bucket = Bucket::open().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_without_a_commit_is_swept_when_it_is_old() {
    let Some(bucket) = Bucket::open() else { return };
    let faults = FaultyStore::over(bucket.store().await);
    let table = bucket.table_later(1, 0, Some(&faults)).await;
    table.push(p(0), Offset(0), batch(0, 0, 10)).unwrap();
    // The tablet is uploaded; then the process ends.
    faults.fail_after(1);
    assert_eq!(flush_all(&table).await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(bucket.tablets().await.len(), 1);
    let table = bucket.table_later(2, 0, None).await;
    assert_eq!(table.sweep_orphans().await.unwrap(), 0, "a commit of it may be under way");
    assert_eq!((bucket.tablets().await.len(), table.tablets().len()), (1, 0));
    let later = bucket.table_later(2, 25, None).await;
    assert_eq!((bucket.tablets().await.len(), later.tablets().len()), (0, 0), "opening sweeps");
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_credentials_and_buckets_are_told() {
    let Some(bucket) = Bucket::open() else { return };
    let mut options = bucket.options.clone();
    options[2].1 = "another secret".to_owned();
    let error = Zones::open(&bucket.location, 1, merging(), &options).await.err().unwrap();
    let message = format!("{error} {error:?}");
    assert!(message.contains("check the credentials"), "{message}");
    assert!(!message.contains("another secret"), "{message}");
    let error = Zones::open("s3://no-such-bucket/x", 1, merging(), &bucket.options).await.err().unwrap();
    assert!(error.to_string().contains("no-such-bucket"), "{error}");
}
