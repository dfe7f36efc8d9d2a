//! Topics of Kafka.

use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::producer::{FutureProducer, FutureRecord};
use rdkafka::{ClientConfig, Message, Offset, TopicPartitionList};
use tidemill_connect::runtime;

use super::ends::{End, Server};
use crate::helpers::PATIENCE;

/// A broker. Topics have one partition, so that their order is certain.
pub struct Kafka(pub Server);

impl Kafka {
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.0.address("SERVERS_KAFKA"));
        config
    }
}

impl End for Kafka {
    fn variables(&self) -> Vec<(&'static str, String)> {
        vec![("KAFKA", self.0.address("SERVERS_KAFKA"))]
    }

    fn create(&mut self, topic: &str) {
        let admin: AdminClient<_> = self.config().create().unwrap();
        let new = NewTopic::new(topic, 1, TopicReplication::Fixed(1));
        let created = runtime().block_on(admin.create_topics([&new], &AdminOptions::new())).unwrap();
        created.into_iter().for_each(|topic| drop(topic.unwrap()));
    }

    fn send(&mut self, topic: &str, lines: &[String]) {
        let producer: FutureProducer = self.config().create().unwrap();
        for line in lines {
            let record = FutureRecord::<(), _>::to(topic).payload(line);
            runtime().block_on(producer.send(record, PATIENCE)).unwrap();
        }
    }

    fn read(&mut self, topic: &str) -> Vec<String> {
        let mut config = self.config();
        config
            .set("group.id", "cases")
            .set("enable.auto.commit", "false")
            .set("enable.partition.eof", "true");
        let consumer: BaseConsumer = config.create().unwrap();
        let mut partitions = TopicPartitionList::new();
        partitions.add_partition_offset(topic, 0, Offset::Beginning).unwrap();
        consumer.assign(&partitions).unwrap();
        let (mut messages, end) = (vec![], Instant::now() + PATIENCE);
        while Instant::now() < end {
            match consumer.poll(Duration::from_millis(100)) {
                Some(Ok(message)) => {
                    let payload = String::from_utf8_lossy(message.payload().unwrap_or_default());
                    let key = message.key().map(|key| format!("{}: ", String::from_utf8_lossy(key)));
                    messages.push(format!("{}{payload}", key.unwrap_or_default()));
                }
                Some(Err(KafkaError::PartitionEOF(_))) => return messages,
                _ => {}
            }
        }
        panic!("{topic} has no end");
    }
}
