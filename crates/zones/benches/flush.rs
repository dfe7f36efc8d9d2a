//! Measures rows per second from push to Delta commit, on local files.
//!
//! ```text
//! cargo bench -p tidemill-zones --bench flush -- [--rows N] [--batch N] [--flush N] [--dir DIR]
//! ```
//!
//! Each run pushes `rows` rows in batches of `batch`, flushes whenever `flush` rows are in the tail, and
//! checks the row count at the end. `--dir` keeps the tables. Without `--bench` (as under `cargo test`) a run
//! is small.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow_array::{
    ArrayRef, Float64Array, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use tidemill_types::{Field, FieldType, Offset, PartitionId, Result, StreamSchema};
use tidemill_zones::{Compression, Table, Zones, ZonesOptions};

struct Settings {
    rows: usize,
    batch: usize,
    flush: usize,
    dir: Option<PathBuf>,
}

impl Settings {
    fn from_args() -> Self {
        let args: Vec<String> = std::env::args().collect();
        let value = |name: &str| args.iter().position(|a| a == name).and_then(|i| args.get(i + 1));
        let number = |name: &str, default: usize| value(name).and_then(|v| v.parse().ok()).unwrap_or(default);
        let rows = if args.iter().any(|a| a == "--bench") { 2_000_000 } else { 20_000 };
        Self {
            rows: number("--rows", rows),
            batch: number("--batch", 1_000),
            flush: number("--flush", 250_000),
            dir: value("--dir").map(PathBuf::from),
        }
    }
}

fn stream(name: &str) -> Arc<StreamSchema> {
    let fields = [
        ("tail_number", FieldType::String),
        ("origin", FieldType::String),
        ("destination", FieldType::String),
        ("distance", FieldType::Int),
        ("delay", FieldType::Double),
        ("scheduled", FieldType::Time),
        ("flight", FieldType::Long),
    ];
    let fields = fields.map(|(name, ty)| Field::new(name, ty)).to_vec();
    Arc::new(StreamSchema { name: name.to_owned(), fields, key: Some(0), id: vec![6], time: Some(5) })
}

/// Rows similar to a year of flights: some thousand keys, increasing times, a few nulls.
fn batch(schema: &arrow_schema::SchemaRef, offset: u64, rows: usize) -> RecordBatch {
    const AIRPORTS: [&str; 8] = ["EWR", "JFK", "LGA", "ATL", "ORD", "LAX", "BOS", "MCO"];
    let ids = || (0..rows as i64).map(|row| offset as i64 * rows as i64 + row);
    let mixed = |id: i64| (id.wrapping_mul(0x9E37_79B9_7F4A_7C15_u64 as i64) >> 33) & 0x7fff_ffff;
    let utc = |values: Vec<i64>| TimestampMicrosecondArray::from(values).with_timezone("UTC");
    let times: Vec<i64> = ids().map(|id| 1_357_000_000_000_000 + id * 94_000_000).collect();
    let columns: Vec<ArrayRef> = vec![
        Arc::new(StringArray::from_iter_values(ids().map(|id| format!("N{:05}", mixed(id) % 4_000)))),
        Arc::new(StringArray::from_iter_values(ids().map(|id| AIRPORTS[(mixed(id) % 3) as usize]))),
        Arc::new(StringArray::from_iter_values(ids().map(|id| AIRPORTS[(mixed(id) % 8) as usize]))),
        Arc::new(Int32Array::from_iter_values(ids().map(|id| (mixed(id) % 5_000) as i32))),
        Arc::new(Float64Array::from_iter(
            ids().map(|id| (id % 40 != 0).then(|| (mixed(id) % 300) as f64 - 20.0)),
        )),
        Arc::new(utc(times.clone())),
        Arc::new(Int64Array::from_iter_values(ids())),
        Arc::new(utc(times)),
        Arc::new(StringArray::new_null(rows)),
        Arc::new(utc(vec![1_357_000_000_000_000; rows])),
        Arc::new(Int32Array::from(vec![0; rows])),
        Arc::new(Int64Array::from(vec![offset as i64; rows])),
        Arc::new(Int32Array::from_iter_values(0..rows as i32)),
    ];
    RecordBatch::try_new(schema.clone(), columns).expect("the columns follow the schema above")
}

struct Outcome {
    pushing: Duration,
    flushing: Duration,
    bytes: u64,
    files: usize,
}

async fn run(table: &Table, settings: &Settings, batches: &[RecordBatch]) -> Result<Outcome> {
    let mut outcome = Outcome { pushing: Duration::ZERO, flushing: Duration::ZERO, bytes: 0, files: 0 };
    for (offset, batch) in batches.iter().enumerate() {
        let offset = Offset(offset as u64);
        let start = Instant::now();
        table.push(PartitionId(0), offset, batch.clone())?;
        outcome.pushing += start.elapsed();
        if table.pending_rows() as usize >= settings.flush || offset.0 as usize + 1 == batches.len() {
            let start = Instant::now();
            let done = table.flush(&[(PartitionId(0), offset)]).await?;
            outcome.flushing += start.elapsed();
            outcome.bytes += done.as_ref().map_or(0, |d| d.bytes);
            outcome.files += done.map_or(0, |d| d.files);
        }
    }
    Ok(outcome)
}

fn main() -> Result<()> {
    let settings = Settings::from_args();
    let scratch = std::env::temp_dir().join(format!("tidemill-bench-{}", std::process::id()));
    let dir = settings.dir.clone().unwrap_or_else(|| scratch.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|e| tidemill_types::Error::unavailable("no runtime").with_source(e))?;
    for (name, compression) in [("Snappy", Compression::Snappy), ("Zstd", Compression::Zstd)] {
        let options = ZonesOptions { compression, tail_bytes_max: u64::MAX, ..ZonesOptions::default() };
        let schema = stream(name).table_schema();
        let count = settings.rows.div_ceil(settings.batch).max(1) as u64;
        let batches: Vec<_> = (0..count).map(|offset| batch(&schema, offset, settings.batch)).collect();
        let rows = count * settings.batch as u64;
        runtime.block_on(async {
            let zones = Zones::open(&dir.display().to_string(), 1, options, &[]).await?;
            let table = zones.table(&stream(name), 1).await?;
            let outcome = run(&table, &settings, &batches).await?;
            assert_eq!(table.tablet_rows(), rows, "every row is in a file");
            let per_second = |time: Duration| rows as f64 / time.as_secs_f64().max(1e-9);
            println!(
                "{name:7} {rows} rows, {} files, {:.1} bytes per row; push {:.0} rows/s, flush {:.0} rows/s",
                outcome.files,
                outcome.bytes as f64 / rows as f64,
                per_second(outcome.pushing),
                per_second(outcome.flushing),
            );
            Result::<()>::Ok(())
        })?;
    }
    if settings.dir.is_none() {
        // Best effort: the directory is below the system's temporary one.
        let _ = std::fs::remove_dir_all(scratch);
    }
    Ok(())
}
