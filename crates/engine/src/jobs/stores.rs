//! Watch on tables in other systems.

use std::collections::BTreeMap;

use parking_lot::Mutex;

use crate::node::Node;

/// Area of the problems of stores.
const AREA: &str = "stores";

/// Returns the job: it reports which tables cannot be reached. The queries that use them wait.
pub fn job() -> Box<dyn Fn(&Node) + Send + Sync> {
    let known: Mutex<BTreeMap<String, String>> = Mutex::default();
    Box::new(move |node: &Node| {
        let problems = node.app.deployment.queries.stores.problems();
        let mut known = known.lock();
        for (table, problem) in &problems {
            let problem = format!("table {table}: {problem}; events wait and the table is tried again");
            node.host.health.report_problem_of(AREA, table, problem);
        }
        for table in known.keys().filter(|table| !problems.contains_key(*table)) {
            node.host.health.clear_problem_of(AREA, table);
        }
        *known = problems;
    })
}
