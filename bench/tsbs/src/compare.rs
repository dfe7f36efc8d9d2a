//! One table of Tidemill and its peers, measured one after the other on the same machine.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::Serialize;

use crate::dataset::Dataset;
use crate::expected::{Expected, Outcome};
use crate::peers::{self, Peer, PeerFigures};
use crate::queries::{self, Asked};
use crate::report::record;
use crate::statements::{Dialect, Set, statements};
use crate::states::{Loaded, State};

/// What to compare.
#[derive(Args)]
pub struct Options {
    /// Directory of the data set.
    #[arg(long, visible_alias = "recorded")]
    data: PathBuf,
    /// Size of the data set.
    #[arg(long, value_enum, default_value = "small")]
    set: Set,
    /// Directory with the expected results of the data set.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/expected"))]
    expected: PathBuf,
    /// Peers; repeat it for several. Default: all. One that cannot be run is left out, with the reason.
    #[arg(long, value_enum)]
    peer: Vec<Peer>,
    /// Where Tidemill's rows are.
    #[arg(long, value_enum, default_value = "files")]
    state: State,
    /// Rounds of all statements in turn, after a warm one.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Asks the statements with a lower bound of time once more, without it.
    #[arg(long)]
    unbounded: bool,
    /// Writes the results of the first peer into the directory of expected results, instead of measuring Tidemill.
    #[arg(long)]
    write_expected: bool,
    /// A line of the app's `[settings]`; repeat it for several.
    #[arg(long = "setting", value_name = "NAME = VALUE")]
    settings: Vec<String>,
    /// Directory for the data of all systems, and the virtual environment of the peers.
    #[arg(long, default_value = "target/bench-tsbs")]
    scratch: PathBuf,
    /// File to which each row of the table is appended as a line of JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A row of the table.
#[derive(Debug, Serialize)]
struct Row {
    statement: String,
    anew_ms: f64,
    repeated_ms: f64,
    /// Milliseconds of each peer.
    peers: BTreeMap<&'static str, f64>,
}

/// Measures the peers, then Tidemill, and prints the table. A wrong result of Tidemill is an error; one of a peer is marked.
pub fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.scratch)?;
    let measured = measure_peers(options)?;
    ensure!(!measured.is_empty(), "no peer can be run");
    if options.write_expected {
        return write_expected(options, &measured);
    }
    let expected = Expected::read(&options.expected, options.set.name())?;
    let batches = Dataset::open(&options.data)?.all_batches(10_000)?;
    let loaded = Loaded::new(&options.scratch, options.state, &batches, &options.settings)?;
    let asked = statements(options.set, Dialect::Tidemill, options.unbounded)?;
    let figures = queries::measure(&loaded.tidemill, &asked, options.runs)?;
    loaded.tidemill.close()?;
    for figure in &figures {
        expected.check(&figure.statement, &figure.outcome)?;
    }
    let median = |name: &str, how: Asked| {
        let figure = figures.iter().find(|f| f.statement == name && f.asked == how);
        figure.map_or(f64::NAN, |f| f.ms.median)
    };
    let rows: Vec<Row> = asked
        .iter()
        .map(|statement| Row {
            statement: statement.name.clone(),
            anew_ms: median(&statement.name, Asked::Anew),
            repeated_ms: median(&statement.name, Asked::Repeated),
            peers: measured
                .iter()
                .filter_map(|(peer, f)| Some((peer.name(), f.statements.get(&statement.name)?.0)))
                .collect(),
        })
        .collect();
    print_table(options, &rows, &measured);
    print_notes(&measured, &expected);
    rows.iter().try_for_each(|row| record(options.json.as_deref(), row))
}

fn measure_peers(options: &Options) -> Result<Vec<(Peer, PeerFigures)>> {
    let run = peers::Run {
        data: &options.data,
        scratch: &options.scratch,
        set: options.set,
        runs: options.runs.max(1),
        unbounded: options.unbounded,
    };
    let wanted: &[Peer] = if options.peer.is_empty() { &Peer::ALL } else { &options.peer };
    let mut measured = Vec::new();
    for peer in wanted {
        match peers::measure(*peer, &run) {
            Ok(figures) => measured.push((*peer, figures)),
            Err(e) if options.peer.is_empty() => eprintln!("{} is left out: {e:#}", peer.name()),
            Err(e) => return Err(e),
        }
    }
    Ok(measured)
}

fn write_expected(options: &Options, measured: &[(Peer, PeerFigures)]) -> Result<()> {
    let (peer, figures) = measured.first().context("no peer")?;
    ensure!(figures.failed.is_empty(), "{}: {:?}", peer.name(), figures.failed);
    let bounded = figures.statements.iter().filter(|(name, _)| !name.ends_with("-nobound"));
    let outcomes: BTreeMap<String, Outcome> =
        bounded.map(|(name, (_, outcome))| (name.clone(), outcome.clone())).collect();
    Expected::write(&options.expected, options.set.name(), &outcomes)?;
    println!("{} results of {} written to {}", outcomes.len(), figures.version, options.expected.display());
    Ok(())
}

/// Prints milliseconds, and how many times as long as Tidemill the fastest peer takes: above 1 Tidemill is ahead.
fn print_table(options: &Options, rows: &[Row], measured: &[(Peer, PeerFigures)]) {
    let names: Vec<&str> = measured.iter().map(|(peer, _)| peer.name()).collect();
    println!(
        "\n| {}, ms | {} | Tidemill, planned anew | repeated | fastest peer / anew | / repeated |",
        options.set.name(),
        names.join(" | ")
    );
    println!("| --- |{} ---: | ---: | ---: | ---: |", " ---: |".repeat(names.len()));
    let (mut anew, mut repeated) = (Vec::new(), Vec::new());
    for row in rows {
        let cell = |name| row.peers.get(name).map_or_else(|| "-".into(), |ms| format!("{ms:.2}"));
        let cells: Vec<String> = names.iter().map(cell).collect();
        let fastest = row.peers.values().copied().fold(f64::INFINITY, f64::min);
        anew.push(fastest / row.anew_ms);
        repeated.push(fastest / row.repeated_ms);
        println!(
            "| {} | {} | {:.2} | {:.2} | {:.2} | {:.2} |",
            row.statement,
            cells.join(" | "),
            row.anew_ms,
            row.repeated_ms,
            fastest / row.anew_ms,
            fastest / row.repeated_ms
        );
    }
    println!(
        "| geometric mean |{} | | {:.2} | {:.2} |",
        " |".repeat(names.len()),
        geometric_mean(&anew),
        geometric_mean(&repeated)
    );
}

fn geometric_mean(ratios: &[f64]) -> f64 {
    let finite: Vec<f64> = ratios.iter().copied().filter(|ratio| ratio.is_finite()).collect();
    (finite.iter().map(|ratio| ratio.ln()).sum::<f64>() / finite.len() as f64).exp()
}

/// Prints the loads, what failed, and which results differ from the expected ones.
fn print_notes(measured: &[(Peer, PeerFigures)], expected: &Expected) {
    println!(
        "\n| load in batches of 10,000 rows | version | rows/s | batch p50, ms | p99 | settled after, s | bytes a row |"
    );
    println!("| --- | --- | ---: | ---: | ---: | ---: | ---: |");
    for (peer, figures) in measured {
        if let Some(load) = &figures.load {
            println!(
                "| {} | {} | {:.0} | {:.2} | {:.2} | {:.2} | {:.1} |",
                peer.name(),
                figures.version,
                load.rows_per_second,
                load.batch_ms_p50,
                load.batch_ms_p99,
                load.settle_seconds,
                load.bytes_per_row
            );
        }
    }
    for (peer, figures) in measured {
        for (statement, reason) in &figures.failed {
            println!("{}: {statement} failed: {reason}", peer.name());
        }
        for (statement, (_, outcome)) in &figures.statements {
            if let Err(e) = expected.check(statement, outcome) {
                println!("{}: another result: {e}", peer.name());
            }
        }
    }
}
