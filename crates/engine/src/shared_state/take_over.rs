//! Beginning with the state that another process has published.

use std::path::Path;
use std::sync::Arc;

use tidemill_log::disk::Disk;
use tidemill_types::{Error, PartitionId, Result};
use tidemill_zones::ObjectDirectory;

use super::{FORMAT, ObjectPartitionStore, StateOwner};
use crate::directory::datadir;
use crate::directory::partition_store::{PartitionStore, StateGroup};

/// Conditions under which the state of another process is taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TakeOver {
    /// If nothing can be lost: the process has ended and published everything, or the log is outside of the data directories.
    Lossless,
    /// Also without the records that its log got after its last checkpoint, if it was lost with its machine.
    Always,
}

/// Makes the data directory `dir` what the newest process with the state has published, unless that was a process of this directory.
/// Returns the store: its identity, and claims of the groups, follow when the directory is open.
///
/// Errors: `Conflict` if records could be lost, as `condition` says; `Invalid` for a directory of another identity; `Corrupt` and
/// `Unavailable` for the store and the disk.
pub fn take_over(
    objects: ObjectDirectory,
    disk: &Arc<dyn Disk>,
    dir: &Path,
    log_in_directory: bool,
    condition: TakeOver,
) -> Result<ObjectPartitionStore> {
    let host =
        hostname::get().map_or_else(|_| "unknown".to_owned(), |name| name.to_string_lossy().into_owned());
    let place = objects.display("");
    let process = bson::oid::ObjectId::new().to_hex();
    let owner =
        StateOwner { format: FORMAT, id: String::new(), process, partitions: 0, host, log_in_directory };
    let store = ObjectPartitionStore::new(objects, disk.clone(), dir.to_owned(), owner)?;
    let own = match disk.open(&dir.join(datadir::META_FILE)).is_ok() {
        true => Some(datadir::read_meta(&**disk, dir)?),
        false => None,
    };
    let Some((epoch, former)) = store.newest_owner(StateGroup::Directory)? else { return Ok(store) };
    if let Some(own) = &own {
        if own.id.as_deref() != Some(former.id.as_str()) {
            return Err(Error::invalid(format!(
                "{}: is not the data directory whose state is in {place}: name an empty directory to continue with that \
                 state, or another place for the state of this one",
                dir.display()
            )));
        }
        if own.epoch() >= epoch {
            return Ok(store);
        }
    }
    let is_released = store.is_released(epoch)?;
    if former.log_in_directory != log_in_directory {
        return Err(Error::invalid(format!(
            "the log of the state in {place} is {}: name the same one (setting log, --log)",
            if former.log_in_directory { "in the data directory" } else { "outside of the data directory" }
        )));
    }
    if !is_released && former.log_in_directory && condition == TakeOver::Lossless {
        return Err(Error::conflict(format!(
            "the process on {} that has the state in {place} has not ended in order: it still runs, or what it acknowledged \
             after its last checkpoint is on that machine only. Stop it there, or start and stop it there once more. If that machine \
             is lost, start here without those records: --state-take-over",
            former.host
        )));
    }
    let fetch = |group: StateGroup| match store.fetch(group)? {
        true => Ok(()),
        false => {
            Err(Error::corrupt(format!("{place}: has an owner, but {} was never published", group.name())))
        }
    };
    (0..former.partitions).map(PartitionId).try_for_each(|id| fetch(StateGroup::Partition(id)))?;
    // the directory is that of another epoch until this is done, also after a crash
    fetch(StateGroup::Directory)?;
    datadir::raise_epoch(&**disk, dir, epoch)?;
    match is_released {
        true => tracing::info!(former = former.host, place, "continues with the state of another process"),
        false => tracing::warn!(
            former = former.host,
            place,
            "continues with the state of a process that has not ended in order"
        ),
    }
    Ok(store)
}
