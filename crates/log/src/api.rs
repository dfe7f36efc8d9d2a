//! What every log promises.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp, did_you_mean};

/// How safe a record is. Later values include the earlier ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Durability {
    /// In this process: lost when the process dies.
    Memory,
    /// Given to the operating system: lost when the machine dies.
    Os,
    /// On the disk: `fsync` has returned.
    Fsync,
}

impl Durability {
    /// The word for settings and replies.
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

    /// Reads `memory`, `os` or `fsync`.
    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Memory, Self::Os, Self::Fsync];
        all.into_iter().find(|d| d.name() == text).ok_or_else(|| {
            let hint = did_you_mean(text, all.iter().map(|d| d.name()));
            Error::invalid(format!("`{text}` is no durability{hint}"))
        })
    }
}

/// One record as it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its place in the partition.
    pub offset: Offset,
    /// When it was appended, as the writer said.
    pub time: Timestamp,
    /// What was appended. Shares memory with its neighbours: copy it to keep it for long.
    pub payload: Bytes,
}

/// Where a group of records came to rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendResult {
    /// Offset of the first record of the group.
    pub first: Offset,
    /// Offset of the last one.
    pub last: Offset,
    /// How safe the group is at least.
    pub durability: Durability,
}

/// A partitioned log.
///
/// Shape: per partition, records with offsets from [`Log::start`] up to [`Log::end`] without holes.
/// Bounds: what waits for the disk is bounded, see [`Log::write`].
/// Errors: `Invalid` for a partition or offset that the log does not have, `NotFound` for records that were
/// truncated away, `LimitReached` and `Unavailable` as each method says.
pub trait Log: Send + Sync {
    /// How many partitions there are; their ids are `0..partitions`.
    fn partitions(&self) -> u32;

    /// Gives offsets to the payloads and takes them over; returns before they are durable.
    ///
    /// The payloads are one group: their offsets follow each other and after a crash either all of them or none
    /// are there. Readers see them from now on.
    ///
    /// Bounds: while more than the log's limit of bytes wait for the disk, the caller waits a bounded time.
    /// Errors: `Invalid` for an empty group, `LimitReached` for a group above the limit and when the wait was in
    /// vain, `Unavailable` while the disk is full or fails. A refused group has no offsets: nothing of it is kept.
    fn write(&self, partition: PartitionId, time: Timestamp, payloads: &[&[u8]]) -> Result<AppendResult>;

    /// The same for payloads that are given away: a log that can shares their memory instead of copying. Worth it from
    /// some kilobytes per payload on.
    fn write_owned(
        &self,
        partition: PartitionId,
        time: Timestamp,
        payloads: Vec<Bytes>,
    ) -> Result<AppendResult> {
        let slices: Vec<&[u8]> = payloads.iter().map(|p| &p[..]).collect();
        self.write(partition, time, &slices)
    }

    /// Waits until all records up to and with `upto` are at least that durable. One `fsync` serves all who wait.
    ///
    /// Errors: `Unavailable` when the disk is full or fails. The records are then not known to be durable; they
    /// keep their offsets, stay readable and are written once the disk works again.
    fn sync(&self, partition: PartitionId, upto: Offset, durability: Durability) -> Result<()>;

    /// [`Log::write`], then [`Log::sync`].
    fn append(
        &self,
        partition: PartitionId,
        time: Timestamp,
        payloads: &[&[u8]],
        durability: Durability,
    ) -> Result<AppendResult> {
        let written = self.write(partition, time, payloads)?;
        if durability > Durability::Memory {
            self.sync(partition, written.last, durability)?;
        }
        Ok(AppendResult { durability, ..written })
    }

    /// Records from `from` on, about `max_bytes` of them, at least one if there is one; also those that are only
    /// in memory so far. Empty at the end of the log.
    ///
    /// Errors: `NotFound` below [`Log::start`], `Invalid` above [`Log::end`], `Corrupt` for damaged bytes.
    fn read(&self, partition: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>>;

    /// The first offset that is still there; 0 for a partition that the log does not have.
    fn start(&self, partition: PartitionId) -> Offset;

    /// The offset that the next record will get; 0 for a partition that the log does not have.
    fn end(&self, partition: PartitionId) -> Offset;

    /// The first offset that is not known to be on the disk; 0 for a partition that the log does not have.
    fn durable(&self, partition: PartitionId) -> Offset;

    /// Gives up records below `upto`. Only whole segments go, so [`Log::start`] may stay below `upto`.
    fn truncate(&self, partition: PartitionId, upto: Offset) -> Result<()>;

    /// Bytes that the partition's records take where they are kept; 0 for a partition that the log does not have.
    fn bytes(&self, partition: PartitionId) -> u64;

    /// Makes everything that was written so far durable.
    fn flush(&self) -> Result<()>;

    /// [`Log::flush`], then refuses everything but reading. A second call does nothing.
    fn close(&self) -> Result<()>;
}
