//! Queries of a deployment and what they did, over all partitions; reports of those and of rules that fail.

use std::collections::BTreeMap;

use tidemill_rules::Counters;
use tidemill_types::Result;

use crate::node::Node;
use crate::queries::runtime::QueryCountsByFile;

/// A query and what it did, over all partitions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryInfo {
    /// Its file.
    pub file: String,
    /// Its name.
    pub name: String,
    /// `every partition`, or the home of its file, as in `partition 3`.
    pub runs: String,
    /// Why.
    pub why: String,
    /// Its group.
    pub group: Option<String>,
    /// State that it keeps between events; empty for none.
    pub keeps: String,
    /// Events that it emitted.
    pub emitted: u64,
    /// Calls that it could not process.
    pub errors: u64,
    /// Of these calls those whose events no fault stream took.
    pub lost: u64,
    /// Why not, the latest of them.
    pub last_error: Option<String>,
}

/// Returns the counters of rules and queries of all partitions.
///
/// Errors: `Unavailable` while a partition cannot be asked.
pub fn counters(node: &Node) -> Result<Vec<(Counters, QueryCountsByFile)>> {
    node.clients()?.iter().map(|partition| partition.counters()).collect()
}

/// Returns the counters of rules and queries of own partitions.
pub fn owned_counters(node: &Node) -> Vec<(Counters, QueryCountsByFile)> {
    node.owned.all().iter().map(|partition| partition.counters.copy()).collect()
}

/// Returns all queries, in order of files and text, with the counts of some partitions.
pub fn queries(node: &Node, counters: &[(Counters, QueryCountsByFile)]) -> Vec<QueryInfo> {
    let mut all = Vec::new();
    for file in &node.app.deployment.queries.files {
        for (placed, (name, facts)) in
            file.placements.iter().flat_map(|p| p.queries.iter().map(move |q| (p, q)))
        {
            let mut info = QueryInfo {
                file: file.name.clone(),
                name: name.clone(),
                runs: if placed.partitioned {
                    "every partition".into()
                } else {
                    format!("partition {}", file.home)
                },
                why: placed.reason.clone(),
                group: placed.group.clone(),
                keeps: facts.retained_state.join(", "),
                emitted: 0,
                errors: 0,
                lost: 0,
                last_error: None,
            };
            for counts in counters.iter().filter_map(|(_, queries)| queries.get(&file.name)?.get(name)) {
                info.emitted += counts.emitted;
                info.errors += counts.errors;
                info.lost += counts.errors - counts.kept;
                info.last_error = info.last_error.take().or_else(|| counts.last_error.clone());
            }
            all.push(info);
        }
    }
    all
}

/// Reports rules that fail. Each is logged once; [`rule_problems`] counts.
fn report_failing_rules(node: &Node) {
    for (rule, counts) in failing_rules(node) {
        if node.app.failing_rules.lock().insert(rule.clone()) {
            let error = counts.last_error.unwrap_or_default();
            tracing::error!(rule, "the rule fails: {error}; system.rules has the count and the last error");
        }
    }
}

/// Returns the problems of rules in own partitions, one for each rule with the number of its failures.
pub fn rule_problems(node: &Node) -> Vec<String> {
    let problem = |(rule, counts): (String, RuleFailures)| {
        let times = if counts.errors == 1 { "once".to_owned() } else { format!("{} times", counts.errors) };
        format!("rules: `{rule}` failed {times}, last: {}", counts.last_error.unwrap_or_default())
    };
    failing_rules(node).into_iter().map(problem).collect()
}

/// Failures of a rule, over own partitions.
#[derive(Default)]
struct RuleFailures {
    errors: u64,
    last_error: Option<String>,
}

fn failing_rules(node: &Node) -> BTreeMap<String, RuleFailures> {
    let mut failing = BTreeMap::<String, RuleFailures>::new();
    for rule in node.app.deployment.program.rules() {
        for partition in node.owned.replicas() {
            partition.counters.with(|counters, _| {
                if let Some(counts) = counters.rule(&rule.name).filter(|counts| counts.errors > 0) {
                    let failures = failing.entry(rule.name.clone()).or_default();
                    failures.errors += counts.errors;
                    failures.last_error = counts.last_error.clone().or(failures.last_error.take());
                }
            });
        }
    }
    for (name, counts) in &*node.app.aggregates.lock() {
        if counts.errors > 0 {
            let last_error = counts.last_error.clone();
            failing.insert(name.clone(), RuleFailures { errors: counts.errors, last_error });
        }
    }
    failing
}

/// Reports queries and rules that fail.
pub fn report_failures(node: &Node) {
    report_lossy_queries(node);
    report_failing_rules(node);
}

/// Reports queries that lose events in own partitions because they fail and no fault stream takes the events.
fn report_lossy_queries(node: &Node) {
    let losing: Vec<String> = queries(node, &owned_counters(node))
        .into_iter()
        .filter(|query| query.lost > 0)
        .map(|query| format!("`{}` of {}", query.name, query.file))
        .collect();
    if !losing.is_empty() {
        let problem =
            format!("events are lost in {}; system.queries shows how many and why", losing.join(", "));
        node.host.health.report_problem("queries", problem);
    }
}
