//! What waits to be applied by a partition's owner, in log order.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crossbeam_channel::Sender;
use parking_lot::{Condvar, Mutex};
use tidemill_log::Durability;
use tidemill_types::{Error, Offset, Result, Timestamp};

use crate::apply::ApplyReply;
use crate::entry::Entry;

/// How long a wait lasts before it looks whether the engine is stopping.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// One log record on its way to the partition's owner.
pub struct PendingRecord {
    /// Its offset.
    pub offset: Offset,
    /// When it was appended.
    pub time: Timestamp,
    /// How durable it must be before it is applied.
    pub durability: Durability,
    /// What it holds.
    pub entry: Entry,
    /// Its size in the log, for the bound.
    pub bytes: usize,
    /// Who waits for what becomes of it.
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
    pub fn wait_for_room(&self, timeout: Duration) -> Result<()> {
        let deadline = Instant::now() + timeout;
        let mut inner = self.inner.lock();
        loop {
            if inner.rejecting {
                return Err(Error::unavailable("the engine is stopping"));
            }
            if inner.bytes < self.bytes_max {
                return Ok(());
            }
            if self.changed.wait_until(&mut inner, deadline).timed_out() {
                return Err(Error::limit(format!(
                    "{} bytes wait to be applied (inbox_bytes = {}): send slower",
                    inner.bytes, self.bytes_max
                )));
            }
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

/// Counts records that are written but not applied, so that callers can wait for quiet.
#[derive(Default)]
pub struct InFlight {
    count: Mutex<usize>,
    drained: Condvar,
}

impl InFlight {
    /// One more.
    pub fn add(&self) {
        *self.count.lock() += 1;
    }

    /// `n` fewer.
    pub fn done(&self, n: usize) {
        let mut count = self.count.lock();
        *count -= n;
        if *count == 0 {
            self.drained.notify_all();
        }
    }

    /// Whether there are none.
    pub fn is_drained(&self) -> bool {
        *self.count.lock() == 0
    }

    /// Waits until there are none or `stopping` says that nobody works on them.
    pub fn wait_until_drained_or(&self, stopping: impl Fn() -> bool) {
        let mut count = self.count.lock();
        while *count > 0 && !stopping() {
            self.drained.wait_for(&mut count, POLL_INTERVAL);
        }
    }

    /// Waits until there are none or `timeout` is over.
    pub fn wait_until_drained_for(&self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut count = self.count.lock();
        while *count > 0 {
            if self.drained.wait_until(&mut count, deadline).timed_out() {
                return;
            }
        }
    }
}
