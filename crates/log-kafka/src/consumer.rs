//! Reads records: for a subscription, and from any offset.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use rdkafka::consumer::{BaseConsumer, Consumer, ConsumerContext};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::{Offset as KafkaOffset, TopicPartitionList};
use tidemill_log::{ConsumedRecord, Content, Record, Subscription};
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::error::failed;
use crate::producer::{Context, Shared, time};

/// Interval at which a waiting consumer checks whether it was closed.
const CLOSE_POLL: Duration = Duration::from_millis(100);
/// Messages that a consumer fetches ahead, in KiB.
const FETCH_AHEAD_KBYTES: &str = "32768";

impl ConsumerContext for Context {}

/// A consumer of one partition.
struct Position {
    shared: Arc<Shared>,
    consumer: BaseConsumer<Context>,
    partition: PartitionId,
    /// Offset of the next message.
    next: AtomicU64,
}

impl Position {
    fn open(shared: &Arc<Shared>, partition: PartitionId, from: Offset) -> Result<Self> {
        let config = &shared.config;
        let mut client = config.client_config();
        client
            // required by the client, and not used: positions are in checkpoints, never at the brokers
            .set("group.id", "tidemill")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "error")
            .set("queued.max.messages.kbytes", FETCH_AHEAD_KBYTES)
            .set("fetch.error.backoff.ms", "50");
        let consumer: BaseConsumer<Context> = client
            .create_with_context(Context(Arc::clone(shared)))
            .map_err(|e| failed(config, "cannot create a consumer", e))?;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&config.topic, partition.0 as i32, KafkaOffset::Offset(from.0 as i64))
            .and_then(|()| consumer.assign(&list))
            .map_err(|e| failed(config, &format!("cannot read partition {partition} from {from}"), e))?;
        Ok(Self { shared: Arc::clone(shared), consumer, partition, next: AtomicU64::new(from.0) })
    }

    /// Waits up to `timeout` for the next message and converts it. Returns `None` if no message arrived, also
    /// when no broker answers: the client reconnects.
    fn poll<T>(
        &self,
        timeout: Duration,
        convert: impl FnOnce(&BorrowedMessage<'_>) -> T,
    ) -> Result<Option<T>> {
        match self.consumer.poll(timeout) {
            None => Ok(None),
            Some(Ok(message)) => {
                let (offset, next) =
                    (message.offset().max(0).unsigned_abs(), self.next.load(Ordering::Relaxed));
                if offset != next {
                    return Err(Error::corrupt(format!(
                        "{}: partition {} has offset {offset} where {next} was expected: records were deleted, or another \
                         program writes there with transactions; restore the topic, or start with a new one",
                        self.shared.config, self.partition
                    )));
                }
                self.next.store(offset + 1, Ordering::Relaxed);
                self.shared.works();
                Ok(Some(convert(&message)))
            }
            Some(Err(error)) => self.explain(error).map(|()| None),
        }
    }

    /// Tells errors that end the reading from those that the client overcomes.
    fn explain(&self, error: KafkaError) -> Result<()> {
        let what = format!(
            "cannot read partition {} at offset {}",
            self.partition,
            self.next.load(Ordering::Relaxed)
        );
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::OffsetOutOfRange
                | RDKafkaErrorCode::AutoOffsetReset
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::BadMessage
                | RDKafkaErrorCode::Fatal,
            ) => Err(failed(&self.shared.config, &what, error)),
            _ => {
                self.shared.report(format!("{what}: {error}"));
                Ok(())
            }
        }
    }

    fn payload(message: &BorrowedMessage<'_>) -> Bytes {
        Bytes::copy_from_slice(message.payload().unwrap_or_default())
    }
}

/// Reads a partition from any offset; keeps its place for the next read.
#[derive(Default)]
pub(crate) struct Reader(Mutex<Option<Position>>);

impl Reader {
    /// Returns records from `from` to `end`, about `max_bytes` of them, at least one.
    pub(crate) fn read(
        &self,
        shared: &Arc<Shared>,
        partition: PartitionId,
        from: Offset,
        end: u64,
        max_bytes: usize,
    ) -> Result<Vec<Record>> {
        let mut current = self.0.lock();
        let position = match current.take().filter(|p| p.next.load(Ordering::Relaxed) == from.0) {
            Some(position) => position,
            None => Position::open(shared, partition, from)?,
        };
        let deadline = Instant::now() + shared.config.request_timeout;
        let (mut records, mut bytes) = (Vec::<Record>::new(), 0);
        while position.next.load(Ordering::Relaxed) < end && (records.is_empty() || bytes < max_bytes) {
            let record = |message: &BorrowedMessage<'_>| Record {
                offset: Offset(message.offset().max(0).unsigned_abs()),
                time: time(message),
                payload: Position::payload(message),
            };
            match position.poll(CLOSE_POLL, record)? {
                Some(record) => {
                    bytes += record.payload.len();
                    records.push(record);
                }
                None if !records.is_empty() => break,
                None if Instant::now() >= deadline => {
                    return Err(Error::unavailable(format!(
                        "{}: partition {partition} gave no record at offset {from} within {} ms",
                        shared.config,
                        shared.config.request_timeout.as_millis()
                    )));
                }
                None => {}
            }
        }
        *current = Some(position);
        Ok(records)
    }

    /// Closes the consumer, which has fetched ahead.
    pub(crate) fn rest(&self) {
        *self.0.lock() = None;
    }
}

/// Implements [`Subscription`].
pub(crate) struct KafkaSubscription {
    position: Position,
    closed: AtomicBool,
}

impl KafkaSubscription {
    /// The caller has registered it with [`crate::producer::PartitionProgress::start_consuming`].
    pub(crate) fn open(shared: &Arc<Shared>, partition: PartitionId, from: Offset) -> Result<Self> {
        let position = Position::open(shared, partition, from)?;
        Ok(Self { position, closed: AtomicBool::new(false) })
    }

    /// Takes what is there after waiting up to `timeout` for the first record.
    fn take(&self, records_max: usize, mut timeout: Duration) -> Result<Vec<ConsumedRecord>> {
        let shared = &self.position.shared;
        let mut records = Vec::new();
        while records.len() < records_max {
            let consumed = |message: &BorrowedMessage<'_>| {
                if let Some(progress) = shared.partitions.get(self.position.partition.0 as usize) {
                    progress.saw(message.offset().max(0).unsigned_abs(), message.payload_len());
                }
                let content = match shared.attachment(message) {
                    Some(attachment) => Content::Attachment(attachment),
                    None => Content::Payload(Position::payload(message)),
                };
                let offset = Offset(message.offset().max(0).unsigned_abs());
                ConsumedRecord { offset, time: time(message), content }
            };
            match self.position.poll(timeout, consumed) {
                Ok(Some(record)) => records.push(record),
                Ok(None) => break,
                // first the records before the error, which comes again
                Err(_) if !records.is_empty() => break,
                Err(e) => return Err(e),
            }
            timeout = Duration::ZERO;
        }
        Ok(records)
    }
}

impl Subscription for KafkaSubscription {
    fn next(&self, records_max: usize) -> Result<Option<Vec<ConsumedRecord>>> {
        while !self.closed.load(Ordering::Acquire) {
            let records = self.take(records_max, CLOSE_POLL)?;
            if !records.is_empty() {
                return Ok(Some(records));
            }
        }
        Ok(None)
    }

    fn poll(&self, records_max: usize) -> Result<Vec<ConsumedRecord>> {
        self.take(records_max, Duration::ZERO)
    }

    fn close(&self) {
        if !self.closed.swap(true, Ordering::AcqRel)
            && let Some(progress) = self.position.shared.partitions.get(self.position.partition.0 as usize)
        {
            progress.stop_consuming();
        }
    }
}

impl Drop for KafkaSubscription {
    fn drop(&mut self) {
        self.close();
    }
}
