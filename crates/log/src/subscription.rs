//! Consuming a partition.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};

use crate::appender_clock::clock_at;
use crate::record::{Attachment, Record};

/// Bytes that one read of the log asks for.
const READ_BYTES: usize = 1 << 20;

/// The owner's position in a partition.
///
/// Dropping it does what [`Subscription::close`] does.
pub trait Subscription: Send + Sync {
    /// Waits for records and returns the next ones in the order of their offsets, without gaps, up to `records_max`.
    /// `None` once [`Subscription::close`] was called.
    ///
    /// Errors: `Unavailable` when the log cannot be reached: a later call continues at the same record. `NotFound` when
    /// the next record was truncated, `Corrupt` when it is damaged.
    fn next(&self, records_max: usize) -> Result<Option<Vec<ConsumedRecord>>>;

    /// Like [`Subscription::next`], but returns an empty vector instead of waiting.
    fn poll(&self, records_max: usize) -> Result<Vec<ConsumedRecord>>;

    /// Ends the subscription: wakes the thread in [`Subscription::next`] and drops attachments that were not consumed.
    /// The records stay in the log, and the partition may be consumed again.
    fn close(&self);
}

/// A record as its partition's owner gets it.
pub struct ConsumedRecord {
    /// Position in the partition.
    pub offset: Offset,
    /// Time that the log assigned.
    pub time: Timestamp,
    /// Clock of the appender, as in [`Record::clock`].
    pub clock: u64,
    /// Content of the record.
    pub content: Content,
}

/// Content of a record.
pub enum Content {
    /// The value that the appender handed over, instead of the payload.
    Attachment(Attachment),
    /// The payload, if the record has no attachment.
    Payload(Bytes),
}

/// Attachments on their way from the appenders of a partition to its subscription in the same process.
#[derive(Default)]
pub(crate) struct HandOver {
    state: Mutex<HandOverState>,
    changed: Condvar,
}

#[derive(Default)]
struct HandOverState {
    /// In the order of offsets; records in between have none.
    attached: VecDeque<(u64, Timestamp, Attachment)>,
    /// Offset after the last appended record.
    end: u64,
    closed: bool,
}

impl HandOver {
    /// Starts at the end of the partition.
    pub(crate) fn new(end: u64) -> Self {
        let state = HandOverState { end, ..HandOverState::default() };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Returns whether `hand_over` is that of a subscription which has not ended.
    pub(crate) fn is_open(hand_over: &Weak<Self>) -> bool {
        hand_over.upgrade().is_some_and(|hand_over| !hand_over.state.lock().closed)
    }

    /// Announces records up to `end`; the attachment belongs to the last of them. The caller holds the lock under which
    /// it assigned the offsets, so that the order is the same. A closed
    /// subscription drops the attachment.
    pub(crate) fn push(&self, end: u64, time: Timestamp, attachment: Option<Attachment>) {
        let mut state = self.state.lock();
        state.end = end;
        if state.closed {
            return;
        }
        state.attached.extend(attachment.map(|attachment| (end - 1, time, attachment)));
        drop(state);
        self.changed.notify_all();
    }
}

/// Reads records of one partition.
pub(crate) trait ReadRecords: Send + Sync {
    fn read_records(&self, partition: PartitionId, from: Offset, max_bytes: usize) -> Result<Vec<Record>>;
}

/// Subscription to a partition of a log in this process: takes attachments where available, and otherwise
/// reads the log.
pub(crate) struct LocalSubscription<L> {
    pub log: L,
    pub partition: PartitionId,
    pub next: Mutex<u64>,
    pub hand_over: Arc<HandOver>,
}

impl<L: ReadRecords> LocalSubscription<L> {
    fn take(&self, next: &mut u64, records_max: usize) -> Result<Vec<ConsumedRecord>> {
        let unattached_end = {
            let mut state = self.hand_over.state.lock();
            let mut taken = Vec::new();
            while taken.len() < records_max
                && let Some((offset, time, attachment)) =
                    state.attached.pop_front_if(|(offset, ..)| *offset == *next)
            {
                let content = Content::Attachment(attachment);
                let clock = clock_at(time);
                taken.push(ConsumedRecord { offset: Offset(offset), time, clock, content });
                *next += 1;
            }
            if !taken.is_empty() {
                return Ok(taken);
            }
            state.attached.front().map_or(state.end, |(offset, ..)| *offset)
        };
        if *next >= unattached_end {
            return Ok(Vec::new());
        }
        let records = self.log.read_records(self.partition, Offset(*next), READ_BYTES)?;
        let own = records.into_iter().take_while(|record| record.offset.0 < unattached_end).take(records_max);
        let consumed = |Record { offset, time, clock, payload }: Record| ConsumedRecord {
            offset,
            time,
            clock,
            content: Content::Payload(payload),
        };
        let taken: Vec<_> = own.map(consumed).collect();
        *next += taken.len() as u64;
        Ok(taken)
    }
}

impl<L: ReadRecords> Subscription for LocalSubscription<L> {
    fn next(&self, records_max: usize) -> Result<Option<Vec<ConsumedRecord>>> {
        let mut next = self.next.lock();
        loop {
            {
                let mut state = self.hand_over.state.lock();
                while state.end <= *next && !state.closed {
                    self.hand_over.changed.wait(&mut state);
                }
                if state.closed {
                    return Ok(None);
                }
            }
            let taken = self.take(&mut next, records_max)?;
            if !taken.is_empty() {
                return Ok(Some(taken));
            }
        }
    }

    fn poll(&self, records_max: usize) -> Result<Vec<ConsumedRecord>> {
        self.take(&mut self.next.lock(), records_max)
    }

    fn close(&self) {
        let attached = {
            let mut state = self.hand_over.state.lock();
            state.closed = true;
            std::mem::take(&mut state.attached)
        };
        // the values may run code of the appender when they are dropped, so not under the lock
        drop(attached);
        self.hand_over.changed.notify_all();
    }
}

/// Returns the error for a second subscription.
pub(crate) fn already_subscribed(partition: PartitionId) -> Error {
    Error::conflict(format!(
        "partition {partition} of the log is consumed already: end that subscription first"
    ))
}

/// Returns the error for a position after the end of a partition.
pub(crate) fn behind_end(from: Offset, end: u64) -> Error {
    Error::invalid(format!("offset {from} is behind the end of the log, {end}"))
}

/// Returns the error for a position before the start of a partition.
pub(crate) fn below_start(from: Offset, start: u64) -> Error {
    Error::not_found(format!("offset {from} was truncated away: the log starts at {start}"))
}
