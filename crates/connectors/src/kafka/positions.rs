//! The topic with the positions of sinks that send transactions.
//!
//! It has one partition and is compacted. The key of a record is `TRANSACTIONAL_ID#PARTITION`, with the partition of
//! our log, and its value the id of the last event in the same transaction: `3-1042-7`. Where partitions move between processes, the header
//! `epoch` has the epoch of the owner.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tidemill_connect::SinkPositions;
use tidemill_types::{Error, EventId, PartitionId, Result};

use super::client::{ConnectionContext, blocking};
use super::new_topic::{self, TopicLayout};
use super::sink::Connection;

/// Timeout for reading all positions; transactions of other sinks are waited for.
const READ_TIMEOUT: Duration = Duration::from_secs(90);
/// Settings that keep the topic small, so that reading it is quick.
const TOPIC_SETTINGS: [(&str, &str); 4] = [
    ("cleanup.policy", "compact"),
    ("segment.bytes", "1048576"),
    ("segment.ms", "3600000"),
    ("min.cleanable.dirty.ratio", "0.1"),
];

/// Returns the key of the position of a log partition.
pub(super) fn position_key(id: &str, partition: PartitionId) -> String {
    format!("{id}#{}", partition.0)
}

/// Name of the header with the epoch of the owner of the partition.
pub(super) const EPOCH_HEADER: &str = "epoch";

/// Topic with positions.
pub(super) struct PositionTopic {
    name: String,
    consumer: ClientConfig,
}

impl PositionTopic {
    pub(super) fn new(name: String, mut consumer: ClientConfig) -> Self {
        consumer
            .set("group.id", "tidemill-positions")
            .set("enable.auto.commit", "false")
            .set("auto.offset.reset", "earliest");
        Self { name, consumer }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Creates the topic if it is missing.
    pub(super) async fn create(&self, connection: &Connection) -> Result<()> {
        let failed = |what: &str| {
            Error::unavailable(format!(
                "Kafka at {}: the topic `{}` for positions cannot be created: {what}",
                connection.brokers, self.name
            ))
        };
        let layout = TopicLayout { partitions: 1, replication: None };
        new_topic::create(&self.consumer, &connection.context, &self.name, layout, &TOPIC_SETTINGS)
            .await
            .map_err(|e| failed(&e))
    }

    /// Returns key and value of a record that marks the end of what has to be read.
    pub(super) fn mark(&self, id: &str) -> (String, String) {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        (format!("{id}#connected"), format!("{}-{}", now.as_nanos(), std::process::id()))
    }

    /// Reads all positions of a sink, with the epochs that they have, up to its mark: with the isolation `read_committed` everything before
    /// it is then committed or aborted.
    pub(super) async fn read(
        &self,
        connection: &Connection,
        id: &str,
        mark: &(String, String),
        isolation: &str,
    ) -> Result<SinkPositions> {
        let failed = |what: &str| {
            Error::unavailable(format!(
                "Kafka at {}: positions in the topic `{}` cannot be read: {what}",
                connection.brokers, self.name
            ))
        };
        let consumer: BaseConsumer<ConnectionContext> = self
            .consumer
            .clone()
            .set("isolation.level", isolation)
            .create_with_context(connection.context.clone())
            .map_err(|e| failed(&e.to_string()))?;
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(&self.name, 0, Offset::Beginning).map_err(|e| failed(&e.to_string()))?;
        consumer.assign(&list).map_err(|e| failed(&e.to_string()))?;
        let (mark, prefix) = (mark.clone(), format!("{id}#"));
        let read = move || read_to_mark(&consumer, &prefix, &mark);
        blocking(read).await?.map_err(|e| failed(&e))
    }
}

fn read_to_mark(
    consumer: &BaseConsumer<ConnectionContext>,
    prefix: &str,
    mark: &(String, String),
) -> Result<SinkPositions, String> {
    let mut read = SinkPositions::default();
    let mut problem = "it takes too long".to_owned();
    let deadline = Instant::now() + READ_TIMEOUT;
    while Instant::now() < deadline {
        let message = match consumer.poll(Duration::from_millis(100)) {
            None => continue,
            Some(Err(e)) => {
                problem = e.to_string();
                continue;
            }
            Some(Ok(message)) => message,
        };
        let text = |bytes: Option<&[u8]>| String::from_utf8_lossy(bytes.unwrap_or_default()).into_owned();
        let (key, value) = (text(message.key()), text(message.payload()));
        if key == mark.0 && value == mark.1 {
            return Ok(read);
        }
        let Some(partition) = key.strip_prefix(prefix).and_then(|n| n.parse::<u32>().ok()) else { continue };
        let event: EventId = value
            .parse()
            .map_err(|_| format!("`{value}` at offset {} is no id of an event", message.offset()))?;
        let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
        let epoch = headers.filter(|header| header.key == EPOCH_HEADER).find_map(|header| header.value);
        let epoch = epoch.and_then(|value| std::str::from_utf8(value).ok()?.parse::<u64>().ok());
        read.delivered.insert(PartitionId(partition), event);
        read.later_owners.insert(PartitionId(partition), epoch.unwrap_or_default());
    }
    Err(problem)
}
