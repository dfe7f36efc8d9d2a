//! Why a query puts nothing out, in each partition where it runs.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidemill_flow::explain::QueryReport;
use tidemill_types::{Error, ErrorKind, PartitionId, Result, did_you_mean};

use super::Engine;
use crate::queries::{QueryFile, UnitName};

/// Why a query puts nothing out, in one partition of the log.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct QueryWhy {
    /// Its file.
    pub file: String,
    /// The partition.
    pub partition: u32,
    /// The store that the partition waits for, as a sentence: there is no report until it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Report on what came to it there since the engine started, what it holds, and what it waits for.
    #[serde(flatten)]
    pub report: QueryReport,
}

impl fmt::Display for QueryWhy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, partition {}: ", self.file, self.partition)?;
        match &self.waits_for {
            None => self.report.fmt(f),
            Some(reason) => write!(f, "`{}` emits nothing now: {reason}", self.report.query),
        }
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
        let unit = UnitName { file: file.name.clone(), partitioned: everywhere };
        let queries = &node.app.deployment.queries;
        let number = queries.unit(&unit)?;
        self.catch_up_others()?;
        let (mut found, mut missing) = (Vec::new(), None);
        let why = |partition: PartitionId, report, waits_for| QueryWhy {
            file: file.name.clone(),
            partition: partition.0,
            waits_for,
            report,
        };
        for id in node.host.partition_ids().filter(|id| queries.runs_in(number, *id)) {
            let partition = node.client(id)?;
            match partition.catch_up().and_then(|()| partition.explain_query(&unit, query, key)) {
                Ok(None) => {}
                Ok(Some(report)) => found.push(why(id, report, None)),
                Err(e) if e.kind() == ErrorKind::Unavailable => match partition.waits_for_store()? {
                    None => return Err(e),
                    Some(reason) => {
                        let report = QueryReport { query: query.to_owned(), ..QueryReport::default() };
                        found.push(why(id, report, Some(reason)));
                    }
                },
                // the key may live in another partition
                Err(e) if e.kind() == ErrorKind::NotFound => missing = Some(e),
                Err(e) => return Err(e),
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
