//! The queue of one partition as part of its sink: what waits in it counts there, and its deliveries can be ended.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tidemill_connect::PartitionEpochs;
use tidemill_types::{EventId, PartitionId, Result};

use super::delivery_queue::DeliveryQueue;

/// Events and bytes that wait in all queues of a sink.
#[derive(Default)]
pub struct Totals {
    pub events: AtomicU64,
    pub memory_bytes: AtomicU64,
    pub file_bytes: AtomicU64,
}

/// Queue of a partition.
pub struct PartitionQueue {
    partition: PartitionId,
    /// Epoch in which this process owns the partition; 0 if it does not move between processes.
    epoch: AtomicU64,
    queue: Mutex<DeliveryQueue>,
    state: Mutex<QueueState>,
    totals: Arc<Totals>,
}

/// Part of a queue in deliveries and in the totals of its sink.
#[derive(Default)]
struct QueueState {
    counted: (u64, u64, u64),
    /// True while another process owns the partition: this one keeps the events until they are delivered there.
    is_standby: bool,
    /// Epoch of a later owner, which the other side knows.
    later_owner: Option<u64>,
    /// True if the partition is given up: nothing is delivered any more.
    is_closing: bool,
    /// True if it is not part of the totals any more.
    is_closed: bool,
    /// True while the other side is given events of it.
    is_delivering: bool,
}

impl QueueState {
    fn may_deliver(&self) -> bool {
        !self.is_standby && !self.is_closing && self.later_owner.is_none()
    }
}

impl PartitionQueue {
    /// Creates the queue of a partition that this process owns in `epoch`, 0 if it does not move; `None` if another process owns it. It counts
    /// in `totals`.
    pub fn new(
        partition: PartitionId,
        epoch: Option<u64>,
        queue: DeliveryQueue,
        totals: Arc<Totals>,
    ) -> Self {
        let state = QueueState { is_standby: epoch.is_none(), ..QueueState::default() };
        let epoch = AtomicU64::new(epoch.unwrap_or_default());
        let new = Self { partition, epoch, queue: Mutex::new(queue), state: Mutex::new(state), totals };
        new.with(|_| ());
        new
    }

    /// Delivers events of the partition from now on, which this process owns in `epoch`.
    pub fn become_owner(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Release);
        {
            let mut state = self.state.lock();
            (state.is_standby, state.later_owner) = (false, None);
        }
        self.with(|_| ());
    }

    /// Keeps events of the partition from now on, which another process owns. A delivery in progress may end.
    pub fn become_standby(&self) {
        self.state.lock().is_standby = true;
        self.with(|_| ());
    }

    /// Returns whether another process owns the partition.
    pub fn is_standby(&self) -> bool {
        self.state.lock().is_standby
    }

    /// Notes that the other side has the events up to `last`, as their owner says. A standby drops them.
    ///
    /// Errors: the files cannot be read.
    pub fn note_delivered(&self, last: EventId) -> Result<()> {
        self.with(|queue| {
            queue.set_announced(last);
            let state = self.state.lock();
            // rows that are being delivered are counted when that has ended
            let drops = state.is_standby && !state.is_delivering;
            drop(state);
            if drops { queue.drop_delivered() } else { Ok(()) }
        })
    }

    /// Returns the partition.
    pub fn partition(&self) -> PartitionId {
        self.partition
    }

    /// Uses the queue and counts what waits in it afterwards.
    pub fn with<T>(&self, step: impl FnOnce(&mut DeliveryQueue) -> T) -> T {
        let mut queue = self.queue.lock();
        let outcome = step(&mut queue);
        let (memory, files) = queue.bytes();
        self.count((queue.counts().waiting(), memory as u64, files));
        outcome
    }

    /// Holds the queue as it is.
    pub fn lock(&self) -> MutexGuard<'_, DeliveryQueue> {
        self.queue.lock()
    }

    fn count(&self, now: (u64, u64, u64)) {
        let mut state = self.state.lock();
        let (events, memory, files) = now;
        let now = match state.is_closed {
            true => (0, 0, 0),
            // its owner counts them
            false if state.is_standby => (0, memory, files),
            false => (events, memory, files),
        };
        let before = std::mem::replace(&mut state.counted, now);
        let add = |total: &AtomicU64, before: u64, now: u64| {
            // wraps in between, and the sum is right
            total.fetch_add(now.wrapping_sub(before), Ordering::AcqRel);
        };
        add(&self.totals.events, before.0, now.0);
        add(&self.totals.memory_bytes, before.1, now.1);
        add(&self.totals.file_bytes, before.2, now.2);
    }

    /// Notes that events of it are given to the other side, or not any more. Returns false if it delivers nothing any more.
    pub fn set_delivering(&self, is_delivering: bool) -> bool {
        let mut state = self.state.lock();
        state.is_delivering = is_delivering && state.may_deliver();
        state.may_deliver()
    }

    /// Ends deliveries: none begins any more.
    pub fn stop(&self) {
        self.state.lock().is_closing = true;
    }

    /// Ends deliveries, and counts no more in the totals.
    pub fn leave(&self) {
        {
            let mut state = self.state.lock();
            (state.is_closing, state.is_closed) = (true, true);
        }
        self.count((0, 0, 0));
    }

    /// Returns whether the other side is given events of it at the moment.
    pub fn is_delivering(&self) -> bool {
        self.state.lock().is_delivering
    }

    /// Returns whether it delivers events.
    pub fn may_deliver(&self) -> bool {
        self.state.lock().may_deliver()
    }

    /// Sets the epoch of a later owner, if the other side knows one.
    pub fn set_later_owner(&self, epoch: Option<u64>) {
        self.state.lock().later_owner = epoch;
    }

    /// Returns whether the other side knows a later owner.
    pub fn has_later_owner(&self) -> bool {
        self.state.lock().later_owner.is_some()
    }

    /// Returns the epoch in which this process owns the partition.
    pub fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
    }

    /// Returns whether it is among these partitions, in its epoch.
    pub fn is_in(&self, partitions: &PartitionEpochs) -> bool {
        !self.is_standby() && partitions.get(&self.partition) == Some(&self.epoch())
    }
}
