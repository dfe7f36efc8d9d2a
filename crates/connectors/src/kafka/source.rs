//! Topics as a source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures::FutureExt;
use rdkafka::consumer::{CommitMode, Consumer, StreamConsumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{BorrowedMessage, Headers, Message as _};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tidemill_connect::{
    ConnectorContext, DeliveryGuarantee, Message, OptionError, OptionSpec, Options, SourceConnector,
    SourceOutput, SourceType,
};
use tidemill_types::{Error, Result, Timestamp};

use super::client::{
    ConnectionContext, REQUEST_TIMEOUT, blocking, check_config, client_config, connection_options,
    partition_count,
};
use super::sequence::{SequenceFilter, Sequenced};
use crate::pairs::parse_names;
use crate::property_text::property_text;
use crate::receipts::Receipts;

/// Messages that are taken at once, if so many are there.
const BATCH_MESSAGES: usize = 1024;
/// Batches that may wait to be durable before the source stops reading.
const WAITING_MAX: usize = 4096;
/// Interval at which offsets are committed, for monitoring.
const COMMIT_INTERVAL: Duration = Duration::from_secs(1);
/// Interval at which the source looks for new partitions.
const DISCOVERY_INTERVAL: Duration = Duration::from_secs(30);
/// Memory for messages that were fetched and not taken, in KiB.
const FETCH_AHEAD_KBYTES: &str = "32768";

/// Reports of the client that are looked at for the reason of a failure.
const QUEUED_REPORTS: usize = 64;

/// Type of the source `kafka`.
pub(crate) struct KafkaSourceType;

const OPTIONS: &[OptionSpec] = connection_options![
    OptionSpec::text("topic.list", "Topics, with commas.").alias("topic").required(),
    OptionSpec::text(
        "group.id",
        "Consumer group whose offsets show the progress; default: the name of the source."
    ),
    OptionSpec::one_of(
        "threading.option",
        &["single.thread", "topic.wise", "partition.wise"],
        "Accepted without effect: one client reads all partitions at once.",
    ),
    OptionSpec::text("partition.no.list", "Partitions, with commas; default: all, also those added later."),
    OptionSpec::flag(
        "seq.enabled",
        "false",
        "Whether messages begin with a sequence number (see the sink's `sequence.id`) and those that come twice are dropped.",
    ),
    OptionSpec::text(
        "topic.offsets.map",
        "Where topics begin that were never read: `topic=offset,topic=offset`, the offset of the last message that is not read.",
    ),
    OptionSpec::flag(
        "enable.offsets.commit",
        "true",
        "Whether the offsets of stored messages are committed to the group, for monitoring.",
    ),
    OptionSpec::flag("enable.async.commit", "true", "Accepted without effect: commits never delay messages."),
];

impl SourceType for KafkaSourceType {
    fn name(&self) -> &'static str {
        "kafka"
    }

    fn summary(&self) -> &'static str {
        "Messages of Kafka topics, each once: the log has the offset of every partition."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn guarantee(&self) -> DeliveryGuarantee {
        DeliveryGuarantee::ExactlyOnce
    }

    fn create(
        &self,
        options: &Options,
        context: &ConnectorContext,
    ) -> Result<Box<dyn SourceConnector>, OptionError> {
        let mut client = client_config(options)?;
        let from_end = matches!(client.get("auto.offset.reset"), Some("latest" | "largest" | "end"));
        client
            .set("group.id", options.get("group.id").unwrap_or(&context.name))
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // offsets are the source's own; one that is not there must not be replaced silently
            .set("auto.offset.reset", "error");
        if client.get("queued.max.messages.kbytes").is_none() {
            client.set("queued.max.messages.kbytes", FETCH_AHEAD_KBYTES);
        }
        check_config(&client)?;
        let topics = parse_names(options.text("topic.list"));
        if topics.is_empty() {
            return Err(OptionError::option("topic.list", "expected names of topics with commas"));
        }
        Ok(Box::new(KafkaSource {
            client,
            brokers: options.text("bootstrap.servers").to_owned(),
            partitions: parse_partitions(options.text("partition.no.list"))?,
            starts: parse_starts(options.text("topic.offsets.map"), &topics)?,
            topics,
            from_end,
            sequences: options.flag("seq.enabled").then(SequenceFilter::default),
            is_binary: options.flag("is.binary.message"),
            commits: options.flag("enable.offsets.commit"),
        }))
    }
}

fn parse_partitions(text: &str) -> Result<Option<Vec<i32>>, OptionError> {
    let numbers: Option<Vec<i32>> =
        parse_names(text).iter().map(|n| n.parse().ok().filter(|n| *n >= 0)).collect();
    let numbers = numbers.ok_or_else(|| {
        OptionError::option("partition.no.list", format!("expected numbers with commas, found `{text}`"))
    })?;
    Ok((!numbers.is_empty()).then_some(numbers))
}

fn parse_starts(text: &str, topics: &[String]) -> Result<BTreeMap<String, u64>, OptionError> {
    let refused = |message: String| OptionError::option("topic.offsets.map", message);
    let mut starts = BTreeMap::new();
    for entry in parse_names(text) {
        let parsed = entry.split_once('=').and_then(|(topic, offset)| {
            let offset: u64 = offset.trim().parse().ok()?;
            Some((
                topic.trim().to_owned(),
                offset.checked_add(1).filter(|next| i64::try_from(*next).is_ok())?,
            ))
        });
        let (topic, start) =
            parsed.ok_or_else(|| refused(format!("expected `topic=offset`, found `{entry}`")))?;
        if !topics.contains(&topic) {
            return Err(refused(format!("the topic `{topic}` is not in `topic.list`")));
        }
        starts.insert(topic, start);
    }
    Ok(starts)
}

/// Source of messages of topics.
struct KafkaSource {
    client: ClientConfig,
    brokers: String,
    topics: Vec<String>,
    /// Partitions that are read; `None` for all.
    partitions: Option<Vec<i32>>,
    /// Offsets from the options.
    starts: BTreeMap<String, u64>,
    /// True if partitions that were never read begin at their end.
    from_end: bool,
    sequences: Option<SequenceFilter>,
    is_binary: bool,
    commits: bool,
}

/// The client, whose requests block.
#[derive(Clone)]
struct BlockingConsumer {
    consumer: Arc<StreamConsumer<ConnectionContext>>,
    context: ConnectionContext,
}

#[async_trait]
impl SourceConnector for KafkaSource {
    async fn run(&mut self, output: &SourceOutput) -> Result<()> {
        let context = ConnectionContext::default();
        let consumer: StreamConsumer<ConnectionContext> = self
            .client
            .create_with_context(context.clone())
            .map_err(|e| context.failed(&self.brokers, "no consumer", &e))?;
        let mut reader = Reader {
            client: BlockingConsumer { consumer: Arc::new(consumer), context },
            splits: BTreeMap::new(),
            receipts: Receipts::new(),
            durable: BTreeMap::new(),
            is_troubled: false,
        };
        let result = self.read(&mut reader, output).await;
        // closing the client waits for the brokers, which must not stop other connectors
        tokio::task::spawn_blocking(move || drop(reader));
        result
    }
}

/// One connection.
struct Reader {
    client: BlockingConsumer,
    /// Partitions that are read, with their names as splits.
    splits: BTreeMap<(String, i32), Arc<str>>,
    receipts: Receipts<(String, i32, u64)>,
    /// Next offsets of what is durable and not committed.
    durable: BTreeMap<(String, i32), u64>,
    /// Set when a problem was reported that the client may overcome.
    is_troubled: bool,
}

impl BlockingConsumer {
    /// Returns an error that ends the connection.
    fn failed(&self, brokers: &str, what: &str, error: &KafkaError) -> Error {
        // why requests get no answer is in the queue of messages, and reaches the context when it is polled; messages
        // that are lost here are read again by the next connection
        for _ in 0..QUEUED_REPORTS {
            let _ = self.consumer.recv().now_or_never();
        }
        self.context.failed(brokers, what, error)
    }
}

impl Reader {
    fn note_working(&mut self, output: &SourceOutput) {
        if std::mem::take(&mut self.is_troubled) {
            output.report_connected();
        }
    }
}

impl KafkaSource {
    async fn read(&mut self, reader: &mut Reader, output: &SourceOutput) -> Result<()> {
        self.assign(reader, output).await?;
        output.report_connected();
        let consumer = reader.client.consumer.clone();
        let mut commit = tokio::time::interval(COMMIT_INTERVAL);
        let mut discovery = tokio::time::interval(DISCOVERY_INTERVAL);
        discovery.reset();
        loop {
            tokio::select! {
                message = consumer.recv(), if reader.receipts.len() < WAITING_MAX => {
                    match message {
                        Ok(first) => self.take(first, reader, output).await?,
                        Err(e) => self.check_error(&e, reader, output)?,
                    }
                }
                durable = reader.receipts.next() => {
                    let (topic, partition, next) = durable?;
                    reader.durable.insert((topic, partition), next);
                }
                _ = commit.tick() => self.commit(reader),
                _ = discovery.tick() => {
                    self.assign(reader, output).await?;
                    reader.note_working(output);
                }
            }
        }
    }

    /// Assigns the partitions that are not read yet.
    async fn assign(&mut self, reader: &mut Reader, output: &SourceOutput) -> Result<()> {
        let is_first = reader.splits.is_empty();
        let client = reader.client.clone();
        let failed = |what: &str, e| client.failed(&self.brokers, what, &e);
        let mut wanted = vec![];
        for topic in &self.topics {
            let (consumer, name) = (client.consumer.clone(), topic.clone());
            let metadata = blocking(move || consumer.fetch_metadata(Some(&name), REQUEST_TIMEOUT)).await?;
            let metadata = metadata.map_err(|e| failed("the brokers cannot be reached", e))?;
            let count = partition_count(&metadata, topic, &self.brokers, "")?;
            let partitions = match &self.partitions {
                None => (0..count).collect(),
                Some(listed) => listed.clone(),
            };
            if let Some(missing) = partitions.iter().find(|partition| **partition >= count) {
                return Err(Error::invalid(format!(
                    "Kafka at {}: the topic `{topic}` has no partition {missing}; expected 0 to {} in `partition.no.list`",
                    self.brokers,
                    count - 1
                )));
            }
            wanted.extend(partitions.into_iter().map(|partition| (topic.clone(), partition)));
        }
        let known: BTreeSet<_> = reader.splits.keys().cloned().collect();
        let added: Vec<_> = wanted.into_iter().filter(|of| !known.contains(of)).collect();
        if added.is_empty() {
            return Ok(());
        }
        let mut list = TopicPartitionList::new();
        for (topic, partition) in added {
            let split: Arc<str> = format!("{topic}/{partition}").into();
            let start = self.start(&client, output, &split, &topic, partition, is_first).await?;
            list.add_partition_offset(&topic, partition, Offset::Offset(start as i64))
                .map_err(|e| failed("an offset is refused", e))?;
            reader.splits.insert((topic, partition), split);
        }
        reader.client.consumer.incremental_assign(&list).map_err(|e| failed("partitions are refused", e))
    }

    /// Returns where a partition is read from: where the log says, otherwise where the options say.
    async fn start(
        &self,
        client: &BlockingConsumer,
        output: &SourceOutput,
        split: &Arc<str>,
        topic: &str,
        partition: i32,
        is_first: bool,
    ) -> Result<u64> {
        let failed = |what: &str, e| client.failed(&self.brokers, what, &e);
        let (consumer, name) = (client.consumer.clone(), topic.to_owned());
        let (begin, end) = blocking(move || consumer.fetch_watermarks(&name, partition, REQUEST_TIMEOUT))
            .await?
            .map_err(|e| failed(&format!("no offsets of {split}"), e))?;
        let (begin, end) = (begin.max(0) as u64, end.max(0) as u64);
        if let Some(position) = output.position(split) {
            if position > end {
                return Err(Error::invalid(format!(
                    "Kafka at {}: {split} ends at offset {end}, but was read up to {position}: the topic was created \
                     again; give the source another name in the app to read it from its beginning",
                    self.brokers
                )));
            }
            if position < begin {
                tracing::warn!(
                    split = &**split,
                    messages = begin - position,
                    "Kafka deleted messages before they were read"
                );
            }
            return Ok(position.max(begin));
        }
        let start = match self.starts.get(topic) {
            Some(start) => (*start).clamp(begin, end),
            // a partition that is new has nothing that was there before the source
            None if !is_first => begin,
            None => match self.committed(client, topic, partition).await? {
                Some(offset) => offset.clamp(begin, end),
                None if self.from_end => end,
                None => begin,
            },
        };
        // stored without events: a crash before the first message must not choose another start
        output.send_split(split, vec![], start).await?;
        Ok(start)
    }

    /// Returns the offset that the group has committed.
    async fn committed(&self, client: &BlockingConsumer, topic: &str, partition: i32) -> Result<Option<u64>> {
        let mut list = TopicPartitionList::new();
        list.add_partition(topic, partition);
        let consumer = client.consumer.clone();
        let found = blocking(move || consumer.committed_offsets(list, REQUEST_TIMEOUT)).await?;
        let found = found.map_err(|e| client.failed(&self.brokers, "no offsets of the group", &e))?;
        Ok(match found.find_partition(topic, partition).map(|found| found.offset()) {
            Some(Offset::Offset(offset)) => u64::try_from(offset).ok(),
            _ => None,
        })
    }

    /// Hands over a message and those that are there already.
    async fn take(
        &mut self,
        first: BorrowedMessage<'_>,
        reader: &mut Reader,
        output: &SourceOutput,
    ) -> Result<()> {
        let mut taken: BTreeMap<(String, i32), (Vec<Message>, u64)> = BTreeMap::new();
        reader.note_working(output);
        let consumer = reader.client.consumer.clone();
        let mut next = Some(first);
        let mut count = 0;
        let mut failure = None;
        while let Some(message) = next.take() {
            let offset = message.offset().max(0) as u64;
            let of = (message.topic().to_owned(), message.partition());
            let (messages, position) = taken.entry(of).or_default();
            messages.extend(self.convert(&message, offset));
            *position = offset + 1;
            count += 1;
            if count < BATCH_MESSAGES {
                match consumer.recv().now_or_never() {
                    Some(Ok(message)) => next = Some(message),
                    Some(Err(e)) => failure = Some(e),
                    None => {}
                }
            }
        }
        for ((topic, partition), (messages, position)) in taken {
            let Some(split) = reader.splits.get(&(topic.clone(), partition)) else { continue };
            let receipt = output.send_split(split, messages, position).await?;
            reader.receipts.push(receipt, (topic, partition, position));
        }
        match failure {
            None => Ok(()),
            Some(e) => self.check_error(&e, reader, output),
        }
    }

    fn convert(&mut self, message: &BorrowedMessage<'_>, offset: u64) -> Option<Message> {
        let mut payload = Bytes::copy_from_slice(message.payload().unwrap_or_default());
        let mut properties = vec![
            ("topic".to_owned(), message.topic().to_owned()),
            ("partition".to_owned(), message.partition().to_string()),
            ("offset".to_owned(), offset.to_string()),
        ];
        if let Some(filter) = &mut self.sequences {
            match filter.accept(message.partition(), &payload, self.is_binary) {
                Sequenced::New(rest) => payload = rest,
                Sequenced::Duplicate => return None,
                Sequenced::Missing => tracing::debug!(offset, "the message has no sequence number"),
            }
        }
        if let Some(key) = message.key() {
            properties.push(("key".to_owned(), property_text(key)));
        }
        let time = message.timestamp().to_millis();
        if let Some(ms) = time {
            properties.push(("record.timestamp".to_owned(), ms.to_string()));
        }
        if let Some(headers) = message.headers() {
            let all = headers
                .iter()
                .filter_map(|header| Some((header.key.to_owned(), property_text(header.value?))));
            properties.extend(all);
        }
        let time = time.and_then(|ms| ms.checked_mul(1000)).map(Timestamp);
        let has_no_value = message.payload().is_none();
        Some(Message { payload, properties, time, number: offset, has_no_value })
    }

    /// Tells errors that end the connection from those that the client overcomes.
    fn check_error(&self, error: &KafkaError, reader: &mut Reader, output: &SourceOutput) -> Result<()> {
        let failed = reader.client.context.failed(&self.brokers, "messages cannot be read", error);
        match error.rdkafka_error_code() {
            Some(
                RDKafkaErrorCode::OffsetOutOfRange
                | RDKafkaErrorCode::AutoOffsetReset
                | RDKafkaErrorCode::TopicAuthorizationFailed
                | RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownPartition
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::BadMessage
                | RDKafkaErrorCode::SaslAuthenticationFailed
                | RDKafkaErrorCode::Authentication
                | RDKafkaErrorCode::Fatal,
            ) => Err(failed),
            _ => {
                output.report_problem(failed.message());
                reader.is_troubled = true;
                Ok(())
            }
        }
    }

    /// Commits the offsets of what is durable. Nothing depends on them, so failures are only logged.
    fn commit(&self, reader: &mut Reader) {
        let durable = std::mem::take(&mut reader.durable);
        if !self.commits || durable.is_empty() {
            return;
        }
        let mut list = TopicPartitionList::new();
        for ((topic, partition), next) in durable {
            // offsets come from the brokers, who count them in an i64
            let _ = list.add_partition_offset(&topic, partition, Offset::Offset(next as i64));
        }
        if let Err(e) = reader.client.consumer.commit(&list, CommitMode::Async) {
            tracing::debug!(error = %e, "offsets are not committed");
        }
    }
}
