//! The database that front ends serve: SQL over an engine.

use std::num::NonZeroUsize;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tidemill_access::{Action, Principal, Resource};
use tidemill_database::{
    AppendReceipt, AppendRequest, BatchReply, Database, Description, EncodedReply, Format, HeldMoment,
    OpenStream, PagedReply, QueryRequest, RejectedEvent, SendReceipt, SendRequest, StagedInsert,
    StatementInfo, is_insert,
};
use tidemill_engine::{Engine, SendOptions};
use tidemill_files::events_from_arrow_stream;
use tidemill_sql::{QueryResult, QueryRows, Sql};
use tidemill_types::{BadRow, DecodedRows, Error, Result, RowOrigin};

use crate::options;
use crate::tables::append;

/// SQL over an engine, whose statements see every event that was acknowledged before they started.
#[derive(Clone)]
pub struct EngineDatabase {
    pub(crate) engine: Arc<Engine>,
    pub(crate) sql: Arc<Sql>,
}

impl EngineDatabase {
    /// Starts a statement after everything that was acknowledged is applied.
    pub(crate) async fn start(&self, request: QueryRequest) -> Result<QueryResult> {
        self.caught_up_for(&request).await?;
        self.sql.run(request).await
    }

    /// Runs a statement as [`Self::start`] does and collects its rows, for callers without an executor.
    pub(crate) fn run_blocking(&self, request: QueryRequest) -> Result<QueryRows> {
        self.engine.catch_up()?;
        futures::executor::block_on(async { self.sql.run(request).await?.collect().await })
    }

    /// Waits for a statement that reads. An `INSERT` waits by itself if it has a query.
    async fn caught_up_for(&self, request: &QueryRequest) -> Result<()> {
        if is_insert(&request.text) { Ok(()) } else { self.caught_up().await }
    }

    async fn caught_up(&self) -> Result<()> {
        let engine = self.engine.clone();
        let waited = tokio::task::spawn_blocking(move || engine.catch_up()).await;
        waited.map_err(|e| Error::internal("waiting for the log was cut short").with_source(e))?
    }
}

impl Database for EngineDatabase {
    fn query(&self, request: QueryRequest) -> BoxFuture<'static, Result<BatchReply>> {
        let database = self.clone();
        async move {
            let result = database.start(request).await?;
            // callers may poll again after the end
            let (schema, origins, is_endless) = (result.schema(), result.origins(), result.is_endless());
            Ok(BatchReply { schema, batches: result.fuse().boxed(), origins, is_endless })
        }
        .boxed()
    }

    fn query_encoded(
        &self,
        request: QueryRequest,
        format: Format,
    ) -> BoxFuture<'static, Result<EncodedReply>> {
        let database = self.clone();
        async move {
            database.caught_up_for(&request).await?;
            let result = database.sql.run_encoded(request, format).await?;
            let (columns, is_endless) = (result.columns(), result.is_endless());
            // a result without rows may have no bytes at all, and callers may poll again after the end
            Ok(EncodedReply { columns, pieces: result.fuse().boxed(), is_endless })
        }
        .boxed()
    }

    fn query_paged(
        &self,
        request: QueryRequest,
        format: Format,
        page_rows: NonZeroUsize,
    ) -> BoxFuture<'static, Result<PagedReply>> {
        let database = self.clone();
        async move {
            database.caught_up_for(&request).await?;
            let pages = database.sql.run_paged(request, format, page_rows).await?;
            Ok(PagedReply { columns: pages.columns(), statement: pages.statement(), pages: Box::new(pages) })
        }
        .boxed()
    }

    fn describe(&self, request: QueryRequest) -> BoxFuture<'static, Result<Description>> {
        let database = self.clone();
        async move { database.sql.describe_request(request).await }.boxed()
    }

    fn hold_moment(&self, principal: &Principal) -> BoxFuture<'static, Result<HeldMoment>> {
        let (database, principal) = (self.clone(), principal.clone());
        async move {
            database.caught_up().await?;
            database.sql.hold_moment(&principal).await
        }
        .boxed()
    }

    fn send(&self, request: SendRequest) -> BoxFuture<'static, Result<SendReceipt>> {
        let engine = self.engine.clone();
        async move {
            let sent = tokio::task::spawn_blocking(move || send(&engine, request)).await;
            sent.map_err(|e| Error::internal("sending events was cut short").with_source(e))?
        }
        .boxed()
    }

    fn stage(&self, request: QueryRequest) -> BoxFuture<'static, Result<StagedInsert>> {
        let database = self.clone();
        async move { database.sql.stage(request).await }.boxed()
    }

    fn open_stream(
        &self,
        schema: Option<&str>,
        name: &str,
        principal: &Principal,
    ) -> BoxFuture<'static, Result<OpenStream>> {
        std::future::ready(self.sql.open_stream(schema, name, principal)).boxed()
    }

    fn append(&self, request: AppendRequest) -> BoxFuture<'static, Result<AppendReceipt>> {
        let engine = self.engine.clone();
        async move {
            let appended = tokio::task::spawn_blocking(move || append(&engine, request)).await;
            appended.map_err(|e| Error::internal("appending events was cut short").with_source(e))?
        }
        .boxed()
    }

    fn statements(&self, principal: &Principal) -> Vec<StatementInfo> {
        self.sql.statements(principal)
    }

    fn cancel(&self, id: u64, principal: &Principal, by: &str) -> Result<()> {
        self.sql.cancel(id, principal, by)
    }
}

/// Sends the events of a request. A body that cannot be decoded is in `system.rejected`, as one that comes over HTTP is.
fn send(engine: &Engine, request: SendRequest) -> Result<SendReceipt> {
    let SendRequest { stream, events, origin, principal } = request;
    principal.may(Action::Write, &Resource::stream(&stream))?;
    let options = SendOptions { origin: origin.to_owned(), ..SendOptions::default() };
    let bytes_max = options::server(&engine.app().settings.server).body_bytes_max;
    let send =
        || match events_from_arrow_stream(events, engine.stream_schema(&stream)?, engine.now(), bytes_max) {
            Ok(rows) => engine.send_rows(rows, &options),
            Err(e) => {
                let bad = BadRow::new(RowOrigin::of_row(0), Some(&stream), &e, b"");
                engine.send_rows(DecodedRows { rejected: vec![bad], ..DecodedRows::default() }, &options)?;
                Err(e)
            }
        };
    // hints have the names of all objects
    let reply =
        send().map_err(|e| if principal.can_everywhere(Action::Read) { e } else { e.without_hint() })?;
    let rejected = reply.rejected.into_iter().map(|bad| RejectedEvent { row: bad.row, reason: bad.reason });
    Ok(SendReceipt { accepted: reply.accepted, rejected: rejected.collect() })
}
