//! The log in a local directory.

use std::any::Any;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use crate::api::{GroupLog, Log};
use crate::disks::disk::{Disk, OsDisk, read_full, write_all};
use crate::disks::failure::IoResultExt;
use crate::flusher::Flusher;
use crate::options::LogOptions;
use crate::partition::PartitionLog;
use crate::record::{AppendResult, Durability, NewRecord, Record};
use crate::segments::copy::{LogFile, META_FILE};
use crate::segments::encoder::meta_file;
use crate::segments::recover::{RecoveryReport, recover};
use crate::subscription::{LocalSubscription, ReadRecords, Subscription};
use crate::ticket::{SyncRecords, Ticket};

/// End of the name of a file that is locked while a log, or one partition of it, is open.
const LOCK_END: &str = ".lock";
const META_FIRST_LINE: &str = "tidemill-log 1";
/// Upper bound of the size of the metadata file.
const META_BYTES_MAX: usize = 4096;

/// A log of segment files in one directory, used by one process at a time.
///
/// Shape: one directory per partition, `p00000`, `p00001`, …, with segments named by their first offset.
/// Bounds: see [`LogOptions`]; opening needs no more memory than running.
/// Dropping it closes it and ignores errors; use [`Log::close`] to see them.
pub struct LocalLog {
    open: OpenPartitions,
    /// The same, as tickets see them.
    synced: Arc<dyn SyncRecords>,
    flusher: Flusher,
    /// Lock on the directory, held until the log is closed.
    lock: Mutex<Option<Box<dyn Any + Send + Sync>>>,
}

impl LocalLog {
    /// Opens the log in `dir`, or creates one there. Returns one recovery report per partition.
    ///
    /// Errors: `Conflict` while another process has it open, `Corrupt` for damage (see
    /// [`LogOptions::repair`]), `Invalid` if the log was created with a different number of partitions,
    /// `Unavailable` when the disk fails.
    pub fn open(dir: impl AsRef<Path>, options: LogOptions) -> Result<(Self, Vec<RecoveryReport>)> {
        Self::open_on(Arc::new(OsDisk), dir, options)
    }

    /// Like [`LocalLog::open`], on the given disk.
    pub fn open_on(
        disk: Arc<dyn Disk>,
        dir: impl AsRef<Path>,
        options: LogOptions,
    ) -> Result<(Self, Vec<RecoveryReport>)> {
        let dir = dir.as_ref();
        options.check()?;
        disk.create_dir(dir).during("create", dir)?;
        let opened = match options.only {
            None => 0..options.partitions,
            Some(id) => id.0..id.0 + 1,
        };
        let lock = lock(&*disk, dir, options.only)?;
        check_meta(&*disk, dir, &options, opened.clone())?;
        let mut partitions = Vec::new();
        let mut reports = Vec::new();
        for p in opened.clone() {
            let (writer, report) = recover(&disk, partition_dir(dir, p), p, &options)?;
            partitions.push(PartitionLog::new(writer, &options)?);
            reports.push(report);
        }
        let open =
            OpenPartitions { logs: partitions.into(), first: opened.start, partitions: options.partitions };
        let flusher = Flusher::start(Arc::clone(&open.logs), options.background_sync_ms)?;
        let synced = Arc::new(open.clone());
        Ok((Self { open, synced, flusher, lock: Mutex::new(Some(lock)) }, reports))
    }

    fn partition(&self, id: PartitionId) -> Result<&PartitionLog> {
        self.open.get(id)
    }
}

/// The partitions that are open. Tickets and subscriptions, which may outlive the log, have a clone.
#[derive(Clone)]
struct OpenPartitions {
    logs: Arc<[PartitionLog]>,
    /// Id of the first of them.
    first: u32,
    /// Number of partitions of the log.
    partitions: u32,
}

impl OpenPartitions {
    fn get(&self, id: PartitionId) -> Result<&PartitionLog> {
        let at = id.0.checked_sub(self.first);
        at.and_then(|at| self.logs.get(at as usize)).ok_or_else(|| match id.0 < self.partitions {
            true => Error::invalid(format!("the log partition {id} is not open")),
            false => no_partition(id, self.partitions),
        })
    }
}

impl SyncRecords for OpenPartitions {
    fn sync_records(&self, id: PartitionId, upto: Offset, durability: Durability) -> Result<()> {
        self.get(id)?.sync(upto.0, durability)
    }
}

impl ReadRecords for OpenPartitions {
    fn read_records(&self, id: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>> {
        self.get(id)?.read(from.0, max_bytes)
    }
}

pub(crate) fn no_partition(id: PartitionId, partitions: u32) -> Error {
    Error::invalid(format!("there is no log partition {id}: expected 0 to {}", partitions.saturating_sub(1)))
}

fn partition_name(partition: u32) -> String {
    format!("p{partition:05}")
}

fn partition_dir(dir: &Path, partition: u32) -> PathBuf {
    dir.join(partition_name(partition))
}

fn lock(disk: &dyn Disk, dir: &Path, only: Option<PartitionId>) -> Result<Box<dyn Any + Send + Sync>> {
    let name = only.map_or_else(|| "log".to_owned(), |id| partition_name(id.0));
    let path = dir.join(name + LOCK_END);
    disk.lock(&path).map_err(|e| match e.kind() {
        std::io::ErrorKind::WouldBlock => Error::conflict(format!(
            "the log in {} is open in another process (it holds {}): stop that process or use another directory",
            dir.display(),
            path.file_name().unwrap_or_default().display()
        )),
        _ => crate::disks::failure::IoFailure::new("lock", &path, &e).error(),
    })
}

/// Checks the number of partitions against the metadata file, or writes that file. It is written when the log
/// is created, before the first partition has files.
fn check_meta(disk: &dyn Disk, dir: &Path, options: &LogOptions, opened: Range<u32>) -> Result<()> {
    let partitions = options.partitions;
    let names = disk.list(dir).during("list", dir)?;
    let path = dir.join(META_FILE);
    if names.iter().any(|n| n == META_FILE) {
        let found = read_meta(disk, &path)?;
        if found != partitions {
            return Err(Error::invalid(format!(
                "the log in {} has {found} partitions, {partitions} are asked for: open it with {found}",
                dir.display()
            )));
        }
    } else {
        // directories without files are left when the files of a log are removed one by one
        let has_files = |name: &String| {
            name.starts_with('p') && disk.list(&dir.join(name)).is_ok_and(|files| !files.is_empty())
        };
        // the files of a partition that comes and goes may be copies from elsewhere
        if options.only.is_none() && names.iter().any(has_files) {
            return Err(Error::corrupt(format!(
                "{} is missing beside the partitions: restore it from a backup, or write it again as the two lines \
                 `{META_FIRST_LINE}` and `partitions N`",
                path.display()
            )));
        }
        write_meta(disk, dir, partitions)?;
    }
    for p in opened {
        let path = partition_dir(dir, p);
        disk.create_dir(&path).during("create", &path)?;
    }
    disk.sync_dir(dir).during("fsync of", dir)
}

pub(crate) fn read_meta(disk: &dyn Disk, path: &Path) -> Result<u32> {
    let mut buf = vec![0; META_BYTES_MAX];
    let file = disk.open(path).during("open", path)?;
    let n = read_full(&*file, 0, &mut buf).during("read", path)?;
    let text = String::from_utf8_lossy(&buf[..n]);
    let mut lines = text.lines();
    let first = lines.next() == Some(META_FIRST_LINE);
    let count = lines.next().and_then(|l| l.strip_prefix("partitions ")?.trim().parse().ok());
    count.filter(|_| first).ok_or_else(|| {
        Error::corrupt(format!(
            "{} is not what this release writes: expected the lines `{META_FIRST_LINE}` and `partitions N`",
            path.display()
        ))
    })
}

fn write_meta(disk: &dyn Disk, dir: &Path, partitions: u32) -> Result<()> {
    let (path, unfinished) = (dir.join(META_FILE), dir.join("log.meta.tmp"));
    let text = meta_text(partitions);
    disk.create(&unfinished)
        .and_then(|file| {
            write_all(&*file, 0, &mut [std::io::IoSlice::new(text.as_bytes())])?;
            file.sync()
        })
        .and_then(|()| disk.rename(&unfinished, &path))
        .and_then(|()| disk.sync_dir(dir))
        .and_then(|()| match dir.parent() {
            // The directory itself may be new, so its parent's entries must be durable, too.
            Some(parent) if !parent.as_os_str().is_empty() => disk.sync_dir(parent),
            _ => Ok(()),
        })
        .during("write", &path)
}

/// Returns the content of the metadata file.
pub(crate) fn meta_text(partitions: u32) -> String {
    format!("{META_FIRST_LINE}\npartitions {partitions}\n")
}

impl Log for LocalLog {
    fn partitions(&self) -> u32 {
        self.open.partitions
    }

    fn append(&self, partition: PartitionId, record: NewRecord, durability: Durability) -> Result<Ticket> {
        let (receipt, much) = self.partition(partition)?.append(record)?;
        self.flusher.notify(much);
        Ok(Ticket::assigned_by(Arc::clone(&self.synced), partition, receipt, durability))
    }

    fn subscribe(&self, partition: PartitionId, from: Offset) -> Result<Box<dyn Subscription>> {
        let hand_over = self.partition(partition)?.subscribe(partition, from.0)?;
        let log = self.open.clone();
        Ok(Box::new(LocalSubscription { log, partition, next: Mutex::new(from.0), hand_over }))
    }

    fn sync(&self, partition: PartitionId, upto: Offset, durability: Durability) -> Result<()> {
        self.partition(partition)?.sync(upto.0, durability)
    }

    fn read(&self, partition: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>> {
        self.partition(partition)?.read(from.0, max_bytes)
    }

    fn start(&self, partition: PartitionId) -> Offset {
        Offset(self.partition(partition).map_or(0, PartitionLog::start))
    }

    fn end(&self, partition: PartitionId) -> Offset {
        Offset(self.partition(partition).map_or(0, PartitionLog::end))
    }

    fn durable(&self, partition: PartitionId) -> Offset {
        Offset(self.partition(partition).map_or(0, PartitionLog::durable))
    }

    fn truncate(&self, partition: PartitionId, upto: Offset) -> Result<()> {
        self.partition(partition)?.truncate(upto.0)
    }

    fn bytes(&self, partition: PartitionId) -> u64 {
        self.partition(partition).map_or(0, PartitionLog::bytes)
    }

    fn files(&self, ends: &[Offset]) -> Result<Vec<LogFile>> {
        let mut files = vec![meta_file(self.partitions())];
        for (id, partition) in (self.open.first..).zip(self.open.logs.iter()) {
            let end = ends.get(id as usize).copied().unwrap_or_else(|| Offset(partition.end()));
            files.extend(partition.files(&partition_name(id), end.0)?);
        }
        Ok(files)
    }

    fn flush(&self) -> Result<()> {
        self.open.logs.iter().try_for_each(PartitionLog::flush)
    }

    fn close(&self) -> Result<()> {
        self.flusher.stop();
        // Closes every partition before it returns the first failure.
        let closed: Vec<Result<()>> = self.open.logs.iter().map(PartitionLog::close).collect();
        // a closed log writes nothing, so another one may open the directory
        *self.lock.lock() = None;
        closed.into_iter().collect()
    }
}

impl GroupLog for LocalLog {
    fn write(&self, partition: PartitionId, time: Timestamp, payloads: &[&[u8]]) -> Result<AppendResult> {
        let (appended, much) = self.partition(partition)?.write(time, payloads)?;
        self.flusher.notify(much);
        Ok(appended)
    }

    fn write_owned(
        &self,
        partition: PartitionId,
        time: Timestamp,
        payloads: Vec<Bytes>,
    ) -> Result<AppendResult> {
        let (appended, much) = self.partition(partition)?.write_owned(time, payloads)?;
        self.flusher.notify(much);
        Ok(appended)
    }
}

impl Drop for LocalLog {
    fn drop(&mut self) {
        // A caller that needs the result calls `close`.
        let _ = self.close();
    }
}
