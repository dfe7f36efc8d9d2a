//! Logs whose partitions begin at other offsets than the topic.

use bytes::Bytes;
use rdkafka::admin::{AdminClient, AdminOptions};
use rdkafka::client::DefaultClientContext;
use tidemill_log::{Durability, Log};
use tidemill_log_kafka::{KafkaConfig, KafkaLog};
use tidemill_types::{ErrorKind, Offset, PartitionId, Result};

use crate::fresh_topic;

const P: PartitionId = PartitionId(0);
const Q: PartitionId = PartitionId(1);
const R: PartitionId = PartitionId(2);

fn with(config: &KafkaConfig, bases: &[u64]) -> KafkaConfig {
    KafkaConfig { base_offsets: Some(bases.to_vec()), ..config.clone() }
}

fn append(log: &KafkaLog, partition: PartitionId, text: &'static str) -> Offset {
    let ticket = log.append(partition, Bytes::from(text).into(), Durability::Fsync).expect("a ticket");
    ticket.wait().expect("a receipt").offset
}

/// Returns offsets and payloads from an offset on, as a reader and as a consumer get them.
fn records(log: &KafkaLog, partition: PartitionId, from: u64) -> Vec<(u64, String)> {
    let text = |payload: &[u8]| String::from_utf8_lossy(payload).into_owned();
    let read = log.read(partition, Offset(from), 1 << 20).expect("records");
    let read: Vec<_> = read.iter().map(|r| (r.offset.0, text(&r.payload))).collect();
    let subscription = log.subscribe(partition, Offset(from)).expect("a subscription");
    let mut consumed = Vec::new();
    while consumed.len() < read.len() {
        for record in subscription.next(2).expect("records").expect("an open subscription") {
            let tidemill_log::Content::Payload(payload) = record.content else { panic!("an attachment") };
            consumed.push((record.offset.0, text(&payload)));
        }
    }
    assert_eq!(consumed, read);
    read
}

fn refusal(log: Result<KafkaLog>, expected: &str) {
    let error = log.err().expect("a refusal");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.message().contains(expected), "{error}");
}

fn delete_topic(config: &KafkaConfig, topic: &str) {
    let mut client = rdkafka::ClientConfig::new();
    let admin: AdminClient<DefaultClientContext> =
        client.set("bootstrap.servers", &config.brokers).create().expect("a client");
    let deleted = futures::executor::block_on(admin.delete_topics(&[topic], &AdminOptions::new()));
    assert!(deleted.expect("an answer").iter().all(std::result::Result::is_ok));
}

#[test]
fn partitions_begin_at_their_bases_for_every_process() {
    let Some(config) = fresh_topic("") else { return };
    let bases = [4711, 0, 1 << 40];
    let log = KafkaLog::open(&with(&config, &bases), 3).expect("a new topic");
    assert_eq!(log.latest_ends().expect("ends of partitions without records"), bases.map(Offset));
    for (p, base) in [P, Q, R].into_iter().zip(bases) {
        assert_eq!((log.start(p), log.end(p)), (Offset(base), Offset(base)));
        assert_eq!(append(&log, p, "a"), Offset(base));
        assert_eq!(append(&log, p, "b"), Offset(base + 1));
    }
    assert_eq!(log.read(P, Offset(4710), 1).map_err(|e| e.kind()), Err(ErrorKind::NotFound));
    // a process that is not told the bases
    let other = KafkaLog::open(&config, 3).expect("the topic");
    assert_eq!(append(&other, P, "c"), Offset(4713));
    // what another process was told is asked for
    let ends = [4714, 2, (1 << 40) + 2].map(Offset);
    assert_eq!(log.latest_ends().expect("ends"), ends);
    assert_eq!(log.end(P), Offset(4714));
    let expected = [(4711, "a"), (4712, "b"), (4713, "c")].map(|(n, text)| (n, text.to_owned()));
    assert_eq!(records(&other, P, 4711), expected);
    assert_eq!(records(&log, P, 4713), expected[2..], "the process that opened it first, too");
    assert_eq!(records(&log, R, (1 << 40) + 1), [((1 << 40) + 1, "b".to_owned())]);
    log.sync(P, Offset(4713), Durability::Fsync).expect("a durable record");
    // the bases outlive the records
    other.truncate(P, Offset(4714)).expect("truncation");
    assert_eq!(other.start(P), Offset(4714));
    // the other process learns it when it asks
    assert_eq!(log.start(P), Offset(4711));
    log.learn_starts().expect("starts");
    assert_eq!(log.start(P), Offset(4714));
    drop((log, other));
    let log = KafkaLog::open(&with(&config, &bases), 3).expect("the topic");
    assert_eq!((log.start(P), log.end(P), log.end(R)), (Offset(4714), Offset(4714), Offset((1 << 40) + 2)));
    assert_eq!(append(&log, P, "d"), Offset(4714));
    assert_eq!(records(&log, P, 4714), [(4714, "d".to_owned())]);
}

#[test]
fn other_bases_are_refused() {
    let Some(config) = fresh_topic("") else { return };
    refusal(
        KafkaLog::open(&with(&config, &[1]), 2),
        "base_offsets has 1 numbers, and the log has 2 partitions",
    );
    drop(KafkaLog::open(&with(&config, &[5, 6]), 2).expect("a new topic"));
    for other in [[5, 7], [0, 0]] {
        refusal(KafkaLog::open(&with(&config, &other), 2), "the partitions begin at offsets 5,6");
    }
    // a log that begins at 0, once it has records
    let Some(config) = fresh_topic("") else { return };
    let log = KafkaLog::open(&with(&config, &[0, 0]), 2).expect("a new topic");
    append(&log, Q, "a");
    refusal(
        KafkaLog::open(&with(&config, &[5, 6]), 2),
        "partition 1 begins at offset 0 and has had 1 records",
    );
}

#[test]
fn one_of_two_processes_that_create_a_log_with_other_bases_is_refused() {
    let Some(config) = fresh_topic("") else { return };
    let opened: Vec<_> = std::thread::scope(|scope| {
        let open = |base| {
            let config = with(&config, &[base]);
            scope.spawn(move || KafkaLog::open(&config, 1).map(|log| log.end(P)))
        };
        let threads = [7, 8].map(open);
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    let first = KafkaLog::open(&config, 1).expect("the log").end(P);
    let of_first: Vec<_> = opened.iter().filter(|end| end.as_ref().is_ok_and(|end| *end == first)).collect();
    assert_eq!(of_first.len(), 1, "{opened:?}, and the log has {first}");
    assert_eq!(opened.iter().filter(|end| end.is_err()).count(), 1, "{opened:?}");
}

/// A process that opens the log without its bases would number the records otherwise, and their headers show it.
#[test]
fn lost_bases_are_found_at_the_first_record() {
    let Some(config) = fresh_topic("") else { return };
    let log = KafkaLog::open(&with(&config, &[100]), 1).expect("a new topic");
    append(&log, P, "a");
    drop(log);
    delete_topic(&config, &format!("{}-base", config.topic));
    // brokers forget a topic one after the other
    let log = loop {
        let log = KafkaLog::open(&config, 1).expect("the topic");
        if log.end(P) == Offset(1) {
            break log;
        }
    };
    let error = log.read(P, Offset(0), 1).expect_err("a record of another numbering");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.message().contains("begins at offset 100, and here it begins at 0"), "{error}");
}
