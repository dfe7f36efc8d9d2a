//! A log that several engines of a simulation append to and consume, as one outside of their processes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tidemill_log::{
    Attachment, ConsumedRecord, Content, Durability, Log, MemoryLog, NewRecord, Record, Subscription, Ticket,
};
use tidemill_types::{Offset, PartitionId, Result};

/// The log as one of the engines has it. Entries reach an owner by their payload, and those that its own engine appended for a caller who
/// waits also with what is attached. A partition may be consumed by more than one, as by an owner that does not know yet that it has
/// lost the partition.
pub struct SharedLog {
    log: Arc<MemoryLog>,
    attached: Arc<Mutex<Attached>>,
}

/// Attachments of entries that this engine has appended and not consumed.
#[derive(Default)]
struct Attached {
    /// Number of open consumers, by partition. What no one consumes here is not kept.
    consumers: HashMap<PartitionId, usize>,
    entries: HashMap<(PartitionId, Offset), Attachment>,
}

impl SharedLog {
    /// Returns the log for one engine.
    pub fn new(log: Arc<MemoryLog>) -> Self {
        Self { log, attached: Arc::default() }
    }
}

impl Log for SharedLog {
    fn partitions(&self) -> u32 {
        self.log.partitions()
    }

    fn append(&self, partition: PartitionId, record: NewRecord, durability: Durability) -> Result<Ticket> {
        // one thread appends, so that this is the offset
        let offset = self.log.end(partition);
        let NewRecord { payload, attachment } = record;
        let ticket = self.log.append(partition, NewRecord { payload, attachment: None }, durability)?;
        let mut attached = self.attached.lock();
        if attached.consumers.contains_key(&partition) {
            attached.entries.extend(attachment.map(|attachment| ((partition, offset), attachment)));
        }
        drop(attached);
        Ok(ticket)
    }

    fn subscribe(&self, partition: PartitionId, from: Offset) -> Result<Box<dyn Subscription>> {
        let (log, attached) = (self.log.clone(), self.attached.clone());
        *attached.lock().consumers.entry(partition).or_default() += 1;
        Ok(Box::new(Consumer {
            log,
            attached,
            partition,
            next: Mutex::new(from),
            open: AtomicBool::new(true),
        }))
    }

    fn sync(&self, partition: PartitionId, upto: Offset, durability: Durability) -> Result<()> {
        self.log.sync(partition, upto, durability)
    }

    fn read(&self, partition: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>> {
        self.log.read(partition, from, max_bytes)
    }

    fn start(&self, partition: PartitionId) -> Offset {
        self.log.start(partition)
    }

    fn end(&self, partition: PartitionId) -> Offset {
        self.log.end(partition)
    }

    fn durable(&self, partition: PartitionId) -> Offset {
        self.log.durable(partition)
    }

    fn truncate(&self, partition: PartitionId, upto: Offset) -> Result<()> {
        self.log.truncate(partition, upto)
    }

    fn bytes(&self, partition: PartitionId) -> u64 {
        self.log.bytes(partition)
    }

    fn flush(&self) -> Result<()> {
        self.log.flush()
    }

    /// The log outlives the engine.
    fn close(&self) -> Result<()> {
        Ok(())
    }
}

struct Consumer {
    log: Arc<MemoryLog>,
    attached: Arc<Mutex<Attached>>,
    partition: PartitionId,
    next: Mutex<Offset>,
    open: AtomicBool,
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
        let mut attached = self.attached.lock();
        let consumed = |Record { offset, time, clock, payload }: Record| {
            let attachment = attached.entries.remove(&(self.partition, offset));
            let content = attachment.map_or(Content::Payload(payload), Content::Attachment);
            ConsumedRecord { offset, time, clock, content }
        };
        Ok(records.into_iter().map(consumed).collect())
    }

    /// Callers of entries that no one consumes any more learn that no answer comes.
    fn close(&self) {
        let Attached { consumers, entries } = &mut *self.attached.lock();
        if !self.open.swap(false, Ordering::Relaxed) {
            return;
        }
        let open = consumers.entry(self.partition).or_default();
        *open -= 1;
        if *open == 0 {
            consumers.remove(&self.partition);
            entries.retain(|(partition, _), _| *partition != self.partition);
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.close();
    }
}
