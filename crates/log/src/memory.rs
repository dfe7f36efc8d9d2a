//! An in-memory log for tests.

use parking_lot::Mutex;
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use crate::api::{AppendResult, Durability, Log, Record};
use crate::local::no_partition;

/// An in-memory log for tests and experiments; nothing survives the value.
///
/// It reports success for every requested durability, so that code under test takes the code path that it
/// takes with a disk.
/// Bounds: `bytes_max` of payloads over all partitions, then `LimitReached`.
pub struct MemoryLog {
    partitions: Vec<Mutex<MemoryPartition>>,
    bytes_max: usize,
}

#[derive(Default)]
struct MemoryPartition {
    start: u64,
    records: Vec<Record>,
    bytes: usize,
    closed: bool,
}

impl MemoryPartition {
    fn end(&self) -> u64 {
        self.start + self.records.len() as u64
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
        Self { bytes_max: bytes_max / partitions.len().max(1), partitions }
    }

    fn partition(&self, id: PartitionId) -> Result<&Mutex<MemoryPartition>> {
        self.partitions.get(id.0 as usize).ok_or_else(|| no_partition(id, self.partitions()))
    }
}

impl Log for MemoryLog {
    fn partitions(&self) -> u32 {
        self.partitions.len() as u32
    }

    fn write(&self, partition: PartitionId, time: Timestamp, payloads: &[&[u8]]) -> Result<AppendResult> {
        let mut part = self.partition(partition)?.lock();
        if payloads.is_empty() {
            return Err(Error::invalid(
                "a group of no records cannot be appended: give at least one payload",
            ));
        }
        if part.closed {
            return Err(Error::unavailable("the log is closed: open it again to write"));
        }
        let bytes: usize = payloads.iter().map(|p| p.len()).sum();
        if part.bytes + bytes > self.bytes_max {
            return Err(Error::limit(format!(
                "partition {partition} of the log in memory holds {} bytes and cannot take {bytes} more, the limit is {}",
                part.bytes, self.bytes_max
            )));
        }
        part.bytes += bytes;
        let first = part.end();
        for (i, payload) in payloads.iter().enumerate() {
            let payload = bytes::Bytes::copy_from_slice(payload);
            part.records.push(Record { offset: Offset(first + i as u64), time, payload });
        }
        let last = Offset(part.end() - 1);
        Ok(AppendResult { first: Offset(first), last, durability: Durability::Memory })
    }

    fn sync(&self, partition: PartitionId, upto: Offset, _: Durability) -> Result<()> {
        let end = self.partition(partition)?.lock().end();
        if upto.0 >= end {
            return Err(Error::invalid(format!("offset {upto} cannot be synced: the log ends at {end}")));
        }
        Ok(())
    }

    fn read(&self, partition: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>> {
        let part = self.partition(partition)?.lock();
        if from.0 < part.start {
            let start = part.start;
            return Err(Error::not_found(format!(
                "offset {from} was truncated away: the log starts at {start}"
            )));
        }
        if from.0 > part.end() {
            return Err(Error::invalid(format!(
                "offset {from} is behind the end of the log, {}",
                part.end()
            )));
        }
        let mut taken = 0;
        let from = (from.0 - part.start) as usize;
        let fit = part.records[from..].iter().take_while(|r| {
            let is_first = taken == 0;
            taken += r.payload.len() + crate::format::RECORD_HEADER_BYTES;
            is_first || taken <= max_bytes
        });
        Ok(fit.cloned().collect())
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
        self.partitions.iter().for_each(|p| p.lock().closed = true);
        Ok(())
    }
}
