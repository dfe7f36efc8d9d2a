//! The interface of a partitioned log.

use bytes::Bytes;
use tidemill_types::{Offset, PartitionId, Result, Timestamp};

use crate::record::{AppendResult, Durability, NewRecord, Record};
use crate::segments::copy::{LogFile, no_files};
use crate::subscription::Subscription;
use crate::ticket::Ticket;

/// A partitioned log.
///
/// Several processes may append to one log; each partition has one owner at a time, which consumes it through
/// [`Log::subscribe`]. The log, not the appender, decides order and time.
///
/// Shape: per partition, records with offsets from [`Log::start`] up to [`Log::end`] without gaps. Times do not
/// decrease with the offset, except where another machine, whose clock is behind, begins to assign them. A replica that needs times which do
/// not decrease takes the larger of a record's time and that of the record before, which its checkpoint keeps.
/// Bounds: the bytes that wait for the disk or the network are bounded, see [`Log::append`].
/// Errors: `Invalid` for a partition or offset that the log does not have, `NotFound` for truncated records;
/// `LimitReached` and `Unavailable` as documented at each method.
pub trait Log: Send + Sync {
    /// Returns the number of partitions; their ids are `0..partitions`.
    fn partitions(&self) -> u32;

    /// Appends a record. Returns a ticket for its offset and time, before the record is durable; a dropped ticket does
    /// not withdraw the record.
    ///
    /// One record is there as a whole or not at all, also after a crash: what must not be separated belongs into one
    /// payload. Records that one thread appends to one partition have the order of the calls.
    ///
    /// The attachment comes back with the record in [`crate::ConsumedRecord::content`], if the subscription is in this process
    /// and was there before the record was appended. In all other cases, also when the append fails, the log drops it.
    ///
    /// Bounds: while more bytes than the log's limit wait for the disk or the network, the call blocks for a bounded
    /// time.
    /// Errors: `LimitReached` for a payload that is too large and when the wait times out, `Unavailable` while the log
    /// cannot take records. Nothing of the record is stored then. A failure after that is that of [`Ticket::wait`].
    fn append(&self, partition: PartitionId, record: NewRecord, durability: Durability) -> Result<Ticket>;

    /// Starts to consume a partition at `from`. A partition has at most one subscription in a process at a time.
    ///
    /// Errors: `NotFound` below [`Log::start`], `Invalid` above [`Log::end`], `Conflict` while there is another one.
    fn subscribe(&self, partition: PartitionId, from: Offset) -> Result<Box<dyn Subscription>>;

    /// Waits until all records up to and including `upto` have at least the given durability. One `fsync`
    /// serves all waiting callers.
    ///
    /// Errors: `Unavailable` when the disk is full or fails. The records are then not known to be durable;
    /// they keep their offsets, stay readable and are written once the disk works again.
    fn sync(&self, partition: PartitionId, upto: Offset, durability: Durability) -> Result<()>;

    /// Returns records from `from` on, about `max_bytes` of them, at least one if there is one. Includes
    /// records that are only in memory so far. Empty at the end of the log.
    ///
    /// Errors: `NotFound` below [`Log::start`], `Invalid` above [`Log::end`], `Corrupt` for damaged bytes,
    /// `Unavailable` when the log cannot be reached.
    fn read(&self, partition: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>>;

    /// Returns the first offset that is still stored; 0 for a partition that the log does not have.
    fn start(&self, partition: PartitionId) -> Offset;

    /// Returns the offset of the next record as far as this process knows, at least what it appended and consumed; 0 for
    /// a partition that the log does not have.
    fn end(&self, partition: PartitionId) -> Offset;

    /// Returns for each partition the offset of the next record, after all records that any process was told are in the log. A log that other
    /// processes append to is asked, once for all partitions, and the call waits for its answer.
    ///
    /// Errors: `Unavailable` when the log, or the leader of a partition, cannot be reached.
    fn latest_ends(&self) -> Result<Vec<Offset>> {
        Ok((0..self.partitions()).map(|id| self.end(PartitionId(id))).collect())
    }

    /// Returns the offset that the first record of a partition has, or had. It is 0 unless the log continues another one.
    fn base(&self, _partition: PartitionId) -> Offset {
        Offset(0)
    }

    /// Learns where the partitions start, for [`Self::start`], of a log that other processes cut.
    ///
    /// Errors: `Unavailable` when the log, or the leader of a partition, cannot be reached.
    fn learn_starts(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the first offset that is not known to be durable as [`Durability::Fsync`]; 0 for a partition that the log
    /// does not have. Does not block.
    fn durable(&self, partition: PartitionId) -> Offset;

    /// Drops records below `upto`. An implementation may drop fewer, so [`Log::start`] may stay below `upto`.
    fn truncate(&self, partition: PartitionId, upto: Offset) -> Result<()>;

    /// Returns the storage that the partition's records occupy, in bytes, or an estimate; 0 for a partition that the log
    /// does not have.
    fn bytes(&self, partition: PartitionId) -> u64;

    /// Returns why the log does not work at present, for health reports; `None` while it works.
    fn problem(&self) -> Option<String> {
        None
    }

    /// Makes the records below `ends`, one offset per partition, durable and returns the files of a copy of the log that
    /// ends there. The log must not be truncated during the call; afterwards the files stay readable.
    ///
    /// Errors: `Invalid` for an end that the log has not reached and for a log that is not in files; `Unavailable` when
    /// the disk fails.
    fn files(&self, _ends: &[Offset]) -> Result<Vec<LogFile>> {
        Err(no_files())
    }

    /// Makes everything appended so far durable.
    fn flush(&self) -> Result<()>;

    /// Flushes like [`Log::flush`], then refuses appends; reads still work. A second call does nothing.
    fn close(&self) -> Result<()>;
}

/// A log with a single writing process, which therefore assigns offsets at once and can append groups.
///
/// The files of a process use it, such as the delivery queues of sinks and the change log. Records of partitions are appended through
/// [`Log`], because a log that several processes share cannot do this.
pub trait GroupLog: Log {
    /// Assigns offsets to the payloads and buffers them as records; returns before they are durable. The records have
    /// the given time, whatever the time of the records before.
    ///
    /// The payloads form one group: their offsets are consecutive, and after a crash either all of them or
    /// none are present. Readers see them from now on.
    ///
    /// Bounds: while more bytes than the log's limit wait for the disk, the call blocks for a bounded time.
    /// Errors: `Invalid` for an empty group, `LimitReached` for a payload or group that is too large and when
    /// the wait times out, `Unavailable` while the disk is full or fails. A rejected group gets no offsets
    /// and nothing of it is stored.
    fn write(&self, partition: PartitionId, time: Timestamp, payloads: &[&[u8]]) -> Result<AppendResult>;

    /// Like [`GroupLog::write`], but takes ownership of the payloads, so that an implementation can share their
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

    /// Calls [`GroupLog::write`], then [`Log::sync`].
    fn write_and_sync(
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
}
