//! Look-ups of single points by truck and time: warm, and the bytes that a cold one reads.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use arrow::array::{Array, AsArray, RecordBatch};
use arrow::datatypes::{Int32Type, TimestampMicrosecondType};
use clap::Args;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde::Serialize;
use tidemill::{Prepared, Tidemill, Timestamp, Value};

use crate::app::{self, AppOptions, Flushes};
use crate::dataset::{Dataset, Table, TableBatch};
use crate::load::{self, sum};
use crate::report::{Spread, percentile, record};

/// What to load, and how often to ask.
#[derive(Args)]
pub struct Options {
    /// Directory of the data set.
    #[arg(long)]
    data: PathBuf,
    /// Look-ups of each kind, each of another point.
    #[arg(long, default_value_t = 200)]
    lookups: usize,
    /// Seed that selects the points.
    #[arg(long, default_value_t = 15)]
    seed: u64,
    /// A line of the app's `[settings]`; repeat it for several.
    #[arg(long = "setting", value_name = "NAME = VALUE")]
    settings: Vec<String>,
    /// Directory in which the data directory is made.
    #[arg(long, default_value = "target/bench-tsbs")]
    scratch: PathBuf,
    /// File to which each figure is appended as a line of JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// The prepared statement.
const PREPARED: &str = "SELECT * FROM readings WHERE tags_id = $1 AND time = $2";

/// Times and sizes of look-ups.
#[derive(Debug, Serialize)]
struct Figure {
    rows: u64,
    tablets: u64,
    warm_ms: Spread,
    warm_ms_p99: f64,
    prepared_ms: Spread,
    prepared_ms_p99: f64,
    cold_ms: Spread,
    cold_bytes: Spread,
}

/// A point that exists.
#[derive(Debug)]
struct Point {
    truck: i32,
    time_us: i64,
}

/// Loads the data set, merges its tablets, and looks points up.
pub fn run(options: &Options) -> Result<()> {
    ensure!(options.lookups > 0, "--lookups: expected 1 or more, found 0");
    std::fs::create_dir_all(&options.scratch)?;
    let dir = tempfile::tempdir_in(&options.scratch)?;
    let app_options = AppOptions {
        partitions: 4,
        flushes: Flushes::Usual,
        unique: false,
        settings: options.settings.clone(),
    };
    let open = || -> Result<Tidemill> {
        Ok(Tidemill::open_with(dir.path().join("data"), app::app(dir.path(), &app_options)?)?)
    };
    let tidemill = open()?;
    println!("seed {}", options.seed);
    let (rows, points) = {
        let batches = Dataset::open(&options.data)?.all_batches(10_000)?;
        load::send(&tidemill, &batches, |_, _| {})?;
        (
            batches.iter().map(|b| b.rows.num_rows() as u64).sum(),
            sample(&batches, 2 * options.lookups, options.seed)?,
        )
    };
    tidemill.engine().catch_up()?;
    tidemill.engine().flush()?;
    tidemill.engine().consolidate()?;
    tidemill.close()?;

    let tidemill = open()?;
    let tablets = sum(&tidemill, "SELECT count(*) FROM system.tablets WHERE stream = 'readings'")?;
    let (cold, warm) = points.split_at(options.lookups);
    let (mut cold_ms, mut cold_bytes) = (Vec::new(), Vec::new());
    for point in cold {
        let bytes = scanned_bytes(&tidemill, &statement(point)?)?;
        cold_bytes.push(bytes as f64);
        cold_ms.push(look_up(&tidemill, point)?);
    }
    let warm_ms: Vec<f64> = warm.iter().map(|point| look_up(&tidemill, point)).collect::<Result<_>>()?;
    let prepared = tidemill.prepare(PREPARED)?;
    let prepared_ms: Vec<f64> =
        warm.iter().map(|point| look_up_prepared(&prepared, point)).collect::<Result<_>>()?;
    drop(prepared);
    tidemill.close()?;
    let figure = Figure {
        rows,
        tablets,
        warm_ms: Spread::of(&warm_ms),
        warm_ms_p99: percentile(&warm_ms, 0.99),
        prepared_ms: Spread::of(&prepared_ms),
        prepared_ms_p99: percentile(&prepared_ms, 0.99),
        cold_ms: Spread::of(&cold_ms),
        cold_bytes: Spread::of(&cold_bytes),
    };
    println!(
        "{} rows, {} tablets of readings; a point by truck and time: first {} ms p50 {:.3} ({:.3} to {:.3}), \
         {:.0} bytes of files each ({:.0} to {:.0}); then ms p50 {:.3} p99 {:.3} ({:.3} to {:.3}); prepared ms p50 {:.3} \
         p99 {:.3} ({:.3} to {:.3})",
        figure.rows,
        figure.tablets,
        options.lookups,
        figure.cold_ms.median,
        figure.cold_ms.min,
        figure.cold_ms.max,
        figure.cold_bytes.median,
        figure.cold_bytes.min,
        figure.cold_bytes.max,
        figure.warm_ms.median,
        figure.warm_ms_p99,
        figure.warm_ms.min,
        figure.warm_ms.max,
        figure.prepared_ms.median,
        figure.prepared_ms_p99,
        figure.prepared_ms.min,
        figure.prepared_ms.max
    );
    record(options.json.as_deref(), &figure)
}

/// Selects readings that name their truck.
fn sample(batches: &[TableBatch], count: usize, seed: u64) -> Result<Vec<Point>> {
    let readings: Vec<&RecordBatch> = batches
        .iter()
        .filter(|b| b.table == Table::Readings && b.rows.num_rows() > 0)
        .map(|b| &b.rows)
        .collect();
    ensure!(!readings.is_empty(), "the data set has no readings");
    let mut rng = StdRng::seed_from_u64(seed);
    let mut points = Vec::with_capacity(count);
    while points.len() < count {
        let batch = readings[rng.random_range(0..readings.len())];
        let row = rng.random_range(0..batch.num_rows());
        let column = |name: &str| batch.column_by_name(name).with_context(|| format!("no column `{name}`"));
        let trucks = column("tags_id")?.as_primitive::<Int32Type>();
        let times = column("time")?.as_primitive::<TimestampMicrosecondType>();
        if trucks.is_valid(row) {
            points.push(Point { truck: trucks.value(row), time_us: times.value(row) });
        }
    }
    Ok(points)
}

fn statement(point: &Point) -> Result<String> {
    let time = arrow::array::TimestampMicrosecondArray::from(vec![point.time_us]);
    let time = arrow::util::display::array_value_to_string(&time, 0)?;
    Ok(format!("SELECT * FROM readings WHERE tags_id = {} AND time = '{time}Z'", point.truck))
}

/// Returns the milliseconds of a look-up by text; it must find one row.
fn look_up(tidemill: &Tidemill, point: &Point) -> Result<f64> {
    let statement = statement(point)?;
    let start = Instant::now();
    let rows = tidemill.sql(&statement)?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    ensure!(rows.num_rows() == 1, "{statement}: expected one row, found {}", rows.num_rows());
    Ok(ms)
}

/// Returns the milliseconds of a look-up by a prepared statement; it must find one row.
fn look_up_prepared(prepared: &Prepared, point: &Point) -> Result<f64> {
    let values = [Value::Int(point.truck.into()), Value::Time(Timestamp(point.time_us))];
    let start = Instant::now();
    let rows = prepared.query_blocking_with(&values)?;
    let ms = start.elapsed().as_secs_f64() * 1e3;
    ensure!(rows.num_rows() == 1, "{point:?}: expected one row, found {}", rows.num_rows());
    Ok(ms)
}

/// Returns the bytes of files that a statement reads.
fn scanned_bytes(tidemill: &Tidemill, statement: &str) -> Result<u64> {
    let rows = tidemill.sql(&format!("EXPLAIN ANALYZE {statement}"))?;
    let mut bytes = 0;
    for batch in &rows.batches {
        for plan in batch.column(1).as_string::<i32>().iter().flatten() {
            for part in plan.split("bytes_scanned=").skip(1) {
                bytes += parse_bytes(part).with_context(|| format!("bytes_scanned={part}"))?;
            }
        }
    }
    Ok(bytes)
}

/// Reads a size such as `12.5 K` at the start of a text.
fn parse_bytes(text: &str) -> Option<u64> {
    let end = text.find([',', ']']).unwrap_or(text.len());
    let mut words = text[..end].split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    let unit = match words.next() {
        None | Some("B") => 1.0,
        Some("K" | "KB" | "KiB") => 1024.0,
        Some("M" | "MB" | "MiB") => 1024.0 * 1024.0,
        Some(_) => return None,
    };
    Some((number * unit) as u64)
}
