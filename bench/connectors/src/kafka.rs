//! Kafka in, a query, Kafka out, beside a loop of a consumer and a producer that does nothing else.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::Consumer;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, Producer};

use crate::clients::{
    Figures, consumer, create_topic, event, fill, now_us, open, producer, quantile, read, send,
};

/// Longest transaction of the bare loop.
const TRANSACTION: Duration = Duration::from_millis(50);

#[derive(clap::Args)]
pub struct Options {
    /// Brokers, as `scripts/servers.sh env kafka` prints them.
    #[arg(long, env = "SERVERS_KAFKA")]
    brokers: String,
    /// Events of each run.
    #[arg(long, default_value_t = 1_000_000)]
    events: u64,
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Events per second of the measurement of latency; 0 leaves it out.
    #[arg(long, default_value_t = 10_000)]
    rate: u64,
    /// Seconds of the measurement of latency.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

/// Way from one topic to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// A consumer and an idempotent producer.
    Loop,
    /// The same with transactions that have the consumer's offsets: exactly once.
    TransactionalLoop,
    /// The engine, with an idempotent producer: at least once.
    AtLeastOnce,
    /// The engine with transactions: exactly once.
    ExactlyOnce,
}

const WAYS: [Way; 4] = [Way::Loop, Way::TransactionalLoop, Way::AtLeastOnce, Way::ExactlyOnce];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Loop => "bare loop",
            Self::TransactionalLoop => "bare loop with transactions",
            Self::AtLeastOnce => "tidemill, at least once",
            Self::ExactlyOnce => "tidemill, exactly once",
        }
    }
}

pub fn measure(options: &Options) -> Result<()> {
    let run = std::process::id();
    let input = format!("bench-in-{run}");
    create_topic(&options.brokers, &input)?;
    fill(&options.brokers, &input, 0, options.events)?;
    let mut rates: Vec<Vec<f64>> = vec![vec![]; WAYS.len()];
    for number in 0..options.runs {
        for (way, rates) in WAYS.into_iter().zip(&mut rates) {
            let output = format!("bench-out-{run}-{number}-{}", way as u8);
            create_topic(&options.brokers, &output)?;
            let seconds = timed(options, way, &input, &output)?;
            rates.push(options.events as f64 / seconds);
            eprintln!("{}: {:.0} events/s", way.name(), options.events as f64 / seconds);
        }
    }
    let medians: Vec<Figures> = rates.into_iter().map(Figures::of).collect();
    println!("| way | events/s (median of {}) | spread | of the bare loop |", options.runs);
    println!("| --- | ---: | ---: | ---: |");
    for (way, figures) in WAYS.into_iter().zip(&medians) {
        let ratio = figures.median / medians[0].median;
        println!("| {} | {:.0} | {:.0}% | {ratio:.2} |", way.name(), figures.median, figures.spread);
    }
    if options.rate > 0 {
        println!(
            "\n| way | events/s | latency p50 ms | p99 ms | max ms |\n| --- | ---: | ---: | ---: | ---: |"
        );
        for way in WAYS {
            let mut latencies = latencies(options, way, run)?;
            let ms = |us: u64| us as f64 / 1000.0;
            println!(
                "| {} | {} | {:.1} | {:.1} | {:.1} |",
                way.name(),
                options.rate,
                ms(quantile(&mut latencies, 0.5)),
                ms(quantile(&mut latencies, 0.99)),
                ms(quantile(&mut latencies, 1.0))
            );
        }
    }
    Ok(())
}

/// Returns the seconds until the output topic has all events of the input topic.
fn timed(options: &Options, way: Way, input: &str, output: &str) -> Result<f64> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let started = Instant::now();
        let forwarding = scope.spawn(|| forward(&options.brokers, way, input, output, &stop));
        let counted =
            consumer(&options.brokers, output).and_then(|consumer| read(&consumer, options.events, |_| {}));
        let seconds = started.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        match forwarding.join() {
            Ok(done) => done?,
            Err(_) => bail!("{}: panicked", way.name()),
        }
        counted.map(|()| seconds)
    })
}

/// Returns the times in microseconds from the making of each event until it was read from the output topic.
fn latencies(options: &Options, way: Way, run: u32) -> Result<Vec<u64>> {
    let (input, output) =
        (format!("bench-slow-{run}-{}", way as u8), format!("bench-late-{run}-{}", way as u8));
    create_topic(&options.brokers, &input)?;
    create_topic(&options.brokers, &output)?;
    let count = options.rate * options.seconds;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let forwarding = scope.spawn(|| forward(&options.brokers, way, &input, &output, &stop));
        let sending = scope.spawn(|| -> Result<()> {
            let producer = producer(&options.brokers)?;
            let started = Instant::now();
            for n in 0..count {
                let due = started + Duration::from_micros(n * 1_000_000 / options.rate);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                send(&producer, &input, &format!("{}", n % 1000), event(n, now_us()).as_bytes())?;
                producer.poll(Duration::ZERO);
            }
            producer.flush(Duration::from_secs(30))?;
            Ok(())
        });
        let mut latencies = vec![];
        let consumer = consumer(&options.brokers, &output)?;
        let read = read(&consumer, count, |payload| {
            let event: serde_json::Value = serde_json::from_slice(payload).unwrap_or_default();
            let at = event.pointer("/event/at").and_then(serde_json::Value::as_u64).unwrap_or_default();
            latencies.push(now_us().saturating_sub(at));
        });
        stop.store(true, Ordering::Relaxed);
        for thread in [sending, forwarding] {
            match thread.join() {
                Ok(done) => done?,
                Err(_) => bail!("{}: panicked", way.name()),
            }
        }
        // connections are made during the first second
        latencies.drain(..(options.rate as usize).min(latencies.len() / 2));
        read.map(|()| latencies)
    })
}

/// Forwards events until `stop`.
fn forward(brokers: &str, way: Way, input: &str, output: &str, stop: &AtomicBool) -> Result<()> {
    match way {
        Way::Loop => bare_loop(brokers, input, output, stop),
        Way::TransactionalLoop => transactional_loop(brokers, input, output, stop),
        Way::AtLeastOnce | Way::ExactlyOnce => engine(brokers, way, input, output, stop),
    }
}

fn bare_loop(brokers: &str, input: &str, output: &str, stop: &AtomicBool) -> Result<()> {
    let (consumer, producer) = (consumer(brokers, input)?, producer(brokers)?);
    while !stop.load(Ordering::Relaxed) {
        let Some(message) = consumer.poll(Duration::from_millis(10)) else { continue };
        let message = message?;
        let key = String::from_utf8_lossy(message.key().unwrap_or_default()).into_owned();
        send(&producer, output, &key, message.payload().unwrap_or_default())?;
        producer.poll(Duration::ZERO);
    }
    producer.flush(Duration::from_secs(30))?;
    Ok(())
}

fn transactional_loop(brokers: &str, input: &str, output: &str, stop: &AtomicBool) -> Result<()> {
    let timeout = Duration::from_secs(30);
    let consumer = consumer(brokers, input)?;
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("transactional.id", output)
        .set("linger.ms", "5")
        .set("queue.buffering.max.messages", "1000000")
        .create()?;
    producer.init_transactions(timeout)?;
    let group = consumer.group_metadata();
    while !stop.load(Ordering::Relaxed) {
        let Some(first) = consumer.poll(Duration::from_millis(10)) else { continue };
        producer.begin_transaction()?;
        let started = Instant::now();
        let mut next = Some(first);
        while let Some(message) = next {
            let message = message?;
            let key = String::from_utf8_lossy(message.key().unwrap_or_default()).into_owned();
            send(&producer, output, &key, message.payload().unwrap_or_default())?;
            producer.poll(Duration::ZERO);
            next = match started.elapsed() < TRANSACTION {
                true => consumer.poll(Duration::from_millis(1)),
                false => None,
            };
        }
        if let Some(group) = &group {
            producer.send_offsets_to_transaction(&consumer.position()?, group, timeout)?;
        }
        producer.commit_transaction(timeout)?;
    }
    Ok(())
}

fn engine(brokers: &str, way: Way, input: &str, output: &str, stop: &AtomicBool) -> Result<()> {
    let guarantee = match way {
        Way::ExactlyOnce => ", delivery.guarantee='exactly.once'",
        _ => "",
    };
    let attributes = "host string, process string, n long, at long, cpu double, memory long, state string";
    let text = format!(
        "@source(type='kafka', bootstrap.servers='{brokers}', topic.list='{input}', group.id='{output}', @map(type='json'))
         @key('host') define stream Readings ({attributes});
         @sink(type='kafka', bootstrap.servers='{brokers}', topic='{output}', key='{{{{host}}}}'{guarantee}, @map(type='json'))
         define stream Checked ({attributes});
         from Readings[cpu >= 0.0] select host, process, n, at, cpu, memory, state insert into Checked;"
    );
    let dir = tempfile::tempdir()?;
    let engine = open(dir.path(), &text)?;
    engine.start_sources()?;
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(5));
    }
    engine.stop()?;
    Ok(())
}
