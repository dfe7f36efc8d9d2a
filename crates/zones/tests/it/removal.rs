//! Rows leave a table because they expire or are deleted, and are accounted for.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type};
use arrow_array::{BooleanArray, Float64Array, RecordBatch, TimestampMicrosecondArray};
use object_store::ObjectStore;
use tidemill_types::{ErrorKind, Offset, Result, Timestamp};
use tidemill_zones::sim_store::FaultyStore;
use tidemill_zones::{RowRewrite, RowRewriter, Table, ZonesOptions};

use crate::support::{
    START, assert_rows, batch, flush_all, memory, options, p, push, read_parquet, stream, zones,
};

const HOUR: i64 = 3_600_000_000;

async fn open(store: &Arc<dyn ObjectStore>, epoch: u64) -> Arc<Table> {
    let merging = ZonesOptions { merge_tablets: 3, ..options() };
    zones(store, epoch, merging).await.table(&stream("Flight"), 4).await.unwrap()
}

/// Flushes a tablet of `rows` rows whose times are spread over the hour that begins `hours` after [`START`].
async fn flush_hour(table: &Table, offset: u64, rows: usize, hours: i64) {
    let times = (0..rows as i64).map(|row| START + hours * HOUR + row * HOUR / rows as i64);
    let times = TimestampMicrosecondArray::from_iter_values(times).with_timezone("UTC");
    let times: arrow_array::ArrayRef = Arc::new(times);
    let rows = batch(0, offset, rows);
    let mut columns = rows.columns().to_vec();
    (columns[4], columns[6]) = (times.clone(), times);
    let rows = RecordBatch::try_new(rows.schema(), columns).unwrap();
    table.push(p(0), Offset(offset), rows).unwrap();
    flush_all(table).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn tablets_expire_as_a_whole() {
    let store = memory();
    let t = open(&store, 1).await;
    for hour in 0..4 {
        flush_hour(&t, hour as u64, 50, hour).await;
    }
    let version = t.snapshot().version;
    assert_eq!(t.expire(Timestamp(START)).await.unwrap(), 0);
    assert_eq!(t.snapshot().version, version, "nothing has expired, nothing is committed");
    // Two tablets are older as a whole, one in part.
    assert_eq!(t.expire(Timestamp(START + 2 * HOUR + HOUR / 2)).await.unwrap(), 100);
    assert_eq!((t.tablets().len(), t.tablet_rows(), t.removed_rows()), (2, 100, 100));
    for t in [t, open(&store, 2).await] {
        assert_eq!((t.tablets().len(), t.tablet_rows(), t.removed_rows()), (2, 100, 100));
        assert_rows(&store, &t, 100).await;
        assert_eq!(t.committed(p(0)), Some(Offset(3)), "expired rows do not come back from the log");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_expire_when_tablets_are_merged() {
    let store = memory();
    let t = open(&store, 1).await;
    for offset in 0..3 {
        flush_hour(&t, offset, 200, 0).await;
    }
    let cut = START + HOUR / 2;
    assert_eq!(t.expire(Timestamp(cut)).await.unwrap(), 0);
    let done = t.consolidate().await.unwrap().unwrap();
    assert!(done.rows > 100 && done.rows < 500, "{done:?}");
    assert_eq!((t.tablet_rows(), t.tablet_rows() + t.removed_rows()), (done.rows, 600));
    assert_rows(&store, &t, done.rows as usize).await;
    // All rows of a merge may have expired.
    for offset in 3..6 {
        flush_hour(&t, offset, 10, 0).await;
    }
    t.expire(Timestamp(START + HOUR)).await.unwrap();
    assert_eq!((t.tablet_rows(), t.removed_rows(), t.tablets().len()), (0, 630, 0));
}

fn delete_odd() -> RowRewriter {
    Arc::new(|batch| {
        let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>();
        Ok(RowRewrite::Retain(ids.iter().map(|id| id.map(|id| id % 2 == 0)).collect::<BooleanArray>()))
    })
}

/// Halves the delay of the rows with an id below 20.
fn halve_delay() -> RowRewriter {
    Arc::new(|batch: &RecordBatch| -> Result<RowRewrite> {
        let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>();
        let delays = batch.column(2).as_primitive::<Float64Type>();
        let chosen = |row: usize| ids.value(row) < 20;
        let count = (0..batch.num_rows()).filter(|row| chosen(*row)).count();
        if count == 0 {
            return Ok(RowRewrite::Keep);
        }
        let delay = |row: usize| delays.value(row) / if chosen(row) { 2.0 } else { 1.0 };
        let mut columns = batch.columns().to_vec();
        columns[2] = Arc::new(Float64Array::from_iter_values((0..batch.num_rows()).map(delay)));
        Ok(RowRewrite::Replace(RecordBatch::try_new(batch.schema(), columns).unwrap(), count as u64))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn rows_are_deleted_and_changed() {
    let store = memory();
    let t = open(&store, 1).await;
    for offset in 0..3 {
        push(&t, 0, offset, 100);
        flush_all(&t).await.unwrap();
    }
    let done = t.rewrite(halve_delay()).await.unwrap();
    assert_eq!((done.changed, done.deleted, done.tablets), (20, 0, 1), "two tablets have no such row");
    let mut halved = 0;
    for tablet in t.tablets().iter() {
        let bytes =
            object_store::ObjectStoreExt::get(&store, &tablet.path).await.unwrap().bytes().await.unwrap();
        for batch in read_parquet(bytes) {
            let ids = batch.column_by_name("id").unwrap().as_primitive::<Int64Type>().clone();
            let delays = batch.column(2).as_primitive::<Float64Type>();
            for row in 0..batch.num_rows() {
                let id = ids.value(row);
                let before = id as f64 / 8.0 - 20.0;
                halved += usize::from(delays.value(row) == before / 2.0);
                assert!(delays.value(row) == if id < 20 { before / 2.0 } else { before });
            }
        }
    }
    assert_eq!(halved, 20);
    let done = t.rewrite(delete_odd()).await.unwrap();
    assert_eq!((done.deleted, done.tablets), (150, 3));
    assert_eq!((t.tablet_rows(), t.removed_rows()), (150, 150));
    assert_eq!(t.rewrite(delete_odd()).await.unwrap().tablets, 0);
    let all: RowRewriter =
        Arc::new(|batch| Ok(RowRewrite::Retain(BooleanArray::from(vec![false; batch.num_rows()]))));
    assert_eq!(t.rewrite(all).await.unwrap().deleted, 150);
    assert_eq!((t.tablets().len(), t.removed_rows()), (0, 300));
    assert_rows(&store, &*open(&store, 2).await, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_of_the_caller_changes_nothing() {
    let store = memory();
    let t = open(&store, 1).await;
    push(&t, 0, 0, 100);
    flush_all(&t).await.unwrap();
    let failing: RowRewriter = Arc::new(|_| Err(tidemill_types::Error::invalid("division by zero")));
    let error = t.rewrite(failing).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert_rows(&store, &t, 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn removals_are_counted_when_an_outcome_was_unknown() {
    let faults = FaultyStore::over(memory());
    let store: Arc<dyn ObjectStore> = faults.clone();
    let t = open(&store, 1).await;
    for hour in 0..4 {
        flush_hour(&t, hour as u64, 50, hour).await;
    }
    faults.lose_answers.store(1, std::sync::atomic::Ordering::SeqCst);
    faults.down_after_lost.store(true, std::sync::atomic::Ordering::SeqCst);
    let error = t.expire(Timestamp(START + HOUR)).await.unwrap_err();
    assert!(error.to_string().contains("the outcome is not known"), "{error}");
    faults.recover();
    assert_eq!(t.rewrite(delete_odd()).await.unwrap().deleted, 75);
    assert_eq!((t.tablet_rows(), t.removed_rows()), (75, 125));
    assert_rows(&store, &*open(&store, 2).await, 75).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_crash_removes_all_or_nothing() {
    for crash_at in 0.. {
        let faults = FaultyStore::over(memory());
        let store: Arc<dyn ObjectStore> = faults.clone();
        let t = open(&store, 1).await;
        for hour in 0..3 {
            flush_hour(&t, hour as u64, 50, hour).await;
        }
        faults.fail_after(crash_at);
        let expired = t.expire(Timestamp(START + HOUR)).await;
        let deleted =
            if expired.is_ok() { t.rewrite(delete_odd()).await.map(|done| done.deleted) } else { Ok(0) };
        drop(t);
        faults.recover();
        let t = open(&store, 2).await;
        let rows = t.tablet_rows();
        assert!([150, 100, 50].contains(&rows), "crash at step {crash_at}: {rows} rows");
        assert_eq!(rows + t.removed_rows(), 150);
        assert_rows(&store, &t, rows as usize).await;
        if expired.is_ok() && deleted.is_ok() {
            assert_eq!(rows, 50);
            break;
        }
    }
}
