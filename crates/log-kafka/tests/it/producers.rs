//! Several producers, and errors of setting up.

use std::any::Any;

use bytes::Bytes;
use tidemill_log::{AppenderClock, Content, Durability, Log, NewRecord, clock_at};
use tidemill_log_kafka::{KafkaConfig, KafkaLog, TopicRequirements};
use tidemill_types::{ErrorKind, Offset, PartitionId};

use crate::fresh_topic;

const P: PartitionId = PartitionId(0);

fn attached(text: &str) -> NewRecord {
    NewRecord {
        payload: Bytes::from(text.to_owned()),
        attachment: Some(Box::new(text.to_owned()) as Box<dyn Any + Send>),
    }
}

/// The owner gets its own records with their attachments and those of another producer as payloads.
#[test]
fn owner_consumes_records_of_other_producers() {
    let Some(config) = fresh_topic("") else { return };
    let owner = KafkaLog::open(&config, 1).expect("a new topic");
    let other = KafkaLog::open(&config, 1).expect("the same topic");
    let subscription = owner.subscribe(P, Offset(0)).expect("a subscription");
    let mut tickets = Vec::new();
    for n in 0..30 {
        let log = if n % 3 == 0 { &other } else { &owner };
        let who = if n % 3 == 0 { "other" } else { "owner" };
        tickets.push((
            who,
            n,
            log.append(P, attached(&format!("{who} {n}")), Durability::Os).expect("a ticket"),
        ));
    }
    let mut by_offset = vec![String::new(); 30];
    for (who, n, ticket) in tickets {
        by_offset[ticket.wait().expect("a receipt").offset.0 as usize] = format!("{who} {n}");
    }
    let mut seen = Vec::new();
    while seen.len() < 30 {
        for record in subscription.next(7).expect("records").expect("an open subscription") {
            assert_eq!(record.offset, Offset(seen.len() as u64));
            let (text, own) = match record.content {
                Content::Attachment(text) => (*text.downcast::<String>().expect("a text"), true),
                Content::Payload(text) => (String::from_utf8_lossy(&text).into_owned(), false),
            };
            assert_eq!(own, text.starts_with("owner"), "{text}");
            seen.push(text);
        }
    }
    assert_eq!(seen, by_offset, "tickets and consumers agree on the order of all producers");
    assert_eq!(owner.end(P), Offset(30));
    assert_eq!(other.read(P, Offset(29), 1).expect("the last record").len(), 1);
}

#[test]
fn topic_of_other_shape_is_refused() {
    let Some(config) = fresh_topic("partitions=2") else { return };
    let refused = KafkaLog::open(&config, 3).err().expect("another number of partitions");
    assert!(
        refused.message().contains("partitions = 2 differs from the setting partitions = 3"),
        "{refused}"
    );
    drop(KafkaLog::open(&config, 2).expect("a new topic"));
    let config = KafkaConfig { partitions: None, ..config };
    let refused = KafkaLog::open(&config, 3).err().expect("another number of partitions");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(refused.message().contains("the topic has 2 partitions"), "{refused}");
    let config = KafkaConfig { message_bytes_max: 80 << 20, ..config };
    let refused = KafkaLog::open(&config, 2).err().expect("larger records than the topic takes");
    assert!(refused.message().contains("max.message.bytes"), "{refused}");
}

#[test]
fn records_carry_the_clock_of_their_appender() {
    let Some(config) = fresh_topic("") else { return };
    let append = |clock: AppenderClock, text: &'static str| {
        let log = KafkaLog::open_with_clock(&config, 1, clock).expect("the topic");
        log.append(P, Bytes::from(text).into(), Durability::Os).expect("a ticket").wait().expect("a receipt");
    };
    append(AppenderClock::new(|| 77 << 16 | 5), "of a hybrid clock");
    append(AppenderClock::default(), "of the machine");
    // as the first releases wrote it
    let mut client = rdkafka::ClientConfig::new();
    let producer: rdkafka::producer::BaseProducer =
        client.set("bootstrap.servers", &config.brokers).create().expect("a producer");
    let header = rdkafka::message::Header { key: "tm", value: Some(&[7_u8; 24]) };
    let headers = rdkafka::message::OwnedHeaders::new().insert(header);
    let message = rdkafka::producer::BaseRecord::<(), [u8]>::to(&config.topic).partition(0).payload(b"old");
    producer.send(message.headers(headers)).map_err(|(e, _)| e).expect("room for a message");
    rdkafka::producer::Producer::flush(&producer, std::time::Duration::from_secs(30))
        .expect("a message in Kafka");
    let log = KafkaLog::open(&config, 1).expect("the topic");
    let records = log.read(P, Offset(0), 1 << 20).expect("records");
    assert_eq!(records.len(), 3);
    assert_eq!(records[0].clock, 77 << 16 | 5);
    assert!(
        records[1].clock.abs_diff(clock_at(records[1].time)) < 60_000 << 16,
        "both clocks are of this machine"
    );
    assert_eq!((&records[2].payload[..], records[2].clock), (&b"old"[..], clock_at(records[2].time)));
    let subscription = log.subscribe(P, Offset(0)).expect("a subscription");
    let mut clocks = Vec::new();
    while clocks.len() < 3 {
        clocks.extend(
            subscription.next(3).expect("records").expect("an open subscription").iter().map(|r| r.clock),
        );
    }
    assert_eq!(clocks, records.iter().map(|record| record.clock).collect::<Vec<_>>());
}

/// The broker of these tests is alone, unless the environment names others.
#[test]
fn topic_with_one_copy_is_refused_where_copies_are_required() {
    let Some(config) = fresh_topic("replication=1") else { return };
    let replicated = KafkaConfig { requirements: TopicRequirements::Replicated, ..config.clone() };
    let refused = KafkaLog::open(&replicated, 1).err().expect("a new topic would have one copy");
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    drop(KafkaLog::open(&config, 1).expect("a topic for one node"));
    let refused = KafkaLog::open(&replicated, 1).err().expect("a topic with one copy");
    assert!(refused.message().contains("requirements=unsafe_single_broker"), "{refused}");
    let unsafe_single = KafkaConfig { requirements: TopicRequirements::UnsafeSingleBroker, ..config };
    drop(KafkaLog::open(&unsafe_single, 1).expect("one copy is accepted"));
}

#[test]
fn record_above_the_limit_is_refused() {
    let Some(config) = fresh_topic("message_bytes_max=2097152") else { return };
    let log = KafkaLog::open(&config, 1).expect("a new topic");
    let refused =
        log.append(P, vec![1; (2 << 20) + 1].into_record(), Durability::Os).err().expect("too large");
    assert_eq!(refused.kind(), ErrorKind::LimitReached);
    let ticket = log.append(P, vec![1; 2 << 20].into_record(), Durability::Os).expect("the largest record");
    assert_eq!(ticket.wait().expect("a receipt").offset, Offset(0));
    assert_eq!(log.read(P, Offset(0), 1).expect("the record")[0].payload.len(), 2 << 20);
}

/// Runs without brokers: no one listens at this address.
#[test]
fn absent_brokers_are_an_error_that_names_them() {
    let config: KafkaConfig = "kafka://127.0.0.1:1/t?request_timeout_ms=300".parse().expect("a valid URL");
    let error = KafkaLog::open(&config, 1).err().expect("no brokers");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.message().contains("kafka://127.0.0.1:1/t"), "{error}");
}

trait IntoRecord {
    fn into_record(self) -> NewRecord;
}

impl IntoRecord for Vec<u8> {
    fn into_record(self) -> NewRecord {
        Bytes::from(self).into()
    }
}
