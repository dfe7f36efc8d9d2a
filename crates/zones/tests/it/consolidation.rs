//! Small tablets become large ones, and no row is lost or doubled whatever happens on the way.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use tidemill_types::{ErrorKind, Offset, Timestamp};
use tidemill_zones::sim_store::FaultyStore;
use tidemill_zones::{Table, Zones, ZonesOptions};

use crate::support::{
    assert_rows, batch, files_below, flush_all, memory, options, p, push, read_parquet, rows_of, stream, url,
    zones,
};

/// Settings under which three tablets of a level are merged.
fn merging() -> ZonesOptions {
    ZonesOptions { merge_tablets: 3, merged_row_group_rows: 2_000, ..options() }
}

async fn open(store: &Arc<dyn ObjectStore>, epoch: u64) -> Arc<Table> {
    zones(store, epoch, merging()).await.table(&stream("Flight"), 4).await.unwrap()
}

/// Opens the table at a time `hours` from now.
async fn open_later(store: &Arc<dyn ObjectStore>, epoch: u64, hours: i64) -> Arc<Table> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64;
    let clock = Arc::new(move || Timestamp(now + hours * 3_600_000_000));
    let zones = Zones::with_store(store.clone(), url(), epoch, merging(), clock).await.unwrap();
    zones.table(&stream("Flight"), 4).await.unwrap()
}

fn levels(table: &Table) -> Vec<u32> {
    let mut levels: Vec<u32> = table.tablets().iter().map(|tablet| tablet.level).collect();
    levels.sort();
    levels
}

/// Flushes `count` tablets of 40 rows, the first at offset `from`.
async fn flush_tablets(table: &Table, from: u64, count: u64) {
    for offset in from..from + count {
        push(table, (offset % 4) as u32, offset, 40);
        flush_all(table).await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tablets_are_merged_level_by_level() {
    let store = memory();
    let t = open(&store, 1).await;
    let mut most = 0;
    for offset in 0..50 {
        flush_tablets(&t, offset, 1).await;
        while t.needs_consolidation() {
            let done = t.consolidate().await.unwrap().unwrap();
            assert_eq!((done.merged, done.rows % 40), (3, 0));
        }
        most = most.max(t.tablets().len());
    }
    // 50 flushes in base 3: 1212, with one tablet for each unit of each digit
    assert_eq!(levels(&t), [0, 0, 1, 2, 2, 3]);
    assert!(most <= 8, "{most} tablets");
    assert!(t.consolidate().await.unwrap().is_none());
    assert_rows(&store, &t, 2_000).await;
    assert_rows(&store, &*open(&store, 2).await, 2_000).await;
    for tablet in t.tablets().iter() {
        let bytes = store.get(&tablet.path).await.unwrap().bytes().await.unwrap();
        let rows: usize = read_parquet(bytes).iter().map(|batch| batch.num_rows()).sum();
        assert_eq!(rows as u64, tablet.rows);
        assert!(tablet.columns[6].min.is_some() && tablet.columns[0].null_count.is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn large_tablets_are_left_alone() {
    let store = memory();
    let t = open(&store, 1).await;
    flush_tablets(&t, 0, 5).await;
    assert!(t.needs_consolidation());
    let smallest = t.tablets().iter().map(|tablet| tablet.size).min().unwrap();
    let settings = ZonesOptions { tablet_bytes: 2 * smallest, ..merging() };
    let t = zones(&store, 2, settings).await.table(&stream("Flight"), 4).await.unwrap();
    assert!(!t.needs_consolidation(), "all have half the size that tablets may have");
    assert!(t.consolidate().await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_at_any_step_loses_and_doubles_nothing() {
    let mut steps = 0;
    for crash_at in 0.. {
        let faults = FaultyStore::over(memory());
        let store: Arc<dyn ObjectStore> = faults.clone();
        let t = open(&store, 1).await;
        flush_tablets(&t, 0, 3).await;
        push(&t, 3, 7, 5);
        // The store answers `crash_at` more requests; the process ends when it gives up.
        faults.fail_after(crash_at);
        let done = t.consolidate().await;
        let flushed = flush_all(&t).await;
        let removed = t.remove_old_files().await;
        let survived = done.is_ok() && flushed.is_ok() && removed.is_ok();
        drop(t);
        faults.recover();
        let t = open_later(&store, 2, 1).await;
        if t.committed(p(3)) != Some(Offset(7)) {
            push(&t, 3, 7, 5);
        }
        assert_rows(&store, &t, 125).await;
        while t.consolidate().await.unwrap().is_some() {}
        flush_all(&t).await.unwrap();
        assert_rows(&store, &t, 125).await;
        // After the retention no file is left that the table does not use.
        let t = open_later(&store, 2, 49).await;
        t.remove_old_files().await.unwrap();
        t.sweep_orphans().await.unwrap();
        assert_rows(&store, &t, 125).await;
        let files = files_below(&store, "tablets").await;
        assert_eq!(files.len(), t.tablets().len(), "crash at step {crash_at}: {files:?}");
        steps = crash_at;
        if survived {
            break;
        }
    }
    assert!(steps > 6, "only {steps} steps");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_of_unknown_outcome_is_settled_later() {
    let faults = FaultyStore::over(memory());
    let store: Arc<dyn ObjectStore> = faults.clone();
    let t = open(&store, 1).await;
    flush_tablets(&t, 0, 3).await;
    faults.lose_answers.store(1, SeqCst);
    faults.down_after_lost.store(true, SeqCst);
    assert_eq!(t.consolidate().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(levels(&t), [0, 0, 0]);
    push(&t, 0, 4, 5);
    faults.down.store(false, SeqCst);
    let done = flush_all(&t).await.unwrap().unwrap();
    assert_eq!((done.version, done.rows, done.files), (5, 5, 1));
    assert_eq!(levels(&t), [0, 1]);
    assert_rows(&store, &t, 125).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_former_owner_replaces_nothing() {
    let store = memory();
    let former = open(&store, 1).await;
    flush_tablets(&former, 0, 3).await;
    let later = open(&store, 2).await;
    push(&later, 0, 4, 5);
    flush_all(&later).await.unwrap();
    let error = former.consolidate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("epoch"), "{error}");
    assert_rows(&store, &later, 125).await;
    assert_eq!(files_below(&store, "tablets").await.len(), 4, "the refused tablet is gone");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_of_one_owner_do_not_replace_a_tablet_twice() {
    let store = memory();
    let first = open(&store, 1).await;
    flush_tablets(&first, 0, 3).await;
    let second = open(&store, 1).await;
    first.consolidate().await.unwrap().unwrap();
    let error = second.consolidate().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("another writer removed tablets/0/"), "{error}");
    assert_rows(&store, &second, 120).await;
    assert_eq!(levels(&second), [1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_keep_their_files_until_the_retention_is_over() {
    let store = memory();
    let t = open_later(&store, 1, 0).await;
    flush_tablets(&t, 0, 3).await;
    let before = t.snapshot();
    t.consolidate().await.unwrap().unwrap();
    assert_eq!(t.remove_old_files().await.unwrap(), 0);
    assert_eq!(rows_of(&store, &before).await.len(), 120);
    let t = open_later(&store, 1, 25).await;
    assert_eq!(t.remove_old_files().await.unwrap(), 3);
    assert_eq!(t.remove_old_files().await.unwrap(), 0);
    assert_rows(&store, &t, 120).await;
    let t = open_later(&store, 1, 26).await;
    assert_eq!(t.remove_old_files().await.unwrap(), 0, "what is deleted is not deleted again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_tablet_stays_where_it_is() {
    let store = memory();
    let t = open(&store, 1).await;
    flush_tablets(&t, 0, 3).await;
    let victim = t.tablets()[1].clone();
    let mut bytes = store.get(&victim.path).await.unwrap().bytes().await.unwrap().to_vec();
    bytes[40] ^= 4;
    store.put(&victim.path, PutPayload::from(bytes)).await.unwrap();
    let error = t.consolidate().await.unwrap_err();
    assert!(error.to_string().contains(&victim.name), "{error}");
    assert_eq!(levels(&t), [0, 0, 0]);
    // It does not keep the others from it.
    flush_tablets(&t, 3, 1).await;
    t.consolidate().await.unwrap().unwrap();
    assert_eq!((levels(&t), t.unmergeable()), (vec![0, 1], vec![victim.name.clone()]));
}

#[tokio::test(flavor = "multi_thread")]
async fn columns_come_and_go() {
    let store = memory();
    let t = open(&store, 1).await;
    flush_tablets(&t, 0, 2).await;
    let mut fewer = (*stream("Flight")).clone();
    fewer.fields.retain(|field| field.name != "delay");
    fewer.fields.push(tidemill_types::Field::new("gate", tidemill_types::FieldType::String));
    (fewer.id, fewer.time) = (vec![4], Some(3));
    let t = zones(&store, 2, merging()).await.table(&Arc::new(fewer), 4).await.unwrap();
    let old = batch(2, 9, 30);
    let columns = t.schema().fields().iter().map(|field| match old.column_by_name(field.name()) {
        Some(column) => column.clone(),
        None => arrow_array::new_null_array(field.data_type(), 30),
    });
    let rows = arrow_array::RecordBatch::try_new(t.schema().clone(), columns.collect()).unwrap();
    t.push(p(2), Offset(9), rows).unwrap();
    flush_all(&t).await.unwrap();
    t.consolidate().await.unwrap().unwrap();
    assert_rows(&store, &t, 110).await;
    let tablet = t.tablets()[0].clone();
    for t in [&t, &zones(&store, 3, merging()).await.table(t.stream(), 4).await.unwrap()] {
        let tablet = &t.tablets()[0];
        let nulls = |name: &str| {
            let index = t.snapshot().schema.index_of(name).unwrap();
            tablet.columns[index].null_count
        };
        assert_eq!((nulls("delay"), nulls("gate"), nulls("_row")), (Some(30), Some(110), Some(0)));
    }
    let bytes = store.get(&tablet.path).await.unwrap().bytes().await.unwrap();
    let merged =
        arrow_select::concat::concat_batches(&read_parquet(bytes.clone())[0].schema(), &read_parquet(bytes));
    let merged = merged.unwrap();
    assert_eq!(
        merged.column_by_name("delay").unwrap().null_count(),
        30,
        "the removed column keeps its values"
    );
    assert_eq!(merged.column_by_name("gate").unwrap().null_count(), 110);
}
