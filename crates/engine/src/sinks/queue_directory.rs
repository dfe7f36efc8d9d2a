//! The directory with the queues of sinks: `deliveries/p00003/HASH` for partition 3, HASH being that of the sink's name.
//!
//! `docs/formats/sinks.md` has the formats. Releases before queues by partition had one queue for all partitions, `deliveries/HASH`: its
//! events are moved when the sink is opened.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tidemill_log::disk::Disk;
use tidemill_types::{Error, Offset, PartitionId, Result};

use super::delivery_queue::SinkCounts;
use crate::process::disk_files::list;
use crate::process::json_file::read_json;

/// Name of the file with the progress of a queue.
pub const PROGRESS_FILE: &str = "progress.json";
/// Name of the directory with the files of a queue.
pub const EVENTS_DIR: &str = "events";

/// Content of the file with the progress of a queue.
#[derive(Serialize, Deserialize, Default)]
pub struct QueueProgress {
    /// Name of the sink.
    pub sink: String,
    /// Offset and row of the last event that the other side has.
    pub delivered: Option<(Offset, u32)>,
    /// Offset below which all events are delivered or in the files.
    pub stored: Offset,
    /// Counts of the events.
    pub counts: SinkCounts,
}

/// Fields that the progress of queues has in all releases.
#[derive(Deserialize)]
struct AnyProgress {
    sink: String,
    counts: SinkCounts,
}

/// Returns the name of the directory of a queue of the sink `name`.
pub fn queue_name(name: &str) -> String {
    format!("{:016x}", xxhash_rust::xxh3::xxh3_64(name.as_bytes()))
}

/// Returns the name of the directory with the queues of a partition.
pub fn partition_name(partition: PartitionId) -> String {
    format!("p{:05}", partition.0)
}

/// Returns the directory of the queue of the sink `name` for a partition; `dir` has all queues.
pub fn queue_dir(dir: &Path, partition: PartitionId, name: &str) -> PathBuf {
    dir.join(partition_name(partition)).join(queue_name(name))
}

/// Returns the directories of all queues in `dir`, below it and with `/`: those by partition, and those of earlier releases.
///
/// Errors: `Unavailable` if a directory cannot be read.
pub fn queue_dirs(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for name in list(disk, dir)? {
        match is_partition(&name) {
            true => {
                let queues = list(disk, &dir.join(&name))?.into_iter().filter(|queue| is_queue(queue));
                found.extend(queues.map(|queue| format!("{name}/{queue}")));
            }
            false => found.extend(Some(name).filter(|name| is_queue(name))),
        }
    }
    Ok(found)
}

/// Returns the directories of partitions in `dir`.
///
/// Errors: `Unavailable` if the directory cannot be read.
pub fn partition_dirs(disk: &dyn Disk, dir: &Path) -> Result<Vec<PathBuf>> {
    let names = list(disk, dir)?.into_iter().filter(|name| is_partition(name));
    Ok(names.map(|name| dir.join(name)).collect())
}

/// Returns the names of the directories of queues for all partitions, as earlier releases had them.
///
/// Errors: `Unavailable` if the directory cannot be read.
pub fn former_queue_dirs(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>> {
    let mut names = list(disk, dir)?;
    names.retain(|name| is_queue(name));
    Ok(names)
}

fn is_partition(name: &str) -> bool {
    name.strip_prefix('p').is_some_and(|digits| digits.bytes().all(|digit| digit.is_ascii_digit()))
}

fn is_queue(name: &str) -> bool {
    name.len() == 16 && name.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// Returns the names of the sinks that have queues in `dir`.
///
/// Errors: `Corrupt` for damaged progress; `Unavailable` if a file cannot be read.
pub fn names(disk: &dyn Disk, dir: &Path) -> Result<Vec<String>> {
    let mut names = BTreeSet::new();
    for queue in queue_dirs(disk, dir)? {
        let progress = read_json::<AnyProgress>(disk, &dir.join(queue).join(PROGRESS_FILE))?;
        names.extend(progress.map(|progress| progress.sink));
    }
    Ok(names.into_iter().collect())
}

/// Returns a warning for each other sink than these for which events wait.
///
/// Errors: as [`names`].
pub fn others<'n>(disk: &dyn Disk, dir: &Path, names: impl Iterator<Item = &'n str>) -> Result<Vec<String>> {
    let known: BTreeSet<String> = names.map(queue_name).collect();
    let mut waiting: BTreeMap<String, (u64, Vec<String>)> = BTreeMap::new();
    for queue in queue_dirs(disk, dir)? {
        let path = dir.join(&queue);
        if queue.rsplit('/').next().is_some_and(|name| known.contains(name)) {
            continue;
        }
        let Some(progress) = read_json::<AnyProgress>(disk, &path.join(PROGRESS_FILE))? else { continue };
        if progress.counts.waiting() > 0 {
            let (events, paths) = waiting.entry(progress.sink).or_default();
            *events += progress.counts.waiting();
            paths.push(path.display().to_string());
        }
    }
    let warning = |(sink, (events, paths)): (String, (u64, Vec<String>))| {
        format!(
            "{events} events wait for the sink {sink}, which the app does not have any more: deploy it again to deliver \
             them, or remove {}",
            paths.join(", ")
        )
    };
    Ok(waiting.into_iter().map(warning).collect())
}

/// Removes the files of a queue. Its directories stay.
///
/// Errors: `Unavailable` if a file cannot be removed.
pub fn remove_queue(disk: &dyn Disk, dir: &Path) -> Result<()> {
    // without progress the rest means nothing
    for name in [PROGRESS_FILE, EVENTS_DIR] {
        remove_below(disk, &dir.join(name))?;
    }
    Ok(())
}

fn remove_below(disk: &dyn Disk, path: &Path) -> Result<()> {
    if disk.open(path).is_ok() {
        let failed = |e| Error::unavailable(format!("{}: cannot be removed", path.display())).with_source(e);
        disk.remove(path).map_err(failed)?;
        return disk.sync_dir(path.parent().unwrap_or(path)).map_err(failed);
    }
    list(disk, path)?.into_iter().try_for_each(|name| remove_below(disk, &path.join(name)))
}
