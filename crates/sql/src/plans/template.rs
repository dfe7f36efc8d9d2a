//! Plans of queries with parameters that are optimized once: only values and rows are new in each execution.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::execution::TaskContext;
use datafusion::logical_expr::{LogicalPlan, TableScan};
use datafusion::physical_plan::{SendableRecordBatchStream, execute_stream};
use tidemill_database::Parameter;
use tidemill_types::Result;

use crate::catalog::QuerySnapshots;
use crate::error::{ended, from_datafusion, to_datafusion};
use crate::events::{EventsTable, OpenFiles};
use crate::execution::work::Work;
use crate::hot::{HotAccess, HotScanExec};
use crate::interrupt::{interruptible, starts_tasks};
use crate::optimizer::{batch_size, width};
use crate::plans::parameters::ParameterTypes;
use crate::query::QueryRequest;
use crate::schema_name::SchemaName;
use crate::session::Shared;

/// Parts of a query that are kept when it is prepared.
pub(crate) struct PreparedParts {
    pub schema: SchemaRef,
    /// Number of parameters.
    pub parameters: usize,
    /// The optimized plan of a query with parameters, if it can be kept.
    pub template: Option<Template>,
}

/// Optimized plan with parameters of a query that selects rows of streams. It holds no rows.
///
/// Aggregates, joins and sorts are optimized with their values instead, because hot data may answer them then.
#[derive(Debug)]
pub(crate) struct Template {
    plan: LogicalPlan,
    types: ParameterTypes,
    /// The streams whose tables it reads.
    streams: Vec<(SchemaName, String)>,
    /// True if it asks for rows by their keys or ids, which are so few that one thread is enough.
    pub is_lookup: bool,
}

impl Template {
    /// Creates the template of an optimized plan, whose parameters have `types`; `None` for a plan of another kind.
    pub fn new(plan: LogicalPlan, types: ParameterTypes) -> PlanResult<Option<Self>> {
        let (mut streams, mut plain, mut is_lookup) = (BTreeSet::new(), true, true);
        plan.apply_with_subqueries(|node| {
            match node {
                LogicalPlan::TableScan(scan) => match stream_of(scan) {
                    Some((name, names_rows)) => {
                        streams.insert(name);
                        is_lookup &= names_rows;
                    }
                    None => plain = false,
                },
                LogicalPlan::Projection(_)
                | LogicalPlan::Filter(_)
                | LogicalPlan::Limit(_)
                | LogicalPlan::SubqueryAlias(_) => {}
                _ => plain = false,
            }
            Ok(TreeNodeRecursion::Continue)
        })?;
        if !plain || streams.is_empty() {
            return Ok(None);
        }
        let emptied = replace_tables(plan, |table| Ok(Some(table.emptied())))?;
        let streams = streams.into_iter().map(|name| (SchemaName::Events, name)).collect();
        Ok(emptied.map(|plan| Self { plan, types, streams, is_lookup }))
    }

    /// Returns the plan with these values over the tables of `snapshots`; `None` if a table has other columns than when the
    /// query was prepared.
    ///
    /// Errors: those of [`ParameterTypes::bind`] and [`crate::Tables::moment`].
    pub fn bind(&self, values: &[Parameter], snapshots: &QuerySnapshots) -> Result<Option<LogicalPlan>> {
        let plan = self.types.bind(self.plan.clone(), values)?;
        snapshots.take_together(&self.streams)?;
        let current = |table: &EventsTable| {
            let current = snapshots.events(SchemaName::Events.name(), table.name());
            let current = current.map_err(to_datafusion)?;
            Ok((current.columns().fields() == table.columns().fields()).then_some(current))
        };
        replace_tables(plan, current).map_err(|e| from_datafusion(&e, None))
    }
}

/// Outcome of the start of a template.
pub(crate) enum StartedTemplate {
    /// The rows, and the files that they are read from.
    Running(SendableRecordBatchStream, Arc<OpenFiles>),
    /// A table has other columns than when the statement was planned.
    Stale,
    /// The statement is planned as others are: hot data answers it, or its rows are long.
    Unfit,
}

impl Shared {
    /// Starts a template with the values of a request, over new snapshots.
    ///
    /// Errors: those of [`Template::bind`]; `LimitReached` for memory.
    pub async fn start_template(
        &self,
        template: &Template,
        request: &QueryRequest,
        work: &Arc<Work>,
    ) -> Result<StartedTemplate> {
        let failed = |e| from_datafusion(&e, None);
        let files = Arc::new(OpenFiles::default());
        let hot = self.hot.as_ref().map(HotAccess::rows);
        let snapshots = QuerySnapshots::new(self.tables.clone(), files.clone(), request.missing, hot);
        let Some(plan) = template.bind(&request.parameters, &snapshots)? else {
            return Ok(StartedTemplate::Stale);
        };
        let state = if template.is_lookup { &self.lookup_state } else { &self.state };
        let usual = state.config().batch_size();
        let rows = batch_size::rows_per_batch(&plan, usual, self.options.function_bytes).map_err(failed)?;
        let width = width::of_plan(&plan, state, &self.widths).await.map_err(failed)?;
        let batch_bytes = width::batch_bytes(self.options.memory_bytes);
        if rows.min(width::rows_per_batch(width, usual, batch_bytes)) != usual {
            return Ok(StartedTemplate::Unfit);
        }
        let physical = state.query_planner().create_physical_plan(&plan, state).await.map_err(failed)?;
        let physical = interruptible(physical).map_err(failed)?;
        if !HotScanExec::all(&physical).map_err(failed)?.is_empty() {
            return Ok(StartedTemplate::Unfit);
        }
        work.reserve_pages(width.page_bytes).await.map_err(|stop| ended(&stop))?;
        if starts_tasks(&physical) {
            work.become_long().await.map_err(|stop| ended(&stop))?;
        }
        let config = self.state.config().clone().with_extension(work.clone());
        // `information_schema.routines` lists the functions of the context
        let context = TaskContext::from(&self.state).with_session_config(config);
        let stream = execute_stream(physical, Arc::new(context)).map_err(failed)?;
        Ok(StartedTemplate::Running(stream, files))
    }
}

/// Returns the name of the stream whose table is scanned, and whether filters name keys or ids; `None` for any other table.
fn stream_of(scan: &TableScan) -> Option<(String, bool)> {
    let provider = source_as_provider(&scan.source).ok()?;
    let table = provider.downcast_ref::<EventsTable>()?;
    let names_rows = scan.filters.iter().any(|filter| table.names_rows(filter));
    table.is_stream().then(|| (table.name().to_owned(), names_rows))
}

/// Replaces the tables of streams; `None` if `replacement` has none for one.
fn replace_tables(
    plan: LogicalPlan,
    replacement: impl Fn(&EventsTable) -> PlanResult<Option<Arc<EventsTable>>>,
) -> PlanResult<Option<LogicalPlan>> {
    let mut complete = true;
    let replaced = plan.transform_down_with_subqueries(|node| {
        let LogicalPlan::TableScan(mut scan) = node else { return Ok(Transformed::no(node)) };
        let provider = source_as_provider(&scan.source)?;
        if let Some(table) = provider.downcast_ref::<EventsTable>() {
            match replacement(table)? {
                Some(table) => scan.source = provider_as_source(table),
                None => complete = false,
            }
        }
        Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
    })?;
    Ok(complete.then_some(replaced.data))
}
