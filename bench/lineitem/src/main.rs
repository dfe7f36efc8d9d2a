//! LINEITEM of TPC-H on Tidemill, beside DuckDB on Parquet of the same rows: see README.md.

mod app;
mod ingest;
mod queries;
mod rows;
mod statements;

use std::path::PathBuf;

use anyhow::{Result, ensure};
use clap::{Args, Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures Tidemill with the line items of TPC-H.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Loads the rows from Arrow batches into fresh data directories.
    Ingest(ingest::Options),
    /// Runs the 11 statements, checks each result, and measures them beside DuckDB.
    Queries(queries::Options),
}

/// What both commands need.
#[derive(Args)]
struct Common {
    /// Scale factor: 1 has 6,001,215 rows.
    #[arg(long, default_value_t = 1.0)]
    scale: f64,
    /// Rows of an Arrow batch.
    #[arg(long, default_value_t = 10_000)]
    batch_rows: usize,
    /// A line of the app's `[settings]`, such as 'zones.compression = "snappy"'; repeat it for several.
    #[arg(long = "setting", value_name = "NAME = VALUE")]
    settings: Vec<String>,
    /// Directory in which data directories and files are made, on the disk to be measured.
    #[arg(long, default_value = "target/bench-lineitem")]
    scratch: PathBuf,
    /// File to which each figure is appended as a line of JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

impl Common {
    fn prepare(&self) -> Result<()> {
        ensure!(self.scale > 0.0, "--scale: expected a number above 0, found {}", self.scale);
        ensure!(self.batch_rows > 0, "--batch-rows: expected 1 or more, found 0");
        Ok(std::fs::create_dir_all(&self.scratch)?)
    }
}

fn main() -> Result<()> {
    match Arguments::parse().command {
        Command::Ingest(options) => ingest::run(&options),
        Command::Queries(options) => queries::run(&options),
    }
}
