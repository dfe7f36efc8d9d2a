//! Named transactional queues on one partition of a log.
//!
//! Many queues share the partition. A [`Tx`] puts any number of items into any queues and commits them at once: one
//! record per queue, one group, one `fsync`. Consumers take items, which are then nobody else's, and acknowledge
//! them; what was taken and not acknowledged is there again after a restart (at least once).
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
//! The log is dropped up to the oldest item that is still wanted. When such an item holds more than
//! `compact_bytes_min` of log, most of it acknowledged, it is written again at the end, so that one forgotten item
//! does not keep everything behind it; what is written that way is at most a third of what is written otherwise.

mod batch;
mod entry;
mod state;
mod tx;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use self::entry::{Entry, ItemRun};
use self::state::State;
pub use self::tx::Tx;
use crate::api::{Durability, Log};

/// How much is read at a time when the queues are rebuilt.
const READ_BYTES: usize = 4 << 20;
/// How much is moved at a time, in one acknowledgement.
const MOVE_BYTES_MAX: usize = 1 << 20;

/// Limits of the queues of one partition.
#[derive(Debug, Clone)]
pub struct QueueOptions {
    /// What all items that are not acknowledged may take in memory, with their overhead. An item holds the memory of
    /// its whole commit until it is moved.
    pub items_bytes_max: usize,
    /// Items are moved to the end of the log when the oldest holds more than this, and three quarters of that are
    /// not wanted any more.
    pub compact_bytes_min: u64,
    /// Gives the time that records carry.
    pub clock: fn() -> Timestamp,
}

impl Default for QueueOptions {
    /// 256 MiB of items, 64 MiB of log before items are moved, the clock of the machine.
    fn default() -> Self {
        Self { items_bytes_max: 256 << 20, compact_bytes_min: 64 << 20, clock: machine_time }
    }
}

fn machine_time() -> Timestamp {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp(since.as_micros() as i64)
}

/// Names an item for good: the offset of the record that put it and its index there. Written `1042/7`.
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

/// All queues of one partition; clones are the same queues.
///
/// The partition is theirs alone: no other records may be in it.
#[derive(Clone)]
pub struct Queues {
    inner: Arc<Inner>,
}

struct Inner {
    log: Arc<dyn Log>,
    partition: PartitionId,
    options: QueueOptions,
    state: Mutex<State>,
    /// What was written but must be known as durable, and what must still be written.
    ack_state: Mutex<AckState>,
}

/// Locked inside the state's lock or alone.
#[derive(Default)]
struct AckState {
    /// Offset of the last record that allows to drop earlier ones (an acknowledgement or a move).
    last: Option<u64>,
    /// Items of failed commits, to be acknowledged with the next write.
    rollbacks: Vec<ItemRun>,
}

impl Queues {
    /// Rebuilds the queues from the partition's records; nothing is taken.
    ///
    /// Errors: `Corrupt` when a record is no queue entry, `Invalid` for a partition that the log does not have.
    pub fn open(log: Arc<dyn Log>, partition: PartitionId, options: QueueOptions) -> Result<Self> {
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
                // A copy, so that one small item does not hold all that was read with it.
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

    /// An empty transaction.
    pub fn begin(&self) -> Tx {
        Tx::new(self.clone())
    }

    /// Hands out up to `max` items of queue `name`, oldest first; they are not handed out again until they are given
    /// back or the queues are opened anew. Empty when there is nothing, also for a queue that nobody knows.
    pub fn take(&self, name: &str, max: usize) -> Vec<(ItemId, Bytes)> {
        self.inner.state.lock().take(name, max)
    }

    /// Gives taken items back; they are the next to be taken.
    ///
    /// Errors: `NotFound` when one of them is not taken now; the others are given back all the same.
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

    /// Acknowledges items for good: returns when that is on the disk. Items that are acknowledged already are fine,
    /// so a failed call can be repeated.
    ///
    /// Errors: those of [`Log::append`]. After `Unavailable` the items may or may not be there after a restart.
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
        // Also when there was nothing to write: the earlier call that did may have failed to sync.
        inner.sync_acks()?;
        inner.compact_and_truncate()
    }

    /// Items of queue `name` that are not acknowledged, taken or not.
    pub fn len(&self, name: &str) -> u64 {
        self.inner.state.lock().live(name)
    }

    /// Whether queue `name` has no items; so has one that nobody knows.
    pub fn is_empty(&self, name: &str) -> bool {
        self.len(name) == 0
    }

    /// The queues that have items, in alphabetical order.
    pub fn names(&self) -> Vec<String> {
        self.inner.state.lock().names()
    }

    /// What all items take in memory now, as counted against `items_bytes_max`.
    pub fn bytes(&self) -> usize {
        self.inner.state.lock().bytes()
    }
}

impl Inner {
    fn note_rollback(&self, origin: u64, count: u32) {
        self.ack_state.lock().rollbacks.push(ItemRun { origin, first: 0, count });
    }

    /// Acknowledges the items of failed commits, which nobody has seen. The state has let them go already; it is
    /// asked for so that its lock is held.
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

    /// Writes entries that allow to drop earlier ones once they are durable; returns the first one's offset.
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

    /// Moves items that hold too much of the log, then drops what nothing needs any more.
    fn compact_and_truncate(&self) -> Result<()> {
        if self.compact()? {
            self.sync_acks()?;
        }
        let upto = {
            let state = self.state.lock();
            let last = self.ack_state.lock().last;
            // Nothing may be dropped on the word of a record that could still be lost.
            if last.is_some_and(|last| self.log.durable(self.partition).0 <= last) {
                return Ok(());
            }
            state.oldest().map_or_else(|| self.log.end(self.partition), Offset)
        };
        self.log.truncate(self.partition, upto)
    }

    /// Whether something was moved.
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
