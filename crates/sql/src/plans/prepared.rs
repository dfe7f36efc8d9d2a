//! Prepared queries: planned once, then executed by the caller's thread.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Instant;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::physical_plan::{ExecutionPlanProperties, SendableRecordBatchStream};
use futures::StreamExt;
use futures::future::{Either, poll_fn, select};
use parking_lot::Mutex;
use tidemill_types::{Result, Value};

use crate::StatementPhase;
use crate::error::{ended, from_datafusion, too_long};
use crate::execution::stack;
use crate::execution::statements::kept_text;
use crate::execution::work::{LONG, Work};
use crate::plans::reusable_plan::ReusablePlan;
use crate::plans::template::{PreparedParts, StartedTemplate, Template};
use crate::query::{CollectedRows, QueryRequest, QueryRows};
use crate::session::Shared;

/// Origin of prepared queries in `system.statements`.
const PREPARED: &str = "program";

/// Query that is planned once and executed many times, each time over the rows of its moment.
///
/// If all rows are in memory (hot data of event tables, small collections) and the plan has one partition, or if the query
/// has parameters and only selects rows of streams, it is executed by the thread that asks, without tasks and channels.
/// Otherwise it runs as [`crate::Sql::query`] does. The limits of the session hold either way.
pub struct Prepared {
    shared: Arc<Shared>,
    request: QueryRequest,
    /// The text in `system.statements`.
    kept_text: Arc<str>,
    parts: PreparedParts,
    /// The plan, which stays known if the session's cache drops it.
    plan: Mutex<Option<Arc<ReusablePlan>>>,
}

impl std::fmt::Debug for Prepared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Prepared").field("text", &self.request.text).finish_non_exhaustive()
    }
}

/// A plan that was kept.
enum KeptPlan<'p> {
    /// Operators over hot data.
    Physical(&'p ReusablePlan),
    /// An optimized plan whose parameters have the request's values.
    Template(&'p Template, &'p QueryRequest),
}

impl Prepared {
    pub(crate) fn new(shared: Arc<Shared>, request: QueryRequest, parts: PreparedParts) -> Self {
        let kept_text = kept_text(&request.text);
        Self { shared, request, kept_text, parts, plan: Mutex::default() }
    }

    /// Returns the columns that the query had when it was prepared.
    pub fn schema(&self) -> &SchemaRef {
        &self.parts.schema
    }

    /// Returns the number of parameters.
    pub fn parameters(&self) -> usize {
        self.parts.parameters
    }

    /// Executes a query without parameters and collects its rows.
    ///
    /// Errors: those of [`crate::Sql::query`] and [`crate::QueryResult::collect`].
    pub async fn query(&self) -> Result<QueryRows> {
        self.query_with(&[]).await
    }

    /// Executes the query with these values of `$1`, `$2`, … and collects its rows.
    ///
    /// Errors: those of [`crate::Sql::run`] and [`crate::QueryResult::collect`].
    pub async fn query_with(&self, parameters: &[Value<'static>]) -> Result<QueryRows> {
        let request = self.request.clone().with_parameters(parameters);
        if let Some(template) = &self.parts.template
            && let Some(rows) = self.query_here(KeptPlan::Template(template, &request)).await?
        {
            return Ok(rows);
        }
        let plan = self.plan.lock().clone().filter(|_| parameters.is_empty());
        if let Some(plan) = plan {
            match self.query_here(KeptPlan::Physical(&plan)).await? {
                Some(rows) => return Ok(rows),
                None => *self.plan.lock() = None,
            }
        }
        let rows = self.shared.query(request, PREPARED).await?.collect().await?;
        if parameters.is_empty() {
            *self.plan.lock() = self.shared.plans.get(&self.request.text, self.request.missing);
        }
        Ok(rows)
    }

    /// Executes a query without parameters and collects its rows. Must not be called from async code.
    ///
    /// Errors: those of [`Self::query`].
    pub fn query_blocking(&self) -> Result<QueryRows> {
        self.query_blocking_with(&[])
    }

    /// Executes the query with these values of `$1`, `$2`, … and collects its rows. Must not be called from async code.
    ///
    /// Errors: those of [`Self::query_with`].
    pub fn query_blocking_with(&self, parameters: &[Value<'static>]) -> Result<QueryRows> {
        futures::executor::block_on(self.query_with(parameters))
    }

    /// Executes a plan on this thread; `None` if it cannot be.
    async fn query_here(&self, plan: KeptPlan<'_>) -> Result<Option<QueryRows>> {
        let limit = self.shared.options.query_timeout;
        let (statement, ended) =
            self.shared.statements.begin(self.kept_text.clone(), PREPARED, &self.request.principal, limit);
        let _reader = statement.reader();
        let work = Work::new(statement.clone(), self.shared.places.clone());
        let within = {
            let _timers = self.shared.timers.enter();
            tokio::time::timeout(limit, self.execute(plan, &work))
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
        rows
    }

    async fn execute(&self, plan: KeptPlan<'_>, work: &Arc<Work>) -> Result<Option<QueryRows>> {
        let (shared, statement) = (&self.shared, work.statement());
        if shared.closing.has_begun() {
            return Err(shared.closing.ended_early());
        }
        let (stream, files) = match plan {
            KeptPlan::Physical(plan) => (self.start_physical(plan, work)?, None),
            KeptPlan::Template(template, request) => {
                statement.set_phase(StatementPhase::Planning);
                // the session's threads read its files
                match self.on_threads(work, shared.start_template(template, request, work)).await? {
                    StartedTemplate::Running(stream, files) => (Some(stream), Some(files)),
                    StartedTemplate::Stale | StartedTemplate::Unfit => (None, None),
                }
            }
        };
        let Some(stream) = stream else { return Ok(None) };
        statement.set_phase(StatementPhase::Running);
        match (self.collect(stream, work).await, files) {
            (Err(error), Some(files)) => Err(files.name_damaged(error).await),
            (rows, _) => rows.map(Some),
        }
    }

    fn start_physical(
        &self,
        plan: &ReusablePlan,
        work: &Arc<Work>,
    ) -> Result<Option<SendableRecordBatchStream>> {
        let shared = &self.shared;
        let failed = |e| from_datafusion(&e, None);
        let (Some(store), Some(snapshots)) = (&shared.hot, plan.snapshots(&shared.tables)?) else {
            return Ok(None);
        };
        let Some(bindings) = plan.bind_resident(store, &snapshots).map_err(failed)? else { return Ok(None) };
        let environment = shared.state.runtime_env().clone();
        let (physical, context) = plan.instance(bindings, environment, work.clone()).map_err(failed)?;
        if physical.output_partitioning().partition_count() != 1 {
            return Ok(None);
        }
        self.entered(work, || physical.execute(0, context)).map_err(failed).map(Some)
    }

    /// Collects the rows of a stream that this thread polls.
    async fn collect(&self, mut stream: SendableRecordBatchStream, work: &Arc<Work>) -> Result<QueryRows> {
        let schema = stream.schema();
        let mut rows = CollectedRows::new(&self.shared.options);
        let began = Instant::now();
        while let Some(batch) = self.next(work, &mut stream).await {
            let batch = batch?;
            if began.elapsed() >= LONG {
                work.become_long().await.map_err(|stop| ended(&stop))?;
            }
            work.statement().add_rows(batch.num_rows());
            rows.push(batch)?;
        }
        Ok(QueryRows { schema, batches: rows.batches })
    }

    /// Polls a future as [`Self::next`] polls a stream.
    async fn on_threads<T>(&self, work: &Work, future: impl Future<Output = T>) -> T {
        let mut future = pin!(future);
        tokio::task::unconstrained(poll_fn(|cx| self.entered(work, || future.as_mut().poll(cx)))).await
    }

    async fn next(&self, work: &Work, stream: &mut SendableRecordBatchStream) -> Option<Result<RecordBatch>> {
        let next = poll_fn(|cx| match self.entered(work, || stream.poll_next_unpin(cx)) {
            Poll::Ready(Some(batch)) => Poll::Ready(Some(batch.map_err(|e| from_datafusion(&e, None)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        // exempt from the budget of the caller's task: it would suspend the query, and a thread that is not a
        // task is never woken up
        tokio::task::unconstrained(next).await
    }

    /// Runs a step of the query with its budget, the session's threads for tasks that it starts, and enough stack.
    fn entered<T>(&self, work: &Work, step: impl FnOnce() -> T) -> T {
        let _budget = work.budget().enter();
        let _threads = self.shared.threads.enter();
        stack::executing(step)
    }
}
