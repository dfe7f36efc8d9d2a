//! SQL session: plans each query against snapshots and runs it on its own threads, within its limits.

use std::fs::DirBuilder;
use std::future::Future;
use std::os::unix::fs::DirBuilderExt;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::execution::SessionState;
use datafusion::execution::disk_manager::{DiskManagerBuilder, DiskManagerMode};
use datafusion::execution::runtime_env::{RuntimeEnv, RuntimeEnvBuilder};
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::Optimizer;
use datafusion::physical_optimizer::PhysicalOptimizerRule;
use datafusion::physical_optimizer::optimizer::PhysicalOptimizer;
use datafusion::physical_plan::{SendableRecordBatchStream, execute_stream};
use datafusion::prelude::{SQLOptions, SessionConfig};
use futures::StreamExt;
use futures::future::Either;
use tidemill_types::{Error, Result};
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::catalog::{CATALOG, DEFAULT_SCHEMA, QueryCatalog, QuerySnapshots};
use crate::deadline::Deadline;
use crate::error::from_datafusion;
use crate::events::OpenFiles;
use crate::memory::QueryMemory;
use crate::query::{AbortOnDrop, ClosingFlag, QueryMessage, QueryResult, QueryRows, Watchdog};
use crate::{
    MissingFields, SqlOptions, Tables, batch_size, deadline, functions, names, parse, rerun, stack, tree,
};

/// Finished batches buffered per query for a slow reader.
const BATCHES_READY: usize = 2;
/// How much longer than its timeout a query may take to say so before its watchdog does.
const WATCHDOG_GRACE: Duration = Duration::from_millis(500);

/// Maximum number of names in one query that are corrected to another case or treated as missing fields.
const NAME_FIXES_MAX: usize = 64;

/// SQL session over [`Tables`]. Queries run on its own threads; dropping it stops them.
pub struct Sql {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
    /// One thread for the [`Watchdog`]s.
    timers: Option<Runtime>,
}

struct Shared {
    tables: Arc<dyn Tables>,
    options: SqlOptions,
    state: SessionState,
    running: Arc<Semaphore>,
    /// Permits for concurrent planning: as many as there are threads to run queries.
    planning: Arc<Semaphore>,
    closing: ClosingFlag,
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
        let running = Arc::new(Semaphore::new(options.queries_max.max(1)));
        let planning = Arc::new(Semaphore::new(options.target_partitions.max(1)));
        let shared =
            Arc::new(Shared { tables, options, state, running, planning, closing: ClosingFlag::default() });
        let timers = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sql-timers")
            .enable_time()
            .build()
            .map_err(|e| Error::unavailable("the timers of queries cannot be started").with_source(e))?;
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
        let closing = &self.shared.closing;
        let (head_in, head) = oneshot::channel();
        let (messages_in, messages) = mpsc::channel(BATCHES_READY);
        let task = self.spawn_query(sql, missing, head_in, messages_in)?;
        let mut watchdog = self.watchdog()?;
        let schema = match futures::future::select(head, &mut watchdog.expired).await {
            Either::Left((head, _)) => head.map_err(|_| closing.ended_early())??,
            Either::Right((expired, _)) => return Err(expired.unwrap_or_else(|_| closing.ended_early())),
        };
        let bytes_max = self.shared.options.collect_bytes_max;
        Ok(QueryResult::new(schema, messages, bytes_max, closing.clone(), watchdog, task))
    }

    /// Starts the task of a query; the task ends when the returned guard is dropped.
    ///
    /// Not `async`, as [`Self::spawn_describe`]: every crate that awaits an `async` function compiles its body again,
    /// and with it the whole planner.
    fn spawn_query(
        &self,
        sql: &str,
        missing: MissingFields,
        head: oneshot::Sender<Result<SchemaRef>>,
        messages: mpsc::Sender<QueryMessage>,
    ) -> Result<AbortOnDrop> {
        let runtime = self.runtime.as_ref().ok_or_else(|| self.shared.closing.ended_early())?;
        let (shared, text) = (self.shared.clone(), sql.to_owned());
        let task = runtime.spawn(async move { shared.run(text, missing, head, messages).await });
        Ok(AbortOnDrop(task.abort_handle()))
    }

    /// Starts the watchdog of a query that has just arrived.
    fn watchdog(&self) -> Result<Watchdog> {
        let timers = self.timers.as_ref().ok_or_else(|| self.shared.closing.ended_early())?;
        let limit = self.shared.options.query_timeout;
        let (report, expired) = oneshot::channel();
        let task = timers.spawn(async move {
            tokio::time::sleep(limit.saturating_add(WATCHDOG_GRACE)).await;
            // the query has ended if this fails
            let _ = report.send(too_long(limit));
        });
        Ok(Watchdog { expired, _task: AbortOnDrop(task.abort_handle()) })
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
        let task = self.spawn_describe(sql, missing)?;
        let guard = AbortOnDrop(task.abort_handle());
        let schema = task.await.map_err(|_| self.shared.closing.ended_early())?;
        drop(guard);
        schema
    }

    /// Starts the task that plans a query and ends with its schema.
    fn spawn_describe(&self, sql: &str, missing: MissingFields) -> Result<JoinHandle<Result<SchemaRef>>> {
        let runtime = self.runtime.as_ref().ok_or_else(|| self.shared.closing.ended_early())?;
        let (shared, text) = (self.shared.clone(), sql.to_owned());
        Ok(runtime.spawn(async move {
            let limit = shared.options.query_timeout;
            let deadline = tokio::time::Instant::now() + limit;
            let planner = shared.clone();
            let plan = async move {
                let (_, plan, _) = planner.plan_alone(&text, missing).await?;
                Ok(plan.schema().inner().clone())
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
    /// Runs the task of a query: sends the schema to `head`, then batches and the end to `messages`.
    async fn run(
        self: Arc<Self>,
        text: String,
        missing: MissingFields,
        head: oneshot::Sender<Result<SchemaRef>>,
        messages: mpsc::Sender<QueryMessage>,
    ) {
        let deadline = tokio::time::Instant::now() + self.options.query_timeout;
        let timeout = self.options.query_timeout;
        let started = tokio::time::timeout_at(deadline, self.start(&text, missing, deadline)).await;
        let mut running = match started.unwrap_or_else(|_| Err(too_long(timeout))) {
            Ok(running) => {
                if head.send(Ok(running.stream.schema())).is_err() {
                    return;
                }
                running
            }
            Err(error) => {
                // sending fails only if the reader is gone, and then the error has no receiver
                let _ = head.send(Err(error));
                return;
            }
        };
        let done = tokio::time::timeout_at(deadline, running.forward(&self.options, &messages)).await;
        let last = match done.unwrap_or_else(|_| Err(too_long(timeout))) {
            Ok(()) => QueryMessage::End,
            Err(error) => QueryMessage::Failed(self.closing.explain(error)),
        };
        let _ = messages.send(last).await;
    }

    async fn start(
        self: &Arc<Self>,
        text: &str,
        missing: MissingFields,
        deadline: tokio::time::Instant,
    ) -> Result<RunningQuery> {
        let permit = self.running.clone().acquire_owned().await.map_err(|_| self.closing.ended_early())?;
        let (planner, text) = (self.clone(), text.to_owned());
        let plan = async move {
            let (mut state, plan, files) = planner.plan_alone(&text, missing).await?;
            let physical = async {
                let plan = state.optimize(&plan)?;
                let rows = batch_size::rows_per_batch(
                    &plan,
                    state.config().batch_size(),
                    planner.options.function_bytes,
                )?;
                state.config_mut().options_mut().execution.batch_size = ConfigNonZeroUsize::try_new(rows)?;
                state.query_planner().create_physical_plan(&plan, &state).await
            };
            let physical = physical.await.map_err(|e| from_datafusion(&e, Some(&text)))?;
            // held until planning has ended, even if the query is over before
            Ok((physical, state.task_ctx(), files, permit))
        };
        let (physical, context, files, permit) = self.on_planning_thread(deadline, plan).await?;
        let stream = execute_stream(physical, context).map_err(|e| from_datafusion(&e, None))?;
        Ok(RunningQuery { stream, files, _permit: permit })
    }

    /// Runs `plan` on its own thread, so that it cannot delay other queries or the timeout of its own.
    async fn on_planning_thread<T: Send + 'static>(
        &self,
        deadline: tokio::time::Instant,
        plan: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        let place = self.planning.clone().acquire_owned().await.map_err(|_| self.closing.ended_early())?;
        let (deadline, _waiting) = Deadline::at(deadline);
        let runtime = tokio::runtime::Handle::current();
        let planned = tokio::task::spawn_blocking(move || {
            let _place = place;
            runtime.block_on(deadline.scope(plan))
        });
        planned.await.map_err(|_| self.closing.ended_early())?
    }

    /// Plans `text` against new snapshots.
    async fn plan_alone(
        &self,
        text: &str,
        missing: MissingFields,
    ) -> Result<(SessionState, LogicalPlan, Arc<OpenFiles>)> {
        let files = Arc::new(OpenFiles::default());
        let snapshots = QuerySnapshots::new(self.tables.clone(), files.clone(), missing);
        let mut state = self.state.clone();
        state.register_catalog_list(Arc::new(QueryCatalog(snapshots.clone())));
        state.mark_start_execution();
        let plan = self.plan(&state, &snapshots, text).await?;
        Ok((state, plan, files))
    }

    async fn plan(
        &self,
        state: &SessionState,
        snapshots: &QuerySnapshots,
        text: &str,
    ) -> Result<LogicalPlan> {
        let mut statement = parse::parse(state, text, self.options.text_bytes_max)?;
        names::check_tables(state, snapshots, &statement, text)?;
        tree::make_lists(&mut statement);
        let mut corrections = 0;
        let plan = loop {
            let error = match state.statement_to_plan(statement.clone()).await {
                Ok(plan) => break plan,
                Err(error) => error,
            };
            deadline::check().map_err(|e| from_datafusion(&e, None))?;
            corrections += 1;
            let corrected = names::correct_case(&mut statement, &error) || snapshots.add_missing(&error);
            if corrections > NAME_FIXES_MAX || !corrected {
                return Err(from_datafusion(&error, Some(text)));
            }
        };
        // the parser accepts only queries; this check holds even if a planner rule turns one into another
        // statement
        SQLOptions::new()
            .with_allow_ddl(false)
            .with_allow_dml(false)
            .with_allow_statements(false)
            .verify_plan(&plan)
            .and_then(|()| functions::unions_to_text(plan))
            .map_err(|e| from_datafusion(&e, Some(text)))
    }
}

/// A query that has started to produce batches.
struct RunningQuery {
    stream: SendableRecordBatchStream,
    files: Arc<OpenFiles>,
    _permit: OwnedSemaphorePermit,
}

impl RunningQuery {
    /// Forwards the batches to `messages`. Returns `Ok` when the reader is gone.
    async fn forward(&mut self, options: &SqlOptions, messages: &mpsc::Sender<QueryMessage>) -> Result<()> {
        let mut rows = 0_usize;
        while let Some(batch) = self.stream.next().await {
            let batch: RecordBatch = match batch {
                Ok(batch) => batch,
                Err(error) => return Err(self.files.name_damaged(from_datafusion(&error, None)).await),
            };
            rows += batch.num_rows();
            if let Some(most) = options.rows_max.filter(|most| rows > *most) {
                return Err(Error::limit(format!(
                    "the query returns more than {most} rows (`sql.rows_max`): add LIMIT or aggregate"
                )));
            }
            if batch.num_rows() > 0 && messages.send(QueryMessage::Batch(batch)).await.is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn too_long(limit: Duration) -> Error {
    Error::limit(format!(
        "the query took longer than {limit:?} (`sql.query_timeout`): select a shorter time range, or raise the limit"
    ))
}

/// Creates the memory pool, the spill space and the object store, which all queries share.
fn environment(tables: &dyn Tables, options: &SqlOptions) -> Result<Arc<RuntimeEnv>> {
    let mode = match &options.spill_dir {
        Some(dir) => {
            DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(|e| {
                Error::unavailable(format!("the spill directory {} cannot be made", dir.display()))
                    .with_source(e)
            })?;
            DiskManagerMode::Directories(vec![dir.clone()])
        }
        None => DiskManagerMode::Disabled,
    };
    let disk =
        DiskManagerBuilder::default().with_mode(mode).with_max_temp_directory_size(options.spill_bytes);
    let environment = RuntimeEnvBuilder::new()
        .with_memory_pool(Arc::new(QueryMemory::new(options.memory_bytes)))
        .with_disk_manager_builder(disk)
        .build_arc()
        .map_err(|e| from_datafusion(&e, None))?;
    let (url, store) = tables.object_store();
    environment.register_object_store(&url, store);
    Ok(environment)
}

fn session_state(options: &SqlOptions, environment: Arc<RuntimeEnv>) -> Result<SessionState> {
    let mut config = SessionConfig::new()
        .with_target_partitions(options.target_partitions.max(1))
        .with_default_catalog_and_schema(CATALOG, DEFAULT_SCHEMA)
        .with_create_default_catalog_and_schema(false)
        .with_information_schema(true);
    let settings = config.options_mut();
    // names keep their case, so that events.TakeOffEvent needs no quotes; `names` corrects the rest
    settings.sql_parser.enable_ident_normalization = false;
    settings.sql_parser.collect_spans = true;
    settings.execution.time_zone = Some("UTC".to_owned());
    // late materialization: other columns are decoded only for rows that pass the filter
    settings.execution.parquet.pushdown_filters = true;
    settings.explain.show_sizes = false;
    // a session with little memory must not spend it all on reservations for merging spilled data
    let reserve = options.memory_bytes / (8 * options.target_partitions.max(1));
    settings.execution.sort_spill_reservation_bytes =
        reserve.min(settings.execution.sort_spill_reservation_bytes);
    let mut physical = deadline::physical(PhysicalOptimizer::new().rules);
    physical.push(Arc::new(rerun::AllowRerun) as Arc<dyn PhysicalOptimizerRule + Send + Sync>);
    let mut state = SessionStateBuilder::new()
        .with_config(config)
        .with_runtime_env(environment)
        .with_default_features()
        .with_expr_planners(functions::planners())
        .with_analyzer_rule(Arc::new(functions::BoundFunctions { bytes_max: options.function_bytes }))
        .with_optimizer_rules(deadline::logical(Optimizer::new().rules))
        .with_physical_optimizer_rules(physical)
        .build();
    functions::register(&mut state).map_err(|e| from_datafusion(&e, None))?;
    Ok(state)
}
