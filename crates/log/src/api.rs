//! The interface of a partitioned log.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp, did_you_mean};

/// How safely a record is stored. Each level includes the ones before it.
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

/// A record as [`Log::read`] returns it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Position in the partition.
    pub offset: Offset,
    /// Time of the append, as given by the writer.
    pub time: Timestamp,
    /// Appended bytes. They may share memory with neighbouring records: copy them to keep them for long.
    pub payload: Bytes,
}

/// Offsets and durability of an appended group of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppendResult {
    /// Offset of the first record of the group.
    pub first: Offset,
    /// Offset of the last record of the group.
    pub last: Offset,
    /// Lowest durability that the group is known to have.
    pub durability: Durability,
}

/// A partitioned log.
///
/// Shape: per partition, records with offsets from [`Log::start`] up to [`Log::end`] without gaps.
/// Bounds: the bytes that wait for the disk are bounded, see [`Log::write`].
/// Errors: `Invalid` for a partition or offset that the log does not have, `NotFound` for truncated records;
/// `LimitReached` and `Unavailable` as documented at each method.
pub trait Log: Send + Sync {
    /// Returns the number of partitions; their ids are `0..partitions`.
    fn partitions(&self) -> u32;

    /// Assigns offsets to the payloads and buffers them as records; returns before they are durable.
    ///
    /// The payloads form one group: their offsets are consecutive, and after a crash either all of them or
    /// none are present. Readers see them from now on.
    ///
    /// Bounds: while more bytes than the log's limit wait for the disk, the call blocks for a bounded time.
    /// Errors: `Invalid` for an empty group, `LimitReached` for a payload or group that is too large and when
    /// the wait times out, `Unavailable` while the disk is full or fails. A rejected group gets no offsets
    /// and nothing of it is stored.
    fn write(&self, partition: PartitionId, time: Timestamp, payloads: &[&[u8]]) -> Result<AppendResult>;

    /// Like [`Log::write`], but takes ownership of the payloads, so that an implementation can share their
    /// memory instead of copying it. Pays off from a few kilobytes per payload.
    fn write_owned(
        &self,
        partition: PartitionId,
        time: Timestamp,
        payloads: Vec<Bytes>,
    ) -> Result<AppendResult> {
        let slices: Vec<&[u8]> = payloads.iter().map(|p| &p[..]).collect();
        self.write(partition, time, &slices)
    }

    /// Waits until all records up to and including `upto` have at least the given durability. One `fsync`
    /// serves all waiting callers.
    ///
    /// Errors: `Unavailable` when the disk is full or fails. The records are then not known to be durable;
    /// they keep their offsets, stay readable and are written once the disk works again.
    fn sync(&self, partition: PartitionId, upto: Offset, durability: Durability) -> Result<()>;

    /// Calls [`Log::write`], then [`Log::sync`].
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

    /// Returns records from `from` on, about `max_bytes` of them, at least one if there is one. Includes
    /// records that are only in memory so far. Empty at the end of the log.
    ///
    /// Errors: `NotFound` below [`Log::start`], `Invalid` above [`Log::end`], `Corrupt` for damaged bytes.
    fn read(&self, partition: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>>;

    /// Returns the first offset that is still stored; 0 for a partition that the log does not have.
    fn start(&self, partition: PartitionId) -> Offset;

    /// Returns the offset of the next record; 0 for a partition that the log does not have.
    fn end(&self, partition: PartitionId) -> Offset;

    /// Returns the first offset that is not known to be on the disk; 0 for a partition that the log does not
    /// have.
    fn durable(&self, partition: PartitionId) -> Offset;

    /// Drops records below `upto`. Only whole segments are removed, so [`Log::start`] may stay below `upto`.
    fn truncate(&self, partition: PartitionId, upto: Offset) -> Result<()>;

    /// Returns the storage that the partition's records occupy, in bytes; 0 for a partition that the log does
    /// not have.
    fn bytes(&self, partition: PartitionId) -> u64;

    /// Makes everything written so far durable.
    fn flush(&self) -> Result<()>;

    /// Flushes like [`Log::flush`], then refuses writes; reads still work. A second call does nothing.
    fn close(&self) -> Result<()>;
}
