//! First writer wins: points of which some arrive again, and what it costs to find them.

use std::collections::HashSet;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Result, ensure};
use arrow::array::{AsArray, RecordBatch};
use arrow::compute::{concat_batches, interleave_record_batch};
use arrow::datatypes::{Int32Type, TimestampMicrosecondType};
use clap::{Args, ValueEnum};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use tidemill::Tidemill;

use crate::app::{self, AppOptions, Flushes};
use crate::cpu::CpuTimes;
use crate::dataset::{Dataset, Table, TableBatch};
use crate::load::{self, rows_of};
use crate::report::{Spread, record};

/// Batches of the same table, before the one that repeats a point, that count as near.
const NEAR_BATCHES: usize = 4;

/// What is sent to which streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// All rows once, into streams that keep everything.
    Kept,
    /// All rows once, into streams that keep the first of the points of a truck with the same time.
    Unique,
    /// The same, with points that arrive again.
    Repeated,
}

/// What to load, and how often.
#[derive(Args)]
pub struct Options {
    /// Directory of the data set.
    #[arg(long)]
    data: PathBuf,
    /// Rows before some are repeated: the first of the data set.
    #[arg(long, default_value_t = 10_000_000)]
    rows: u64,
    /// Share of the rows that arrive again: half of these repeat a row of the last batches, half any earlier row.
    #[arg(long, default_value_t = 0.05)]
    share: f64,
    /// Seed that selects the rows.
    #[arg(long, default_value_t = 15)]
    seed: u64,
    /// Cases to measure; repeat it for several.
    #[arg(long, value_enum, default_values_t = [Case::Kept, Case::Unique, Case::Repeated])]
    case: Vec<Case>,
    /// Runs of each case, in turn, each into a fresh data directory.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// A line of the app's `[settings]`; repeat it for several.
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
    case: String,
    sent: u64,
    stored: u64,
    duplicates: u64,
    rows_per_second: f64,
    /// CPU time until all is in files.
    cpu_ns_per_row: f64,
    /// Of the threads that apply the log.
    applying_ns_per_row: f64,
}

/// Runs the measurements and prints a line for each run, then the medians.
pub fn run(options: &Options) -> Result<()> {
    ensure!((0.0..=1.0).contains(&options.share), "--share: expected 0 to 1, found {}", options.share);
    std::fs::create_dir_all(&options.scratch)?;
    let mut batches = Dataset::open(&options.data)?.all_batches(10_000)?;
    truncate(&mut batches, options.rows)?;
    let repeated = match options.case.contains(&Case::Repeated) {
        true => repeat(&batches, options.share, options.seed)?,
        false => vec![],
    };
    println!("seed {}", options.seed);
    let mut figures = Vec::new();
    for _ in 0..options.runs.max(1) {
        for case in &options.case {
            let sent = if *case == Case::Repeated { &repeated } else { &batches };
            let figure = measure(options, *case, sent)?;
            println!(
                "{}: {} rows sent, {} stored, {} duplicates, as expected; {:.0} rows/s; CPU {:.0} ns a row, of it {:.0} to apply",
                figure.case,
                figure.sent,
                figure.stored,
                figure.duplicates,
                figure.rows_per_second,
                figure.cpu_ns_per_row,
                figure.applying_ns_per_row
            );
            record(options.json.as_deref(), &figure)?;
            figures.push((*case, figure));
        }
    }
    for case in &options.case {
        let of_case = |value: fn(&Figure) -> f64| {
            let values: Vec<f64> =
                figures.iter().filter(|(of, _)| of == case).map(|(_, f)| value(f)).collect();
            Spread::of(&values)
        };
        let (rate, cpu) = (of_case(|f| f.rows_per_second), of_case(|f| f.cpu_ns_per_row));
        println!(
            "{case:?}: median {:.0} rows/s ({:.0} to {:.0}), CPU {:.0} ns a row ({:.0} to {:.0})",
            rate.median, rate.min, rate.max, cpu.median, cpu.min, cpu.max
        );
    }
    Ok(())
}

/// Keeps the first rows of readings and diagnostics, and drops the trucks.
fn truncate(batches: &mut Vec<TableBatch>, rows: u64) -> Result<()> {
    batches.retain(|batch| batch.table != Table::Tags);
    let mut left = rows;
    for batch in batches.iter_mut() {
        let kept = left.min(batch.rows.num_rows() as u64);
        batch.rows = batch.rows.slice(0, kept as usize);
        left -= kept;
    }
    ensure!(left == 0, "--rows: the data set has {} rows, expected {rows} or more", rows - left);
    batches.retain(|batch| batch.rows.num_rows() > 0);
    Ok(())
}

/// Returns the batches with rows behind each that repeat earlier ones of the same table.
fn repeat(batches: &[TableBatch], share: f64, seed: u64) -> Result<Vec<TableBatch>> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut out = Vec::with_capacity(batches.len());
    for (number, batch) in batches.iter().enumerate() {
        let earlier: Vec<&RecordBatch> = batches[..=number]
            .iter()
            .filter(|other| other.table == batch.table)
            .map(|other| &other.rows)
            .collect();
        let again = (batch.rows.num_rows() as f64 * share).round() as usize;
        let near = earlier.len().saturating_sub(NEAR_BATCHES);
        let rows: Vec<(usize, usize)> = (0..again)
            .map(|row| {
                let source = rng.random_range(if row % 2 == 0 { near } else { 0 }..earlier.len());
                (source, rng.random_range(0..earlier[source].num_rows()))
            })
            .collect();
        let rows = interleave_record_batch(&earlier, &rows)?;
        let rows = concat_batches(&batch.rows.schema(), [&batch.rows, &rows])?;
        out.push(TableBatch { rows, ..*batch });
    }
    Ok(out)
}

/// Returns how many points of a table have a truck and a time that none before them has.
fn distinct(batches: &[TableBatch], table: Table) -> Result<u64> {
    let mut seen = HashSet::new();
    for batch in batches.iter().filter(|batch| batch.table == table) {
        let column =
            |name: &str| batch.rows.column_by_name(name).ok_or_else(|| anyhow::anyhow!("no `{name}`"));
        let trucks = column("tags_id")?.as_primitive::<Int32Type>();
        let times = column("time")?.as_primitive::<TimestampMicrosecondType>();
        seen.extend(trucks.iter().zip(times));
    }
    Ok(seen.len() as u64)
}

/// Sends all batches, opens the directory again after half of them, and checks the counts.
fn measure(options: &Options, case: Case, batches: &[TableBatch]) -> Result<Figure> {
    let dir = tempfile::tempdir_in(&options.scratch)?;
    let app_options = AppOptions {
        partitions: 4,
        flushes: Flushes::Usual,
        unique: case != Case::Kept,
        settings: options.settings.clone(),
    };
    let open = || -> Result<Tidemill> {
        Ok(Tidemill::open_with(dir.path().join("data"), app::app(dir.path(), &app_options)?)?)
    };
    let (mut wall, mut cpu, mut applying) = (Duration::ZERO, 0.0, 0.0);
    let mut tidemill = open()?;
    for half in batches.chunks(batches.len().div_ceil(2).max(1)) {
        let before = CpuTimes::read()?;
        wall += load::send(&tidemill, half, |_, _| {})?.wall;
        tidemill.engine().catch_up()?;
        tidemill.engine().flush()?;
        let (process, threads) = CpuTimes::read()?.since(&before);
        cpu += process;
        applying += threads.iter().filter(|(name, _)| name == "partition").map(|(_, s)| s).sum::<f64>();
        tidemill.close()?;
        tidemill = open()?;
    }
    let mut figure = Figure {
        case: format!("{case:?}"),
        sent: 0,
        stored: 0,
        duplicates: 0,
        rows_per_second: 0.0,
        cpu_ns_per_row: 0.0,
        applying_ns_per_row: 0.0,
    };
    for table in [Table::Readings, Table::Diagnostics] {
        let sent = rows_of(batches, table);
        let expected = if case == Case::Kept { sent } else { distinct(batches, table)? };
        let (name, found) = (table.name(), load::count(&tidemill, table)?);
        ensure!(found == expected, "{name}: expected {expected} rows, found {found}");
        let ledger = tidemill.engine().stream(name)?.ledger;
        ensure!(
            ledger.balances() && (ledger.received, ledger.stored) == (sent, expected),
            "{name}: expected {sent} rows received and {expected} stored, found the ledger {ledger:?}"
        );
        figure.sent += sent;
        figure.stored += expected;
        figure.duplicates += ledger.duplicate;
    }
    tidemill.close()?;
    let per_row = 1e9 / figure.sent as f64;
    figure.rows_per_second = figure.sent as f64 / wall.as_secs_f64();
    figure.cpu_ns_per_row = cpu * per_row;
    figure.applying_ns_per_row = applying * per_row;
    Ok(figure)
}
