//! An in-memory log for tests.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use crate::api::{GroupLog, Log};
use crate::appender_clock::clock_at;
use crate::local::no_partition;
use crate::options::LogClock;
use crate::record::{AppendResult, Attachment, Durability, NewRecord, Record};
use crate::subscription::{
    HandOver, LocalSubscription, ReadRecords, Subscription, already_subscribed, behind_end, below_start,
};
use crate::ticket::{AppendReceipt, SyncRecords, Ticket};

/// An in-memory log for tests and experiments; nothing survives the value.
///
/// It reports success for every requested durability, so that code under test takes the code path that it
/// takes with a disk.
/// Bounds: `bytes_max` of payloads over all partitions, then `LimitReached`.
pub struct MemoryLog {
    partitions: Arc<MemoryPartitions>,
    bytes_max: usize,
    clock: LogClock,
}

struct MemoryPartitions(Vec<Mutex<MemoryPartition>>);

#[derive(Default)]
struct MemoryPartition {
    start: u64,
    last_time: Option<Timestamp>,
    hand_over: Weak<HandOver>,
    records: Vec<Record>,
    bytes: usize,
    closed: bool,
}

impl MemoryPartition {
    fn end(&self) -> u64 {
        self.start + self.records.len() as u64
    }

    fn check_open(&self) -> Result<()> {
        match self.closed {
            true => Err(Error::unavailable("the log is closed: open it again to write")),
            false => Ok(()),
        }
    }

    /// Adds a record. Returns its offset.
    fn push(&mut self, time: Timestamp, payload: bytes::Bytes, attachment: Option<Attachment>) -> Offset {
        let offset = Offset(self.end());
        self.bytes += payload.len();
        self.last_time = self.last_time.max(Some(time));
        self.records.push(Record { offset, time, clock: clock_at(time), payload });
        if let Some(hand_over) = self.hand_over.upgrade() {
            hand_over.push(self.end(), time, attachment);
        }
        offset
    }
}

impl MemoryPartitions {
    fn get(&self, id: PartitionId) -> Result<&Mutex<MemoryPartition>> {
        self.0.get(id.0 as usize).ok_or_else(|| no_partition(id, self.0.len() as u32))
    }
}

impl SyncRecords for MemoryPartitions {
    fn sync_records(&self, id: PartitionId, upto: Offset, _: Durability) -> Result<()> {
        let end = self.get(id)?.lock().end();
        if upto.0 >= end {
            return Err(Error::invalid(format!("offset {upto} cannot be synced: the log ends at {end}")));
        }
        Ok(())
    }
}

impl ReadRecords for Arc<MemoryPartitions> {
    fn read_records(&self, id: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>> {
        let part = self.get(id)?.lock();
        if from.0 < part.start {
            return Err(below_start(from, part.start));
        }
        if from.0 > part.end() {
            return Err(behind_end(from, part.end()));
        }
        let mut taken = 0;
        let from = (from.0 - part.start) as usize;
        let fit = part.records[from..].iter().take_while(|r| {
            let is_first = taken == 0;
            taken += r.payload.len() + crate::segments::format::RECORD_HEADER_BYTES;
            is_first || taken <= max_bytes
        });
        Ok(fit.cloned().collect())
    }
}

impl MemoryLog {
    /// Returns an empty log with a limit of 1 GiB.
    pub fn new(partitions: u32) -> Self {
        Self::with_limit(partitions, 1 << 30)
    }

    /// Returns an empty log that stores up to `bytes_max` of payloads, divided evenly among its partitions.
    pub fn with_limit(partitions: u32, bytes_max: usize) -> Self {
        let partitions: Vec<_> = (0..partitions).map(|_| Mutex::default()).collect();
        let bytes_max = bytes_max / partitions.len().max(1);
        Self { bytes_max, partitions: Arc::new(MemoryPartitions(partitions)), clock: LogClock::default() }
    }

    /// Takes the times of appended records from `clock` instead of the machine.
    #[must_use]
    pub fn with_clock(self, clock: LogClock) -> Self {
        Self { clock, ..self }
    }

    fn partition(&self, id: PartitionId) -> Result<&Mutex<MemoryPartition>> {
        self.partitions.get(id)
    }

    fn check_room(&self, id: PartitionId, used: usize, more: usize) -> Result<()> {
        if used + more <= self.bytes_max {
            return Ok(());
        }
        Err(Error::limit(format!(
            "partition {id} of the log in memory holds {used} bytes and cannot take {more} more, the limit is {}",
            self.bytes_max
        )))
    }
}

impl Log for MemoryLog {
    fn partitions(&self) -> u32 {
        self.partitions.0.len() as u32
    }

    fn append(&self, partition: PartitionId, record: NewRecord, durability: Durability) -> Result<Ticket> {
        let mut part = self.partition(partition)?.lock();
        part.check_open()?;
        self.check_room(partition, part.bytes, record.payload.len())?;
        let now = self.clock.now();
        let time = part.last_time.map_or(now, |last| last.max(now));
        let offset = part.push(time, record.payload, record.attachment);
        let receipt = AppendReceipt { offset, time, durability };
        Ok(Ticket::assigned_by(self.partitions.clone(), partition, receipt, durability))
    }

    fn subscribe(&self, partition: PartitionId, from: Offset) -> Result<Box<dyn Subscription>> {
        let mut part = self.partition(partition)?.lock();
        if from.0 < part.start {
            return Err(below_start(from, part.start));
        }
        if from.0 > part.end() {
            return Err(behind_end(from, part.end()));
        }
        if HandOver::is_open(&part.hand_over) {
            return Err(already_subscribed(partition));
        }
        let hand_over = Arc::new(HandOver::new(part.end()));
        part.hand_over = Arc::downgrade(&hand_over);
        let (log, next) = (Arc::clone(&self.partitions), Mutex::new(from.0));
        Ok(Box::new(LocalSubscription { log, partition, next, hand_over }))
    }

    fn sync(&self, partition: PartitionId, upto: Offset, durability: Durability) -> Result<()> {
        self.partitions.sync_records(partition, upto, durability)
    }

    fn read(&self, partition: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>> {
        self.partitions.read_records(partition, from, max_bytes)
    }

    fn start(&self, partition: PartitionId) -> Offset {
        Offset(self.partition(partition).map_or(0, |p| p.lock().start))
    }

    fn end(&self, partition: PartitionId) -> Offset {
        Offset(self.partition(partition).map_or(0, |p| p.lock().end()))
    }

    fn durable(&self, partition: PartitionId) -> Offset {
        self.end(partition)
    }

    /// Drops exactly the records below `upto`, as there are no segments.
    fn truncate(&self, partition: PartitionId, upto: Offset) -> Result<()> {
        let mut part = self.partition(partition)?.lock();
        let n = upto.0.clamp(part.start, part.end()) - part.start;
        let gone: usize = part.records.drain(..n as usize).map(|r| r.payload.len()).sum();
        part.bytes -= gone;
        part.start += n;
        Ok(())
    }

    fn bytes(&self, partition: PartitionId) -> u64 {
        self.partition(partition).map_or(0, |p| p.lock().bytes as u64)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn close(&self) -> Result<()> {
        self.partitions.0.iter().for_each(|p| p.lock().closed = true);
        Ok(())
    }
}

impl GroupLog for MemoryLog {
    fn write(&self, partition: PartitionId, time: Timestamp, payloads: &[&[u8]]) -> Result<AppendResult> {
        let mut part = self.partition(partition)?.lock();
        if payloads.is_empty() {
            return Err(Error::invalid(
                "a group of no records cannot be appended: give at least one payload",
            ));
        }
        part.check_open()?;
        self.check_room(partition, part.bytes, payloads.iter().map(|p| p.len()).sum())?;
        let first = Offset(part.end());
        for payload in payloads {
            part.push(time, bytes::Bytes::copy_from_slice(payload), None);
        }
        Ok(AppendResult { first, last: Offset(part.end() - 1), durability: Durability::Memory })
    }
}
