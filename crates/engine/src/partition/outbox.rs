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
//!
//! The outbox of a standby sends nothing, as the owner does. It keeps what the owner may not have sent yet, and drops what has arrived
//! in the partitions that it belongs to; when the standby becomes the owner, it sends the rest.

use std::collections::{BTreeSet, VecDeque};
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
    /// The oldest batch is being sent.
    sending: bool,
    /// No other batch is sent.
    held: bool,
    /// A held outbox had more than it may keep, and has dropped all of it.
    overflowed: bool,
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
        while inner.bytes >= self.bytes_max && !inner.held && !inner.closed && !stopping() {
            self.changed.wait_for(&mut inner, POLL_INTERVAL);
        }
    }

    /// Adds what a round emitted, and the answers that wait for it to be sent. Returns those that need not wait, as a held outbox has too
    /// much to keep it.
    #[must_use]
    pub fn push(&self, emissions: Vec<Emission>, replies: Replies) -> Replies {
        let bytes: usize = emissions.iter().map(Emission::bytes).sum();
        let mut inner = self.inner.lock();
        if inner.held && (inner.overflowed || inner.bytes + bytes > self.bytes_max) {
            inner.overflowed = true;
            inner.bytes = 0;
            let dropped = std::mem::take(&mut inner.waiting);
            return dropped.into_iter().flat_map(|batch| batch.replies).chain(replies).collect();
        }
        inner.bytes += bytes;
        inner.waiting.push_back(EmissionBatch { emissions, replies, bytes });
        self.changed.notify_all();
        Replies::new()
    }

    /// Sends nothing from now on but the batch that is being sent, as another process owns the partition. Returns the number of batches that
    /// are kept.
    pub fn hold(&self) -> usize {
        let mut inner = self.inner.lock();
        inner.held = true;
        inner.waiting.len() - usize::from(inner.sending)
    }

    /// Sends from now on, as this process owns the partition, after a call of `count` with the number of batches that wait. Returns false, and
    /// sends nothing, if some were dropped.
    pub fn release(&self, count: impl FnOnce(usize)) -> bool {
        let mut inner = self.inner.lock();
        if inner.overflowed {
            return false;
        }
        inner.held = false;
        count(inner.waiting.len());
        self.changed.notify_all();
        true
    }

    /// Drops the oldest batches of a held outbox whose emissions have all arrived. Returns the answers that waited for them.
    #[must_use]
    pub fn drop_arrived(&self, has_arrived: impl Fn(&Emission) -> bool) -> Replies {
        let mut inner = self.inner.lock();
        let mut replies = Replies::new();
        // the one that is being sent is taken out by its sender
        while inner.held
            && !inner.sending
            && let Some(batch) = inner.waiting.pop_front_if(|batch| batch.emissions.iter().all(&has_arrived))
        {
            inner.bytes -= batch.bytes;
            replies.extend(batch.replies);
        }
        replies
    }

    /// The oldest round's emissions, which stay in the outbox.
    pub fn peek(&self) -> Option<Vec<Emission>> {
        self.inner.lock().send_next()
    }

    /// Waits for emissions and returns the oldest round's, which stay in the outbox. `None` once closed.
    pub fn wait_front(&self) -> Option<Vec<Emission>> {
        let mut inner = self.inner.lock();
        loop {
            if inner.closed {
                return None;
            }
            if let Some(emissions) = inner.send_next() {
                return Some(emissions);
            }
            self.changed.wait(&mut inner);
        }
    }

    /// The oldest round's emissions were appended at these offsets. Returns the answers that waited for it.
    pub fn mark_sent(&self, offsets: Vec<Offset>, log: &dyn Log) -> Replies {
        let mut inner = self.inner.lock();
        inner.sending = false;
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
        emissions.map(|e| e.rows() as u64).sum()
    }

    /// Ends the forwarder. What waits stays for the last checkpoint. Returns the answers that waited for it to be sent.
    #[must_use]
    pub fn close(&self) -> Replies {
        let mut inner = self.inner.lock();
        inner.closed = true;
        self.changed.notify_all();
        inner.waiting.iter_mut().flat_map(|parcel| std::mem::take(&mut parcel.replies)).collect()
    }

    /// Returns the number of batches that wait, whether they are held or not.
    #[cfg(feature = "sim")]
    pub fn batches(&self) -> usize {
        self.inner.lock().waiting.len()
    }

    /// Returns whether batches are kept for the next owner.
    pub fn keeps_batches(&self) -> bool {
        let inner = self.inner.lock();
        inner.held && !inner.waiting.is_empty()
    }

    /// Returns the partitions whose emissions are kept for the next owner.
    pub fn kept_targets(&self) -> BTreeSet<PartitionId> {
        let inner = self.inner.lock();
        let kept = inner.waiting.iter().filter(|_| inner.held).flat_map(|batch| &batch.emissions);
        kept.map(|emission| emission.target).collect()
    }

    /// Returns the number of rounds whose emissions wait to be sent.
    pub fn waiting_rounds(&self) -> usize {
        let inner = self.inner.lock();
        if inner.held { 0 } else { inner.waiting.len() }
    }
}

impl Inner {
    /// Returns the emissions that are sent next.
    fn send_next(&mut self) -> Option<Vec<Emission>> {
        let batch = self.waiting.front().filter(|_| !self.held)?;
        self.sending = true;
        Some(batch.emissions.clone())
    }

    fn drop_durable(&mut self, log: &dyn Log) {
        self.sent.retain(|(emission, offset)| log.durable(emission.target) <= *offset);
    }
}
