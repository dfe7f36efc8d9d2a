//! What a partition's records emitted for other partitions, on its way into their logs.
//!
//! Nothing leaves a partition before the record that it follows from is on the disk. Were it otherwise, a crash could
//! take the cause and leave the effect: the cause's offset would be given out again, and what the new record emits
//! would be taken for a repetition; or the cause would be sent once more from one hop before, get another offset, and
//! its effect would be there twice.
//!
//! The owner puts what a round emitted into the outbox and continues; the partition's forwarder waits for the
//! disk and appends to the other logs. An emission stays in the outbox, and with it in every checkpoint,
//! until the log that it went to has it on the disk. So no checkpoint depends on another partition's log.

use std::collections::VecDeque;
use std::time::Duration;

use crossbeam_channel::Sender;
use parking_lot::{Condvar, Mutex};
use tidemill_log::Log;
use tidemill_types::{Offset, PartitionId, Result};

use crate::apply::ApplyReply;
use crate::entry::Emission;

/// Interval at which a wait checks whether the engine is stopping.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Answers that are given once their records' emissions are in the logs that they belong to.
pub type Replies = Vec<(Sender<Result<ApplyReply>>, Result<ApplyReply>)>;

/// A queue of emissions in the order of their causes, bounded in bytes.
pub struct Outbox {
    inner: Mutex<Inner>,
    changed: Condvar,
    bytes_max: usize,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<EmissionBatch>,
    bytes: usize,
    /// In their target's log at this offset, which was not known to be on the disk.
    sent: VecDeque<(Emission, Offset)>,
    closed: bool,
}

/// Emissions of one round.
struct EmissionBatch {
    emissions: Vec<Emission>,
    replies: Replies,
    bytes: usize,
}

impl Outbox {
    /// Holds about `bytes_max` that wait; the owner looks for room before a round, so one round may exceed it.
    pub fn new(bytes_max: usize) -> Self {
        Self { inner: Mutex::default(), changed: Condvar::new(), bytes_max }
    }

    /// Waits until there is room or `stopping` says that none will be made.
    pub fn wait_for_room(&self, stopping: impl Fn() -> bool) {
        let mut inner = self.inner.lock();
        while inner.bytes >= self.bytes_max && !inner.closed && !stopping() {
            self.changed.wait_for(&mut inner, POLL_INTERVAL);
        }
    }

    /// Adds what a round emitted, and the answers that wait for it to be sent.
    pub fn push(&self, emissions: Vec<Emission>, replies: Replies) {
        let bytes = emissions.iter().map(Emission::bytes).sum();
        let mut inner = self.inner.lock();
        inner.bytes += bytes;
        inner.waiting.push_back(EmissionBatch { emissions, replies, bytes });
        self.changed.notify_all();
    }

    /// The oldest round's emissions, which stay in the outbox.
    pub fn peek(&self) -> Option<Vec<Emission>> {
        self.inner.lock().waiting.front().map(|parcel| parcel.emissions.clone())
    }

    /// Waits for emissions and returns the oldest round's, which stay in the outbox. `None` once closed.
    pub fn wait_front(&self) -> Option<Vec<Emission>> {
        let mut inner = self.inner.lock();
        loop {
            if inner.closed {
                return None;
            }
            if let Some(parcel) = inner.waiting.front() {
                return Some(parcel.emissions.clone());
            }
            self.changed.wait(&mut inner);
        }
    }

    /// The oldest round's emissions were appended at these offsets. Returns the answers that waited for it.
    pub fn mark_sent(&self, offsets: Vec<Offset>, log: &dyn Log) -> Replies {
        let mut inner = self.inner.lock();
        let Some(parcel) = inner.waiting.pop_front() else { return Replies::new() };
        inner.bytes -= parcel.bytes;
        inner.sent.extend(parcel.emissions.into_iter().zip(offsets));
        inner.drop_durable(log);
        self.changed.notify_all();
        parcel.replies
    }

    /// Everything that is not known to be on the disk of the log that it belongs to, in the order of causes.
    pub fn unconfirmed(&self, log: &dyn Log) -> Vec<Emission> {
        let mut inner = self.inner.lock();
        inner.drop_durable(log);
        let waiting = inner.waiting.iter().flat_map(|p| p.emissions.iter().cloned());
        inner.sent.iter().map(|(emission, _)| emission.clone()).chain(waiting).collect()
    }

    /// Rows that wait to be appended to the log of `target`.
    pub fn pending_rows(&self, target: PartitionId) -> u64 {
        let inner = self.inner.lock();
        let emissions = inner.waiting.iter().flat_map(|p| &p.emissions).filter(|e| e.target == target);
        emissions.map(|e| e.events.rows() as u64).sum()
    }

    /// Ends the forwarder. What waits stays for the last checkpoint. Returns the answers that waited for it to be sent.
    #[must_use]
    pub fn close(&self) -> Replies {
        let mut inner = self.inner.lock();
        inner.closed = true;
        self.changed.notify_all();
        inner.waiting.iter_mut().flat_map(|parcel| std::mem::take(&mut parcel.replies)).collect()
    }

    /// Returns the number of rounds whose emissions wait.
    pub fn waiting_rounds(&self) -> usize {
        self.inner.lock().waiting.len()
    }
}

impl Inner {
    fn drop_durable(&mut self, log: &dyn Log) {
        self.sent.retain(|(emission, offset)| log.durable(emission.target) <= *offset);
    }
}
