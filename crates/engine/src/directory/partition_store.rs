//! Where the state of partitions is kept for the next process that owns them, see [`crate::shared_state`].

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_log::disk::DiskFile;
use tidemill_types::{Error, Offset, PartitionId, Result};

/// Files that are published together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StateGroup {
    /// Files that belong to no partition.
    Directory,
    /// The state of a partition.
    Partition(PartitionId),
}

impl StateGroup {
    /// Returns the name of the group in the store.
    pub fn name(self) -> String {
        match self {
            Self::Directory => "directory".into(),
            Self::Partition(id) => format!("p{:05}", id.0),
        }
    }
}

/// A file of the data directory, open as it is at the moment.
pub struct StateFile {
    /// Path below the data directory, with `/`.
    pub name: String,
    /// The file.
    pub file: Arc<dyn DiskFile>,
    /// Number of bytes from its beginning.
    pub bytes: u64,
    /// True if it only grows or never changes, so that one of the same length is the same.
    pub grows: bool,
}

/// A file of a published group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedFile {
    /// Path below the data directory.
    pub name: String,
    /// Path in the store.
    pub object: String,
    /// Number of bytes.
    pub bytes: u64,
    /// CRC32C of the bytes.
    pub crc32c: u32,
}

/// The state of a partition as it was published.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedState {
    /// Offset after its last record.
    pub next: Offset,
    /// Its files.
    pub files: Vec<PublishedFile>,
}

/// Opens the files of a group. It is called if they are published only.
pub type OpenFiles<'f> = &'f dyn Fn() -> Result<Vec<StateFile>>;

/// Keeps the state of partitions for the next process that owns them. A group has one owner at a time, which publishes it by one thread at
/// a time.
pub trait PartitionStore: Send + Sync {
    /// Returns whether other processes may take the state over.
    fn is_shared(&self) -> bool;

    /// Makes this process the owner of a group, in `epoch`. Former owners publish nothing any more.
    ///
    /// Errors: `Conflict` if the group has an owner of this epoch or a later one; `Unavailable` when the store does not answer.
    fn claim(&self, group: StateGroup, epoch: u64) -> Result<()>;

    /// Publishes a group as it is at `at`: the offset after the last record of a partition, and a number that grows when other files of it
    /// change. A partition is published once at each. The directory has its versions in the order in which they are published, whatever
    /// `at` is.
    ///
    /// Errors: `Conflict` when another process owns it; `Unavailable` when the store does not answer.
    fn publish(&self, group: StateGroup, at: (Offset, u64), files: OpenFiles<'_>) -> Result<()>;

    /// Returns the offset from which others need the log of a partition: that of the last version that this process has published, with which the
    /// next owner begins, or 0 while a reader holds older ones. `None` if it has published none.
    fn needed_from(&self, id: PartitionId) -> Option<Offset>;

    /// Makes the files of a group in the data directory those of its newest version. Returns false if the group was never published;
    /// nothing is changed then.
    ///
    /// Errors: `Corrupt` for files that are missing or damaged in the store; `Unavailable` when it does not answer.
    fn fetch(&self, group: StateGroup) -> Result<bool>;

    /// Returns the newest version of a partition, whichever process has published it; `None` if it was never published.
    ///
    /// Errors: `NotFound` if versions are replaced faster than they are read; `Corrupt`; `Unavailable` when the store does not answer.
    fn newest_state(&self, id: PartitionId) -> Result<Option<PublishedState>>;

    /// Returns the epoch of the newest owner of a partition, 0 if it had none.
    ///
    /// Errors: `Corrupt`; `Unavailable` when the store does not answer.
    fn newest_epoch(&self, id: PartitionId) -> Result<u64>;

    /// Hands the content of a published file to `take`, piece by piece. Other requests of this process are answered in between.
    ///
    /// Errors: `NotFound` if it was removed, as later versions do not have it; `Corrupt` if it is not what was published; `Unavailable` when the
    /// store does not answer; those of `take`.
    fn read_published(&self, file: &PublishedFile, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;

    /// Keeps owners from removing what they have published, and from cutting the log below it, while a hold of this name is there. The holder
    /// takes another name from time to time: one that stays is ignored after [`crate::shared_state::EXPIRES_AFTER`].
    ///
    /// Errors: `Unavailable` when the store does not answer.
    fn hold(&self, name: &str) -> Result<()>;

    /// Ends a hold. One that does not exist is not an error.
    ///
    /// Errors: `Unavailable` when the store does not answer.
    fn end_hold(&self, name: &str) -> Result<()>;

    /// Says that the process has ended its work, and that everything is published.
    ///
    /// Errors: `Unavailable` when the store does not answer.
    fn release(&self) -> Result<()>;
}

/// The store of a process that no other one takes the state over from: the data directory is all there is.
pub struct LocalPartitionStore;

impl PartitionStore for LocalPartitionStore {
    fn is_shared(&self) -> bool {
        false
    }

    fn claim(&self, _: StateGroup, _: u64) -> Result<()> {
        Ok(())
    }

    fn publish(&self, _: StateGroup, _: (Offset, u64), _: OpenFiles<'_>) -> Result<()> {
        Ok(())
    }

    /// The next owner has the checkpoints of the directory.
    fn needed_from(&self, _: PartitionId) -> Option<Offset> {
        Some(Offset(u64::MAX))
    }

    fn fetch(&self, _: StateGroup) -> Result<bool> {
        Ok(false)
    }

    fn newest_state(&self, _: PartitionId) -> Result<Option<PublishedState>> {
        Ok(None)
    }

    fn newest_epoch(&self, _: PartitionId) -> Result<u64> {
        Ok(0)
    }

    fn read_published(&self, file: &PublishedFile, _: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        Err(Error::internal(format!("{}: nothing is published from here", file.name)))
    }

    fn hold(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn end_hold(&self, _: &str) -> Result<()> {
        Ok(())
    }

    fn release(&self) -> Result<()> {
        Ok(())
    }
}
