//! Recognises the rows of one event table below an operator.

use std::sync::Arc;

use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema};
use datafusion::datasource::source_as_provider;
use datafusion::error::DataFusionError;
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Expr, LogicalPlan, TableScan};

use super::unalias;
use crate::events::EventsTable;
use crate::hot::HotSource;

/// An event table with hot data, below aliases, projections and filters.
pub(super) struct Base<'p> {
    pub source: Arc<HotSource>,
    /// The plan that has the rows.
    plan: &'p LogicalPlan,
    /// Conditions that all rows satisfy, over the columns of the table.
    pub conditions: Vec<Expr>,
}

impl<'p> Base<'p> {
    pub fn of(plan: &'p LogicalPlan) -> Option<Self> {
        let mut conditions = Vec::new();
        let source = collect(plan, &mut conditions)?;
        Some(Self { source, plan, conditions })
    }

    /// Returns an expression over the output of the plan as one over the columns of the table.
    pub fn resolve(&self, expr: &Expr) -> Option<Expr> {
        resolve(self.plan, expr)
    }

    /// Returns the columns of the plan's output.
    pub fn plan_schema(&self) -> &DFSchema {
        self.plan.schema()
    }

    pub fn is_key(&self, expr: &Expr) -> bool {
        let column = plain_column(expr).and_then(|name| self.source.schema.index_of(name).ok());
        column.is_some() && column == self.source.roles.key
    }

    /// Returns whether the expression is the time of the row, and if it is, whether it is the declared field.
    pub fn is_time(&self, expr: &Expr) -> Option<bool> {
        let column = self.source.schema.index_of(plain_column(expr)?).ok()?;
        match column {
            c if c == self.source.roles.time => Some(false),
            c if Some(c) == self.source.roles.time_field => Some(true),
            _ => None,
        }
    }
}

fn plain_column(expr: &Expr) -> Option<&str> {
    match expr {
        Expr::Column(column) => Some(&column.name),
        _ => None,
    }
}

/// Returns the event table of a scan, if its hot data may be used.
pub(super) fn hot_source(scan: &TableScan) -> Option<Arc<HotSource>> {
    if scan.fetch.is_some() {
        return None;
    }
    let provider = source_as_provider(&scan.source).ok()?;
    provider.downcast_ref::<EventsTable>()?.hot_source().filter(|hot| hot.allows_scans()).cloned()
}

fn collect(plan: &LogicalPlan, conditions: &mut Vec<Expr>) -> Option<Arc<HotSource>> {
    let (found, filters): (_, Vec<&Expr>) = match plan {
        LogicalPlan::TableScan(scan) => {
            (hot_source(scan)?, scan.filters.iter().flat_map(split_conjunction).collect())
        }
        LogicalPlan::SubqueryAlias(node) => (collect(&node.input, conditions)?, vec![]),
        LogicalPlan::Projection(node) => (collect(&node.input, conditions)?, vec![]),
        LogicalPlan::Filter(node) => (collect(&node.input, conditions)?, split_conjunction(&node.predicate)),
        _ => return None,
    };
    for filter in filters {
        let filter = resolve(plan, filter)?;
        if !conditions.contains(&filter) {
            conditions.push(filter);
        }
    }
    Some(found)
}

fn resolve(plan: &LogicalPlan, expr: &Expr) -> Option<Expr> {
    let stop = || DataFusionError::Internal(String::new());
    let resolved = unalias(expr).clone().transform_down(|expr| match &expr {
        Expr::Column(column) => {
            let column = resolve_column(plan, column).ok_or_else(stop)?;
            Ok(Transformed::new(column, true, TreeNodeRecursion::Jump))
        }
        Expr::Alias(alias) => {
            let inner = resolve(plan, &alias.expr).ok_or_else(stop)?;
            Ok(Transformed::new(inner, true, TreeNodeRecursion::Jump))
        }
        // not expressions over a row
        Expr::ScalarSubquery(_)
        | Expr::Exists(_)
        | Expr::InSubquery(_)
        | Expr::SetComparison(_)
        | Expr::OuterReferenceColumn(..)
        | Expr::Placeholder(_)
        | Expr::AggregateFunction(_)
        | Expr::WindowFunction(_)
        | Expr::GroupingSet(_) => Err(stop()),
        _ => Ok(Transformed::no(expr)),
    });
    resolved.ok().map(|resolved| resolved.data)
}

fn resolve_column(plan: &LogicalPlan, column: &Column) -> Option<Expr> {
    match plan {
        LogicalPlan::TableScan(_) => Some(Expr::Column(Column::new_unqualified(&column.name))),
        LogicalPlan::SubqueryAlias(node) => {
            let index = node.schema.maybe_index_of_column(column)?;
            resolve_column(&node.input, &Column::from(node.input.schema().qualified_field(index)))
        }
        LogicalPlan::Projection(node) => {
            let index = node.schema.maybe_index_of_column(column)?;
            resolve(&node.input, node.expr.get(index)?)
        }
        LogicalPlan::Filter(node) => resolve_column(&node.input, column),
        _ => None,
    }
}
