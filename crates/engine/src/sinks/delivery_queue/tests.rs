use std::path::Path;

use arrow_array::{ArrayRef, Int32Array, Int64Array};
use arrow_schema::{DataType, Field, Schema};
use tidemill_log::disk::OsDisk;

use super::*;
use crate::sinks::former_queue;
use crate::sinks::queue_directory::{queue_dirs, queue_name};

const PARTITION: PartitionId = PartitionId(0);
const LOG_END: Offset = Offset(u64::MAX);

fn options(dir: &Path) -> QueueOptions {
    QueueOptions {
        sink: "s".into(),
        disk: Arc::new(OsDisk),
        dir: dir.join("deliveries"),
        schema: Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)])),
        columns: vec![0],
        encryption: None,
    }
}

fn open(dir: &Path) -> DeliveryQueue {
    DeliveryQueue::open(options(dir), PARTITION, LOG_END).unwrap()
}

fn table_rows(rows: i32) -> RecordBatch {
    let n: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(i64::from)));
    let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows));
    RecordBatch::try_from_iter([("n", n), (column::ROW, numbers)]).unwrap()
}

/// Adds the rows of a record, as when it is applied.
fn push(queue: &mut DeliveryQueue, offset: u64, rows: i32) {
    queue.push(Offset(offset), &table_rows(rows), offset + 1).unwrap();
    queue.set_applied(Offset(offset + 1));
}

/// Returns the ids of the events that are due.
fn due(queue: &mut DeliveryQueue, rows: usize) -> Vec<EventId> {
    queue.take_due(rows).unwrap();
    queue.in_flight().flat_map(|queued| queued.rows.iter().map(|row| queued.id(*row))).collect()
}

#[test]
fn delivered_rows_leave_the_files_after_their_count_is_durable() {
    // the files of a log are only cut when they are larger than 64 KiB
    const ROWS: usize = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let mut queue = open(dir.path());
    push(&mut queue, 0, ROWS as i32);
    queue.store().unwrap();
    assert_eq!(due(&mut queue, ROWS).len(), ROWS);
    queue.mark_delivered(ROWS, 0);
    // a crash before the progress is stored
    queue.close().unwrap();
    let mut queue = open(dir.path());
    assert_eq!(queue.counts().waiting(), ROWS as u64);
    let ids = due(&mut queue, ROWS);
    // the other side has 7 of them
    queue.set_known(Some(ids[6]));
    assert_eq!(due(&mut queue, ROWS), ids[7..]);
    queue.mark_delivered(ROWS - 7, 1);
    queue.store_progress().unwrap();
    assert_eq!(queue.bytes(), (0, 0));
    queue.close().unwrap();
    let mut queue = open(dir.path());
    assert_eq!(due(&mut queue, ROWS), []);
    let emitted = ROWS as u64;
    assert_eq!(queue.counts(), SinkCounts { emitted, delivered: emitted - 1, failed: 1 });
}

#[test]
fn events_of_records_that_the_log_has_lost_are_not_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = open(dir.path());
    (0..5).for_each(|offset| push(&mut queue, offset, 2));
    queue.store().unwrap();
    queue.close().unwrap();
    // a power failure has taken the records 3 and 4 from the log; others get their offsets
    let mut queue = DeliveryQueue::open(options(dir.path()), PARTITION, Offset(3)).unwrap();
    assert_eq!((queue.stored(), queue.counts().waiting()), (Offset(3), 6));
    push(&mut queue, 3, 1);
    let offsets: Vec<(u64, u32)> = due(&mut queue, 100).iter().map(|id| (id.offset.0, id.row)).collect();
    assert_eq!(offsets, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)]);
    assert_eq!(queue.counts().waiting(), 7);
}

#[test]
fn a_partition_that_is_being_opened_does_not_take_the_progress_back() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = open(dir.path());
    (0..5).for_each(|offset| push(&mut queue, offset, 2));
    queue.store().unwrap();
    queue.close().unwrap();
    // it begins at a checkpoint after the record 1, and a checkpoint of others stores what it has so far
    let mut queue = open(dir.path());
    push(&mut queue, 2, 2);
    queue.store().unwrap();
    assert_eq!(queue.stored(), Offset(5));
    queue.close().unwrap();
    let mut queue = open(dir.path());
    (2..6).for_each(|offset| push(&mut queue, offset, 2));
    assert_eq!((due(&mut queue, 100).len(), queue.counts().waiting()), (12, 12));
}

/// Writes a queue for all partitions as releases before queues by partition did: records 0 to 3 of two partitions with three rows each. Of
/// partition 0 the row 1 of record 1 was the last that was delivered; the record 3 of partition 1 is not stored for good.
fn write_former_queue(dir: &Path) {
    let former = dir.join("deliveries").join(queue_name("s"));
    std::fs::create_dir_all(&former).unwrap();
    let log = LogOptions { background_sync_ms: 0, ..LogOptions::new(1) };
    let (files, _) = LocalLog::open_on(Arc::new(OsDisk), former.join(EVENTS_DIR), log).unwrap();
    for offset in 0..4 {
        for partition in [PartitionId(0), PartitionId(1)] {
            let batch = table_rows(3).project(&[0]).unwrap();
            let rows = QueuedRows {
                partition,
                offset: Offset(offset),
                rows: vec![0, 1, 2],
                batch,
                bytes: 0,
                stored: false,
                arrival: 0,
            };
            let payload = rows.encode(&mut BatchEncoder::default()).unwrap();
            files.write_owned(FILES, Timestamp(0), vec![payload]).unwrap();
        }
    }
    files.flush().unwrap();
    files.close().unwrap();
    let progress = r#"{
  "sink": "s",
  "delivered": { "0": [1, 1] },
  "stored": { "0": 4, "1": 3 },
  "counts": { "emitted": 21, "delivered": 4, "failed": 1 }
}"#;
    std::fs::write(former.join(PROGRESS_FILE), progress).unwrap();
}

#[test]
fn a_queue_of_all_partitions_is_divided_once() {
    let dir = tempfile::tempdir().unwrap();
    let expected = |partition: u32, records: &[(u64, &[u32])]| -> Vec<EventId> {
        let id = |offset: u64, row: &u32| EventId {
            partition: PartitionId(partition),
            offset: Offset(offset),
            row: *row,
        };
        records.iter().flat_map(|(offset, rows)| rows.iter().map(|row| id(*offset, row))).collect()
    };
    write_former_queue(dir.path());
    // a crash in the middle of a former attempt has left a part of it
    let mut left = DeliveryQueue::open(options(dir.path()), PartitionId(1), LOG_END).unwrap();
    push(&mut left, 0, 3);
    left.store().unwrap();
    left.close().unwrap();
    let mut counts = SinkCounts::default();
    for round in 0..2 {
        former_queue::move_to_partitions(&options(dir.path()), 3).unwrap();
        counts = SinkCounts::default();
        let all = [
            expected(0, &[(1, &[2]), (2, &[0, 1, 2]), (3, &[0, 1, 2])]),
            expected(1, &[(0, &[0, 1, 2]), (1, &[0, 1, 2]), (2, &[0, 1, 2])]),
            vec![],
        ];
        for (partition, expected) in (0..).map(PartitionId).zip(all) {
            let mut queue = DeliveryQueue::open(options(dir.path()), partition, LOG_END).unwrap();
            assert_eq!(due(&mut queue, 100), expected, "round {round}, partition {partition}");
            assert_eq!(queue.counts().waiting(), expected.len() as u64);
            counts.add(&queue.counts());
            queue.close().unwrap();
        }
    }
    assert_eq!(counts, SinkCounts { emitted: 21, delivered: 4, failed: 1 });
    let queue = queue_name("s");
    let dirs = queue_dirs(&OsDisk, &dir.path().join("deliveries")).unwrap();
    // the former directory is left without files
    assert_eq!(dirs.first(), Some(&queue));
    assert_eq!(dirs[1..], ["p00000", "p00001", "p00002"].map(|name| format!("{name}/{queue}")));
    assert!(!dir.path().join("deliveries").join(&queue).join(PROGRESS_FILE).exists());
    // what comes again with the log is taken once
    let mut second = DeliveryQueue::open(options(dir.path()), PartitionId(1), LOG_END).unwrap();
    (2..4).for_each(|offset| push(&mut second, offset, 3));
    assert_eq!(due(&mut second, 100).len(), 12);
}

fn id(offset: u64, row: u32) -> EventId {
    EventId { partition: PARTITION, offset: Offset(offset), row }
}

#[test]
fn events_that_another_owner_has_delivered_leave_in_their_order() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = open(dir.path());
    (0..3).for_each(|offset| push(&mut queue, offset, 1));
    // the other side does not take the first one from this owner, which keeps it on the disk
    assert_eq!(due(&mut queue, 1), [id(0, 0)]);
    queue.store().unwrap();
    queue.set_announced(id(1, 0));
    assert_eq!(due(&mut queue, 100), [id(2, 0)]);
    assert_eq!((queue.counts().delivered, queue.counts().waiting()), (2, 1));
    queue.store().unwrap();
    queue.close().unwrap();
    let mut queue = open(dir.path());
    assert_eq!((due(&mut queue, 100), queue.counts().waiting()), (vec![id(2, 0)], 1));
}

#[test]
fn a_standby_drops_what_its_owner_has_delivered_from_disk_and_memory() {
    let dir = tempfile::tempdir().unwrap();
    let mut queue = open(dir.path());
    (0..2).for_each(|offset| push(&mut queue, offset, 2));
    queue.store().unwrap();
    (2..4).for_each(|offset| push(&mut queue, offset, 2));
    for (last, waiting) in [(id(0, 0), 7), (id(1, 1), 4), (id(2, 0), 3)] {
        queue.set_announced(last);
        queue.drop_delivered().unwrap();
        assert_eq!(queue.counts().waiting(), waiting, "after {last}");
    }
    assert_eq!(due(&mut queue, 100), [id(2, 1), id(3, 0), id(3, 1)]);
}
