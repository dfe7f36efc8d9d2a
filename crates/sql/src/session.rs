//! SQL session: plans each query against snapshots and runs it on its own threads, within its limits.

use std::future::Future;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use bytes::Bytes;
use datafusion::execution::SessionState;
use futures::future::{Abortable, Either};
use tidemill_access::{Access, Action, Principal};
use tidemill_database::{Description, HeldMoment, OpenStream, StagedInsert, is_insert};
use tidemill_types::{Error, Result};
use tokio::runtime::{Handle, Runtime};
use tokio::sync::{mpsc, oneshot};

use crate::catalog::DEFAULT_SCHEMA;
use crate::change::Change;
use crate::error::too_long;
use crate::events::TabletWidths;
use crate::execution::cancel;
use crate::execution::counted_memory::CountedMemory;
use crate::execution::fragment_places::FragmentPlaces;
use crate::execution::limits::StatementLimits;
use crate::execution::pages::{KeptStatements, PageDemand};
use crate::execution::running::{Forwarded, RunningQuery, shown};
use crate::execution::statements::{RunningStatement, Statement, Statements, kept_text};
use crate::execution::threads::{self, StatementThreads};
use crate::execution::work::{Places, Work};
use crate::held_moment::{HeldMoments, MomentContent};
use crate::hot::HotStore;
use crate::live::Tails;
use crate::output::{Encoder, Format};
use crate::pg_catalog::{self, FunctionKind};
use crate::plans::logical_query::LogicalQuery;
use crate::plans::origins::{self, KnownOids, Origins};
use crate::plans::parameters::ParameterTypes;
use crate::plans::plan_cache::PlanCache;
use crate::plans::prepared::Prepared;
use crate::plans::reusable_plan::ReusablePlan;
use crate::plans::template::KeptTemplate;
use crate::query::{
    AbortOnDrop, ClosingFlag, EncodedQuery, PagedQuery, QueryMessage, QueryRequest, QueryResult, QueryRows,
    ResultHead, StagedRows, Watchdog,
};
use crate::session_state::{environment, one_thread, session_state};
use crate::session_tables::SessionTables;
use crate::visible_tables::VisibleTables;
use crate::{MissingFields, SqlOptions, StatementInfo, StatementPhase, Tables, execution::stack};

/// Finished batches buffered per query for a slow reader.
const BATCHES_READY: usize = 2;
/// Origin of statements whose caller does not name one.
const PROGRAM: &str = "program";
/// Threads for the tasks of long statements beside one for each processor, so that a task whose step takes long does not
/// hold up those of others.
const TASK_THREADS: usize = 8;

/// SQL session over [`Tables`]. Queries run on its own threads; dropping it stops them.
pub struct Sql {
    shared: Arc<Shared>,
    runtime: Option<Runtime>,
    /// One thread for the [`Watchdog`]s.
    timers: Option<Runtime>,
}

/// State shared by all queries of a session.
pub(crate) struct Shared {
    pub tables: Arc<dyn Tables>,
    pub options: SqlOptions,
    pub state: SessionState,
    /// The state for prepared queries that ask for few rows.
    pub lookup_state: SessionState,
    /// Decoded rows of event tables; `None` if nothing is to be kept.
    pub hot: Option<Arc<HotStore>>,
    pub plans: PlanCache<ReusablePlan>,
    /// Those of statements with parameters, by their values, too: many different values do not drive the others out.
    pub bound_plans: PlanCache<ReusablePlan>,
    /// Templates of statements with parameters that ask for rows by keys or ids; `None` for other statements.
    pub lookups: PlanCache<Option<KeptTemplate>>,
    /// Numbers of tables, for clients that ask where columns come from.
    pub oids: KnownOids,
    pub places: Arc<Places>,
    /// Places of parts of other nodes' statements.
    pub fragments: FragmentPlaces,
    pub widths: TabletWidths,
    pub closing: ClosingFlag,
    pub moments: Arc<HeldMoments>,
    /// Statements over new rows of streams.
    pub tails: Tails,
    pub statements: Arc<Statements>,
    /// Statements that wait for the demand of their next page.
    pub kept: Arc<KeptStatements>,
    /// Functions of SQL, for the catalogs.
    pub functions: Arc<[(String, FunctionKind)]>,
    /// Threads that plan queries and run them.
    pub statement_threads: StatementThreads,
    /// Threads of the tasks that queries start.
    pub threads: Handle,
    /// Thread of the [`Watchdog`]s, and of the deadlines of prepared queries.
    pub timers: Handle,
}

impl Sql {
    /// Opens a session.
    ///
    /// Errors: `Unavailable` when threads cannot be started or the spill directory cannot be created.
    pub fn new(tables: Arc<dyn Tables>, options: SqlOptions) -> Result<Self> {
        let limits = StatementLimits::new(options.memory_bytes, options.queries_max);
        Self::with_limits(tables, options, &limits)
    }

    /// Opens a session whose statements share memory and places with those of other sessions; [`SqlOptions::memory_bytes`] and
    /// [`SqlOptions::queries_max`] are then those of `limits`.
    ///
    /// Errors: those of [`Self::new`].
    pub fn with_limits(
        tables: Arc<dyn Tables>,
        options: SqlOptions,
        limits: &StatementLimits,
    ) -> Result<Self> {
        let StatementLimits { memory_bytes, queries_max, .. } = *limits;
        let options = SqlOptions { memory_bytes, queries_max, ..options };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(options.target_partitions.max(1) + TASK_THREADS)
            .thread_name("sql")
            .on_thread_start(threads::lower_priority)
            .thread_stack_size(stack::THREAD_BYTES)
            // one step of a join may take long; at the default of 61 steps between two looks at timers and new tasks,
            // those would wait for seconds
            .event_interval(1)
            .global_queue_interval(1)
            .enable_all()
            .build()
            .map_err(|e| Error::unavailable("the threads for queries cannot be started").with_source(e))?;
        let state = session_state(&options, environment(tables.as_ref(), &options, limits)?)?;
        let lookup_state = one_thread(&state);
        let statements = Arc::new(Statements::default());
        let tables = Arc::new(SessionTables { tables, statements: statements.clone() });
        let timers = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("sql-timers")
            .enable_time()
            .build()
            .map_err(|e| Error::unavailable("the timers of queries cannot be started").with_source(e))?;
        let shared = Arc::new(Shared {
            tables,
            hot: HotStore::new(options.hot_bytes),
            functions: pg_catalog::functions_of(&state).into(),
            plans: PlanCache::new(options.cached_plans),
            bound_plans: PlanCache::new(options.cached_plans),
            lookups: PlanCache::new(options.cached_plans),
            kept: limits.kept.clone(),
            oids: KnownOids::default(),
            options,
            state,
            lookup_state,
            places: limits.places.clone(),
            fragments: FragmentPlaces::default(),
            widths: TabletWidths::default(),
            closing: ClosingFlag::default(),
            moments: Arc::default(),
            tails: Tails::default(),
            statements,
            statement_threads: StatementThreads::default(),
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
        self.run(tidemill_database::QueryRequest::new(sql, PROGRAM, Principal::system())).await
    }

    /// Plans and starts the statement of a request.
    ///
    /// Errors: those of [`Self::query`]; `Invalid` for another number of values than it has parameters, and for a value that is not
    /// of its parameter's type.
    pub async fn run(&self, request: tidemill_database::QueryRequest) -> Result<QueryResult> {
        let origin = request.origin;
        self.shared.query(request.into(), origin).await
    }

    /// Plans and starts the statement of a request, and returns its result as bytes in this format. They are made by the
    /// query's thread, in pieces.
    ///
    /// Errors: those of [`Self::run`].
    pub async fn run_encoded(
        &self,
        request: tidemill_database::QueryRequest,
        format: Format,
    ) -> Result<EncodedQuery> {
        let origin = request.origin;
        let request = QueryRequest { format: Some(format), ..request.into() };
        let result = self.shared.query(request, origin).await?;
        Ok(EncodedQuery { result, format })
    }

    /// Plans and starts the statement of a request, and returns its result as pages of at most `page_rows` rows in this format. Between two
    /// pages it rests, without a limit of time: it is for the caller to drop it.
    ///
    /// Errors: those of [`Self::run`].
    pub async fn run_paged(
        &self,
        request: tidemill_database::QueryRequest,
        format: Format,
        page_rows: NonZeroUsize,
    ) -> Result<PagedQuery> {
        let (origin, demand) = (request.origin, PageDemand::new(page_rows));
        let request = QueryRequest { format: Some(format), pages: Some(demand.clone()), ..request.into() };
        let result = self.shared.query(request, origin).await?;
        let shared = self.shared.clone();
        let start_time = Box::new(move |statement: &Arc<Statement>| shared.time_limit(statement));
        Ok(PagedQuery::new(EncodedQuery { result, format }, demand, start_time))
    }

    /// Sets the users whose rights are looked at while a statement over new rows of a stream runs. The first call counts.
    pub fn follow_access(&self, access: Arc<Access>) {
        self.shared.tails.follow_access(access);
    }

    /// Ends the statements over new rows of streams, which have no end of their own, and refuses new ones: the program stops.
    pub fn end_tails(&self) {
        self.shared.tails.end_all();
    }

    /// Returns the statements that run and the last that have ended, by number, of those that the caller manages: its own, or
    /// all as an administrator.
    pub fn statements(&self, principal: &Principal) -> Vec<StatementInfo> {
        self.shared.statements.list_of(principal)
    }

    /// Cancels a statement that runs and that the caller manages. Its reader gets an error of kind `Conflict`: "was cancelled by" and `by`.
    ///
    /// Errors: `NotFound` if no such statement runs.
    pub fn cancel(&self, id: u64, principal: &Principal, by: &str) -> Result<()> {
        self.shared.statements.cancel(id, principal, by)
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
        Ok(self.described(QueryRequest::new(sql, missing)).await?.columns)
    }

    /// Returns parameters and columns of the statement of a request.
    ///
    /// Errors: those of [`Self::query`].
    pub async fn describe_request(&self, request: tidemill_database::QueryRequest) -> Result<Description> {
        self.described(request.into()).await
    }

    async fn described(&self, request: QueryRequest) -> Result<Description> {
        if is_insert(&request.text) {
            let job = |shared: Arc<Shared>, request: QueryRequest| async move {
                shared.describe_insert(&request).await
            };
            return self.on_thread(&request, job).await;
        }
        let asks_origins = request.asks_origins;
        let description = move |shared: &Shared, planned: LogicalQuery| {
            let parameters = ParameterTypes::described(&planned.plan)?;
            let columns = pg_catalog::without_marks(planned.plan.schema().inner());
            let origins = match asks_origins {
                true => {
                    shared.oids.numbered(&origins::of_plan(&planned.plan, &planned.snapshots), &shared.tables)
                }
                false => Vec::new(),
            };
            Ok(Description { parameters, columns, origins })
        };
        self.planned(&request, description).await
    }

    /// Takes the tables and collections that the caller may read at one moment, for several statements.
    ///
    /// Errors: those of [`tidemill_database::Database::hold_moment`].
    pub async fn hold_moment(&self, principal: &Principal) -> Result<HeldMoment> {
        let request = QueryRequest {
            principal: principal.clone(),
            ..QueryRequest::new("BEGIN ISOLATION LEVEL REPEATABLE READ", MissingFields::Refused)
        };
        let job = |shared: Arc<Shared>, request: QueryRequest| async move {
            let tables = shared.visible(shared.tables.clone(), &request.principal);
            let Shared { moments, options, timers, .. } = &*shared;
            MomentContent::take(tables.as_ref(), moments, options, timers)
        };
        Ok(HeldMoment::new(Arc::new(self.on_thread(&request, job).await?)))
    }

    /// Checks the rows of an `INSERT` without sending them.
    ///
    /// Errors: those of [`Self::run`]; `Invalid` for another statement, and for a row that does not fit, unless bad rows are kept.
    pub async fn stage(&self, request: tidemill_database::QueryRequest) -> Result<StagedInsert> {
        if !is_insert(&request.text) {
            return Err(Error::invalid("expected INSERT"));
        }
        let (origin, staged) = (request.origin, StagedRows::default());
        let request = QueryRequest { staged: Some(staged.clone()), ..request.into() };
        self.shared.query(request, origin).await?.collect().await?;
        staged.take().ok_or_else(|| Error::internal("an INSERT has ended without its rows"))
    }

    /// Returns the stream that a statement names, for a caller who may write it.
    ///
    /// Errors: those of [`tidemill_database::Database::open_stream`].
    pub fn open_stream(&self, schema: Option<&str>, name: &str, principal: &Principal) -> Result<OpenStream> {
        self.shared.open_stream(schema.unwrap_or(DEFAULT_SCHEMA), name, principal)
    }

    /// Plans a query without hot data and values for its parameters, and returns what `then` makes of it.
    async fn planned<T: Send + 'static>(
        &self,
        request: &QueryRequest,
        then: impl FnOnce(&Shared, LogicalQuery) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let job = move |shared: Arc<Shared>, request: QueryRequest| async move {
            then(&shared, shared.plan_alone(&request, None).await?)
        };
        self.on_thread(request, job).await
    }

    /// Returns what `job` makes of a request on a thread of queries, within the time of a query.
    async fn on_thread<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        &self,
        request: &QueryRequest,
        job: impl FnOnce(Arc<Shared>, QueryRequest) -> F + Send + 'static,
    ) -> Result<T> {
        let shared = &self.shared;
        let statement = shared.statements.unlisted(kept_text(&request.text), shared.options.query_timeout);
        let _reader = statement.reader();
        let (done_in, done) = oneshot::channel();
        shared.start_thread(Work::new(statement, shared.places.clone()), {
            let (shared, request) = (shared.clone(), request.clone());
            move |_| async move {
                // its caller has gone if this fails
                let _ = done_in.send(job(shared, request).await);
            }
        })?;
        let limit = shared.options.query_timeout;
        let timeout = {
            let _timers = shared.timers.enter();
            tokio::time::timeout(limit, done)
        };
        timeout.await.map_err(|_| too_long(limit))?.map_err(|_| shared.closing.ended_early())?
    }

    /// Runs a query and collects its rows, for callers without an executor. Must not be called from async
    /// code.
    ///
    /// Errors: those of [`Self::query`] and [`QueryResult::collect`].
    pub fn query_blocking(&self, sql: &str) -> Result<QueryRows> {
        futures::executor::block_on(async { self.query(sql).await?.collect().await })
    }

    /// Returns what the queries of the session share.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Returns the limits of the session.
    pub fn options(&self) -> &SqlOptions {
        &self.shared.options
    }
}

/// Returns a result of one batch as bytes.
fn bytes_of(rows: &RecordBatch, format: Format) -> Result<Bytes> {
    let mut encoder = Encoder::new(format, &rows.schema())?;
    let begin = encoder.encode(rows)?;
    Ok([begin, encoder.finish()?].concat().into())
}

impl Drop for Sql {
    fn drop(&mut self) {
        // dropping the runtime would wait for running queries, and would panic inside async code
        self.shared.closing.begin();
        self.shared.statements.stop_all();
        for runtime in [self.runtime.take(), self.timers.take()].into_iter().flatten() {
            runtime.shutdown_background();
        }
    }
}

impl Shared {
    /// Returns the tables that a request may be about, and those that its caller may read.
    ///
    /// Errors: `Conflict` when the time of its moment is over.
    pub fn tables_of(&self, request: &QueryRequest) -> Result<(Arc<dyn Tables>, Arc<dyn Tables>)> {
        let all = match &request.moment {
            Some(moment) => moment.tables(self.tables.clone())?,
            None => self.tables.clone(),
        };
        let visible = self.visible(all.clone(), &request.principal);
        Ok((all, visible))
    }

    /// Returns those of `tables` that the caller may read.
    pub fn visible(&self, tables: Arc<dyn Tables>, principal: &Principal) -> Arc<dyn Tables> {
        if principal.can_everywhere(Action::Administer) {
            return tables;
        }
        let statements = self.statements.clone();
        Arc::new(VisibleTables { tables, statements, principal: principal.clone() })
    }

    /// Plans and starts a query; `origin` is who sent it.
    pub async fn query(self: &Arc<Self>, request: QueryRequest, origin: &'static str) -> Result<QueryResult> {
        // the time of a statement with pages is that of each page, and its watchdog's alone
        let limit = match request.pages {
            Some(_) => Duration::MAX,
            None => self.options.query_timeout,
        };
        let (head_in, head) = oneshot::channel();
        let (messages_in, messages) = mpsc::channel(BATCHES_READY);
        let (statement, expired) =
            self.statements.begin(kept_text(&request.text), origin, &request.principal, limit);
        let reader = statement.reader();
        let task = Some(self.time_limit(statement.statement()));
        let mut watchdog = Watchdog { expired, task };
        match cancel::parse(&request.text) {
            Some(id) => self.cancel((&statement, id), &request, head_in, &messages_in),
            None => self.start_query(statement, request, head_in, messages_in)?,
        }
        let head = match futures::future::select(head, &mut watchdog.expired).await {
            Either::Left((Ok(head), _)) => head?,
            Either::Left((Err(_), _)) => return Err(watchdog.ended_early(&self.closing)),
            Either::Right((expired, _)) => return Err(expired.unwrap_or_else(|_| self.closing.ended_early())),
        };
        if head.is_endless {
            watchdog.task = None;
        }
        let bytes_max = self.options.collect_bytes_max;
        Ok(QueryResult::new(head, messages, bytes_max, self.closing.clone(), watchdog, reader))
    }

    /// Cancels the statement `id`. It needs no thread and no place: those that run may have all of them.
    fn cancel(
        &self,
        (statement, id): (&RunningStatement, Result<u64>),
        request: &QueryRequest,
        head: oneshot::Sender<Result<ResultHead>>,
        messages: &mpsc::Sender<QueryMessage>,
    ) {
        let by = |id: u64| format!("KILL QUERY {id} ({})", statement.statement().origin());
        let cancelled = |id| self.statements.cancel(id, &request.principal, &by(id));
        let done = id.and_then(|id| cancelled(id).and_then(|()| cancel::result(id)));
        statement.set_outcome(done.as_ref().err());
        // the receivers are the caller's, and the channel has room for both messages
        let _ = match done {
            Ok(row) => {
                statement.add_rows(row.num_rows());
                let schema = row.schema();
                let result = match request.format {
                    None => QueryMessage::Batch(row),
                    Some(format) => match bytes_of(&row, format) {
                        Ok(bytes) => QueryMessage::Encoded(bytes),
                        Err(error) => QueryMessage::Failed(error),
                    },
                };
                head.send(Ok(ResultHead::new(schema, Vec::new()))).is_ok()
                    && [result, QueryMessage::End]
                        .into_iter()
                        .all(|message| messages.try_send(message).is_ok())
            }
            Err(error) => head.send(Err(error)).is_ok(),
        };
    }

    /// Starts a query on a thread.
    ///
    /// Not `async`: every crate that awaits an `async` function compiles its body again, and with it the whole planner.
    fn start_query(
        self: &Arc<Self>,
        statement: Arc<RunningStatement>,
        request: QueryRequest,
        head: oneshot::Sender<Result<ResultHead>>,
        messages: mpsc::Sender<QueryMessage>,
    ) -> Result<()> {
        let shared = self.clone();
        let memory =
            request.pages.is_some().then(|| CountedMemory::new(&self.state.runtime_env().memory_pool));
        let work = Work::with_memory(statement, self.places.clone(), memory);
        self.start_thread(work, move |work| shared.run(work, request, head, messages))
    }

    /// Runs what `job` returns on a thread of its own, once there is a place, until the statement of `work` ends.
    pub fn start_thread<F: Future<Output = ()> + Send + 'static>(
        self: &Arc<Self>,
        work: Arc<Work>,
        job: impl FnOnce(Arc<Work>) -> F + Send + 'static,
    ) -> Result<()> {
        if self.closing.has_begun() {
            return Err(self.closing.ended_early());
        }
        let tasks = self.threads.clone();
        let body = {
            let work = work.clone();
            move || {
                let running = Abortable::new(job(work.clone()), work.statement().statement().on_end());
                let _turn = work.enter();
                // dropped here: what is left of an aborted statement is freed by its own thread
                let _ = tasks.block_on(running);
            }
        };
        if let Some(place) = work.places().try_begin() {
            work.set_begun(place);
            return self.statement_threads.run(body);
        }
        let shared = self.clone();
        self.timers.spawn(async move {
            let statement = work.statement().statement().clone();
            let Ok(Some(place)) = Abortable::new(work.places().begin(), statement.on_end()).await else {
                return;
            };
            work.set_begun(place);
            if let Err(error) = shared.statement_threads.run(body) {
                statement.fail(error);
            }
        });
        Ok(())
    }

    /// Starts what ends a statement when its time is over.
    pub fn time_limit(&self, statement: &Arc<Statement>) -> AbortOnDrop {
        let limit = self.options.query_timeout;
        let statement = statement.clone();
        let task = self.timers.spawn(async move {
            tokio::time::sleep(limit).await;
            statement.expire(too_long(limit), limit);
        });
        AbortOnDrop(task.abort_handle())
    }

    /// Runs a query: sends the schema to `head`, then batches and the end to `messages`.
    async fn run(
        self: Arc<Self>,
        work: Arc<Work>,
        request: QueryRequest,
        head: oneshot::Sender<Result<ResultHead>>,
        messages: mpsc::Sender<QueryMessage>,
    ) {
        let statement = work.statement();
        let started = match self.follow(&work, &request).await {
            Ok(Some(follower)) => {
                let head_of_rows = ResultHead {
                    is_endless: true,
                    ..ResultHead::new(follower.steps.schema.clone(), Vec::new())
                };
                if head.send(Ok(head_of_rows)).is_ok() {
                    self.spawn_follower(work.clone(), follower, request.format, messages);
                }
                return;
            }
            Ok(None) => self.start(&work, &request).await,
            Err(error) => Err(error),
        };
        let mut running = match started {
            Ok(running) => {
                let origins = match request.asks_origins {
                    true => self.oids.numbered(&running.origins, &self.tables),
                    false => Vec::new(),
                };
                if head.send(Ok(ResultHead::new(running.stream.schema(), origins))).is_err() {
                    return;
                }
                running
            }
            Err(error) => {
                statement.set_outcome(Some(&error));
                // sending fails only if the reader is gone, and then the error has no receiver
                let _ = head.send(Err(error));
                return;
            }
        };
        let forwarded = match request.format.zip(request.pages) {
            Some((format, demand)) => {
                let keep = || self.kept.keep(&work);
                running.forward_pages(&self.options, (format, &demand), &messages, &work, keep).await
            }
            None => running.forward(&self.options, request.format, &messages, &work).await,
        };
        let last = match forwarded {
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
        // its memory and its place are free before its reader knows of the end
        drop(running);
        drop(work);
        let _ = messages.send(last).await;
    }

    async fn start(self: &Arc<Self>, work: &Arc<Work>, request: &QueryRequest) -> Result<RunningQuery> {
        let (text, missing) = (request.text.as_ref(), request.missing);
        let statement = work.statement();
        statement.set_phase(StatementPhase::Planning);
        let running = |stream, files, origins| {
            statement.set_phase(StatementPhase::Running);
            RunningQuery { stream: shown(stream), files, origins }
        };
        let without_table = || Origins::from([]);
        if let Some(change) = Change::parse(text, self.options.text_bytes_max) {
            if !request.parameters.is_empty() {
                return Err(Error::invalid("DELETE and UPDATE take no parameters: write the values"));
            }
            return Ok(running(self.change(work, change?, request).await?, Arc::default(), without_table()));
        }
        if is_insert(text) {
            return Ok(running(self.insert(work, request).await?, Arc::default(), without_table()));
        }
        // plans are kept by text, with the values in it, for callers that see the same tables: all of them
        let shares_plans = request.principal.can_everywhere(Action::Read);
        let shares_plans = shares_plans && request.moment.is_none();
        // the memory of a kept plan is not counted
        let may_reuse = request.pages.is_none();
        let plans = if request.parameters.is_empty() { &self.plans } else { &self.bound_plans };
        let key = shares_plans.then(|| request.plan_key()).flatten();
        if let Some(key) = key.as_deref().filter(|_| may_reuse)
            && let Some(plan) = plans.get(key, missing)
        {
            if let Some((stream, files)) = self.start_again(&plan, work).await? {
                return Ok(running(stream, files, plan.origins().clone()));
            }
            plans.remove(key, missing, &plan);
        }
        if shares_plans
            && may_reuse
            && let Some((stream, files, origins)) = self.start_lookup(request, work).await?
        {
            return Ok(running(stream, files, origins));
        }
        let (planned, stream) = self.start_new(work, request).await?;
        let (files, origins) = (planned.files.clone(), planned.origins.clone());
        if let Some((key, plan)) = key.zip(planned.reusable) {
            plans.put(&key, missing, Arc::new(plan));
        }
        Ok(running(stream, files, origins))
    }
}
