//! `tidemill backtest`: compares the output of changed queries with that of the deployed ones over stored
//! events.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use serde_json::{Map, Value as Json};
use tidemill::connectors;
use tidemill_engine::queries::comparison::{
    Comparison, HistoryEvent, HistoryTime, changed_rules, history_query,
};
use tidemill_engine::{Clock, SystemClock};

use crate::cli::ask::sql::Session;
use crate::cli::vars::VarArgs;
use crate::cli::{DataArgs, OutputFormat};

/// Runs the deployed queries and changed ones over stored events, and shows what comes out differently.
///
/// Events come in the order in which they were received, with a clock of their own that goes on to `--to`, or to now,
/// behind the last of them, so that what waits for time alone comes out as well. Nothing is written. Rules do not run:
/// what they emitted is part of the history, so an app with changed rules is refused. The exit code is 0 when nothing
/// differs, 1 when something does, and 2 when that cannot be told.
///
/// A TIME is RFC 3339, a date, or so long ago: 2026-01-01T10:00:00Z, 2026-01-01, -1h, "-2 days".
#[derive(clap::Args)]
#[command(
    after_help = "Examples:\n  tidemill backtest changed/flights --data data --from -1h\n  tidemill backtest changed/flights --data data --from 2026-01-01T00:00:00Z --to 2026-01-02T00:00:00Z"
)]
pub struct BacktestArgs {
    /// Directory of the changed app, or one *.siddhi or *.rules file.
    app: PathBuf,
    #[command(flatten)]
    data: DataArgs,
    /// Events received from then on.
    #[arg(long, value_name = "TIME", value_parser = time_arg, allow_hyphen_values = true)]
    from: Option<HistoryTime>,
    /// Events received before then. The clock stops there, but never later than now.
    #[arg(long, value_name = "TIME", value_parser = time_arg, allow_hyphen_values = true)]
    to: Option<HistoryTime>,
    /// How many events that differ are shown of each stream, on each side.
    #[arg(long, value_name = "N", default_value_t = 10)]
    show: usize,
    #[command(flatten)]
    vars: VarArgs,
}

/// Returns the time that an option says.
fn time_arg(text: &str) -> Result<HistoryTime, String> {
    HistoryTime::parse(text).map_err(|error| error.to_string())
}

/// Exit code when an app cannot be compared.
const UNDECIDED_EXIT_CODE: u8 = 2;

pub fn backtest(args: BacktestArgs) -> anyhow::Result<ExitCode> {
    let Some(deployed) = tidemill_engine::deployed_app(&args.data.data)? else {
        bail!("{}: no app is deployed in it", args.data.data.display());
    };
    let deployed = deployed.with_connectors(connectors());
    let changed = args.vars.read_app(&args.app)?;
    let rules = changed_rules(&deployed, &changed);
    if !rules.is_empty() {
        let have = if rules.len() == 1 { "has" } else { "have" };
        eprintln!(
            "error: backtest runs queries and no rules, and {} {have} changed. Compare the queries alone: keep the rules as \
             they are deployed",
            rules.join(", ")
        );
        return Ok(ExitCode::from(UNDECIDED_EXIT_CODE));
    }
    let comparison = Comparison::new(&deployed, &changed)?;
    let now = SystemClock.now();
    let (from, to) = (args.from.map(|t| t.before(now)), args.to.map(|t| t.before(now)));
    if let (Some(from), Some(to)) = (from, to)
        && from >= to
    {
        bail!("--from {from} is not before --to {to}");
    }
    let session = Session::open(&args.data)?;
    let known = stream_names(&session)?;
    let wanted = comparison.streams();
    let mut events = Vec::new();
    for stream in wanted.iter().filter(|s| known.contains(*s)) {
        let name = Arc::from(stream.as_str());
        for row in query_rows(&session, &history_query(stream, from, to))? {
            events.push(HistoryEvent::from_row(&name, row)?);
        }
    }
    println!("{} events of {}", events.len(), wanted.iter().cloned().collect::<Vec<_>>().join(", "));
    let differences = comparison.run(events, to.unwrap_or(now).min(now), usize::MAX)?;
    print!("{}", differences.text(args.show));
    Ok(if differences.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn query_rows(session: &Session, query: &str) -> anyhow::Result<Vec<Map<String, Json>>> {
    let mut text = Vec::new();
    session.run(query, OutputFormat::Ndjson, &mut text)?;
    let lines = text.split(|b| *b == b'\n').filter(|line| !line.trim_ascii().is_empty());
    lines.map(|line| serde_json::from_slice(line).context("a row of the result")).collect()
}

fn stream_names(session: &Session) -> anyhow::Result<BTreeSet<String>> {
    let rows = query_rows(session, "SELECT stream FROM system.streams")?;
    Ok(rows.iter().filter_map(|row| Some(row.get("stream")?.as_str()?.to_owned())).collect())
}
