//! The database that front ends serve: SQL over an engine.

use std::sync::Arc;

use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use tidemill_access::Principal;
use tidemill_database::{
    BatchReply, Database, Description, EncodedReply, Format, QueryRequest, StatementInfo,
};
use tidemill_engine::Engine;
use tidemill_sql::{QueryResult, QueryRows, Sql};
use tidemill_types::{Error, Result};

/// SQL over an engine, whose statements see every event that was acknowledged before they started.
#[derive(Clone)]
pub struct EngineDatabase {
    pub(crate) engine: Arc<Engine>,
    pub(crate) sql: Arc<Sql>,
}

impl EngineDatabase {
    /// Starts a statement after everything that was acknowledged is applied.
    pub(crate) async fn start(&self, request: QueryRequest) -> Result<QueryResult> {
        self.caught_up().await?;
        self.sql.run(request).await
    }

    /// Runs a statement as [`Self::start`] does and collects its rows, for callers without an executor.
    pub(crate) fn run_blocking(&self, request: QueryRequest) -> Result<QueryRows> {
        self.engine.catch_up()?;
        futures::executor::block_on(async { self.sql.run(request).await?.collect().await })
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
            Ok(BatchReply { schema: result.schema(), batches: result.fuse().boxed() })
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
            database.caught_up().await?;
            let result = database.sql.run_encoded(request, format).await?;
            let columns = result.columns();
            // a result without rows may have no bytes at all, and callers may poll again after the end
            Ok(EncodedReply { columns, pieces: result.fuse().boxed() })
        }
        .boxed()
    }

    fn describe(&self, request: QueryRequest) -> BoxFuture<'static, Result<Description>> {
        let database = self.clone();
        async move { database.sql.describe_request(request).await }.boxed()
    }

    fn statements(&self, principal: &Principal) -> Vec<StatementInfo> {
        self.sql.statements(principal)
    }

    fn cancel(&self, id: u64, principal: &Principal, by: &str) -> Result<()> {
        self.sql.cancel(id, principal, by)
    }
}
