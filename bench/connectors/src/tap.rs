//! A stream that is followed while events come: how many arrive, how many are skipped, what memory it takes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use tidemill_engine::{BodyFormat, SendOptions};

use crate::clients::{event, now_us, open, resident_mib};

/// Events of a request.
const BATCH: u64 = 1000;

#[derive(clap::Args)]
pub struct Options {
    /// Events per second.
    #[arg(long, default_value_t = 100_000)]
    rate: u64,
    #[arg(long, default_value_t = 20)]
    seconds: u64,
    /// Microseconds that the reader takes for each event, one row of the table each.
    #[arg(long, value_delimiter = ',', default_value = "0,5,20,100")]
    reader_us: Vec<u64>,
}

pub fn measure(options: &Options) -> Result<()> {
    println!("| reader takes, µs | events/s sent | read | skipped | sum | resident MiB before | after |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: | ---: |");
    for delay in &options.reader_us {
        let dir = tempfile::tempdir()?;
        let attributes =
            "host string, process string, n long, at long, cpu double, memory long, state string";
        let engine = open(dir.path(), &format!("define stream Readings ({attributes});"))?;
        let runtime = tokio::runtime::Runtime::new()?;
        let (done, read, skipped) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
        let before = resident_mib();
        let mut tap = engine.tap("Readings")?;
        let mut sent = 0;
        let started = Instant::now();
        std::thread::scope(|scope| -> Result<()> {
            scope.spawn(|| {
                runtime.block_on(async {
                    loop {
                        let next = tokio::time::timeout(Duration::from_millis(100), tap.next()).await;
                        skipped.fetch_add(tap.take_skipped(), Ordering::Relaxed);
                        match next {
                            Ok(Some(batch)) => {
                                let rows = batch.num_rows() as u64;
                                std::thread::sleep(Duration::from_micros(delay * rows));
                                read.fetch_add(rows, Ordering::Relaxed);
                            }
                            Ok(None) => break,
                            Err(_) if done.load(Ordering::Relaxed) => break,
                            Err(_) => {}
                        }
                    }
                });
            });
            while started.elapsed() < Duration::from_secs(options.seconds) {
                let body: String = (sent..sent + BATCH).map(|n| event(n, now_us()) + "\n").collect();
                let body = body.replace(r#"{"event":"#, "").replace("}}", "}");
                engine.send_json("Readings", body.as_bytes(), BodyFormat::Ndjson, &SendOptions::default())?;
                sent += BATCH;
                let due = started + Duration::from_secs_f64(sent as f64 / options.rate as f64);
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
            }
            engine.wait_idle();
            done.store(true, Ordering::Relaxed);
            Ok(())
        })?;
        let (read, skipped) = (read.load(Ordering::Relaxed), skipped.load(Ordering::Relaxed));
        println!(
            "| {delay} | {:.0} | {read} | {skipped} | {} of {sent} | {before} | {} |",
            sent as f64 / started.elapsed().as_secs_f64(),
            read + skipped,
            resident_mib()
        );
        engine.stop()?;
    }
    Ok(())
}
