//! The wires of Tidemill: latency of statements, and rows a second out and in. See README.md.

mod encode;
mod latency;
mod postgres;
mod server;
mod throughput;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use tidemill_bench_tsbs::dataset::{Dataset, Table, TableBatch};
use tidemill_bench_tsbs::generate;

/// Measures statements and rows over PostgreSQL's protocol, Flight SQL, line protocol and NDJSON, by one client on loopback.
#[derive(Parser)]
struct Arguments {
    /// Program that serves.
    #[arg(long, default_value = "target/release/tidemill")]
    program: PathBuf,
    /// Directory of a data set of bench/tsbs. By default one is made.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Trucks of the data set that is made, of one day.
    #[arg(long, default_value_t = 100)]
    trucks: u64,
    /// Rows of readings that go in and out.
    #[arg(long, default_value_t = 1_000_000)]
    rows: usize,
    /// Times that each statement is asked.
    #[arg(long, default_value_t = 2_000)]
    asks: usize,
    /// Runs of each transfer.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Leaves PostgreSQL out.
    #[arg(long)]
    no_postgres: bool,
    /// Directory for data that is deleted at the end.
    #[arg(long, default_value = "target/bench-wires")]
    scratch: PathBuf,
    /// File to which each figure is appended as a line of JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// Rows of the streams, and what is asked about them.
struct Rows {
    /// Batches of readings and tags, those of tags first.
    batches: Vec<TableBatch>,
    /// Number of readings.
    readings: usize,
}

impl Rows {
    fn of(&self, table: Table) -> impl Iterator<Item = &TableBatch> {
        self.batches.iter().filter(move |batch| batch.table == table)
    }
}

fn main() -> Result<()> {
    run(&Arguments::parse())
}

fn run(arguments: &Arguments) -> Result<()> {
    ensure!(
        arguments.rows > 0 && arguments.asks > 0 && arguments.runs > 0,
        "--rows, --asks and --runs: expected 1 or more"
    );
    std::fs::create_dir_all(&arguments.scratch).with_context(|| arguments.scratch.display().to_string())?;
    let scratch = tempfile::tempdir_in(&arguments.scratch)?;
    let rows = rows(arguments, scratch.path())?;
    println!(
        "{} readings, {} asks of each statement, {} runs of each transfer",
        rows.readings, arguments.asks, arguments.runs
    );
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    let json = arguments.json.as_deref();
    let postgres = match arguments.no_postgres {
        true => None,
        false => Some(postgres::Server::start()?),
    };
    throughput::run(
        &arguments.program,
        scratch.path(),
        &rows,
        arguments.runs,
        postgres.as_ref(),
        &runtime,
        json,
    )?;
    latency::run(&arguments.program, scratch.path(), &rows, arguments.asks, postgres.as_ref(), &runtime, json)
}

/// Reads the rows that are sent, and makes them before if there are none.
fn rows(arguments: &Arguments, scratch: &std::path::Path) -> Result<Rows> {
    let made = scratch.join("trucks");
    let dir = match &arguments.data {
        Some(dir) => dir.clone(),
        None => {
            std::fs::create_dir_all(&made)?;
            generate::write(arguments.trucks, 1, 123, &made)?;
            made
        }
    };
    let mut batches = Dataset::open(&dir)?.all_batches(10_000)?;
    batches.retain(|batch| batch.rows.num_rows() > 0);
    let mut readings = 0;
    batches.retain_mut(|batch| {
        if batch.table != Table::Readings {
            return true;
        }
        let taken = batch.rows.num_rows().min(arguments.rows - readings);
        batch.rows = batch.rows.slice(0, taken);
        readings += taken;
        taken > 0
    });
    if readings < arguments.rows {
        println!("the data set has only {readings} readings: --trucks makes a larger one");
    }
    ensure!(readings > 0, "the data set has no readings");
    Ok(Rows { batches, readings })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_numbers_go_over_every_wire() {
        let test = std::env::current_exe().unwrap();
        let program = test.ancestors().nth(2).unwrap().join("tidemill");
        if !program.exists() {
            eprintln!("skipped: there is no {}: cargo build -p tidemill makes it", program.display());
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let program = program.to_str().unwrap();
        let json = scratch.path().join("figures.ndjson");
        let arguments =
            ["wires", "--trucks", "2", "--rows", "5000", "--asks", "5", "--runs", "1", "--program", program];
        let paths = ["--scratch", scratch.path().to_str().unwrap(), "--json", json.to_str().unwrap()];
        let mut arguments = Arguments::parse_from([&arguments[..], &paths].concat());
        arguments.no_postgres = postgres::programs().is_err();
        run(&arguments).unwrap();
        let figures = std::fs::read_to_string(json).unwrap();
        // six transfers and five statements over two wires; PostgreSQL has two and five more
        assert_eq!(figures.lines().count(), if arguments.no_postgres { 16 } else { 23 }, "{figures}");
    }
}
