//! The time of a read of one document by its `_id`, in the same process, while the engine is busy with something large.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tidemill_engine::{BodyFormat, Engine, SendOptions};
use tidemill_types::Value;

use crate::targets::COLLECTION;
use crate::workload::{self, Latencies};
use crate::{Level, open};

#[derive(Args)]
pub struct Options {
    /// Documents.
    #[arg(long, default_value_t = 300_000)]
    records: u64,
    /// Rows of the large record.
    #[arg(long, default_value_t = 1_000_000)]
    rows: u64,
    /// Runs of each row.
    #[arg(long, default_value_t = 5)]
    runs: u64,
}

pub fn measure(options: &Options) -> Result<()> {
    let dir = tempfile::tempdir()?;
    let engine = open(dir.path(), Level::Fsync, 1)?;
    let mut rng = StdRng::seed_from_u64(1);
    for start in (0..options.records).step_by(1000) {
        let records = start..(start + 1000).min(options.records);
        let documents = records.map(|n| workload::record(n, &mut rng).into_bytes().into()).collect();
        engine.collection(COLLECTION).insert(documents, None)?;
    }
    println!("| meanwhile | it takes, s | reads | avg µs | p95 | p99 | p99.9 | max |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    let events = events(options.rows);
    let busy: [(&str, &(dyn Fn() -> Result<()> + Sync)); 4] = [
        ("nothing", &|| {
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        }),
        ("a record with many rows is applied", &|| {
            let waiting = SendOptions { wait: true, ..SendOptions::default() };
            engine.send_json("Tick", &events, BodyFormat::Ndjson, &waiting)?;
            Ok(())
        }),
        ("a checkpoint is written", &|| Ok(engine.checkpoint()?)),
        ("all documents are looked through", &|| {
            let filter = bson::rawdoc! { "field3": { "$gt": "zzz" }, "field7": { "$regex": "abcdef$" } };
            engine.collection(COLLECTION).count(&filter)?;
            Ok(())
        }),
    ];
    for (what, task) in busy {
        for run in 0..options.runs {
            measure_while(what, task, &engine, options.records, run)?;
        }
    }
    Ok(())
}

fn measure_while(
    what: &str,
    task: &(dyn Fn() -> Result<()> + Sync),
    engine: &Arc<Engine>,
    records: u64,
    seed: u64,
) -> Result<()> {
    let stop = AtomicBool::new(false);
    let (nanos, took) = std::thread::scope(|scope| -> Result<_> {
        let reader = scope.spawn(|| -> Result<Vec<u32>> {
            let mut rng = StdRng::seed_from_u64(seed);
            let collection = engine.collection(COLLECTION);
            let mut nanos = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let key = workload::key(rng.random_range(0..records));
                let began = Instant::now();
                let found = collection.find_one(&Value::str(&key))?;
                nanos.push(u32::try_from(began.elapsed().as_nanos()).unwrap_or(u32::MAX));
                ensure!(found.is_some(), "no such document");
            }
            Ok(nanos)
        });
        let began = Instant::now();
        let done = task();
        let took = began.elapsed();
        stop.store(true, Ordering::Relaxed);
        let nanos = reader.join().ok().context("the reader panicked")??;
        done.map(|()| (nanos, took))
    })?;
    let reads = nanos.len();
    let latencies = Latencies::of(nanos);
    println!(
        "| {what} | {:.2} | {reads} | {latencies} | {:.2} | {:.2} |",
        took.as_secs_f64(),
        latencies.at(0.999),
        latencies.at(1.0)
    );
    Ok(())
}

/// Returns events as lines of JSON.
fn events(rows: u64) -> Vec<u8> {
    use std::fmt::Write;
    let mut lines = String::new();
    for n in 0..rows {
        let _ = writeln!(lines, "{{\"machine\":\"m{}\",\"n\":{n},\"value\":{}.5}}", n % 1000, n % 97);
    }
    lines.into_bytes()
}
