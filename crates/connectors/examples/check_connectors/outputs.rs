//! What arrived, compared with what was sent.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::Value as Json;
use tidemill_connect::runtime;
use tidemill_types::{FieldType, Value};

use crate::app::{PARTITIONS, Places, REFUSED, REFUSED_OF};
use crate::program::Program;
use crate::traffic::{Sent, key};

/// Longest time without a message of Kafka.
const SILENCE: Duration = Duration::from_secs(10);

/// An event that arrived: origin, number, key, count of its key.
type Arrived = (String, u64, String, u64);

/// Returns what the program has not done yet; `None` if it has delivered everything.
pub fn missing(places: &Places, program: &Program, sent: &Sent) -> Result<Option<String>> {
    let stored = program.sql("SELECT stream, stored FROM system.ledger WHERE stream LIKE 'From%'")?;
    for row in &stored {
        if number(&row["stored"])? < sent.events {
            return Ok(Some(format!("{} has {} of {} events", row["stream"], row["stored"], sent.events)));
        }
    }
    let rejected = rejected(program)?;
    if rejected < sent.poison {
        return Ok(Some(format!("{rejected} of {} messages are rejected", sent.poison)));
    }
    for sink in sinks(program)? {
        if sink.emitted < 2 * sent.events || sink.waiting > 0 {
            return Ok(Some(format!("{sink:?} of {}", places.topic_in())));
        }
    }
    Ok(None)
}

/// Compares what every side has with what was sent.
///
/// Errors: something is lost, doubled, or counted wrongly.
pub fn compare(places: &Places, program: &Program, sent: &Sent) -> Result<String> {
    let refused = |n: &u64| n % REFUSED_OF == REFUSED;
    let all: BTreeSet<(&str, u64)> =
        ["kafka", "mqtt"].into_iter().flat_map(|origin| (0..sent.events).map(move |n| (origin, n))).collect();
    let taken: BTreeSet<(&str, u64)> = all.iter().filter(|(_, n)| !refused(n)).copied().collect();
    let from_kafka = read_kafka(places, all.len())?;
    check("Kafka", &from_kafka, &all)?;
    check_counts(&from_kafka, sent)?;
    check("PostgreSQL", &read_table(places, "postgres")?, &taken)?;
    check("MariaDB", &read_table(places, "mariadb")?, &all)?;
    check("Redis", &read_redis(places)?, &all)?;
    let stored = program.sql("SELECT count(*) AS n FROM docs.\"tidemill.undelivered\"")?;
    let stored = number(&stored.first().context("no count of refused events")?["n"])?;
    let refused = (all.len() - taken.len()) as u64;
    ensure!(stored == refused, "{stored} of {refused} refused events are in the error store");
    let rejected = rejected(program)?;
    ensure!(rejected == sent.poison, "{rejected} rejected messages of Kafka for {} sent", sent.poison);
    for sink in sinks(program)? {
        let Sink { emitted, delivered, failed, waiting, .. } = sink;
        ensure!(
            emitted == all.len() as u64 && emitted == delivered + failed + waiting,
            "{sink:?} does not balance"
        );
    }
    let open = program.sql("SELECT stream FROM system.ledger WHERE NOT balanced")?;
    ensure!(open.is_empty(), "the ledger does not balance for {open:?}");
    Ok(format!("{} events at 4 sides, {refused} refused, {rejected} rejected", all.len()))
}

/// Checks that the events `expected` arrived, once each.
fn check(side: &str, arrived: &[Arrived], expected: &BTreeSet<(&str, u64)>) -> Result<()> {
    let mut times: BTreeMap<(&str, u64), u64> = BTreeMap::new();
    for (origin, n, k, _) in arrived {
        ensure!(*k == key(*n), "{side}: event {n} of {origin} has the key {k}");
        *times.entry((origin, *n)).or_default() += 1;
    }
    let lost: Vec<_> = expected.iter().filter(|event| !times.contains_key(event)).collect();
    let doubled: Vec<_> = times.iter().filter(|(_, times)| **times > 1).collect();
    let unknown: Vec<_> = times.keys().filter(|event| !expected.contains(event)).collect();
    let first = |events: usize, example: String| match events {
        0 => String::new(),
        _ => format!(" (as {example})"),
    };
    ensure!(
        lost.is_empty() && doubled.is_empty() && unknown.is_empty(),
        "{side}: {} lost{}, {} doubled{}, {} unexpected{}",
        lost.len(),
        first(lost.len(), format!("{:?}", lost.first())),
        doubled.len(),
        first(doubled.len(), format!("{:?}", doubled.first())),
        unknown.len(),
        first(unknown.len(), format!("{:?}", unknown.first()))
    );
    Ok(())
}

/// Checks that the events of each key were counted without a gap, and arrived in the order of their counts.
fn check_counts(arrived: &[Arrived], sent: &Sent) -> Result<()> {
    let mut counts: BTreeMap<(&str, &str), Vec<u64>> = BTreeMap::new();
    for (origin, _, k, c) in arrived {
        counts.entry((origin, k)).or_default().push(*c);
    }
    for ((origin, k), counts) in &counts {
        let events = (0..sent.events).filter(|n| key(*n) == *k).count() as u64;
        let expected: Vec<u64> = (1..=events).collect();
        ensure!(
            *counts == expected,
            "the events of {k} of {origin} do not arrive as 1 to {events}: {counts:?}"
        );
    }
    Ok(())
}

fn read_kafka(places: &Places, count: usize) -> Result<Vec<Arrived>> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", &places.kafka)
        .set("group.id", "check")
        .set("enable.auto.commit", "false")
        .set("enable.partition.eof", "true")
        .set("isolation.level", "read_committed")
        .create()?;
    let topic = places.topic_out();
    let mut partitions = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        partitions.add_partition_offset(&topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&partitions)?;
    let (mut arrived, mut ended) = (vec![], BTreeSet::new());
    let mut last = Instant::now();
    // to the end of all partitions, so that doubled messages are seen
    while ended.len() < PARTITIONS as usize {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                let event: Json = serde_json::from_slice(message.payload().unwrap_or_default())?;
                arrived.push(event_of(&event["event"])?);
                last = Instant::now();
            }
            Some(Err(rdkafka::error::KafkaError::PartitionEOF(partition))) => {
                ended.insert(partition);
            }
            // a broker that has just come back is not reached at once
            Some(Err(e)) => ensure!(last.elapsed() < SILENCE, "{e}"),
            None => ensure!(last.elapsed() < SILENCE, "{} of {count} messages came", arrived.len()),
        }
    }
    Ok(arrived)
}

fn event_of(event: &Json) -> Result<Arrived> {
    let text =
        |name: &str| event[name].as_str().map(str::to_owned).with_context(|| format!("{event}: {name}"));
    Ok((text("origin")?, number(&event["n"])?, text("k")?, number(&event["c"])?))
}

fn read_table(places: &Places, server: &str) -> Result<Vec<Arrived>> {
    let mut db = places.connect(server)?;
    let types = [FieldType::String, FieldType::Long, FieldType::String, FieldType::Long];
    let sql = format!("SELECT origin, n, k, c FROM {}", places.table());
    let rows = runtime().block_on(db.query(&sql, &[], &types))?;
    let arrived = |row: Vec<Value<'static>>| match row.as_slice() {
        [Value::Str(origin), Value::Int(n), Value::Str(k), Value::Int(c)] => {
            Some((origin.to_string(), *n as u64, k.to_string(), *c as u64))
        }
        _ => None,
    };
    rows.into_iter().map(|row| arrived(row).context("a row of another type")).collect()
}

fn read_redis(places: &Places) -> Result<Vec<Arrived>> {
    let mut connection = redis::Client::open(places.redis.as_str())?.get_connection()?;
    let entries: redis::streams::StreamRangeReply =
        redis::cmd("XRANGE").arg(places.topic_out()).arg("-").arg("+").query(&mut connection)?;
    let arrived = |entry: &redis::streams::StreamId| {
        let texts = entry.map.values().filter_map(|value| redis::from_redis_value_ref::<String>(value).ok());
        let event = texts
            .filter_map(|text| serde_json::from_str::<Json>(&text).ok())
            .find(|json| json["event"].is_object());
        event_of(&event.with_context(|| format!("{entry:?}"))?["event"])
    };
    entries.ids.iter().map(arrived).collect()
}

/// A sink in the ledger.
#[derive(Debug)]
#[allow(dead_code, reason = "messages show all of it")]
struct Sink {
    name: String,
    emitted: u64,
    delivered: u64,
    failed: u64,
    waiting: u64,
    problem: Option<String>,
}

fn sinks(program: &Program) -> Result<Vec<Sink>> {
    let rows = program.sql("SELECT sink, emitted, delivered, failed, waiting, problem FROM system.sinks")?;
    let sink = |row: &Json| {
        Ok(Sink {
            name: row["sink"].as_str().unwrap_or_default().to_owned(),
            emitted: number(&row["emitted"])?,
            delivered: number(&row["delivered"])?,
            failed: number(&row["failed"])?,
            waiting: number(&row["waiting"])?,
            problem: row["problem"].as_str().map(str::to_owned),
        })
    };
    rows.iter().map(sink).collect()
}

/// Returns the number of messages of Kafka that could not be read. Those of MQTT may come, and be counted, several times.
fn rejected(program: &Program) -> Result<u64> {
    let rows = program.sql(
        "SELECT count(*) AS n FROM system.rejected WHERE stream = 'FromKafka' AND kind <> 'duplicate'",
    )?;
    number(&rows.first().context("no count of rejected messages")?["n"])
}

fn number(value: &Json) -> Result<u64> {
    value.as_u64().with_context(|| format!("{value} is not a count"))
}
