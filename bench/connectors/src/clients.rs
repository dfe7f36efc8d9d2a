//! Clients of the broker, engines with an app, and figures.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{Offset, TopicPartitionList};
use tidemill_engine::{App, Engine};
use tidemill_flow::Connectors;

/// Partitions of each topic.
pub const PARTITIONS: i32 = 2;
/// Longest time without a message that is expected.
const PATIENCE: Duration = Duration::from_secs(60);

/// Creates a topic.
pub fn create_topic(brokers: &str, name: &str) -> Result<()> {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", brokers).create()?;
    let topic = NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1));
    let runtime = tokio::runtime::Runtime::new()?;
    let created = runtime.block_on(admin.create_topics([&topic], &AdminOptions::new()))?;
    for outcome in created {
        outcome.map_err(|(topic, code)| anyhow::anyhow!("topic {topic}: {code}"))?;
    }
    Ok(())
}

/// Returns an event of about 180 bytes; `at` is the time in microseconds when it was made.
pub fn event(n: u64, at: u64) -> String {
    format!(
        r#"{{"event":{{"host":"node-{:04}.plant.example","process":"process-{:06}","n":{n},"at":{at},"cpu":{}.25,"memory":{},"state":"running since boot"}}}}"#,
        n % 1000,
        n % 100_000,
        n % 100,
        n * 37 % 1_000_000
    )
}

/// Returns an event without the envelope of messages.
pub fn plain_event(n: u64) -> String {
    let event = event(n, now_us());
    event.strip_prefix(r#"{"event":"#).and_then(|e| e.strip_suffix('}')).unwrap_or(&event).to_owned()
}

/// Returns the time in microseconds.
pub fn now_us() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64)
}

/// Returns a producer with the settings of an idempotent client.
pub fn producer(brokers: &str) -> Result<BaseProducer> {
    Ok(ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .set("queue.buffering.max.messages", "1000000")
        .create()?)
}

/// Sends a message, waiting while the client's queue is full.
pub fn send(producer: &BaseProducer, topic: &str, key: &str, payload: &[u8]) -> Result<()> {
    let mut record = BaseRecord::to(topic).key(key).payload(payload);
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                producer.poll(Duration::from_millis(5));
                record = back;
            }
            Err((e, _)) => return Err(e.into()),
        }
    }
}

/// Sends events `from..to` to a topic and waits until the broker has them.
pub fn fill(brokers: &str, topic: &str, from: u64, to: u64) -> Result<()> {
    let producer = producer(brokers)?;
    for n in from..to {
        send(&producer, topic, &format!("{}", n % 1000), event(n, now_us()).as_bytes())?;
    }
    producer.flush(PATIENCE)?;
    Ok(())
}

/// Returns a consumer at the beginning of a topic, which reads committed messages only.
pub fn consumer(brokers: &str, topic: &str) -> Result<BaseConsumer> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", "bench")
        .set("enable.auto.commit", "false")
        .set("isolation.level", "read_committed")
        .set("auto.offset.reset", "earliest")
        .create()?;
    let mut partitions = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        partitions.add_partition_offset(topic, partition, Offset::Beginning)?;
    }
    consumer.assign(&partitions)?;
    Ok(consumer)
}

/// Calls `each` with the payloads of `count` messages.
pub fn read(consumer: &BaseConsumer, count: u64, mut each: impl FnMut(&[u8])) -> Result<()> {
    let mut seen = 0;
    let mut last = Instant::now();
    while seen < count {
        match consumer.poll(Duration::from_millis(100)) {
            Some(Ok(message)) => {
                each(message.payload().unwrap_or_default());
                seen += 1;
                last = Instant::now();
            }
            Some(Err(e)) => return Err(e.into()),
            None if last.elapsed() > PATIENCE => bail!("{seen} of {count} messages came"),
            None => {}
        }
    }
    Ok(())
}

/// Opens an engine with an app of one SiddhiQL file.
pub fn open(dir: &Path, text: &str) -> Result<Engine> {
    let mut app = App::from_texts("bench", None, &[("bench.siddhi", text)]);
    app.settings.partitions = 2;
    let app = app.with_connectors(Connectors::Catalog(Arc::new(tidemill_connectors::catalog())));
    Engine::open(dir, Some(app)).context("the engine does not open")
}

/// Middle and spread of figures.
pub struct Figures {
    pub median: f64,
    /// Difference between the greatest and the least, by the median, in percent.
    pub spread: f64,
}

impl Figures {
    pub fn of(mut values: Vec<f64>) -> Self {
        values.sort_by(f64::total_cmp);
        let median = values.get(values.len() / 2).copied().unwrap_or_default();
        let range = values.last().copied().unwrap_or_default() - values.first().copied().unwrap_or_default();
        Self { median, spread: 100.0 * range / median }
    }
}

/// Returns the value below which the share `q` of the values is.
pub fn quantile(values: &mut [u64], q: f64) -> u64 {
    values.sort_unstable();
    let index = ((values.len() as f64 - 1.0) * q).round() as usize;
    values.get(index).copied().unwrap_or_default()
}

/// Returns the resident memory of this process in MiB.
pub fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() / 1024
}
