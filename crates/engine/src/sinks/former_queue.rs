//! The queue of a sink for all partitions, as releases before queues by partition wrote it. Its events go to the queues of their
//! partitions.
//!
//! ```text
//! deliveries/HASH/progress.json   {"sink": …, "delivered": {"0": [7, 2]}, "stored": {"0": 9, "1": 4}, "counts": …}
//! deliveries/HASH/events/…        rows of partitions 0 and 1
//! ```
//!
//! The former progress is removed when the queues of all partitions are on the disk: after a crash before that they are made again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::Path;

use serde::Deserialize;
use tidemill_log::disk::{Disk, create_dir_durably};
use tidemill_log::{GroupLog, LocalLog, Log, LogOptions};
use tidemill_types::{Error, EventId, Offset, PartitionId, Result, Timestamp};

use super::delivery_queue::{FILES, QueueOptions, SinkCounts};
use super::queue_directory::{EVENTS_DIR, PROGRESS_FILE, QueueProgress, queue_dir, queue_name, remove_queue};
use super::queued_rows::RowNumbers;
use crate::process::json_file::{read_json, write_json};

/// Content of the former file with the progress.
#[derive(Deserialize)]
struct FormerProgress {
    /// By partition, offset and row of the last event that the other side has.
    delivered: BTreeMap<u32, (Offset, u32)>,
    /// By partition, the offset below which all events are delivered or in the files.
    stored: BTreeMap<u32, Offset>,
    counts: SinkCounts,
}

/// Moves the events of the former queue of a sink to the queues of their partitions, if there is one.
///
/// Errors: `Corrupt` for damaged files; `Unavailable` if the disk fails, and the call can be repeated.
pub fn move_to_partitions(options: &QueueOptions, partitions: u32) -> Result<()> {
    let disk = &*options.disk;
    let former = options.dir.join(queue_name(&options.sink));
    let Some(progress) = read_json::<FormerProgress>(disk, &former.join(PROGRESS_FILE))? else {
        return Ok(());
    };
    let ids = (0..partitions).chain(progress.stored.keys().chain(progress.delivered.keys()).copied());
    let ids: std::collections::BTreeSet<PartitionId> = ids.map(PartitionId).collect();
    // those of a move that a crash has interrupted
    ids.iter().try_for_each(|id| remove_queue(disk, &queue_dir(&options.dir, *id, &options.sink)))?;
    let mut queues = BTreeMap::new();
    move_events(options, &former, &progress, &mut queues)?;
    for (number, id) in ids.into_iter().enumerate() {
        let waiting = match queues.get(&id) {
            Some(MovedQueue { files, waiting }) => {
                files.flush()?;
                files.close()?;
                *waiting
            }
            None => 0,
        };
        // what was delivered before is counted once
        let SinkCounts { delivered, failed, .. } = match number {
            0 => progress.counts,
            _ => SinkCounts::default(),
        };
        let file = QueueProgress {
            sink: options.sink.clone(),
            delivered: progress.delivered.get(&id.0).copied(),
            stored: progress.stored.get(&id.0).copied().unwrap_or_default(),
            counts: SinkCounts { emitted: waiting + delivered + failed, delivered, failed },
        };
        let dir = queue_dir(&options.dir, id, &options.sink);
        create(disk, &dir)?;
        write_json(disk, &dir.join(PROGRESS_FILE), &file)?;
    }
    remove_queue(disk, &former)?;
    tracing::info!(sink = options.sink, "the queue of the sink was divided by partition");
    Ok(())
}

struct MovedQueue {
    files: LocalLog,
    /// Rows that are not delivered.
    waiting: u64,
}

fn move_events(
    options: &QueueOptions,
    former: &Path,
    progress: &FormerProgress,
    queues: &mut BTreeMap<PartitionId, MovedQueue>,
) -> Result<()> {
    if options.disk.list(&former.join(EVENTS_DIR)).is_err() {
        return Ok(());
    }
    let events = open_events(options, former)?;
    let (mut next, end) = (events.start(FILES), events.end(FILES));
    while next < end {
        let Some(record) = events.read(FILES, next, 1)?.into_iter().next() else { break };
        next = record.offset.next();
        let numbers = RowNumbers::decode(&mut record.payload.clone())
            .map_err(|e| e.context(format!("{}: record {}", former.display(), record.offset)))?;
        let RowNumbers { partition, offset, .. } = numbers;
        let delivered = progress.delivered.get(&partition.0);
        let delivered = delivered.map(|(offset, row)| EventId { partition, offset: *offset, row: *row });
        let waiting = numbers.count_after(delivered);
        // rows that are not stored for good come again with the log
        let is_stored = progress.stored.get(&partition.0).is_some_and(|stored| offset < *stored);
        if !is_stored || waiting == 0 {
            continue;
        }
        let queue = match queues.entry(partition) {
            Entry::Occupied(queue) => queue.into_mut(),
            Entry::Vacant(none) => {
                let dir = queue_dir(&options.dir, partition, &options.sink);
                create(&*options.disk, &dir)?;
                none.insert(MovedQueue { files: open_events(options, &dir)?, waiting: 0 })
            }
        };
        queue.files.write_owned(FILES, Timestamp(0), vec![record.payload])?;
        queue.waiting += waiting;
    }
    events.close()
}

fn open_events(options: &QueueOptions, dir: &Path) -> Result<LocalLog> {
    let encryption = options.encryption.clone();
    let log = LogOptions { segment_bytes: 16 << 20, background_sync_ms: 0, encryption, ..LogOptions::new(1) };
    Ok(LocalLog::open_on(options.disk.clone(), dir.join(EVENTS_DIR), log)?.0)
}

fn create(disk: &dyn Disk, dir: &Path) -> Result<()> {
    create_dir_durably(disk, dir)
        .map_err(|e| Error::unavailable(format!("{}: cannot be created", dir.display())).with_source(e))
}
