//! Commits: put the next log entry if it is absent, and determine the outcome reliably.
//!
//! An entry carries the files, the offsets they bring the table to (`log/<p>`) and the epoch of the
//! committing owner (`owner/<p>`). It is put under the next version. When that version exists, the existing
//! entry is read: it may be this commit, whose response was lost (its `txnId` matches); otherwise it is
//! applied, this commit is checked again against the resulting state, and put under the following version.
//! After a failure the same entry is put again, under the first free version, so it is committed once however
//! often it was sent.
//!
//! State: O(partitions) for the conflict check, plus the list of live files for the table's readers.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use arrow_schema::SchemaRef;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt, PutMode, PutPayload};
use tidemill_types::{Error, Offset, PartitionId, Result};

use super::action::{Entry, Metadata};
use super::entry_path;
use super::replay::{data_path, read_entry};
use crate::error::{is_transient, store_error};
use crate::owner_epochs::OwnerEpochs;
use crate::stores::location::Location;
use crate::stores::retry::{Retry, pause};
use crate::tablets::tablet::Tablet;

/// Number of concurrent commits that may precede ours in one attempt; beyond it, a later flush retries.
const CONFLICTS_MAX: u32 = 1_000;

/// Application id of the number of rows that have left the table.
pub(crate) const ROWS_REMOVED: &str = "rows/removed";

/// Prefix of the application id of a partition's owner.
const OWNER_PREFIX: &str = "owner/";

/// Returns the application id of a partition's last committed offset.
pub(crate) fn log_id(partition: PartitionId) -> String {
    format!("log/{partition}")
}

/// Returns the application id of the epoch of a partition's owner.
pub(crate) fn owner_id(partition: PartitionId) -> String {
    format!("{OWNER_PREFIX}{partition}")
}

/// Effect of a commit on a partition: its offset advances from `before` to `upto`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OffsetAdvance {
    pub partition: PartitionId,
    pub before: Option<Offset>,
    pub upto: Offset,
}

/// A file that a commit adds.
#[derive(Debug)]
pub(crate) struct NewFile {
    pub path: Path,
    pub size: u64,
    /// Content that is not in the store yet. That of a flush stays in memory until the commit is known to have
    /// happened, so that a file which was removed as an orphan in the meantime can be put again.
    pub bytes: Option<Bytes>,
}

/// A commit that is ready to be written, repeatedly if necessary.
#[derive(Debug, Default)]
pub(crate) struct PreparedCommit {
    /// `txnId` in its commitInfo.
    pub id: String,
    /// Encoded log entry.
    pub body: Bytes,
    /// Files that it adds.
    pub files: Vec<NewFile>,
    /// Names of the files that it removes; all of them must be live when it is committed.
    pub removes: Vec<String>,
    pub advances: Vec<OffsetAdvance>,
    /// Rows that it moves from the tail to files.
    pub rows: u64,
}

/// Writer of a table's Delta log. Used by one task at a time.
#[derive(Debug)]
pub(crate) struct DeltaWriter {
    pub table: String,
    pub location: Location,
    pub schema: SchemaRef,
    pub epochs: Arc<OwnerEpochs>,
    pub retry: Retry,
    /// Delta version of this state.
    pub version: u64,
    pub txns: HashMap<String, i64>,
    pub files: BTreeMap<String, Arc<Tablet>>,
    /// Removed files that may still be in the store, with the time of their removal in milliseconds.
    pub removed: BTreeMap<String, i64>,
    pub metadata: Metadata,
    /// Commit whose outcome is unknown, or that could not be written.
    pub prepared: Option<Arc<PreparedCommit>>,
    /// Reason why this writer must not commit any more.
    pub stale: Option<String>,
}

/// Result of reading the next version of the log.
enum NextEntry {
    Nothing,
    Ours,
    Theirs,
}

/// Returns the epoch of a later owner of a partition that this process owns, if the table has one.
pub(crate) fn later_owner(
    txns: &HashMap<String, i64>,
    epochs: &OwnerEpochs,
    partition: PartitionId,
) -> Option<i64> {
    let own = epochs.of(partition)?;
    txns.get(&owner_id(partition)).copied().filter(|owner| i128::from(*owner) > i128::from(own))
}

/// Returns the error for rows of a partition that this process does not own.
pub(crate) fn not_owned(partition: PartitionId) -> Error {
    Error::conflict(format!("partition {partition} does not belong to this node: its rows are not written"))
}

/// Checks whether a commit with `marks` by an owner may follow the state `txns`.
///
/// Errors: `Conflict` when a later owner took over or another writer committed rows of the partition;
/// `Internal` when the commit would decrease the partition's offset.
pub(crate) fn check_conflicts(
    table: &str,
    epochs: &OwnerEpochs,
    txns: &HashMap<String, i64>,
    marks: &[OffsetAdvance],
) -> Result<()> {
    for mark in marks {
        let p = mark.partition;
        let epoch = epochs.of(p).ok_or_else(|| not_owned(p))?;
        if let Some(owner) = later_owner(txns, epochs, p) {
            return Err(Error::conflict(format!(
                "table `{table}`: owner epoch {owner} took over partition {p}; this node's epoch is {epoch}: it must stop \
                 the partition"
            )));
        }
        let stored = committed(txns, p);
        if stored != mark.before {
            let shown = |o: Option<Offset>| o.map_or("nothing".to_owned(), |o| format!("offset {o}"));
            return Err(Error::conflict(format!(
                "table `{table}`: another writer committed {} of partition {p} where {} was expected: it must be stopped, \
                 or this node must open the table again",
                shown(stored),
                shown(mark.before)
            )));
        }
        if mark.before.is_some_and(|before| mark.upto <= before) {
            return Err(Error::internal(format!(
                "table `{table}`: a commit would take partition {p} back to offset {}",
                mark.upto
            )));
        }
    }
    Ok(())
}

/// Returns the last offset of partition `p` in the table.
pub(crate) fn committed(txns: &HashMap<String, i64>, p: PartitionId) -> Option<Offset> {
    txns.get(&log_id(p)).and_then(|v| u64::try_from(*v).ok()).map(Offset)
}

impl DeltaWriter {
    /// Returns the log directory.
    pub fn log(&self) -> Path {
        self.location.path("_delta_log")
    }

    /// Uploads the files of the prepared commit, writes its entry, and returns its version and the commit;
    /// `None` when no commit is prepared.
    ///
    /// Errors: `Conflict` when the commit is rejected: it is discarded, its files are removed. `Unavailable`
    /// when the store does not answer: it stays prepared. In either case the commits of other writers found
    /// on the way are applied.
    pub async fn finish(&mut self, resumed: bool) -> Result<Option<(u64, Arc<PreparedCommit>)>> {
        let Some(prepared) = self.prepared.clone() else { return Ok(None) };
        if resumed {
            // an attempt whose response was lost may have written the entry: its files must not be discarded then
            loop {
                match self.apply_next_entry().await? {
                    NextEntry::Ours => return Ok(Some((self.version, prepared))),
                    NextEntry::Theirs => {}
                    NextEntry::Nothing => break,
                }
            }
        }
        self.upload(&prepared, resumed).await?;
        let (mut delays, mut conflicts) = (self.retry.delays(), 0);
        loop {
            if let Err(e) = self.check_prepared(&prepared) {
                self.discard(&prepared).await;
                return Err(e);
            }
            let path = entry_path(&self.log(), self.version + 1);
            let payload = PutPayload::from(prepared.body.clone());
            let failed = match self.location.store.put_opts(&path, payload, PutMode::Create.into()).await {
                Ok(_) => {
                    let entry = Entry::parse(&prepared.body).map_err(Error::internal)?;
                    self.apply(entry)?;
                    self.prepared = None;
                    return Ok(Some((self.version, prepared)));
                }
                Err(StoreError::AlreadyExists { .. } | StoreError::Precondition { .. }) => None,
                Err(e) if is_transient(&e) => Some(e),
                Err(e) => return Err(self.not_written(e)),
            };
            // The log shows who wrote the entry, whatever the response was.
            match self.apply_next_entry().await? {
                NextEntry::Ours => return Ok(Some((self.version, prepared))),
                NextEntry::Theirs => {
                    conflicts += 1;
                    if conflicts > CONFLICTS_MAX {
                        return Err(Error::unavailable(format!(
                            "table `{}`: {CONFLICTS_MAX} commits of other writers came first; trying again later",
                            self.table
                        )));
                    }
                }
                NextEntry::Nothing => {
                    let Some(delay) = delays.next() else {
                        let contradiction = StoreError::Generic {
                            store: "Delta log",
                            source: format!(
                                "{} is said to exist and cannot be read",
                                self.location.display(&path)
                            )
                            .into(),
                        };
                        return Err(self.not_written(failed.unwrap_or(contradiction)));
                    };
                    pause(delay).await;
                }
            }
        }
    }

    /// Reads and applies all newer entries of other writers.
    pub async fn refresh(&mut self) -> Result<()> {
        while !matches!(self.apply_next_entry().await?, NextEntry::Nothing) {}
        Ok(())
    }

    /// Returns the number of rows that have left the table's files since it was created.
    pub fn removed_rows(&self) -> u64 {
        self.txns.get(ROWS_REMOVED).and_then(|rows| u64::try_from(*rows).ok()).unwrap_or(0)
    }

    fn not_written(&self, error: StoreError) -> Error {
        store_error(
            format!("table `{}`: Delta version {} cannot be written", self.table, self.version + 1),
            error,
        )
    }

    /// Uploads the files. Those of a resumed commit are looked up first, because most of them exist.
    async fn upload(&self, prepared: &PreparedCommit, resumed: bool) -> Result<()> {
        for NewFile { path, size, bytes } in &prepared.files {
            let Some(bytes) = bytes else { continue };
            if resumed
                && let Ok(meta) = self.location.store.head(path).await
                && meta.size == *size
            {
                continue;
            }
            self.location.put(self.retry, &self.table, path, bytes).await?;
        }
        Ok(())
    }

    fn check_prepared(&self, prepared: &PreparedCommit) -> Result<()> {
        if let Some(reason) = &self.stale {
            return Err(Error::conflict(reason.clone()));
        }
        check_conflicts(&self.table, &self.epochs, &self.txns, &prepared.advances)?;
        self.check_removes(prepared)
    }

    /// Checks that this owner may still replace files, and that those it replaces are live.
    fn check_removes(&self, prepared: &PreparedCommit) -> Result<()> {
        if prepared.removes.is_empty() {
            return Ok(());
        }
        let owned =
            self.txns.keys().filter_map(|id| id.strip_prefix(OWNER_PREFIX)?.parse().ok()).map(PartitionId);
        let lost = owned.filter_map(|p| Some((p, later_owner(&self.txns, &self.epochs, p)?)));
        if let Some((p, owner)) = lost.max_by_key(|(_, owner)| *owner) {
            return Err(Error::conflict(format!(
                "table `{}`: owner/{p} has the epoch {owner}; this node's epoch is {}: it must not replace files any more",
                self.table,
                self.epochs.of(p).unwrap_or_default()
            )));
        }
        match prepared.removes.iter().find(|name| !self.files.contains_key(*name)) {
            None => Ok(()),
            Some(gone) => Err(Error::conflict(format!(
                "table `{}`: another writer removed {gone}, which this commit replaces; nothing was changed",
                self.table
            ))),
        }
    }

    /// Discards a rejected commit and removes its files. It was rejected before it was put at the first free
    /// version, so no entry refers to its files.
    async fn discard(&mut self, prepared: &PreparedCommit) {
        self.prepared = None;
        self.location.discard(&self.table, prepared.files.iter().map(|file| &file.path)).await;
    }

    /// Reads the entry after the current version and applies it.
    async fn apply_next_entry(&mut self) -> Result<NextEntry> {
        let next = read_entry(&self.location, &self.table, self.version + 1, self.retry).await?;
        let Some(entry) = next else { return Ok(NextEntry::Nothing) };
        let ours = self.prepared.as_ref().is_some_and(|p| entry.id.as_ref() == Some(&p.id));
        self.apply(entry)?;
        if ours {
            self.prepared = None;
            return Ok(NextEntry::Ours);
        }
        Ok(NextEntry::Theirs)
    }

    /// Advances the state from `version` to `version + 1`. Changes nothing on an error.
    fn apply(&mut self, entry: Entry) -> Result<()> {
        let mut adds = Vec::new();
        for add in &entry.adds {
            let name = data_path(&add.path, &self.table)?;
            let path = self.location.path(&name);
            adds.push(Tablet::from_add(
                add,
                name,
                path,
                &self.schema,
                &self.table,
                self.location.keys.as_ref(),
            )?);
        }
        let removes: Vec<String> =
            entry.removes.iter().map(|r| data_path(&r.path, &self.table)).collect::<Result<_>>()?;
        for (name, remove) in removes.into_iter().zip(&entry.removes) {
            self.files.remove(&name);
            self.removed.insert(name, remove.deletion_timestamp.unwrap_or(0));
        }
        for tablet in &adds {
            self.removed.remove(&tablet.name);
        }
        self.files.extend(adds.into_iter().map(|t| (t.name.clone(), Arc::new(t))));
        self.txns.extend(entry.txns.into_iter().map(|t| (t.app_id, t.version)));
        self.version += 1;
        let ours = self.prepared.as_ref().is_some_and(|p| entry.id.as_ref() == Some(&p.id));
        if let Some(metadata) = entry.metadata {
            if !ours && metadata.schema_string != self.metadata.schema_string {
                self.stale = Some(self.schema_change_conflict("schema"));
            }
            self.metadata = metadata;
        }
        if entry.protocol.is_some() && !ours {
            self.stale = Some(self.schema_change_conflict("protocol"));
        }
        Ok(())
    }

    fn schema_change_conflict(&self, what: &str) -> String {
        format!(
            "table `{}`: another writer changed its {what} in version {}: open the table again",
            self.table, self.version
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::ErrorKind;

    #[test]
    fn judgement() {
        let p = PartitionId(3);
        let mark = |before, upto| [OffsetAdvance { partition: p, before, upto: Offset(upto) }];
        let txns = |log: Option<i64>, owner: Option<i64>| -> HashMap<String, i64> {
            let log = log.map(|v| (log_id(p), v));
            log.into_iter().chain(owner.map(|v| (owner_id(p), v))).collect()
        };
        let verdict = |t: &HashMap<String, i64>, m: [OffsetAdvance; 1]| {
            check_conflicts("T", &OwnerEpochs::of_all(5), t, &m).map_err(|e| e.kind())
        };
        assert_eq!(verdict(&txns(None, None), mark(None, 0)), Ok(()));
        assert_eq!(verdict(&txns(Some(7), Some(5)), mark(Some(Offset(7)), 8)), Ok(()));
        assert_eq!(verdict(&txns(Some(7), Some(6)), mark(Some(Offset(7)), 8)), Err(ErrorKind::Conflict));
        assert_eq!(verdict(&txns(Some(8), Some(5)), mark(Some(Offset(7)), 9)), Err(ErrorKind::Conflict));
        assert_eq!(verdict(&txns(Some(7), None), mark(None, 9)), Err(ErrorKind::Conflict));
        assert_eq!(verdict(&txns(Some(7), Some(5)), mark(Some(Offset(7)), 7)), Err(ErrorKind::Internal));
        let error =
            check_conflicts("T", &OwnerEpochs::of_all(5), &txns(None, Some(6)), &mark(None, 0)).unwrap_err();
        assert!(error.to_string().contains("owner epoch 6 took over partition 3"), "{error}");
    }
}
