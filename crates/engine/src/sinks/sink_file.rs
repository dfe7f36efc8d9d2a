//! A file that a sink writes, and the rows that wait for it.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use parking_lot::Mutex;
use tidemill_connect::{Sink, SinkPosition};
use tidemill_files::{FileSink, Format, WriteOptions};
use tidemill_log::{Durability, Log};
use tidemill_types::{Error, ErrorKind, Offset, PartitionId, Result};

use super::progress::SinkProgress;
use super::stream_sink::StreamColumns;

/// Place and format of a file that a sink writes.
#[derive(Clone)]
pub struct FileTarget {
    /// Path of the file.
    pub path: PathBuf,
    /// Format of the file.
    pub format: Format,
    /// True if the first events are appended to existing content.
    pub append: bool,
}

/// A file, and the rows that wait for it.
pub struct SinkFile {
    name: String,
    columns: Arc<StreamColumns>,
    target: FileTarget,
    /// By partition, the offset below which events were written before this start.
    written_before: BTreeMap<u32, Offset>,
    queue: Mutex<RowQueue>,
    writer: Mutex<SinkWriter>,
    /// Size of the rows that were taken from the queue and are not written.
    buffered: AtomicUsize,
    committed: Mutex<BTreeMap<u32, Offset>>,
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

impl SinkFile {
    /// Creates the file of the sink `name`, which continues at `progress`. It is opened when it is first written.
    pub fn new(
        name: String,
        columns: Arc<StreamColumns>,
        target: FileTarget,
        progress: SinkProgress,
    ) -> Self {
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
        }
    }

    /// Adds stored rows of a record to the queue, unless they were written before this start.
    pub fn push(&self, partition: PartitionId, offset: Offset, batch: &RecordBatch) -> Result<()> {
        let written = self.written_before.get(&partition.0).is_some_and(|next| offset < *next);
        if written || batch.num_rows() == 0 {
            return Ok(());
        }
        let failed =
            |e| Error::internal(format!("sink {}: rows without its columns", self.name)).with_source(e);
        let batch = batch.project(self.columns.columns()).map_err(failed)?;
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
            FileSink::open(&self.name, path, format, self.columns.schema(), &writing, position)
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
