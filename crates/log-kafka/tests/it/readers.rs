//! Partitions that are opened, closed and read at different speeds with one consumer.

use std::any::Any;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidemill_log::{ConsumedRecord, Content, Durability, Log, NewRecord, Subscription};
use tidemill_log_kafka::KafkaLog;
use tidemill_types::{ErrorKind, Offset, PartitionId};

use crate::fresh_topic;

const P: PartitionId = PartitionId(0);
const Q: PartitionId = PartitionId(1);
/// Longer than a reader that takes nothing keeps what the client has fetched.
const IDLE: Duration = Duration::from_millis(500);

/// Returns the payload of a record, which tells its place.
fn payload(partition: PartitionId, offset: u64, bytes: usize) -> Bytes {
    let mut payload = format!("{partition} {offset} ").into_bytes();
    payload.resize(payload.len().max(bytes), b'.');
    payload.into()
}

fn fill(log: &KafkaLog, partition: PartitionId, sizes: impl IntoIterator<Item = usize>) -> u64 {
    let mut end = log.end(partition).0;
    for bytes in sizes {
        let _ticket = log
            .append(partition, payload(partition, end, bytes).into(), Durability::Fsync)
            .expect("the log takes the record");
        end += 1;
    }
    log.flush().expect("durable records");
    end
}

fn check(partition: PartitionId, offset: u64, payload: &[u8]) {
    let expected = format!("{partition} {offset} ");
    assert!(payload.starts_with(expected.as_bytes()), "another record than {expected}");
}

/// Consumes at least up to `end` and checks each record. Returns the offset of the next one.
fn consume(subscription: &dyn Subscription, partition: PartitionId, from: u64, end: u64) -> u64 {
    let mut next = from;
    while next < end {
        for ConsumedRecord { offset, content, .. } in
            subscription.next(7).expect("records").expect("an open subscription")
        {
            assert_eq!(offset.0, next, "offsets of partition {partition} have no gaps");
            let Content::Payload(payload) = content else { panic!("a record without attachment") };
            check(partition, next, &payload);
            next += 1;
        }
    }
    next
}

/// Reads another partition for a while.
fn read_again_and_again(log: &KafkaLog, partition: PartitionId, end: u64) {
    let begin = Instant::now();
    while begin.elapsed() < IDLE {
        let subscription = log.subscribe(partition, Offset(0)).expect("a subscription");
        consume(&*subscription, partition, 0, end);
    }
}

#[test]
fn partitions_open_and_close_while_others_are_read() {
    let Some(config) = fresh_topic("fetch_bytes_max=4194304") else { return };
    let log = KafkaLog::open(&config, 6).expect("a new topic");
    let ends: Vec<u64> = (0..6).map(|p| fill(&log, PartitionId(p), (0..300).map(|n| n * 20))).collect();
    std::thread::scope(|scope| {
        for p in (2..6).map(PartitionId) {
            let log = &log;
            scope.spawn(move || {
                let subscription = log.subscribe(p, Offset(0)).expect("a subscription");
                consume(&*subscription, p, 0, 300);
            });
        }
        // at other offsets, some of them not read at all
        for round in 0..30 {
            let from = (round * 71) % 300;
            let subscription = log.subscribe(P, Offset(from)).expect("a subscription");
            if round % 3 > 0 {
                consume(&*subscription, P, from, (from + 5 * round).min(ends[0]));
            }
        }
    });
    // a partition is read elsewhere while it is consumed
    let subscription = log.subscribe(Q, Offset(0)).expect("a subscription");
    let next = consume(&*subscription, Q, 0, 100);
    for from in [0, 100, 299, 50] {
        let record = &log.read(Q, Offset(from), 1).expect("a record")[0];
        check(Q, record.offset.0, &record.payload);
        assert_eq!(record.offset, Offset(from));
    }
    consume(&*subscription, Q, next, 300);
}

/// The thread that relieves slow readers meets some that are just closed.
#[test]
fn partition_that_is_closed_at_any_moment_opens_again() {
    let Some(config) = fresh_topic("") else { return };
    let log = KafkaLog::open(&config, 2).expect("a new topic");
    fill(&log, P, (0..500).map(|_| 20_000));
    let _other = log.subscribe(Q, Offset(0)).expect("a subscription, so that the consumer stays");
    let begin = Instant::now();
    while begin.elapsed() < 6 * IDLE {
        let subscription = log.subscribe(P, Offset(0)).expect("a subscription");
        consume(&*subscription, P, 0, 1);
    }
}

/// The slow partition has more, and larger records, than are kept for it.
#[test]
fn slow_reader_gets_every_record_and_holds_up_no_other() {
    let Some(config) = fresh_topic("fetch_bytes_max=4194304") else { return };
    let log = KafkaLog::open(&config, 2).expect("a new topic");
    let sizes = |n: usize| if n.is_multiple_of(40) { 1_500_000 } else { 50_000 };
    let end = fill(&log, P, (0..200).map(sizes));
    let other_end = fill(&log, Q, (0..50).map(|_| 1000));
    let slow = log.subscribe(P, Offset(0)).expect("a subscription");
    let mut next = 0;
    for until in [0, 1, 10, 60] {
        read_again_and_again(&log, Q, other_end);
        next = consume(&*slow, P, next, until);
    }
    read_again_and_again(&log, Q, other_end);
    consume(&*slow, P, next, end);
}

#[test]
fn slow_reader_gets_its_attachments() {
    let Some(config) = fresh_topic("fetch_bytes_max=4194304") else { return };
    let log = KafkaLog::open(&config, 2).expect("a new topic");
    let other_end = fill(&log, Q, [10]);
    let slow = log.subscribe(P, Offset(0)).expect("a subscription");
    for n in 0..60_u64 {
        let attachment = n.is_multiple_of(2).then(|| Box::new(n) as Box<dyn Any + Send>);
        let record = NewRecord { payload: payload(P, n, 50_000), attachment };
        let _ticket = log.append(P, record, Durability::Fsync).expect("the log takes the record");
    }
    log.flush().expect("durable records");
    read_again_and_again(&log, Q, other_end);
    let mut next = 0;
    while next < 60 {
        for record in slow.next(7).expect("records").expect("an open subscription") {
            assert_eq!(record.offset.0, next);
            match record.content {
                Content::Attachment(n) => assert_eq!(*n.downcast::<u64>().expect("a number"), next),
                Content::Payload(payload) => {
                    assert!(next % 2 == 1, "record {next} comes with its attachment");
                    check(P, next, &payload);
                }
            }
            next += 1;
        }
    }
}

/// Another process has truncated the partition since this one asked for its start.
#[test]
fn failure_of_one_partition_is_no_failure_of_others() {
    let Some(config) = fresh_topic("") else { return };
    let log = KafkaLog::open(&config, 2).expect("a new topic");
    for p in [P, Q] {
        fill(&log, p, [1; 20]);
    }
    let other = KafkaLog::open(&config, 2).expect("the same topic");
    other.truncate(P, Offset(10)).expect("truncation");
    let truncated = log.subscribe(P, Offset(5)).expect("the start that this process knows");
    let whole = log.subscribe(Q, Offset(0)).expect("a subscription");
    for _ in 0..2 {
        let failure = truncated.next(1).err().expect("the record is gone, and stays so");
        assert_eq!(failure.kind(), ErrorKind::NotFound, "{failure}");
    }
    consume(&*whole, Q, 0, 20);
    drop(truncated);
    let again = log.subscribe(P, Offset(10)).expect("a subscription where the log begins now");
    consume(&*again, P, 10, 20);
}
