//! Files of a table's Delta log: those that one version needs, and whether each is as it was written.

use bytes::Bytes;
use futures::TryStreamExt;
use object_store::path::Path;
use object_store::{Error as StoreError, ObjectStoreExt};
use serde::Deserialize;
use tidemill_types::{Error, Result};

use super::action::Entry;
use super::checkpoint_checksums::CheckpointChecksums;
use super::entry_path;
use super::replay::{LogFile, TableState, checkpoint_entry, log_of};
use crate::error::store_error;
use crate::stores::location::Location;
use crate::stores::retry::Retry;

/// File with a hint for readers of the log.
const LAST_CHECKPOINT: &str = "_last_checkpoint";

/// Reads the files of the log that `state` was replayed from, with their paths below the table.
///
/// Errors: `NotFound` when one was removed meanwhile, because a later Delta checkpoint made it superfluous; `Unavailable`.
pub(crate) async fn version_files(
    place: &Location,
    table: &str,
    retry: Retry,
    state: &TableState,
) -> Result<Vec<(String, Bytes)>> {
    let log = log_of(place);
    let mut paths: Vec<Path> = Vec::new();
    if let Some(version) = state.checkpoint {
        let listed = list(place, table, retry, &log).await?;
        let of_checkpoint = |path: &Path| match LogFile::parse(path.filename().unwrap_or_default()) {
            Some(LogFile::Checkpoint { version: of, .. }) => of == version,
            // a reader may want the entry that the Delta checkpoint stands for
            Some(LogFile::Entry(of)) => of == version,
            None => false,
        };
        paths.extend(listed.into_iter().filter(of_checkpoint));
        paths.push(CheckpointChecksums::path(&log));
    }
    let first = state.checkpoint.map_or(0, |version| version + 1);
    paths.extend((first..=state.version).map(|version| entry_path(&log, version)));
    let mut files = Vec::new();
    for path in paths {
        match fetch(place, retry, &path).await {
            Ok(bytes) => files.push((relative(place, &path), bytes)),
            // Delta checkpoints of earlier releases have no checksums
            Err(StoreError::NotFound { .. }) if path == CheckpointChecksums::path(&log) => {}
            Err(e) => return Err(unreadable(place, table, &path, e)),
        }
    }
    // it may name a later Delta checkpoint by now, which is not among these files
    let hint = log.clone().join(LAST_CHECKPOINT);
    if let Ok(bytes) = fetch(place, retry, &hint).await
        && hinted_version(&bytes).is_ok_and(|version| Some(version) == state.checkpoint)
    {
        files.push((relative(place, &hint), bytes));
    }
    Ok(files)
}

/// Reads every file of the log and compares it with its checksums. Returns their number, their bytes and what is wrong.
///
/// Errors: `Unavailable`.
pub(crate) async fn check_files(
    place: &Location,
    table: &str,
    retry: Retry,
) -> Result<(u64, u64, Vec<(String, String)>)> {
    let log = log_of(place);
    let sums = CheckpointChecksums::read(&*place.store, &log).await;
    let sums = sums.map_err(|e| unreadable(place, table, &CheckpointChecksums::path(&log), e))?;
    let (mut count, mut size, mut damaged) = (0, 0, Vec::new());
    let listed = list(place, table, retry, &log).await?;
    let has_checkpoint = |version: u64| {
        let name = format!("{version:020}.checkpoint.");
        listed.iter().any(|path| path.filename().is_some_and(|file| file.starts_with(&name)))
    };
    for path in &listed {
        let name = path.filename().unwrap_or_default();
        let kind = LogFile::parse(name);
        if kind.is_none() && name != LAST_CHECKPOINT && *path != CheckpointChecksums::path(&log) {
            continue;
        }
        let bytes = fetch(place, retry, path).await.map_err(|e| unreadable(place, table, path, e))?;
        count += 1;
        size += bytes.len() as u64;
        let checked = match kind {
            Some(LogFile::Entry(_)) => Entry::parse(&bytes).map(drop),
            Some(LogFile::Checkpoint { version, .. }) if !sums.matches(version, &bytes) => {
                Err("its checksum is not the one in _tidemill_checkpoints.json".to_owned())
            }
            Some(LogFile::Checkpoint { .. }) => checkpoint_entry(bytes).map(drop),
            None if name == LAST_CHECKPOINT => hinted_version(&bytes).and_then(|version| {
                let named = "it names a Delta checkpoint that is not there";
                if has_checkpoint(version) { Ok(()) } else { Err(named.to_owned()) }
            }),
            None => CheckpointChecksums::parse(&bytes).map(drop).map_err(|e| e.to_string()),
        };
        if let Err(problem) = checked {
            damaged.push((place.display(path), problem));
        }
    }
    Ok((count, size, damaged))
}

fn hinted_version(bytes: &[u8]) -> Result<u64, String> {
    #[derive(Deserialize)]
    struct Hint {
        version: u64,
    }
    serde_json::from_slice::<Hint>(bytes).map(|hint| hint.version).map_err(|e| e.to_string())
}

async fn list(place: &Location, table: &str, retry: Retry, log: &Path) -> Result<Vec<Path>> {
    let listed = retry.run(|| async { place.store.list(Some(log)).try_collect::<Vec<_>>().await }).await;
    let listed = listed
        .map_err(|e| store_error(format!("table `{table}`: {} cannot be listed", place.display(log)), e))?;
    let mut paths: Vec<Path> = listed.into_iter().map(|file| file.location).collect();
    paths.sort();
    Ok(paths)
}

async fn fetch(place: &Location, retry: Retry, path: &Path) -> object_store::Result<Bytes> {
    retry.run(|| async { place.store.get(path).await?.bytes().await }).await
}

fn relative(place: &Location, path: &Path) -> String {
    place.relative(path).unwrap_or_else(|| path.to_string())
}

fn unreadable(place: &Location, table: &str, path: &Path, e: StoreError) -> Error {
    store_error(format!("table `{table}`: {} cannot be read", place.display(path)), e)
}
