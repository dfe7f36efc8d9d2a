//! The plan over new rows: filters, projections and limits, one after the other.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::compute::filter_record_batch;
use arrow::datatypes::SchemaRef;
use datafusion::common::cast::as_boolean_array;
use datafusion::common::tree_node::TreeNodeRecursion;
use datafusion::datasource::source_as_provider;
use datafusion::execution::SessionState;
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::logical_expr::{FetchType, LogicalPlan, SkipType, TableScan};
use datafusion::physical_expr::{PhysicalExpr, create_physical_expr};
use tidemill_types::{Error, Result};

use super::function::TailTable;
use crate::error::from_datafusion;

/// Steps of a plan, from the rows of the stream to those of the result.
pub(crate) struct Steps {
    pub source: TailTable,
    list: Vec<Step>,
    /// Columns of the result.
    pub schema: SchemaRef,
}

enum Step {
    Pick(Vec<usize>),
    Filter(Arc<dyn PhysicalExpr>),
    Project(Vec<Arc<dyn PhysicalExpr>>, SchemaRef),
    Limit { skip: usize, fetch: Option<usize> },
}

/// Returns the error for a part of a plan that would wait for the end of the rows.
pub(super) fn refused(part: &str) -> Error {
    Error::invalid(format!(
        "tail() has rows without an end, so {part} is not possible over it. Its rows can be selected, filtered by conditions on their own \
         columns, and cut by LIMIT. Ask the table for rows that are stored, or declare a query or a rule in the app for results that follow \
         the stream"
    ))
}

/// Returns whether new rows of a stream are a part of the plan, in its subqueries as well.
pub(crate) fn has_tail(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    let searched = plan.apply_with_subqueries(|plan| {
        found |= matches!(plan, LogicalPlan::TableScan(scan) if tail_of(scan).is_some());
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    searched.map_err(|e| from_datafusion(&e, None))?;
    Ok(found)
}

fn tail_of(scan: &TableScan) -> Option<TailTable> {
    let table = source_as_provider(&scan.source).ok()?;
    table.downcast_ref::<TailTable>().cloned()
}

impl Steps {
    /// Creates the steps of an optimized plan.
    ///
    /// Errors: `Invalid` for any other part of it.
    pub fn new(plan: &LogicalPlan, state: &SessionState) -> Result<Self> {
        let mut list = Vec::new();
        let source = add(plan, state, &mut list)?;
        Ok(Self { source, list, schema: plan.schema().inner().clone() })
    }

    /// Takes rows of the stream through the steps. Returns those of the result, and whether they are the last.
    ///
    /// Errors: a value cannot be computed.
    pub fn apply(&mut self, batch: RecordBatch) -> Result<(RecordBatch, bool)> {
        let (mut batch, mut is_last) = (batch, false);
        for step in &mut self.list {
            batch = step.apply(batch, &mut is_last).map_err(|e| from_datafusion(&e, None))?;
        }
        Ok((batch, is_last))
    }

    /// Returns whether there are no rows at all, as with `LIMIT 0`.
    pub fn has_no_rows(&self) -> bool {
        self.list.iter().any(|step| matches!(step, Step::Limit { fetch: Some(0), .. }))
    }
}

impl Step {
    fn apply(&mut self, batch: RecordBatch, is_last: &mut bool) -> datafusion::common::Result<RecordBatch> {
        Ok(match self {
            Self::Pick(columns) => batch.project(columns)?,
            Self::Filter(condition) => {
                let fits = condition.evaluate(&batch)?.into_array(batch.num_rows())?;
                filter_record_batch(&batch, as_boolean_array(&fits)?)?
            }
            Self::Project(exprs, schema) => {
                let rows = batch.num_rows();
                let value = |expr: &Arc<dyn PhysicalExpr>| expr.evaluate(&batch)?.into_array(rows);
                let columns = exprs.iter().map(value).collect::<datafusion::common::Result<_>>()?;
                let options = RecordBatchOptions::new().with_row_count(Some(rows));
                RecordBatch::try_new_with_options(schema.clone(), columns, &options)?
            }
            Self::Limit { skip, fetch } => {
                let skipped = (*skip).min(batch.num_rows());
                *skip -= skipped;
                let rows = batch.num_rows() - skipped;
                let taken = fetch.map_or(rows, |fetch| fetch.min(rows));
                if let Some(fetch) = fetch {
                    *fetch -= taken;
                    *is_last |= *fetch == 0;
                }
                batch.slice(skipped, taken)
            }
        })
    }
}

/// Adds the steps of a plan, the first of them first. Returns the rows over which it is.
fn add(plan: &LogicalPlan, state: &SessionState, list: &mut Vec<Step>) -> Result<TailTable> {
    let failed = |e| from_datafusion(&e, None);
    let (properties, context) = (state.execution_props(), PhysicalPlanningContext::default());
    match plan {
        LogicalPlan::SubqueryAlias(alias) => add(&alias.input, state, list),
        LogicalPlan::TableScan(scan) => {
            let source = tail_of(scan).ok_or_else(|| refused("a join with another table"))?;
            if !scan.filters.is_empty() {
                return Err(Error::internal("filters were moved into the rows of tail()"));
            }
            list.extend(scan.projection.clone().map(Step::Pick));
            Ok(source)
        }
        LogicalPlan::Filter(filter) => {
            let source = add(&filter.input, state, list)?;
            let condition =
                create_physical_expr(&filter.predicate, filter.input.schema(), properties, &context);
            list.push(Step::Filter(condition.map_err(failed)?));
            Ok(source)
        }
        LogicalPlan::Projection(projection) => {
            let source = add(&projection.input, state, list)?;
            let input = projection.input.schema();
            let exprs =
                projection.expr.iter().map(|expr| create_physical_expr(expr, input, properties, &context));
            let exprs = exprs.collect::<datafusion::common::Result<_>>().map_err(failed)?;
            list.push(Step::Project(exprs, projection.schema.inner().clone()));
            Ok(source)
        }
        LogicalPlan::Limit(limit) => {
            let source = add(&limit.input, state, list)?;
            let (skip, fetch) =
                (limit.get_skip_type().map_err(failed)?, limit.get_fetch_type().map_err(failed)?);
            let (SkipType::Literal(skip), FetchType::Literal(fetch)) = (skip, fetch) else {
                return Err(Error::invalid("LIMIT and OFFSET over tail() are numbers"));
            };
            list.push(Step::Limit { skip, fetch });
            Ok(source)
        }
        LogicalPlan::Aggregate(_) | LogicalPlan::Distinct(_) => {
            Err(refused("an aggregate, GROUP BY or DISTINCT"))
        }
        LogicalPlan::Sort(_) => Err(refused("ORDER BY")),
        LogicalPlan::Join(_) | LogicalPlan::Subquery(_) => Err(refused("a join or a subquery")),
        LogicalPlan::Union(_) => Err(refused("a union")),
        LogicalPlan::Window(_) => Err(refused("a window function")),
        LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) => Err(refused("EXPLAIN")),
        LogicalPlan::EmptyRelation(_) => Err(refused("a subquery")),
        other => {
            let name = other.display().to_string();
            let word = name.split([':', ' ']).next().unwrap_or_default().to_owned();
            Err(refused(&format!("`{word}`")))
        }
    }
}
