//! `tidemill backtest`: compares the output of changed queries with that of the deployed ones over stored
//! events.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use serde_json::{Map, Value as Json};
use tidemill::connectors;
use tidemill_engine::queries::backtest::{Backtest, BacktestEvent};
use tidemill_engine::{App, Clock, CompiledApp, Partitioning, SystemClock, compile_for};
use tidemill_lang::rules::ast::{Item, Module};
use tidemill_lang::{FileId, SourceFile, rules};
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{Duration, FieldType, StreamSchema, Timestamp};

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
    #[arg(long, value_name = "TIME", value_parser = TimeArg::parse, allow_hyphen_values = true)]
    from: Option<TimeArg>,
    /// Events received before then. The clock stops there, but never later than now.
    #[arg(long, value_name = "TIME", value_parser = TimeArg::parse, allow_hyphen_values = true)]
    to: Option<TimeArg>,
    /// How many events that differ are shown of each stream, on each side.
    #[arg(long, value_name = "N", default_value_t = 10)]
    show: usize,
    #[command(flatten)]
    vars: VarArgs,
}

/// Time given as an option.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TimeArg {
    At(Timestamp),
    Ago(Duration),
}

impl TimeArg {
    fn parse(text: &str) -> Result<Self, String> {
        let parsed = match text.strip_prefix('-') {
            Some(ago) => Duration::parse(ago).map(Self::Ago),
            None => Timestamp::parse(text).map(Self::At),
        };
        parsed.map_err(|_| {
            format!("`{text}` is not a time: expected RFC 3339, for example 2013-01-01T10:17:00Z, or how long ago, for example -1h")
        })
    }

    fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(ago) => Timestamp(now.0.saturating_sub(ago.0)),
        }
    }
}

/// Exit code when an app cannot be compared.
const UNDECIDED_EXIT_CODE: u8 = 2;

/// Stored event, with its position in the order of arrival.
struct StoredEvent {
    position: (Timestamp, i64, i64, i64),
    time: Timestamp,
    stream: Arc<str>,
    fields: Map<String, Json>,
}

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
    let (before, after) =
        (compile_for(&deployed, Partitioning::new(1))?, compile_for(&changed, Partitioning::new(1))?);
    let now = SystemClock.now();
    let (from, to) = (args.from.map(|t| t.before(now)), args.to.map(|t| t.before(now)));
    if let (Some(from), Some(to)) = (from, to)
        && from >= to
    {
        bail!("--from {from} is not before --to {to}");
    }
    let session = Session::open(&args.data)?;
    let known = stream_names(&session)?;
    let mut wanted = BTreeSet::new();
    for compiled in [&before, &after] {
        for stream in Backtest::new(compiled).input_streams() {
            wanted.insert(compiled.program.streams()[stream].name.clone());
        }
    }
    let mut events = Vec::new();
    for stream in wanted.iter().filter(|s| known.contains(*s)) {
        history(&session, stream, from, to, &mut events)?;
    }
    events.sort_by_key(|e: &StoredEvent| e.position);
    println!("{} events of {}", events.len(), wanted.iter().cloned().collect::<Vec<_>>().join(", "));
    let end = to.unwrap_or(now).min(now);
    let different = print_differences(&run(&before, &events, end)?, &run(&after, &events, end)?, args.show);
    Ok(if different { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Returns the rules, and the declarations of entities and relations for rules, that differ between two apps: changed, added
/// and removed ones.
fn changed_rules(before: &App, after: &App) -> Vec<String> {
    let [before, after] = [before, after].map(declarations_for_rules);
    let names: BTreeSet<&(&str, String)> = before.keys().chain(after.keys()).collect();
    let changed = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    changed.map(|(kind, name)| format!("{kind} {name}")).collect()
}

/// Returns what rules files declare besides events, by kind and name, without comments and line ends.
fn declarations_for_rules(app: &App) -> BTreeMap<(&'static str, String), Vec<String>> {
    let mut declared = BTreeMap::<_, Vec<String>>::new();
    for file in &app.rules {
        let parsed = rules::parse(&SourceFile::new(FileId(0), &file.name, &file.text));
        for item in parsed.module.items {
            let kind = match &item {
                Item::Event(_) => continue,
                Item::Rule(_) | Item::Aggregate(_) => "rule",
                Item::Entity(_) => "entity",
                Item::Relation(_) => "relation",
            };
            let name = item.name().name.clone();
            let text = rules::structural_text(&Module { items: vec![item] });
            declared.entry((kind, name)).or_default().push(text);
        }
    }
    declared
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

/// Appends the stored events of a stream to `events`.
fn history(
    session: &Session,
    stream: &str,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    events: &mut Vec<StoredEvent>,
) -> anyhow::Result<()> {
    let bound = |op: &str, time: Option<Timestamp>| {
        time.map(|t| format!("_received {op} arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')", t.0))
    };
    let bounds: Vec<String> = [bound(">=", from), bound("<", to)].into_iter().flatten().collect();
    let condition =
        if bounds.is_empty() { String::new() } else { format!(" WHERE {}", bounds.join(" AND ")) };
    let quoted = stream.replace('"', "\"\"");
    let name: Arc<str> = stream.into();
    for mut fields in query_rows(session, &format!("SELECT * FROM events.\"{quoted}\"{condition}"))? {
        let time = |fields: &Map<String, Json>, name: &str| -> anyhow::Result<Timestamp> {
            let text = fields.get(name).and_then(Json::as_str).unwrap_or_default();
            Ok(Timestamp::parse(text)?)
        };
        let number = |name: &str| fields.get(name).and_then(Json::as_i64).unwrap_or_default();
        let at = (time(&fields, "_received")?, number("_partition"), number("_offset"), number("_row"));
        let time = time(&fields, "_time")?;
        fields.retain(|name, value| !name.starts_with('_') && !value.is_null());
        events.push(StoredEvent { position: at, time, stream: name.clone(), fields });
    }
    Ok(())
}

/// Returns the output of an app's queries until the clock reaches `end`.
fn run(compiled: &CompiledApp, events: &[StoredEvent], end: Timestamp) -> anyhow::Result<Vec<BacktestEvent>> {
    let mut backtest = Backtest::new(compiled);
    let reads = backtest.input_streams();
    let streams = compiled.program.streams();
    let mut out = Vec::new();
    let mut builders: BTreeMap<usize, BatchBuilder> =
        reads.iter().map(|i| (*i, BatchBuilder::new(streams[*i].clone()))).collect();
    for event in events {
        let Some(stream) = compiled.program.stream_index(&event.stream) else { continue };
        let Some(builder) = builders.get_mut(&stream) else { continue };
        let json = serde_json::to_vec(&declared_fields(&event.fields, &streams[stream]))?;
        builder.push_json(&json, event.time)?;
        backtest.event(stream, &builder.finish(), event.time, event.position.0)?;
        out.append(&mut backtest.take_events());
    }
    if !events.is_empty() {
        backtest.advance(end)?;
        out.append(&mut backtest.take_events());
    }
    Ok(out)
}

/// Returns the fields of an event that the stream declares. Objects are stored as JSON strings and parsed
/// here.
fn declared_fields(stored: &Map<String, Json>, schema: &StreamSchema) -> Map<String, Json> {
    let declared = schema.fields.iter().filter_map(|field| {
        let value = stored.get(&field.name)?;
        let value = match (field.ty, value) {
            (FieldType::Object, Json::String(text)) => serde_json::from_str(text).unwrap_or(Json::Null),
            _ => value.clone(),
        };
        Some((field.name.clone(), value))
    });
    declared.collect()
}

/// Prints by stream the events that are on one side only. Returns whether there are any.
fn print_differences(before: &[BacktestEvent], after: &[BacktestEvent], most: usize) -> bool {
    let mut counts: BTreeMap<&str, BTreeMap<(i64, &str), i64>> = BTreeMap::new();
    let mut both: BTreeMap<&str, u64> = BTreeMap::new();
    for put in before {
        *counts.entry(&put.stream).or_default().entry((put.time, &put.event)).or_default() += 1;
    }
    for put in after {
        let count = counts.entry(&put.stream).or_default().entry((put.time, &put.event)).or_default();
        if *count > 0 {
            *both.entry(&put.stream).or_default() += 1;
        }
        *count -= 1;
    }
    let mut different = false;
    for (stream, events) in &counts {
        let only = |sign: i64| events.values().map(|n| (n * sign).max(0)).sum::<i64>();
        let (old, new) = (only(1), only(-1));
        different |= old + new > 0;
        println!(
            "{stream}: {} in both, {old} only in old, {new} only in new",
            both.get(stream).unwrap_or(&0)
        );
        for (sign, mark) in [(1, '-'), (-1, '+')] {
            let own = events.iter().filter(|(_, n)| *n * sign > 0);
            for ((time, event), n) in own.take(most) {
                let times = if n.abs() > 1 { format!(" ({} times)", n.abs()) } else { String::new() };
                println!("  {mark} {} {event}{times}", Timestamp(time.saturating_mul(1000)));
            }
        }
    }
    different
}
