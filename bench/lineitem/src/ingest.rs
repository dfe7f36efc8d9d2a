//! Ingest from Arrow batches in process.

use std::time::Instant;

use anyhow::{Result, ensure};
use arrow::array::RecordBatch;
use clap::Args;
use tidemill::{Durability, SendOptions, Tidemill};
use tidemill_bench_tsbs::load::sum;
use tidemill_bench_tsbs::report::{Spread, percentile, record};

use crate::{Common, app, rows};

/// What to load.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Runs, each into a fresh data directory.
    #[arg(long, default_value_t = 3)]
    runs: usize,
}

/// Loads the rows, and prints a line for each run.
pub fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    common.prepare()?;
    let batches = rows::stream_batches(common.scale, common.batch_rows)?;
    let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
    let mut rates = Vec::new();
    for _ in 0..options.runs.max(1) {
        let dir = tempfile::tempdir_in(&common.scratch)?;
        let tidemill = app::open(dir.path(), &common.settings, false)?;
        let start = Instant::now();
        let times = send(&tidemill, &batches)?;
        let seconds = start.elapsed().as_secs_f64();
        let written = Instant::now();
        tidemill.engine().catch_up()?;
        tidemill.engine().flush()?;
        let written = written.elapsed().as_secs_f64();
        check_count(&tidemill, rows as u64)?;
        let bytes = sum(&tidemill, "SELECT sum(bytes) FROM system.tablets")? as f64 / rows as f64;
        tidemill.close()?;
        let (rate, p50, p99) = (rows as f64 / seconds, percentile(&times, 0.5), percentile(&times, 0.99));
        println!(
            "{rows} rows in {seconds:.2} s, {rate:.0} rows/s, batch p50 {p50:.2} ms p99 {p99:.2} ms; all in files {written:.2} s \
             later, {bytes:.1} bytes a row; the count is exact"
        );
        record(
            common.json.as_deref(),
            &[
                ("rows_per_second", rate),
                ("batch_ms_p50", p50),
                ("batch_ms_p99", p99),
                ("bytes_per_row", bytes),
            ],
        )?;
        rates.push(rate);
    }
    let rate = Spread::of(&rates);
    println!("median {:.0} rows/s ({:.0} to {:.0})", rate.median, rate.min, rate.max);
    Ok(())
}

/// Sends batches one after the other, each acknowledged when it is on the disk. Returns the milliseconds of each.
pub fn send(tidemill: &Tidemill, batches: &[RecordBatch]) -> Result<Vec<f64>> {
    let options =
        SendOptions { durability: Some(Durability::Fsync), origin: "bench".into(), ..SendOptions::default() };
    let mut times = Vec::with_capacity(batches.len());
    for batch in batches {
        let start = Instant::now();
        tidemill.send_batch("lineitem", batch.clone(), &options)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

/// Checks that SQL has exactly `rows` rows.
pub fn check_count(tidemill: &Tidemill, rows: u64) -> Result<()> {
    let found = sum(tidemill, "SELECT count(*) AS n FROM lineitem")?;
    ensure!(found == rows, "expected {rows} rows, found {found}");
    Ok(())
}
