//! Optimizer rule that replaces parts of a plan over event tables by scans of their hot data.
//!
//! It runs after DataFusion's own rules, so that it sees their normal forms. What it does not understand in every
//! detail it leaves to the rows.

mod aggregate;
mod base;
mod eager;
mod latest;
mod newest;
mod selection;

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::tree_node::Transformed;
use datafusion::common::{Column, DFSchema, Result};
use datafusion::datasource::provider_as_source;
use datafusion::logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::{ApplyOrder, OptimizerConfig, OptimizerRule};

use super::exec::HotScanTable;
use super::scan::HotScan;

/// Name of hot scans in logical plans.
const SCAN: &str = "hot";

/// The rule.
#[derive(Debug)]
pub(crate) struct ServeFromHotData;

impl OptimizerRule for ServeFromHotData {
    fn name(&self) -> &str {
        "serve_from_hot_data"
    }

    fn apply_order(&self) -> Option<ApplyOrder> {
        Some(ApplyOrder::TopDown)
    }

    fn rewrite(&self, plan: LogicalPlan, _: &dyn OptimizerConfig) -> Result<Transformed<LogicalPlan>> {
        let replacement = match &plan {
            LogicalPlan::Aggregate(node) => latest::of_aggregate(node)
                .or_else(|| aggregate::of_table(node))
                .or_else(|| eager::of_join(node)),
            LogicalPlan::Filter(node) => latest::of_row_number(node),
            LogicalPlan::Sort(node) => newest::of_sort(node),
            _ => None,
        };
        Ok(match replacement {
            Some(replacement) => Transformed::yes(replacement),
            None => Transformed::no(plan),
        })
    }
}

/// Returns the expression below its aliases.
fn unalias(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unalias(&alias.expr),
        other => other,
    }
}

/// Returns column `number` of a hot scan whose columns are numbered.
fn scan_column(number: usize) -> Expr {
    Expr::Column(Column::new(Some(SCAN), format!("c{number}")))
}

/// Returns a schema of numbered columns with these types and nullabilities.
fn numbered(fields: impl IntoIterator<Item = (arrow::datatypes::DataType, bool)>) -> SchemaRef {
    let fields = fields.into_iter().enumerate();
    Arc::new(Schema::new(
        fields.map(|(n, (ty, null))| Field::new(format!("c{n}"), ty, null)).collect::<Vec<_>>(),
    ))
}

fn plan_scan(scan: HotScan) -> Result<LogicalPlan> {
    LogicalPlanBuilder::scan(SCAN, provider_as_source(Arc::new(HotScanTable(Arc::new(scan)))), None)?.build()
}

/// Projects `columns` under the names of `schema`.
fn project_as(plan: LogicalPlan, columns: Vec<Expr>, schema: &DFSchema) -> Result<LogicalPlan> {
    let named = columns.into_iter().zip(schema.iter());
    let named = named.map(|(column, (table, field))| column.alias_qualified(table.cloned(), field.name()));
    LogicalPlanBuilder::from(plan).project(named.collect::<Vec<_>>())?.build()
}
