//! The engine as the tools of MCP ask it.

use std::sync::Arc;

use serde_json::{Map, Value as Json, json};
use tidemill_engine::queries::comparison::{
    Comparison, HistoryEvent, HistoryTime, changed_rules, history_query,
};
use tidemill_engine::queries::explain;
use tidemill_engine::{App, AppFile, Engine, QueryInfo, RuleInfo, StreamInfo, compile};
use tidemill_mcp::{ChangedFile, McpEngine, NamedObject, PreparedBacktest};
use tidemill_types::{Error, Result, Timestamp};

/// An engine behind the tools of MCP.
pub struct McpOverEngine(pub Arc<Engine>);

impl McpOverEngine {
    /// Returns the deployed app with changed files.
    fn changed_app(&self, files: Vec<ChangedFile>) -> Result<App> {
        let files = files.into_iter().map(|ChangedFile { name, text }| AppFile { name, text });
        self.0.app().with_files(files.collect())
    }
}

impl McpEngine for McpOverEngine {
    fn streams(&self) -> Result<Vec<NamedObject>> {
        Ok(self.0.streams()?.iter().map(stream).collect())
    }

    fn rules(&self) -> Result<Vec<NamedObject>> {
        Ok(self.0.rules()?.iter().map(rule).collect())
    }

    fn queries(&self) -> Result<Vec<NamedObject>> {
        Ok(self.0.queries()?.iter().map(query).collect())
    }

    fn why_rule(&self, rule: Option<&str>, event: &str) -> Result<String> {
        Ok(texts(&self.0.why(rule, &event.parse()?)?))
    }

    fn why_query(&self, file: Option<&str>, query: &str, key: Option<&str>) -> Result<String> {
        Ok(texts(&self.0.why_query(file, query, key)?))
    }

    fn explain(&self, files: Vec<ChangedFile>) -> Result<String> {
        let app = self.changed_app(files)?;
        Ok(explain::explain(&compile(&app)?.queries, app.settings.partitions))
    }

    fn backtest(
        &self,
        files: Vec<ChangedFile>,
        from: Option<&str>,
        to: Option<&str>,
    ) -> Result<Box<dyn PreparedBacktest>> {
        let (deployed, changed, now) = (self.0.app(), self.changed_app(files)?, self.0.now());
        let rules = changed_rules(deployed, &changed);
        if !rules.is_empty() {
            return Err(Error::invalid(format!(
                "a backtest runs queries and no rules, and these have changed: {}. Send the rules as they are deployed",
                rules.join(", ")
            )));
        }
        let time = |text: Option<&str>| {
            text.map(|text| HistoryTime::parse(text).map(|time| time.before(now))).transpose()
        };
        let (from, to) = (time(from)?, time(to)?);
        if let (Some(from), Some(to)) = (from, to)
            && from >= to
        {
            return Err(Error::invalid(format!("from = {from} is not before to = {to}")));
        }
        let comparison = Comparison::new(deployed, &changed)?;
        let known = self.0.stream_names();
        let history = comparison.streams().into_iter().filter(|stream| known.contains(stream));
        let history = history.map(|stream| (history_query(&stream, from, to), stream));
        let history: Vec<(String, String)> = history.map(|(query, stream)| (stream, query)).collect();
        let end = to.unwrap_or(now).min(now);
        Ok(Box::new(EngineBacktest { comparison, history, end, events: vec![] }))
    }
}

/// A backtest of queries of the engine.
struct EngineBacktest {
    comparison: Comparison,
    history: Vec<(String, String)>,
    end: Timestamp,
    events: Vec<HistoryEvent>,
}

impl PreparedBacktest for EngineBacktest {
    fn history(&self) -> Vec<(String, String)> {
        self.history.clone()
    }

    fn add(&mut self, stream: &str, row: Map<String, Json>) -> Result<()> {
        self.events.push(HistoryEvent::from_row(&stream.into(), row)?);
        Ok(())
    }

    fn run(self: Box<Self>, show: usize, output_max: usize) -> Result<String> {
        let streams: Vec<String> = self.comparison.streams().into_iter().collect();
        let head = format!("{} events of {}\n", self.events.len(), streams.join(", "));
        let differences = self.comparison.run(self.events, self.end, output_max)?;
        let verdict = if differences.is_empty() { "Nothing differs.\n" } else { "" };
        Ok(format!("{head}{}{verdict}", differences.text(show)))
    }
}

fn texts<T: ToString>(explanations: &[T]) -> String {
    let texts: Vec<String> = explanations.iter().map(ToString::to_string).collect();
    texts.join("\n")
}

fn stream(info: &StreamInfo) -> NamedObject {
    let schema = &info.schema;
    let name_of = |index: usize| schema.fields.get(index).map(|field| field.name.clone());
    let fields: Map<String, Json> =
        info.fields().map(|(name, ty)| (name.to_owned(), Json::from(ty))).collect();
    let description = json!({
        "name": schema.name,
        "table": format!("events.\"{}\"", schema.name.replace('"', "\"\"")),
        "fields": fields,
        "key": schema.key.and_then(name_of),
        "id": schema.id.iter().filter_map(|index| name_of(*index)).collect::<Vec<_>>(),
        "time": schema.time.and_then(name_of),
        "stored": info.ledger.stored,
        "rejected": info.ledger.rejected,
    });
    NamedObject { name: schema.name.clone(), description }
}

fn rule(info: &RuleInfo) -> NamedObject {
    let RuleInfo { name, kind, source, priority, fired, errors, last_error } = info;
    let description = json!({
        "rule": name, "kind": kind, "source": source, "priority": priority, "fired": fired, "errors": errors,
        "last_error": last_error,
    });
    NamedObject { name: name.clone(), description }
}

fn query(info: &QueryInfo) -> NamedObject {
    let QueryInfo { file, name, runs, keeps, emitted, errors, lost, last_error, .. } = info;
    let description = json!({
        "query": name, "file": file, "runs": runs, "keeps": keeps, "emitted": emitted, "errors": errors, "lost": lost,
        "last_error": last_error,
    });
    NamedObject { name: name.clone(), description }
}
