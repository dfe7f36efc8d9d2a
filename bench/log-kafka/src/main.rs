//! Measures how the log on Kafka reads: threads and memory of many partitions, and records a second.
//!
//! `bench/log.md` has the commands and figures. Brokers: `scripts/kafka.sh start`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::{Parser, Subcommand};
use tidemill_log::{Content, Durability, Log, Ticket};
use tidemill_log_kafka::{KafkaConfig, KafkaLog};
use tidemill_types::{Offset, PartitionId};

/// Records that a consumer asks for at once, as the engine does.
const RECORDS_PER_BATCH: usize = 64;
/// Time after which consumers that take nothing have fetched what they fetch ahead.
const SETTLE: Duration = Duration::from_secs(4);

#[derive(Parser)]
struct Options {
    /// URL of a topic, with the number of partitions: kafka://HOST:PORT/TOPIC?partitions=N
    #[arg(long)]
    log: String,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Appends records to each partition.
    Fill {
        #[arg(long)]
        records: u64,
        #[arg(long)]
        bytes: usize,
    },
    /// Consumes all partitions from their beginning, one thread a partition, and prints the rate of each run.
    Read {
        #[arg(long, default_value_t = 5)]
        runs: usize,
    },
    /// Appends one record to each partition after the other and prints the time until its consumer has it.
    Latency {
        #[arg(long, default_value_t = 2000)]
        records: u64,
    },
    /// Subscribes to all partitions and prints memory and threads: at their ends, then at their beginnings without consuming,
    /// then while one partition is not consumed and all others are.
    Memory,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let config: KafkaConfig = options.log.parse()?;
    let partitions = config.partitions.context("the URL has no option `partitions`")?;
    let open = || KafkaLog::open(&config, partitions);
    match options.command {
        Command::Fill { records, bytes } => fill(&open()?, records, bytes),
        Command::Read { runs } => (0..runs).try_for_each(|_| read(&open()?)),
        Command::Latency { records } => latency(&open()?, records),
        Command::Memory => memory(&open()?),
    }
}

fn ids(log: &KafkaLog) -> impl Iterator<Item = PartitionId> + use<> {
    (0..log.partitions()).map(PartitionId)
}

/// Returns bytes that do not compress.
fn noise(bytes: usize, seed: u64) -> Bytes {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8
    };
    (0..bytes).map(next).collect()
}

fn fill(log: &KafkaLog, records: u64, bytes: usize) -> Result<()> {
    let payload = noise(bytes, 7);
    let mut last: Vec<Option<Ticket>> = ids(log).map(|_| None).collect();
    for _ in 0..records {
        for (id, last) in ids(log).zip(&mut last) {
            *last = Some(log.append(id, payload.clone().into(), Durability::Fsync)?);
        }
    }
    last.into_iter().flatten().try_for_each(|ticket| ticket.wait().map(|_| ()))?;
    log.flush()?;
    println!("{} partitions with {records} records of {bytes} bytes", log.partitions());
    Ok(())
}

/// Consumes up to the end that a partition has now. Returns records and bytes.
fn consume(log: &KafkaLog, id: PartitionId, from: Offset) -> Result<(u64, u64)> {
    let end = log.end(id);
    let subscription = log.subscribe(id, from)?;
    let (mut next, mut bytes) = (from, 0);
    while next < end {
        for record in subscription.next(RECORDS_PER_BATCH)?.context("the subscription was closed")? {
            ensure!(record.offset == next, "offset {} follows {next}", record.offset);
            next = record.offset.next();
            if let Content::Payload(payload) = record.content {
                bytes += payload.len() as u64;
            }
        }
    }
    Ok((next.0 - from.0, bytes))
}

fn read(log: &KafkaLog) -> Result<()> {
    let begin = Instant::now();
    let read: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            ids(log).map(|id| scope.spawn(move || consume(log, id, log.start(id)))).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect::<Result<_>>()
    })?;
    let seconds = begin.elapsed().as_secs_f64();
    let (records, bytes) = read.iter().fold((0, 0), |(r, b), (records, bytes)| (r + records, b + bytes));
    println!(
        "read {} partitions: {records} records, {:.1} MB in {seconds:.3} s: {:.0} records/s, {:.1} MB/s",
        log.partitions(),
        bytes as f64 / 1e6,
        records as f64 / seconds,
        bytes as f64 / 1e6 / seconds
    );
    Ok(())
}

fn latency(log: &KafkaLog, records: u64) -> Result<()> {
    let subscriptions = ids(log).map(|id| log.subscribe(id, log.end(id))).collect::<Result<Vec<_>, _>>()?;
    let mut times = Vec::new();
    for n in 0..records {
        let id = PartitionId((n % u64::from(log.partitions())) as u32);
        let begin = Instant::now();
        let ticket = log.append(id, noise(200, n).into(), Durability::Fsync)?;
        let consumed = subscriptions[id.0 as usize].next(1)?.context("the subscription was closed")?;
        times.push(begin.elapsed());
        ensure!(consumed[0].offset == ticket.wait()?.offset, "another record");
    }
    times.sort();
    let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_micros();
    println!("from append to consumer: p50 {} µs, p90 {} µs, p99 {} µs", at(0.5), at(0.9), at(0.99));
    Ok(())
}

fn memory(log: &KafkaLog) -> Result<()> {
    print_process("opened");
    let at_end = ids(log).map(|id| log.subscribe(id, log.end(id))).collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(SETTLE);
    print_process("subscribed at the ends");
    drop(at_end);
    let at_start = ids(log).map(|id| log.subscribe(id, log.start(id))).collect::<Result<Vec<_>, _>>()?;
    std::thread::sleep(SETTLE);
    print_process("subscribed at the beginnings, nothing taken");
    drop(at_start);
    let _slow = log.subscribe(PartitionId(0), log.start(PartitionId(0)))?;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            ids(log).skip(1).map(|id| scope.spawn(move || consume(log, id, log.start(id)))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic").map(|_| ()))
    })?;
    print_process("one partition not taken, all others consumed");
    Ok(())
}

/// Prints resident memory, its maximum so far, and the number of threads.
fn print_process(when: &str) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or("?");
        line.trim_matches([':', '\t', ' ']).to_owned()
    };
    println!("{when}: VmRSS {}, VmHWM {}, {} threads", field("VmRSS"), field("VmHWM"), field("Threads"));
}
