//! A test stream, its batches, and stores that fail on demand.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{
    BooleanArray, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidemill_types::{Field, FieldType, Offset, PartitionId, StreamSchema, Timestamp};
use tidemill_zones::{Table, TableSnapshot, Zones, ZonesOptions};
use url::Url;

/// 2013-01-01T10:00:00Z.
pub const START: i64 = 1_357_034_400_000_000;

pub fn stream(name: &str) -> Arc<StreamSchema> {
    let fields = [
        ("tail_number", FieldType::String),
        ("distance", FieldType::Int),
        ("delay", FieldType::Double),
        ("cancelled", FieldType::Bool),
        ("scheduled", FieldType::Time),
        ("id", FieldType::Long),
    ];
    let fields = fields.map(|(name, ty)| Field::new(name, ty)).to_vec();
    Arc::new(StreamSchema { name: name.to_owned(), fields, key: Some(0), id: vec![5], time: Some(4) })
}

/// Returns rows of record `offset` of partition `p` with [`StreamSchema::table_schema`] of [`stream`]. Their
/// content is a function of `p`, `offset` and the row.
pub fn batch(p: u32, offset: u64, rows: usize) -> RecordBatch {
    let ids = || (0..rows as i64).map(|row| offset as i64 * 1_000 + row);
    let times = || ids().map(|id| START + (id * 7_919 + i64::from(p) * 13) % 3_600_000_000);
    let utc = |values: Vec<i64>| TimestampMicrosecondArray::from(values).with_timezone("UTC");
    let columns: Vec<arrow_array::ArrayRef> = vec![
        Arc::new(StringArray::from_iter(
            ids().map(|id| (id % 11 != 0).then(|| format!("N{:04}", id * 31 % 97))),
        )),
        Arc::new(Int32Array::from_iter(ids().map(|id| (id % 5 != 0).then_some((id % 3_000) as i32)))),
        Arc::new(Float64Array::from_iter_values(ids().map(|id| id as f64 / 8.0 - 20.0))),
        Arc::new(BooleanArray::from_iter(ids().map(|id| Some(id % 50 == 0)))),
        Arc::new(utc(times().collect())),
        Arc::new(Int64Array::from_iter_values(ids())),
        Arc::new(utc(times().collect())),
        Arc::new(StringArray::from_iter(ids().map(|id| (id % 7 == 0).then_some(r#"{"note":"x"}"#)))),
        Arc::new(utc(vec![START + 5; rows])),
        Arc::new(Int32Array::from(vec![p as i32; rows])),
        Arc::new(Int64Array::from(vec![offset as i64; rows])),
        Arc::new(Int32Array::from_iter_values(0..rows as i32)),
    ];
    RecordBatch::try_new(stream("any").table_schema(), columns).unwrap()
}

/// Settings under which a test does not wait.
pub fn options() -> ZonesOptions {
    ZonesOptions {
        retry_backoff_ms: 0,
        retry_attempts: 3,
        row_group_rows: 1_000,
        page_rows: 100,
        ..ZonesOptions::default()
    }
}

pub fn url() -> Url {
    Url::parse("memory:///tables").unwrap()
}

pub async fn zones(store: &Arc<dyn ObjectStore>, epoch: u64, options: ZonesOptions) -> Zones {
    let clock = Arc::new(|| Timestamp(START + 3_600_000_000));
    Zones::with_store(store.clone(), url(), epoch, options, clock).await.unwrap()
}

pub async fn table(store: &Arc<dyn ObjectStore>, epoch: u64) -> Arc<Table> {
    zones(store, epoch, options()).await.table(&stream("Flight"), 4).await.unwrap()
}

pub fn memory() -> Arc<dyn ObjectStore> {
    Arc::new(InMemory::new())
}

pub fn p(n: u32) -> PartitionId {
    PartitionId(n)
}

pub fn push(table: &Table, partition: u32, offset: u64, rows: usize) -> usize {
    table.push(p(partition), Offset(offset), batch(partition, offset, rows)).unwrap()
}

/// Flushes all rows of all partitions.
pub async fn flush_all(table: &Table) -> tidemill_types::Result<Option<tidemill_zones::FlushResult>> {
    let all: Vec<_> = (0..4).map(|n| (p(n), Offset(u64::MAX >> 1))).collect();
    table.flush(&all).await
}

/// Returns (partition, offset, row) of every row of a snapshot and how often it occurs.
pub async fn rows_of(
    store: &Arc<dyn ObjectStore>,
    snapshot: &TableSnapshot,
) -> BTreeMap<(i32, i64, i32), usize> {
    let mut seen = BTreeMap::new();
    for tablet in snapshot.tablets.iter() {
        let bytes = store.get(&tablet.path).await.unwrap().bytes().await.unwrap();
        assert_eq!(bytes.len() as u64, tablet.size);
        for batch in read_parquet(bytes) {
            count(&batch, &mut seen);
        }
    }
    for batch in &snapshot.tail {
        count(batch, &mut seen);
    }
    seen
}

pub fn read_parquet(bytes: Bytes) -> Vec<RecordBatch> {
    ParquetRecordBatchReaderBuilder::try_new(bytes).unwrap().build().unwrap().map(|b| b.unwrap()).collect()
}

pub fn count(batch: &RecordBatch, seen: &mut BTreeMap<(i32, i64, i32), usize>) {
    let column = |name: &str| batch.column_by_name(name).unwrap();
    let partitions = column("_partition").as_primitive::<Int32Type>();
    let offsets = column("_offset").as_primitive::<Int64Type>();
    let rows = column("_row").as_primitive::<Int32Type>();
    for row in 0..batch.num_rows() {
        *seen.entry((partitions.value(row), offsets.value(row), rows.value(row))).or_default() += 1;
    }
}

/// Returns the paths of all files below `dir` of the table.
pub async fn files_below(store: &Arc<dyn ObjectStore>, dir: &str) -> Vec<String> {
    use futures::TryStreamExt;
    let dir = crate::lifecycle::url_path(dir);
    let files: Vec<_> = store.list(Some(&dir)).try_collect().await.unwrap();
    files.into_iter().map(|file| file.location.to_string()).collect()
}

/// Asserts that a snapshot contains `rows` different rows, each once.
pub async fn assert_rows(store: &Arc<dyn ObjectStore>, table: &Table, rows: usize) {
    let seen = rows_of(store, &table.snapshot()).await;
    assert_eq!(seen.len(), rows);
    assert!(seen.values().all(|n| *n == 1), "rows that are there more than once");
}
