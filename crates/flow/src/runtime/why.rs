//! Report on why a query emits nothing.

use tidemill_types::{Error, Result, did_you_mean};

use super::{AppRuntime, Emitter};
use crate::columns::batch::Batch;
use crate::explain::QueryReport;
use crate::join::SideSource;
use crate::plan::PlanElement;
use crate::query::QueryPlan;

impl AppRuntime {
    /// Reports why a query emits nothing. `query` is its name, or its number in the order of the text, from
    /// 1; `key` is a key of the partition that contains the query.
    ///
    /// Errors: `NotFound` for an unknown query or key, `Invalid` if a key is given for a query outside
    /// partitions.
    pub fn why(&self, query: &str, key: Option<&str>) -> Result<QueryReport> {
        let mut report = self.report(query, key)?;
        report.since = self.restored_at;
        Ok(report)
    }

    fn report(&self, query: &str, key: Option<&str>) -> Result<QueryReport> {
        match self.find_emitter(query)? {
            Emitter::Query(number) => {
                let asked = &self.queries[number];
                match (key, asked.plan.cut_by) {
                    (None, _) => Ok(self.with_windows(asked.why(self.now, &self.stores), &asked.plan)),
                    (Some(_), None) => Err(Error::invalid(format!(
                        "{} is not in a partition: it has no keys, ask without a key",
                        asked.plan.name
                    ))),
                    (Some(_), Some(_)) => Err(Error::invalid(format!(
                        "{} keeps only aggregates for each key: ask without a key",
                        asked.plan.name
                    ))),
                }
            }
            Emitter::InPartition { partition, query, .. } => {
                let report = self.partitions[partition].why(query, key, self.now, &self.stores)?;
                Ok(self.with_windows(report, &self.plan.partitions[partition].queries[query]))
            }
        }
    }

    /// Adds the named windows that a query reads to its report: the query waits for what they wait for.
    fn with_windows(&self, mut report: QueryReport, plan: &QueryPlan) -> QueryReport {
        let mut windows = self.stores.windows.iter();
        if plan.reads_window {
            let read = windows.find(|window| window.plan().stream == plan.stream);
            report.window = read.map(|window| window.why(self.now));
        }
        for (side, join) in report.sides.iter_mut().zip(plan.join.iter().flat_map(|join| &join.sides)) {
            if let SideSource::Window(_, number) = join.source {
                side.window = self.stores.windows.get(number).map(|window| window.why(self.now));
            }
        }
        report
    }

    /// Finds a query by name or number. The key of the result is meaningless.
    fn find_emitter(&self, query: &str) -> Result<Emitter> {
        let mut all: Vec<(&str, Emitter)> = Vec::new();
        for element in &self.plan.elements {
            match *element {
                PlanElement::Query(number) => {
                    all.push((&self.plan.queries[number].name, Emitter::Query(number)))
                }
                PlanElement::Partition(partition) => {
                    let inside = self.plan.partitions[partition].queries.iter().enumerate();
                    all.extend(inside.map(|(query, plan)| {
                        (
                            plan.name.as_str(),
                            Emitter::InPartition { partition, key: Default::default(), query },
                        )
                    }));
                }
            }
        }
        let by_name = all.iter().find(|(name, _)| *name == query);
        let by_number = || query.parse::<usize>().ok()?.checked_sub(1).and_then(|number| all.get(number));
        by_name.or_else(by_number).map(|(_, origin)| *origin).ok_or_else(|| {
            let hint = did_you_mean(query, all.iter().map(|(name, _)| *name));
            Error::not_found(format!("there is no query `{query}`{hint}"))
        })
    }

    /// Records output of a query.
    pub(super) fn note_emission(&mut self, from: Emitter, out: &Batch) {
        match from {
            Emitter::Query(query) => self.queries[query].stats.record_output(out),
            Emitter::InPartition { partition, key, query } => {
                self.partitions[partition].record_output(key, query, out)
            }
        }
    }
}
