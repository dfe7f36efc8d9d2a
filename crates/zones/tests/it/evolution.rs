//! Changes of declarations.

use std::sync::Arc;

use arrow_array::{Array, Int64Array, RecordBatch};
use object_store::ObjectStoreExt;
use tidemill_types::{ErrorKind, Field, FieldType, Offset, StreamSchema};

use crate::support::{assert_rows, batch, flush_all, memory, options, p, push, read_parquet, stream, zones};

fn wider() -> Arc<StreamSchema> {
    let mut wide = (*stream("Flight")).clone();
    wide.fields.push(Field::new("gate", FieldType::Long));
    Arc::new(wide)
}

fn wide_batch(offset: u64, rows: usize) -> RecordBatch {
    let narrow = batch(0, offset, rows);
    let mut columns = narrow.columns().to_vec();
    columns.insert(6, Arc::new(Int64Array::from(vec![17; rows])));
    RecordBatch::try_new(wider().table_schema(), columns).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_field_joins_the_table() {
    let store = memory();
    let z = zones(&store, 1, options()).await;
    let narrow = z.table(&stream("Flight"), 4).await.unwrap();
    push(&narrow, 0, 0, 10);
    let error = z.table(&wider(), 4).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("flush it first"), "{error}");
    flush_all(&narrow).await.unwrap();

    let wide = z.table(&wider(), 4).await.unwrap();
    assert_eq!(wide.snapshot().version, 2);
    assert_eq!(narrow.push(p(0), Offset(1), batch(0, 1, 1)).unwrap_err().kind(), ErrorKind::Conflict);
    wide.push(p(0), Offset(1), wide_batch(1, 10)).unwrap();
    flush_all(&wide).await.unwrap();
    assert_rows(&store, &wide, 20).await;

    let snapshot = wide.snapshot();
    let gate = snapshot.schema.index_of("gate").unwrap();
    let known: Vec<_> = snapshot.tablets.iter().map(|t| t.columns[gate].null_count).collect();
    assert_eq!(
        known.iter().filter(|n| n.is_none()).count(),
        1,
        "the older tablet knows nothing of it: {known:?}"
    );
    let newest = snapshot.tablets.iter().find(|t| t.columns[gate].null_count.is_some()).unwrap();
    let bytes = store.get(&newest.path).await.unwrap().bytes().await.unwrap();
    assert_eq!(read_parquet(bytes)[0].column(gate).null_count(), 0);

    // Reopening with the same declaration commits nothing.
    let again = zones(&store, 2, options()).await.table(&wider(), 4).await.unwrap();
    assert_eq!(again.snapshot().version, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_field_stays_in_the_table_and_can_come_back() {
    let store = memory();
    let wide = zones(&store, 1, options()).await.table(&wider(), 4).await.unwrap();
    wide.push(p(0), Offset(0), wide_batch(0, 10)).unwrap();
    flush_all(&wide).await.unwrap();

    let z = zones(&store, 2, options()).await;
    let narrow = z.table(&stream("Flight"), 4).await.unwrap();
    assert_eq!(narrow.schema().index_of("gate").ok(), None, "what is pushed has declared fields only");
    assert_eq!(push(&narrow, 0, 1, 5), 5);
    flush_all(&narrow).await.unwrap();
    let snapshot = narrow.snapshot();
    assert_eq!(snapshot.schema.fields().last().unwrap().name(), "gate");
    assert_eq!(snapshot.version, 2, "a removed field is no commit");
    let stored = z.stored_table("Flight").await.unwrap().unwrap();
    let gate = stored.columns.iter().find(|c| c.name == "gate").unwrap();
    assert_eq!((stored.rows, gate.in_files, gate.ty), (15, true, Some(FieldType::Long)));
    assert_eq!(z.stored_table("Nothing").await.unwrap(), None);

    let again = zones(&store, 3, options()).await.table(&wider(), 4).await.unwrap();
    again.push(p(0), Offset(2), wide_batch(2, 10)).unwrap();
    flush_all(&again).await.unwrap();
    assert_rows(&store, &again, 25).await;
    let snapshot = again.snapshot();
    let gate = snapshot.schema.index_of("gate").unwrap();
    let nulls = snapshot.tablets.iter().map(|t| (t.rows, t.columns[gate].null_count));
    let mut nulls: Vec<_> = nulls.collect();
    // Rows of one millisecond have no defined order across tablets.
    nulls.sort_unstable();
    assert_eq!(nulls, [(5, None), (10, Some(0)), (10, Some(0))]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_column_that_files_hold_keeps_its_type() {
    let store = memory();
    let wide = zones(&store, 1, options()).await.table(&wider(), 4).await.unwrap();
    let retyped = |field: usize, ty| {
        let mut stream = (*wider()).clone();
        stream.fields[field].ty = ty;
        Arc::new(stream)
    };
    let z = zones(&store, 2, options()).await;
    let other = z.table(&retyped(1, FieldType::String), 4).await.unwrap();
    assert_eq!(other.pending_rows(), 0, "nothing is stored: any type will do");
    drop(wide);
    let wide = zones(&store, 3, options()).await.table(&wider(), 4).await.unwrap();
    wide.push(p(0), Offset(0), wide_batch(0, 10)).unwrap();
    flush_all(&wide).await.unwrap();
    let z = zones(&store, 4, options()).await;
    let error = z.table(&retyped(1, FieldType::String), 4).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    for part in ["`distance` is stored as integer but declared as string", "another name"] {
        assert!(error.to_string().contains(part), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_writer_that_missed_the_change_must_open_again() {
    let store = memory();
    let z = zones(&store, 1, options()).await;
    let old = z.table(&stream("Flight"), 4).await.unwrap();
    zones(&store, 1, options()).await.table(&wider(), 4).await.unwrap();
    push(&old, 0, 0, 10);
    let error = flush_all(&old).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("changed its schema in version 1"), "{error}");
    assert_rows(&store, &old, 10).await;

    // Close with a tail, reopen, push again from the log.
    z.close("Flight").await;
    assert_eq!(old.push(p(0), Offset(1), batch(0, 1, 1)).unwrap_err().kind(), ErrorKind::Conflict);
    let new = z.table(&wider(), 4).await.unwrap();
    assert_eq!((new.pending_rows(), new.committed(p(0))), (0, None));
    new.push(p(0), Offset(0), wide_batch(0, 10)).unwrap();
    flush_all(&new).await.unwrap().unwrap();
    assert_rows(&store, &new, 10).await;
}
