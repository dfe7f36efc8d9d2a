//! Creates the topic, or checks that an existing one keeps the contract.

use std::time::{Duration, Instant};

use backon::{BlockingRetryable, ConstantBuilder};
use futures::executor::block_on;
use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::{Offset as KafkaOffset, TopicPartitionList};
use tidemill_types::{Error, Offset, PartitionId, Result};

use crate::config::KafkaConfig;
use crate::error::failed;

/// Delay between two requests to the brokers.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// Overhead of a message with its header, above the payload.
pub(crate) const MESSAGE_OVERHEAD_BYTES: usize = 1024;

/// Requests about the topic.
pub(crate) struct Topic {
    config: KafkaConfig,
    admin: AdminClient<DefaultClientContext>,
    /// For watermarks and metadata only.
    consumer: BaseConsumer,
}

impl Topic {
    /// Connects, and creates the topic with `partitions` partitions if it does not exist.
    ///
    /// Errors: `Unavailable` when no broker answers, `Invalid` when the topic has another number of partitions or settings with
    /// which records would be lost.
    pub(crate) fn open(config: &KafkaConfig, partitions: u32) -> Result<Self> {
        if let Some(asked) = config.partitions.filter(|asked| *asked != partitions) {
            return Err(Error::invalid(format!(
                "{config}: the option partitions = {asked} differs from the setting partitions = {partitions}"
            )));
        }
        let connect = |e| failed(config, "cannot create a client", e);
        let admin = config.client_config().create().map_err(connect)?;
        let consumer = config.client_config().set("group.id", "tidemill-topic").create().map_err(connect)?;
        let topic = Self { config: config.clone(), admin, consumer };
        match topic.partitions()? {
            Some(found) if found != partitions => {
                return Err(Error::invalid(format!(
                    "{config}: the topic has {found} partitions, {partitions} are asked for: use another topic, or set \
                     partitions = {found} for a new data directory"
                )));
            }
            Some(_) => {}
            None => topic.create(partitions)?,
        }
        topic.check_settings()?;
        Ok(topic)
    }

    fn options(&self) -> AdminOptions {
        let timeout = Some(self.config.request_timeout);
        AdminOptions::new().request_timeout(timeout).operation_timeout(timeout)
    }

    /// Returns the number of partitions, or `None` if the topic does not exist.
    fn partitions(&self) -> Result<Option<u32>> {
        let metadata = self.consumer.fetch_metadata(Some(&self.config.topic), self.config.request_timeout);
        let metadata = metadata.map_err(|e| failed(&self.config, "no broker tells about the topic", e))?;
        let Some(topic) = metadata.topics().first() else { return Ok(None) };
        match topic.error().map(RDKafkaErrorCode::from) {
            None => Ok(Some(topic.partitions().len() as u32)),
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(None),
            Some(code) => {
                Err(failed(&self.config, "the topic cannot be used", KafkaError::MetadataFetch(code)))
            }
        }
    }

    fn create(&self, partitions: u32) -> Result<()> {
        let replication = self.config.replication.map_or(-1, i32::from);
        let message_bytes = (self.config.message_bytes_max + MESSAGE_OVERHEAD_BYTES).to_string();
        let topic =
            NewTopic::new(&self.config.topic, partitions as i32, TopicReplication::Fixed(replication))
                .set("cleanup.policy", "delete")
                .set("retention.ms", "-1")
                .set("retention.bytes", "-1")
                .set("message.timestamp.type", "LogAppendTime")
                .set("max.message.bytes", &message_bytes);
        let created = block_on(self.admin.create_topics([&topic], &self.options()));
        let created = created.map_err(|e| failed(&self.config, "cannot create the topic", e))?;
        for result in created {
            match result {
                // another process was faster
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((_, code)) => {
                    return Err(failed(&self.config, "cannot create the topic", KafkaError::AdminOp(code)));
                }
            }
        }
        let is_known = || match self.partitions() {
            Ok(Some(found)) if found == partitions => Ok(()),
            Ok(_) => Err(None),
            Err(e) => Err(Some(e)),
        };
        is_known.retry(self.delays()).when(Option::is_none).call().map_err(|e| {
            e.unwrap_or_else(|| {
                Error::unavailable(format!(
                    "{}: the topic was created, but the brokers do not know it yet",
                    self.config
                ))
            })
        })
    }

    /// Returns the delays between requests to brokers that cannot answer yet.
    fn delays(&self) -> ConstantBuilder {
        let attempts = self.config.request_timeout.as_millis() / RETRY_INTERVAL.as_millis();
        ConstantBuilder::new().with_delay(RETRY_INTERVAL).with_max_times(attempts as usize)
    }

    /// Returns the settings of the topic. Asks again while the broker that answers does not know the topic yet: the brokers of
    /// a cluster hear of a new topic one after the other.
    fn settings(&self) -> Result<ConfigResource> {
        let resource = ResourceSpecifier::Topic(&self.config.topic);
        let failed = |e| failed(&self.config, "cannot read the topic's settings", e);
        let unknown = KafkaError::AdminOp(RDKafkaErrorCode::UnknownTopicOrPartition);
        let describe = || {
            let found = block_on(self.admin.describe_configs([&resource], &self.options()))?;
            match found.into_iter().next() {
                Some(Ok(settings)) if !settings.entries.is_empty() => Ok(settings),
                Some(Ok(_)) | None => Err(unknown.clone()),
                Some(Err(code)) => Err(KafkaError::AdminOp(code)),
            }
        };
        describe.retry(self.delays()).when(|e| *e == unknown).call().map_err(failed)
    }

    /// With other settings brokers would drop records that no checkpoint has, or leave gaps.
    fn check_settings(&self) -> Result<()> {
        let found = self.settings()?;
        let value = |name: &str| found.get(name).and_then(|entry| entry.value.clone()).unwrap_or_default();
        let expected = [
            ("cleanup.policy", "delete"),
            ("retention.ms", "-1"),
            ("retention.bytes", "-1"),
            ("message.timestamp.type", "LogAppendTime"),
        ];
        for (name, expected) in expected {
            let found = value(name);
            if found != expected {
                return Err(Error::invalid(format!(
                    "{}: the topic has {name} = `{found}`, and a log needs `{expected}`: kafka-configs.sh --alter \
                     --entity-type topics --entity-name {} --add-config {name}={expected}",
                    self.config, self.config.topic
                )));
            }
        }
        let least = self.config.message_bytes_max + MESSAGE_OVERHEAD_BYTES;
        let most = value("max.message.bytes");
        if most.parse::<usize>().is_ok_and(|most| most < least) {
            return Err(Error::invalid(format!(
                "{}: the topic has max.message.bytes = {most}, less than the {least} of message_bytes_max: raise the one or \
                 lower the other",
                self.config
            )));
        }
        Ok(())
    }

    /// Returns the first offset and the one after the last. Asks again while the partition has no leader, as after its
    /// creation and during an election.
    pub(crate) fn watermarks(&self, partition: PartitionId) -> Result<(u64, u64)> {
        let deadline = Instant::now() + self.config.request_timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let fetch = || {
            let found = self.consumer.fetch_watermarks(&self.config.topic, partition.0 as i32, left());
            found.map_err(|e| failed(&self.config, &format!("no offsets of partition {partition}"), e))
        };
        let (low, high) =
            fetch.retry(self.delays()).when(|e| e.kind().is_retryable() && left() > RETRY_INTERVAL).call()?;
        Ok((low.max(0).unsigned_abs(), high.max(0).unsigned_abs()))
    }

    /// Deletes records below `upto`. Returns the first offset that is left.
    pub(crate) fn truncate(&self, partition: PartitionId, upto: Offset) -> Result<u64> {
        let mut list = TopicPartitionList::new();
        let added = list.add_partition_offset(
            &self.config.topic,
            partition.0 as i32,
            KafkaOffset::Offset(upto.0 as i64),
        );
        let what = format!("cannot delete records of partition {partition} below {upto}");
        let deleted = added.and_then(|()| block_on(self.admin.delete_records(&list, &self.options())));
        let deleted = deleted.map_err(|e| failed(&self.config, &what, e))?;
        let left = deleted.elements().first().map(|element| (element.error(), element.offset()));
        match left {
            Some((Ok(()), KafkaOffset::Offset(low))) => Ok(low.max(0).unsigned_abs()),
            Some((Err(e), _)) => Err(failed(&self.config, &what, e)),
            _ => Ok(upto.0),
        }
    }
}
