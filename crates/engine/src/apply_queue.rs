//! What waits to be applied by a partition's owner, in log order.

use std::collections::VecDeque;
use std::time::Duration;

use crossbeam_channel::Sender;
use parking_lot::{Condvar, Mutex};
use tidemill_log::Durability;
use tidemill_types::{Error, Result};

use crate::apply::{ApplyReply, LogEntry};
use crate::clock::Clock;

/// How long a wait lasts before it looks whether the engine is stopping.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A log record that waits for the owner of its partition.
pub struct PendingRecord {
    /// The record.
    pub record: LogEntry,
    /// How durable it must be before it is applied.
    pub durability: Durability,
    /// Size of its payload in the log, in bytes.
    pub bytes: usize,
    /// Channel of the caller that waits for the outcome.
    pub reply: Option<Sender<Result<ApplyReply>>>,
}

/// A queue bounded in bytes.
pub struct ApplyQueue {
    inner: Mutex<Inner>,
    changed: Condvar,
    bytes_max: usize,
}

#[derive(Default)]
struct Inner {
    items: VecDeque<PendingRecord>,
    bytes: usize,
    rejecting: bool,
    closed: bool,
}

impl ApplyQueue {
    /// Holds up to about `bytes_max`; what rules send to other partitions is let in above that.
    pub fn new(bytes_max: usize) -> Self {
        Self { inner: Mutex::default(), changed: Condvar::new(), bytes_max }
    }

    /// Waits until there is room.
    ///
    /// Errors: `LimitReached` after `timeout`, `Unavailable` when closed.
    pub fn wait_for_room(&self, clock: &dyn Clock, timeout: Duration) -> Result<()> {
        let deadline = clock.monotonic() + timeout;
        let mut inner = self.inner.lock();
        loop {
            if inner.rejecting {
                return Err(Error::unavailable("the engine is stopping"));
            }
            if inner.bytes < self.bytes_max {
                return Ok(());
            }
            let block = clock.block_until(deadline);
            if block.is_zero() {
                return Err(Error::limit(format!(
                    "{} bytes wait to be applied (inbox_bytes = {}): send slower",
                    inner.bytes, self.bytes_max
                )));
            }
            self.changed.wait_for(&mut inner, block);
        }
    }

    /// Adds an item; never waits. False once closed: nobody takes it any more, and who waits for it learns that.
    pub fn push(&self, item: PendingRecord) -> bool {
        let mut inner = self.inner.lock();
        if inner.closed {
            return false;
        }
        inner.bytes += item.bytes;
        inner.items.push_back(item);
        self.changed.notify_all();
        true
    }

    /// Waits for items and takes all of up to `max`. `None` once closed and empty.
    pub fn take(&self, max: usize) -> Option<Vec<PendingRecord>> {
        let mut inner = self.inner.lock();
        while inner.items.is_empty() {
            if inner.closed {
                return None;
            }
            self.changed.wait(&mut inner);
        }
        let n = inner.items.len().min(max);
        Some(inner.items.drain(..n).collect())
    }

    /// Gives back the room of items that are applied now.
    pub fn release(&self, bytes: usize) {
        self.inner.lock().bytes -= bytes;
        self.changed.notify_all();
    }

    /// Items that wait, and bytes that wait or are being applied.
    pub fn depth(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.items.len(), inner.bytes)
    }

    /// Takes nothing more from senders.
    pub fn stop_accepting(&self) {
        self.inner.lock().rejecting = true;
        self.changed.notify_all();
    }

    /// Lets the owner finish what is here and end.
    pub fn close(&self) {
        let mut inner = self.inner.lock();
        inner.rejecting = true;
        inner.closed = true;
        drop(inner);
        self.changed.notify_all();
    }
}

/// Counts records that are appended but not applied, so that callers can wait until there are none.
#[derive(Default)]
pub struct InFlight {
    counts: Mutex<InFlightCounts>,
    drained: Condvar,
}

#[derive(Default)]
struct InFlightCounts {
    records: usize,
    bytes: usize,
}

impl InFlight {
    /// Adds a record of `bytes`.
    pub fn add(&self, bytes: usize) {
        let mut counts = self.counts.lock();
        counts.records += 1;
        counts.bytes += bytes;
    }

    /// Subtracts `records` with `bytes` altogether.
    pub fn done(&self, records: usize, bytes: usize) {
        let mut counts = self.counts.lock();
        counts.records -= records;
        counts.bytes -= bytes;
        if counts.records == 0 {
            self.drained.notify_all();
        }
    }

    /// Returns the bytes of the records; they may not be on the disk yet.
    pub fn bytes(&self) -> usize {
        self.counts.lock().bytes
    }

    /// Returns whether there are no records.
    pub fn is_drained(&self) -> bool {
        self.counts.lock().records == 0
    }

    /// Waits until there are no records, or until `stopping` says that no thread applies them any more.
    pub fn wait_until_drained_or(&self, stopping: impl Fn() -> bool) {
        let mut counts = self.counts.lock();
        while counts.records > 0 && !stopping() {
            self.drained.wait_for(&mut counts, POLL_INTERVAL);
        }
    }

    /// Waits until there are no records, or until `timeout` has passed on `clock`.
    pub fn wait_until_drained_for(&self, clock: &dyn Clock, timeout: Duration) {
        let deadline = clock.monotonic() + timeout;
        let mut counts = self.counts.lock();
        while counts.records > 0 {
            let block = clock.block_until(deadline);
            if block.is_zero() {
                return;
            }
            self.drained.wait_for(&mut counts, block);
        }
    }
}
