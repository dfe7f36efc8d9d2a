//! Encrypted tablets: written, merged, rewritten and inspected; without a value of an event in the store.

use std::sync::Arc;

use arrow_array::BooleanArray;
use bytes::Bytes;
use futures::TryStreamExt;
use object_store::{ObjectStore, ObjectStoreExt};
use parquet::arrow::arrow_reader::{ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use tidemill_encryption::DataKeys;
use tidemill_types::ErrorKind;
use tidemill_zones::{RowRewrite, RowRewriter, Table, TabletKeys, ZonesOptions};

use crate::support::{count, flush_all, memory, options, push, stream, zones};

fn keys() -> TabletKeys {
    TabletKeys::new(DataKeys::random().unwrap())
}

async fn open(store: &Arc<dyn ObjectStore>, epoch: u64, keys: Option<&TabletKeys>) -> Arc<Table> {
    let options = ZonesOptions { merge_tablets: 3, keys: keys.cloned(), ..options() };
    zones(store, epoch, options).await.table(&stream("Flight"), 4).await.unwrap()
}

async fn read(store: &Arc<dyn ObjectStore>, table: &Table, keys: &TabletKeys) -> usize {
    let mut seen = std::collections::BTreeMap::new();
    for tablet in table.tablets().iter() {
        let bytes = store.get(&tablet.path).await.unwrap().bytes().await.unwrap();
        let options = ArrowReaderOptions::new().with_file_decryption_properties(keys.for_reading().unwrap());
        let reader = ParquetRecordBatchReaderBuilder::try_new_with_options(bytes, options).unwrap();
        reader.build().unwrap().for_each(|batch| count(&batch.unwrap(), &mut seen));
    }
    assert!(seen.values().all(|times| *times == 1));
    seen.len()
}

/// Returns the content of all files of the store.
async fn files(store: &Arc<dyn ObjectStore>) -> Vec<(String, Bytes)> {
    let found: Vec<_> = store.list(None).try_collect().await.unwrap();
    let mut files = Vec::new();
    for meta in found {
        let bytes = store.get(&meta.location).await.unwrap().bytes().await.unwrap();
        files.push((meta.location.to_string(), bytes));
    }
    files
}

#[tokio::test(flavor = "multi_thread")]
async fn tablets_are_encrypted_and_their_bounds_are_known_with_the_keys_only() {
    let (store, keys) = (memory(), keys());
    let t = open(&store, 1, Some(&keys)).await;
    for offset in 0..3 {
        push(&t, 0, offset, 100);
        flush_all(&t).await.unwrap().unwrap();
    }
    assert_eq!(read(&store, &t, &keys).await, 300);
    for (path, bytes) in files(&store).await {
        if path.ends_with(".parquet") && path.contains("tablets") {
            assert_eq!(&bytes[..4], b"PARE", "{path} has an unencrypted footer");
            assert!(ParquetRecordBatchReaderBuilder::try_new(bytes).is_err());
        } else if path.ends_with(".json") {
            let text = std::str::from_utf8(&bytes).unwrap();
            assert!(!text.contains(r#"\"tail_number\":\""#), "{path} has bounds: {text}");
        }
    }
    let bounds = |t: &Table| {
        let of = |tablet: &tidemill_zones::Tablet| format!("{:?}", tablet.columns);
        t.tablets().iter().map(|tablet| of(tablet)).collect::<Vec<_>>()
    };
    let before = bounds(&t);
    assert!(before.iter().all(|columns| columns.contains("min: Some(")), "{before:?}");
    assert_eq!(bounds(&*open(&store, 2, Some(&keys)).await), before);
    let others = TabletKeys::new(DataKeys::random().unwrap());
    let with_others = ZonesOptions { keys: Some(others), ..options() };
    let error = zones(&store, 3, with_others).await.table(&stream("Flight"), 4).await.unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && error.to_string().contains("key ring"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tables_with_unencrypted_tablets_are_read_merged_and_rewritten() {
    let (store, keys) = (memory(), keys());
    let plain = open(&store, 1, None).await;
    for offset in 0..2 {
        push(&plain, 0, offset, 100);
        flush_all(&plain).await.unwrap().unwrap();
    }
    let t = open(&store, 2, Some(&keys)).await;
    push(&t, 0, 2, 100);
    flush_all(&t).await.unwrap().unwrap();
    assert_eq!(read(&store, &t, &keys).await, 300);
    let third: RowRewriter = Arc::new(|batch| {
        let kept = (0..batch.num_rows()).map(|row| Some(row % 3 != 0));
        Ok(RowRewrite::Retain(kept.collect::<BooleanArray>()))
    });
    let done = t.rewrite(third).await.unwrap();
    assert_eq!(done.tablets, 3);
    let rows = 300 - done.deleted as usize;
    assert_eq!(read(&store, &t, &keys).await, rows);
    let merged = t.consolidate().await.unwrap().unwrap();
    assert_eq!((merged.merged, merged.rows, t.tablets().len()), (3, rows as u64, 1));
    assert_eq!(read(&store, &t, &keys).await, rows);
    let bytes = store.get(&t.tablets()[0].path).await.unwrap().bytes().await.unwrap();
    assert_eq!(&bytes[..4], b"PARE", "what is merged is encrypted");
    let with_keys = ZonesOptions { keys: Some(keys), ..options() };
    let found = zones(&store, 3, with_keys).await.inspect_table("Flight").await.unwrap().unwrap();
    assert_eq!((found.tablets, found.damaged_tablets.len()), (1, 0), "{:?}", found.damaged_tablets);
}
