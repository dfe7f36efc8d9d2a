//! Rules: what they did, why, and runs of aggregate rules.

use tidemill_rules::why::Selector;
use tidemill_rules::{Counters, Explanation};
use tidemill_types::{Error, ErrorKind, Result, did_you_mean};

use super::Engine;
use crate::admin::reevaluation;
use crate::api::{EventSelector, RuleInfo};
use crate::jobs::aggregate_rules;
use crate::queries::runtime::QueryCountsByFile;
use crate::query_info;

impl Engine {
    /// Rules in order of declaration, event rules first.
    ///
    /// Errors: `Unavailable` while a partition cannot be asked.
    pub fn rules(&self) -> Result<Vec<RuleInfo>> {
        Ok(self.rules_with(&query_info::counters(&self.node)?))
    }

    /// Returns the rules with the counts of some partitions.
    pub(super) fn rules_with(&self, counters: &[(Counters, QueryCountsByFile)]) -> Vec<RuleInfo> {
        let node = &self.node;
        let mut rules: Vec<RuleInfo> = node
            .app
            .deployment
            .program
            .rules()
            .iter()
            .map(|r| RuleInfo {
                name: r.name.clone(),
                kind: "event",
                source: r.stream.clone(),
                priority: r.priority.into(),
                fired: 0,
                errors: 0,
                last_error: None,
            })
            .collect();
        for (counters, _) in counters {
            for rule in &mut rules {
                if let Some(counts) = counters.rule(&rule.name) {
                    rule.fired += counts.fired;
                    rule.errors += counts.errors;
                    rule.last_error = rule.last_error.take().or_else(|| counts.last_error.clone());
                }
            }
        }
        let counts = node.app.aggregates.lock();
        for aggregate in node.app.deployment.program.aggregates() {
            let counts = counts.get(&aggregate.name).cloned().unwrap_or_default();
            rules.push(RuleInfo {
                name: aggregate.name.clone(),
                kind: "aggregate",
                source: aggregate.source.clone(),
                priority: 0,
                fired: counts.runs,
                errors: counts.errors,
                last_error: counts.last_error,
            });
        }
        rules
    }

    /// Why a rule (or every rule) fired or did not: for the event with that id, or for the latest event with those
    /// fields of each partition. Of the last events of each partition it is kept what rules did; for older ones the rules run again over
    /// stored events, which needs SQL, and the answer says so.
    ///
    /// Errors: `NotFound` for an unknown rule, or when no event matches; `LimitReached` when too many events lie in front of it;
    /// `Unavailable` when only a partition that waits for a store may have the event.
    pub fn why(&self, rule: Option<&str>, event: &EventSelector) -> Result<Vec<Explanation>> {
        let node = &self.node;
        if let Some(name) = rule
            && !node.app.deployment.program.rules().iter().any(|r| r.name == name)
        {
            if node.app.deployment.program.aggregates().iter().any(|a| a.name == name) {
                return Err(Error::invalid(format!(
                    "rule `{name}` is an aggregate: it runs over all events, not for one"
                )));
            }
            let rules = node.app.deployment.program.rules();
            let known = rules.iter().map(|r| r.name.as_str());
            return Err(Error::not_found(format!("no rule `{name}`")).with_hint(did_you_mean(name, known)));
        }
        let selector = match event {
            EventSelector::Id(id) => Selector::Id(*id),
            EventSelector::Fields(fields) => Selector::Fields {
                stream: rule
                    .and_then(|name| node.app.deployment.program.rules().into_iter().find(|r| r.name == name))
                    .map(|r| r.stream),
                fields: fields.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect(),
            },
        };
        let (mut found, mut waiting) = (Vec::new(), None);
        // the rule does not see an event of another stream, whose name is for callers who may know it
        let mut of_other_stream = String::new();
        for partition in node.clients()? {
            match partition.explain_event(&selector, rule) {
                Ok(explanation) => found.extend(explanation),
                // another partition may have the event
                Err(e) if e.kind() == ErrorKind::Unavailable => waiting = Some(e),
                Err(e) if e.kind() == ErrorKind::Invalid => of_other_stream = format!(": {e}"),
                Err(e) => return Err(e),
            }
        }
        if let Some(e) = waiting.filter(|_| found.is_empty()) {
            return Err(e);
        }
        if found.is_empty() && node.app.analytics.get().is_some() {
            found = reevaluation::explain(node, rule, event)?;
            if found.is_empty() {
                let error = Error::not_found(format!("no event {event} is stored that these rules saw"));
                return Err(error.with_hint(of_other_stream));
            }
        }
        if found.is_empty() {
            let error = Error::not_found(format!(
                "no event {event} among those that can be explained: the last {} of each partition that these rules saw (why_events)",
                node.app.deployment.settings.why_events
            ));
            return Err(error.with_hint(of_other_stream));
        }
        Ok(found)
    }

    /// Runs an aggregate rule now and returns how many documents it wrote.
    ///
    /// Errors: `NotFound` for an unknown rule, `Invalid` for one that is not an aggregate.
    pub fn run_aggregate(&self, name: &str) -> Result<u64> {
        let node = &self.node;
        let aggregate = node.app.deployment.program.aggregates().iter().find(|a| a.name == name);
        let Some(aggregate) = aggregate else {
            if node.app.deployment.program.rules().iter().any(|r| r.name == name) {
                return Err(Error::invalid(format!(
                    "rule `{name}` runs on events; only aggregate rules can be run"
                )));
            }
            let known = node.app.deployment.program.aggregates().iter().map(|a| a.name.as_str());
            return Err(
                Error::not_found(format!("no aggregate rule `{name}`")).with_hint(did_you_mean(name, known))
            );
        };
        aggregate_rules::run(node, aggregate)
    }

    /// Runs every aggregate rule once, in order of declaration, and returns how many documents they wrote.
    ///
    /// Errors: that of the first that failed; the others have run all the same.
    pub fn run_all_aggregates(&self) -> Result<u64> {
        if self.node.host.is_stopping() {
            return Err(Error::unavailable("the engine is stopping"));
        }
        let runs: Vec<Result<u64>> = self
            .node
            .app
            .deployment
            .program
            .aggregates()
            .iter()
            .map(|a| aggregate_rules::run(&self.node, a))
            .collect();
        runs.into_iter().sum()
    }
}
