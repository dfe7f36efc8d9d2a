//! Replay of a table's state from its Delta log: the newest readable Delta checkpoint and every entry after
//! it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use arrow::json::LineDelimitedWriter;
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde::Deserialize;
use tidemill_types::{Error, Result};

use super::action::{Add, Entry, Metadata, Protocol};
use super::checkpoint_checksums::CheckpointChecksums;
use super::entry_path;
use crate::error::store_error;
use crate::stores::location::Location;
use crate::stores::retry::Retry;

/// Number of entries fetched concurrently.
pub(super) const FETCHES: usize = 16;

/// The state of a table at `version`.
#[derive(Debug)]
pub(crate) struct TableState {
    pub version: u64,
    /// Version of the Delta checkpoint that the replay started from; `None` if it started from version 0.
    pub checkpoint: Option<u64>,
    pub protocol: Protocol,
    pub metadata: Metadata,
    /// Versions of application ids.
    pub txns: HashMap<String, i64>,
    /// Live files by their path below the table.
    pub live: BTreeMap<String, Add>,
    /// Versions of the log entries that added live files; files from the Delta checkpoint are absent.
    added_in: HashMap<String, u64>,
    /// Files that the log still lists as removed, which readers of older versions may be using, with the time of
    /// their removal in milliseconds.
    pub removed: BTreeMap<String, i64>,
}

impl TableState {
    /// Describes which part of the log names the live file `name`, for messages about damage.
    pub fn file_origin(&self, place: &Location, name: &str) -> String {
        match (self.added_in.get(name), self.checkpoint) {
            (Some(version), _) => {
                format!("Delta log entry {}", place.display(&entry_path(&log_of(place), *version)))
            }
            (None, Some(version)) => {
                format!("Delta checkpoint of version {version} in {}", place.display(&log_of(place)))
            }
            (None, None) => format!("Delta log {}", place.display(&log_of(place))),
        }
    }
}

/// Returns the directory of the log.
pub(crate) fn log_of(place: &Location) -> Path {
    place.path("_delta_log")
}

/// Relevant files of the log directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub entries: BTreeSet<u64>,
    /// Complete Delta checkpoints with the paths of their parts.
    pub checkpoints: BTreeMap<u64, Vec<Path>>,
}

impl Listing {
    /// Returns the newest version, or `None` if the table does not exist.
    pub fn newest(&self) -> Option<u64> {
        self.entries.last().max(self.checkpoints.keys().last()).copied()
    }

    /// Returns the oldest version from which on every version can be replayed, or `None` if the table does
    /// not exist.
    pub fn oldest(&self) -> Option<u64> {
        let newest = self.newest()?;
        let first = (0..=newest).rev().take_while(|version| self.entries.contains(version)).last();
        if first == Some(0) {
            return first;
        }
        // a replay cannot start at an entry alone: the state before it must be known
        let before = first.map_or(newest, |first| first - 1);
        self.checkpoints.range(before..).next().map(|(version, _)| *version)
    }
}

/// Hint about the newest Delta checkpoint.
#[derive(Deserialize)]
struct LastCheckpoint {
    version: u64,
}

/// Replays the log of the table at `place`; `None` if it is not a Delta table.
///
/// Errors: `Corrupt` naming the version and file that is missing or damaged; `Unavailable` when the store
/// does not answer.
pub(crate) async fn replay(place: &Location, table: &str, retry: Retry) -> Result<Option<TableState>> {
    let reader = DeltaReader { location: place, log: log_of(place), table, retry };
    // The hint avoids listing entries that the Delta checkpoint made obsolete; it may be stale or wrong.
    if let Some(hint) = reader.last_checkpoint().await? {
        let listing = reader.list(Some(hint)).await?;
        if let Some(parts) = listing.checkpoints.get(&hint)
            && let Ok(start) = reader.checkpoint(hint, parts).await
        {
            let newest = listing.newest().unwrap_or(hint);
            return reader.finish(Some((hint, start)), &listing, newest).await.map(Some);
        }
    }
    let listing = reader.list(None).await?;
    match listing.newest() {
        Some(newest) => reader.replay_until(&listing, newest).await.map(Some),
        None => Ok(None),
    }
}

pub(super) struct DeltaReader<'a> {
    pub location: &'a Location,
    pub log: Path,
    pub table: &'a str,
    pub retry: Retry,
}

impl DeltaReader<'_> {
    /// Replays the versions up to `last`, from the newest Delta checkpoint before it that can be read.
    pub async fn replay_until(&self, listing: &Listing, last: u64) -> Result<TableState> {
        let mut damage = None;
        for (version, parts) in listing.checkpoints.range(..=last).rev() {
            match self.checkpoint(*version, parts).await {
                Ok(start) => return self.finish(Some((*version, start)), listing, last).await,
                Err(e) => {
                    tracing::warn!(table = self.table, version, error = %e, "a Delta checkpoint cannot be read; trying an older one");
                    damage.get_or_insert(e);
                }
            }
        }
        match damage {
            Some(e) if !listing.entries.contains(&0) => Err(e),
            _ => self.finish(None, listing, last).await,
        }
    }

    async fn last_checkpoint(&self) -> Result<Option<u64>> {
        let path = self.log.clone().join("_last_checkpoint");
        match self.fetch(&path).await {
            Ok(bytes) => Ok(serde_json::from_slice::<LastCheckpoint>(&bytes).ok().map(|c| c.version)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(e) => Err(store_error(self.unreadable(&path), e)),
        }
    }

    fn unreadable(&self, path: &Path) -> String {
        format!("table `{}`: {} cannot be read", self.table, self.location.display(path))
    }

    async fn fetch(&self, path: &Path) -> object_store::Result<Bytes> {
        self.retry.run(|| async { self.location.store.get(path).await?.bytes().await }).await
    }

    /// Lists the log directory, from version `from` on.
    pub async fn list(&self, from: Option<u64>) -> Result<Listing> {
        let offset = from.map(|v| self.log.clone().join(format!("{v:020}")));
        let list = || match &offset {
            Some(offset) => self.location.store.list_with_offset(Some(&self.log), offset),
            None => self.location.store.list(Some(&self.log)),
        };
        let files: Vec<_> = self.retry.run(|| async { list().try_collect().await }).await.map_err(|e| {
            let log = self.location.display(&self.log);
            store_error(format!("table `{}`: {log} cannot be listed", self.table), e)
        })?;
        let mut listing = Listing::default();
        let mut parts: BTreeMap<(u64, usize), Vec<Path>> = BTreeMap::new();
        for file in files {
            match LogFile::parse(file.location.filename().unwrap_or_default()) {
                Some(LogFile::Entry(version)) => {
                    listing.entries.insert(version);
                }
                Some(LogFile::Checkpoint { version, parts: of }) => {
                    parts.entry((version, of)).or_default().push(file.location);
                }
                None => {}
            }
        }
        let complete = parts.into_iter().filter(|((_, of), paths)| paths.len() == *of);
        listing.checkpoints = complete.map(|((version, _), paths)| (version, paths)).collect();
        Ok(listing)
    }

    async fn checkpoint(&self, version: u64, parts: &[Path]) -> Result<Vec<Entry>> {
        let mut entries = Vec::new();
        let read = || CheckpointChecksums::read(&*self.location.store, &self.log);
        let sums = self.retry.run(read).await.map_err(|e| {
            store_error(format!("table `{}`: the checksums of its Delta checkpoints", self.table), e)
        })?;
        for path in parts {
            let bytes = self.fetch(path).await.map_err(|e| store_error(self.unreadable(path), e))?;
            let sound = match sums.matches(version, &bytes) {
                true => checkpoint_entry(bytes),
                false => Err("its checksum is not the one in _tidemill_checkpoints.json".to_owned()),
            };
            entries.push(sound.map_err(|e| {
                Error::corrupt(format!(
                    "table `{}`: the Delta checkpoint of version {version} ({}) is damaged: {e}; restore it, or the \
                     log entries before it, from a copy",
                    self.table,
                    self.location.display(path)
                ))
            })?);
        }
        Ok(entries)
    }

    /// Applies `start`, then every entry after it until `last`, which must exist without a gap.
    async fn finish(
        &self,
        start: Option<(u64, Vec<Entry>)>,
        listing: &Listing,
        last: u64,
    ) -> Result<TableState> {
        let checkpoint = start.as_ref().map(|(version, _)| *version);
        let first = checkpoint.map_or(0, |v| v + 1);
        if let Some(gap) = (first..=last).find(|v| !listing.entries.contains(v)) {
            return Err(self.gap_error(gap, last));
        }
        let mut state = TableStateBuilder::default();
        for entry in start.into_iter().flat_map(|(_, entries)| entries) {
            state.apply(entry, self.table, None)?;
        }
        let mut entries = futures::stream::iter(first..=last).map(|v| self.entry(v)).buffered(FETCHES);
        let mut version = first;
        while let Some(entry) = entries.try_next().await? {
            let path = || self.location.display(&entry_path(&self.log, version));
            state
                .apply(entry, self.table, Some(version))
                .map_err(|e| e.context(format!("Delta log entry {}", path())))?;
            version += 1;
        }
        let (Some(protocol), Some(metadata)) = (state.protocol, state.metadata) else {
            return Err(Error::corrupt(format!(
                "table `{}`: its Delta log up to version {last} has no protocol and metadata; restore {} from a copy",
                self.table,
                self.location.display(&self.log)
            )));
        };
        Ok(TableState {
            version: last,
            checkpoint,
            protocol,
            metadata,
            txns: state.txns,
            live: state.live,
            added_in: state.added_in,
            removed: state.removed,
        })
    }

    fn gap_error(&self, gap: u64, last: u64) -> Error {
        Error::corrupt(format!(
            "table `{}`: Delta log entry of version {gap} ({}) is missing, though the log goes on to version {last}; \
             restore the file from a copy",
            self.table,
            self.location.display(&entry_path(&self.log, gap))
        ))
    }

    pub async fn entry(&self, version: u64) -> Result<Entry> {
        read_entry(self.location, self.table, version, self.retry)
            .await?
            .ok_or_else(|| self.gap_error(version, version))
    }
}

/// Reads the log entry `version`; `None` when it does not exist.
///
/// Errors: `Corrupt` naming the version and the line; `Unavailable`.
pub(crate) async fn read_entry(
    place: &Location,
    table: &str,
    version: u64,
    retry: Retry,
) -> Result<Option<Entry>> {
    let path = entry_path(&log_of(place), version);
    let bytes = match retry.run(|| async { place.store.get(&path).await?.bytes().await }).await {
        Ok(bytes) => bytes,
        Err(StoreError::NotFound { .. }) => return Ok(None),
        Err(e) => {
            let path = place.display(&path);
            return Err(store_error(format!("table `{table}`: {path} cannot be read"), e));
        }
    };
    let path = place.display(&path);
    let entry = Entry::parse(&bytes).map_err(|e| {
        Error::corrupt(format!(
            "table `{table}`: Delta log entry of version {version} ({path}) is damaged: {e}; restore the file from a copy"
        ))
    })?;
    Ok(Some(entry))
}

/// Converts a Delta checkpoint, a Parquet file with a column per action, to JSON lines and parses them as an
/// entry.
pub(crate) fn checkpoint_entry(bytes: Bytes) -> Result<Entry, String> {
    let reader =
        ParquetRecordBatchReaderBuilder::try_new(bytes).and_then(|b| b.build()).map_err(|e| e.to_string())?;
    let mut lines = LineDelimitedWriter::new(Vec::new());
    for batch in reader {
        lines.write(&batch.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
    }
    lines.finish().map_err(|e| e.to_string())?;
    Entry::parse(&lines.into_inner())
}

#[derive(Default)]
struct TableStateBuilder {
    protocol: Option<Protocol>,
    metadata: Option<Metadata>,
    txns: HashMap<String, i64>,
    live: BTreeMap<String, Add>,
    added_in: HashMap<String, u64>,
    removed: BTreeMap<String, i64>,
}

impl TableStateBuilder {
    /// Applies an entry. `version` is that of a log entry; `None` for a Delta checkpoint.
    fn apply(&mut self, entry: Entry, table: &str, version: Option<u64>) -> Result<()> {
        self.protocol = entry.protocol.or(self.protocol.take());
        self.metadata = entry.metadata.or(self.metadata.take());
        self.txns.extend(entry.txns.into_iter().map(|t| (t.app_id, t.version)));
        for remove in entry.removes {
            let path = data_path(&remove.path, table)?;
            self.live.remove(&path);
            self.added_in.remove(&path);
            self.removed.insert(path, remove.deletion_timestamp.unwrap_or(0));
        }
        for add in entry.adds {
            let path = data_path(&add.path, table)?;
            self.removed.remove(&path);
            if let Some(version) = version {
                self.added_in.insert(path.clone(), version);
            }
            self.live.insert(path, add);
        }
        Ok(())
    }
}

/// Decodes the path of a data file, relative to the table.
pub(crate) fn data_path(encoded: &str, table: &str) -> Result<String> {
    let path = if encoded.contains("://") { None } else { Path::from_url_path(encoded).ok() };
    path.map(|p| p.to_string()).ok_or_else(|| {
        Error::invalid(format!(
            "table `{table}`: its Delta log names the file `{encoded}`, which does not lie below the table; Tidemill reads \
             tables only as a whole"
        ))
    })
}

/// A file of the log by its name.
#[derive(Debug, PartialEq)]
pub(crate) enum LogFile {
    /// The entry of a version.
    Entry(u64),
    /// A part of the Delta checkpoint of a version.
    Checkpoint { version: u64, parts: usize },
}

impl LogFile {
    /// Parses `<20 digits>.json`, `<20 digits>.checkpoint.parquet`, `<20
    /// digits>.checkpoint.<part>.<of>.parquet`.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (digits, rest) = name.split_once('.')?;
        let version = digits.parse().ok().filter(|_| digits.len() == 20)?;
        let parts: Vec<&str> = rest.split('.').collect();
        match parts.as_slice() {
            ["json"] => Some(Self::Entry(version)),
            ["checkpoint", "parquet"] => Some(Self::Checkpoint { version, parts: 1 }),
            ["checkpoint", _, of, "parquet"] => Some(Self::Checkpoint { version, parts: of.parse().ok()? }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_log_files() {
        let parse = LogFile::parse;
        assert_eq!(parse("00000000000000000012.json"), Some(LogFile::Entry(12)));
        assert_eq!(
            parse("00000000000000000012.checkpoint.parquet"),
            Some(LogFile::Checkpoint { version: 12, parts: 1 })
        );
        assert_eq!(
            parse("00000000000000000012.checkpoint.0000000001.0000000003.parquet"),
            Some(LogFile::Checkpoint { version: 12, parts: 3 })
        );
        for other in ["_last_checkpoint", "00000000000000000012.crc", "12.json", "_commit_x.json.tmp"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn paths_are_decoded_and_must_be_below_the_table() {
        assert_eq!(data_path("tablets/0/a%20b.parquet", "T").unwrap(), "tablets/0/a b.parquet");
        assert!(data_path("s3://other/x.parquet", "T").is_err());
        assert!(data_path("../x.parquet", "T").is_err());
    }
}
