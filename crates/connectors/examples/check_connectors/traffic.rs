//! What is sent: events with duplicates, out of order, and messages that cannot be read.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use rdkafka::config::ClientConfig;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rumqttc::{Client, Event, MqttOptions, Packet, QoS};

use crate::app::Places;

/// Keys of the events.
pub const KEYS: u64 = 20;
/// Events that change places with each other.
const DISORDER: usize = 50;
/// Longest time until a broker has taken everything.
const PATIENCE: Duration = Duration::from_secs(120);

/// Counts of what was sent.
pub struct Sent {
    /// Events of each source: all numbers from 0 on.
    pub events: u64,
    /// Messages to Kafka that cannot be read.
    pub poison: u64,
}

/// Returns the key of an event.
pub fn key(n: u64) -> String {
    format!("key-{}", n * 7 % KEYS)
}

/// One message.
struct Message {
    key: String,
    text: String,
}

/// Returns the messages of a source and the number of those that cannot be read.
fn messages(random: &mut StdRng, events: u64) -> (Vec<Message>, u64) {
    let mut numbers: Vec<u64> = (0..events).collect();
    for n in 0..events {
        if random.random_ratio(1, 20) {
            numbers.push(n);
        }
    }
    // a duplicate comes soon after the first, or up to `DISORDER` places before what it follows
    numbers.sort();
    numbers.chunks_mut(DISORDER).for_each(|chunk| chunk.shuffle(random));
    let mut messages = vec![];
    let mut poison = 0;
    for n in numbers {
        let key = key(n);
        if random.random_ratio(1, 200) {
            let bad = [
                format!("{{\"event\": {{\"n\": {n}, \"k\""),
                format!("{{\"event\": {{\"n\": \"many\", \"k\": \"{key}\"}}}}"),
                format!("{{\"event\": {{\"k\": \"{key}\"}}}}"),
                "\u{0}".to_owned(),
            ];
            let text = bad[random.random_range(0..bad.len())].clone();
            messages.push(Message { key: key.clone(), text });
            poison += 1;
        }
        messages.push(Message { text: format!("{{\"event\": {{\"n\": {n}, \"k\": \"{key}\"}}}}"), key });
    }
    (messages, poison)
}

/// Sends the events of both sources over `seconds`.
pub fn send(places: &Places, seed: u64, events: u64, seconds: f64) -> Result<Sent> {
    let mut random = StdRng::seed_from_u64(seed ^ 0xE7E7);
    let (to_kafka, poison) = messages(&mut random, events);
    let (to_mqtt, _) = messages(&mut random, events);
    std::thread::scope(|scope| {
        let mqtt = scope.spawn(|| send_mqtt(places, &to_mqtt, seconds));
        send_kafka(places, &to_kafka, seconds)?;
        mqtt.join().map_err(|_| anyhow::anyhow!("the client of MQTT failed"))?
    })?;
    Ok(Sent { events, poison })
}

/// Calls `send` for each message, evenly over `seconds`.
fn paced<'m>(
    messages: &'m [Message],
    seconds: f64,
    mut send: impl FnMut(&'m Message) -> Result<()>,
) -> Result<()> {
    let started = Instant::now();
    for (index, message) in messages.iter().enumerate() {
        let due = started + Duration::from_secs_f64(seconds * index as f64 / messages.len() as f64);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        send(message)?;
    }
    Ok(())
}

fn send_kafka(places: &Places, messages: &[Message], seconds: f64) -> Result<()> {
    // the client repeats what the broker has not acknowledged, and the broker drops repetitions
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", &places.kafka)
        .set("enable.idempotence", "true")
        .set("linger.ms", "5")
        .set("queue.buffering.max.messages", "1000000")
        .create()?;
    paced(messages, seconds, |message| {
        let topic = places.topic_in();
        let mut record = BaseRecord::to(&topic).key(&message.key).payload(&message.text);
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
    })?;
    Ok(producer.flush(PATIENCE)?)
}

fn send_mqtt(places: &Places, messages: &[Message], seconds: f64) -> Result<()> {
    let (host, port) = places.mqtt.split_once(':').unwrap_or_default();
    let mut options = MqttOptions::new(format!("sender-{}", places.topic_in()), host, port.parse()?);
    options.set_clean_session(false).set_keep_alive(Duration::from_secs(10));
    let (client, mut connection) = Client::new(options, 1000);
    let topic = places.topic_in();
    std::thread::scope(|scope| -> Result<()> {
        let driving = scope.spawn(move || {
            let mut acknowledged = 0;
            let mut quiet = Instant::now();
            while acknowledged < messages.len() {
                match connection.recv_timeout(Duration::from_millis(100)) {
                    Ok(Ok(Event::Incoming(Packet::PubAck(_)))) => {
                        acknowledged += 1;
                        quiet = Instant::now();
                    }
                    // the client connects again and repeats what was not acknowledged
                    Ok(Err(_)) => std::thread::sleep(Duration::from_millis(50)),
                    _ if quiet.elapsed() > PATIENCE => {
                        bail!("{acknowledged} of {} messages are acknowledged", messages.len())
                    }
                    _ => {}
                }
            }
            Ok(())
        });
        paced(messages, seconds, |message| {
            Ok(client.publish(&topic, QoS::AtLeastOnce, false, message.text.as_bytes())?)
        })?;
        driving.join().map_err(|_| anyhow::anyhow!("the connection of MQTT failed"))?
    })
}
