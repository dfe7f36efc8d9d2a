//! SQL for the HTTP server: rows are formatted incrementally.

use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, stream};
use parking_lot::Mutex;
use tidemill_engine::Engine;
use tidemill_server::{Format, SqlReply, StatementInfo};
use tidemill_sql::output::{self, Writer};
use tidemill_sql::{QueryResult, Sql};
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
            let result = sql.query_with_parameters("http", &query, &parameters).await?;
            let format = match format {
                Format::Json => output::Format::Json,
                Format::Ndjson => output::Format::Ndjson,
                Format::Csv => output::Format::Csv,
                Format::Table => output::Format::Table,
            };
            let content_type = format.content_type();
            let body = stream::unfold(Some(RowStream::new(result, format)), |rows| async move {
                let mut rows = rows?;
                let piece = rows.next().await;
                let go_on = matches!(&piece, Some(Ok(_)));
                piece.map(|p| (p, go_on.then_some(rows)))
            });
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

/// Formatter of a query's rows.
struct RowStream {
    result: QueryResult,
    writer: Option<Writer<TextBuffer>>,
    written: TextBuffer,
}

impl RowStream {
    fn new(result: QueryResult, format: output::Format) -> Self {
        let written = TextBuffer::default();
        let writer = Some(Writer::new(format, &result.schema(), written.clone()));
        Self { result, writer, written }
    }

    /// Returns the next chunk of text; `None` at the end.
    async fn next(&mut self) -> Option<Result<Bytes>> {
        loop {
            let writer = self.writer.as_mut()?;
            let step = match self.result.next().await {
                Some(Ok(batch)) => writer.write(&batch),
                Some(Err(e)) => Err(e),
                // removing the writer marks the end
                None => self.writer.take()?.finish().map(|_| ()),
            };
            if let Err(e) = step {
                self.writer = None;
                return Some(Err(e));
            }
            let text = std::mem::take(&mut *self.written.0.lock());
            if !text.is_empty() {
                return Some(Ok(text.into()));
            }
        }
    }
}

/// Buffer of formatted text that was not sent yet.
#[derive(Clone, Default)]
struct TextBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for TextBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
