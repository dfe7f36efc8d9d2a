//! A partition that is read: its queue at the client, and the records that were moved out of that.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset as KafkaOffset, TopicPartitionList};
use tidemill_log::{ConsumedRecord, Content, clock_at};
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::config::KafkaConfig;
use crate::error::failed;
use crate::header::RecordHeader;
use crate::producer::{Context, Shared, time};

/// Memory that a buffered record takes beside its payload.
const RECORD_OVERHEAD_BYTES: usize = 128;
/// Longest wait at the client: a waiting reader notices after it that it was closed.
const CLOSE_POLL: Duration = Duration::from_millis(100);

/// A record, and the size of its payload, which an attachment may stand for.
pub(crate) struct Fetched {
    pub record: ConsumedRecord,
    pub payload_bytes: usize,
}

impl Fetched {
    fn bytes(&self) -> usize {
        let held = match &self.record.content {
            Content::Attachment(_) => 0,
            Content::Payload(payload) => payload.len(),
        };
        held + RECORD_OVERHEAD_BYTES
    }
}

/// Records that a reader asks for.
#[derive(Clone, Copy)]
pub(crate) struct Take {
    pub records_max: usize,
    /// No further record once the payloads have so many bytes.
    pub payload_bytes_max: usize,
    /// Time to wait for the first record.
    pub timeout: Duration,
}

/// Bounds of the bytes that are fetched ahead of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// Of the queue at the client, which a fetch may exceed by its size.
    pub queue: usize,
    /// Of a fetch.
    pub fetch: usize,
    /// Of the records that were moved out of the queue.
    pub buffer: usize,
}

/// A partition that is read from some offset on.
pub(crate) struct Position {
    shared: Arc<Shared>,
    pub partition: PartitionId,
    /// True if the reader gets attachments instead of payloads.
    takes_attachments: bool,
    bounds: Bounds,
    state: Mutex<State>,
    closed: AtomicBool,
}

struct State {
    consumer: Arc<BaseConsumer<Context>>,
    /// Messages at the client; `None` while the partition is not assigned.
    queue: Option<PartitionQueue<Context>>,
    /// Records before those in the queue.
    records: VecDeque<Fetched>,
    bytes: usize,
    /// Offset of the next record from the queue.
    next: u64,
    /// Reason why the partition is not assigned any more.
    failure: Option<Error>,
    /// Bytes that the reader took from the queue since the last [`Position::relieve`].
    passed: usize,
    /// The reader found the queue empty since then.
    emptied: bool,
}

impl Position {
    /// Assigns the partition.
    ///
    /// Errors: `Invalid` and `Unavailable` when the client does not take it.
    pub(crate) fn open(
        shared: &Arc<Shared>,
        (consumer, bounds): (&Arc<BaseConsumer<Context>>, Bounds),
        partition: PartitionId,
        from: Offset,
        takes_attachments: bool,
    ) -> Result<Self> {
        let state = State {
            consumer: Arc::clone(consumer),
            queue: None,
            records: VecDeque::new(),
            bytes: 0,
            next: from.0,
            failure: None,
            passed: 0,
            emptied: false,
        };
        let shared = Arc::clone(shared);
        let (state, closed) = (Mutex::new(state), AtomicBool::new(false));
        let position = Self { shared, partition, takes_attachments, bounds, state, closed };
        position.assign(&mut position.state.lock())?;
        Ok(position)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Takes records; none if there are none within the timeout, also when no broker answers: the client reconnects. Returns early when the
    /// position is closed.
    ///
    /// Errors: after the records before it, why the partition cannot be read. The next call tries again from the same record.
    pub(crate) fn take(&self, take: Take) -> Result<Vec<Fetched>> {
        let deadline = Instant::now() + take.timeout;
        let mut state = self.state.lock();
        let (mut taken, mut payload_bytes) = (Vec::new(), 0);
        while taken.len() < take.records_max
            && (taken.is_empty() || payload_bytes < take.payload_bytes_max)
            && !self.is_closed()
        {
            let fetched = match state.records.pop_front() {
                Some(fetched) => {
                    state.bytes -= fetched.bytes();
                    Some(fetched)
                }
                None if state.failure.is_some() && !taken.is_empty() => None,
                None => match state.failure.take() {
                    Some(failure) => return Err(failure),
                    None => {
                        let timeout = match taken.is_empty() {
                            true => deadline.saturating_duration_since(Instant::now()).min(CLOSE_POLL),
                            false => Duration::ZERO,
                        };
                        self.next_of_queue(&mut state, timeout)
                    }
                },
            };
            match fetched {
                Some(fetched) => {
                    payload_bytes += fetched.payload_bytes;
                    taken.push(fetched);
                }
                None if !taken.is_empty() => break,
                None if state.failure.is_none() && Instant::now() >= deadline => break,
                None => {}
            }
        }
        if !taken.is_empty() {
            self.shared.works();
        }
        if self.is_closed() {
            self.release(state);
        } else if state.queue.is_none() && state.failure.is_none() && state.bytes <= self.bounds.buffer / 2 {
            // before the buffer is empty, so that the reader need not wait
            state.failure = self.assign(&mut state).err();
        }
        Ok(taken)
    }

    /// Returns the next record of the queue, which is assigned again where it is not. A failure is left in the state.
    fn next_of_queue(&self, state: &mut State, timeout: Duration) -> Option<Fetched> {
        if state.queue.is_none()
            && let Err(failure) = self.assign(state)
        {
            state.failure = Some(failure);
            return None;
        }
        let fetched = self.poll(state, timeout);
        match &fetched {
            Some(fetched) => state.passed += fetched.payload_bytes,
            None => state.emptied = true,
        }
        fetched
    }

    /// Moves a message out of the queue.
    fn poll(&self, state: &mut State, timeout: Duration) -> Option<Fetched> {
        let polled = match state.queue.as_ref()?.poll(timeout)? {
            Ok(message) => {
                let offset = message.offset().max(0).unsigned_abs() + self.base();
                match offset {
                    // of an assignment before
                    _ if offset < state.next => return None,
                    _ if offset > state.next => {
                        Err(gap(&self.shared.config, self.partition, offset, state.next))
                    }
                    _ => self.copy(offset, &message),
                }
            }
            Err(error) => Err(self.explain(state.next, error)?),
        };
        match polled {
            Ok(fetched) => {
                state.next += 1;
                Some(fetched)
            }
            Err(failure) => {
                state.failure = Some(failure);
                self.unassign(state);
                None
            }
        }
    }

    /// Copies a message, so that the client can free the response that it came with.
    fn copy(&self, offset: u64, message: &BorrowedMessage<'_>) -> Result<Fetched> {
        let place = |e: Error| {
            e.context(format!("{}: partition {}, offset {offset}", self.shared.config, self.partition))
        };
        let header = RecordHeader::of(message).map_err(place)?;
        let stamp = header.and_then(|header| header.stamp);
        if let Some(stamp) = stamp.filter(|stamp| stamp.base != self.base()) {
            return Err(place(other_base(self.base(), stamp.base)));
        }
        let attachment = header
            .filter(|_| self.takes_attachments)
            .and_then(|header| self.shared.attachment(self.partition, &header));
        let payload = message.payload().unwrap_or_default();
        let content = match attachment {
            Some(attachment) => Content::Attachment(attachment),
            None => Content::Payload(Bytes::copy_from_slice(payload)),
        };
        let time = time(message);
        let clock = stamp.map_or_else(|| clock_at(time), |stamp| stamp.clock);
        let record = ConsumedRecord { offset: Offset(offset), time, clock, content };
        Ok(Fetched { record, payload_bytes: payload.len() })
    }

    fn base(&self) -> u64 {
        self.shared.partitions.get(self.partition.0 as usize).map_or(0, |progress| progress.base)
    }

    /// Returns the error for what ends the reading; `None` for what the client overcomes.
    fn explain(&self, next: u64, error: KafkaError) -> Option<Error> {
        let what = format!("cannot read partition {} at offset {next}", self.partition);
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::OffsetOutOfRange
                | RDKafkaErrorCode::AutoOffsetReset
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::BadMessage
                | RDKafkaErrorCode::Fatal,
            ) => Some(failed(&self.shared.config, &what, error)),
            _ => {
                self.shared.report(format!("{what}: {error}"));
                None
            }
        }
    }

    fn assign(&self, state: &mut State) -> Result<()> {
        let (config, partition) = (&self.shared.config, self.partition.0 as i32);
        let assigned = || {
            let mut list = TopicPartitionList::new();
            let next = KafkaOffset::Offset(state.next.saturating_sub(self.base()) as i64);
            list.add_partition_offset(&config.topic, partition, next)?;
            // before the partition is assigned, or its first messages go to the common queue
            let queue = state.consumer.split_partition_queue(&config.topic, partition);
            let queue = queue.ok_or_else(|| KafkaError::Subscription("no queue".to_owned()))?;
            state.consumer.incremental_assign(&list)?;
            Ok(queue)
        };
        let what = || format!("cannot read partition {partition} from {}", state.next);
        let queue = assigned().map_err(|e| failed(config, &what(), e))?;
        state.queue = Some(queue);
        Ok(())
    }

    /// Lets the client forget what it has fetched of the partition.
    fn unassign(&self, state: &mut State) {
        if state.queue.take().is_none() {
            return;
        }
        let mut list = TopicPartitionList::new();
        list.add_partition(&self.shared.config.topic, self.partition.0 as i32);
        if let Err(error) = state.consumer.incremental_unassign(&list) {
            tracing::error!(log = %self.shared.config, partition = self.partition.0, %error, "cannot stop reading");
        }
    }

    /// Moves messages that the reader has left in the queue to the buffer, and unassigns the partition if there are more than fit. A
    /// reader that took everything that the queue had at the last call, or that waits for messages now, is left alone.
    pub(crate) fn relieve(&self) {
        let Some(mut state) = self.state.try_lock() else { return };
        if self.is_closed() {
            return self.release(state);
        }
        let keeps_up = std::mem::take(&mut state.passed) > self.bounds.queue + self.bounds.fetch;
        if std::mem::take(&mut state.emptied) || keeps_up {
            return;
        }
        while let Some(fetched) = self.poll(&mut state, Duration::ZERO) {
            let bytes = state.bytes + fetched.bytes();
            // an attachment takes no room, and could not be fetched again
            if bytes > self.bounds.buffer && matches!(fetched.record.content, Content::Payload(_)) {
                state.next -= 1;
                return self.unassign(&mut state);
            }
            state.bytes = bytes;
            state.records.push_back(fetched);
        }
    }

    /// Ends the reading: drops records and unassigns the partition, now or when the reader has left the queue.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
        if let Some(state) = self.state.try_lock() {
            self.release(state);
        }
    }

    /// Waits until the partition of a closed position is not assigned any more.
    pub(crate) fn wait_released(&self) {
        self.release(self.state.lock());
    }

    fn release(&self, mut state: parking_lot::MutexGuard<'_, State>) {
        self.unassign(&mut state);
        state.bytes = 0;
        let records = std::mem::take(&mut state.records);
        drop(state);
        // attachments may run code of the appender when they are dropped, so not under the lock
        drop(records);
    }
}

fn other_base(expected: u64, found: u64) -> Error {
    Error::corrupt(format!(
        "the record was appended by a process for which the partition begins at offset {found}, and here it begins at {expected}: \
         all processes must use the same topic and the same base offsets"
    ))
}

fn gap(config: &KafkaConfig, partition: PartitionId, found: u64, expected: u64) -> Error {
    Error::corrupt(format!(
        "{config}: partition {partition} has offset {found} where {expected} was expected: records were deleted, or another \
         program writes there with transactions; restore the topic, or start with a new one"
    ))
}
