//! Sinks: `@sink(type='file')` of `*.siddhi` files, which this module writes itself, and those of connectors to other
//! systems, which have a thread each and a queue for each partition: see [`connector_sink`] and [`delivery_queue`].
//!
//! A sink of a file gets every stored event of its stream: the owner of each partition hands the rows of the records that it
//! applies to a queue, and a background job writes them. A sink is like a table: it *commits* how far it came, for
//! each partition the offset below which all events are written, together with its own position, atomically and
//! only after the records are durable in the log. A checkpoint waits for that, so the log holds every event that
//! is not committed. At the start the sink is cut at the committed position and the replay of the log brings the
//! rest: nothing is lost and nothing doubled.

mod connector_sink;
mod delivery_queue;
mod due_events;
mod former_queue;
mod partition_queue;
mod progress;
mod queue_directory;
mod queued_rows;
mod sink_file;
mod stream_sink;
pub mod undelivered_event;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_connect::{ConnectorConfig, ConnectorContext, ConnectorSink};
use tidemill_flow::Connectors;
use tidemill_log::Log;
use tidemill_log::disk::Disk;
use tidemill_types::{Error, EventId, Offset, PartitionId, Result};

use crate::connectors::{AppSink, app_sinks};
use crate::deployment::{Deployment, TableRef};
use crate::directory::log_id::LogId;
use crate::queries::files::{file_format, file_path};
pub use connector_sink::DeliverySink;
use delivery_queue::QueueOptions;
pub use due_events::DueEvents;
pub use queue_directory::{former_queue_dirs, partition_dirs, partition_name, queue_dirs};
use sink_file::FileTarget;
pub use stream_sink::StreamSink;
use stream_sink::{PARTITION_MARK, ProgressDirs, StreamColumns};

/// Directory of the queues of connectors, in the data directory.
pub const DELIVERIES_DIR: &str = "deliveries";

/// Counts of the events of a sink to another system: `emitted` is the sum of `delivered`, `failed` and
/// `waiting`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SinkInfo {
    /// Name: the app's file, the stream and the type.
    pub name: String,
    /// Stream whose events it sends.
    pub stream: String,
    /// Events of the stream since the sink exists.
    pub emitted: u64,
    /// Events that the other side has acknowledged.
    pub delivered: u64,
    /// Events that the other side has refused for good.
    pub failed: u64,
    /// Events that wait.
    pub waiting: u64,
    /// Bytes of the events that wait, in memory and on the disk.
    pub waiting_bytes: u64,
    /// Why events are not delivered at present.
    pub problem: Option<String>,
}

/// Sinks of a deployment.
#[derive(Default)]
pub struct SinkSet {
    sinks: Vec<StreamSink>,
    /// Sinks of connectors.
    deliveries: Vec<DeliverySink>,
    /// Sinks of each stream, by its position in the program.
    by_stream: HashMap<usize, Vec<usize>>,
    /// Bytes of rows that may wait for a sink of a file, in memory.
    bytes_max: usize,
    /// Bytes that may wait for a sink of a connector, on the disk.
    delivery_bytes_max: u64,
}

impl SinkSet {
    /// Reads how far the sinks of `deployment` have come. Their files are opened later.
    ///
    /// Errors: `Invalid` for a sink of a stream or with a format that there is not, and for two sinks with one file;
    /// `Corrupt` for damaged progress, and when a sink is ahead of the log.
    pub fn open(
        disk: Arc<dyn Disk>,
        data_dir: &Path,
        log_id: &LogId,
        deployment: &Deployment,
        log: &dyn Log,
        shares_partitions: bool,
    ) -> Result<Self> {
        let dir = data_dir.join("sinks");
        let (mut sinks, mut paths) = (Vec::new(), BTreeSet::new());
        let files = deployment.queries.files.iter();
        for (file, sink) in files.flat_map(|file| file.plan.file_sinks.iter().map(move |sink| (file, sink))) {
            let stream = &file.plan.catalog.streams()[sink.stream];
            let name = format!("{}: {} to {}", file.name, stream.name, sink.path);
            let path = file_path(&deployment.app, file, &sink.path);
            if !paths.insert(path.clone()) {
                return Err(Error::invalid(format!(
                    "{}: two sinks write to {}; give each its own file",
                    file.name,
                    path.display()
                )));
            }
            let index = deployment.program.stream_index(&stream.name);
            let index = index
                .ok_or_else(|| Error::internal(format!("stream `{}` of a sink is missing", stream.name)))?;
            let attributes = stream.attributes.iter().map(|(name, _)| name.as_str());
            let columns = StreamColumns::new(&deployment.program.streams()[index], index, attributes)?;
            let target = FileTarget { path, format: file_format(&sink.mapper)?, append: sink.append };
            let dirs = ProgressDirs { sinks: dir.clone(), partitions: data_dir.join(DELIVERIES_DIR) };
            let opened = StreamSink::open(name, columns, target, disk.clone(), dirs, log)?;
            if shares_partitions && !opened.is_by_partition() {
                return Err(Error::invalid(needs_partition(&file.name, &stream.name, &sink.path)));
            }
            sinks.push(opened);
        }
        let mut by_stream: HashMap<usize, Vec<usize>> = HashMap::new();
        for (i, sink) in sinks.iter().enumerate() {
            by_stream.entry(sink.stream()).or_default().push(i);
        }
        Ok(Self {
            sinks,
            by_stream,
            deliveries: create_deliveries(&disk, data_dir, log_id, deployment, shares_partitions)?,
            bytes_max: deployment.settings.inbox_bytes() as usize,
            delivery_bytes_max: deployment.settings.sink_bytes,
        })
    }

    /// Returns a warning for each sink of a connector of earlier apps for which events wait.
    ///
    /// Errors: `Unavailable` if a file cannot be read.
    pub fn abandoned(&self, disk: &dyn Disk, data_dir: &Path) -> Result<Vec<String>> {
        let names = self.deliveries.iter().map(DeliverySink::name);
        queue_directory::others(disk, &data_dir.join(DELIVERIES_DIR), names)
    }

    /// Moves what waits in the queues of earlier releases for all partitions to queues by partition.
    ///
    /// Errors: `Corrupt` for damaged files, `Unavailable` when the disk fails.
    pub fn move_former_queues(&self, partitions: u32) -> Result<()> {
        self.deliveries.iter().try_for_each(|sink| sink.move_former_queue(partitions))
    }

    /// Opens the queues and files of a partition that this process owns in `epoch`, and whose log ends at `log_end`. The epoch is 0 if it does not
    /// move between processes.
    ///
    /// Errors: `Corrupt` for damaged files, `Unavailable` when they cannot be read. No queue of the partition is open then.
    pub fn open_partition(&self, partition: PartitionId, epoch: u64, log_end: Offset) -> Result<()> {
        let epoch = Some(epoch);
        let mut queues = self.deliveries.iter().map(|sink| sink.open_partition(partition, epoch, log_end));
        let mut files = self.sinks.iter().map(|sink| sink.open_partition(partition, log_end));
        let opened = queues.try_for_each(|opened| opened).and_then(|()| files.try_for_each(|opened| opened));
        if opened.is_err() {
            self.close_partition(partition);
        }
        opened
    }

    /// Opens the queues of a partition that this process follows. They keep its events until its owner says that they are delivered.
    ///
    /// Errors: as [`Self::open_partition`].
    pub fn follow_partition(&self, partition: PartitionId, log_end: Offset) -> Result<()> {
        let opened =
            self.deliveries.iter().try_for_each(|sink| sink.open_partition(partition, None, log_end));
        if opened.is_err() {
            self.close_partition(partition);
        }
        opened
    }

    /// Delivers the events of a partition that this process has followed, and owns now in `epoch`.
    pub fn promote_partition(&self, partition: PartitionId, epoch: u64) {
        self.deliveries.iter().for_each(|sink| sink.promote_partition(partition, epoch));
    }

    /// Keeps the events of a partition that this process has owned, and follows now.
    pub fn demote_partition(&self, partition: PartitionId) {
        self.deliveries.iter().for_each(|sink| sink.demote_partition(partition));
    }

    /// Notes that the other side of a sink has the events of a partition up to `last`, as its owner says. The app may not have the sink
    /// any more.
    ///
    /// Errors: the files of its queue cannot be read.
    pub fn note_delivered(&self, name: &str, partition: PartitionId, last: (Offset, u32)) -> Result<()> {
        let last = EventId { partition, offset: last.0, row: last.1 };
        let sink = self.deliveries.iter().find(|sink| sink.name() == name);
        sink.map_or(Ok(()), |sink| sink.note_delivered(partition, last))
    }

    /// Ends deliveries of a partition. Those that have begun may end as long as `wait` says. Returns whether they have.
    pub fn stop_partition(&self, partition: PartitionId, mut wait: impl FnMut() -> bool) -> bool {
        let mut ended = true;
        // each is stopped, also after one whose delivery does not end
        for sink in &self.deliveries {
            ended &= sink.stop_partition(partition, &mut wait);
        }
        ended
    }

    /// Closes the queues and files of a partition. They stay as they are.
    pub fn close_partition(&self, partition: PartitionId) {
        self.deliveries.iter().for_each(|sink| sink.close_partition(partition));
        self.sinks.iter().for_each(|sink| sink.close_partition(partition));
    }

    /// Returns the partitions that other systems have got events of from a later owner.
    pub fn lost_partitions(&self) -> Vec<PartitionId> {
        self.deliveries.iter().flat_map(DeliverySink::lost_partitions).collect()
    }

    /// Calls `step` while no queue of a partition changes on the disk, with a number that has grown if one has since.
    pub fn with_partition<T>(&self, partition: PartitionId, step: impl FnOnce(u64) -> T) -> T {
        let queues: Vec<_> = self.deliveries.iter().filter_map(|sink| sink.queue(partition)).collect();
        let locked: Vec<_> = queues.iter().map(|queue| queue.lock()).collect();
        step(locked.iter().map(|queue| queue.revision()).sum())
    }

    /// Forgets how far sinks of files of earlier apps have come.
    ///
    /// Errors: `Unavailable` if a file cannot be removed.
    pub fn forget_others(&self, disk: &dyn Disk, data_dir: &Path) -> Result<()> {
        let (single, by_partition): (Vec<_>, Vec<_>) =
            self.sinks.iter().partition(|sink| !sink.is_by_partition());
        progress::retain(disk, &data_dir.join("sinks"), single.into_iter().map(StreamSink::name))?;
        let names = || by_partition.iter().map(|sink| sink.name());
        let partitions = queue_directory::partition_dirs(disk, &data_dir.join(DELIVERIES_DIR))?;
        partitions.iter().try_for_each(|dir| progress::retain(disk, dir, names()))
    }

    /// Returns all sinks of connectors.
    pub fn deliveries(&self) -> &[DeliverySink] {
        &self.deliveries
    }

    /// Returns all sinks of files.
    pub fn all(&self) -> &[StreamSink] {
        &self.sinks
    }

    /// Hands stored rows of a table to the sinks of its stream. The rows of a record count once
    /// [`Self::set_applied`] says that the record is applied.
    pub fn push(
        &self,
        table: TableRef,
        partition: PartitionId,
        offset: Offset,
        batch: &RecordBatch,
    ) -> Result<()> {
        let TableRef::Stream(stream) = table else { return Ok(()) };
        for sink in self.by_stream.get(&stream).into_iter().flatten() {
            self.sinks[*sink].push(partition, offset, batch)?;
        }
        let of_stream = self.deliveries.iter().filter(|sink| sink.stream() == stream);
        of_stream.into_iter().try_for_each(|sink| sink.push(partition, offset, batch))
    }

    /// Hands rows of a table to one sink again. Rows for a sink that the app no longer has stay undelivered.
    pub fn push_again(
        &self,
        name: &str,
        partition: PartitionId,
        offset: Offset,
        batch: &RecordBatch,
    ) -> Result<()> {
        match self.deliveries.iter().find(|sink| sink.name() == name) {
            Some(sink) => sink.push(partition, offset, batch),
            None => Ok(()),
        }
    }

    /// Records that all records of a partition below `next` are applied and their rows handed over.
    pub fn set_applied(&self, partition: PartitionId, next: Offset) {
        self.sinks.iter().for_each(|sink| sink.set_applied(partition, next));
        self.deliveries.iter().for_each(|sink| sink.set_applied(partition, next));
    }

    /// Drops the rows of records of a partition that are not applied to their end.
    pub fn forget_unapplied(&self, partition: PartitionId) {
        self.sinks.iter().for_each(|sink| sink.forget_unapplied(partition));
        self.deliveries.iter().for_each(|sink| sink.forget_unapplied(partition));
    }

    /// Returns whether as many rows wait for a sink as memory, or the disk for those of connectors, allows.
    pub fn is_full(&self) -> bool {
        self.sinks.iter().any(|sink| sink.waiting_bytes() >= self.bytes_max)
            || self.deliveries.iter().any(|sink| sink.waiting_bytes() >= self.delivery_bytes_max)
    }

    /// Writes what waits if a sink is full, for a replay, during which no jobs run.
    ///
    /// Errors: a full sink cannot be written.
    pub fn flush_if_full(&self) -> Result<()> {
        let full = self.deliveries.iter().filter(|sink| sink.is_memory_full());
        full.into_iter().try_for_each(DeliverySink::store)?;
        let full = self.sinks.iter().filter(|sink| sink.waiting_bytes() >= self.bytes_max);
        full.into_iter().try_for_each(StreamSink::flush)
    }

    /// Checks that all events of a partition below `next` are committed.
    ///
    /// Errors: `Unavailable` with the sink that is behind.
    pub fn check_committed(&self, partition: PartitionId, next: Offset) -> Result<()> {
        if let Some(sink) = self.deliveries.iter().find(|sink| sink.stored(partition) < next) {
            return Err(Error::unavailable(format!(
                "partition {partition}: sink {} has not stored its events up to offset {next}",
                sink.name()
            )));
        }
        match self.sinks.iter().find(|sink| sink.committed(partition) < next) {
            None => Ok(()),
            Some(sink) => Err(Error::unavailable(format!(
                "partition {partition}: sink {} has not written its events up to offset {next}",
                sink.name()
            ))),
        }
    }
}

/// Returns the names of the sinks that a data directory has written to or has events for.
///
/// Errors: `Corrupt` for damaged progress; `Unavailable` if a file cannot be read.
pub fn names(disk: &dyn Disk, data_dir: &Path) -> Result<Vec<String>> {
    let mut names = progress::names(disk, &data_dir.join("sinks"))?;
    let mut by_partition = BTreeSet::new();
    for dir in queue_directory::partition_dirs(disk, &data_dir.join(DELIVERIES_DIR))? {
        by_partition.extend(progress::names(disk, &dir)?);
    }
    names.extend(by_partition);
    names.extend(queue_directory::names(disk, &data_dir.join(DELIVERIES_DIR))?);
    Ok(names)
}

/// Creates the sinks of connectors, without queues.
fn create_deliveries(
    disk: &Arc<dyn Disk>,
    data_dir: &Path,
    log_id: &LogId,
    deployment: &Deployment,
    shares_partitions: bool,
) -> Result<Vec<DeliverySink>> {
    let Connectors::Catalog(catalog) = deployment.app.registry().connectors().clone() else {
        return Ok(vec![]);
    };
    let mut sinks = vec![];
    for AppSink { file, stream, config, names } in app_sinks(&deployment.queries) {
        let index = deployment.program.stream_index(&stream.name);
        let index =
            index.ok_or_else(|| Error::internal(format!("stream `{}` of a sink is missing", stream.name)))?;
        let attributes = stream.attributes.iter().map(|(name, _)| name.as_str());
        let columns = StreamColumns::new(&deployment.program.streams()[index], index, attributes)?;
        let open = |name: &str, destination: &ConnectorConfig| {
            let context = ConnectorContext {
                name: name.to_owned(),
                writer: log_id.qualify(name),
                app: deployment.app.name.clone(),
                schema: columns.schema().clone(),
                dir: file_path(&deployment.app, file, ""),
                mapper: None,
                shares_partitions,
            };
            let opened = catalog.open_sink(destination, &context);
            opened.map_err(|e| Error::invalid(format!("sink {name}: {e}")))
        };
        let mut opened = vec![];
        match (config.distribution(), names.first()) {
            (Some(distribution), Some(name)) => {
                let parts = config.destinations.iter().map(|destination| open(name, destination));
                let parts = parts.collect::<Result<Vec<_>>>()?;
                opened.push(ConnectorSink::distributed(name.clone(), parts, distribution));
            }
            _ => {
                for (name, destination) in names.iter().zip(&config.destinations) {
                    opened.push(open(name, destination)?);
                }
            }
        }
        for connector in opened {
            let options = QueueOptions {
                sink: connector.name().to_owned(),
                disk: disk.clone(),
                dir: data_dir.join(DELIVERIES_DIR),
                schema: columns.table_columns(&deployment.program.streams()[index])?,
                columns: columns.columns().to_vec(),
                encryption: deployment.settings.encryption.of_log("tidemill deliveries"),
            };
            let schema = columns.schema().clone();
            sinks.push(DeliverySink::new(connector, index, schema, config.on_error, options));
        }
    }
    Ok(sinks)
}

/// Returns why a sink with one file for all partitions is refused, and what to write.
fn needs_partition(file: &str, stream: &str, path: &str) -> String {
    let name = Path::new(path);
    let extension = name.extension().map_or(String::new(), |end| format!(".{}", end.to_string_lossy()));
    let stem = path.strip_suffix(extension.as_str()).unwrap_or(path);
    format!(
        "{file}: the sink of `{stream}` writes to `{path}`, but several processes own the partitions, and each would write to \
         the file: write {PARTITION_MARK} in the path, as in file.uri='{stem}-{PARTITION_MARK}{extension}', and each partition \
         has a file"
    )
}
