//! Planning of queries, and the start of their plans.

use std::sync::Arc;

use datafusion::common::config::ConfigNonZeroUsize;
use datafusion::execution::{SessionState, TaskContext};
use datafusion::logical_expr::LogicalPlan;
use datafusion::optimizer::AnalyzerRule;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::{ExecutionPlan, SendableRecordBatchStream, execute_stream};
use datafusion::prelude::SQLOptions;
use datafusion::sql::parser::Statement;
use futures::{FutureExt, StreamExt};
use tidemill_access::{Action, Principal, Resource};
use tidemill_database::{Format, is_insert};
use tidemill_types::{Error, Result};
use tidemill_zones::RowRewriter;

use crate::catalog::{DEFAULT_SCHEMA, QueryCatalog, QuerySnapshots};
use crate::change::{self, Change};
use crate::describe::types_in_words;
use crate::distributed::{Distribution, StartAgain, is_distributed, repeated};
use crate::error::{ended, from_datafusion, to_datafusion};
use crate::events::{OpenFiles, RowWidth};
use crate::execution::work::Work;
use crate::functions::{
    AGGREGATION, AS_OF, AggregationFunction, AsOfFunction, LatestFunction, VERSIONS, VersionsFunction,
};
use crate::hot::{Bindings, HotAccess, HotScan, HotScanExec, TabletReader};
use crate::interrupt::{interruptible, starts_tasks};
use crate::pg_catalog::{self, Objects};
use crate::plans::logical_query::LogicalQuery;
use crate::plans::origins::{self, Origins};
use crate::plans::parameters::ParameterTypes;
use crate::plans::reusable_plan::{self, ReusablePlan, Snapshots};
use crate::plans::template::{PreparedParts, Template};
use crate::query::QueryRequest;
use crate::schema_name::SchemaName;
use crate::session::Shared;
use crate::tail::{self, Follower, Steps, TAIL, TailFunction, has_tail};
use crate::times::MicrosecondTimes;
use crate::visible_tables::with_hint;
use crate::{
    MissingFields, StatementPhase, execution::deadline, functions, names, optimizer::batch_size,
    optimizer::width, parse, tree,
};

/// Maximum number of names in one query that are corrected to another case or treated as missing fields.
const NAME_FIXES_MAX: usize = 64;

/// A query that can be executed.
pub(crate) struct PlannedQuery {
    physical: Arc<dyn ExecutionPlan>,
    state: SessionState,
    pub files: Arc<OpenFiles>,
    snapshots: Arc<QuerySnapshots>,
    width: RowWidth,
    pub origins: Origins,
    /// The plan for later executions, if it is worth keeping.
    pub reusable: Option<ReusablePlan>,
    /// The query, if other nodes execute parts of it: without them it has to be planned again.
    distributed: Option<LogicalPlan>,
}

impl PlannedQuery {
    /// Returns the snapshots of the tables of `scans`.
    fn snapshots_of(&self, scans: &[(u64, Arc<HotScan>)]) -> Snapshots {
        let names = scans.iter().map(|(_, scan)| scan.table.to_string());
        names.filter_map(|name| Some((name.clone(), self.snapshots.event_snapshot(&name)?))).collect()
    }
}

impl PlannedQuery {
    /// Adds the scans of the query to what `EXPLAIN` returns.
    fn with_zones(&self, stream: SendableRecordBatchStream) -> SendableRecordBatchStream {
        let (schema, reports) = (stream.schema(), self.snapshots.reports().clone());
        let row = {
            let schema = schema.clone();
            futures::stream::once(async move { reports.row(&schema).transpose() })
        };
        let rows = stream.chain(row.filter_map(std::future::ready));
        Box::pin(RecordBatchStreamAdapter::new(schema, rows))
    }
}

impl Shared {
    /// Starts a plan that was kept; `None` if it does not fit the tables any more.
    pub async fn start_again(
        &self,
        plan: &ReusablePlan,
        work: &Arc<Work>,
    ) -> Result<Option<(SendableRecordBatchStream, Arc<OpenFiles>)>> {
        let failed = |e| from_datafusion(&e, None);
        let Some(snapshots) = plan.snapshots(&self.tables)? else { return Ok(None) };
        let reader = self.tablet_reader(plan.files().clone());
        let bound = reusable_plan::bind(plan.scans(), self.hot.as_deref(), &snapshots, &reader).await;
        let bindings = match bound {
            Ok(Some(bindings)) => bindings,
            Ok(None) => return Ok(None),
            Err(error) => return Err(plan.files().name_damaged(failed(error)).await),
        };
        let environment = self.state.runtime_env().clone();
        let (physical, context) = plan.instance(bindings, environment, work.clone()).map_err(failed)?;
        if starts_tasks(&physical) {
            work.become_long().await.map_err(|stop| ended(&stop))?;
        }
        let stream = execute_stream(physical, context).map_err(failed)?;
        Ok(Some((stream, plan.files().clone())))
    }

    /// Starts a plan over the snapshots with which it was planned; `None` if its hot data cannot serve it.
    pub async fn start_planned(
        self: &Arc<Self>,
        planned: &PlannedQuery,
        work: &Arc<Work>,
    ) -> Result<Option<SendableRecordBatchStream>> {
        let failed = |e| from_datafusion(&e, None);
        let scans = HotScanExec::all(&planned.physical).map_err(failed)?;
        let mut config = planned.state.config().clone().with_extension(work.clone());
        if !scans.is_empty() {
            let snapshots = planned.snapshots_of(&scans);
            let reader = self.tablet_reader(planned.files.clone());
            let bound = reusable_plan::bind(&scans, self.hot.as_deref(), &snapshots, &reader).await;
            let bindings = match bound {
                Ok(Some(bindings)) => bindings,
                Ok(None) => return Ok(None),
                Err(error) => return Err(planned.files.name_damaged(failed(error)).await),
            };
            if planned.snapshots.reports().are_collected() {
                self.report_blocks(planned, &scans, &snapshots, &bindings);
            }
            config = config.with_extension(Arc::new(bindings));
        }
        work.reserve_pages(planned.width.page_bytes).await.map_err(|stop| ended(&stop))?;
        // one that waits for other nodes keeps no place from those that begin
        if planned.distributed.is_some() || starts_tasks(&planned.physical) {
            work.become_long().await.map_err(|stop| ended(&stop))?;
        }
        // `information_schema.routines` lists the functions of the context
        let context = TaskContext::from(&planned.state).with_session_config(config);
        let context = Arc::new(match work.memory() {
            Some(memory) => {
                let environment = memory.environment(&context.runtime_env());
                context.with_runtime(environment)
            }
            None => context,
        });
        let stream = execute_stream(planned.physical.clone(), context).map_err(failed)?;
        let stream = match &planned.distributed {
            Some(plan) => repeated(stream, self.start_at_this_node(planned, plan.clone(), work.clone())),
            None => stream,
        };
        Ok(Some(match planned.snapshots.reports().are_collected() {
            true => planned.with_zones(stream),
            false => stream,
        }))
    }

    /// Returns what starts a query again, over the same snapshots, without other nodes.
    fn start_at_this_node(
        self: &Arc<Self>,
        planned: &PlannedQuery,
        plan: LogicalPlan,
        work: Arc<Work>,
    ) -> StartAgain {
        let shared = self.clone();
        let (state, files, snapshots) =
            (planned.state.clone(), planned.files.clone(), planned.snapshots.clone());
        let (width, origins) = (planned.width, planned.origins.clone());
        let again = async move {
            // operators keep state of the first execution, and so do filters that they have handed to scans
            let physical = state.query_planner().create_physical_plan(&plan, &state).await?;
            let physical = interruptible(physical)?;
            let planned = PlannedQuery {
                physical,
                state,
                files,
                snapshots,
                width,
                origins,
                reusable: None,
                distributed: None,
            };
            let started = shared.start_planned(&planned, &work).await.map_err(to_datafusion)?;
            started
                .ok_or_else(|| to_datafusion(Error::unavailable("hot data was dropped meanwhile: try again")))
        };
        Box::new(move || again.boxed())
    }

    /// Adds the scans of hot data to what `EXPLAIN` returns.
    fn report_blocks(
        &self,
        planned: &PlannedQuery,
        scans: &[(u64, Arc<HotScan>)],
        snapshots: &Snapshots,
        bindings: &Bindings,
    ) {
        for (number, scan) in scans {
            let known = self.hot.as_ref().zip(snapshots.get(scan.table.as_ref()));
            let Some(((store, snapshot), bound)) = known.zip(bindings.0.get(number)) else { continue };
            let (read, all) = (bound.blocks.len(), store.block_count(scan, snapshot));
            let report = || format!("hot data, {}, {read} of {all} blocks", scan.result.name());
            planned.snapshots.reports().push(SchemaName::Events, &scan.table, report);
        }
    }

    fn tablet_reader(&self, files: Arc<OpenFiles>) -> TabletReader {
        let environment = self.state.runtime_env().clone();
        let text_bytes_max = self.hot.as_ref().map_or(0, |hot| hot.column_bytes_max());
        TabletReader { environment, store: self.tables.object_store().0, files, text_bytes_max }
    }

    /// Plans a query and starts it.
    pub async fn start_new(
        self: &Arc<Self>,
        work: &Arc<Work>,
        request: &QueryRequest,
    ) -> Result<(PlannedQuery, SendableRecordBatchStream)> {
        // how rows lie in hot data is known only once they are decoded: what the first plan cannot read there is then
        // planned again
        // hot data is that of the present rows
        let hot = self.hot.as_ref().filter(|_| request.moment.is_none());
        let accesses = [hot.map(HotAccess::all), hot.map(HotAccess::rows)];
        for hot in accesses.into_iter().flatten().map(Some).chain([None]) {
            let planned = self.plan_physical(request, hot).await?;
            if let Some(stream) = self.start_planned(&planned, work).await? {
                return Ok((planned, stream));
            }
        }
        Err(Error::internal("a plan without hot data asks for some"))
    }

    /// Plans a query against new snapshots, with the hot data that it may use.
    pub async fn plan_physical(
        self: &Arc<Self>,
        request: &QueryRequest,
        hot: Option<HotAccess>,
    ) -> Result<PlannedQuery> {
        let (text, missing) = (request.text.as_ref(), request.missing);
        let LogicalQuery { mut state, plan, files, snapshots } = self.plan_alone(request, hot).await?;
        let origins = origins::of_plan(&plan, &snapshots);
        let plan = ParameterTypes::of(&plan)?.bind(plan, &request.parameters)?;
        let failed = |e| from_datafusion(&e, Some(text));
        if matches!(plan, LogicalPlan::Explain(_) | LogicalPlan::Analyze(_)) {
            snapshots.reports().collect();
        }
        let timeless = reusable_plan::is_timeless(&plan).map_err(failed)?;
        let plan = state.optimize(&plan).map_err(failed)?;
        let width = width::of_plan(&plan, &state, &self.widths).await.map_err(failed)?;
        let resident = reusable_plan::is_of_resident_tables(&plan).map_err(failed)?;
        let usual = state.config().batch_size();
        let rows = batch_size::rows_per_batch(&plan, usual, self.options.function_bytes).map_err(failed)?;
        let batch_bytes = width::batch_bytes(self.options.memory_bytes);
        let rows = rows.min(width::rows_per_batch(width, usual, batch_bytes));
        let options = state.config_mut().options_mut();
        options.execution.batch_size = ConfigNonZeroUsize::try_new(rows).map_err(failed)?;
        let mut distribution = None;
        if resident {
            // one thread is faster for what is left to do, and filters that a join or a sort hands to a scan would
            // keep the values of the plan's last execution
            options.execution.target_partitions = 1;
            options.optimizer.enable_dynamic_filter_pushdown = false;
        } else if reusable_plan::is_of_system_tables(&plan).map_err(failed)? {
            // what starts no tasks is answered although long statements have all places
            options.execution.target_partitions = 1;
        } else {
            distribution = Distribution::of(self, request, &plan, &snapshots, width).map_err(failed)?;
        }
        let physical = match distribution {
            None => state.query_planner().create_physical_plan(&plan, &state).await,
            Some(distribution) => distribution.plan(&plan, &state).await,
        };
        let physical = interruptible(physical.map_err(failed)?).map_err(failed)?;
        let distributed = is_distributed(&physical).then(|| plan.clone());
        let reusable = match resident && timeless && self.options.cached_plans > 0 {
            true => {
                let (physical, config) = (physical.clone(), state.config().clone());
                let origins = origins.clone();
                ReusablePlan::new(physical, config, &snapshots, missing, files.clone(), origins)
                    .map_err(failed)?
            }
            false => None,
        };
        Ok(PlannedQuery { physical, state, files, snapshots, width, origins, reusable, distributed })
    }

    /// Plans a statement over new rows of a stream, and begins to follow it; `None` for every other statement.
    ///
    /// Errors: those in the text; `Invalid` for what would wait for the end of the rows.
    pub async fn follow(self: &Arc<Self>, work: &Work, request: &QueryRequest) -> Result<Option<Follower>> {
        let text = request.text.as_ref();
        let may_follow = !is_insert(text) && tail::is_mentioned(text);
        if !may_follow || Change::parse(text, self.options.text_bytes_max).is_some() {
            return Ok(None);
        }
        let statement = work.statement();
        statement.set_phase(StatementPhase::Planning);
        let failed = |e| from_datafusion(&e, Some(text));
        let LogicalQuery { state, plan, .. } = self.plan_alone(request, None).await?;
        if !has_tail(&plan)? {
            return Ok(None);
        }
        if request.moment.is_some() {
            return Err(Error::invalid(
                "a transaction of REPEATABLE READ reads one moment, which has no new rows: use tail() outside of it",
            ));
        }
        if request.pages.is_some() {
            return Err(Error::invalid("the rows of tail() have no pages: ask without `page_rows`"));
        }
        if let Some(format @ (Format::Table | Format::Parquet)) = request.format {
            return Err(Error::invalid(format!(
                "the rows of tail() have no end, and the format {} is written at the end: ask for ndjson, csv, json or arrow",
                format.content_type()
            )));
        }
        let plan = ParameterTypes::of(&plan)?.bind(plan, &request.parameters)?;
        let plan = state.optimize(&plan).map_err(failed)?;
        if !has_tail(&plan)? {
            // no row can fit, as with LIMIT 0
            return Ok(None);
        }
        let usual = state.config().batch_size();
        let rows = batch_size::rows_per_batch(&plan, usual, self.options.function_bytes).map_err(failed)?;
        let steps = Steps::new(&plan, &state)?;
        Follower::new(self, request, statement.statement().origin(), steps, rows).map(Some)
    }

    /// Makes what a prepared query keeps.
    pub fn prepare(&self, query: LogicalQuery) -> Result<PreparedParts> {
        let LogicalQuery { state, plan, .. } = query;
        let failed = |e| from_datafusion(&e, None);
        let schema = plan.schema().inner().clone();
        let types = ParameterTypes::of(&plan)?;
        let parameters = types.len();
        let template = match parameters > 0 && reusable_plan::is_timeless(&plan).map_err(failed)? {
            true => Template::new(state.optimize(&plan).map_err(failed)?, types).map_err(failed)?,
            false => None,
        };
        Ok(PreparedParts { schema, parameters, template })
    }

    /// Plans a statement against new snapshots of the tables that the caller may read.
    pub async fn plan_alone(&self, request: &QueryRequest, hot: Option<HotAccess>) -> Result<LogicalQuery> {
        let QueryRequest { text, missing, principal, .. } = request;
        let (statement, mentions) = parse::parse(&self.state, text, self.options.text_bytes_max)?;
        let (all, tables) = self.tables_of(request)?;
        let files = Arc::new(OpenFiles::new(tables.tablet_keys()));
        let snapshots = QuerySnapshots::new(tables.clone(), files.clone(), *missing, hot);
        let mut state = self.state.clone();
        let objects = Objects::new(
            tables.clone(),
            all,
            principal.clone(),
            request.session.clone(),
            self.statements.clone(),
            self.functions.clone(),
        );
        if mentions.any() {
            pg_catalog::register(&mut state, &objects).map_err(|e| from_datafusion(&e, None))?;
        }
        if mentions.relations {
            // few rows, for which more threads take longer to start than they save
            state.config_mut().options_mut().execution.target_partitions = 1;
        }
        state.register_udtf(AGGREGATION, Arc::new(AggregationFunction(tables)));
        state.register_udtf(names::LATEST, Arc::new(LatestFunction(snapshots.clone())));
        state.register_udtf(AS_OF, Arc::new(AsOfFunction(snapshots.clone())));
        state.register_udtf(VERSIONS, Arc::new(VersionsFunction(snapshots.clone())));
        state.register_udtf(TAIL, Arc::new(TailFunction(snapshots.clone())));
        let table_functions = state.table_functions().clone();
        let catalog = QueryCatalog { snapshots: snapshots.clone(), objects, table_functions };
        state.register_catalog_list(Arc::new(catalog));
        state.mark_start_execution();
        let plan = self.plan(&state, &snapshots, statement, text).await;
        let plan = plan.map_err(|e| with_hint(e, principal))?;
        Ok(LogicalQuery { state, plan, files, snapshots })
    }

    /// Plans a change of stored events. Returns the name of their stream and what rewrites its rows.
    ///
    /// Errors: those of the query of its condition; `Forbidden` if the caller may not write the stream.
    pub async fn plan_change(&self, change: &Change, principal: &Principal) -> Result<(String, RowRewriter)> {
        let request = QueryRequest {
            principal: principal.clone(),
            ..QueryRequest::new(&change.query, MissingFields::Refused)
        };
        let planned = self.plan_alone(&request, None).await;
        let mut query = planned.map_err(|e| e.context(format!("as the query `{}`", change.query)))?;
        // its expressions are evaluated by themselves, without the other rules
        query.plan = MicrosecondTimes
            .analyze(query.plan, query.state.config_options())
            .map_err(|e| from_datafusion(&e, Some(&change.query)))?;
        let table = change::table_of(&query.plan)?;
        let schema = table.schema().unwrap_or(DEFAULT_SCHEMA);
        let (schema, name) = query.snapshots.locate(schema, table.table())?;
        if schema != SchemaName::Events {
            return Err(change::not_events(schema.name(), &name));
        }
        principal.may(Action::Write, &Resource::stream(&name))?;
        let snapshot = self.tables.stream(&name)?;
        let snapshot =
            snapshot.ok_or_else(|| Error::not_found(format!("stream `{name}` was removed just now")))?;
        let fixed = snapshot.key.iter().chain(&snapshot.time_field).chain(&snapshot.id);
        let fixed: Vec<String> = fixed.map(|index| snapshot.schema.field(*index).name().clone()).collect();
        let rewriter = change.rewriter(&query.state, &query.plan, &fixed)?;
        Ok((name, rewriter))
    }

    async fn plan(
        &self,
        state: &SessionState,
        snapshots: &QuerySnapshots,
        mut statement: Statement,
        text: &str,
    ) -> Result<LogicalPlan> {
        snapshots.take_together(&names::check_tables(state, snapshots, &statement, text)?)?;
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
            .and_then(|()| types_in_words(plan))
            .and_then(functions::unions_to_text)
            .map_err(|e| from_datafusion(&e, Some(text)))
    }
}
