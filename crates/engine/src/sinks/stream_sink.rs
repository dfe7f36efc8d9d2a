//! A sink that writes the events of a stream to a file, or to one for each partition.
//!
//! With `{partition}` in its path a sink has a file for each partition that the process owns: `out-{partition}.json` stands for
//! `out-0.json`, `out-1.json` and so on. How far such a file is written belongs to the state of its partition, so the next owner continues
//! it where it finds the file, as on a shared path, and begins a new one otherwise.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parking_lot::{Mutex, RwLock};
use tidemill_log::Log;
use tidemill_log::disk::Disk;
use tidemill_types::{Error, Offset, PartitionId, Result, StreamSchema};

use super::progress::SinkProgress;
use super::queue_directory::partition_name;
use super::sink_file::{FileTarget, SinkFile};
use crate::process::retry_delay::RetryDelay;

/// Delay before the first retry of a sink that failed, and the longest one.
const RETRY_DELAYS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));
/// Part of a path that stands for the number of a partition.
pub const PARTITION_MARK: &str = "{partition}";

/// Columns of a stream that a sink writes: the attributes of the app's stream, in their order.
pub struct StreamColumns {
    stream: usize,
    columns: Vec<usize>,
    schema: Arc<StreamSchema>,
}

/// Sink of a stream.
pub struct StreamSink {
    name: String,
    columns: Arc<StreamColumns>,
    target: FileTarget,
    disk: Arc<dyn Disk>,
    /// Directory with the progress of the sink, below which partitions have theirs.
    dirs: ProgressDirs,
    /// The file of all partitions, if it has one.
    single: Option<Arc<SinkFile>>,
    /// By partition, the files of this process.
    by_partition: RwLock<BTreeMap<PartitionId, Arc<SinkFile>>>,
    retry: Mutex<RetryDelay>,
}

/// Directories with the progress of sinks.
pub struct ProgressDirs {
    /// Of sinks with one file.
    pub sinks: PathBuf,
    /// With a directory for each partition, for sinks with a file for each.
    pub partitions: PathBuf,
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
    /// Creates a sink. Its file is opened when it is first written.
    ///
    /// Errors: `Corrupt` for damaged progress, and when the file is ahead of the log.
    pub fn open(
        name: String,
        columns: StreamColumns,
        target: FileTarget,
        disk: Arc<dyn Disk>,
        dirs: ProgressDirs,
        log: &dyn Log,
    ) -> Result<Self> {
        let mut sink = Self {
            name,
            columns: Arc::new(columns),
            target,
            disk,
            dirs,
            single: None,
            by_partition: RwLock::default(),
            retry: Mutex::new(RetryDelay::new(RETRY_DELAYS.0, RETRY_DELAYS.1)),
        };
        if !sink.is_by_partition() {
            let progress = SinkProgress::read(sink.disk.clone(), &sink.dirs.sinks, &sink.name)?;
            let end = |id: PartitionId| if id.0 < log.partitions() { log.end(id) } else { Offset(0) };
            sink.check_progress(&progress, &end)?;
            sink.single = Some(Arc::new(sink.file(sink.target.clone(), progress)));
        }
        Ok(sink)
    }

    fn file(&self, target: FileTarget, progress: SinkProgress) -> SinkFile {
        SinkFile::new(self.name.clone(), self.columns.clone(), target, progress)
    }

    /// Returns whether each partition has a file of its own.
    pub fn is_by_partition(&self) -> bool {
        self.target.path.to_string_lossy().contains(PARTITION_MARK)
    }

    /// Opens the file of a partition whose log ends at `log_end`, if each has one.
    ///
    /// Errors: as [`Self::open`].
    pub fn open_partition(&self, partition: PartitionId, log_end: Offset) -> Result<()> {
        if !self.is_by_partition() {
            return Ok(());
        }
        let dir = self.dirs.partitions.join(partition_name(partition));
        let progress = SinkProgress::read(self.disk.clone(), &dir, &self.name)?;
        self.check_progress(&progress, &|_| log_end)?;
        let path = self.target.path.to_string_lossy().replace(PARTITION_MARK, &partition.0.to_string());
        let target = FileTarget { path: path.into(), ..self.target.clone() };
        self.by_partition.write().insert(partition, Arc::new(self.file(target, progress)));
        Ok(())
    }

    /// Closes the file of a partition, if each has one. Rows that are not committed are written by the next owner.
    pub fn close_partition(&self, partition: PartitionId) {
        if let Some(file) = self.by_partition.write().remove(&partition) {
            file.close();
        }
    }

    /// A sink must not be ahead of the log: the next events, which get the same offsets again, would be taken for written.
    fn check_progress(&self, progress: &SinkProgress, end: &dyn Fn(PartitionId) -> Offset) -> Result<()> {
        for (partition, next) in &progress.offsets {
            let end = end(PartitionId(*partition));
            if *next > end {
                return Err(Error::corrupt(format!(
                    "partition {partition}: sink {} has written events up to offset {next}, but the log ends at {end}; \
                     restore the log from a backup, or remove {} to begin the file anew",
                    self.name,
                    progress.path().display()
                )));
            }
        }
        Ok(())
    }

    /// Returns the name: the app's file, the stream and the path.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the position of its stream in the program.
    pub fn stream(&self) -> usize {
        self.columns.stream
    }

    fn file_of(&self, partition: PartitionId) -> Option<Arc<SinkFile>> {
        self.single.clone().or_else(|| self.by_partition.read().get(&partition).cloned())
    }

    fn files(&self) -> Vec<Arc<SinkFile>> {
        self.single.iter().cloned().chain(self.by_partition.read().values().cloned()).collect()
    }

    /// Adds stored rows of a record, see [`SinkFile::push`]. The next owner writes those of a partition that is not here any more.
    ///
    /// Errors: those of [`SinkFile::push`].
    pub fn push(&self, partition: PartitionId, offset: Offset, batch: &RecordBatch) -> Result<()> {
        self.file_of(partition).map_or(Ok(()), |file| file.push(partition, offset, batch))
    }

    /// Records that all rows of a partition below `next` are handed over.
    pub fn set_applied(&self, partition: PartitionId, next: Offset) {
        self.file_of(partition).iter().for_each(|file| file.set_applied(partition, next));
    }

    /// Drops the rows of a partition that no record has been applied for: the records push them again.
    pub fn forget_unapplied(&self, partition: PartitionId) {
        self.file_of(partition).iter().for_each(|file| file.forget_unapplied(partition));
    }

    /// Returns the size of the rows that wait to be written, in bytes, over all files.
    pub fn waiting_bytes(&self) -> usize {
        self.files().iter().map(|file| file.waiting_bytes()).sum()
    }

    /// Returns the offset of a partition below which all events are written durably.
    pub fn committed(&self, partition: PartitionId) -> Offset {
        self.file_of(partition).map_or(Offset(0), |file| file.committed(partition))
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
    /// Errors: why a file cannot be written; the rows stay and the call may be repeated.
    pub fn flush(&self) -> Result<()> {
        self.files().iter().try_for_each(|file| file.flush())
    }

    /// Writes the rows of all applied records durably and commits how far the sink has come.
    ///
    /// Errors: those of [`Self::flush`], and of syncing the log.
    pub fn commit(&self, log: &dyn Log) -> Result<()> {
        self.files().iter().try_for_each(|file| file.commit(log))
    }

    /// Closes the files. Rows that are not committed are written again after the next start.
    pub fn close(&self) {
        self.files().iter().for_each(|file| file.close());
    }
}
