//! Queries of a deployment and what they did, over all partitions.

use crate::core::Core;
use crate::queries::GLOBAL_PARTITION;

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

/// Returns all queries in order of files and text.
pub fn queries(core: &Core) -> Vec<QueryInfo> {
    let mut all = Vec::new();
    for file in &core.deployment.queries.files {
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
                partition.counters.with(|_, queries| {
                    if let Some(counts) = queries.get(&file.name).and_then(|f| f.get(name)) {
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

/// Reports queries that lose events because they fail and no fault stream takes the events.
pub fn report_lossy_queries(core: &Core) {
    let losing: Vec<String> = queries(core)
        .into_iter()
        .filter(|query| query.lost > 0)
        .map(|query| format!("`{}` of {}", query.name, query.file))
        .collect();
    if !losing.is_empty() {
        let problem =
            format!("events are lost in {}; system.queries shows how many and why", losing.join(", "));
        core.health.report_problem("queries", problem);
    }
}
