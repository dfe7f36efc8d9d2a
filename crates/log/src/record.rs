//! Records, and how safely they are stored.

use std::any::Any;
use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use tidemill_types::{Error, Offset, Result, Timestamp, did_you_mean};

/// Durability of a record. Each level includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// In the memory of this process: lost when the process dies.
    Memory,
    /// Handed to the operating system: lost when the machine dies.
    Os,
    /// On the disk: `fsync` has returned.
    Fsync,
}

impl Durability {
    /// Returns the name used in settings and replies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Os => "os",
            Self::Fsync => "fsync",
        }
    }
}

impl fmt::Display for Durability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Durability {
    type Err = Error;

    /// Parses `memory`, `os` or `fsync`.
    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Memory, Self::Os, Self::Fsync];
        all.into_iter().find(|d| d.name() == text).ok_or_else(|| {
            let hint = did_you_mean(text, all.iter().map(|d| d.name()));
            Error::invalid(format!("`{text}` is no durability{hint}"))
        })
    }
}

/// A record as [`crate::Log::read`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Position in the partition.
    pub offset: Offset,
    /// Time of the append.
    pub time: Timestamp,
    /// Clock of the appender, see [`crate::AppenderClock`]; that of `time` for a log whose format does not have it.
    pub clock: u64,
    /// Appended bytes. They may share memory with neighbouring records: copy them to keep them for long.
    pub payload: Bytes,
}

/// Offsets and durability of a group of records, see [`crate::GroupLog::write`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendResult {
    /// Offset of the first record of the group.
    pub first: Offset,
    /// Offset of the last record of the group.
    pub last: Offset,
    /// Lowest durability that the group is known to have.
    pub durability: Durability,
}

/// Value that an appender hands over to the owner of the partition along with a record, see
/// [`crate::Log::append`].
pub type Attachment = Box<dyn Any + Send>;

/// A record to append.
pub struct NewRecord {
    /// Bytes to store.
    pub payload: Bytes,
    /// Value for the partition's owner, if that is in this process.
    pub attachment: Option<Attachment>,
}

impl From<Bytes> for NewRecord {
    /// Returns a record without an attachment.
    fn from(payload: Bytes) -> Self {
        Self { payload, attachment: None }
    }
}
