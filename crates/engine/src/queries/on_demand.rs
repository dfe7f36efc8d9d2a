//! Queries as callers of the engine see them.

use tidemill_flow::functions::json_text::to_json;
use tidemill_lang::siddhi::ast::{OnDemandQuery, OutputAction};
use tidemill_lang::{FileId, SourceFile, Sources, render_all, siddhi};
use tidemill_types::{Error, PartitionId, Result};

use super::{GLOBAL_PARTITION, Queries};
use crate::core::Core;
use crate::engine::Engine;
use crate::entry::Entry;

/// A query and what it did, over all partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryInfo {
    /// Its file.
    pub file: String,
    /// Its name.
    pub name: String,
    /// `every partition` or `partition 0`.
    pub runs: String,
    /// Why.
    pub why: String,
    /// Its group.
    pub group: Option<String>,
    /// What it keeps between events; empty for nothing.
    pub keeps: String,
    /// Events that it put out.
    pub emitted: u64,
    /// Calls that it could not work off.
    pub errors: u64,
    /// Of these calls those whose events no fault stream took.
    pub lost: u64,
    /// Why not, the latest of them.
    pub last_error: Option<String>,
}

/// The rows that an on-demand query found: the values of each in order.
pub type OnDemandRows = Vec<Vec<serde_json::Value>>;

impl Engine {
    /// All queries in order of files and text.
    pub fn queries(&self) -> Vec<QueryInfo> {
        queries(&self.core)
    }
}

/// See [`Engine::queries`].
pub(crate) fn queries(core: &Core) -> Vec<QueryInfo> {
    let mut all = Vec::new();
    for file in &core.queries.files {
        for (placed, (name, facts)) in
            file.placements.iter().flat_map(|p| p.queries.iter().map(move |q| (p, q)))
        {
            let mut info = QueryInfo {
                file: file.name.clone(),
                name: name.clone(),
                runs: if placed.partitioned {
                    "every partition".into()
                } else {
                    format!("partition {GLOBAL_PARTITION}")
                },
                why: placed.reason.clone(),
                group: placed.group.clone(),
                keeps: facts.retained_state.join(", "),
                emitted: 0,
                errors: 0,
                lost: 0,
                last_error: None,
            };
            for partition in core.partitions() {
                partition.state.read().query_state.with_runtimes(|flow| {
                    if let Some(counts) = flow.counts.get(&file.name).and_then(|f| f.get(name)) {
                        info.emitted += counts.emitted;
                        info.errors += counts.errors;
                        info.lost += counts.errors - counts.kept;
                        info.last_error = info.last_error.take().or_else(|| counts.last_error.clone());
                    }
                });
            }
            all.push(info);
        }
    }
    all
}

impl Engine {
    /// Runs an on-demand query over tables, named windows and aggregations. `file`: the app that has them; it can be left
    /// out where only one has. Everything that was acknowledged before is seen, but for events that are still on their way from
    /// other partitions.
    ///
    /// Errors: `Invalid` when the query cannot be read or run, `NotFound` when no file has what it reads.
    pub fn query_on_demand(&self, file: Option<&str>, text: &str) -> Result<OnDemandRows> {
        let query = parse_on_demand(text)?;
        let unit = find_unit(&self.core.queries, file, &query)?;
        let unit_file = &self.core.queries.files[self.core.queries.units[unit].file].name;
        if let OnDemandQuery::Change(_) = query {
            let entry = Entry::OnDemand { file: unit_file.clone(), text: text.to_owned() };
            self.core.write_and_wait(vec![(PartitionId(GLOBAL_PARTITION), entry)], None)?;
            return Ok(OnDemandRows::new());
        }
        self.catch_up()?;
        let state = self.core.partitions()[GLOBAL_PARTITION as usize].state.read();
        let found = state.query_state.with_runtimes(|flow| flow.on_demand(unit, text))?;
        let row = |i: usize| found.columns.iter().map(|c| to_json(&c.get(i))).collect();
        Ok((0..found.len()).map(row).collect())
    }
}

fn parse_on_demand(text: &str) -> Result<OnDemandQuery> {
    let file = SourceFile::new(FileId(0), "query", text);
    siddhi::parse_on_demand(&file).map_err(|wrong| {
        let mut sources = Sources::default();
        sources.add("query", text);
        Error::invalid(render_all(&wrong, &sources))
    })
}

/// The unit that has what a query reads or changes.
fn find_unit(queries: &Queries, file: Option<&str>, query: &OnDemandQuery) -> Result<usize> {
    if let Some(file) = file {
        return queries.global_unit(file);
    }
    let store = match query {
        OnDemandQuery::Find(find) => &find.store.name,
        OnDemandQuery::Change(change) => match &change.output.action {
            OutputAction::Insert { target } => &target.name.name,
            OutputAction::Delete { table, .. }
            | OutputAction::Update { table, .. }
            | OutputAction::UpdateOrInsert { table, .. } => &table.name,
            OutputAction::Return => return Err(Error::invalid("`return` changes nothing")),
        },
    };
    let has = queries.units.iter().enumerate().filter(|(_, unit)| {
        !unit.partitioned && queries.files[unit.file].stores.iter().any(|name| name == store)
    });
    let has: Vec<usize> = has.map(|(number, _)| number).collect();
    match has.as_slice() {
        [one] => Ok(*one),
        [] => Err(Error::not_found(format!(
            "no table, window or aggregation `{store}`{}",
            tidemill_types::did_you_mean(
                store,
                queries.files.iter().flat_map(|f| &f.stores).map(String::as_str)
            )
        ))),
        _ => {
            let files = has.iter().map(|unit| queries.files[queries.units[*unit].file].name.as_str());
            Err(Error::invalid(format!(
                "`{store}` is in several files: name one of {}",
                files.collect::<Vec<_>>().join(", ")
            )))
        }
    }
}
