//! Ingest: from Arrow batches in process, from CSV by the app's sources, and the time until SQL shows what was acknowledged.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use clap::{Args, ValueEnum};
use serde::Serialize;
use tidemill::Tidemill;

use crate::app::{self, AppOptions, Flushes};
use crate::cpu::CpuTimes;
use crate::dataset::{Dataset, Table, TableBatch};
use crate::load::{self, check_counts, rows_of, sum};
use crate::report::{Spread, percentile, record};
use crate::statements::{Dialect, Set, statements};
use crate::visible;

/// A way in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Arrow batches in process.
    Arrow,
    /// CSV files, by the app's sources.
    Csv,
    /// Arrow batches, while the 14 statements run in a loop.
    Queried,
    /// Arrow batches, with SQL beside them that asks for the acknowledged rows.
    Visible,
}

/// What to load, and how.
#[derive(Args)]
pub struct Options {
    /// Directory of the data set.
    #[arg(long)]
    data: PathBuf,
    /// Ways to measure; repeat it for several.
    #[arg(long, value_enum, default_values_t = [Way::Arrow, Way::Csv, Way::Queried, Way::Visible])]
    way: Vec<Way>,
    /// Runs of each way, each into a fresh data directory.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Rows of an Arrow batch.
    #[arg(long, default_value_t = 10_000)]
    batch_rows: usize,
    /// Partitions of the log.
    #[arg(long, default_value_t = 4)]
    partitions: u32,
    /// A line of the app's `[settings]`, such as 'zones.compression = "snappy"'; repeat it for several.
    #[arg(long = "setting", value_name = "NAME = VALUE")]
    settings: Vec<String>,
    /// Directory in which the data directories are made, on the disk to be measured.
    #[arg(long, default_value = "target/bench-tsbs")]
    scratch: PathBuf,
    /// File to which each figure is appended as a line of JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// One run.
#[derive(Debug, Serialize)]
struct Figure {
    way: String,
    rows: u64,
    /// Until all rows were acknowledged; from CSV until they were applied.
    seconds: f64,
    rows_per_second: f64,
    batch_ms_p50: Option<f64>,
    batch_ms_p99: Option<f64>,
    /// From then until every row is in a file.
    written_after_seconds: f64,
    cpu_seconds: f64,
    cpu_by_thread: Vec<(String, f64)>,
    table_bytes_per_row: f64,
    /// After the tablets were merged.
    merged_bytes_per_row: f64,
    /// How long that took.
    merged_after_seconds: f64,
    directory_bytes_per_row: f64,
}

/// Runs the measurements and prints a line for each run, then the medians.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.batch_rows > 0, "--batch-rows: expected 1 or more, found 0");
    std::fs::create_dir_all(&options.scratch)?;
    let dataset = Dataset::open(&options.data)?;
    let batches = dataset.all_batches(options.batch_rows)?;
    for way in &options.way {
        if *way == Way::Visible {
            visible(options, &batches)?;
            continue;
        }
        let mut rates = Vec::new();
        for _ in 0..options.runs.max(1) {
            let figure = match way {
                Way::Csv => from_csv(options, &dataset, &batches)?,
                Way::Queried => while_queried(options, &batches)?,
                _ => from_arrow(options, &batches)?,
            };
            print(&figure);
            record(options.json.as_deref(), &figure)?;
            rates.push(figure.rows_per_second);
        }
        let rate = Spread::of(&rates);
        println!("{way:?}: median {:.0} rows/s ({:.0} to {:.0})", rate.median, rate.min, rate.max);
    }
    Ok(())
}

impl Options {
    fn app(&self) -> AppOptions {
        AppOptions {
            partitions: self.partitions,
            flushes: Flushes::Usual,
            unique: false,
            settings: self.settings.clone(),
        }
    }
}

fn from_arrow(options: &Options, batches: &[TableBatch]) -> Result<Figure> {
    let dir = tempfile::tempdir_in(&options.scratch)?;
    let tidemill = Tidemill::open_with(dir.path().join("data"), app::app(dir.path(), &options.app())?)?;
    let before = CpuTimes::read()?;
    let sent = load::send(&tidemill, batches, |_, _| {})?;
    let run = Run { way: Way::Arrow, seconds: sent.wall.as_secs_f64(), batch_ms: &sent.batch_ms, before };
    run.finish(tidemill, dir.path(), batches)
}

/// Sends the batches while another thread asks the statements of the small set in turn, until the last acknowledgement.
fn while_queried(options: &Options, batches: &[TableBatch]) -> Result<Figure> {
    let dir = tempfile::tempdir_in(&options.scratch)?;
    let tidemill = Tidemill::open_with(dir.path().join("data"), app::app(dir.path(), &options.app())?)?;
    let asked = statements(Set::Small, Dialect::Tidemill, false)?;
    let before = CpuTimes::read()?;
    let done = AtomicBool::new(false);
    let (sent, answers) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| -> Result<u64> {
            let mut answers = 0;
            for statement in asked.iter().cycle().take_while(|_| !done.load(Ordering::Acquire)) {
                tidemill.sql(&statement.text)?;
                answers += 1;
            }
            Ok(answers)
        });
        let sent = load::send(&tidemill, batches, |_, _| {});
        done.store(true, Ordering::Release);
        let answers = asking.join().map_err(|_| anyhow!("the thread that asks SQL panicked"))??;
        Ok::<_, anyhow::Error>((sent?, answers))
    })?;
    println!("{answers} statements answered meanwhile");
    let run = Run { way: Way::Queried, seconds: sent.wall.as_secs_f64(), batch_ms: &sent.batch_ms, before };
    run.finish(tidemill, dir.path(), batches)
}

fn from_csv(options: &Options, dataset: &Dataset, batches: &[TableBatch]) -> Result<Figure> {
    let dir = tempfile::tempdir_in(&options.scratch)?;
    let (app, rows) = app::app_with_sources(dir.path(), &options.app(), dataset)?;
    ensure!(rows == batches.iter().map(|b| b.rows.num_rows() as u64).sum::<u64>(), "a file has changed");
    let tidemill = Tidemill::open_with(dir.path().join("data"), app)?;
    let before = CpuTimes::read()?;
    let start = Instant::now();
    tidemill.engine().start_sources()?;
    tidemill.engine().wait_idle();
    let seconds = start.elapsed().as_secs_f64();
    let problems = tidemill.engine().source_problems();
    ensure!(problems.is_empty(), "{}", problems.join("; "));
    Run { way: Way::Csv, seconds, batch_ms: &[], before }.finish(tidemill, dir.path(), batches)
}

/// A run whose rows are all in.
struct Run<'a> {
    way: Way,
    seconds: f64,
    batch_ms: &'a [f64],
    before: CpuTimes,
}

impl Run<'_> {
    /// Writes what is in memory, checks the counts, and closes the directory.
    fn finish(self, tidemill: Tidemill, dir: &Path, batches: &[TableBatch]) -> Result<Figure> {
        let flush = Instant::now();
        tidemill.engine().catch_up()?;
        tidemill.engine().flush()?;
        let written_after_seconds = flush.elapsed().as_secs_f64();
        let (cpu_seconds, cpu_by_thread) = CpuTimes::read()?.since(&self.before);
        check_counts(&tidemill, |table| rows_of(batches, table))?;
        let table_bytes = sum(&tidemill, "SELECT sum(bytes) FROM system.tablets")?;
        let merge = Instant::now();
        tidemill.engine().consolidate()?;
        let merged_after_seconds = merge.elapsed().as_secs_f64();
        let merged_bytes = sum(&tidemill, "SELECT sum(bytes) FROM system.tablets")?;
        tidemill.close()?;
        let rows: u64 = Table::ALL.iter().map(|table| rows_of(batches, *table)).sum();
        let percent = |share| (!self.batch_ms.is_empty()).then(|| percentile(self.batch_ms, share));
        Ok(Figure {
            way: format!("{:?}", self.way),
            rows,
            seconds: self.seconds,
            rows_per_second: rows as f64 / self.seconds,
            batch_ms_p50: percent(0.5),
            batch_ms_p99: percent(0.99),
            written_after_seconds,
            cpu_seconds,
            cpu_by_thread,
            table_bytes_per_row: table_bytes as f64 / rows as f64,
            merged_bytes_per_row: merged_bytes as f64 / rows as f64,
            merged_after_seconds,
            directory_bytes_per_row: directory_bytes(&dir.join("data"))? as f64 / rows as f64,
        })
    }
}

fn visible(options: &Options, batches: &[TableBatch]) -> Result<()> {
    let dir = tempfile::tempdir_in(&options.scratch)?;
    let tidemill = Tidemill::open_with(dir.path().join("data"), app::app(dir.path(), &options.app())?)?;
    let times = visible::measure(&tidemill, batches)?;
    check_counts(&tidemill, |table| rows_of(batches, table))?;
    tidemill.close()?;
    let (p50, p99) = (percentile(&times, 0.5), percentile(&times, 0.99));
    println!(
        "Visible to SQL after the acknowledgement, {} probes: p50 {p50:.2} ms, p99 {p99:.2} ms, max {:.2} ms",
        times.len(),
        percentile(&times, 1.0)
    );
    let figure = serde_json::json!({"way": "Visible", "probes": times.len(), "ms_p50": p50, "ms_p99": p99});
    record(options.json.as_deref(), &figure)
}

fn print(figure: &Figure) {
    let batch = match (figure.batch_ms_p50, figure.batch_ms_p99) {
        (Some(p50), Some(p99)) => format!(", batch p50 {p50:.2} ms p99 {p99:.2} ms"),
        _ => String::new(),
    };
    println!(
        "{}: {} rows in {:.3} s, {:.0} rows/s{batch}; all in files {:.3} s later; {:.2} bytes a row in tables, {:.2} \
         after {:.3} s of merging, {:.2} in the data directory; the counts are exact",
        figure.way,
        figure.rows,
        figure.seconds,
        figure.rows_per_second,
        figure.written_after_seconds,
        figure.table_bytes_per_row,
        figure.merged_bytes_per_row,
        figure.merged_after_seconds,
        figure.directory_bytes_per_row
    );
    let share = |(name, seconds): &(String, f64)| {
        format!("{name} {seconds:.2} ({:.0} %)", 100.0 * seconds / figure.cpu_seconds)
    };
    let shares: Vec<String> = figure.cpu_by_thread.iter().map(share).collect();
    println!(
        "  CPU {:.2} s until everything is written, by thread: {}",
        figure.cpu_seconds,
        shares.join(", ")
    );
}

fn directory_bytes(dir: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        bytes += match entry.file_type()?.is_dir() {
            true => directory_bytes(&entry.path())?,
            false => entry.metadata()?.len(),
        };
    }
    Ok(bytes)
}
