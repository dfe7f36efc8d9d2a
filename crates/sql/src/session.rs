//! SQL session: plans each query against snapshots and runs it on its own threads, within its limits.

use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::SchemaRef;
use datafusion::execution::SessionState;
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::future::Either;
use tidemill_types::{Error, Result, Value};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::cancel;
use crate::change::Change;
use crate::error::too_long;
use crate::hot::{HotAccess, HotStore};
use crate::logical_query::LogicalQuery;
use crate::plan_cache::PlanCache;
use crate::prepared::Prepared;
use crate::query::{AbortOnDrop, ClosingFlag, QueryMessage, QueryRequest, QueryResult, QueryRows, Watchdog};
use crate::running::{Forwarded, RunningQuery, one_row};
use crate::session_state::{environment, one_thread, session_state};
use crate::session_tables::SessionTables;
use crate::statements::{RunningStatement, StatementInfo, StatementPhase, Statements, kept_text};
use crate::{MissingFields, SqlOptions, Tables, stack};

/// Finished batches buffered per query for a slow reader.
const BATCHES_READY: usize = 2;
/// Origin of statements whose caller does not name one.
const PROGRAM: &str = "program";
/// How much longer than its timeout a query may take to say so before its watchdog does.
const WATCHDOG_GRACE: Duration = Duration::from_millis(500);

/// SQL session over [`Tables`]. Queries run on its own threads; dropping it stops them.
pub struct Sql {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
    /// One thread for the [`Watchdog`]s.
    timers: Option<Runtime>,
}

/// What all queries of a session share.
pub(crate) struct Shared {
    pub tables: Arc<dyn Tables>,
    pub options: SqlOptions,
    pub state: SessionState,
    /// The state for prepared queries that ask for few rows.
    pub lookup_state: SessionState,
    /// Decoded rows of event tables; `None` if nothing is to be kept.
    pub hot: Option<Arc<HotStore>>,
    pub plans: PlanCache,
    pub running: Arc<Semaphore>,
    /// Permits for concurrent planning: as many as there are threads to run queries.
    pub planning: Arc<Semaphore>,
    pub closing: ClosingFlag,
    pub statements: Arc<Statements>,
    /// Threads that run queries.
    pub threads: Handle,
    /// Thread of the [`Watchdog`]s, and of the deadlines of prepared queries.
    pub timers: Handle,
}

impl Sql {
    /// Opens a session.
    ///
    /// Errors: `Unavailable` when threads cannot be started or the spill directory cannot be created.
    pub fn new(tables: Arc<dyn Tables>, options: SqlOptions) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.target_partitions.max(1))
            .thread_name("sql")
            .thread_stack_size(stack::THREAD_BYTES)
            // one poll of a join may take half a second; at the default of 61 polls between two looks at timers and
            // new tasks, deadlines and short queries would wait for half a minute
            .event_interval(1)
            .global_queue_interval(1)
            .enable_all()
            .build()
            .map_err(|e| Error::unavailable("the threads for queries cannot be started").with_source(e))?;
        let state = session_state(&options, environment(tables.as_ref(), &options)?)?;
        let lookup_state = one_thread(&state);
        let statements = Arc::new(Statements::default());
        let tables = Arc::new(SessionTables { tables, statements: statements.clone() });
        let running = Arc::new(Semaphore::new(options.queries_max.max(1)));
        let planning = Arc::new(Semaphore::new(options.target_partitions.max(1)));
        let timers = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sql-timers")
            .enable_time()
            .build()
            .map_err(|e| Error::unavailable("the timers of queries cannot be started").with_source(e))?;
        let shared = Arc::new(Shared {
            tables,
            hot: HotStore::new(options.hot_bytes),
            plans: PlanCache::new(options.cached_plans),
            options,
            state,
            lookup_state,
            running,
            planning,
            closing: ClosingFlag::default(),
            statements,
            threads: runtime.handle().clone(),
            timers: timers.handle().clone(),
        });
        Ok(Self { shared, runtime: Some(runtime), timers: Some(timers) })
    }

    /// Plans and starts a query and returns its rows as a stream.
    ///
    /// Errors: `Invalid` for wrong SQL, with its location; `NotFound` for unknown tables; `LimitReached` past
    /// a limit of [`SqlOptions`]. Errors during execution arrive in the stream.
    pub async fn query(&self, sql: &str) -> Result<QueryResult> {
        self.query_with(sql, MissingFields::Refused).await
    }

    /// Plans and starts a query as [`Self::query`] does; `missing` is the treatment of fields and collections
    /// that do not exist.
    pub async fn query_with(&self, sql: &str, missing: MissingFields) -> Result<QueryResult> {
        self.shared.query(QueryRequest::new(sql, missing), PROGRAM).await
    }

    /// Plans and starts a query whose parameters `$1`, `$2`, … have the values `parameters`.
    ///
    /// Errors: those of [`Self::query`]; `Invalid` for another number of values, and for a value that is not of its
    /// parameter's type.
    pub async fn query_with_parameters(
        &self,
        origin: &'static str,
        sql: &str,
        parameters: &[Value<'static>],
    ) -> Result<QueryResult> {
        let request = QueryRequest::new(sql, MissingFields::Refused).with_parameters(parameters);
        self.shared.query(request, origin).await
    }

    /// Plans and starts a query as [`Self::query_with`] does; `origin` says in `system.statements` who sent it.
    ///
    /// Errors: those of [`Self::query`].
    pub async fn query_from(
        &self,
        origin: &'static str,
        sql: &str,
        missing: MissingFields,
    ) -> Result<QueryResult> {
        self.shared.query(QueryRequest::new(sql, missing), origin).await
    }

    /// Returns the statements that run and the last that have ended, by number.
    pub fn statements(&self) -> Vec<StatementInfo> {
        self.shared.statements.list()
    }

    /// Cancels a statement that runs. Its reader gets an error of kind `Conflict`: "was cancelled by" and `by`.
    ///
    /// Errors: `NotFound` if no statement with this number runs.
    pub fn cancel(&self, id: u64, by: &str) -> Result<()> {
        self.shared.statements.cancel(id, by)
    }

    /// Checks and plans a query that is to be executed many times, and may have parameters: `$1`, `$2`, ….
    ///
    /// Errors: those of [`Self::query`].
    pub async fn prepare(&self, sql: &str) -> Result<Prepared> {
        let request = QueryRequest::new(sql, MissingFields::Refused);
        let parts = self.planned(&request, Shared::prepare).await?;
        Ok(Prepared::new(self.shared.clone(), request, parts))
    }

    /// Prepares a query as [`Self::prepare`] does, for callers without an executor. Must not be called from async
    /// code.
    ///
    /// Errors: those of [`Self::query`].
    pub fn prepare_blocking(&self, sql: &str) -> Result<Prepared> {
        futures::executor::block_on(self.prepare(sql))
    }

    /// Plans a query without running it and returns its schema.
    ///
    /// Errors: those of [`Self::query`].
    pub async fn describe(&self, sql: &str) -> Result<SchemaRef> {
        self.describe_with(sql, MissingFields::Refused).await
    }

    /// Returns the schema of a query as [`Self::describe`] does; `missing` is the treatment of fields and
    /// collections that do not exist.
    pub async fn describe_with(&self, sql: &str, missing: MissingFields) -> Result<SchemaRef> {
        let schema = |_: &Shared, planned: LogicalQuery| Ok(planned.plan.schema().inner().clone());
        self.planned(&QueryRequest::new(sql, missing), schema).await
    }

    /// Plans a query without hot data and values for its parameters, and returns what `then` makes of it.
    async fn planned<T: Send + 'static>(
        &self,
        request: &QueryRequest,
        then: fn(&Shared, LogicalQuery) -> Result<T>,
    ) -> Result<T> {
        let task = self.spawn_plan(request.clone(), then)?;
        let guard = AbortOnDrop(task.abort_handle());
        let planned = task.await.map_err(|_| self.shared.closing.ended_early())?;
        drop(guard);
        planned
    }

    /// Starts the task that plans a query and ends with what `then` makes of it.
    fn spawn_plan<T: Send + 'static>(
        &self,
        request: QueryRequest,
        then: fn(&Shared, LogicalQuery) -> Result<T>,
    ) -> Result<JoinHandle<Result<T>>> {
        let runtime = self.runtime.as_ref().ok_or_else(|| self.shared.closing.ended_early())?;
        let shared = self.shared.clone();
        Ok(runtime.spawn(async move {
            let limit = shared.options.query_timeout;
            let deadline = tokio::time::Instant::now() + limit;
            let planner = shared.clone();
            let plan = async move {
                let planned = planner.plan_alone(&request.text, request.missing, None).await?;
                then(&planner, planned)
            };
            let planned = tokio::time::timeout_at(deadline, shared.on_planning_thread(deadline, plan)).await;
            planned.unwrap_or_else(|_| Err(too_long(limit)))
        }))
    }

    /// Runs a query and collects its rows, for callers without an executor. Must not be called from async
    /// code.
    ///
    /// Errors: those of [`Self::query`] and [`QueryResult::collect`].
    pub fn query_blocking(&self, sql: &str) -> Result<QueryRows> {
        self.query_blocking_with(sql, MissingFields::Refused)
    }

    /// Runs a query as [`Self::query_blocking`] does; `missing` is the treatment of fields and collections
    /// that do not exist.
    pub fn query_blocking_with(&self, sql: &str, missing: MissingFields) -> Result<QueryRows> {
        futures::executor::block_on(async { self.query_with(sql, missing).await?.collect().await })
    }

    /// Returns the limits of the session.
    pub fn options(&self) -> &SqlOptions {
        &self.shared.options
    }
}

impl Drop for Sql {
    fn drop(&mut self) {
        // dropping the runtime would wait for running queries, and would panic inside async code
        self.shared.closing.begin();
        for runtime in [self.runtime.take(), self.timers.take()].into_iter().flatten() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    /// Plans and starts a query; `origin` is who sent it.
    pub async fn query(self: &Arc<Self>, request: QueryRequest, origin: &'static str) -> Result<QueryResult> {
        let (head_in, head) = oneshot::channel();
        let (messages_in, messages) = mpsc::channel(BATCHES_READY);
        let (statement, expired) = self.statements.begin(kept_text(&request.text), origin);
        let mut watchdog = self.watchdog(&statement, expired);
        let task = self.spawn_query(statement, request, head_in, messages_in)?;
        let schema = match futures::future::select(head, &mut watchdog.expired).await {
            Either::Left((Ok(head), _)) => head?,
            Either::Left((Err(_), _)) => return Err(watchdog.ended_early(&self.closing)),
            Either::Right((expired, _)) => return Err(expired.unwrap_or_else(|_| self.closing.ended_early())),
        };
        let bytes_max = self.options.collect_bytes_max;
        Ok(QueryResult::new(schema, messages, bytes_max, self.closing.clone(), watchdog, task))
    }

    /// Starts the task of a query; the task ends when the returned guard is dropped.
    ///
    /// Not `async`, as [`Sql::spawn_describe`]: every crate that awaits an `async` function compiles its body again,
    /// and with it the whole planner.
    fn spawn_query(
        self: &Arc<Self>,
        statement: RunningStatement,
        request: QueryRequest,
        head: oneshot::Sender<Result<SchemaRef>>,
        messages: mpsc::Sender<QueryMessage>,
    ) -> Result<AbortOnDrop> {
        if self.closing.has_begun() {
            return Err(self.closing.ended_early());
        }
        let shared = self.clone();
        let begun = statement.statement().clone();
        let task = self.threads.spawn(async move { shared.run(statement, request, head, messages).await });
        begun.set_task(task.abort_handle());
        Ok(AbortOnDrop(task.abort_handle()))
    }

    /// Starts the watchdog of a query that has just arrived.
    fn watchdog(&self, running: &RunningStatement, expired: oneshot::Receiver<Error>) -> Watchdog {
        let limit = self.options.query_timeout;
        let statement = running.statement().clone();
        let task = self.timers.spawn(async move {
            tokio::time::sleep(limit.saturating_add(WATCHDOG_GRACE)).await;
            statement.report(too_long(limit));
        });
        Watchdog { expired, _task: AbortOnDrop(task.abort_handle()) }
    }

    /// Runs the task of a query: sends the schema to `head`, then batches and the end to `messages`.
    async fn run(
        self: Arc<Self>,
        mut statement: RunningStatement,
        request: QueryRequest,
        head: oneshot::Sender<Result<SchemaRef>>,
        messages: mpsc::Sender<QueryMessage>,
    ) {
        let deadline = tokio::time::Instant::now() + self.options.query_timeout;
        let timeout = self.options.query_timeout;
        let started = tokio::time::timeout_at(deadline, self.start(&statement, &request, deadline)).await;
        let mut running = match started.unwrap_or_else(|_| Err(too_long(timeout))) {
            Ok(running) => {
                if head.send(Ok(running.stream.schema())).is_err() {
                    return;
                }
                running
            }
            Err(error) => {
                statement.set_outcome(Some(&error));
                drop(statement);
                // sending fails only if the reader is gone, and then the error has no receiver
                let _ = head.send(Err(error));
                return;
            }
        };
        let done =
            tokio::time::timeout_at(deadline, running.forward(&self.options, &messages, &statement)).await;
        let last = match done.unwrap_or_else(|_| Err(too_long(timeout))) {
            Ok(Forwarded::ReaderGone) => return,
            Ok(Forwarded::All) => {
                statement.set_outcome(None);
                QueryMessage::End
            }
            Err(error) => {
                let error = self.closing.explain(error);
                statement.set_outcome(Some(&error));
                QueryMessage::Failed(error)
            }
        };
        drop(statement);
        let _ = messages.send(last).await;
    }

    async fn start(
        self: &Arc<Self>,
        statement: &RunningStatement,
        request: &QueryRequest,
        deadline: tokio::time::Instant,
    ) -> Result<RunningQuery> {
        let (text, missing) = (request.text.as_ref(), request.missing);
        if let Some(id) = cancel::parse(text) {
            // waits for no place: those that run may have all of them
            let id = id?;
            self.statements.cancel(id, &format!("KILL QUERY {id} ({})", statement.statement().origin()))?;
            return Ok(RunningQuery {
                stream: one_row(cancel::result(id)?),
                files: Arc::default(),
                _permit: None,
            });
        }
        let permit = self.running.clone().acquire_owned().await.map_err(|_| self.closing.ended_early())?;
        let permit = Arc::new(permit);
        statement.set_phase(StatementPhase::Planning);
        let running = |stream, files| {
            statement.set_phase(StatementPhase::Running);
            RunningQuery { stream, files, _permit: Some(permit.clone()) }
        };
        if let Some(change) = Change::parse(text, self.options.text_bytes_max) {
            if !request.parameters.is_empty() {
                return Err(Error::invalid("DELETE and UPDATE take no parameters: write the values"));
            }
            return Ok(running(self.change(statement, change?, deadline).await?, Arc::default()));
        }
        // plans are kept by text, with the values in it
        let kept = self.plans.get(text, missing).filter(|_| request.parameters.is_empty());
        if let Some(plan) = kept {
            if let Some((stream, files)) = self.start_again(&plan).await? {
                return Ok(running(stream, files));
            }
            self.plans.remove(text, missing, &plan);
        }
        // how rows lie in hot data is known only once they are decoded: what the first plan cannot read there is then
        // planned again
        let hot = self.hot.as_ref();
        let accesses = [hot.map(HotAccess::all), hot.map(HotAccess::rows)];
        for hot in accesses.into_iter().flatten().map(Some).chain([None]) {
            let (planner, query, held) = (self.clone(), request.clone(), permit.clone());
            let plan = async move {
                let planned = planner.plan_physical(&query, hot).await?;
                // held until planning has ended, even if the query is over before
                drop(held);
                Ok(planned)
            };
            let planned = self.on_planning_thread(deadline, plan).await?;
            let files = planned.files.clone();
            if let Some(stream) = self.start_planned(&planned).await? {
                if let Some(plan) = planned.reusable {
                    self.plans.put(text, missing, Arc::new(plan));
                }
                return Ok(running(stream, files));
            }
        }
        Err(Error::internal("a plan without hot data asks for some"))
    }

    /// Deletes or changes stored events and returns how many, as a result of one row. What has begun when the deadline
    /// passes is finished.
    async fn change(
        self: &Arc<Self>,
        statement: &RunningStatement,
        change: Change,
        deadline: tokio::time::Instant,
    ) -> Result<SendableRecordBatchStream> {
        let planner = self.clone();
        let plan = async move { Ok((planner.plan_change(&change).await?, change)) };
        let ((stream, rewriter), change) = self.on_planning_thread(deadline, plan).await?;
        statement.set_phase(StatementPhase::Running);
        statement.begin_change();
        let tables = self.tables.clone();
        let rewrite = tokio::task::spawn_blocking(move || tables.rewrite(&stream, rewriter));
        let done = rewrite.await.map_err(|_| self.closing.ended_early())??;
        Ok(one_row(change.result(done.deleted + done.changed)?))
    }
}
