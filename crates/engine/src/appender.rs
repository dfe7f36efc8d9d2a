//! Appending to the log of a partition, regardless of its owner.

use std::sync::Arc;

use bytes::Bytes;
use crossbeam_channel::Sender;
use parking_lot::Mutex;
use tidemill_log::{Durability, Log, NewRecord, Ticket};
use tidemill_types::{PartitionId, Result};

use crate::apply::ApplyReply;
use crate::entry::{Entry, EntryEncoder};
use crate::process::disk_space::DiskSpace;
use crate::state::backlog::{Backlog, BacklogPermit, InFlight};

/// Entry that this process appends beside the payload, so that an owner in the same process need not decode it.
pub struct AttachedEntry {
    /// Decoded payload.
    pub entry: Entry,
    /// Durability that the sender asked for.
    pub durability: Durability,
    /// Channel of the caller that waits for the outcome.
    pub reply: Option<Sender<Result<ApplyReply>>>,
    /// Counts the record among those that wait to be applied.
    pub permit: BacklogPermit,
}

/// Encodes entries and appends them to the log of one partition.
pub struct LogAppender {
    partition: PartitionId,
    log: Arc<dyn Log>,
    in_flight: InFlight,
    disk_space: Arc<DiskSpace>,
    encoder: Mutex<EntryEncoder>,
    /// Records appended by this process but not applied.
    pub backlog: Backlog,
}

impl LogAppender {
    /// Creates an appender. Senders wait while `backlog_bytes` wait to be applied.
    pub fn new(
        partition: PartitionId,
        log: Arc<dyn Log>,
        in_flight: InFlight,
        disk_space: Arc<DiskSpace>,
        backlog_bytes: usize,
    ) -> Self {
        let (encoder, backlog) = (Mutex::default(), Backlog::new(backlog_bytes));
        Self { partition, log, in_flight, disk_space, encoder, backlog }
    }

    /// Appends an entry, from which the owner gets it.
    ///
    /// Errors: those of [`Log::append`]; the entry is then not in the log.
    pub fn append(
        &self,
        entry: Entry,
        durability: Durability,
        reply: Option<Sender<Result<ApplyReply>>>,
    ) -> Result<Ticket> {
        let payload = Bytes::from(self.encoder.lock().encode(&entry)?);
        let bytes = payload.len();
        let permit = self.backlog.add(bytes, &self.in_flight);
        let attachment = Box::new(AttachedEntry { entry, durability, reply, permit });
        let record = NewRecord { payload, attachment: Some(attachment) };
        let ticket = self.log.append(self.partition, record, durability)?;
        self.disk_space.count_written(bytes);
        Ok(ticket)
    }
}
