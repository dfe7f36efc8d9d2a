//! Creates the topic, or checks that an existing one keeps the contract.

use std::sync::Arc;
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
use crate::topic_settings;

/// Delay between two requests to the brokers.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Partitions of a topic, and the copies that each of them has at least.
pub(crate) struct Shape {
    pub partitions: u32,
    copies: usize,
}

/// Connections for requests about topics.
pub(crate) struct Clients {
    admin: AdminClient<DefaultClientContext>,
    /// For watermarks and metadata, and to read a record when the log is opened.
    pub consumer: BaseConsumer,
}

/// Requests about a topic.
pub(crate) struct Topic {
    pub config: KafkaConfig,
    pub clients: Arc<Clients>,
}

impl Topic {
    /// Creates the clients.
    ///
    /// Errors: `Invalid` for properties that these do not take.
    pub(crate) fn connect(config: &KafkaConfig) -> Result<Self> {
        let connect = |e| failed(config, "cannot create a client", e);
        let admin = config.client_config().create().map_err(connect)?;
        let consumer = config
            .client_config()
            .set("group.id", "tidemill-topic")
            .set("enable.auto.commit", "false")
            .create()
            .map_err(connect)?;
        Ok(Self { config: config.clone(), clients: Arc::new(Clients { admin, consumer }) })
    }

    /// Returns another topic at the same brokers.
    pub(crate) fn other(&self, topic: String) -> Self {
        Self { config: KafkaConfig { topic, ..self.config.clone() }, clients: Arc::clone(&self.clients) }
    }

    /// Creates the topic with `partitions` partitions if it does not exist, otherwise checks it.
    ///
    /// Errors: `Unavailable` when no broker answers, `Invalid` when the topic has another number of partitions or settings with
    /// which records would be lost.
    pub(crate) fn ensure(&self, partitions: u32) -> Result<()> {
        let config = &self.config;
        let found = match self.shape()? {
            None => {
                self.create(partitions)?;
                self.shape()?
            }
            found => found,
        };
        let Shape { partitions: found, copies } = found.ok_or_else(|| self.not_known_yet())?;
        if found != partitions {
            return Err(Error::invalid(format!(
                "{config}: the topic has {found} partitions, {partitions} are asked for: use another topic, or set \
                 partitions = {found} for a new data directory"
            )));
        }
        self.check_settings(copies)
    }

    fn options(&self) -> AdminOptions {
        let timeout = Some(self.config.request_timeout);
        AdminOptions::new().request_timeout(timeout).operation_timeout(timeout)
    }

    /// Returns the shape of the topic, `None` if it does not exist.
    pub(crate) fn shape(&self) -> Result<Option<Shape>> {
        let metadata =
            self.clients.consumer.fetch_metadata(Some(&self.config.topic), self.config.request_timeout);
        let metadata = metadata.map_err(|e| failed(&self.config, "no broker tells about the topic", e))?;
        let Some(topic) = metadata.topics().first() else { return Ok(None) };
        match topic.error().map(RDKafkaErrorCode::from) {
            None => {
                let copies = topic.partitions().iter().map(|p| p.replicas().len()).min().unwrap_or(0);
                Ok(Some(Shape { partitions: topic.partitions().len() as u32, copies }))
            }
            Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => Ok(None),
            Some(code) => {
                Err(failed(&self.config, "the topic cannot be used", KafkaError::MetadataFetch(code)))
            }
        }
    }

    fn create(&self, partitions: u32) -> Result<()> {
        let copies = topic_settings::copies_of_new_topic(&self.config)?;
        let settings = topic_settings::settings_of_new_topic(&self.config, copies);
        let replication = TopicReplication::Fixed(copies.map_or(-1, |copies| copies as i32));
        let new = NewTopic::new(&self.config.topic, partitions as i32, replication);
        let topic = settings.iter().fold(new, |topic, (name, value)| topic.set(name, value));
        let created = block_on(self.clients.admin.create_topics([&topic], &self.options()));
        let created = created.map_err(|e| failed(&self.config, "cannot create the topic", e))?;
        for result in created {
            match result {
                // another process was faster
                Ok(_) | Err((_, RDKafkaErrorCode::TopicAlreadyExists)) => {}
                Err((_, code)) => {
                    let what = match code {
                        RDKafkaErrorCode::InvalidReplicationFactor => {
                            "cannot create the topic with more copies (option replication) than there are brokers"
                        }
                        _ => "cannot create the topic",
                    };
                    return Err(failed(&self.config, what, KafkaError::AdminOp(code)));
                }
            }
        }
        let is_known = || match self.shape() {
            Ok(Some(found)) if found.partitions == partitions => Ok(()),
            Ok(_) => Err(None),
            Err(e) => Err(Some(e)),
        };
        let known = is_known.retry(self.delays()).when(Option::is_none).call();
        known.map_err(|e| e.unwrap_or_else(|| self.not_known_yet()))
    }

    fn not_known_yet(&self) -> Error {
        Error::unavailable(format!(
            "{}: the topic was created, but the brokers do not know it yet",
            self.config
        ))
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
            let found = block_on(self.clients.admin.describe_configs([&resource], &self.options()))?;
            match found.into_iter().next() {
                Some(Ok(settings)) if !settings.entries.is_empty() => Ok(settings),
                Some(Ok(_)) | None => Err(unknown.clone()),
                Some(Err(code)) => Err(KafkaError::AdminOp(code)),
            }
        };
        describe.retry(self.delays()).when(|e| *e == unknown).call().map_err(failed)
    }

    fn check_settings(&self, copies: usize) -> Result<()> {
        let found = self.settings()?;
        let value = |name: &str| found.get(name).and_then(|entry| entry.value.clone()).unwrap_or_default();
        topic_settings::check(&self.config, copies, value)
    }

    /// Returns the first offset and the one after the last. Asks again while the partition has no leader, as after its
    /// creation and during an election.
    pub(crate) fn watermarks(&self, partition: PartitionId) -> Result<(u64, u64)> {
        let deadline = Instant::now() + self.config.request_timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let fetch = || {
            let found =
                self.clients.consumer.fetch_watermarks(&self.config.topic, partition.0 as i32, left());
            found.map_err(|e| failed(&self.config, &format!("no offsets of partition {partition}"), e))
        };
        let (low, high) =
            fetch.retry(self.delays()).when(|e| e.kind().is_retryable() && left() > RETRY_INTERVAL).call()?;
        Ok((low.max(0).unsigned_abs(), high.max(0).unsigned_abs()))
    }

    /// Returns the offset after the last record of each partition, by one request to each broker. Asks again while a partition has no leader.
    pub(crate) fn ends(&self, partitions: u32) -> Result<Vec<u64>> {
        self.offsets_at(KafkaOffset::End, partitions)
    }

    /// Returns the offset of the first record of each partition, as [`Self::ends`] does.
    pub(crate) fn starts(&self, partitions: u32) -> Result<Vec<u64>> {
        self.offsets_at(KafkaOffset::Beginning, partitions)
    }

    fn offsets_at(&self, place: KafkaOffset, partitions: u32) -> Result<Vec<u64>> {
        let deadline = Instant::now() + self.config.request_timeout;
        let left = || deadline.saturating_duration_since(Instant::now());
        let no_offsets = |e| failed(&self.config, "no offsets of partitions", e);
        let ask = || {
            let mut asked = TopicPartitionList::with_capacity(partitions as usize);
            for partition in 0..partitions {
                // in place of a time
                asked
                    .add_partition_offset(&self.config.topic, partition as i32, place)
                    .map_err(no_offsets)?;
            }
            let found = self.clients.consumer.offsets_for_times(asked, left()).map_err(no_offsets)?;
            let mut offsets = vec![None; partitions as usize];
            for element in found.elements() {
                element.error().map_err(no_offsets)?;
                if let (Some(found), KafkaOffset::Offset(offset)) =
                    (offsets.get_mut(element.partition() as usize), element.offset())
                {
                    *found = u64::try_from(offset).ok();
                }
            }
            let missing = |id| Error::unavailable(format!("the brokers tell no offset of partition {id}"));
            offsets.into_iter().enumerate().map(|(id, offset)| offset.ok_or_else(|| missing(id))).collect()
        };
        ask.retry(self.delays()).when(|e| e.kind().is_retryable() && left() > RETRY_INTERVAL).call()
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
        let deleted =
            added.and_then(|()| block_on(self.clients.admin.delete_records(&list, &self.options())));
        let deleted = deleted.map_err(|e| failed(&self.config, &what, e))?;
        let left = deleted.elements().first().map(|element| (element.error(), element.offset()));
        match left {
            Some((Ok(()), KafkaOffset::Offset(low))) => Ok(low.max(0).unsigned_abs()),
            Some((Err(e), _)) => Err(failed(&self.config, &what, e)),
            _ => Ok(upto.0),
        }
    }
}
