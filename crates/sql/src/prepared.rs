//! Prepared queries: planned once, then executed by the caller's thread.

use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::physical_plan::{ExecutionPlanProperties, SendableRecordBatchStream};
use futures::StreamExt;
use futures::future::{Either, poll_fn, select};
use parking_lot::Mutex;
use tidemill_types::Result;

use crate::error::{from_datafusion, too_long};
use crate::query::{CollectedRows, QueryRows};
use crate::reusable_plan::ReusablePlan;
use crate::session::Shared;
use crate::statements::{RunningStatement, StatementPhase, kept_text};
use crate::{MissingFields, stack};

/// Origin of prepared queries in `system.statements`.
const PREPARED: &str = "program";

/// Query that is planned once and executed many times, each time over the rows of its moment.
///
/// If all rows are in memory (hot data of event tables, small collections) and the plan has one partition, it is
/// executed by the thread that asks, without tasks and channels. Otherwise it runs as [`crate::Sql::query`] does. The
/// limits of the session hold either way.
pub struct Prepared {
    shared: Arc<Shared>,
    text: String,
    /// The text in `system.statements`.
    kept_text: Arc<str>,
    missing: MissingFields,
    schema: SchemaRef,
    /// The plan, which stays known if the session's cache drops it.
    plan: Mutex<Option<Arc<ReusablePlan>>>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("text", &self.text).finish_non_exhaustive()
    }
}

impl Prepared {
    pub(crate) fn new(shared: Arc<Shared>, text: String, missing: MissingFields, schema: SchemaRef) -> Self {
        let kept_text = kept_text(&text);
        Self { shared, text, kept_text, missing, schema, plan: Mutex::default() }
    }

    /// Returns the columns that the query had when it was prepared.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Executes the query and collects its rows.
    ///
    /// Errors: those of [`crate::Sql::query`] and [`crate::QueryResult::collect`].
    pub async fn query(&self) -> Result<QueryRows> {
        if let Some(rows) = self.query_here().await? {
            return Ok(rows);
        }
        let rows = self.shared.query(&self.text, self.missing, PREPARED).await?.collect().await?;
        *self.plan.lock() = self.shared.plans.get(&self.text, self.missing);
        Ok(rows)
    }

    /// Executes the query and collects its rows. Must not be called from async code.
    ///
    /// Errors: those of [`Self::query`].
    pub fn query_blocking(&self) -> Result<QueryRows> {
        futures::executor::block_on(self.query())
    }

    /// Executes the query on this thread; `None` if it cannot be.
    async fn query_here(&self) -> Result<Option<QueryRows>> {
        let Some(plan) = self.plan.lock().clone() else { return Ok(None) };
        let limit = self.shared.options.query_timeout;
        let deadline = tokio::time::Instant::now() + limit;
        let (mut statement, ended) = self.shared.statements.begin(self.kept_text.clone(), PREPARED);
        let within = {
            let _timers = self.shared.timers.enter();
            tokio::time::timeout_at(deadline, self.execute(&plan, deadline, &statement))
        };
        let rows = match select(pin!(within), ended).await {
            Either::Left((rows, _)) => rows.unwrap_or_else(|_| Err(too_long(limit))),
            Either::Right((ended, _)) => Err(ended.unwrap_or_else(|_| self.shared.closing.ended_early())),
        };
        if let Ok(None) = rows {
            statement.forget();
        } else {
            statement.set_outcome(rows.as_ref().err());
        }
        let rows = rows?;
        if rows.is_none() {
            *self.plan.lock() = None;
        }
        Ok(rows)
    }

    async fn execute(
        &self,
        plan: &ReusablePlan,
        deadline: tokio::time::Instant,
        statement: &RunningStatement,
    ) -> Result<Option<QueryRows>> {
        let shared = &self.shared;
        if shared.closing.has_begun() {
            return Err(shared.closing.ended_early());
        }
        let _permit = shared.running.acquire().await.map_err(|_| shared.closing.ended_early())?;
        statement.set_phase(StatementPhase::Running);
        let failed = |e| from_datafusion(&e, None);
        let (Some(store), Some(snapshots)) = (&shared.hot, plan.snapshots(&shared.tables)?) else {
            return Ok(None);
        };
        let Some(bindings) = plan.bind_resident(store, &snapshots).map_err(failed)? else { return Ok(None) };
        let environment = shared.state.runtime_env().clone();
        let (physical, context) = plan.instance(bindings, environment).map_err(failed)?;
        if physical.output_partitioning().partition_count() != 1 {
            return Ok(None);
        }
        let schema = physical.schema();
        let mut stream = self.entered(|| physical.execute(0, context)).map_err(failed)?;
        let mut rows = CollectedRows::new(&shared.options);
        while let Some(batch) = self.next(&mut stream).await {
            // an operator that never waits leaves no time to the timer
            if tokio::time::Instant::now() >= deadline {
                return Err(too_long(shared.options.query_timeout));
            }
            statement.check()?;
            let batch = batch?;
            statement.add_rows(batch.num_rows());
            rows.push(batch)?;
        }
        Ok(Some(rows.finish(schema)))
    }

    async fn next(&self, stream: &mut SendableRecordBatchStream) -> Option<Result<RecordBatch>> {
        let next = poll_fn(|cx| match self.entered(|| stream.poll_next_unpin(cx)) {
            Poll::Ready(Some(batch)) => Poll::Ready(Some(batch.map_err(|e| from_datafusion(&e, None)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        // the caller's task is not charged for what the query's would be: it would be stopped, but nothing wakes a
        // thread that is no task
        tokio::task::unconstrained(next).await
    }

    /// Runs a step of the query with the session's threads for tasks that it starts, and enough stack.
    fn entered<T>(&self, step: impl FnOnce() -> T) -> T {
        let _threads = self.shared.threads.enter();
        stack::executing(step)
    }
}

impl CollectedRows {
    fn finish(self, schema: SchemaRef) -> QueryRows {
        QueryRows { schema, batches: self.batches }
    }
}
