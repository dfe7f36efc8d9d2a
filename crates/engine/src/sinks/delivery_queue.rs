//! Events that wait for a system outside: in memory while that keeps up, on the disk while it does not.
//!
//! The log is the first copy of every event: a checkpoint passes a record only when the events that follow from it are
//! delivered or in the files of the queue, durably. So a sink that keeps up costs no writes, one that is down holds up
//! neither memory nor checkpoints, and after a crash the replay of the log brings exactly the events that are missing.
//! An event is known by its id, which a replay does not change.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::Int32Type;
use arrow_schema::SchemaRef;
use arrow_select::concat::concat_batches;
use bytes::{Buf, BufMut, Bytes};
use serde::{Deserialize, Serialize};
use tidemill_connect::DeliveredEvents;
use tidemill_log::disk::Disk;
use tidemill_log::{GroupLog, LocalLog, Log, LogEncryption, LogFile, LogOptions};
use tidemill_types::ipc::{BatchEncoder, decode_batch};
use tidemill_types::{Error, EventId, Offset, PartitionId, Result, Timestamp, column};

use crate::process::json_file::{read_json, write_json};

/// Bytes of rows that wait in memory before they go to the disk.
const MEMORY_BYTES_MAX: usize = 16 << 20;
/// Bytes that are read from the files at a time.
const READ_BYTES: usize = 4 << 20;
/// The partition of the files: a queue has one.
const FILES: PartitionId = PartitionId(0);

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

/// Content of the file `progress.json` of a queue.
#[derive(Serialize, Deserialize, Default)]
struct ProgressFile {
    sink: String,
    /// By partition, offset and row of the last event that the other side has.
    delivered: BTreeMap<u32, (Offset, u32)>,
    /// By partition, the offset below which all events are delivered or in the files.
    stored: BTreeMap<u32, Offset>,
    counts: SinkCounts,
}

/// Queue of one sink, in the directory `deliveries/HASH` of the data directory.
pub struct DeliveryQueue {
    name: String,
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    encryption: Option<LogEncryption>,
    schema: SchemaRef,
    /// Columns of the stream's table that are delivered, in their order.
    columns: Vec<usize>,
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
    /// By partition, the offset below which all records are applied.
    applied: BTreeMap<u32, Offset>,
    /// By partition, the offset below which all events were delivered or in the files when this process started.
    stored_before: BTreeMap<u32, Offset>,
    stored: BTreeMap<u32, Offset>,
    /// The last event of each partition that is counted as delivered or failed.
    delivered: DeliveredEvents,
    /// The last event of each partition that the other side says it has.
    known: DeliveredEvents,
    counts: SinkCounts,
    changed: bool,
}

/// Rows of one record.
#[derive(Clone)]
struct QueuedRows {
    partition: PartitionId,
    offset: Offset,
    /// Row of each in the record.
    rows: Vec<u32>,
    batch: RecordBatch,
    bytes: usize,
    /// True if they were read from the files.
    stored: bool,
}

/// Events to deliver.
pub struct DueEvents {
    /// The events.
    pub rows: RecordBatch,
    /// Their ids.
    pub ids: Vec<EventId>,
}

impl DueEvents {
    /// Keeps the first `rows_max` events.
    pub fn truncate(&mut self, rows_max: usize) {
        self.ids.truncate(rows_max);
        self.rows = self.rows.slice(0, self.ids.len());
    }
}

impl DeliveryQueue {
    /// Opens the queue of the sink `name`. Rows are projected to `columns`, whose schema is `schema`.
    ///
    /// Errors: `Corrupt` for damaged files, `Unavailable` when they cannot be read.
    pub fn open(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        name: &str,
        schema: SchemaRef,
        columns: Vec<usize>,
        encryption: Option<LogEncryption>,
    ) -> Result<Self> {
        let progress = read_json::<ProgressFile>(&*disk, &dir.join("progress.json"))?.unwrap_or_default();
        let delivered = progress.delivered.iter().map(|(p, (offset, row))| {
            let partition = PartitionId(*p);
            (partition, EventId { partition, offset: *offset, row: *row })
        });
        let mut queue = Self {
            name: name.to_owned(),
            schema,
            columns,
            memory: VecDeque::new(),
            memory_bytes: 0,
            in_flight: VecDeque::new(),
            files: None,
            read_next: Offset(0),
            end_before: Offset(0),
            encoder: BatchEncoder::default(),
            applied: progress.stored.clone(),
            stored_before: progress.stored.clone(),
            stored: progress.stored.clone(),
            delivered: delivered.collect(),
            known: DeliveredEvents::new(),
            counts: progress.counts,
            changed: false,
            dir,
            disk,
            encryption,
        };
        if queue.disk.list(&queue.dir.join("events")).is_ok() {
            let files = queue.open_files()?;
            (queue.read_next, queue.end_before) = (files.start(FILES), files.end(FILES));
            queue.files = Some(files);
        }
        Ok(queue)
    }

    /// Returns the offset of a partition below which all events are delivered or stored durably.
    pub fn stored(&self, partition: PartitionId) -> Offset {
        self.stored.get(&partition.0).copied().unwrap_or_default()
    }

    /// Returns what became of the events.
    pub fn counts(&self) -> SinkCounts {
        self.counts
    }

    /// Returns the number of events that wait.
    pub fn waiting(&self) -> u64 {
        self.counts.emitted - self.counts.delivered - self.counts.failed
    }

    /// Returns the bytes of the rows in memory and of the files.
    pub fn bytes(&self) -> (usize, u64) {
        let stored = self.files.as_ref().map_or(0, |files| match files.end(FILES) > self.read_next {
            true => files.bytes(FILES),
            false => 0,
        });
        (self.memory_bytes, stored)
    }

    /// Adds rows of a record that were stored in the stream's table.
    ///
    /// Errors: the rows cannot be written to the disk.
    pub fn push(&mut self, partition: PartitionId, offset: Offset, table_rows: &RecordBatch) -> Result<()> {
        if self.stored_before.get(&partition.0).is_some_and(|next| offset < *next) {
            return Ok(());
        }
        let internal = |what: &str| Error::internal(format!("sink {}: rows without {what}", self.name));
        let numbers = table_rows.column_by_name(column::ROW).ok_or_else(|| internal("numbers"))?;
        let numbers = numbers.as_primitive_opt::<Int32Type>().ok_or_else(|| internal("numbers"))?;
        let rows: Vec<u32> = numbers.values().iter().map(|row| *row as u32).collect();
        let batch = table_rows.project(&self.columns).map_err(|e| internal("columns").with_source(e))?;
        let bytes = batch.get_array_memory_size();
        let mut queued = QueuedRows { partition, offset, rows, batch, bytes, stored: false };
        // rows of a replay that were delivered before are counted
        queued.drop_known(self.delivered.get(&partition));
        if queued.rows.is_empty() {
            return Ok(());
        }
        self.counts.emitted += queued.rows.len() as u64;
        self.changed = true;
        self.memory_bytes += bytes;
        self.memory.push_back(queued);
        match self.memory_bytes > 4 * MEMORY_BYTES_MAX {
            true => self.store(),
            false => Ok(()),
        }
    }

    /// Returns whether as many rows wait in memory as should: [`Self::store`] makes room.
    pub fn is_memory_full(&self) -> bool {
        self.memory_bytes > MEMORY_BYTES_MAX
    }

    /// Records that all rows of a partition below `next` are in the queue.
    pub fn set_applied(&mut self, partition: PartitionId, next: Offset) {
        self.applied.insert(partition.0, next);
    }

    /// Drops the rows of a partition that no record has been applied for: the records push them again.
    pub fn forget_unapplied(&mut self, partition: PartitionId) {
        let applied = self.applied.get(&partition.0).copied().unwrap_or_default();
        let Self { memory, memory_bytes, counts, .. } = self;
        memory.retain(|queued| {
            let keep = queued.partition != partition || queued.offset < applied;
            if !keep {
                counts.emitted -= queued.rows.len() as u64;
                *memory_bytes -= queued.bytes;
            }
            keep
        });
    }

    /// Returns up to about `rows_max` events to deliver, oldest first; `None` if the queue is empty. They
    /// stay in the queue until [`Self::mark_delivered`].
    ///
    /// Errors: the files cannot be read.
    pub fn due(&mut self, rows_max: usize) -> Result<Option<DueEvents>> {
        let mut rows = self.in_flight.iter().map(|queued| queued.rows.len()).sum::<usize>();
        while rows < rows_max {
            let Some(mut queued) = self.next_queued()? else { break };
            let partition = queued.partition;
            let found = queued.drop_known(self.known.get(&partition));
            if let Some((last, count)) = found {
                self.counts.delivered += count as u64;
                self.delivered.insert(partition, last);
                self.changed = true;
            }
            if queued.rows.is_empty() {
                continue;
            }
            rows += queued.rows.len();
            self.in_flight.push_back(queued);
        }
        if self.in_flight.is_empty() {
            return Ok(None);
        }
        let batches = self.in_flight.iter().map(|queued| &queued.batch);
        let ids = self.in_flight.iter().flat_map(|queued| {
            let id = |row: &u32| EventId { partition: queued.partition, offset: queued.offset, row: *row };
            queued.rows.iter().map(id)
        });
        let rows = match self.in_flight.len() {
            1 => self.in_flight[0].batch.clone(),
            _ => concat_batches(&self.schema, batches).map_err(|e| {
                Error::internal(format!("sink {}: rows cannot be joined", self.name)).with_source(e)
            })?,
        };
        Ok(Some(DueEvents { ids: ids.collect(), rows }))
    }

    fn next_queued(&mut self) -> Result<Option<QueuedRows>> {
        if let Some(queued) = self.read_stored()? {
            return Ok(Some(queued));
        }
        let is_applied = |queued: &QueuedRows| {
            self.applied.get(&queued.partition.0).is_some_and(|next| queued.offset < *next)
        };
        // partitions apply independently of each other: only the order within one matters
        let Some(index) = self.memory.iter().position(is_applied) else { return Ok(None) };
        let Some(queued) = self.memory.remove(index) else { return Ok(None) };
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
            let mut queued = decode(record.payload, self.schema.clone())
                .map_err(|e| e.context(format!("{}: record {}", self.dir.display(), record.offset)))?;
            self.read_next = record.offset.next();
            let is_before =
                self.stored_before.get(&queued.partition.0).is_some_and(|next| queued.offset < *next);
            if record.offset < self.end_before && !is_before {
                continue;
            }
            queued.drop_known(self.delivered.get(&queued.partition));
            if !queued.rows.is_empty() {
                return Ok(Some(queued));
            }
        }
    }

    /// Notes that the first `delivered` events of [`Self::due`] are with the other side, which refused
    /// `failed` of them.
    pub fn mark_delivered(&mut self, mut delivered: usize, failed: usize) {
        self.changed |= delivered > 0;
        self.counts.failed += failed as u64;
        self.counts.delivered += (delivered - failed) as u64;
        while delivered > 0 {
            let Some(mut first) = self.in_flight.pop_front() else { break };
            let taken = delivered.min(first.rows.len());
            delivered -= taken;
            let row = first.rows[taken - 1];
            let last = EventId { partition: first.partition, offset: first.offset, row };
            self.delivered.insert(first.partition, last);
            if taken < first.rows.len() {
                first.rows.drain(..taken);
                first.batch = first.batch.slice(taken, first.batch.num_rows() - taken);
                self.in_flight.push_front(first);
            }
        }
    }

    /// Takes over from the other side which events it has. Those that wait are not delivered again.
    pub fn set_known(&mut self, known: DeliveredEvents) {
        for queued in &mut self.in_flight {
            let partition = queued.partition;
            if let Some((last, count)) = queued.drop_known(known.get(&partition)) {
                self.counts.delivered += count as u64;
                self.delivered.insert(partition, last);
                self.changed = true;
            }
        }
        self.in_flight.retain(|queued| !queued.rows.is_empty());
        self.known = known;
    }

    /// Makes durable how far the deliveries have come, and all events of applied records that wait. A checkpoint may
    /// then pass those records.
    ///
    /// Errors: the disk is full or fails.
    pub fn store(&mut self) -> Result<()> {
        if !self.changed && self.applied == self.stored {
            return Ok(());
        }
        let applied = self.applied.clone();
        self.store_memory()?;
        if let Some(files) = &self.files {
            files.flush()?;
        }
        self.write_progress(&applied)?;
        self.stored = applied;
        self.changed = false;
        Ok(())
    }

    /// Makes durable how far the deliveries have come, so that fewer events are sent again after a crash.
    ///
    /// Errors: the disk is full or fails.
    pub fn store_progress(&mut self) -> Result<()> {
        if self.changed {
            self.write_progress(&self.stored)?;
        }
        Ok(())
    }

    fn write_progress(&self, stored: &BTreeMap<u32, Offset>) -> Result<()> {
        // events that are only in memory are counted again when the log is replayed
        let in_memory = self.memory.iter().chain(self.in_flight.iter().filter(|queued| !queued.stored));
        let in_memory: u64 = in_memory.map(|queued| queued.rows.len() as u64).sum();
        let file = ProgressFile {
            sink: self.name.clone(),
            delivered: self.delivered.iter().map(|(p, id)| (p.0, (id.offset, id.row))).collect(),
            stored: stored.clone(),
            counts: SinkCounts { emitted: self.counts.emitted - in_memory, ..self.counts },
        };
        self.create_dir()?;
        write_json(&*self.disk, &self.dir.join("progress.json"), &file)?;
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

    /// Closes the files.
    ///
    /// Errors: they cannot be made durable.
    pub fn close(&mut self) -> Result<()> {
        self.files.take().map_or(Ok(()), |files| files.close())
    }

    /// Writes the rows of applied records that are only in memory to the files, in the order of delivery.
    fn store_memory(&mut self) -> Result<()> {
        let Self { applied, in_flight, memory, encoder, .. } = self;
        let is_applied =
            |queued: &QueuedRows| applied.get(&queued.partition.0).is_some_and(|next| queued.offset < *next);
        let unstored = in_flight.iter().filter(|queued| !queued.stored);
        let in_flight_payloads =
            unstored.map(|queued| encode(encoder, queued)).collect::<Result<Vec<_>>>()?;
        let waiting = memory.iter().filter(|queued| is_applied(queued));
        let payloads = waiting.map(|queued| encode(encoder, queued)).collect::<Result<Vec<_>>>()?;
        if in_flight_payloads.is_empty() && payloads.is_empty() {
            return Ok(());
        }
        if self.files.is_none() {
            self.create_dir()?;
            self.files = Some(self.open_files()?);
        }
        let Some(files) = &self.files else { return Ok(()) };
        for payload in in_flight_payloads {
            // these are delivered from memory; all that is in the files before them was read
            let written = files.write_owned(FILES, Timestamp(0), vec![payload])?;
            self.read_next = written.last.next();
        }
        self.in_flight.iter_mut().for_each(|queued| queued.stored = true);
        let applied = &self.applied;
        let is_applied =
            |queued: &QueuedRows| applied.get(&queued.partition.0).is_some_and(|next| queued.offset < *next);
        for payload in payloads {
            files.write_owned(FILES, Timestamp(0), vec![payload])?;
            let written = self.memory.iter().position(is_applied).and_then(|index| self.memory.remove(index));
            self.memory_bytes -= written.map_or(0, |queued| queued.bytes);
        }
        Ok(())
    }

    fn create_dir(&self) -> Result<()> {
        let parent = self.dir.parent().unwrap_or(&self.dir);
        let above = parent.parent().unwrap_or(parent);
        let created = self.disk.create_dir(parent).and_then(|()| self.disk.sync_dir(above));
        let created = created.and_then(|()| self.disk.create_dir(&self.dir));
        let created = created.and_then(|()| self.disk.sync_dir(parent));
        created.map_err(|e| {
            Error::unavailable(format!("{}: cannot be created", self.dir.display())).with_source(e)
        })
    }

    fn open_files(&self) -> Result<LocalLog> {
        let options = LogOptions {
            segment_bytes: 16 << 20,
            tail_bytes_max: READ_BYTES,
            encryption: self.encryption.clone(),
            ..LogOptions::new(1)
        };
        let (files, reports) = LocalLog::open_on(self.disk.clone(), self.dir.join("events"), options)?;
        for report in reports.iter().filter(|report| report.cut.is_some()) {
            tracing::warn!(sink = self.name, "{report}");
        }
        Ok(files)
    }
}

impl QueuedRows {
    /// Drops the rows up to `known`. Returns the last of them and their number, if there are some.
    fn drop_known(&mut self, known: Option<&EventId>) -> Option<(EventId, usize)> {
        let (partition, offset) = (self.partition, self.offset);
        let id = |row: u32| EventId { partition, offset, row };
        let count = self.rows.partition_point(|row| known.is_some_and(|known| id(*row) <= *known));
        let last = id(*self.rows[..count].last()?);
        self.rows.drain(..count);
        self.batch = self.batch.slice(count, self.batch.num_rows() - count);
        Some((last, count))
    }
}

/// Encodes rows: partition, offset, number of rows, row numbers, length of the message, message, data.
fn encode(encoder: &mut BatchEncoder, queued: &QueuedRows) -> Result<Bytes> {
    let batch = encoder.encode(&queued.batch)?;
    let mut out = Vec::with_capacity(32 + 4 * queued.rows.len() + batch.message.len() + batch.data.len());
    out.put_u32_le(queued.partition.0);
    out.put_u64_le(queued.offset.0);
    out.put_u32_le(queued.rows.len() as u32);
    queued.rows.iter().for_each(|row| out.put_u32_le(*row));
    out.put_u32_le(batch.message.len() as u32);
    out.extend_from_slice(&batch.message);
    out.extend_from_slice(&batch.data);
    Ok(out.into())
}

fn decode(payload: Bytes, schema: SchemaRef) -> Result<QueuedRows> {
    let damaged = || Error::corrupt("it is no batch of events");
    let mut rest = payload;
    if rest.remaining() < 16 {
        return Err(damaged());
    }
    let (partition, offset) = (PartitionId(rest.get_u32_le()), Offset(rest.get_u64_le()));
    let count = rest.get_u32_le() as usize;
    if rest.remaining() < count.saturating_mul(4) + 4 {
        return Err(damaged());
    }
    let rows: Vec<u32> = (0..count).map(|_| rest.get_u32_le()).collect();
    let message = rest.get_u32_le() as usize;
    if rest.remaining() < message {
        return Err(damaged());
    }
    let message = rest.split_to(message);
    let batch = decode_batch(&message, rest, schema)?;
    if batch.num_rows() != rows.len() {
        return Err(damaged());
    }
    let bytes = batch.get_array_memory_size();
    Ok(QueuedRows { partition, offset, rows, batch, bytes, stored: true })
}

/// Returns the directory of the queue of the sink `name`.
pub fn queue_dir(dir: &Path, name: &str) -> PathBuf {
    dir.join(queue_name(name))
}

/// Returns the name of the directory of the queue of the sink `name`.
pub fn queue_name(name: &str) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(name.as_bytes()))
}

/// Returns the names of the sinks that have queues in `dir`.
///
/// Errors: `Corrupt` for damaged progress; `Unavailable` if a file cannot be read.
pub fn names(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>> {
    let mut names = vec![];
    for path in crate::process::disk_files::list(disk, dir)?.iter().map(|name| dir.join(name)) {
        names.extend(
            read_json::<ProgressFile>(disk, &path.join("progress.json"))?.map(|progress| progress.sink),
        );
    }
    Ok(names)
}

/// Returns a warning for each queue of another sink than these in which events wait.
///
/// Errors: `Unavailable` if a file cannot be read.
pub fn others<'n>(disk: &dyn Disk, dir: &Path, names: impl Iterator<Item = &'n str>) -> Result<Vec<String>> {
    let known: BTreeSet<PathBuf> = names.map(|name| queue_dir(dir, name)).collect();
    let found = match disk.list(dir) {
        Ok(found) => found,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(vec![]),
        Err(e) => {
            return Err(Error::unavailable(format!("{}: cannot be listed", dir.display())).with_source(e));
        }
    };
    let mut warnings = vec![];
    for path in found.iter().map(|name| dir.join(name)).filter(|path| !known.contains(path)) {
        let Some(progress) = read_json::<ProgressFile>(disk, &path.join("progress.json"))? else { continue };
        let SinkCounts { emitted, delivered, failed } = progress.counts;
        let waiting = emitted.saturating_sub(delivered + failed);
        if waiting > 0 {
            warnings.push(format!(
                "{waiting} events wait for the sink {}, which the app does not have any more: deploy it again to deliver \
                 them, or remove {}",
                progress.sink,
                path.display()
            ));
        }
    }
    Ok(warnings)
}

#[cfg(test)]
mod tests {
    use arrow_array::{ArrayRef, Int32Array, Int64Array};
    use arrow_schema::{DataType, Field, Schema};
    use tidemill_log::disk::OsDisk;

    use super::*;

    const PARTITION: PartitionId = PartitionId(0);

    fn open(dir: &Path) -> DeliveryQueue {
        let schema = Arc::new(Schema::new(vec![Field::new("n", DataType::Int64, true)]));
        let queue = DeliveryQueue::open(Arc::new(OsDisk), dir.join("sinks/s"), "s", schema, vec![0], None);
        queue.unwrap()
    }

    /// Adds the rows of a record, as when it is applied.
    fn push(queue: &mut DeliveryQueue, offset: u64, rows: i32) {
        let n: ArrayRef = Arc::new(Int64Array::from_iter_values((0..rows).map(i64::from)));
        let numbers: ArrayRef = Arc::new(Int32Array::from_iter_values(0..rows));
        let batch = RecordBatch::try_from_iter([("n", n), (column::ROW, numbers)]).unwrap();
        queue.push(PARTITION, Offset(offset), &batch).unwrap();
        queue.set_applied(PARTITION, Offset(offset + 1));
    }

    #[test]
    fn delivered_rows_leave_the_files_after_their_count_is_durable() {
        // the files of a log are only cut when they are larger than 64 KiB
        const ROWS: usize = 20_000;
        let dir = tempfile::tempdir().unwrap();
        let mut queue = open(dir.path());
        push(&mut queue, 0, ROWS as i32);
        queue.store().unwrap();
        assert_eq!(queue.due(ROWS).unwrap().unwrap().ids.len(), ROWS);
        queue.mark_delivered(ROWS, 0);
        // a crash before the progress is stored
        queue.close().unwrap();
        let mut queue = open(dir.path());
        assert_eq!(queue.waiting(), ROWS as u64);
        let due = queue.due(ROWS).unwrap().expect("what waits is due");
        // the other side has 7 of them
        queue.set_known([(PARTITION, due.ids[6])].into());
        assert_eq!(queue.due(ROWS).unwrap().unwrap().ids, due.ids[7..]);
        queue.mark_delivered(ROWS - 7, 1);
        queue.store_progress().unwrap();
        assert_eq!(queue.bytes(), (0, 0));
        queue.close().unwrap();
        let mut queue = open(dir.path());
        assert!(queue.due(ROWS).unwrap().is_none());
        let emitted = ROWS as u64;
        assert_eq!(queue.counts(), SinkCounts { emitted, delivered: emitted - 1, failed: 1 });
    }
}
