//! Records that stopped their partition: when it is opened again, rules and queries do not see them.
//!
//! A record that panics while it is applied, or that is not applied within the setting `record_timeout`, is noted in a file of
//! the directory `set_aside`, on the disk before anything else happens. As the note is there from then on, each replay decides
//! alike: the events of the record are stored, but nothing follows from them, and a record without events changes nothing.
//! The first replay adds to the note what is needed to run the record again.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tidemill_log::disk::Disk;
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use crate::entry;
use crate::entry::{Entry, EntryEncoder, Streams};
use crate::process::disk_files;
use crate::process::json_file::{read_json, write_json};

/// Directory of the notes, below the data directory.
pub const SET_ASIDE_DIR: &str = "set_aside";

/// A record that rules and queries do not see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetAsideRecord {
    /// Partition of the record.
    pub partition: u32,
    /// Its offset in the log of the partition.
    pub offset: u64,
    /// Why it could not be applied.
    pub reason: String,
    /// When that was found, as RFC 3339 has it.
    pub time: String,
    /// Content of the record, for people; empty until a start has replayed it.
    #[serde(default)]
    pub content: String,
    /// True if the record was run again or forgotten. The note stays as long as a replay may come to the
    /// record.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_done: bool,
    /// The entry that runs it again, in base64; nothing until a start has replayed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    entry: Option<String>,
    /// True if its partition was not opened since it was noted, so that it is not set aside yet.
    #[serde(skip)]
    is_new: bool,
}

impl SetAsideRecord {
    /// Returns the name by which commands take the record: `PARTITION/OFFSET`.
    pub fn id(&self) -> String {
        format!("{}/{}", self.partition, self.offset)
    }

    /// Returns the problem that the record is, as a sentence.
    pub fn problem(&self) -> String {
        let Self { partition, offset, reason, .. } = self;
        let state = match self.entry.is_some() {
            true => "is set aside: rules and queries do not see it",
            false => {
                "will be set aside when its partition is opened again: rules and queries will not see it"
            }
        };
        format!(
            "record {offset} of partition {partition} {state}, because {reason}. `tidemill errors rerun --id {}` runs it again, \
             `tidemill errors forget --id {}` forgets it",
            self.id(),
            self.id()
        )
    }

    fn not_replayed(&self) -> Error {
        let message = format!(
            "record {} is not set aside before its partition is opened again: try again in a moment",
            self.id()
        );
        Error::conflict(message)
    }

    fn key(&self) -> (PartitionId, Offset) {
        (PartitionId(self.partition), Offset(self.offset))
    }

    /// Decodes the entry that runs the record again.
    ///
    /// Errors: `Conflict` when no start has replayed it yet; those of [`entry::decode`], such as for a stream that the app does
    /// not declare any more.
    pub fn entry(&self, streams: &Streams) -> Result<Entry> {
        let Some(text) = &self.entry else {
            return Err(self.not_replayed());
        };
        let bytes = STANDARD.decode(text);
        let bytes = bytes.map_err(|e| {
            Error::corrupt(format!("the note on record {} cannot be read", self.id())).with_source(e)
        })?;
        entry::decode(&Bytes::from(bytes), streams).map_err(|e| e.context(format!("record {}", self.id())))
    }
}

/// Source of the error of a start that has noted a record: the next attempt sets it aside.
#[derive(Debug)]
pub struct RecordNoted;

impl fmt::Display for RecordNoted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the next attempt to start sets the record aside")
    }
}

impl std::error::Error for RecordNoted {}

/// Returns the error of a start during which a record was noted.
pub fn noted(partition: PartitionId, offset: Offset) -> Error {
    Error::internal(format!(
        "partition {partition}: record {offset} could not be applied again; the next start sets it aside"
    ))
    .with_source(RecordNoted)
}

/// The notes of a data directory.
pub struct SetAsideRecords {
    disk: Arc<dyn Disk>,
    /// Directory of the notes; `None` for an engine in memory, which has none.
    dir: Option<PathBuf>,
    notes: Mutex<BTreeMap<(PartitionId, Offset), SetAsideRecord>>,
    followed: AtomicUsize,
}

impl SetAsideRecords {
    /// Creates the notes of an engine in memory.
    pub fn in_memory(disk: Arc<dyn Disk>) -> Self {
        Self { disk, dir: None, notes: Mutex::default(), followed: AtomicUsize::new(0) }
    }

    /// Reads the notes of the data directory `data`.
    ///
    /// Errors: `Corrupt` naming a damaged note; `Unavailable`.
    pub fn open(disk: Arc<dyn Disk>, data: &Path) -> Result<Self> {
        let dir = data.join(SET_ASIDE_DIR);
        let mut notes = BTreeMap::new();
        for name in disk_files::list(&*disk, &dir)?.iter().filter(|name| name.ends_with(".json")) {
            if let Some(note) = read_json::<SetAsideRecord>(&*disk, &dir.join(name))? {
                notes.insert(note.key(), note);
            }
        }
        Ok(Self { disk, dir: Some(dir), notes: Mutex::new(notes), followed: AtomicUsize::new(0) })
    }

    /// Returns all records that are set aside, or will be when their partition is opened again.
    pub fn all(&self) -> Vec<SetAsideRecord> {
        self.notes.lock().values().filter(|note| !note.is_done).cloned().collect()
    }

    /// Returns the record with the id `PARTITION/OFFSET`.
    ///
    /// Errors: `NotFound`.
    pub fn find(&self, id: &str) -> Result<SetAsideRecord> {
        let found = self.notes.lock().values().find(|note| !note.is_done && note.id() == id).cloned();
        found.ok_or_else(|| {
            Error::not_found(format!(
                "record {id} is not set aside; `tidemill errors records` lists those that are"
            ))
        })
    }

    /// Says that a partition is opened again: what was noted of its records is followed from now on.
    pub fn follow_notes(&self, partition: PartitionId) {
        let mut notes = self.notes.lock();
        for note in notes.values_mut().filter(|note| note.is_new && note.partition == partition.0) {
            note.is_new = false;
            self.followed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the number of notes that [`Self::follow_notes`] has put into force.
    pub fn followed(&self) -> usize {
        self.followed.load(Ordering::Relaxed)
    }

    /// Returns whether a record was noted before its partition was opened.
    pub fn contains(&self, partition: PartitionId, offset: Offset) -> bool {
        self.notes.lock().get(&(partition, offset)).is_some_and(|note| !note.is_new)
    }

    /// Returns whether a record was noted since its partition was opened, so that it is not set aside yet.
    pub fn is_new(&self, partition: PartitionId, offset: Offset) -> bool {
        self.notes.lock().get(&(partition, offset)).is_some_and(|note| note.is_new)
    }

    /// Notes that a record cannot be applied. It is on the disk when this returns.
    ///
    /// Errors: `Unavailable`; an engine in memory sets none aside.
    pub fn note(&self, at: (PartitionId, Offset), reason: &str, now: Timestamp) -> Result<SetAsideRecord> {
        let note = SetAsideRecord {
            partition: at.0.0,
            offset: at.1.0,
            reason: reason.to_owned(),
            time: now.to_string(),
            content: String::new(),
            is_done: false,
            entry: None,
            is_new: true,
        };
        self.write(&note)?;
        self.notes.lock().insert(at, note.clone());
        Ok(note)
    }

    /// Adds what runs a record again, unless an earlier replay has.
    ///
    /// Errors: `Unavailable`.
    pub fn keep_entry(&self, at: (PartitionId, Offset), entry: &Entry) -> Result<()> {
        let note = self.notes.lock().get(&at).filter(|note| note.entry.is_none()).cloned();
        let Some(mut note) = note else { return Ok(()) };
        note.content = describe(entry);
        note.entry = Some(STANDARD.encode(EntryEncoder::default().encode(entry)?));
        self.write(&note)?;
        self.notes.lock().insert(at, note);
        Ok(())
    }

    /// Takes a record off the list. What was set aside stays so: a replay that comes to it again decides alike.
    ///
    /// Errors: `Conflict` when no start has replayed it yet; `Unavailable`.
    pub fn forget(&self, note: &SetAsideRecord) -> Result<()> {
        if note.entry.is_none() {
            return Err(note.not_replayed());
        }
        let note = SetAsideRecord { is_done: true, entry: Some(String::new()), ..note.clone() };
        self.write(&note)?;
        self.notes.lock().insert(note.key(), note);
        Ok(())
    }

    /// Removes the notes that were taken off the list and whose records the log has no more, as it begins at `start`.
    ///
    /// Errors: `Unavailable`.
    pub fn remove_old(&self, start: impl Fn(PartitionId) -> Offset) -> Result<()> {
        let mut notes = self.notes.lock();
        let old: Vec<_> = notes
            .values()
            .filter(|note| note.is_done && Offset(note.offset) < start(PartitionId(note.partition)))
            .cloned()
            .collect();
        for note in old {
            if let Some(path) = self.path(&note) {
                self.disk.remove(&path).map_err(|e| {
                    Error::unavailable(format!("{}: cannot be removed", path.display())).with_source(e)
                })?;
            }
            notes.remove(&note.key());
        }
        Ok(())
    }

    fn path(&self, note: &SetAsideRecord) -> Option<PathBuf> {
        let dir = self.dir.as_ref()?;
        Some(dir.join(format!("p{:05}-{:020}.json", note.partition, note.offset)))
    }

    fn write(&self, note: &SetAsideRecord) -> Result<()> {
        let (Some(dir), Some(path)) = (&self.dir, self.path(note)) else {
            return Err(Error::unavailable("an engine in memory sets no record aside"));
        };
        let created = self.disk.create_dir(dir);
        let created = created.and_then(|()| self.disk.sync_dir(dir.parent().unwrap_or(dir)));
        created.map_err(|e| {
            Error::unavailable(format!("{}: cannot be created", dir.display())).with_source(e)
        })?;
        write_json(&*self.disk, &path, note)
    }
}

/// Returns what an entry is, for people.
fn describe(entry: &Entry) -> String {
    match entry {
        Entry::Events(events) | Entry::Rerun(events) => {
            let parts = events.parts.iter().map(|(stream, batch)| match batch.num_rows() {
                1 => format!("1 event of {}", stream.name),
                n => format!("{n} events of {}", stream.name),
            });
            parts.collect::<Vec<_>>().join(", ")
        }
        Entry::Command(_) | Entry::SessionCommand { .. } => "a command on documents".into(),
        Entry::LoadDocuments { collection, .. } => format!("documents for {collection}"),
        Entry::Tick { .. } => "a timer".into(),
        Entry::OnDemand { text, .. } => format!("the query {text}"),
        Entry::CollectChanges => "the begin of change streams".into(),
        Entry::Transaction(_) | Entry::OrderTransaction(_) => "a transaction".into(),
        Entry::Redeliver { ids } => format!("{} events for their sinks", ids.len()),
        Entry::ClaimSources { .. } => "a claim of the sources".into(),
        Entry::Delivered { sink, .. } => format!("the progress of the sink {sink}"),
    }
}
