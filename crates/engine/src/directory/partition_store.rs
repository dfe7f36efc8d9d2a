//! Where the state of partitions is kept for the next process that owns them, see [`crate::shared_state`].

use std::sync::Arc;

use tidemill_log::disk::DiskFile;
use tidemill_types::{Offset, PartitionId, Result};

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

    /// Returns the offset of the last version of a partition that this process has published. The next owner needs the log from there.
    fn published(&self, id: PartitionId) -> Option<Offset>;

    /// Makes the files of a group in the data directory those of its newest version. Returns false if the group was never published;
    /// nothing is changed then.
    ///
    /// Errors: `Corrupt` for files that are missing or damaged in the store; `Unavailable` when it does not answer.
    fn fetch(&self, group: StateGroup) -> Result<bool>;

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
    fn published(&self, _: PartitionId) -> Option<Offset> {
        Some(Offset(u64::MAX))
    }

    fn fetch(&self, _: StateGroup) -> Result<bool> {
        Ok(false)
    }

    fn release(&self) -> Result<()> {
        Ok(())
    }
}
