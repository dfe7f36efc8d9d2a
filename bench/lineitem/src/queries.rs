//! The statements on Tidemill and on DuckDB.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use arrow::array::RecordBatch;
use clap::Args;
use tidemill_bench_tsbs::expected::{Expected, Outcome};
use tidemill_bench_tsbs::peers::{self, PeerFigures};
use tidemill_bench_tsbs::queries::{Asked, Figure, measure};
use tidemill_bench_tsbs::report::record;
use tidemill_bench_tsbs::states::State;

use crate::ingest::{check_count, send};
use crate::statements::statements;
use crate::{Common, app, rows};

/// What to ask, and how often.
#[derive(Args)]
pub struct Options {
    #[command(flatten)]
    common: Common,
    /// Rounds of all statements in turn, after a warm one.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Where the rows are; repeat it for several.
    #[arg(long, value_enum, default_values_t = [State::Files])]
    state: Vec<State>,
    /// Directory with the expected results.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/expected"))]
    expected: PathBuf,
    /// Writes DuckDB's results into that directory, instead of measuring Tidemill.
    #[arg(long)]
    write_expected: bool,
    /// Leaves DuckDB out.
    #[arg(long, conflicts_with = "write_expected")]
    without_duckdb: bool,
}

/// Measures DuckDB on Parquet of the rows, then Tidemill, and prints a table for each state.
pub fn run(options: &Options) -> Result<()> {
    let common = &options.common;
    common.prepare()?;
    let set = format!("sf{}", common.scale);
    let duckdb = match options.without_duckdb {
        true => PeerFigures::default(),
        false => ask_duckdb(options)?,
    };
    ensure!(duckdb.failed.is_empty(), "DuckDB: {:?}", duckdb.failed);
    if options.write_expected {
        let outcomes: BTreeMap<String, Outcome> =
            duckdb.statements.iter().map(|(name, (_, outcome))| (name.clone(), outcome.clone())).collect();
        Expected::write(&options.expected, &set, &outcomes)?;
        println!(
            "{} results of {} written to {}",
            outcomes.len(),
            duckdb.version,
            options.expected.display()
        );
        return Ok(());
    }
    let expected = Expected::read(&options.expected, &set)?;
    duckdb.statements.iter().try_for_each(|(name, (_, outcome))| expected.check(name, outcome))?;
    let batches = rows::stream_batches(common.scale, common.batch_rows)?;
    for state in &options.state {
        let dir = tempfile::tempdir_in(&common.scratch)?;
        let figures = in_state(options, dir.path(), *state, &batches)?;
        print(*state, &figures, &duckdb);
        for figure in &figures {
            expected.check(&figure.statement, &figure.outcome)?;
            record(common.json.as_deref(), figure)?;
        }
    }
    println!("All results are the expected ones.");
    Ok(())
}

fn ask_duckdb(options: &Options) -> Result<PeerFigures> {
    let dir = tempfile::tempdir_in(&options.common.scratch)?;
    rows::write_parquet(options.common.scale, &dir.path().join("lineitem.parquet"))?;
    peers::ask("duckdb-files", dir.path(), &options.common.scratch, options.runs.max(1), &statements())
}

/// Loads the rows into `dir`, so that they are where `state` says, and asks the statements.
fn in_state(options: &Options, dir: &Path, state: State, batches: &[RecordBatch]) -> Result<Vec<Figure>> {
    let tidemill = app::open(dir, &options.common.settings, true)?;
    let (older, newer) = state.split(batches);
    for part in older {
        send(&tidemill, part)?;
        tidemill.engine().catch_up()?;
        tidemill.engine().flush()?;
    }
    state.finish(&tidemill, "")?;
    send(&tidemill, newer)?;
    check_count(&tidemill, batches.iter().map(|batch| batch.num_rows() as u64).sum())?;
    let figures = measure(&tidemill, &statements(), options.runs)?;
    tidemill.close()?;
    Ok(figures)
}

/// Prints milliseconds, and how many times as long as Tidemill DuckDB takes: above 1 Tidemill is ahead.
fn print(state: State, figures: &[Figure], duckdb: &PeerFigures) {
    println!(
        "\n| {} | DuckDB on Parquet, ms | Tidemill, planned anew | repeated | DuckDB / anew | / repeated |",
        state.name()
    );
    println!("| --- | ---: | ---: | ---: | ---: | ---: |");
    let of = |asked: Asked| figures.iter().filter(move |figure| figure.asked == asked);
    let mut logs = [0.0, 0.0];
    let mut compared = 0.0;
    for (anew, repeated) in of(Asked::Anew).zip(of(Asked::Repeated)) {
        let peer = duckdb.statements.get(&anew.statement).map_or(f64::NAN, |(ms, _)| *ms);
        let ratios = [peer / anew.ms.median, peer / repeated.ms.median];
        if peer.is_finite() {
            compared += 1.0;
            logs = [logs[0] + ratios[0].ln(), logs[1] + ratios[1].ln()];
        }
        let spread = |figure: &Figure| {
            let ms = figure.ms;
            format!("{:.1} ({:.1} to {:.1})", ms.median, ms.min, ms.max)
        };
        println!(
            "| {} | {peer:.1} | {} | {} | {:.2} | {:.2} |",
            anew.statement,
            spread(anew),
            spread(repeated),
            ratios[0],
            ratios[1]
        );
    }
    let mean = |sum: f64| (sum / compared).exp();
    println!("| geometric mean | | | | {:.2} | {:.2} |", mean(logs[0]), mean(logs[1]));
}
