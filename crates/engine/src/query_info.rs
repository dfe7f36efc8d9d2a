//! Queries of a deployment and what they did, over all partitions; reports of those and of rules that fail.

use std::collections::BTreeMap;

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

/// Reports rules that fail. Each is logged once; [`rule_problems`] counts.
fn report_failing_rules(core: &Core) {
    for (rule, counts) in failing_rules(core) {
        if core.failing_rules.lock().insert(rule.clone()) {
            let error = counts.last_error.unwrap_or_default();
            tracing::error!(rule, "the rule fails: {error}; system.rules has the count and the last error");
        }
    }
}

/// Returns the problems of rules, one for each rule with the number of its failures.
pub fn rule_problems(core: &Core) -> Vec<String> {
    let problem = |(rule, counts): (String, RuleFailures)| {
        let times = if counts.errors == 1 { "once".to_owned() } else { format!("{} times", counts.errors) };
        format!("rules: `{rule}` failed {times}, last: {}", counts.last_error.unwrap_or_default())
    };
    failing_rules(core).into_iter().map(problem).collect()
}

/// Failures of a rule, over all partitions.
#[derive(Default)]
struct RuleFailures {
    errors: u64,
    last_error: Option<String>,
}

fn failing_rules(core: &Core) -> BTreeMap<String, RuleFailures> {
    let mut failing = BTreeMap::<String, RuleFailures>::new();
    for rule in core.deployment.program.rules() {
        for partition in core.partitions() {
            partition.counters.with(|counters, _| {
                if let Some(counts) = counters.rule(&rule.name).filter(|counts| counts.errors > 0) {
                    let failures = failing.entry(rule.name.clone()).or_default();
                    failures.errors += counts.errors;
                    failures.last_error = counts.last_error.clone().or(failures.last_error.take());
                }
            });
        }
    }
    for (name, counts) in &*core.aggregates.lock() {
        if counts.errors > 0 {
            let last_error = counts.last_error.clone();
            failing.insert(name.clone(), RuleFailures { errors: counts.errors, last_error });
        }
    }
    failing
}

/// Reports queries and rules that fail.
pub fn report_failures(core: &Core) {
    report_lossy_queries(core);
    report_failing_rules(core);
}

/// Reports queries that lose events because they fail and no fault stream takes the events.
fn report_lossy_queries(core: &Core) {
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
