//! Create, push, flush, reopen; limits; maintenance.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidemill_types::{ErrorKind, Offset, Timestamp, Value};
use tidemill_zones::{Compression, Zones, ZonesOptions};

use crate::support::{
    START, assert_rows, batch, flush_all, memory, options, p, push, read_parquet, stream, table, url, zones,
};

#[tokio::test(flavor = "multi_thread")]
async fn rows_go_from_tail_to_tablet_and_survive() {
    let store = memory();
    let t = table(&store, 1).await;
    for offset in 0..20 {
        assert_eq!(push(&t, (offset % 3) as u32, offset, 50), 50);
    }
    assert_eq!((t.pending_rows(), t.tablet_rows()), (1_000, 0));
    assert_eq!((t.committed(p(0)), t.first_pending(p(1))), (None, Some(Offset(1))));
    assert_rows(&store, &t, 1_000).await;

    // Flush a part: partition 0 up to its third record, partition 1 completely.
    let done = t.flush(&[(p(0), Offset(7)), (p(1), Offset(100)), (p(3), Offset(5))]).await.unwrap().unwrap();
    assert_eq!((done.version, done.rows, done.files), (1, 3 * 50 + 7 * 50, 1));
    assert_eq!(done.offsets, [(p(0), Offset(6)), (p(1), Offset(19))]);
    assert_eq!((t.committed(p(0)), t.first_pending(p(0))), (Some(Offset(6)), Some(Offset(9))));
    assert_eq!((t.first_pending(p(1)), t.committed(p(2))), (None, None));
    assert_eq!((t.pending_rows(), t.tablet_rows()), (500, 500));
    assert_rows(&store, &t, 1_000).await;
    assert!(t.flush(&[(p(0), Offset(7))]).await.unwrap().is_none());
    drop(t);

    // The process restarts; the log pushes from the beginning.
    let t = table(&store, 2).await;
    assert_eq!((t.pending_rows(), t.tablet_rows(), t.snapshot().version), (0, 500, 1));
    for offset in 0..20 {
        let partition = (offset % 3) as u32;
        let expected = if partition == 1 || (partition == 0 && offset <= 6) { 0 } else { 50 };
        assert_eq!(push(&t, partition, offset, 50), expected, "offset {offset}");
    }
    assert_rows(&store, &t, 1_000).await;
    flush_all(&t).await.unwrap().unwrap();
    assert_eq!((t.pending_rows(), t.pending_bytes(), t.tablet_rows()), (0, 0, 1_000));
    assert_rows(&store, &t, 1_000).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_moment_has_no_later_rows() {
    let store = memory();
    let t = table(&store, 1).await;
    for offset in 0..6 {
        push(&t, (offset % 2) as u32, offset, 10);
    }
    let rows = |next: [u64; 4]| {
        let snapshot = t.snapshot_before(&next.map(Offset))?;
        let tail = snapshot.tail.iter().map(arrow_array::RecordBatch::num_rows).sum::<usize>() as u64;
        Some((snapshot.tablets.iter().map(|t| t.rows).sum::<u64>(), tail))
    };
    assert_eq!(rows([0; 4]), Some((0, 0)));
    assert_eq!(rows([3, 3, 0, 0]), Some((0, 30)), "offsets 0, 2 and 1");
    assert_eq!(rows([100; 4]), Some((0, 60)));
    t.flush(&[(p(0), Offset(2)), (p(1), Offset(1))]).await.unwrap().unwrap();
    assert_eq!(rows([3, 2, 0, 0]), Some((30, 0)));
    assert_eq!(rows([5, 2, 0, 0]), Some((30, 10)));
    assert_eq!(rows([2, 2, 0, 0]), None, "a file has offset 2 of partition 0");
    assert_eq!(rows([3, 1, 0, 0]), None, "a file has offset 1 of partition 1");
}

#[tokio::test(flavor = "multi_thread")]
async fn tablets_are_sorted_and_described() {
    let store = memory();
    let settings = ZonesOptions { tablet_rows_max: 1_500, compression: Compression::Snappy, ..options() };
    let t = zones(&store, 1, settings).await.table(&stream("Flight"), 4).await.unwrap();
    for offset in 0..40 {
        push(&t, (offset % 4) as u32, offset, 100);
    }
    let done = flush_all(&t).await.unwrap().unwrap();
    assert_eq!((done.files, done.rows), (3, 4_000));

    let snapshot = t.snapshot();
    let mut rows = Vec::new();
    for tablet in snapshot.tablets.iter() {
        assert!(tablet.name.starts_with("tablets/0/") && tablet.level == 0);
        let bytes = store.get(&tablet.path).await.unwrap().bytes().await.unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(bytes.clone()).unwrap();
        let metadata = reader.metadata().clone();
        assert_eq!(metadata.num_row_groups(), 2);
        let group = metadata.row_group(0);
        assert_eq!(group.sorting_columns().unwrap().len(), 5);
        assert!(group.column(0).bloom_filter_offset().is_some(), "the key has a Bloom filter");
        assert!(group.column(5).bloom_filter_offset().is_some(), "the id has one");
        assert!(group.column(1).bloom_filter_offset().is_none());
        assert!(group.column(0).column_index_offset().is_some(), "there is a page index");
        let mut counted = 0;
        for batch in read_parquet(bytes) {
            counted += batch.num_rows() as u64;
            let keys = batch.column(0).as_string::<i32>().clone();
            let times = batch.column(6).as_primitive::<TimestampMicrosecondType>().clone();
            for row in 0..batch.num_rows() {
                let key = keys.is_valid(row).then(|| keys.value(row).to_owned());
                rows.push((tablet.name.clone(), key, times.value(row)));
            }
        }
        assert_eq!(counted, tablet.rows);
    }
    assert!(rows.chunk_by(|a, b| a.0 == b.0).all(|tablet| tablet.is_sorted()));
    // Tablets of one flush cover consecutive key ranges.
    let mut first_keys: Vec<_> =
        rows.chunk_by(|a, b| a.0 == b.0).map(|t| (t[0].1.clone(), t[t.len() - 1].1.clone())).collect();
    first_keys.sort();
    assert!(first_keys.windows(2).all(|w| w[0].1 <= w[1].0), "{first_keys:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn statistics_bound_every_value() {
    let store = memory();
    let t = table(&store, 1).await;
    push(&t, 0, 3, 200);
    flush_all(&t).await.unwrap();
    for t in [t, table(&store, 2).await] {
        let snapshot = t.snapshot();
        let stats = &snapshot.tablets[0].columns;
        let text = |v: &Option<Value<'_>>| v.as_ref().map_or("unknown".to_owned(), ToString::to_string);
        let shown =
            |i: usize| format!("{} {} {:?}", text(&stats[i].min), text(&stats[i].max), stats[i].null_count);
        assert_eq!(shown(0), r#""N0000" "N0096" Some(18)"#);
        assert_eq!(shown(1), "1 2999 Some(40)".replace("1 2999", &bounds_of_distance()));
        assert_eq!(shown(3), "unknown unknown Some(0)");
        assert_eq!(shown(5), "3000 3199 Some(0)");
        assert_eq!(
            shown(7),
            format!("unknown unknown Some({})", (3_000..3_200).filter(|id| id % 7 != 0).count())
        );
        // START + 5 µs, rounded outwards to milliseconds.
        assert_eq!(shown(8), format!("{} {} Some(0)", Timestamp(START), Timestamp(START + 1_000)));
    }
}

fn bounds_of_distance() -> String {
    let values: Vec<i64> = (3_000..3_200).filter(|id| id % 5 != 0).map(|id| id % 3_000).collect();
    format!("{} {}", values.iter().min().unwrap(), values.iter().max().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_tail_refuses_until_it_is_flushed() {
    let store = memory();
    let settings = ZonesOptions { tail_bytes_max: 20_000, ..options() };
    let t = zones(&store, 1, settings).await.table(&stream("Flight"), 4).await.unwrap();
    let mut offset = 0;
    let refused = loop {
        match t.push(p(0), Offset(offset), batch(0, offset, 100)) {
            Ok(_) => offset += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(refused.kind(), ErrorKind::LimitReached);
    assert!(refused.to_string().contains("zones.tail_bytes_max"), "{refused}");
    assert_eq!(t.pending_rows(), offset * 100);
    flush_all(&t).await.unwrap();
    push(&t, 0, offset, 100);
    assert_rows(&store, &t, (offset as usize + 1) * 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_belong_is_refused() {
    let store = memory();
    let t = table(&store, 1).await;
    let kind = |r: tidemill_types::Result<usize>| r.unwrap_err().kind();
    assert_eq!(kind(t.push(p(4), Offset(0), batch(4, 0, 1))), ErrorKind::Invalid);
    assert_eq!(kind(t.push(p(1), Offset(0), batch(0, 0, 1))), ErrorKind::Invalid);
    assert_eq!(kind(t.push(p(0), Offset(9), batch(0, 0, 1))), ErrorKind::Invalid);
    assert_eq!(kind(t.push(p(0), Offset(0), batch(0, 0, 1).project(&[0]).unwrap())), ErrorKind::Invalid);
    push(&t, 0, 5, 1);
    assert_eq!(kind(t.push(p(0), Offset(4), batch(0, 4, 1))), ErrorKind::Internal);
    assert_eq!(push(&t, 0, 6, 0), 0);
    assert_rows(&store, &t, 1).await;
    assert_eq!(t.flush(&[(p(9), Offset(0))]).await.unwrap_err().kind(), ErrorKind::Invalid);

    let z = zones(&store, 1, options()).await;
    for name in ["", "..", "a/b", "späte", "-x"] {
        assert_eq!(z.table(&stream(name), 1).await.unwrap_err().kind(), ErrorKind::Invalid, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delta_checkpoints_carry_the_state() {
    let store = memory();
    let settings = ZonesOptions { delta_checkpoint_commits: 4, delta_log_retention_s: 0, ..options() };
    let z = zones(&store, 1, settings.clone()).await;
    let t = z.table(&stream("Flight"), 4).await.unwrap();
    for offset in 0..10 {
        push(&t, (offset % 2) as u32, offset, 10);
        flush_all(&t).await.unwrap().unwrap();
    }
    let names = log_files(&store).await;
    assert!(names.iter().any(|n| n.ends_with("08.checkpoint.parquet")), "{names:?}");
    assert!(!names.iter().any(|n| n.ends_with("03.json")), "old entries are gone: {names:?}");

    let t = zones(&store, 2, settings.clone()).await.table(&stream("Flight"), 4).await.unwrap();
    assert_eq!((t.snapshot().version, t.tablet_rows()), (10, 100));
    assert_eq!(
        (t.committed(p(0)), t.committed(p(1)), t.committed(p(2))),
        (Some(Offset(8)), Some(Offset(9)), None)
    );
    assert_rows(&store, &t, 100).await;
    let stats = &t.snapshot().tablets[0].columns;
    assert!(
        stats[6].min.is_some() && stats[0].null_count.is_some(),
        "statistics survive the Delta checkpoint"
    );

    // A wrong hint does no harm.
    let hint = url_path("_delta_log/_last_checkpoint");
    store.put(&hint, PutPayload::from_static(b"{\"version\": 3, \"size\": 1}")).await.unwrap();
    let t = zones(&store, 2, settings).await.table(&stream("Flight"), 4).await.unwrap();
    assert_eq!(t.tablet_rows(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn orphans_go_when_they_are_old_and_nothing_else_does() {
    let store = memory();
    let t = table(&store, 1).await;
    push(&t, 0, 0, 10);
    flush_all(&t).await.unwrap();
    let orphan = url_path(&format!("tablets/0/{}.parquet", uuid::Uuid::now_v7()));
    let foreign = url_path("tablets/0/notes.txt");
    for path in [&orphan, &foreign] {
        store.put(path, PutPayload::from_static(b"x")).await.unwrap();
    }
    let open_at = async |hours: i64| {
        let now =
            std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as i64;
        let clock = Arc::new(move || Timestamp(now + hours * 3_600_000_000));
        let z = Zones::with_store(store.clone(), url(), 1, options(), clock).await.unwrap();
        z.table(&stream("Flight"), 4).await.unwrap()
    };
    open_at(1).await;
    assert!(store.head(&orphan).await.is_ok(), "a commit may be under way");
    let t = open_at(25).await;
    assert!(store.head(&orphan).await.is_err());
    assert!(store.head(&foreign).await.is_ok());
    assert_rows(&store, &t, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn vacuum_and_flush_take_turns() {
    let store = memory();
    let t = table(&store, 1).await;
    push(&t, 0, 0, 10);
    flush_all(&t).await.unwrap();
    let orphan = url_path(&format!("tablets/0/{}.parquet", uuid::Uuid::now_v7()));
    store.put(&orphan, PutPayload::from_static(b"x")).await.unwrap();
    assert_eq!(t.vacuum(Duration::ZERO, true).await.unwrap().len(), 1);
    assert!(store.head(&orphan).await.is_ok());
    assert_eq!(t.vacuum(Duration::ZERO, false).await.unwrap().len(), 1);
    assert!(store.head(&orphan).await.is_err());
    push(&t, 0, 1, 10);
    flush_all(&t).await.unwrap();
    assert_rows(&store, &t, 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn local_files() {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("event tables");
    let open = async |epoch: u64| Zones::open(place.to_str().unwrap(), epoch, options(), &[]).await.unwrap();
    let z = open(1).await;
    let t = z.table(&stream("Flight"), 4).await.unwrap();
    push(&t, 2, 0, 100);
    flush_all(&t).await.unwrap();
    push(&t, 2, 1, 100);
    assert_rows(&z.object_store(), &t, 200).await;
    assert!(place.join("Flight/_delta_log/00000000000000000001.json").is_file());
    assert_eq!(std::fs::read_dir(place.join(".staging")).unwrap().count(), 0);

    std::fs::write(place.join(".staging/left-by-a-crash"), "x").unwrap();
    let z = open(2).await;
    assert_eq!(std::fs::read_dir(place.join(".staging")).unwrap().count(), 0);
    let t = z.table(&stream("Flight"), 4).await.unwrap();
    assert_eq!((t.tablet_rows(), t.committed(p(2))), (100, Some(Offset(0))));
    assert_rows(&z.object_store(), &t, 100).await;
    let same = z.table(&stream("Flight"), 4).await.unwrap();
    assert!(Arc::ptr_eq(&t, &same));
    assert_eq!(z.tables().await.len(), 1);
}

pub fn url_path(below_table: &str) -> Path {
    Path::from(format!("tables/Flight/{below_table}"))
}

pub async fn log_files(store: &Arc<dyn ObjectStore>) -> Vec<String> {
    let files: Vec<_> = store.list(Some(&url_path("_delta_log"))).try_collect().await.unwrap();
    files.iter().map(|m| m.location.filename().unwrap().to_owned()).collect()
}
