//! The files of a running data directory, by the group that they belong to.

use std::path::Path;

use tidemill_log::disk::Disk;
use tidemill_types::{PartitionId, Result};

use crate::changes::CHANGES_DIR;
use crate::directory::datadir::META_FILE;
use crate::directory::encryption::KEY_RING_FILE;
use crate::directory::partition_store::StateFile;
use crate::planted_bugs::{PlantedBug, is_planted};
use crate::process::disk_files::{list, unreadable};
use crate::sinks::{DELIVERIES_DIR, former_queue_dirs};
use crate::state::set_aside::SET_ASIDE_DIR;

/// Files of the data directory that are replaced as a whole.
const DIRECTORY_FILES: [&str; 6] =
    [META_FILE, "app.json", "access.json", KEY_RING_FILE, "log/log.meta", "changes/log.meta"];
/// Directories whose files are replaced as a whole, and belong to no partition.
const DIRECTORY_DIRS: [&str; 2] = ["sinks", SET_ASIDE_DIR];
/// Directories with a directory for each partition. The log comes last: what was seen before it is in it.
const PARTITION_DIRS: [&str; 5] = ["checkpoints", "ids", CHANGES_DIR, DELIVERIES_DIR, "log"];
/// Ends of the names of files that are being written.
const UNFINISHED: [&str; 2] = [".tmp", ".lost"];

/// Opens the files that belong to no partition.
///
/// Errors: `Unavailable` when the disk fails.
pub fn directory_files(disk: &dyn Disk, data: &Path) -> Result<Vec<StateFile>> {
    let mut files = Vec::new();
    for name in DIRECTORY_FILES {
        add(disk, data, name.to_owned(), &mut files)?;
    }
    for dir in shared_dirs(disk, data)? {
        add_below(disk, data, &dir, &mut files)?;
    }
    Ok(files)
}

/// Opens the files of a partition. No checkpoint may be taken, and no file with ids be removed, meanwhile.
///
/// Errors: `Unavailable` when the disk fails.
pub fn partition_files(disk: &dyn Disk, data: &Path, id: PartitionId) -> Result<Vec<StateFile>> {
    let mut files = Vec::new();
    let is_left_out =
        |dir: &str| is_planted(PlantedBug::PublishWithoutQueues) && dir.starts_with(DELIVERIES_DIR);
    for dir in partition_dirs(id).iter().filter(|dir| !is_left_out(dir)) {
        add_below(disk, data, dir, &mut files)?;
    }
    Ok(files)
}

/// Returns the directories of a partition, below the data directory.
pub(super) fn partition_dirs(id: PartitionId) -> [String; 5] {
    PARTITION_DIRS.map(|dir| format!("{dir}/p{:05}", id.0))
}

/// Returns the directories with files that belong to no partition. Queues of earlier releases, of sinks that the app does not have any more,
/// are among them.
///
/// Errors: `Unavailable` when the disk fails.
pub(super) fn shared_dirs(disk: &dyn Disk, data: &Path) -> Result<Vec<String>> {
    let queues = former_queue_dirs(disk, &data.join(DELIVERIES_DIR))?;
    let queues = queues.into_iter().map(|queue| format!("{DELIVERIES_DIR}/{queue}"));
    Ok(DIRECTORY_DIRS.map(str::to_owned).into_iter().chain(queues).collect())
}

/// Returns the names of the files of the data directory itself that are replaced as a whole.
pub(super) fn directory_names(disk: &dyn Disk, data: &Path) -> Vec<String> {
    let there = DIRECTORY_FILES.into_iter().filter(|name| disk.open(&data.join(name)).is_ok());
    there.map(str::to_owned).collect()
}

/// Opens the files of a directory and of those in it.
fn add_below(disk: &dyn Disk, data: &Path, dir: &str, files: &mut Vec<StateFile>) -> Result<()> {
    for name in names_below(disk, data, dir)? {
        add(disk, data, name, files)?;
    }
    Ok(())
}

/// Returns the names of the files of a directory and of those in it, in order.
pub(super) fn names_below(disk: &dyn Disk, data: &Path, dir: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for name in list(disk, &data.join(dir))? {
        let name = format!("{dir}/{name}");
        match disk.open(&data.join(&name)) {
            Ok(_) => names.push(name),
            Err(_) => names.extend(names_below(disk, data, &name)?),
        }
    }
    Ok(names)
}

/// Opens a file. One that is not there is left out.
fn add(disk: &dyn Disk, data: &Path, name: String, files: &mut Vec<StateFile>) -> Result<()> {
    if UNFINISHED.iter().any(|end| name.ends_with(end)) {
        return Ok(());
    }
    let path = data.join(&name);
    match disk.open(&path).and_then(|file| Ok((file.len()?, file))) {
        Ok((bytes, file)) => {
            let grows = !name.ends_with(".json") && !name.ends_with(".meta");
            files.push(StateFile { name, file, bytes, grows });
            Ok(())
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(unreadable(&path, e)),
    }
}
