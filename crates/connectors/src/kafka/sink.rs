//! Topics as a sink.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::{FuturesOrdered, StreamExt};
use rdkafka::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, OwnedHeaders};
use rdkafka::metadata::Metadata;
use rdkafka::producer::{DeliveryFuture, FutureProducer, FutureRecord, Producer, PurgeConfig};
use tidemill_connect::{
    ConnectorContext, DeliveredEvents, DeliveryGuarantee, DeliveryProgress, OptionError, OptionSpec, Options,
    PartitionEpochs, Payload, SinkBatch, SinkConnector, SinkPositions, SinkType, Template,
};
use tidemill_types::{Error, Result};

use super::client::{
    ConnectionContext, REQUEST_TIMEOUT, blocking, check_config, client_config, connection_options,
    known_partitions, partition_count,
};
use super::limits::message_bytes_max;
use super::new_topic::{self, TopicLayout};
use super::sequence::add_sequence;
use super::transactions::Transactions;
use crate::pairs::parse_pairs;
use crate::shortened::shortened;

/// Messages that may wait for an acknowledgement.
const WAITING_MAX: usize = 10_000;
/// Maximum time until a message is acknowledged, including all retries, before the connection counts as
/// failed.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which the sink checks for room in the buffer of the client.
const ROOM_POLL: Duration = Duration::from_millis(5);

/// Type of the sink `kafka`.
pub(crate) struct KafkaSinkType;

const OPTIONS: &[OptionSpec] = connection_options![
    OptionSpec::text("topic", "Topic.").required().dynamic(),
    OptionSpec::integer(
        "partition.no",
        0,
        i32::MAX as i64,
        "Partition; default: by the key, as Kafka's own clients choose it."
    )
    .dynamic(),
    OptionSpec::integer(
        "create.topic.partitions",
        1,
        100_000,
        "Creates the topic with so many partitions if there is none; not for a `topic` that each event names."
    ),
    OptionSpec::integer(
        "create.topic.replication",
        1,
        i16::MAX as i64,
        "Copies of each partition of a topic that is created; default: that of the brokers."
    ),
    OptionSpec::text("key", "Key of the message.").dynamic(),
    OptionSpec::text("headers", "Headers of the message, `name:value,name:value`.").dynamic(),
    OptionSpec::text(
        "sequence.id",
        "Puts this name and a number in front of each message, for a source with `seq.enabled`."
    ),
    OptionSpec::one_of(
        "delivery.guarantee",
        &["at.least.once", "exactly.once"],
        "`exactly.once` sends transactions that also have the position of the sink.",
    )
    .default("at.least.once"),
    OptionSpec::text(
        "transactional.id",
        "With `exactly.once`: name of the sink at the brokers; default: from app, sink and topic."
    ),
    OptionSpec::text(
        "position.topic",
        "With `exactly.once`: topic for positions of sinks; created if it is missing."
    )
    .default("tidemill-positions"),
];

impl SinkType for KafkaSinkType {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn summary(&self) -> &'static str {
        "Sends messages to Kafka topics, by default at least once, with an idempotent producer."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::AtLeastOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SinkConnector>, OptionError> {
        let template = |name: &str| context.optional_template(options, name);
        let mut client = client_config(options)?;
        let defaults = [
            ("enable.idempotence", "true"),
            ("acks", "all"),
            ("linger.ms", "5"),
            ("partitioner", "murmur2_random"),
            ("topic.metadata.propagation.max.ms", "5000"),
        ];
        for (name, value) in defaults {
            if client.get(name).is_none() {
                client.set(name, value);
            }
        }
        if ["delivery.timeout.ms", "message.timeout.ms"].iter().all(|name| client.get(name).is_none()) {
            client.set("message.timeout.ms", DELIVERY_TIMEOUT.as_millis().to_string());
        }
        let brokers = options.text("bootstrap.servers").to_owned();
        let transactions = match options.text("delivery.guarantee").eq_ignore_ascii_case("exactly.once") {
            false => None,
            true => {
                let default = || {
                    let partition = options.get("partition.no").map(|n| format!("/{n}")).unwrap_or_default();
                    format!(
                        "tidemill/{}/{}/{}{partition}",
                        context.app,
                        context.writer,
                        options.text("topic")
                    )
                };
                let id = options.get("transactional.id").map_or_else(default, str::to_owned);
                let consumer = client_config(options)?;
                if !context.shares_partitions {
                    client.set("transactional.id", &id);
                }
                Some(Transactions::new(id, options.text("position.topic").to_owned(), consumer))
            }
        };
        check_config(&client)?;
        if let Some(headers) = options.get("headers").filter(|text| !text.contains("{{")) {
            parse_pairs(headers).map_err(|e| OptionError::option("headers", e))?;
        }
        let topic = context.template(options, "topic")?;
        let new_topic = new_topic(options, topic.constant().is_some())?;
        Ok(Box::new(KafkaSink {
            client,
            new_topic,
            brokers,
            records: Records {
                topic,
                partition: template("partition.no")?,
                key: template("key")?,
                headers: template("headers")?,
                sequence: options.get("sequence.id").map(str::to_owned),
                next_sequence: 0,
                is_binary: options.flag("is.binary.message"),
            },
            shares_partitions: context.shares_partitions,
            transactions,
            connection: None,
        }))
    }
}

/// Returns the layout of a missing topic; `None` if it is not to be created.
fn new_topic(options: &Options, is_constant: bool) -> Result<Option<TopicLayout>, OptionError> {
    let number = |name: &str| options.integer(name).and_then(|number| i32::try_from(number).ok());
    let (partitions, replication) = (number("create.topic.partitions"), number("create.topic.replication"));
    match partitions {
        None if replication.is_some() => Err(OptionError::option(
            "create.topic.replication",
            "needs `create.topic.partitions`, without which no topic is created",
        )),
        Some(_) if !is_constant => Err(OptionError::option(
            "create.topic.partitions",
            "creates one topic, and `topic` names another one for each event; create these topics at the brokers",
        )),
        _ => Ok(partitions.map(|partitions| TopicLayout { partitions, replication })),
    }
}

pub(super) type KafkaProducer = FutureProducer<ConnectionContext>;

struct KafkaSink {
    client: ClientConfig,
    /// Layout of the topic if it is missing.
    new_topic: Option<TopicLayout>,
    brokers: String,
    records: Records,
    /// True if the partitions move between processes: transactions are by partition.
    shares_partitions: bool,
    transactions: Option<Transactions>,
    connection: Option<Connection>,
}

/// Connection of a sink.
pub(super) struct Connection {
    pub producer: KafkaProducer,
    pub context: ConnectionContext,
    pub brokers: String,
}

impl Connection {
    pub(super) fn failed(&self, what: &str, error: &KafkaError) -> Error {
        self.context.failed(&self.brokers, what, error)
    }

    /// Asks the brokers about a topic, or about all.
    async fn metadata(&self, topic: Option<String>) -> Result<Metadata> {
        let producer = self.producer.clone();
        let found =
            blocking(move || producer.client().fetch_metadata(topic.as_deref(), REQUEST_TIMEOUT)).await?;
        found.map_err(|e| self.failed("the brokers cannot be reached", &e))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // what is not acknowledged is sent again by the next connection, and must not come from this one as well
        self.producer.purge(PurgeConfig::default().queue().inflight());
        let producer = self.producer.clone();
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // closing the client waits for the brokers
            runtime.spawn_blocking(move || drop(producer));
        }
    }
}

impl KafkaSink {
    fn disconnect(&mut self) {
        self.connection = None;
        if let Some(transactions) = &mut self.transactions {
            transactions.disconnect();
        }
    }

    /// Asks the brokers for the topic, and creates it if it is missing and the app says so.
    ///
    /// Errors: the brokers cannot be reached; the topic does not exist.
    async fn find_topic(&self, connection: &Connection, topic: Option<String>) -> Result<()> {
        let mut metadata = connection.metadata(topic.clone()).await?;
        let Some(topic) = topic else { return Ok(()) };
        if let Some(layout) = self.new_topic.filter(|_| known_partitions(&metadata, &topic) == 0) {
            new_topic::create(&self.client, &connection.context, &topic, layout, &[]).await.map_err(|e| {
                Error::unavailable(format!(
                    "Kafka at {}: the topic `{topic}` cannot be created: {e}",
                    self.brokers
                ))
            })?;
            tracing::info!(topic, partitions = layout.partitions, "the topic was created");
            metadata = connection.metadata(Some(topic.clone())).await?;
        }
        // a broker that has not heard of a new topic yet is asked again when the sink connects again
        let or = ", or let the sink create it with the option `create.topic.partitions`";
        partition_count(&metadata, &topic, &self.brokers, or).map(drop)
    }
}

#[async_trait]
impl SinkConnector for KafkaSink {
    async fn connect(&mut self) -> Result<Option<DeliveredEvents>> {
        self.disconnect();
        let context = ConnectionContext::default();
        if let Some(topic) = self.records.topic.constant() {
            limit_messages(&mut self.client, &context, topic).await;
        }
        let producer: KafkaProducer = self
            .client
            .create_with_context(context.clone())
            .map_err(|e| context.failed(&self.brokers, "no producer", &e))?;
        let connection = Connection { producer, context, brokers: self.brokers.clone() };
        let topic = self.records.topic.constant().map(str::to_owned);
        self.find_topic(&connection, topic).await?;
        let delivered = match &self.transactions {
            Some(transactions) if !self.shares_partitions => Some(transactions.begin(&connection).await?),
            _ => None,
        };
        self.connection = Some(connection);
        Ok(delivered)
    }

    async fn own(&mut self, partitions: &PartitionEpochs) -> Result<Option<SinkPositions>> {
        match (&self.connection, &mut self.transactions) {
            (Some(connection), Some(transactions)) if self.shares_partitions => {
                transactions.own(partitions, connection, &self.client).await
            }
            _ => Ok(None),
        }
    }

    fn delivers_by_partition(&self) -> bool {
        self.shares_partitions && self.transactions.is_some()
    }

    async fn deliver(&mut self, batch: &SinkBatch, progress: &mut DeliveryProgress) -> Result<()> {
        let Some(connection) = &self.connection else {
            return Err(Error::unavailable("the sink is not connected"));
        };
        let result = match &mut self.transactions {
            None => deliver(connection, &mut self.records, batch, progress).await,
            Some(transactions) if self.shares_partitions => {
                transactions.deliver_owned(&mut self.records, batch, progress).await
            }
            Some(transactions) => {
                transactions.deliver(connection, 0, &mut self.records, batch, progress).await
            }
        };
        if result.is_err() {
            self.disconnect();
        }
        result
    }

    async fn close(&mut self) {
        self.disconnect();
    }
}

/// Keeps batches of messages below what the topic allows, so that only messages that are too large themselves are
/// refused, and by the client.
async fn limit_messages(client: &mut ClientConfig, context: &ConnectionContext, topic: &str) {
    let Some(bytes) = message_bytes_max(client, context, topic).await else { return };
    let current = |name: &str, default| client.get(name).and_then(|n| n.parse().ok()).unwrap_or(default);
    let message = current("message.max.bytes", 1_000_000_u64).min(bytes.max(1000));
    let batch = current("batch.size", 1_000_000).min(message);
    client.set("message.max.bytes", message.to_string()).set("batch.size", batch.to_string());
}

/// Sends messages with many of them on their way, and counts the acknowledged ones in order.
async fn deliver(
    connection: &Connection,
    records: &mut Records,
    batch: &SinkBatch,
    progress: &mut DeliveryProgress,
) -> Result<()> {
    let mut waiting = Waiting::new();
    let mut alone = vec![];
    for message in batch.messages_from(progress).to_vec() {
        while waiting.len() >= WAITING_MAX {
            waiting.count_next(connection, progress, &mut alone).await?;
        }
        if !alone.is_empty() {
            send_alone(connection, records, batch, progress, &mut waiting, &mut alone).await?;
        }
        let sent = records.send(connection, batch, &message).await?;
        waiting.push(message, sent);
    }
    send_alone(connection, records, batch, progress, &mut waiting, &mut alone).await
}

/// Waits for all messages, and sends those again one by one that the brokers refused because their batch was too large.
async fn send_alone(
    connection: &Connection,
    records: &mut Records,
    batch: &SinkBatch,
    progress: &mut DeliveryProgress,
    waiting: &mut Waiting,
    alone: &mut Vec<Payload>,
) -> Result<()> {
    let mut last = None;
    while waiting.len() > 0 {
        last = waiting.count_next(connection, progress, alone).await?.or(last);
    }
    if alone.is_empty() {
        return Ok(());
    }
    for message in std::mem::take(alone) {
        let sent = records.send(connection, batch, &message).await?;
        waiting.push(message.clone(), sent);
        let mut too_large = vec![];
        waiting.count_next(connection, progress, &mut too_large).await?;
        if !too_large.is_empty() {
            progress.refused(&message, TOO_LARGE);
        }
        last = last.max(Some(message.row + message.rows));
    }
    progress.delivered = progress.delivered.max(last.unwrap_or_default());
    Ok(())
}

/// Outcome of a message.
pub(super) enum Sent {
    /// It is on its way.
    Waiting(DeliveryFuture),
    /// The client refuses it for good.
    Refused(String),
}

/// Messages on their way, in order.
pub(super) struct Waiting(FuturesOrdered<BoxFuture<'static, (Payload, Result<(), Failure>)>>);

enum Failure {
    Refused(String),
    Failed(KafkaError),
}

/// Reason for a message that is larger than its topic allows.
pub(super) const TOO_LARGE: &str = "Kafka: the message is larger than the topic allows (`max.message.bytes`)";

impl Waiting {
    pub(super) fn new() -> Self {
        Self(FuturesOrdered::new())
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn push(&mut self, message: Payload, sent: Sent) {
        self.0.push_back(Box::pin(async move {
            let outcome = match sent {
                Sent::Refused(reason) => Err(Failure::Refused(reason)),
                Sent::Waiting(delivery) => match delivery.await {
                    Ok(Ok(_)) => Ok(()),
                    Ok(Err((e, _))) => Err(Failure::Failed(e)),
                    Err(_) => Err(Failure::Failed(KafkaError::Canceled)),
                },
            };
            (message, outcome)
        }));
    }

    /// Waits for the oldest message, and counts it and the row behind it, unless an earlier message has to be sent
    /// again. A message whose batch was too large for the brokers is added to `alone`.
    ///
    /// Returns: the row behind the message if it is done.
    /// Errors: the connection failed.
    pub(super) async fn count_next(
        &mut self,
        connection: &Connection,
        progress: &mut DeliveryProgress,
        alone: &mut Vec<Payload>,
    ) -> Result<Option<usize>> {
        let Some((message, outcome)) = self.0.next().await else { return Ok(None) };
        let delivered = progress.delivered;
        match outcome {
            Ok(()) => progress.took(&message),
            Err(Failure::Refused(reason)) => progress.refused(&message, &reason),
            Err(Failure::Failed(e)) if is_too_large(&e) => {
                alone.push(message);
                return Ok(None);
            }
            Err(Failure::Failed(e)) if is_refusal(&e) => progress.refused(&message, &format!("Kafka: {e}")),
            Err(Failure::Failed(e)) => return Err(connection.failed("a message was not acknowledged", &e)),
        }
        if !alone.is_empty() {
            progress.delivered = delivered;
        }
        Ok(Some(message.row + message.rows))
    }
}

fn is_too_large(error: &KafkaError) -> bool {
    error.rdkafka_error_code() == Some(RDKafkaErrorCode::MessageSizeTooLarge)
}

/// Returns whether sending the message again leads to the same error.
fn is_refusal(error: &KafkaError) -> bool {
    matches!(
        error.rdkafka_error_code(),
        Some(
            RDKafkaErrorCode::InvalidMessageSize
                | RDKafkaErrorCode::InvalidRecord
                | RDKafkaErrorCode::InvalidTopic
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownPartition
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::PolicyViolation
                | RDKafkaErrorCode::InvalidArgument
        )
    )
}

/// Returns why brokers take no topic of this name; `None` if they may.
fn topic_problem(topic: &str) -> Option<String> {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    match topic {
        "" => Some("it is empty".into()),
        "." | ".." => Some("Kafka takes no `.` and `..`".into()),
        _ if topic.len() > TOPIC_BYTES_MAX => {
            Some(format!("it has {} bytes; Kafka takes {TOPIC_BYTES_MAX}", topic.len()))
        }
        _ => topic
            .chars()
            .find(|c| !is_legal(*c))
            .map(|c| format!("Kafka takes letters, digits, `.`, `_` and `-`, no {c:?}")),
    }
}

/// Longest name of a topic.
const TOPIC_BYTES_MAX: usize = 249;

/// Makes records of messages.
pub(super) struct Records {
    topic: Template,
    partition: Option<Template>,
    key: Option<Template>,
    headers: Option<Template>,
    sequence: Option<String>,
    next_sequence: u64,
    is_binary: bool,
}

impl Records {
    /// Hands a message to the client; waits while its buffer is full.
    ///
    /// Errors: the client does not work any more.
    pub(super) async fn send(
        &mut self,
        connection: &Connection,
        batch: &SinkBatch,
        message: &Payload,
    ) -> Result<Sent> {
        let of = |template: &Template| template.render(&batch.rows, message.row);
        let topic = of(&self.topic);
        if let Some(problem) = topic_problem(&topic) {
            return Ok(Sent::Refused(format!("`{}` is no topic: {problem}", shortened(&topic))));
        }
        let key = self.key.as_ref().map(of);
        let partition = match self.partition.as_ref().map(of).map(|text| (text.trim().parse::<i32>(), text)) {
            None => None,
            Some((Ok(n), _)) if n >= 0 => Some(n),
            Some((_, text)) => {
                return Ok(Sent::Refused(format!("`partition.no` is `{text}`; expected a number from 0")));
            }
        };
        let headers = match self.headers.as_ref().map(|template| parse_pairs(&of(template))) {
            None => None,
            Some(Ok(pairs)) if pairs.iter().any(|(name, _)| name.contains('\0')) => {
                return Ok(Sent::Refused("`headers`: the name of a header has a zero character".into()));
            }
            Some(Ok(pairs)) => Some(pairs.iter().fold(OwnedHeaders::new(), |headers, (key, value)| {
                headers.insert(Header { key, value: Some(value) })
            })),
            Some(Err(e)) => return Ok(Sent::Refused(format!("`headers`: {e}"))),
        };
        let payload = self.payload(message);
        let mut record = FutureRecord::<str, [u8]>::to(&topic).payload(&payload);
        record.key = key.as_deref();
        record.partition = partition;
        record.headers = headers;
        loop {
            match connection.producer.send_result(record) {
                Ok(delivery) => {
                    self.next_sequence += u64::from(self.sequence.is_some());
                    return Ok(Sent::Waiting(delivery));
                }
                Err((e, back)) if e.rdkafka_error_code() == Some(RDKafkaErrorCode::QueueFull) => {
                    record = back;
                    tokio::time::sleep(ROOM_POLL).await;
                }
                Err((e, _)) if is_too_large(&e) => return Ok(Sent::Refused(TOO_LARGE.to_owned())),
                Err((e, _)) if is_refusal(&e) => return Ok(Sent::Refused(format!("Kafka: {e}"))),
                Err((e, _)) => return Err(connection.failed("a message cannot be sent", &e)),
            }
        }
    }

    fn payload(&self, message: &Payload) -> Bytes {
        match &self.sequence {
            None => message.bytes.clone(),
            Some(id) => add_sequence(id, self.next_sequence, &message.bytes, self.is_binary),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_brokers_do_not_take_are_refused_before_they_are_asked() {
        for topic in ["orders", "a.b_C-9", &"x".repeat(249)] {
            assert_eq!(topic_problem(topic), None, "{topic}");
        }
        for topic in ["", ".", "..", "a b", "a/b", "grün", "a\0b", &"x".repeat(250)] {
            assert!(topic_problem(topic).is_some(), "{topic:?}");
        }
    }
}
