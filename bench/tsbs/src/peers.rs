//! Peers: each runs in a Python process that loads the data set and is asked the statements.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use serde::Deserialize;

use crate::expected::Outcome;
use crate::statements::{Dialect, Set, Statement, statements};

/// A system beside Tidemill.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Peer {
    /// DuckDB with tables of its own.
    Duckdb,
    /// DuckDB on sorted Parquet files.
    DuckdbParquet,
    /// ClickHouse in process, by chdb.
    Clickhouse,
    /// QuestDB, which needs Java and Maven.
    Questdb,
    /// PostgreSQL, which has to be installed.
    Postgres,
}

impl Peer {
    /// All peers.
    pub const ALL: [Self; 5] =
        [Self::Duckdb, Self::DuckdbParquet, Self::Clickhouse, Self::Questdb, Self::Postgres];

    /// Name for the script and in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Duckdb => "duckdb",
            Self::DuckdbParquet => "duckdb-parquet",
            Self::Clickhouse => "clickhouse",
            Self::Questdb => "questdb",
            Self::Postgres => "postgres",
        }
    }

    fn dialect(self) -> Dialect {
        match self {
            Self::Duckdb | Self::DuckdbParquet => Dialect::DuckDb,
            Self::Clickhouse => Dialect::ClickHouse,
            Self::Questdb => Dialect::QuestDb,
            Self::Postgres => Dialect::Postgres,
        }
    }
}

/// How statements are put to a peer.
#[derive(Debug, Clone)]
pub struct Run<'a> {
    /// Directory of the data set.
    pub data: &'a Path,
    /// Directory for the peer's data and the virtual environment.
    pub scratch: &'a Path,
    /// Size of the data set.
    pub set: Set,
    /// Rounds of all statements after a warm one.
    pub runs: usize,
    /// Whether those with a lower bound of time are asked without it, too.
    pub unbounded: bool,
}

/// What a peer did.
#[derive(Debug, Default)]
pub struct PeerFigures {
    /// Its version.
    pub version: String,
    /// The load.
    pub load: Option<Load>,
    /// Milliseconds in the median and the result, by statement.
    pub statements: BTreeMap<String, (f64, Outcome)>,
    /// Statements that failed, with the reason.
    pub failed: BTreeMap<String, String>,
}

/// A load of the data set.
#[derive(Debug, Clone, Deserialize)]
pub struct Load {
    /// Rows acknowledged in a second.
    pub rows_per_second: f64,
    /// Milliseconds of a batch of 10,000 rows.
    pub batch_ms_p50: f64,
    /// See [`Self::batch_ms_p50`].
    pub batch_ms_p99: f64,
    /// Seconds until the data has its final form.
    pub settle_seconds: f64,
    /// Bytes on the disk after that.
    pub bytes_per_row: f64,
}

/// A line of the script.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Line {
    Load { load: Load },
    Version { version: String },
    Failed { statement: String, error: String },
    Measured { statement: String, ms: Milliseconds, outcome: Outcome },
}

#[derive(Debug, Deserialize)]
struct Milliseconds {
    median: f64,
}

/// Loads the data set into a peer and asks it the statements.
///
/// Errors: those of [`ask`].
pub fn measure(peer: Peer, run: &Run<'_>) -> Result<PeerFigures> {
    let asked = statements(run.set, peer.dialect(), run.unbounded)?;
    ask(peer.name(), run.data, run.scratch, run.runs, &asked)
}

/// Runs the script of a peer on a data set.
///
/// Errors: the script fails, for instance because the peer is not installed.
pub fn ask(
    peer: &str,
    data: &Path,
    scratch: &Path,
    runs: usize,
    statements: &[Statement],
) -> Result<PeerFigures> {
    let asked = statements
        .iter()
        .map(|asked| serde_json::json!({"name": asked.name, "text": asked.text, "key": asked.key}))
        .collect::<Vec<_>>();
    let plan = serde_json::json!({"runs": runs, "statements": asked});
    let script = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/peers/run.py"));
    let mut child = Command::new("python3")
        .arg(script)
        .args([peer, "--data"])
        .arg(data)
        .arg("--scratch")
        .arg(scratch)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("python3 is missing: apt-get install python3-venv")?;
    let mut stdin = child.stdin.take().context("no standard input")?;
    stdin.write_all(plan.to_string().as_bytes())?;
    drop(stdin);
    let mut figures = PeerFigures::default();
    for line in BufReader::new(child.stdout.take().context("no standard output")?).lines() {
        let line = line?;
        match serde_json::from_str(&line).with_context(|| format!("{}: `{line}`", peer))? {
            Line::Load { load } => figures.load = Some(load),
            Line::Version { version } => figures.version = version,
            Line::Failed { statement, error } => {
                figures.failed.insert(statement, error);
            }
            Line::Measured { statement, ms, outcome } => {
                figures.statements.insert(statement, (ms.median, outcome));
            }
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("{}: the script ended with {status}", peer);
    }
    Ok(figures)
}
