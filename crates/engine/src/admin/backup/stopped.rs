//! Content of a backup of a data directory that no program has open.

use std::path::Path;

use tidemill_log::closed_log_files;
use tidemill_log::disk::Disk;
use tidemill_types::{Error, Result};
use tidemill_zones::Zones;

use super::content::BackupContent;
use super::manifest::PartitionRange;
use crate::changes::CHANGES_DIR;
use crate::directory::encryption::KEY_RING_FILE;
use crate::sinks::{DELIVERIES_DIR, partition_dirs, queue_dirs};
use crate::state::set_aside::SET_ASIDE_DIR;

/// Looks at everything in the data directory `dir`, which the caller has locked. `decrypted` is the disk with
/// the keys of the directory; `zones`: its tables, if it has any.
///
/// Errors: `Invalid` when the log is not in files; `Corrupt` naming a damaged file; `Unavailable`.
pub fn collect(
    disk: &dyn Disk,
    decrypted: &dyn Disk,
    dir: &Path,
    zones: Option<&Zones>,
    runtime: &tokio::runtime::Runtime,
) -> Result<BackupContent> {
    let mut content = BackupContent { partitions: log_ranges(disk, dir)?, ..BackupContent::default() };
    if let Some(zones) = zones {
        for name in runtime.block_on(zones.table_names())? {
            let version = runtime.block_on(zones.newest_version(&name))?;
            version.into_iter().for_each(|version| content.add_table(version));
        }
    }
    for range in content.partitions.clone() {
        content.add_checkpoints(decrypted, disk, dir, tidemill_types::PartitionId(range.partition))?;
    }
    content.add_small_files(disk, dir, "sinks")?;
    content.add_small_files(disk, dir, SET_ASIDE_DIR)?;
    add_partition_progress(disk, dir, &mut content)?;
    for name in queue_dirs(disk, &dir.join(DELIVERIES_DIR))? {
        add_queue(disk, dir, &mut content, &name)?;
    }
    content.add_log(CHANGES_DIR, closed_log_files(disk, &dir.join(CHANGES_DIR))?);
    for name in ["meta.json", "app.json", KEY_RING_FILE] {
        content.add_small(disk, dir, name)?;
    }
    content.add_log("log", closed_log_files(disk, &dir.join("log"))?);
    Ok(content)
}

/// Adds how far sinks have come that write a file for each partition.
///
/// Errors: `Unavailable`.
pub fn add_partition_progress(disk: &dyn Disk, data: &Path, content: &mut BackupContent) -> Result<()> {
    for partition in partition_dirs(disk, &data.join(DELIVERIES_DIR))? {
        let name = partition.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
        content.add_small_files(disk, data, &format!("{DELIVERIES_DIR}/{name}"))?;
    }
    Ok(())
}

/// Adds the queue of a sink in a directory that no program has open.
///
/// Errors: `Unavailable`.
pub fn add_queue(disk: &dyn Disk, data: &Path, content: &mut BackupContent, name: &str) -> Result<()> {
    let dir = format!("{DELIVERIES_DIR}/{name}");
    content.add_small(disk, data, &format!("{dir}/progress.json"))?;
    content.add_log(&format!("{dir}/events"), closed_log_files(disk, &data.join(&dir).join("events"))?);
    Ok(())
}

/// Returns where the log begins and ends.
fn log_ranges(disk: &dyn Disk, dir: &Path) -> Result<Vec<PartitionRange>> {
    let log = dir.join("log");
    let found = tidemill_log::inspect(disk, &log)?;
    let damaged = found.damaged.iter().chain(found.partitions.iter().flat_map(|p| &p.damaged)).next();
    if let Some(damaged) = damaged {
        return Err(Error::corrupt(format!(
            "{}: {}. `tidemill verify` names everything that is damaged",
            damaged.path.display(),
            damaged.problem
        )));
    }
    if found.partitions.is_empty() {
        return Err(no_log(dir));
    }
    let range = |p: &tidemill_log::PartitionInspection| PartitionRange {
        partition: p.partition.0,
        log_start: p.start,
        log_end: p.end,
    };
    Ok(found.partitions.iter().map(range).collect())
}

/// Returns the error for a directory whose log is elsewhere.
pub fn no_log(dir: &Path) -> Error {
    Error::invalid(format!(
        "{}: has no log in files. A backup is of a data directory with its log; when the log is in Kafka, the topic is what to \
         protect, by its replication. A cluster is backed up by a node that runs: start the node of this directory, or name that of another one",
        dir.display()
    ))
}
