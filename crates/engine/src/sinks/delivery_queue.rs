//! Events of one partition that wait for a system outside: in memory while that keeps up, on the disk while it does not.
//!
//! The log is the first copy of every event: a checkpoint passes a record only when the events that follow from it are
//! delivered or in the files of the queue, durably. So a sink that keeps up costs no writes, one that is down holds up
//! neither memory nor checkpoints, and after a crash the replay of the log brings exactly the events that are missing.
//! An event is known by its id, which a replay does not change.
//!
//! A sink has a queue for each partition that its process owns, and [`super::connector_sink`] takes the events of all of them. Files and
//! progress of a queue belong to the state of its partition, so they move with it: the next owner has every event that is not delivered,
//! from the files or by applying the log.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_schema::SchemaRef;
use serde::{Deserialize, Serialize};
use tidemill_log::disk::{Disk, create_dir_durably};
use tidemill_log::{GroupLog, LocalLog, Log, LogEncryption, LogFile, LogOptions};
use tidemill_types::ipc::BatchEncoder;
use tidemill_types::{Error, EventId, Offset, PartitionId, Result, Timestamp, column};

use super::queue_directory::{EVENTS_DIR, PROGRESS_FILE, QueueProgress};
use super::queued_rows::{QueuedRows, RowNumbers};
use crate::process::json_file::{read_json, write_json};

/// Bytes that are read from the files at a time.
const READ_BYTES: usize = 4 << 20;
/// The partition of the files: a queue has one.
pub const FILES: PartitionId = PartitionId(0);

/// Counts of the events of a sink. `emitted` is the sum of the others and of those that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SinkCounts {
    /// Events of the stream since the sink exists.
    pub emitted: u64,
    /// Events that the other side has acknowledged.
    pub delivered: u64,
    /// Events that the other side has refused for good.
    pub failed: u64,
}

impl SinkCounts {
    /// Returns the number of events that wait.
    pub fn waiting(&self) -> u64 {
        self.emitted.saturating_sub(self.delivered + self.failed)
    }

    /// Adds the counts of another queue.
    pub fn add(&mut self, other: &Self) {
        self.emitted += other.emitted;
        self.delivered += other.delivered;
        self.failed += other.failed;
    }
}

/// Settings that all queues of a sink have.
#[derive(Clone)]
pub struct QueueOptions {
    /// Name of the sink.
    pub sink: String,
    /// Disk of the data directory.
    pub disk: Arc<dyn Disk>,
    /// Directory [`super::DELIVERIES_DIR`] of the data directory.
    pub dir: PathBuf,
    /// Schema of the delivered columns.
    pub schema: SchemaRef,
    /// Columns of the stream's table that are delivered, in their order.
    pub columns: Vec<usize>,
    /// Keys of the files.
    pub encryption: Option<LogEncryption>,
}

/// Queue of one sink and partition, in the directory `deliveries/pPARTITION/HASH` of the data directory.
pub struct DeliveryQueue {
    options: QueueOptions,
    partition: PartitionId,
    dir: PathBuf,
    is_dir_created: bool,
    memory: VecDeque<QueuedRows>,
    memory_bytes: usize,
    /// Rows handed out and not delivered, oldest first. Those from memory are not in the files.
    in_flight: VecDeque<QueuedRows>,
    files: Option<LocalLog>,
    /// Offset of the next record of the files.
    read_next: Offset,
    /// End of the files when this process opened them. What is before it and not below `stored_before` comes again
    /// with the replay of the log.
    end_before: Offset,
    encoder: BatchEncoder,
    /// Offset below which all records are applied.
    applied: Offset,
    /// Offset below which all events were delivered or in the files when the queue was opened.
    stored_before: Offset,
    stored: Offset,
    /// The last event that is counted as delivered or failed.
    delivered: Option<EventId>,
    /// The last event that the other side says it has.
    known: Option<EventId>,
    /// The last event that the log says the other side has: its owner has put it there.
    announced: Option<EventId>,
    counts: SinkCounts,
    changed: bool,
    /// Number of times that the progress was written.
    revision: u64,
    /// True if the files belong to the next owner, or the next start.
    is_closed: bool,
}

impl DeliveryQueue {
    /// Opens the queue of a partition whose log ends at `log_end`.
    ///
    /// Errors: `Corrupt` for damaged files, `Unavailable` when they cannot be read.
    pub fn open(options: QueueOptions, partition: PartitionId, log_end: Offset) -> Result<Self> {
        let dir = super::queue_directory::queue_dir(&options.dir, partition, &options.sink);
        let progress = read_json::<QueueProgress>(&*options.disk, &dir.join(PROGRESS_FILE))?;
        let QueueProgress { delivered, stored, counts, .. } = progress.unwrap_or_default();
        // records that a power failure took from the log will be others
        let stored_before = stored.min(log_end);
        let mut queue = Self {
            partition,
            dir,
            is_dir_created: false,
            memory: VecDeque::new(),
            memory_bytes: 0,
            in_flight: VecDeque::new(),
            files: None,
            read_next: Offset(0),
            end_before: Offset(0),
            encoder: BatchEncoder::default(),
            applied: stored_before,
            stored_before,
            stored: stored_before,
            delivered: delivered.map(|(offset, row)| EventId { partition, offset, row }),
            known: None,
            announced: None,
            counts,
            changed: false,
            revision: 0,
            is_closed: false,
            options,
        };
        if queue.options.disk.list(&queue.dir.join(EVENTS_DIR)).is_ok() {
            let files = queue.open_files()?;
            (queue.read_next, queue.end_before) = (files.start(FILES), files.end(FILES));
            queue.files = Some(files);
        }
        if stored_before < stored {
            queue.counts.emitted -= queue.stored_rows_from(stored_before, stored)?;
            queue.changed = true;
        }
        Ok(queue)
    }

    /// Counts the rows in the files of records from `from` up to `end`.
    fn stored_rows_from(&self, from: Offset, end: Offset) -> Result<u64> {
        let mut count = 0;
        let Some(files) = &self.files else { return Ok(0) };
        let mut next = self.read_next;
        while next < self.end_before {
            let Some(record) = files.read(FILES, next, 1)?.into_iter().next() else { break };
            next = record.offset.next();
            let mut payload = record.payload;
            let numbers = RowNumbers::decode(&mut payload).map_err(|e| self.in_record(e, record.offset))?;
            if (from..end).contains(&numbers.offset) {
                count += numbers.rows.len() as u64;
            }
        }
        Ok(count)
    }

    /// Returns the offset below which all events are delivered or stored durably.
    pub fn stored(&self) -> Offset {
        self.stored
    }

    /// Returns a number that grows when files or progress change on the disk.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Returns what became of the events.
    pub fn counts(&self) -> SinkCounts {
        self.counts
    }

    /// Returns whether the progress on the disk is not the present one.
    pub fn has_progressed(&self) -> bool {
        self.changed
    }

    /// Returns the bytes of the rows in memory and of the files.
    pub fn bytes(&self) -> (usize, u64) {
        let stored = self.files.as_ref().map_or(0, |files| match files.end(FILES) > self.read_next {
            true => files.bytes(FILES),
            false => 0,
        });
        (self.memory_bytes, stored)
    }

    /// Adds rows of a record that were stored in the stream's table. `arrival` counts them over all queues of the sink.
    ///
    /// Errors: `Internal` for rows of another table.
    pub fn push(&mut self, offset: Offset, table_rows: &RecordBatch, arrival: u64) -> Result<()> {
        if offset < self.stored_before {
            return Ok(());
        }
        let sink = &self.options.sink;
        let internal = |what: &str| Error::internal(format!("sink {sink}: rows without {what}"));
        let numbers = table_rows.column_by_name(column::ROW).ok_or_else(|| internal("numbers"))?;
        let numbers = numbers.as_primitive_opt::<Int32Type>().ok_or_else(|| internal("numbers"))?;
        let rows: Vec<u32> = numbers.values().iter().map(|row| *row as u32).collect();
        let batch =
            table_rows.project(&self.options.columns).map_err(|e| internal("columns").with_source(e))?;
        let bytes = batch.get_array_memory_size();
        let partition = self.partition;
        let mut queued = QueuedRows { partition, offset, rows, batch, bytes, stored: false, arrival };
        // rows of a replay that were delivered before are counted
        queued.drop_known(self.delivered);
        if queued.rows.is_empty() {
            return Ok(());
        }
        self.counts.emitted += queued.rows.len() as u64;
        self.changed = true;
        self.memory_bytes += bytes;
        self.memory.push_back(queued);
        Ok(())
    }

    /// Records that all rows below `next` are in the queue. A partition that is being opened applies records that the queue has passed.
    pub fn set_applied(&mut self, next: Offset) {
        self.applied = self.applied.max(next);
    }

    /// Drops the rows that no record has been applied for: the records push them again.
    pub fn forget_unapplied(&mut self) {
        let Self { memory, memory_bytes, counts, applied, .. } = self;
        memory.retain(|queued| {
            let keep = queued.offset < *applied;
            if !keep {
                counts.emitted -= queued.rows.len() as u64;
                *memory_bytes -= queued.bytes;
            }
            keep
        });
    }

    /// Takes rows to deliver, oldest first, until about `rows_min` are taken or none is left. They stay in the queue until
    /// [`Self::mark_delivered`]. Returns their number.
    ///
    /// Errors: the files cannot be read.
    pub fn take_due(&mut self, rows_min: usize) -> Result<usize> {
        // another owner may have delivered what this one could not, and later rows
        self.drop_in_flight(self.announced);
        let mut rows = self.in_flight.iter().map(|queued| queued.rows.len()).sum::<usize>();
        while rows < rows_min && !self.is_closed {
            let Some(mut queued) = self.next_queued()? else { break };
            self.drop_rows(&mut queued, self.known.max(self.announced));
            if queued.rows.is_empty() {
                continue;
            }
            rows += queued.rows.len();
            self.in_flight.push_back(queued);
        }
        Ok(rows)
    }

    /// Returns the rows that were taken and are not delivered, oldest first.
    pub fn in_flight(&self) -> impl Iterator<Item = &QueuedRows> {
        self.in_flight.iter()
    }

    fn note_known(&mut self, last: EventId, count: usize) {
        self.counts.delivered += count as u64;
        self.delivered = Some(last);
        self.changed = true;
    }

    fn next_queued(&mut self) -> Result<Option<QueuedRows>> {
        if let Some(queued) = self.read_stored()? {
            return Ok(Some(queued));
        }
        let applied = self.applied;
        let Some(queued) = self.memory.pop_front_if(|queued| queued.offset < applied) else {
            return Ok(None);
        };
        self.memory_bytes -= queued.bytes;
        Ok(Some(queued))
    }

    /// Reads the next rows of the files that are not delivered.
    fn read_stored(&mut self) -> Result<Option<QueuedRows>> {
        loop {
            let Some(files) = &self.files else { return Ok(None) };
            if self.read_next >= files.end(FILES) {
                return Ok(None);
            }
            let records = files.read(FILES, self.read_next, 1)?;
            let Some(record) = records.into_iter().next() else { return Ok(None) };
            let mut queued = QueuedRows::decode(record.payload, self.options.schema.clone())
                .map_err(|e| self.in_record(e, record.offset))?;
            self.read_next = record.offset.next();
            if record.offset < self.end_before && queued.offset >= self.stored_before {
                continue;
            }
            queued.drop_known(self.delivered);
            if !queued.rows.is_empty() {
                return Ok(Some(queued));
            }
        }
    }

    fn in_record(&self, error: Error, record: Offset) -> Error {
        error.context(format!("{}: record {record}", self.dir.display()))
    }

    /// Notes that the first `delivered` rows in flight are with the other side, which refused `failed` of them.
    pub fn mark_delivered(&mut self, mut delivered: usize, failed: usize) {
        self.changed |= delivered > 0;
        self.counts.failed += failed as u64;
        self.counts.delivered += (delivered - failed) as u64;
        while delivered > 0 {
            let Some(mut first) = self.in_flight.pop_front() else { break };
            let taken = delivered.min(first.rows.len());
            delivered -= taken;
            self.delivered = Some(first.id(first.rows[taken - 1]));
            if taken < first.rows.len() {
                first.drop_first(taken);
                self.in_flight.push_front(first);
            }
        }
    }

    /// Returns the last event that the other side has, if the log does not say so yet.
    pub fn unannounced(&self) -> Option<EventId> {
        self.delivered.filter(|_| self.delivered > self.announced)
    }

    /// Notes that the log says that the other side has the events up to `last`: they are not delivered again.
    pub fn set_announced(&mut self, last: EventId) {
        self.announced = self.announced.max(Some(last));
    }

    /// Drops the rows that the log says the other side has, in a queue from which nothing is being delivered.
    ///
    /// Errors: the files cannot be read.
    pub fn drop_delivered(&mut self) -> Result<()> {
        let announced = self.announced;
        self.drop_in_flight(announced);
        loop {
            let before = self.read_next;
            let Some(mut queued) = self.read_stored()? else { break };
            self.drop_rows(&mut queued, announced);
            if !queued.rows.is_empty() {
                self.read_next = before;
                return Ok(());
            }
        }
        while let Some(mut queued) = self.memory.pop_front() {
            self.memory_bytes -= queued.bytes;
            self.drop_rows(&mut queued, announced);
            if !queued.rows.is_empty() {
                self.memory_bytes += queued.bytes;
                self.memory.push_front(queued);
                break;
            }
        }
        Ok(())
    }

    fn drop_rows(&mut self, queued: &mut QueuedRows, known: Option<EventId>) {
        if let Some((last, count)) = queued.drop_known(known) {
            self.note_known(last, count);
        }
    }

    fn drop_in_flight(&mut self, known: Option<EventId>) {
        let mut found = Vec::new();
        for queued in &mut self.in_flight {
            found.extend(queued.drop_known(known));
        }
        found.into_iter().for_each(|(last, count)| self.note_known(last, count));
        self.in_flight.retain(|queued| !queued.rows.is_empty());
    }

    /// Takes over from the other side which events it has. Those that wait are not delivered again.
    pub fn set_known(&mut self, known: Option<EventId>) {
        self.drop_in_flight(known);
        self.known = known;
    }

    /// Makes durable how far the deliveries have come, and all events of applied records that wait. A checkpoint may
    /// then pass those records.
    ///
    /// Errors: the disk is full or fails.
    pub fn store(&mut self) -> Result<()> {
        if self.is_closed || (!self.changed && self.applied == self.stored) {
            return Ok(());
        }
        self.store_memory()?;
        if let Some(files) = &self.files {
            files.flush()?;
        }
        self.write_progress(self.applied)?;
        self.stored = self.applied;
        self.changed = false;
        Ok(())
    }

    /// Makes durable how far the deliveries have come, so that fewer events are sent again after a crash.
    ///
    /// Errors: the disk is full or fails.
    pub fn store_progress(&mut self) -> Result<()> {
        match self.changed && !self.is_closed {
            true => self.write_progress(self.stored),
            false => Ok(()),
        }
    }

    fn write_progress(&mut self, stored: Offset) -> Result<()> {
        // events that are only in memory are counted again when the log is replayed
        let in_memory = self.memory.iter().chain(self.in_flight.iter().filter(|queued| !queued.stored));
        let in_memory: u64 = in_memory.map(|queued| queued.rows.len() as u64).sum();
        let file = QueueProgress {
            sink: self.options.sink.clone(),
            delivered: self.delivered.map(|id| (id.offset, id.row)),
            stored,
            counts: SinkCounts { emitted: self.counts.emitted - in_memory, ..self.counts },
        };
        self.create_dir()?;
        self.revision += 1;
        write_json(&*self.options.disk, &self.dir.join(PROGRESS_FILE), &file)?;
        // not before it is durable that they were delivered: after a crash they would wait for ever
        match &self.files {
            Some(files) if !self.in_flight.iter().any(|queued| queued.stored) => {
                files.truncate(FILES, self.read_next)
            }
            _ => Ok(()),
        }
    }

    /// Returns the files of a copy that belong to the progress on the disk.
    ///
    /// Errors: those of [`Log::files`].
    pub fn files(&self) -> Result<Vec<LogFile>> {
        self.files.as_ref().map_or(Ok(Vec::new()), |files| files.files(&[files.end(FILES)]))
    }

    /// Closes the files. Nothing is written to them from now on.
    ///
    /// Errors: they cannot be made durable.
    pub fn close(&mut self) -> Result<()> {
        self.is_closed = true;
        self.files.take().map_or(Ok(()), |files| files.close())
    }

    /// Writes the rows of applied records that are only in memory to the files, in the order of delivery.
    fn store_memory(&mut self) -> Result<()> {
        let Self { applied, in_flight, memory, encoder, .. } = self;
        let unstored = in_flight.iter().filter(|queued| !queued.stored);
        let in_flight_payloads = unstored.map(|queued| queued.encode(encoder)).collect::<Result<Vec<_>>>()?;
        let waiting = memory.iter().take_while(|queued| queued.offset < *applied);
        let payloads = waiting.map(|queued| queued.encode(encoder)).collect::<Result<Vec<_>>>()?;
        if in_flight_payloads.is_empty() && payloads.is_empty() {
            return Ok(());
        }
        if self.files.is_none() {
            self.create_dir()?;
            self.files = Some(self.open_files()?);
        }
        let Some(files) = &self.files else { return Ok(()) };
        self.revision += 1;
        for payload in in_flight_payloads {
            // these are delivered from memory; all that is in the files before them was read
            let written = files.write_owned(FILES, Timestamp(0), vec![payload])?;
            self.read_next = written.last.next();
        }
        self.in_flight.iter_mut().for_each(|queued| queued.stored = true);
        for payload in payloads {
            files.write_owned(FILES, Timestamp(0), vec![payload])?;
            let written = self.memory.pop_front();
            self.memory_bytes -= written.map_or(0, |queued| queued.bytes);
        }
        Ok(())
    }

    fn create_dir(&mut self) -> Result<()> {
        if !self.is_dir_created {
            create_dir_durably(&*self.options.disk, &self.dir).map_err(|e| {
                Error::unavailable(format!("{}: cannot be created", self.dir.display())).with_source(e)
            })?;
            self.is_dir_created = true;
        }
        Ok(())
    }

    fn open_files(&self) -> Result<LocalLog> {
        let options = LogOptions {
            segment_bytes: 16 << 20,
            tail_bytes_max: READ_BYTES,
            // the caller that stores rows waits until they are on the disk
            background_sync_ms: 0,
            encryption: self.options.encryption.clone(),
            ..LogOptions::new(1)
        };
        let disk = self.options.disk.clone();
        let (files, reports) = LocalLog::open_on(disk, self.dir.join(EVENTS_DIR), options)?;
        for report in reports.iter().filter(|report| report.cut.is_some()) {
            tracing::warn!(sink = self.options.sink, "{report}");
        }
        Ok(files)
    }
}

#[cfg(test)]
mod tests;
