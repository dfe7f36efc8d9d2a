//! The test suite that every implementation of [`Log`] must pass.
//!
//! It panics where a log breaks the contract, like the assertions of any test.

use std::any::Any;
use std::sync::{Arc, Weak};

use bytes::Bytes;
use tidemill_types::{ErrorKind, Offset, PartitionId, Timestamp};

use crate::{ConsumedRecord, Content, Durability, Log, NewRecord, Subscription};

const P: PartitionId = PartitionId(0);
const Q: PartitionId = PartitionId(1);
/// Records that a consumer asks for at once; less than the tests append.
const RECORDS_MAX: usize = 3;

/// Creates logs for the suite.
pub trait LogFixture {
    /// Creates an empty log.
    fn create(&mut self, partitions: u32) -> Arc<dyn Log>;

    /// Drops the log that was created last and opens it again, as another process would; `None` for a log that lives in
    /// memory only.
    fn reopen(&mut self, log: Arc<dyn Log>) -> Option<Arc<dyn Log>>;
}

/// Runs the suite.
pub fn check(fixture: &mut dyn LogFixture) {
    appended_records_can_be_read(&*fixture.create(2));
    positions_outside_the_log_are_errors(&*fixture.create(1));
    tickets_tell_offset_time_and_durability(&*fixture.create(1));
    consumer_gets_attachments_and_payloads_in_order(&*fixture.create(1));
    consumer_starts_anywhere(&*fixture.create(1));
    partition_has_one_consumer(&*fixture.create(2));
    attachments_without_a_consumer_are_dropped(&*fixture.create(1));
    poll_does_not_wait_and_next_does(&*fixture.create(1));
    every_thread_keeps_its_order(fixture.create(1));
    truncation_drops_only_what_it_may(&*fixture.create(1));
    closed_log_refuses_appends(&*fixture.create(1));
    let log = fixture.create(1);
    reopened_log_goes_on(log, fixture);
}

fn record(text: impl Into<Bytes>) -> NewRecord {
    text.into().into()
}

fn append(log: &dyn Log, partition: PartitionId, text: impl Into<Bytes>) -> Offset {
    let ticket = log.append(partition, record(text), Durability::Fsync).expect("the log takes the record");
    ticket.wait().expect("the record is durable").offset
}

/// Returns all payloads of a partition; checks that offsets have no gaps.
fn payloads(log: &dyn Log, partition: PartitionId) -> Vec<Bytes> {
    let mut at = log.start(partition);
    let mut found = Vec::new();
    while at < log.end(partition) {
        let records = log.read(partition, at, 700).expect("readable records");
        assert!(!records.is_empty(), "nothing is read at offset {at}, before the end of the log");
        for record in records {
            assert_eq!(record.offset, at, "offsets have no gaps");
            found.push(record.payload);
            at = at.next();
        }
    }
    found
}

/// Consumes `n` records; checks that offsets have no gaps.
fn consume(subscription: &dyn Subscription, from: Offset, n: usize) -> Vec<ConsumedRecord> {
    let mut consumed = Vec::new();
    while consumed.len() < n {
        let records = subscription.next(RECORDS_MAX).expect("records").expect("the subscription is open");
        assert!(!records.is_empty() && records.len() <= RECORDS_MAX, "{} records at once", records.len());
        for record in records {
            assert_eq!(record.offset.0, from.0 + consumed.len() as u64, "offsets have no gaps");
            consumed.push(record);
        }
    }
    assert_eq!(consumed.len(), n, "no more records than were appended");
    consumed
}

/// Returns the text of a record, whether it is attached or stored.
fn text(record: ConsumedRecord) -> String {
    match record.content {
        Content::Attachment(attachment) => {
            *attachment.downcast::<String>().expect("the type that was attached")
        }
        Content::Payload(payload) => String::from_utf8_lossy(&payload).into_owned(),
    }
}

fn appended_records_can_be_read(log: &dyn Log) {
    assert_eq!(log.partitions(), 2);
    assert_eq!((log.start(P), log.end(P)), (Offset(0), Offset(0)));
    let large = vec![7; 900_000];
    let expected: Vec<Bytes> =
        vec!["a".into(), Bytes::new(), vec![8; 9000].into(), large.into(), "last".into()];
    for (offset, payload) in (0..).zip(&expected) {
        assert_eq!(append(log, P, payload.clone()), Offset(offset));
    }
    assert_eq!(append(log, Q, "other partition"), Offset(0), "partitions count for themselves");
    assert_eq!((log.end(P), log.end(Q)), (Offset(5), Offset(1)));
    assert_eq!(payloads(log, P), expected);
    assert_eq!(payloads(log, Q), ["other partition"]);
    assert_eq!(log.read(P, Offset(0), 0).expect("a record").len(), 1, "at least one record is read");
    assert_eq!(log.read(P, Offset(5), 1).expect("the end"), []);
    assert!(log.problem().is_none(), "{:?}", log.problem());
}

fn positions_outside_the_log_are_errors(log: &dyn Log) {
    append(log, P, "x");
    let outside = PartitionId(9);
    let kind = |error: tidemill_types::Error| error.kind();
    assert_eq!(log.read(P, Offset(2), 1).map_err(kind), Err(ErrorKind::Invalid));
    assert_eq!(log.sync(P, Offset(1), Durability::Os).map_err(kind), Err(ErrorKind::Invalid));
    assert_eq!(log.read(outside, Offset(0), 1).map_err(kind), Err(ErrorKind::Invalid));
    let refused = log.append(outside, record("x"), Durability::Os).err().map(kind);
    assert_eq!(refused, Some(ErrorKind::Invalid));
    assert_eq!(log.subscribe(P, Offset(2)).err().map(kind), Some(ErrorKind::Invalid));
    assert_eq!(log.subscribe(outside, Offset(0)).err().map(kind), Some(ErrorKind::Invalid));
    assert_eq!(
        (log.start(outside), log.end(outside), log.durable(outside)),
        (Offset(0), Offset(0), Offset(0))
    );
}

fn tickets_tell_offset_time_and_durability(log: &dyn Log) {
    let mut last = Timestamp(i64::MIN);
    for (n, durability) in (0..).zip([Durability::Memory, Durability::Os, Durability::Fsync]) {
        let ticket = log.append(P, record(durability.name()), durability).expect("the log takes the record");
        let receipt = ticket.wait().expect("a receipt");
        assert_eq!(receipt.offset, Offset(n));
        assert!(receipt.durability >= durability, "{} for {durability}", receipt.durability);
        assert!(receipt.time >= last, "times do not decrease");
        last = receipt.time;
        let read = log.read(P, receipt.offset, 1).expect("the record");
        assert_eq!(read[0].time, receipt.time, "the receipt has the time that readers see");
        assert!(read[0].clock > 0, "every record has a clock value");
        log.sync(P, receipt.offset, durability).expect("durable records");
    }
    assert_eq!(log.durable(P), Offset(3));
    // many tickets may be outstanding, and be dropped
    let append =
        |n: u64| log.append(P, record(n.to_string()), Durability::Fsync).expect("the log takes the record");
    let tickets: Vec<_> = (3..50).map(append).collect();
    for (n, ticket) in (3..).zip(tickets) {
        if n % 2 == 0 {
            assert_eq!(ticket.wait().expect("a receipt").offset, Offset(n));
        }
    }
    log.flush().expect("durable records");
    assert_eq!((log.end(P), log.durable(P)), (Offset(50), Offset(50)));
}

fn consumer_gets_attachments_and_payloads_in_order(log: &dyn Log) {
    let subscription = log.subscribe(P, Offset(0)).expect("a subscription");
    for n in 0..20 {
        let attachment = (n % 3 != 0).then(|| Box::new(format!("attached {n}")) as Box<dyn Any + Send>);
        let record = NewRecord { payload: format!("stored {n}").into(), attachment };
        let _ticket = log.append(P, record, Durability::Memory).expect("the log takes the record");
    }
    for (n, record) in consume(&*subscription, Offset(0), 20).into_iter().enumerate() {
        let stored = log.read(P, Offset(n as u64), 1).expect("the record");
        assert_eq!(record.time, stored[0].time, "consumers and readers see the same time");
        assert_eq!(record.clock, stored[0].clock, "consumers and readers see the same clock");
        let how = if n % 3 == 0 { "stored" } else { "attached" };
        assert_eq!(text(record), format!("{how} {n}"));
    }
}

fn consumer_starts_anywhere(log: &dyn Log) {
    for n in 0..10 {
        append(log, P, n.to_string());
    }
    for from in [7, 0, 10] {
        let subscription = log.subscribe(P, Offset(from)).expect("a subscription");
        let before = log.end(P).0;
        append(log, P, before.to_string());
        let n = (before + 1 - from) as usize;
        let texts: Vec<String> = consume(&*subscription, Offset(from), n).into_iter().map(text).collect();
        let expected: Vec<String> = (from..=before).map(|n| n.to_string()).collect();
        assert_eq!(texts, expected);
    }
}

fn partition_has_one_consumer(log: &dyn Log) {
    let subscription = log.subscribe(P, Offset(0)).expect("a subscription");
    assert_eq!(log.subscribe(P, Offset(0)).err().map(|e| e.kind()), Some(ErrorKind::Conflict));
    let other = log.subscribe(Q, Offset(0)).expect("a subscription to another partition");
    append(log, P, "p");
    append(log, Q, "q");
    assert_eq!(consume(&*subscription, Offset(0), 1).pop().map(text), Some("p".to_owned()));
    assert_eq!(consume(&*other, Offset(0), 1).pop().map(text), Some("q".to_owned()));
    subscription.close();
    let again = log.subscribe(P, Offset(0)).expect("a subscription after the first one was closed");
    assert_eq!(consume(&*again, Offset(0), 1).pop().map(text), Some("p".to_owned()));
    // the first one has no part in it any more
    drop(subscription);
    assert_eq!(log.subscribe(P, Offset(0)).err().map(|e| e.kind()), Some(ErrorKind::Conflict));
    drop(again);
    let again = log.subscribe(P, Offset(0)).expect("a subscription after the second one has ended");
    assert_eq!(consume(&*again, Offset(0), 1).pop().map(text), Some("p".to_owned()));
}

fn attachments_without_a_consumer_are_dropped(log: &dyn Log) {
    let attach = |log: &dyn Log| -> Weak<()> {
        let value = Arc::new(());
        let weak = Arc::downgrade(&value);
        let record = NewRecord { payload: "x".into(), attachment: Some(Box::new(value)) };
        if let Ok(ticket) = log.append(P, record, Durability::Fsync) {
            ticket.wait().expect("a receipt");
        }
        weak
    };
    assert_eq!(attach(log).strong_count(), 0, "nobody consumes the partition");
    let subscription = log.subscribe(P, Offset(0)).expect("a subscription");
    let waiting = attach(log);
    assert_eq!(waiting.strong_count(), 1, "the attachment waits for its consumer");
    drop(subscription);
    assert_eq!(waiting.strong_count(), 0, "the consumer has ended");
    let _subscription = log.subscribe(P, log.end(P)).expect("a subscription");
    log.close().expect("a closed log");
    assert_eq!(attach(log).strong_count(), 0, "the append failed");
}

fn poll_does_not_wait_and_next_does(log: &dyn Log) {
    let subscription = log.subscribe(P, Offset(0)).expect("a subscription");
    assert!(subscription.poll(RECORDS_MAX).expect("no record").is_empty());
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| consume(&*subscription, Offset(0), 1).pop().map(text));
        append(log, P, "awaited");
        assert_eq!(waiting.join().expect("no panic"), Some("awaited".to_owned()));
        let closed = scope.spawn(|| subscription.next(RECORDS_MAX).expect("no failure").is_none());
        subscription.close();
        assert!(closed.join().expect("no panic"), "a closed subscription ends its waits");
    });
}

fn every_thread_keeps_its_order(log: Arc<dyn Log>) {
    const THREADS: usize = 4;
    const RECORDS: usize = 50;
    let subscription = log.subscribe(P, Offset(0)).expect("a subscription");
    let consumed = std::thread::scope(|scope| {
        for t in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                for n in 0..RECORDS {
                    let text = format!("{t} {n}");
                    let attachment = (t % 2 == 0).then(|| Box::new(text.clone()) as Box<dyn Any + Send>);
                    let record = NewRecord { payload: text.into(), attachment };
                    let ticket = log.append(P, record, Durability::Os).expect("the log takes the record");
                    if n % 10 == 0 {
                        ticket.wait().expect("a receipt");
                    }
                }
            });
        }
        consume(&*subscription, Offset(0), THREADS * RECORDS)
    });
    let texts: Vec<String> = consumed.into_iter().map(text).collect();
    assert_eq!(payloads(&*log, P), texts, "consumers and readers see the same order");
    for t in 0..THREADS {
        let own: Vec<&str> = texts.iter().filter_map(|text| text.strip_prefix(&format!("{t} "))).collect();
        let expected: Vec<String> = (0..RECORDS).map(|n| n.to_string()).collect();
        assert_eq!(own, expected, "records of thread {t}");
    }
}

fn truncation_drops_only_what_it_may(log: &dyn Log) {
    for n in 0..10 {
        append(log, P, vec![n; 1000]);
    }
    log.truncate(P, Offset(4)).expect("truncation");
    let start = log.start(P);
    assert!(start <= Offset(4), "{start}");
    assert_eq!(payloads(log, P).last().map(|last| last[0]), Some(9));
    if start > Offset(0) {
        assert_eq!(log.read(P, Offset(0), 1).map_err(|e| e.kind()), Err(ErrorKind::NotFound));
        assert_eq!(log.subscribe(P, Offset(0)).err().map(|e| e.kind()), Some(ErrorKind::NotFound));
    }
    log.truncate(P, Offset(2)).expect("truncation below the start does nothing");
    assert_eq!((log.start(P), log.end(P)), (start, Offset(10)));
    log.truncate(P, Offset(10)).expect("truncation of everything");
    assert_eq!(append(log, P, "next"), Offset(10), "offsets are not assigned again");
}

fn closed_log_refuses_appends(log: &dyn Log) {
    append(log, P, "x");
    log.close().expect("a closed log");
    log.close().expect("a second call does nothing");
    let refused = log.append(P, record("y"), Durability::Os).err();
    assert_eq!(refused.map(|e| e.kind()), Some(ErrorKind::Unavailable));
    assert_eq!(payloads(log, P), ["x"], "a closed log can be read");
}

fn reopened_log_goes_on(mut log: Arc<dyn Log>, fixture: &mut dyn LogFixture) {
    let mut expected = Vec::new();
    for round in 0..3_u64 {
        for n in 0..5 {
            let text = Bytes::from(format!("{round} {n}"));
            assert_eq!(append(&*log, P, text.clone()), Offset(expected.len() as u64));
            expected.push(text);
        }
        let last = log.read(P, Offset(expected.len() as u64 - 1), 1).expect("the last record")[0].time;
        let Some(reopened) = fixture.reopen(log) else { return };
        log = reopened;
        assert_eq!(log.end(P), Offset(expected.len() as u64));
        assert_eq!(log.durable(P), log.end(P), "what is there at the start stays there");
        assert_eq!(payloads(&*log, P), expected);
        let again = log.read(P, Offset(expected.len() as u64 - 1), 1).expect("the last record")[0].time;
        assert_eq!(again, last, "times do not change");
    }
    let subscription = log.subscribe(P, Offset(3)).expect("a subscription");
    let texts: Vec<String> = consume(&*subscription, Offset(3), 12).into_iter().map(text).collect();
    assert_eq!(texts, expected[3..]);
    log.close().expect("a log can be closed while it is consumed");
}
