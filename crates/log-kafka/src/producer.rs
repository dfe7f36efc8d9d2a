//! Sends records, completes their tickets, and holds their attachments until they are consumed.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{DeliveryResult, Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseRecord, Producer as _, ProducerContext, ThreadedProducer};
use tidemill_log::{
    AppendReceipt, AppenderClock, Attachment, Durability, NewRecord, Ticket, TicketCompletion,
};
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp};
use uuid::Uuid;

use crate::config::KafkaConfig;
use crate::error::failed;
use crate::header::{self, RecordHeader, Stamp};
use crate::topic_settings::MESSAGE_OVERHEAD_BYTES;

/// Interval at which a blocked append checks for room.
const ROOM_POLL: Duration = Duration::from_millis(2);
/// Time above the delivery timeout after which a flush gives up.
const FLUSH_MARGIN: Duration = Duration::from_secs(5);

/// State of the partitions, shared by the producer, the consumers and the log.
pub(crate) struct Shared {
    pub config: KafkaConfig,
    pub partitions: Vec<PartitionProgress>,
    /// Name of this producer: another run of the same process has another one.
    incarnation: Uuid,
    clock: AppenderClock,
    next_number: AtomicU64,
    /// Records that are not acknowledged.
    pending: Mutex<usize>,
    drained: Condvar,
    /// Why the brokers cannot be reached at present.
    problem: Mutex<Option<String>>,
}

/// One partition as far as this process knows.
#[derive(Default)]
pub(crate) struct PartitionProgress {
    /// Offset in the log of the record with offset 0 in Kafka.
    pub base: u64,
    pub start: AtomicU64,
    pub end: AtomicU64,
    /// Payload bytes and records that were seen, for an estimate of sizes.
    seen_bytes: AtomicU64,
    seen_records: AtomicU64,
    attachments: Mutex<Attachments>,
}

#[derive(Default)]
struct Attachments {
    consumed: bool,
    by_number: HashMap<u64, Attachment>,
}

impl PartitionProgress {
    pub(crate) fn new(base: u64, start: u64, end: u64) -> Self {
        Self { base, start: AtomicU64::new(start), end: AtomicU64::new(end), ..Self::default() }
    }

    /// Counts records with so many bytes together, up to the one at `offset`.
    pub(crate) fn saw(&self, offset: u64, records: usize, bytes: usize) {
        self.end.fetch_max(offset + 1, Ordering::AcqRel);
        self.seen_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.seen_records.fetch_add(records as u64, Ordering::Relaxed);
    }

    /// Estimates the bytes of all records from those that were seen.
    pub(crate) fn bytes(&self) -> u64 {
        let records = self.end.load(Ordering::Acquire).saturating_sub(self.start.load(Ordering::Acquire));
        let seen = self.seen_records.load(Ordering::Relaxed).max(1);
        let bytes =
            u128::from(self.seen_bytes.load(Ordering::Relaxed)) * u128::from(records) / u128::from(seen);
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }

    /// Starts to hold attachments. Returns false if there is a consumer already.
    pub(crate) fn start_consuming(&self) -> bool {
        !std::mem::replace(&mut self.attachments.lock().consumed, true)
    }

    /// Drops all attachments, and those to come.
    pub(crate) fn stop_consuming(&self) {
        let attachments = std::mem::take(&mut *self.attachments.lock());
        // outside of the lock, because the values may run code of the appender
        drop(attachments);
    }

    fn hold(&self, number: u64, attachment: Attachment) {
        let mut attachments = self.attachments.lock();
        if attachments.consumed {
            attachments.by_number.insert(number, attachment);
        }
    }

    fn take(&self, number: u64) -> Option<Attachment> {
        self.attachments.lock().by_number.remove(&number)
    }
}

impl Shared {
    pub(crate) fn new(config: KafkaConfig, partitions: Vec<PartitionProgress>, clock: AppenderClock) -> Self {
        Self {
            config,
            partitions,
            incarnation: Uuid::new_v4(),
            clock,
            next_number: AtomicU64::new(0),
            pending: Mutex::new(0),
            drained: Condvar::new(),
            problem: Mutex::new(None),
        }
    }

    pub(crate) fn report(&self, problem: String) {
        let mut current = self.problem.lock();
        if current.as_ref() != Some(&problem) {
            tracing::warn!(log = %self.config, "{problem}");
            *current = Some(problem);
        }
    }

    /// A broker has answered.
    pub(crate) fn works(&self) {
        if self.problem.lock().take().is_some() {
            tracing::info!(log = %self.config, "the brokers answer again");
        }
    }

    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    /// Takes the attachment of a consumed record, if this producer sent it.
    pub(crate) fn attachment(&self, partition: PartitionId, header: &RecordHeader) -> Option<Attachment> {
        if header.incarnation != *self.incarnation.as_bytes() {
            return None;
        }
        self.partitions.get(partition.0 as usize)?.take(header.number)
    }
}

/// Returns the time of a message in microseconds.
pub(crate) fn time(message: &impl Message) -> Timestamp {
    Timestamp(message.timestamp().to_millis().unwrap_or_default().saturating_mul(1000))
}

/// A record on its way.
pub(crate) struct Sent {
    number: u64,
    bytes: usize,
    completion: TicketCompletion,
}

/// Callbacks of the clients.
pub(crate) struct Context(pub Arc<Shared>);

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        match level {
            RDKafkaLogLevel::Debug | RDKafkaLogLevel::Info | RDKafkaLogLevel::Notice => {
                tracing::debug!(log = %self.0.config, facility, "{message}");
            }
            // what matters is reported as a problem
            _ => tracing::info!(log = %self.0.config, facility, "{message}"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // one lost connection does not matter while another broker answers
        if matches!(
            error.rdkafka_error_code(),
            Some(RDKafkaErrorCode::AllBrokersDown | RDKafkaErrorCode::Fatal)
        ) {
            self.0.report(format!("no broker answers: {reason}"));
        } else {
            tracing::debug!(log = %self.0.config, error = %error, "{reason}");
        }
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Sent>;

    fn delivery(&self, result: &DeliveryResult<'_>, sent: Box<Sent>) {
        let Sent { number, bytes, completion } = *sent;
        let outcome = match result {
            Ok(message) => {
                self.0.works();
                let mut offset = message.offset().max(0).unsigned_abs();
                if let Some(progress) = self.0.partitions.get(message.partition() as usize) {
                    offset += progress.base;
                    progress.saw(offset, 1, bytes);
                }
                Ok(AppendReceipt {
                    offset: Offset(offset),
                    time: time(message),
                    durability: Durability::Fsync,
                })
            }
            Err((error, message)) => {
                let attachment = self
                    .0
                    .partitions
                    .get(message.partition() as usize)
                    .and_then(|progress| progress.take(number));
                drop(attachment);
                let what = "a record was not acknowledged and may or may not be in the log";
                let error = failed(&self.0.config, what, error.clone());
                self.0.report(error.message().to_owned());
                Err(error)
            }
        };
        completion.complete(outcome);
        let mut pending = self.0.pending.lock();
        *pending -= 1;
        if *pending == 0 {
            self.0.drained.notify_all();
        }
    }
}

/// Appends records.
pub(crate) struct Producer {
    shared: Arc<Shared>,
    client: ThreadedProducer<Context>,
    closed: AtomicBool,
}

impl Producer {
    pub(crate) fn open(shared: &Arc<Shared>) -> Result<Self> {
        let config = &shared.config;
        let mut client = config.client_config();
        client
            .set("enable.idempotence", "true")
            .set("acks", "all")
            .set("linger.ms", "0")
            .set("message.max.bytes", (config.message_bytes_max + MESSAGE_OVERHEAD_BYTES).to_string())
            .set("message.timeout.ms", config.delivery_timeout.as_millis().to_string())
            .set("queue.buffering.max.kbytes", config.pending_bytes_max.div_ceil(1024).to_string());
        let client = client.create_with_context(Context(Arc::clone(shared)));
        let client = client.map_err(|e| failed(config, "cannot create a producer", e))?;
        Ok(Self { shared: Arc::clone(shared), client, closed: AtomicBool::new(false) })
    }

    /// Implements [`tidemill_log::Log::append`]; the partition exists.
    pub(crate) fn append(&self, partition: PartitionId, record: NewRecord) -> Result<Ticket> {
        let config = &self.shared.config;
        let NewRecord { payload, attachment } = record;
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::unavailable("the log is closed: open it again to write"));
        }
        if payload.len() > config.message_bytes_max {
            return Err(Error::limit(format!(
                "a record has {} bytes, the limit is {} (message_bytes_max): append it in parts",
                payload.len(),
                config.message_bytes_max
            )));
        }
        let number = self.shared.next_number.fetch_add(1, Ordering::Relaxed);
        let progress = &self.shared.partitions[partition.0 as usize];
        // before the message is sent: it may be consumed before `send` returns
        if let Some(attachment) = attachment {
            progress.hold(number, attachment);
        }
        let stamp = Stamp { clock: self.shared.clock.now(), base: progress.base };
        let header = RecordHeader::encode(self.shared.incarnation.as_bytes(), number, stamp);
        let header = Header { key: header::KEY, value: Some(&header) };
        let headers = OwnedHeaders::new_with_capacity(1).insert(header);
        let (completion, ticket) = Ticket::pending();
        let sent = Box::new(Sent { number, bytes: payload.len(), completion });
        *self.shared.pending.lock() += 1;
        let message: BaseRecord<'_, (), [u8], Box<Sent>> = BaseRecord::with_opaque_to(&config.topic, sent)
            .partition(partition.0 as i32)
            .payload(&payload[..])
            .headers(headers);
        self.send(message).inspect_err(|_| {
            drop(progress.take(number));
            *self.shared.pending.lock() -= 1;
        })?;
        Ok(ticket)
    }

    /// Hands a message to the client; waits while its buffer is full.
    fn send(&self, mut message: BaseRecord<'_, (), [u8], Box<Sent>>) -> Result<()> {
        let config = &self.shared.config;
        let mut deadline = None;
        loop {
            match self.client.send(message) {
                Ok(()) => return Ok(()),
                Err((error, back)) if error.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) => {
                    let deadline = *deadline.get_or_insert_with(|| Instant::now() + config.append_wait);
                    if Instant::now() >= deadline {
                        return Err(Error::limit(format!(
                            "{config}: records of {} bytes wait for an acknowledgement (pending_bytes_max), and it stayed \
                             so for {} ms: send less or again later",
                            config.pending_bytes_max,
                            config.append_wait.as_millis()
                        )));
                    }
                    message = back;
                    std::thread::sleep(ROOM_POLL);
                }
                Err((error, _)) => return Err(failed(config, "cannot append a record", error)),
            }
        }
    }

    /// Waits until every record is acknowledged or has failed; the tickets tell which.
    pub(crate) fn flush(&self) -> Result<()> {
        let deadline = Instant::now() + self.shared.config.delivery_timeout + FLUSH_MARGIN;
        let mut pending = self.shared.pending.lock();
        while *pending > 0 {
            if self.shared.drained.wait_until(&mut pending, deadline).timed_out() {
                return Err(Error::unavailable(format!(
                    "{}: {} records are not acknowledged",
                    self.shared.config, *pending
                )));
            }
        }
        Ok(())
    }

    /// Refuses appends from now on.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        // what is not acknowledged fails with the client: its tickets learn it
        self.client.purge(rdkafka::producer::PurgeConfig::default().queue().inflight());
    }
}
