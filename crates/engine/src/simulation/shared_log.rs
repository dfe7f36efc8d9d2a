//! A log that several engines of a simulation append to and consume, as one outside of their processes.

use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_log::{
    ConsumedRecord, Content, Durability, Log, MemoryLog, NewRecord, Record, Subscription, Ticket,
};
use tidemill_types::{Offset, PartitionId, Result};

/// The log as one of the engines has it. Entries reach an owner by their payload only, also one that appended them. A partition may be
/// consumed by more than one, as by an owner that does not know yet that it has lost the partition.
pub struct SharedLog(pub Arc<MemoryLog>);

impl Log for SharedLog {
    fn partitions(&self) -> u32 {
        self.0.partitions()
    }

    fn append(&self, partition: PartitionId, record: NewRecord, durability: Durability) -> Result<Ticket> {
        self.0.append(partition, NewRecord { attachment: None, ..record }, durability)
    }

    fn subscribe(&self, partition: PartitionId, from: Offset) -> Result<Box<dyn Subscription>> {
        Ok(Box::new(Consumer { log: self.0.clone(), partition, next: Mutex::new(from) }))
    }

    fn sync(&self, partition: PartitionId, upto: Offset, durability: Durability) -> Result<()> {
        self.0.sync(partition, upto, durability)
    }

    fn read(&self, partition: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>> {
        self.0.read(partition, from, max_bytes)
    }

    fn start(&self, partition: PartitionId) -> Offset {
        self.0.start(partition)
    }

    fn end(&self, partition: PartitionId) -> Offset {
        self.0.end(partition)
    }

    fn durable(&self, partition: PartitionId) -> Offset {
        self.0.durable(partition)
    }

    fn truncate(&self, partition: PartitionId, upto: Offset) -> Result<()> {
        self.0.truncate(partition, upto)
    }

    fn bytes(&self, partition: PartitionId) -> u64 {
        self.0.bytes(partition)
    }

    fn flush(&self) -> Result<()> {
        self.0.flush()
    }

    /// The log outlives the engine.
    fn close(&self) -> Result<()> {
        Ok(())
    }
}

struct Consumer {
    log: Arc<MemoryLog>,
    partition: PartitionId,
    next: Mutex<Offset>,
}

impl Subscription for Consumer {
    /// A simulation has no threads that could wait.
    fn next(&self, records_max: usize) -> Result<Option<Vec<ConsumedRecord>>> {
        self.poll(records_max).map(Some)
    }

    fn poll(&self, records_max: usize) -> Result<Vec<ConsumedRecord>> {
        let mut next = self.next.lock();
        if *next >= self.log.end(self.partition) {
            return Ok(Vec::new());
        }
        let records = self.log.read(self.partition, *next, usize::MAX)?;
        let records: Vec<_> = records.into_iter().take(records_max).collect();
        if let Some(last) = records.last() {
            *next = last.offset.next();
        }
        let consumed = |Record { offset, time, payload }: Record| ConsumedRecord {
            offset,
            time,
            content: Content::Payload(payload),
        };
        Ok(records.into_iter().map(consumed).collect())
    }

    fn close(&self) {}
}
