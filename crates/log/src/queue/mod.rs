//! Named transactional queues on one partition of a log.
//!
//! Many queues share the partition. A [`Tx`] puts any number of items into any queues and commits them
//! atomically: one record per queue, one group, one `fsync`. Consumers take items exclusively and acknowledge
//! them. Items that were taken and not acknowledged are available again after a restart (at-least-once
//! delivery).
//!
//! ```
//! use std::sync::Arc;
//! use tidemill_log::{Durability, MemoryLog, queue::{QueueOptions, Queues}};
//! use tidemill_types::PartitionId;
//!
//! let queues = Queues::open(Arc::new(MemoryLog::new(1)), PartitionId(0), QueueOptions::default())?;
//! let mut tx = queues.begin();
//! tx.put("mail", b"first")?;
//! tx.put("mail", b"second")?;
//! tx.commit(Durability::Fsync)?;
//! let taken = queues.take("mail", 10);
//! assert_eq!(&taken[0].1[..], b"first");
//! queues.ack(&[taken[0].0])?;
//! # Ok::<(), tidemill_types::Error>(())
//! ```
//!
//! The log is truncated up to the oldest item that is not acknowledged. When such an item retains more than
//! `compact_bytes_min` of log, most of it acknowledged, it is rewritten at the end, so that one forgotten
//! item does not retain everything after it. Rewriting adds at most a third to the bytes written otherwise.

mod batch;
mod entry;
mod state;
mod tx;

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use self::entry::{Entry, ItemRun};
use self::state::State;
pub use self::tx::Tx;
use crate::api::GroupLog;
use crate::options::machine_time;
use crate::record::Durability;

/// Read size in bytes while the queues are rebuilt.
const READ_BYTES: usize = 4 << 20;
/// Size in bytes after which one acknowledgement stops rewriting items.
const MOVE_BYTES_MAX: usize = 1 << 20;

/// Limits of the queues of one partition.
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// Maximum memory of all unacknowledged items with their overhead, in bytes. An item retains the memory
    /// of its whole commit until it is rewritten.
    pub items_bytes_max: usize,
    /// Items are rewritten at the end of the log when the oldest retains more log than this, in bytes, and
    /// three quarters of that are acknowledged.
    pub compact_bytes_min: u64,
    /// Source of the time of records.
    pub clock: fn() -> Timestamp,
}

impl Default for QueueOptions {
    /// Returns the defaults: 256 MiB of items, rewriting above 64 MiB of log, the system clock.
    fn default() -> Self {
        Self { items_bytes_max: 256 << 20, compact_bytes_min: 64 << 20, clock: machine_time }
    }
}

/// Permanent id of an item: the offset of the record that put it and its index there. Displayed as `1042/7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId {
    origin: u64,
    index: u32,
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.origin, self.index)
    }
}

/// All queues of one partition; clones share them.
///
/// The partition must not contain records of other writers.
#[derive(Clone)]
pub struct Queues {
    inner: Arc<Inner>,
}

struct Inner {
    log: Arc<dyn GroupLog>,
    partition: PartitionId,
    options: QueueOptions,
    state: Mutex<State>,
    /// Bookkeeping for acknowledgements; has its own lock, because some of it is used without the state's
    /// lock.
    ack_state: Mutex<AckState>,
}

/// Lock order: locked while the state's lock is held, or alone.
#[derive(Default)]
struct AckState {
    /// Offset of the last record that permits truncation of earlier ones (an acknowledgement or a move).
    last: Option<u64>,
    /// Items of failed commits, to be acknowledged before the next write.
    rollbacks: Vec<ItemRun>,
}

impl Queues {
    /// Rebuilds the queues from the partition's records; all items are untaken.
    ///
    /// Errors: `Corrupt` when a record is not a queue entry, `Invalid` for a partition that the log does not
    /// have.
    pub fn open(log: Arc<dyn GroupLog>, partition: PartitionId, options: QueueOptions) -> Result<Self> {
        if partition.0 >= log.partitions() {
            return Err(crate::local::no_partition(partition, log.partitions()));
        }
        let mut state = State::default();
        let mut at = log.start(partition);
        let mut settling = AckState::default();
        loop {
            let records = log.read(partition, at, READ_BYTES)?;
            let Some(last) = records.last() else { break };
            at = last.offset.next();
            for record in records {
                // A copy, so that one small item does not retain the whole read buffer.
                let entry = entry::decode(Bytes::copy_from_slice(&record.payload)).map_err(|bad| {
                    Error::corrupt(format!(
                        "record {} of partition {partition} is no queue entry: {bad}. Only queues may write there",
                        record.offset
                    ))
                })?;
                if !matches!(entry, Entry::Put { .. }) {
                    settling.last = Some(record.offset.0);
                }
                state.apply(record.offset.0, record.payload.len(), entry);
            }
        }
        let inner =
            Inner { log, partition, options, state: Mutex::new(state), ack_state: Mutex::new(settling) };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Returns an empty transaction.
    pub fn begin(&self) -> Tx {
        Tx::new(self.clone())
    }

    /// Takes up to `max` items of queue `name`, oldest first. They are not handed out again until they are
    /// returned with [`Queues::nack`] or the queues are reopened. Empty when the queue has no items or does
    /// not exist.
    pub fn take(&self, name: &str, max: usize) -> Vec<(ItemId, Bytes)> {
        self.inner.state.lock().take(name, max)
    }

    /// Returns taken items to their queues; they are the next to be taken.
    ///
    /// Errors: `NotFound` when one of them is not taken; the others are returned nevertheless.
    pub fn nack(&self, ids: &[ItemId]) -> Result<()> {
        let mut state = self.inner.state.lock();
        let strangers: Vec<&ItemId> = ids.iter().filter(|id| !state.return_item(**id)).collect();
        match strangers.first() {
            None => Ok(()),
            Some(id) => Err(Error::not_found(format!(
                "item {id} cannot be given back: it is not taken ({} of {} are not)",
                strangers.len(),
                ids.len()
            ))),
        }
    }

    /// Acknowledges items permanently and waits until that is durable. Items that are already acknowledged
    /// are ignored, so a failed call can be repeated.
    ///
    /// Errors: those of [`Log::append`]. After `Unavailable` the items may or may not be present after a
    /// restart.
    pub fn ack(&self, ids: &[ItemId]) -> Result<()> {
        let inner = &*self.inner;
        {
            let mut state = inner.state.lock();
            let runs = state.live_runs(ids);
            if !runs.is_empty() {
                inner.write_rollbacks(&state)?;
                inner.write_acks(&mut state, &[&entry::ack(&runs)])?;
                state.finish(&runs);
            }
        }
        // Also without a write: an earlier call may have written and then failed to sync.
        inner.sync_acks()?;
        inner.compact_and_truncate()
    }

    /// Returns the number of items of queue `name` that are not acknowledged, taken or not.
    pub fn len(&self, name: &str) -> u64 {
        self.inner.state.lock().live(name)
    }

    /// Returns whether queue `name` has no items; true for a queue that does not exist.
    pub fn is_empty(&self, name: &str) -> bool {
        self.len(name) == 0
    }

    /// Returns the names of the queues that have items, in alphabetical order.
    pub fn names(&self) -> Vec<String> {
        self.inner.state.lock().names()
    }

    /// Returns the memory of all items in bytes, as counted against `items_bytes_max`.
    pub fn bytes(&self) -> usize {
        self.inner.state.lock().bytes()
    }
}

impl Inner {
    fn note_rollback(&self, origin: u64, count: u32) {
        self.ack_state.lock().rollbacks.push(ItemRun { origin, first: 0, count });
    }

    /// Acknowledges the items of failed commits, which no consumer has seen. The state has dropped them
    /// already; the parameter only ensures that its lock is held.
    fn write_rollbacks(&self, _: &State) -> Result<()> {
        let mut settling = self.ack_state.lock();
        if settling.rollbacks.is_empty() {
            return Ok(());
        }
        let entry = entry::ack(&settling.rollbacks);
        let written = self.log.write(self.partition, (self.options.clock)(), &[&entry])?;
        settling.last = Some(written.last.0);
        settling.rollbacks.clear();
        Ok(())
    }

    /// Writes entries that permit truncation of earlier ones once they are durable; returns the offset of the
    /// first.
    fn write_acks(&self, state: &mut State, entries: &[&[u8]]) -> Result<u64> {
        let written = self.log.write(self.partition, (self.options.clock)(), entries)?;
        entries.iter().for_each(|e| state.count_written(e.len()));
        self.ack_state.lock().last = Some(written.last.0);
        Ok(written.first.0)
    }

    fn sync_acks(&self) -> Result<()> {
        let last = self.ack_state.lock().last;
        last.map_or(Ok(()), |last| self.log.sync(self.partition, Offset(last), Durability::Fsync))
    }

    /// Rewrites items that retain too much of the log, then truncates the log up to the oldest item.
    fn compact_and_truncate(&self) -> Result<()> {
        if self.compact()? {
            self.sync_acks()?;
        }
        let upto = {
            let state = self.state.lock();
            let last = self.ack_state.lock().last;
            // Do not truncate because of a record that could still be lost.
            if last.is_some_and(|last| self.log.durable(self.partition).0 <= last) {
                return Ok(());
            }
            state.oldest().map_or_else(|| self.log.end(self.partition), Offset)
        };
        self.log.truncate(self.partition, upto)
    }

    /// Rewrites the oldest batches while they retain too much log. Returns whether it wrote any.
    fn compact(&self) -> Result<bool> {
        let mut state = self.state.lock();
        let mut moved = 0;
        while moved < MOVE_BYTES_MAX {
            let (pinned, live) = state.pinned_and_live_bytes();
            if pinned <= self.options.compact_bytes_min || live.saturating_mul(4) > pinned {
                break;
            }
            let Some(batch) = state.pending_items() else { break };
            let payload = entry::moved(&batch.queue, batch.origin, &batch.items);
            drop(batch);
            let written = self.log.write(self.partition, (self.options.clock)(), &[&payload])?;
            self.ack_state.lock().last = Some(written.last.0);
            moved += payload.len();
            let size = payload.len();
            let entry = entry::decode(payload.into())
                .map_err(|bad| Error::internal(format!("a moved queue entry cannot be read: {bad}")))?;
            state.apply(written.first.0, size, entry);
        }
        Ok(moved > 0)
    }
}
