//! A log that several engines of a simulation append to and consume, as one outside of their processes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tidemill_log::{
    Attachment, ConsumedRecord, Content, Durability, Log, MemoryLog, NewRecord, Record, Subscription, Ticket,
};
use tidemill_types::{Error, Offset, PartitionId, Result};

/// Interval at which a thread looks for records.
const NEXT_POLL: Duration = Duration::from_millis(1);

/// The log as one of the engines has it. Entries reach an owner by their payload, and those that its own engine appended for a caller who
/// waits also with what is attached. A partition may be consumed by more than one, as by an owner that does not know yet that it has
/// lost the partition.
pub struct SharedLog {
    log: Arc<MemoryLog>,
    attached: Arc<Mutex<Attached>>,
    cut_off: Arc<AtomicBool>,
    /// True until the engine asks for the ends of the log.
    ends_unknown: AtomicBool,
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
        Self { log, attached: Arc::default(), cut_off: Arc::default(), ends_unknown: AtomicBool::new(false) }
    }

    /// Returns the log for one engine that was opened when it was empty: the engine knows of no record until it asks for the
    /// ends.
    pub fn opened_when_empty(log: Arc<MemoryLog>) -> Self {
        Self { ends_unknown: AtomicBool::new(true), ..Self::new(log) }
    }

    /// Cuts the engine off from the log, or connects it again: it appends nothing and gets no records meanwhile.
    pub fn set_cut_off(&self, cut_off: bool) {
        self.cut_off.store(cut_off, Ordering::Release);
    }
}

impl Log for SharedLog {
    fn partitions(&self) -> u32 {
        self.log.partitions()
    }

    fn append(&self, partition: PartitionId, record: NewRecord, durability: Durability) -> Result<Ticket> {
        if self.cut_off.load(Ordering::Acquire) {
            return Err(Error::unavailable("the log cannot be reached"));
        }
        let NewRecord { payload, attachment } = record;
        // consumers do not see the record before what is attached to it
        let mut attached = self.attached.lock();
        let ticket = self.log.append(partition, NewRecord { payload, attachment: None }, durability)?;
        let assigned = ticket.assigned();
        let offset =
            assigned.ok_or_else(|| Error::internal("a log in memory assigns offsets at once"))?.offset;
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
            cut_off: self.cut_off.clone(),
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
        match self.ends_unknown.load(Ordering::Acquire) {
            true => Offset::default(),
            false => self.log.end(partition),
        }
    }

    fn latest_ends(&self) -> Result<Vec<Offset>> {
        match self.cut_off.load(Ordering::Acquire) {
            true => Err(Error::unavailable("the log cannot be reached")),
            false => {
                self.ends_unknown.store(false, Ordering::Release);
                self.log.latest_ends()
            }
        }
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
    cut_off: Arc<AtomicBool>,
    next: Mutex<Offset>,
    open: AtomicBool,
}

impl Subscription for Consumer {
    /// Waits for records. A simulation has no threads that could wait, and polls.
    fn next(&self, records_max: usize) -> Result<Option<Vec<ConsumedRecord>>> {
        loop {
            let records = self.poll(records_max)?;
            if !self.open.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if !records.is_empty() {
                return Ok(Some(records));
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "engines with threads have no clock that a simulation advances"
            )]
            std::thread::sleep(NEXT_POLL);
        }
    }

    fn poll(&self, records_max: usize) -> Result<Vec<ConsumedRecord>> {
        let mut next = self.next.lock();
        let mut attached = self.attached.lock();
        if *next >= self.log.end(self.partition) || self.cut_off.load(Ordering::Acquire) {
            return Ok(Vec::new());
        }
        let records = self.log.read(self.partition, *next, usize::MAX)?;
        let records: Vec<_> = records.into_iter().take(records_max).collect();
        if let Some(last) = records.last() {
            *next = last.offset.next();
        }
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
