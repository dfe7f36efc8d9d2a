//! Changes of documents, kept in their order so that clients can follow them: the history behind change streams.
//!
//! The owner of a partition appends what each record changed to a log of its own, the *change log*, before anybody sees the change.
//! It need not be durable: a restart applies the records after the last checkpoint again and appends what is missing, and a
//! checkpoint counts only when the change log is on the disk up to it. Changes are kept from the first
//! change stream on. `docs/rfcs/0010-change-streams.md` has the reasons.

pub mod codec;
mod position;

pub use codec::{ChangeEvent, ChangeGroup};
pub use position::ChangePosition;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_docs::{DocumentChange, Store};
use tidemill_log::disk::Disk;
use tidemill_log::{Durability, GroupLog, LocalLog, Log, LogEncryption, LogFile, LogOptions, Record};
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};
use tokio::sync::watch;

use crate::app::settings::Settings;

/// Name of the directory in the data directory.
pub const CHANGES_DIR: &str = "changes";
/// Bytes of changes of one record of the change log; one change may exceed it.
const RECORD_BYTES: usize = 4 << 20;

/// The change log.
pub struct ChangeLog {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    segment_bytes: u64,
    encryption: Option<LogEncryption>,
    /// Opened by the first change stream, or at the start if there was one.
    log: OnceLock<LocalLog>,
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
            segment_bytes: settings.segment_bytes,
            encryption: settings.encryption.of_log("tidemill changes"),
            log: OnceLock::new(),
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

    /// Opens the files, and creates them if they do not exist. Returns what opening them repaired.
    ///
    /// Errors: those of [`LocalLog::open_on`].
    pub fn open(&self) -> Result<Vec<String>> {
        let _opening = self.opening.lock();
        if self.log.get().is_some() {
            return Ok(Vec::new());
        }
        if self.dir == Path::new(CHANGES_DIR) {
            return Err(Error::invalid("an engine without a data directory keeps no changes"));
        }
        // what is lost at the end is written again, and what is damaged before it only shortens the history
        let options = LogOptions {
            segment_bytes: self.segment_bytes,
            repair: true,
            encryption: self.encryption.clone(),
            ..LogOptions::new(self.written.len() as u32)
        };
        let (log, reports) = LocalLog::open_on(self.disk.clone(), &self.dir, options)?;
        for (partition, written) in self.written.iter().enumerate() {
            let last = last_record(&log, PartitionId(partition as u32))?;
            let next =
                last.map_or(Ok(0), |record| codec::source(&record.payload).map(|(offset, _)| offset.0 + 1))?;
            written.store(next, Ordering::Release);
        }
        let lost = reports.iter().filter(|report| report.cut.is_some()).map(|r| format!("changes: {r}"));
        let warnings = lost.collect();
        self.log.get_or_init(|| log);
        Ok(warnings)
    }

    pub(crate) fn log(&self) -> Result<&LocalLog> {
        self.log.get().ok_or_else(|| Error::internal("the change log is not open"))
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
        self.log()?.write_owned(partition, changes.time, changes.payloads.clone())?;
        if let Some(written) = self.written.get(partition.0 as usize) {
            written.store(changes.offset.0 + 1, Ordering::Release);
        }
        Ok(())
    }

    /// Returns the offset after the last change of a partition.
    pub fn end(&self, partition: PartitionId) -> Offset {
        self.log.get().map_or(Offset(0), |log| log.end(partition))
    }

    /// Makes everything appended so far durable.
    ///
    /// Errors: `Unavailable` when the disk fails.
    pub fn sync(&self, partition: PartitionId) -> Result<()> {
        let Some(log) = self.log.get() else { return Ok(()) };
        match log.end(partition).0.checked_sub(1) {
            Some(last) => log.sync(partition, Offset(last), Durability::Fsync),
            None => Ok(()),
        }
    }

    /// Returns the files of a copy, up to the last change.
    ///
    /// Errors: those of [`Log::files`].
    pub fn files(&self) -> Result<Vec<LogFile>> {
        let Some(log) = self.log.get() else { return Ok(Vec::new()) };
        let ends: Vec<Offset> = (0..log.partitions()).map(|p| log.end(PartitionId(p))).collect();
        log.files(&ends)
    }

    /// Drops the oldest changes of partitions that have more than `bytes_max` bytes of them.
    ///
    /// Errors: `Unavailable` when files cannot be removed.
    pub fn truncate(&self, bytes_max: u64) -> Result<()> {
        let Some(log) = self.log.get() else { return Ok(()) };
        for partition in (0..log.partitions()).map(PartitionId) {
            let bytes = log.bytes(partition);
            if bytes > bytes_max {
                let (start, end) = (log.start(partition).0, log.end(partition).0);
                // records are about equally large; whole segments go only, so rather too few than too many
                let surplus = (end - start) as f64 * ((bytes - bytes_max) as f64 / bytes as f64);
                log.truncate(partition, Offset(start + surplus as u64))?;
            }
        }
        Ok(())
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
        if let Some(log) = self.log.get() {
            // what is not on the disk is written again
            let _ = log.close();
        }
    }
}

/// Returns the last record of a partition.
fn last_record(log: &LocalLog, partition: PartitionId) -> Result<Option<Record>> {
    match log.end(partition).0.checked_sub(1) {
        Some(last) if Offset(last) >= log.start(partition) => {
            Ok(log.read(partition, Offset(last), 1)?.into_iter().next())
        }
        _ => Ok(None),
    }
}
