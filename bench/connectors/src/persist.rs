//! From the durable log to committed rows of a relational database: rates, how even they are, latency.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tidemill_engine::{BodyFormat, Engine, SendOptions};

use crate::clients::{open, plain_event, quantile};

/// Events of a request.
const BATCH: u64 = 1000;
/// Events that may wait for the sink when they are sent as fast as possible, so that the sender does not run ahead.
const WAITING_MAX: u64 = 200_000;
/// Longest time without a committed row.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(clap::Args)]
pub struct Options {
    /// `jdbc:postgresql://…` or `jdbc:mariadb://…` of a database; repeat it to measure several.
    #[arg(long, required = true)]
    url: Vec<String>,
    #[arg(long, default_value = "tidemill")]
    username: String,
    #[arg(long, default_value = "tidemill")]
    password: String,
    /// Rows that are inserted into an empty table with a primary key.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Rows that are updated by key afterwards, spread over the table.
    #[arg(long, default_value_t = 400_000)]
    updates: u64,
    /// Events per second for the measurement of latency, after the table is filled.
    #[arg(long, default_value_t = 10_000)]
    rate: u64,
    /// Seconds for which latency is measured.
    #[arg(long, default_value_t = 20)]
    seconds: u64,
}

/// Events of one measurement.
struct Load<'a> {
    url: &'a str,
    operation: &'static str,
    /// Number of the first row.
    first: u64,
    events: u64,
    /// Distance between two rows that follow each other, and the number of rows after which it starts again.
    step: (u64, u64),
    /// Events per second; 0 for as many as the database takes.
    rate: u64,
}

/// What became of the events of a measurement.
struct Outcome {
    acknowledged: f64,
    committed: f64,
    /// Slowest and fastest tenth of the run, in rows per second.
    tenths: (f64, f64),
    /// Microseconds from the acknowledgement to the commit of each request.
    latencies: Vec<u64>,
}

pub fn measure(options: &Options) -> Result<()> {
    println!(
        "| database | operation | events | acknowledged/s | committed/s | slowest to fastest tenth | \
         latency p50 ms | p99 ms |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for url in &options.url {
        let rows = options.rows;
        // a step without a common divisor with the number of rows meets each row once
        let step = (rows * 618 / 1000..).find(|step| greatest_divisor(*step, rows) == 1).unwrap_or(1);
        let timed = options.rate * options.seconds;
        let load = |operation, first, events, step, rate| Load { url, operation, first, events, step, rate };
        let loads = [
            load("insert", 0, rows, (1, u64::MAX), 0),
            load("update", 0, options.updates, (step, rows), 0),
            load("insert", rows, timed, (1, u64::MAX), options.rate),
            load("update", 0, timed, (step, rows), options.rate),
        ];
        let table = format!("bench_persist_{}", std::process::id());
        for load in loads.iter().filter(|load| load.events > 0) {
            let mut outcome = run(options, load, &table).with_context(|| url.clone())?;
            let database = url.split(':').nth(1).unwrap_or(url);
            let mut ms = |q| match load.rate {
                0 => String::new(),
                _ => format!("{:.1}", quantile(&mut outcome.latencies, q) as f64 / 1000.0),
            };
            println!(
                "| {database} | {} | {} | {:.0} | {:.0} | {:.0} to {:.0} | {} | {} |",
                load.operation,
                load.events,
                outcome.acknowledged,
                outcome.committed,
                outcome.tenths.0,
                outcome.tenths.1,
                ms(0.5),
                ms(0.99)
            );
        }
    }
    Ok(())
}

fn greatest_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_divisor(b, a % b) }
}

fn run(options: &Options, load: &Load<'_>, table: &str) -> Result<Outcome> {
    let dir = tempfile::tempdir()?;
    let text = format!(
        "@sink(type='rdbms', jdbc.url='{}', username='{}', password='{}', table.name='{table}', operation='{}', key='n')
         @key('host') define stream Readings (host string, process string, n long, at long, cpu double, memory long,
                                              state string);",
        load.url, options.username, options.password, load.operation
    );
    let engine = open(&dir.path().join("data"), &text)?;
    let (started, done) = (Instant::now(), AtomicBool::new(false));
    let (sent, commits) = std::thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&engine, started, load.events, &done));
        let sent = send(&engine, load, started);
        done.store(true, Ordering::Relaxed);
        (sent, watching.join())
    });
    let (sent, commits) = (sent?, commits.map_err(|_| anyhow::anyhow!("the watching thread failed"))?);
    let info = engine.sinks().remove(0);
    engine.stop()?;
    let (delivered, failed) = (info.delivered, info.failed);
    ensure!(
        delivered == load.events && failed == 0,
        "{delivered} delivered, {failed} refused: {:?}",
        info.problem
    );
    let commit_of = |count: u64| {
        let index = commits.partition_point(|(_, delivered)| *delivered < count);
        commits.get(index).map(|(at, _)| *at).unwrap_or_default()
    };
    let tenth = |number: u64| {
        let took = commit_of(load.events * (number + 1) / 10) - commit_of(load.events * number / 10);
        load.events as f64 / 10.0 / took.as_secs_f64()
    };
    // the first tenth has the time until the sink is connected
    let tenths: Vec<f64> = (1..10).map(tenth).collect();
    let latency = |(at, count): &(Duration, u64)| commit_of(*count).saturating_sub(*at).as_micros() as u64;
    let rate = |last: Option<&(Duration, u64)>| {
        load.events as f64 / last.map_or(f64::INFINITY, |(at, _)| at.as_secs_f64())
    };
    Ok(Outcome {
        acknowledged: rate(sent.last()),
        committed: rate(commits.last()),
        tenths: (
            tenths.iter().copied().fold(f64::INFINITY, f64::min),
            tenths.iter().copied().fold(0.0, f64::max),
        ),
        latencies: sent.iter().map(latency).collect(),
    })
}

/// Sends the events. Returns when each request was acknowledged, and the number of events until then.
fn send(engine: &Engine, load: &Load<'_>, started: Instant) -> Result<Vec<(Duration, u64)>> {
    let mut acknowledged = vec![];
    let mut sent = 0;
    while sent < load.events {
        let to = (sent + BATCH).min(load.events);
        let (step, rows) = load.step;
        let line = |index: u64| {
            let n = load.first + index.wrapping_mul(step) % rows;
            format!("{}\n", plain_event(n))
        };
        let body: String = (sent..to).map(line).collect();
        engine.send_json("Readings", body.as_bytes(), BodyFormat::Ndjson, &SendOptions::default())?;
        sent = to;
        acknowledged.push((started.elapsed(), sent));
        match load.rate {
            0 => {
                while engine.sinks()[0].waiting > WAITING_MAX {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            rate => {
                let due = started + Duration::from_secs_f64(sent as f64 / rate as f64);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
        }
    }
    Ok(acknowledged)
}

/// Returns when which number of events was committed, until all are or none is for long.
fn watch(engine: &Engine, started: Instant, events: u64, sent: &AtomicBool) -> Vec<(Duration, u64)> {
    let mut commits = vec![];
    let mut last = (Instant::now(), 0);
    while last.1 < events && !(sent.load(Ordering::Relaxed) && last.0.elapsed() > PATIENCE) {
        let info = &engine.sinks()[0];
        if info.delivered > last.1 {
            last = (Instant::now(), info.delivered);
            commits.push((started.elapsed(), info.delivered));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    commits
}
