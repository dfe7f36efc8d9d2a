//! Why a query puts nothing out, in each partition where it runs.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidemill_flow::explain::QueryReport;
use tidemill_types::{Error, ErrorKind, Result, did_you_mean};

use super::Engine;
use crate::queries::{QueryFile, Unit};

/// Why a query puts nothing out, in one partition of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryWhy {
    /// Its file.
    pub file: String,
    /// The partition.
    pub partition: u32,
    /// Report on what came to it there since the engine started, what it holds, and what it waits for.
    #[serde(flatten)]
    pub report: QueryReport,
}

impl fmt::Display for QueryWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, partition {}: {}", self.file, self.partition, self.report)
    }
}

impl Engine {
    /// Explains why a query emits nothing: for each partition where it runs, or with `key` for the one that
    /// has the key of `partition with`. `file` names the file, needed where several have a query of that
    /// name.
    ///
    /// Errors: `NotFound` for an unknown query or key, `Invalid` when several files have a query of that
    /// name, or a key is named and the query stands in no partition.
    pub fn why_query(&self, file: Option<&str>, query: &str, key: Option<&str>) -> Result<Vec<QueryWhy>> {
        let node = &self.node;
        let (file, everywhere) = self.find_query(file, query)?;
        let queries = &node.app.deployment.queries;
        let is_it =
            |unit: &&Unit| queries.files[unit.file].name == file.name && unit.partitioned == everywhere;
        let unit = queries.units.iter().position(|unit| is_it(&unit));
        let unit = unit.ok_or_else(|| Error::internal(format!("`{query}` runs in no unit")))?;
        self.catch_up()?;
        let (mut found, mut missing) = (Vec::new(), None);
        for partition in node.owned.all() {
            let state = partition.state.read();
            match state.read_queries(|flow| flow.why(unit, query, key)) {
                None => {}
                Some(Ok(report)) => {
                    found.push(QueryWhy { file: file.name.clone(), partition: partition.id.0, report });
                }
                // the key may live in another partition
                Some(Err(e)) if e.kind() == ErrorKind::NotFound => missing = Some(e),
                Some(Err(e)) => return Err(e),
            }
        }
        match missing.filter(|_| found.is_empty()) {
            Some(e) => Err(e),
            None => Ok(found),
        }
    }

    /// The file of a query, and whether it runs in every partition.
    fn find_query(&self, file: Option<&str>, query: &str) -> Result<(&QueryFile, bool)> {
        let node = &self.node;
        let files =
            node.app.deployment.queries.files.iter().filter(|f| file.is_none_or(|name| f.name == name));
        let files: Vec<&QueryFile> = files.collect();
        if let Some(name) = file.filter(|_| files.is_empty()) {
            let known = node.app.deployment.queries.files.iter().map(|f| f.name.as_str());
            return Err(Error::not_found(format!("no file `{name}`")).with_hint(did_you_mean(name, known)));
        }
        let names = |file: &QueryFile| -> Vec<(String, bool)> {
            let placed = file.placements.iter();
            placed.flat_map(|p| p.queries.iter().map(|(name, _)| (name.clone(), p.partitioned))).collect()
        };
        let all: Vec<(&QueryFile, String, bool)> = files
            .iter()
            .flat_map(|file| names(file).into_iter().map(|(name, everywhere)| (*file, name, everywhere)))
            .collect();
        let found: Vec<&(&QueryFile, String, bool)> =
            all.iter().filter(|(_, name, _)| name == query).collect();
        match found.as_slice() {
            [(file, _, everywhere)] => Ok((file, *everywhere)),
            [] if node.app.deployment.program.rules().iter().any(|rule| rule.name == query) => {
                Err(Error::invalid(format!(
                    "`{query}` is a rule: say for which event, with --event (`event` over HTTP)"
                )))
            }
            [] => {
                let hint = did_you_mean(query, all.iter().map(|(_, name, _)| name.as_str()));
                Err(Error::not_found(format!("no query `{query}`")).with_hint(hint))
            }
            several => {
                let files: Vec<&str> = several.iter().map(|(file, ..)| file.name.as_str()).collect();
                Err(Error::invalid(format!(
                    "`{query}` is in several files: name one of {} with --app (`app` over HTTP)",
                    files.join(", ")
                )))
            }
        }
    }
}
