//! The suite that every log must pass.

use std::sync::Arc;

use tidemill_log::Log;
use tidemill_log::contract::{self, LogFixture};
use tidemill_log_kafka::{KafkaConfig, KafkaLog};

use crate::fresh_topic;

struct OnKafka(KafkaConfig);

impl LogFixture for OnKafka {
    fn create(&mut self, partitions: u32) -> Arc<dyn Log> {
        self.0 = fresh_topic("").expect("the brokers of the first topic");
        Arc::new(KafkaLog::open(&self.0, partitions).expect("a new topic"))
    }

    fn reopen(&mut self, log: Arc<dyn Log>) -> Option<Arc<dyn Log>> {
        let partitions = log.partitions();
        drop(log);
        Some(Arc::new(KafkaLog::open(&self.0, partitions).expect("the topic")))
    }
}

#[test]
fn log_on_kafka_passes() {
    let Some(config) = fresh_topic("") else { return };
    contract::check(&mut OnKafka(config));
}

/// The brokers of a cluster (SERVERS_KAFKA) hear of a new topic one after the other, and any of them may be asked.
#[test]
fn new_topics_are_opened_at_once() {
    for _ in 0..10 {
        let Some(config) = fresh_topic("") else { return };
        KafkaLog::open(&config, 1).expect("a new topic");
    }
}
