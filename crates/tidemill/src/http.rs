//! SQL for the HTTP server: rows become text incrementally.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tidemill_engine::Engine;
use tidemill_server::{Format, SqlReply, StatementInfo};
use tidemill_sql::{Sql, output};
use tidemill_types::{Error, Result, Value};

/// SQL service whose queries see every event acknowledged before they started.
pub struct SqlOverEngine {
    engine: Arc<Engine>,
    sql: Arc<Sql>,
}

impl SqlOverEngine {
    pub(crate) fn new(engine: Arc<Engine>, sql: Arc<Sql>) -> Self {
        Self { engine, sql }
    }
}

impl tidemill_server::Sql for SqlOverEngine {
    fn query(
        &self,
        query: &str,
        parameters: Vec<Value<'static>>,
        format: Format,
    ) -> BoxFuture<'static, Result<SqlReply>> {
        let (engine, sql, query) = (self.engine.clone(), self.sql.clone(), query.to_owned());
        async move {
            tokio::task::spawn_blocking(move || engine.catch_up())
                .await
                .map_err(|e| Error::internal("waiting for the log was cut short").with_source(e))??;
            let format = match format {
                Format::Json => output::Format::Json,
                Format::Ndjson => output::Format::Ndjson,
                Format::Csv => output::Format::Csv,
                Format::Table => output::Format::Table,
            };
            let content_type = format.content_type();
            let body = sql.query_text("http", &query, &parameters, format).await?;
            // a result without rows may have no bytes at all, and callers may poll again after the end
            Ok(SqlReply { content_type, body: body.fuse().boxed() })
        }
        .boxed()
    }

    fn statements(&self) -> Vec<StatementInfo> {
        self.sql.statements().into_iter().map(statement_info).collect()
    }

    fn cancel(&self, id: u64, by: &str) -> Result<()> {
        self.sql.cancel(id, by)
    }
}

fn statement_info(info: tidemill_sql::StatementInfo) -> StatementInfo {
    let tidemill_sql::StatementInfo { id, text, origin, phase, started, ended, rows, error } = info;
    let (origin, phase) = (origin.to_owned(), phase.name().to_owned());
    StatementInfo { id, statement: text, origin, phase, started, ended, rows, error }
}
