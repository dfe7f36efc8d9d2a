//! Changes of documents, kept in their order so that clients can follow them: the history behind change streams.
//!
//! The owner of a partition appends what each record changed to a log of its own, the *change log*, before anybody sees the change.
//! It need not be durable: a restart applies the records after the last checkpoint again and appends what is missing, and a
//! checkpoint counts only when the change log is on the disk up to it. Changes are kept from the first
//! change stream on. `docs/rfcs/0010-change-streams.md` has the reasons.

pub mod codec;
mod position;
mod read;

pub use codec::{ChangeEvent, ChangeGroup};
pub use position::{ChangePosition, PositionKind};
pub use read::{
    ChangeCursor, ChangePayload, ChangesPart, PartitionChanges, READ_BYTES, ReadChanges, not_kept,
};

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_docs::{DocumentChange, Store};
use tidemill_log::disk::Disk;
use tidemill_log::{Durability, GroupLog, LocalLog, Log, LogEncryption, LogFile, LogOptions};
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};
use tokio::sync::watch;

use crate::app::settings::Settings;

/// Name of the directory in the data directory.
pub const CHANGES_DIR: &str = "changes";
/// Bytes of changes of one record of the change log; one change may exceed it.
const RECORD_BYTES: usize = 4 << 20;
/// Maximum size of a file. Where partitions move, the last file of each is uploaded with each checkpoint.
const SEGMENT_BYTES_MAX: u64 = 8 << 20;

/// The change log.
pub struct ChangeLog {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    encryption: Option<LogEncryption>,
    /// Logs of the partitions, each opened by the first change stream, or at the start if there was one; in a cluster with the replica.
    partitions: Vec<ArcSwapOption<PartitionChanges>>,
    opening: Mutex<()>,
    /// Per partition 1 + the offset of the last record whose changes are in the change log.
    written: Vec<AtomicU64>,
    /// Set when all partitions collect their changes.
    enabled: AtomicBool,
    published: watch::Sender<()>,
}

/// The encoded changes of a record of the log.
pub struct RecordChanges {
    offset: Offset,
    time: Timestamp,
    payloads: Vec<Bytes>,
}

/// Group of the records of several partitions to which a record belongs.
pub struct RecordGroup {
    /// The records.
    pub group: ChangeGroup,
    /// Of an ordered insert the places of its documents.
    pub places: Option<Vec<u32>>,
}

impl ChangeLog {
    /// Creates the change log of a data directory. It touches no file.
    pub fn new(disk: Arc<dyn Disk>, data_dir: &Path, partitions: u32, settings: &Settings) -> Self {
        Self {
            dir: data_dir.join(CHANGES_DIR),
            disk,
            segment_bytes: settings.segment_bytes.min(SEGMENT_BYTES_MAX),
            encryption: settings.encryption.of_log("tidemill changes"),
            partitions: (0..partitions).map(|_| ArcSwapOption::empty()).collect(),
            opening: Mutex::new(()),
            written: (0..partitions).map(|_| AtomicU64::new(0)).collect(),
            enabled: AtomicBool::new(false),
            published: watch::Sender::new(()),
        }
    }

    /// Opens the files, if a change stream has made some before.
    ///
    /// Errors: those of [`LocalLog::open_on`].
    pub fn open_existing(&self) -> Result<Vec<String>> {
        match self.disk.list(&self.dir) {
            Ok(_) => self.open(),
            Err(_) => Ok(Vec::new()),
        }
    }

    /// Opens the files of all partitions, and creates them if they do not exist. Returns what opening them repaired.
    ///
    /// Errors: those of [`LocalLog::open_on`].
    pub fn open(&self) -> Result<Vec<String>> {
        let ids = (0..self.partitions.len() as u32).map(PartitionId);
        ids.filter_map(|id| self.open_partition(id).transpose()).collect()
    }

    /// Opens the files of a partition, and creates them if they do not exist. Returns what opening them repaired.
    ///
    /// Errors: those of [`LocalLog::open_on`].
    pub fn open_partition(&self, id: PartitionId) -> Result<Option<String>> {
        let _opening = self.opening.lock();
        let place = self.place(id)?;
        if place.load().is_some() {
            return Ok(None);
        }
        if self.dir == Path::new(CHANGES_DIR) {
            return Err(Error::invalid("an engine without a data directory keeps no changes"));
        }
        // what is lost at the end is written again, and what is damaged before it only shortens the history
        let options = LogOptions {
            only: Some(id),
            segment_bytes: self.segment_bytes,
            repair: true,
            encryption: self.encryption.clone(),
            ..LogOptions::new(self.partitions.len() as u32)
        };
        let (log, reports) = LocalLog::open_on(self.disk.clone(), &self.dir, options)?;
        let opened = PartitionChanges::new(log, id);
        let next = opened.last_source()?.map_or(0, |offset| offset.0 + 1);
        self.written[id.0 as usize].store(next, Ordering::Release);
        place.store(Some(Arc::new(opened)));
        Ok(reports.iter().find(|report| report.cut.is_some()).map(|report| format!("changes: {report}")))
    }

    /// Opens the files of a partition whose state, after the records below `next`, says that its changes are collected. The history begins
    /// there if there are no files.
    ///
    /// Errors: those of [`Self::open_partition`], and of [`Self::append`].
    pub fn continue_partition(
        &self,
        id: PartitionId,
        next: Offset,
        time: Timestamp,
    ) -> Result<Option<String>> {
        let warning = self.open_partition(id)?;
        if let Some(last) = next.0.checked_sub(1)
            && self.end(id) == Offset(0)
            && let Some(mark) = self.begin(id, Offset(last), time)
        {
            self.append(id, &mark)?;
        }
        Ok(warning)
    }

    /// Closes the files of a partition, whose state is given up. What was not written to the disk belongs to no checkpoint.
    pub fn close_partition(&self, id: PartitionId) {
        let _opening = self.opening.lock();
        if let Some(changes) = self.partitions.get(id.0 as usize).and_then(|place| place.swap(None)) {
            changes.close();
        }
    }

    fn place(&self, id: PartitionId) -> Result<&ArcSwapOption<PartitionChanges>> {
        let place = self.partitions.get(id.0 as usize);
        place.ok_or_else(|| Error::internal(format!("there is no partition {id}")))
    }

    /// Returns the changes of a partition, if they are open.
    pub fn of(&self, id: PartitionId) -> Option<Arc<PartitionChanges>> {
        self.partitions.get(id.0 as usize)?.load_full()
    }

    fn all_open(&self) -> impl Iterator<Item = Arc<PartitionChanges>> {
        self.partitions.iter().filter_map(ArcSwapOption::load_full)
    }

    /// Returns whether all partitions collect their changes.
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Acquire)
    }

    pub fn set_enabled(&self) {
        self.enabled.store(true, Ordering::Release);
    }

    /// Forgets records that the log does not have any more: those after it get their offsets.
    pub fn cut(&self, partition: PartitionId, log_end: Offset) {
        if let Some(written) = self.written.get(partition.0 as usize) {
            written.fetch_min(log_end.0, Ordering::AcqRel);
        }
    }

    /// Returns the changes that a record made in `store`, for [`Self::append`]; `None` if it made none or
    /// they are not collected.
    ///
    /// Errors: a document that is not valid BSON.
    pub fn encode(
        &self,
        partition: PartitionId,
        (offset, time): (Offset, Timestamp),
        group: Option<&RecordGroup>,
        store: &mut Store,
    ) -> Result<Option<RecordChanges>> {
        if !store.collects_changes() {
            return Ok(None);
        }
        let mut changes = store.take_changes();
        if let Some(places) = group.and_then(|group| group.places.as_ref()) {
            changes.iter_mut().zip(places).for_each(|(change, place)| change.place = *place);
        }
        if changes.is_empty() || self.is_written(partition, offset) {
            return Ok(None);
        }
        let images = |change: &DocumentChange| {
            store.collection(&change.collection).is_some_and(|collection| collection.spec().change_images)
        };
        let payloads =
            codec::encode((offset, time), group.map(|group| &group.group), &changes, images, RECORD_BYTES)?;
        Ok(Some(RecordChanges { offset, time, payloads }))
    }

    /// Returns a mark without changes, with which the history of a partition begins.
    pub fn begin(&self, partition: PartitionId, offset: Offset, time: Timestamp) -> Option<RecordChanges> {
        let mark = || RecordChanges { offset, time, payloads: vec![codec::mark(offset, time)] };
        (!self.is_written(partition, offset)).then(mark)
    }

    fn is_written(&self, partition: PartitionId, offset: Offset) -> bool {
        self.written.get(partition.0 as usize).is_some_and(|next| offset.0 < next.load(Ordering::Acquire))
    }

    /// Appends the changes of a record.
    ///
    /// Errors: `Unavailable` and `LimitReached` while the disk does not take them; nothing is appended then.
    pub fn append(&self, partition: PartitionId, changes: &RecordChanges) -> Result<()> {
        let open = self.of(partition).ok_or_else(|| Error::unavailable("the change log is not open"))?;
        open.log.write_owned(partition, changes.time, changes.payloads.clone())?;
        if let Some(written) = self.written.get(partition.0 as usize) {
            written.store(changes.offset.0 + 1, Ordering::Release);
        }
        Ok(())
    }

    /// Returns the offset after the last change of a partition.
    pub fn end(&self, partition: PartitionId) -> Offset {
        let place = self.partitions.get(partition.0 as usize);
        place.and_then(|place| place.load().as_ref().map(|open| open.end())).unwrap_or_default()
    }

    /// Makes everything appended so far durable.
    ///
    /// Errors: `Unavailable` when the disk fails.
    pub fn sync(&self, partition: PartitionId) -> Result<()> {
        let Some(open) = self.of(partition) else { return Ok(()) };
        match open.end().0.checked_sub(1) {
            Some(last) => open.log.sync(partition, Offset(last), Durability::Fsync),
            None => Ok(()),
        }
    }

    /// Returns the files of a copy, up to the last change.
    ///
    /// Errors: those of [`Log::files`].
    pub fn files(&self) -> Result<Vec<LogFile>> {
        let mut files: Vec<LogFile> = Vec::new();
        for open in self.all_open() {
            let of_partition = open.log.files(&[])?;
            // each has the file that belongs to all
            let new =
                of_partition.into_iter().filter(|file| files.iter().all(|known| known.name != file.name));
            let new: Vec<LogFile> = new.collect();
            files.extend(new);
        }
        Ok(files)
    }

    /// Drops the oldest changes of partitions that have more than `bytes_max` bytes of them.
    ///
    /// Errors: `Unavailable` when files cannot be removed.
    pub fn truncate(&self, bytes_max: u64) -> Result<()> {
        self.all_open().try_for_each(|open| open.truncate(bytes_max))
    }

    /// Tells followers of changes, and readers at the end of a capped collection, that there may be something new.
    pub fn notify(&self) {
        if self.published.receiver_count() > 0 {
            self.published.send_replace(());
        }
    }

    /// Returns a receiver that hears of new changes.
    pub fn subscribe(&self) -> watch::Receiver<()> {
        self.published.subscribe()
    }

    /// Closes the files.
    pub fn close(&self) {
        // what is not on the disk is written again
        self.all_open().for_each(|open| open.close());
    }
}
