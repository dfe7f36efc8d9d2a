//! One sink: the rows that wait for it, and the file that it writes.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parking_lot::Mutex;
use tidemill_connect::{Sink, SinkPosition};
use tidemill_files::{FileSink, Format, WriteOptions};
use tidemill_log::{Durability, Log};
use tidemill_types::{Error, ErrorKind, Offset, PartitionId, Result, StreamSchema};

use super::progress::SinkProgress;
use crate::process::retry_delay::RetryDelay;

/// Delay before the first retry of a sink that failed, and the longest one.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// Columns of a stream that a sink writes: the attributes of the app's stream, in their order.
pub struct StreamColumns {
    stream: usize,
    columns: Vec<usize>,
    schema: Arc<StreamSchema>,
}

/// File that a sink writes.
pub struct FileTarget {
    /// Path of the file.
    pub path: PathBuf,
    /// Format of the file.
    pub format: Format,
    /// True if the first events are appended to existing content.
    pub append: bool,
}

/// Sink of a stream.
pub struct StreamSink {
    name: String,
    columns: StreamColumns,
    target: FileTarget,
    /// By partition, the offset below which events were written before this start.
    written_before: BTreeMap<u32, Offset>,
    queue: Mutex<RowQueue>,
    writer: Mutex<SinkWriter>,
    /// Size of the rows that were taken from the queue and are not written.
    buffered: AtomicUsize,
    committed: Mutex<BTreeMap<u32, Offset>>,
    retry: Mutex<RetryDelay>,
}

/// Rows that wait to be written.
#[derive(Default)]
struct RowQueue {
    rows: VecDeque<QueuedRows>,
    bytes: usize,
    /// By partition, the offset below which all rows are in the queue or were taken from it.
    applied: BTreeMap<u32, Offset>,
}

struct QueuedRows {
    partition: PartitionId,
    offset: Offset,
    batch: RecordBatch,
    bytes: usize,
}

/// The open file, and what goes into it next.
struct SinkWriter {
    sink: Option<Box<dyn Sink>>,
    pending: VecDeque<RecordBatch>,
    /// By partition, the offset below which all rows are in `pending` or in the sink.
    accepted: BTreeMap<u32, Offset>,
    progress: SinkProgress,
}

impl StreamColumns {
    /// Selects the fields of `stream`, the program's stream at `index`, that are called like the attributes.
    ///
    /// Errors: `Invalid` when the stream has no such field.
    pub fn new<'a>(
        stream: &StreamSchema,
        index: usize,
        attributes: impl Iterator<Item = &'a str>,
    ) -> Result<Self> {
        let columns = attributes.map(|name| stream.require_field(name)).collect::<Result<Vec<_>>>()?;
        let fields = columns.iter().map(|column| stream.fields[*column].clone()).collect();
        let schema = StreamSchema { name: stream.name.clone(), fields, key: None, id: vec![], time: None };
        Ok(Self { stream: index, columns, schema: Arc::new(schema) })
    }

    /// Returns the positions of the columns in the stream.
    pub fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Returns the events as the sink sees them.
    pub fn schema(&self) -> &Arc<StreamSchema> {
        &self.schema
    }

    /// Returns the Arrow schema of the columns of `stream`.
    ///
    /// Errors: `Internal` when the stream has no such columns.
    pub fn table_columns(&self, stream: &StreamSchema) -> Result<SchemaRef> {
        let projected = stream.table_schema().project(&self.columns);
        let failed =
            |e| Error::internal(format!("stream `{}`: no columns of a sink", stream.name)).with_source(e);
        projected.map(Arc::new).map_err(failed)
    }
}

impl StreamSink {
    /// Creates a sink that continues at `progress`. Its file is opened when it is first written.
    pub fn new(name: String, columns: StreamColumns, target: FileTarget, progress: SinkProgress) -> Self {
        Self {
            name,
            columns,
            target,
            written_before: progress.offsets.clone(),
            queue: Mutex::default(),
            committed: Mutex::new(progress.offsets.clone()),
            writer: Mutex::new(SinkWriter {
                sink: None,
                pending: VecDeque::new(),
                accepted: progress.offsets.clone(),
                progress,
            }),
            buffered: AtomicUsize::new(0),
            retry: Mutex::new(RetryDelay::new(RETRY_DELAYS.0, RETRY_DELAYS.1)),
        }
    }

    /// Returns the name: the app's file, the stream and the path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the position of its stream in the program.
    pub fn stream(&self) -> usize {
        self.columns.stream
    }

    /// Adds stored rows of a record to the queue, unless they were written before this start.
    pub fn push(&self, partition: PartitionId, offset: Offset, batch: &RecordBatch) -> Result<()> {
        let written = self.written_before.get(&partition.0).is_some_and(|next| offset < *next);
        if written || batch.num_rows() == 0 {
            return Ok(());
        }
        let failed =
            |e| Error::internal(format!("sink {}: rows without its columns", self.name)).with_source(e);
        let batch = batch.project(&self.columns.columns).map_err(failed)?;
        let bytes = batch.get_array_memory_size();
        let mut queue = self.queue.lock();
        queue.bytes += bytes;
        queue.rows.push_back(QueuedRows { partition, offset, batch, bytes });
        Ok(())
    }

    /// Records that all rows of a partition below `next` are in the queue.
    pub fn set_applied(&self, partition: PartitionId, next: Offset) {
        self.queue.lock().applied.insert(partition.0, next);
    }

    /// Drops the rows of a partition that no record has been applied for: the records push them again.
    pub fn forget_unapplied(&self, partition: PartitionId) {
        let mut queue = self.queue.lock();
        let RowQueue { rows, bytes, applied } = &mut *queue;
        let applied = applied.get(&partition.0).copied().unwrap_or_default();
        rows.retain(|queued| {
            let keep = queued.partition != partition || queued.offset < applied;
            *bytes -= if keep { 0 } else { queued.bytes };
            keep
        });
    }

    /// Returns the size of the rows that wait to be written, in bytes.
    pub fn waiting_bytes(&self) -> usize {
        self.queue.lock().bytes + self.buffered.load(Ordering::Relaxed)
    }

    /// Returns the offset of a partition below which all events are written durably.
    pub fn committed(&self, partition: PartitionId) -> Offset {
        self.committed.lock().get(&partition.0).copied().unwrap_or_default()
    }

    /// Returns whether rows wait and the sink may be tried at the monotonic time `now`.
    pub fn is_due(&self, now: Duration) -> bool {
        self.waiting_bytes() > 0 && self.may_try(now)
    }

    /// Returns whether the sink may be tried at the monotonic time `now`: it works, or the delay after its last failure
    /// is over.
    pub fn may_try(&self, now: Duration) -> bool {
        self.retry.lock().may_try(now)
    }

    /// Notes a failure at the monotonic time `now`: the next attempt waits, each time twice as long.
    pub fn delay_retry(&self, now: Duration) {
        self.retry.lock().note_failure(now);
    }

    /// Notes that the sink works.
    pub fn reset_retry(&self) {
        self.retry.lock().reset();
    }

    /// Writes the rows of all applied records.
    ///
    /// Errors: why the file cannot be written; the rows stay and the call may be repeated.
    pub fn flush(&self) -> Result<()> {
        let mut writer = self.writer.lock();
        self.write_rows(&mut writer)?.flush()?;
        self.buffered.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Writes the rows of all applied records durably and commits how far the sink has come.
    ///
    /// Errors: those of [`Self::flush`], and of syncing the log.
    pub fn commit(&self, log: &dyn Log) -> Result<()> {
        let mut writer = self.writer.lock();
        let position = self.write_rows(&mut writer)?.sync()?;
        self.buffered.store(0, Ordering::Relaxed);
        let SinkWriter { accepted, progress, .. } = &mut *writer;
        if progress.position.as_ref() == Some(&position) && progress.offsets == *accepted {
            return Ok(());
        }
        // an event that is written for good must not be lost by the log: its offset would be given to another one
        for (partition, next) in accepted.iter() {
            if let Some(last) = next.0.checked_sub(1).map(Offset) {
                log.sync(PartitionId(*partition), last, Durability::Fsync)?;
            }
        }
        progress.commit(&self.name, position, accepted.clone())?;
        self.committed.lock().clone_from(accepted);
        Ok(())
    }

    /// Closes the file. Rows that are not committed are written again after the next start.
    pub fn close(&self) {
        if let Some(sink) = self.writer.lock().sink.take()
            && let Err(e) = sink.close()
        {
            tracing::warn!(sink = self.name, error = %e, "the sink was not closed properly");
        }
    }

    /// Hands the rows of all applied records to the sink.
    fn write_rows<'w>(&self, writer: &'w mut SinkWriter) -> Result<&'w mut dyn Sink> {
        let SinkWriter { sink, pending, accepted, progress } = writer;
        let sink = match sink {
            Some(sink) => sink,
            None => sink.insert(self.open(progress)?),
        };
        // a sink that fails keeps what it has: nothing is added to it
        sink.flush()?;
        {
            let mut queue = self.queue.lock();
            let RowQueue { rows, bytes, applied } = &mut *queue;
            let is_applied =
                |rows: &QueuedRows| applied.get(&rows.partition.0).is_some_and(|next| rows.offset < *next);
            let mut taken = 0;
            let all = std::mem::take(rows);
            for queued in all {
                if is_applied(&queued) {
                    taken += queued.bytes;
                    pending.push_back(queued.batch);
                } else {
                    rows.push_back(queued);
                }
            }
            *bytes -= taken;
            self.buffered.fetch_add(taken, Ordering::Relaxed);
            for (partition, next) in applied.iter() {
                let accepted = accepted.entry(*partition).or_default();
                *accepted = (*accepted).max(*next);
            }
        }
        while let Some(batch) = pending.front() {
            sink.write(batch)?;
            pending.pop_front();
        }
        Ok(sink.as_mut())
    }

    /// Opens the file where the last start left it.
    fn open(&self, progress: &mut SinkProgress) -> Result<Box<dyn Sink>> {
        let FileTarget { path, format, append } = &self.target;
        // the default form of SiddhiQL's JSON
        let writing =
            WriteOptions { append: *append, envelope: Some("event".into()), ..WriteOptions::default() };
        let open = |position: Option<&SinkPosition>| {
            FileSink::open(&self.name, path, format, &self.columns.schema, &writing, position)
        };
        if let Some(position) = &progress.position {
            match open(Some(position)) {
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    tracing::warn!(sink = self.name, "the file was moved away or removed; a new one begins");
                }
                opened => return Ok(Box::new(opened?)),
            }
        }
        // where the events begin is committed before the first one is written
        let mut sink = open(None)?;
        let position = sink.sync()?;
        progress.commit(&self.name, position, progress.offsets.clone())?;
        Ok(Box::new(sink))
    }
}
