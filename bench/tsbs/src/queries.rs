//! The 14 statements on Tidemill: each result is checked, each statement measured.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::{Result, bail, ensure};
use clap::Args;
use serde::Serialize;
use tidemill::Tidemill;

use crate::dataset::Dataset;
use crate::digest::{digest, lines};
use crate::expected::{Expected, Outcome};
use crate::report::{Spread, record};
use crate::statements::{Dialect, Set, Statement, statements};
use crate::states::{Loaded, State};

/// What to ask, and how often.
#[derive(Args)]
pub struct Options {
    /// Directory of the data set.
    #[arg(long, visible_alias = "recorded")]
    data: PathBuf,
    /// Size of the data set.
    #[arg(long, value_enum, default_value = "small")]
    set: Set,
    /// Directory with the expected results of the data set. The default has those of `generate` with the default seed.
    #[arg(long, default_value = concat!(env!("CARGO_MANIFEST_DIR"), "/expected"))]
    expected: PathBuf,
    /// Where the rows are; repeat it for several. Default: all.
    #[arg(long, value_enum)]
    state: Vec<State>,
    /// Name of a statement to ask, such as `q01`; repeat it for several. Default: all. A statement is slower behind one that needs
    /// much memory.
    #[arg(long = "statement", value_name = "NAME")]
    statements: Vec<String>,
    /// Rounds of all statements in turn, after a warm one.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Asks the statements with a lower bound of time once more, without it.
    #[arg(long)]
    unbounded: bool,
    /// Rows of an Arrow batch while loading.
    #[arg(long, default_value_t = 10_000)]
    batch_rows: usize,
    /// A line of the app's `[settings]`; repeat it for several.
    #[arg(long = "setting", value_name = "NAME = VALUE")]
    settings: Vec<String>,
    /// Directory in which the data directories are made.
    #[arg(long, default_value = "target/bench-tsbs")]
    scratch: PathBuf,
    /// File to which each figure is appended as a line of JSON.
    #[arg(long)]
    json: Option<PathBuf>,
}

/// How a statement is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Asked {
    /// With a text that was not asked before, so that nothing can be reused but the data.
    Anew,
    /// With the same text as before.
    Repeated,
}

/// Times of one statement.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    /// Its name.
    pub statement: String,
    /// How it was asked.
    pub asked: Asked,
    /// Milliseconds from the call to the collected rows.
    pub ms: Spread,
    /// Its result.
    pub outcome: Outcome,
}

/// Loads the data set in each state, and prints a table for each. Every result must be the expected one.
pub fn run(options: &Options) -> Result<()> {
    let expected = Expected::read(&options.expected, options.set.name())?;
    std::fs::create_dir_all(&options.scratch)?;
    let batches = Dataset::open(&options.data)?.all_batches(options.batch_rows)?;
    let mut asked = statements(options.set, Dialect::Tidemill, options.unbounded)?;
    if let Some(unknown) = options.statements.iter().find(|name| asked.iter().all(|one| one.name != **name)) {
        let names: Vec<&str> = asked.iter().map(|one| one.name.as_str()).collect();
        bail!("no statement `{unknown}`: expected one of {}", names.join(", "));
    }
    asked.retain(|one| options.statements.is_empty() || options.statements.contains(&one.name));
    let states: &[State] = if options.state.is_empty() { &State::ALL } else { &options.state };
    let mut wrong = Vec::new();
    for state in states {
        let loaded = Loaded::new(&options.scratch, *state, &batches, &options.settings)?;
        let figures = measure(&loaded.tidemill, &asked, options.runs)?;
        print(*state, &figures, &expected);
        for figure in &figures {
            let checked = expected.check(&figure.statement, &figure.outcome);
            wrong.extend(checked.err().map(|e| format!("{}: {e}", state.name())));
            record(options.json.as_deref(), &serde_json::json!({"state": state.name(), "figure": figure}))?;
        }
        loaded.tidemill.close()?;
    }
    wrong.dedup();
    ensure!(wrong.is_empty(), "{} results are wrong:\n{}", wrong.len(), wrong.join("\n"));
    println!("All results are the expected ones.");
    Ok(())
}

/// Asks all statements in turn, `runs` times after a warm round: first each with a new text, then each with its text again.
pub fn measure(tidemill: &Tidemill, asked: &[Statement], runs: usize) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for how in [Asked::Anew, Asked::Repeated] {
        let mut times = vec![Vec::new(); asked.len()];
        let mut outcomes: Vec<Option<Outcome>> = vec![None; asked.len()];
        for round in 0..=runs.max(1) {
            for ((statement, times), outcome) in asked.iter().zip(&mut times).zip(&mut outcomes) {
                let text = match how {
                    Asked::Anew => format!("-- {} {round}\n{}", std::process::id(), statement.text),
                    Asked::Repeated => statement.text.clone(),
                };
                let start = Instant::now();
                let rows = tidemill.sql(&text)?;
                let ms = start.elapsed().as_secs_f64() * 1e3;
                if round > 0 {
                    times.push(ms);
                }
                let lines = lines(&rows, statement.key)?;
                let found = Outcome { rows: lines.len(), sha256_16: digest(&lines) };
                let first = outcome.get_or_insert_with(|| found.clone());
                ensure!(*first == found, "{}: {found:?}, before {first:?}", statement.name);
            }
        }
        for ((statement, times), outcome) in asked.iter().zip(&times).zip(outcomes) {
            let Some(outcome) = outcome else { continue };
            figures.push(Figure {
                statement: statement.name.clone(),
                asked: how,
                ms: Spread::of(times),
                outcome,
            });
        }
    }
    Ok(figures)
}

fn print(state: State, figures: &[Figure], expected: &Expected) {
    println!("\n| {} | planned anew, ms: median (min to max) | repeated | rows | result |", state.name());
    println!("| --- | ---: | ---: | ---: | --- |");
    let spread = |ms: Spread| format!("{:.2} ({:.2} to {:.2})", ms.median, ms.min, ms.max);
    let of = |how: Asked| figures.iter().filter(move |figure| figure.asked == how);
    for (anew, repeated) in of(Asked::Anew).zip(of(Asked::Repeated)) {
        let right = [anew, repeated].iter().all(|f| expected.check(&f.statement, &f.outcome).is_ok());
        println!(
            "| {} | {} | {} | {} | {} |",
            anew.statement,
            spread(anew.ms),
            spread(repeated.ms),
            anew.outcome.rows,
            if right { "as expected" } else { "WRONG" }
        );
    }
}
