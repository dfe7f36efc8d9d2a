//! Output of changed queries beside that of the deployed ones, over the same stored events.
//!
//! ```text
//! Comparison::new(deployed, changed) ─▶ streams(): whose events are read by history_query
//! HistoryEvent::from_row(row) … ─▶ run(events, end) ─▶ Differences
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Map, Value as Json};
use tidemill_lang::rules::ast::{Item, Module};
use tidemill_lang::{FileId, SourceFile, rules};
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{Duration, Error, FieldType, Result, StreamSchema, Timestamp, budget};

use super::backtest::{Backtest, BacktestEvent};
use super::compile::{CompiledApp, compile_app_for};
use crate::app::App;
use crate::directory::partitioning::Partitioning;

/// Stored event, with its position in the order of arrival.
pub struct HistoryEvent {
    /// Time of reception, partition, offset, row.
    position: (Timestamp, i64, i64, i64),
    time: Timestamp,
    stream: Arc<str>,
    fields: Map<String, Json>,
}

/// Time as users write it: RFC 3339, a date, or so long ago (`-1h`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HistoryTime {
    /// This time.
    At(Timestamp),
    /// So long before now.
    Ago(Duration),
}

impl HistoryTime {
    /// Reads a time.
    ///
    /// Errors: `Invalid` for another text.
    pub fn parse(text: &str) -> Result<Self> {
        let parsed = match text.strip_prefix('-') {
            Some(ago) => Duration::parse(ago).map(Self::Ago),
            None => Timestamp::parse(text).map(Self::At),
        };
        parsed.map_err(|_| {
            Error::invalid(format!(
                "`{text}` is not a time: expected RFC 3339, for example 2013-01-01T10:17:00Z, or how long ago, for example -1h"
            ))
        })
    }

    /// Returns the time, where it is so long ago, before `now`.
    pub fn before(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(time) => time,
            Self::Ago(ago) => Timestamp(now.0.saturating_sub(ago.0)),
        }
    }
}

/// Two apps whose queries are compared.
pub struct Comparison {
    before: CompiledApp,
    after: CompiledApp,
}

/// Events that came out of the queries of either app, by stream.
pub struct Differences {
    /// By time and event: how many times more it came out before than after.
    counts: BTreeMap<String, BTreeMap<(i64, String), i64>>,
    both: BTreeMap<String, u64>,
}

/// Returns the query for the events of a stream that were received from `from` on and before `to`.
pub fn history_query(stream: &str, from: Option<Timestamp>, to: Option<Timestamp>) -> String {
    let bound = |op: &str, time: Option<Timestamp>| {
        time.map(|t| format!("_received {op} arrow_cast({}, 'Timestamp(Microsecond, Some(\"UTC\"))')", t.0))
    };
    let bounds: Vec<String> = [bound(">=", from), bound("<", to)].into_iter().flatten().collect();
    let condition =
        if bounds.is_empty() { String::new() } else { format!(" WHERE {}", bounds.join(" AND ")) };
    format!("SELECT * FROM events.\"{}\"{condition}", stream.replace('"', "\"\""))
}

impl HistoryEvent {
    /// Reads a row of the result of [`history_query`].
    ///
    /// Errors: `Invalid` for a row without readable times.
    pub fn from_row(stream: &Arc<str>, mut fields: Map<String, Json>) -> Result<Self> {
        let time = |fields: &Map<String, Json>, name: &str| {
            Timestamp::parse(fields.get(name).and_then(Json::as_str).unwrap_or_default())
        };
        let number = |name: &str| fields.get(name).and_then(Json::as_i64).unwrap_or_default();
        let position = (time(&fields, "_received")?, number("_partition"), number("_offset"), number("_row"));
        let time = time(&fields, "_time")?;
        fields.retain(|name, value| !name.starts_with('_') && !value.is_null());
        Ok(Self { position, time, stream: stream.clone(), fields })
    }
}

impl Comparison {
    /// Compiles the queries of both apps.
    ///
    /// Errors: those of the queries.
    pub fn new(deployed: &App, changed: &App) -> Result<Self> {
        Ok(Self {
            before: compile_app_for(deployed, Partitioning::new(1))?,
            after: compile_app_for(changed, Partitioning::new(1))?,
        })
    }

    /// Returns the streams whose events the queries need.
    pub fn streams(&self) -> BTreeSet<String> {
        let all = [&self.before, &self.after];
        let names = all.into_iter().flat_map(|compiled| {
            let streams = compiled.program.streams();
            Backtest::new(compiled).input_streams().into_iter().map(|index| streams[index].name.clone())
        });
        names.collect()
    }

    /// Runs the queries of both over the events until the clock reaches `end`.
    ///
    /// Bounds: `output_max` events come out on each side.
    /// Errors: `LimitReached` for more; those of the budget of the thread.
    pub fn run(
        &self,
        mut events: Vec<HistoryEvent>,
        end: Timestamp,
        output_max: usize,
    ) -> Result<Differences> {
        events.sort_by_key(|event| event.position);
        let mut differences = Differences { counts: BTreeMap::new(), both: BTreeMap::new() };
        for out in run(&self.before, &events, end, output_max)? {
            let counts = differences.counts.entry(out.stream).or_default();
            *counts.entry((out.time, out.event)).or_default() += 1;
        }
        for out in run(&self.after, &events, end, output_max)? {
            let counts = differences.counts.entry(out.stream.clone()).or_default();
            let count = counts.entry((out.time, out.event)).or_default();
            if *count > 0 {
                *differences.both.entry(out.stream).or_default() += 1;
            }
            *count -= 1;
        }
        Ok(differences)
    }
}

impl Differences {
    /// Returns whether both emitted the same.
    pub fn is_empty(&self) -> bool {
        self.counts.values().flat_map(BTreeMap::values).all(|count| *count == 0)
    }

    /// Returns by stream how many events are on both sides and on one only, and of those at most `most` of each side.
    pub fn text(&self, most: usize) -> String {
        let mut text = String::new();
        for (stream, events) in &self.counts {
            let only = |sign: i64| events.values().map(|n| (n * sign).max(0)).sum::<i64>();
            let both = self.both.get(stream).unwrap_or(&0);
            let _ =
                writeln!(text, "{stream}: {both} in both, {} only in old, {} only in new", only(1), only(-1));
            for (sign, mark) in [(1, '-'), (-1, '+')] {
                let own = events.iter().filter(|(_, n)| *n * sign > 0);
                for ((time, event), n) in own.take(most) {
                    let times = if n.abs() > 1 { format!(" ({} times)", n.abs()) } else { String::new() };
                    let time = Timestamp(time.saturating_mul(1000));
                    let _ = writeln!(text, "  {mark} {time} {event}{times}");
                }
            }
        }
        text
    }
}

/// Returns the rules, and the declarations of entities and relations for rules, that differ between two apps: changed, added
/// and removed ones.
pub fn changed_rules(before: &App, after: &App) -> Vec<String> {
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

/// Returns the output of an app's queries until the clock reaches `end`.
fn run(
    compiled: &CompiledApp,
    events: &[HistoryEvent],
    end: Timestamp,
    output_max: usize,
) -> Result<Vec<BacktestEvent>> {
    let mut backtest = Backtest::new(compiled);
    let reads = backtest.input_streams();
    let streams = compiled.program.streams();
    let mut out = Vec::new();
    let mut take = |backtest: &mut Backtest<'_>| {
        budget::step()?;
        out.append(&mut backtest.take_events());
        match out.len() > output_max {
            true => Err(Error::limit(format!(
                "more than {output_max} events come out of the queries: choose a shorter time"
            ))),
            false => Ok(()),
        }
    };
    let mut builders: BTreeMap<usize, BatchBuilder> =
        reads.iter().map(|i| (*i, BatchBuilder::new(streams[*i].clone()))).collect();
    for event in events {
        let Some(stream) = compiled.program.stream_index(&event.stream) else { continue };
        let Some(builder) = builders.get_mut(&stream) else { continue };
        let json = serde_json::to_vec(&declared_fields(&event.fields, &streams[stream]))
            .map_err(|e| Error::internal("an event cannot be written as JSON").with_source(e))?;
        builder.push_json(&json, event.time)?;
        backtest.event(stream, &builder.finish(), event.time, event.position.0)?;
        take(&mut backtest)?;
    }
    if !events.is_empty() {
        backtest.advance(end)?;
        take(&mut backtest)?;
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
