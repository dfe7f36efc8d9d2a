//! The topic with the positions of sinks that send transactions.
//!
//! It has one partition and is compacted. The key of a record is `TRANSACTIONAL_ID#PARTITION`, with the partition of
//! our log, and its value the id of the last event in the same transaction: `3-1042-7`.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use tidemill_connect::DeliveredEvents;
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
            .set("auto.offset.reset", "earliest")
            .set("isolation.level", "read_committed");
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

    /// Reads all positions of a sink, up to its mark: everything before it is then committed or aborted.
    pub(super) async fn read(
        &self,
        connection: &Connection,
        id: &str,
        mark: &(String, String),
    ) -> Result<DeliveredEvents> {
        let failed = |what: &str| {
            Error::unavailable(format!(
                "Kafka at {}: positions in the topic `{}` cannot be read: {what}",
                connection.brokers, self.name
            ))
        };
        let consumer: BaseConsumer<ConnectionContext> = self
            .consumer
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
) -> Result<DeliveredEvents, String> {
    let mut delivered = DeliveredEvents::new();
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
            return Ok(delivered);
        }
        let Some(partition) = key.strip_prefix(prefix).and_then(|n| n.parse::<u32>().ok()) else { continue };
        let event: EventId = value
            .parse()
            .map_err(|_| format!("`{value}` at offset {} is no id of an event", message.offset()))?;
        delivered.insert(PartitionId(partition), event);
    }
    Err(problem)
}
