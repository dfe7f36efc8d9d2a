//! Plans of queries with parameters that are optimized once: only values and rows are new in each execution.

use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use datafusion::common::Result as PlanResult;
use datafusion::common::tree_node::{Transformed, TreeNodeRecursion};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::{LogicalPlan, TableScan};
use datafusion::physical_plan::SendableRecordBatchStream;
use tidemill_database::Parameter;
use tidemill_types::Result;

use crate::catalog::{QuerySnapshots, ResolvedName};
use crate::error::{from_datafusion, to_datafusion};
use crate::events::{EventsTable, OpenFiles};
use crate::plans::origins::Origins;
use crate::plans::parameters::ParameterTypes;
use crate::schema_name::SchemaName;
use crate::{MissingFields, Tables};

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

/// Template that is kept for the text of a statement.
#[derive(Debug)]
pub(crate) struct KeptTemplate {
    pub template: Template,
    /// Names of its tables.
    pub names: Vec<ResolvedName>,
    pub origins: Origins,
}

impl KeptTemplate {
    /// Returns whether its names still mean the same tables.
    pub fn is_of_same_tables(&self, tables: &Arc<dyn Tables>) -> bool {
        let now = || QuerySnapshots::new(tables.clone(), Arc::default(), MissingFields::Refused, None);
        self.names.iter().all(ResolvedName::is_exact) || now().finds_same(&self.names)
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
