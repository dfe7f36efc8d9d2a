//! Statements of a request, executed one after the other.

use std::sync::Arc;

use tidemill_access::Principal;
use tidemill_database::Database;

use crate::catalog::Measurement;
use crate::error::{Outcome, refuse};
use crate::execute::Executor;
use crate::rows::{MemoryPool, Reservation, RowSource};
use crate::series::{ResultSeries, StatementResult};
use crate::show::Shower;
use crate::source::DatabaseRows;
use crate::syntax::InfluxStatement;

/// Environment of the statements of a request.
pub struct Session {
    source: Box<dyn RowSource>,
    catalog: Vec<Measurement>,
    memory: MemoryPool,
    now: i64,
    version: String,
}

impl Session {
    /// Creates a session of a caller who may read the measurements of `catalog`, and no others.
    ///
    /// `origin` names the sender in `system.statements`, `now` is the time of `now()` in nanoseconds since 1970, and `version` stands in
    /// `SHOW DIAGNOSTICS`.
    pub fn new(
        database: Arc<dyn Database>,
        principal: Principal,
        origin: &'static str,
        catalog: Vec<Measurement>,
        memory: MemoryPool,
        now: i64,
        version: &str,
    ) -> Self {
        let source = Box::new(DatabaseRows { database, principal, origin });
        Self::with_source(source, catalog, memory, now, version)
    }

    pub(crate) fn with_source(
        source: Box<dyn RowSource>,
        mut catalog: Vec<Measurement>,
        memory: MemoryPool,
        now: i64,
        version: &str,
    ) -> Self {
        catalog.sort_by(|a, b| a.name.cmp(&b.name));
        Self { source, catalog, memory, now, version: version.to_owned() }
    }

    /// Executes a statement. Its error stands in the result.
    pub async fn run(&self, id: usize, statement: &InfluxStatement) -> StatementResult {
        let memory = Arc::new(self.memory.reservation());
        match self.outcome(statement, &memory).await {
            Ok(series) => StatementResult { id, series, error: None, memory: Some(memory) },
            Err(error) => StatementResult::failed(id, error.to_string()),
        }
    }

    /// Returns the result of a statement behind one that has failed.
    pub fn not_executed(id: usize) -> StatementResult {
        StatementResult::failed(id, "not executed")
    }

    async fn outcome(&self, statement: &InfluxStatement, memory: &Reservation) -> Outcome<Vec<ResultSeries>> {
        match statement {
            InfluxStatement::Select(select) => {
                let executor =
                    Executor { catalog: &self.catalog, source: &*self.source, memory, now: self.now };
                executor.select(select, None).await
            }
            InfluxStatement::Show(show) => {
                let shower = Shower {
                    catalog: &self.catalog,
                    source: &*self.source,
                    memory,
                    now: self.now,
                    version: &self.version,
                };
                shower.show(show).await
            }
            InfluxStatement::CreateDatabase(_) => Ok(vec![]),
            InfluxStatement::Unsupported { name, .. } => {
                refuse(format!("{name} is not supported: {}", instead(name)))
            }
        }
    }
}

/// Returns advice for a statement that is not supported.
fn instead(statement: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| statement.contains(word));
    match statement {
        _ if has(&["MEASUREMENT CARDINALITY"]) => "count the rows of SHOW MEASUREMENTS",
        _ if has(&["FIELD KEY CARDINALITY"]) => "count the rows of SHOW FIELD KEYS",
        _ if has(&["TAG KEY CARDINALITY"]) => "count the rows of SHOW TAG KEYS",
        _ if has(&["CARDINALITY"]) => "ask in SQL with count(DISTINCT …)",
        _ if has(&["QUERIES", "KILL"]) => {
            "ask in SQL for `system.statements`, and end a statement with KILL QUERY"
        }
        _ if has(&["USER", "GRANT", "REVOKE", "PASSWORD"]) => "use `tidemill users` and `tidemill tokens`",
        _ if has(&["INTO", "CONTINUOUS", "SUBSCRIPTION"]) => "declare a rule, a query or a sink in the app",
        _ if has(&["EXPLAIN"]) => "send EXPLAIN in SQL",
        _ if has(&["SHARD", "STATS"]) => "ask in SQL for `system.tablets` and `system.streams`",
        _ => "streams are declared in the app, and SQL changes events with DELETE and UPDATE",
    }
}
