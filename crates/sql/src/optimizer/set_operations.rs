//! `INTERSECT ALL` and `EXCEPT ALL` count equal rows.
//!
//! DataFusion plans them as a semi and an anti join, which keep or remove all copies of a row. Here the copies of a row are
//! numbered on both sides, and the numbers are compared as well: the third copy on the left is paired with the third one
//! on the right.

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult};
use datafusion::common::{Column, NullEquality, Result};
use datafusion::functions_window::row_number::row_number;
use datafusion::logical_expr::{
    Distinct, Expr, ExprFunctionExt, Join, JoinType, LogicalPlan, LogicalPlanBuilder,
};
use datafusion::optimizer::AnalyzerRule;

/// Analyzer rule that replaces the joins, after their types are coerced.
#[derive(Debug, Default)]
pub(crate) struct CountedSetOperations;

impl AnalyzerRule for CountedSetOperations {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Join(join) if is_counted(&join) => counted(join).map(Transformed::yes),
            node => Ok(Transformed::no(node)),
        })
        .data()
    }

    fn name(&self) -> &str {
        "counted_set_operations"
    }
}

/// Returns whether a join is `INTERSECT ALL` or `EXCEPT ALL`: no condition of a query makes nulls equal, and without
/// `ALL` the left side is distinct.
fn is_counted(join: &Join) -> bool {
    matches!(join.join_type, JoinType::LeftSemi | JoinType::LeftAnti)
        && join.null_equality == NullEquality::NullEqualsNull
        && join.filter.is_none()
        && !matches!(join.left.as_ref(), LogicalPlan::Distinct(Distinct::All(_)))
}

fn counted(join: Join) -> Result<LogicalPlan> {
    let columns = join.schema.columns();
    let (left_on, right_on): (Vec<Expr>, Vec<Expr>) = join.on.iter().cloned().unzip();
    let left = numbered(join.left.as_ref().clone(), left_on, "__copy_left")?;
    let right = numbered(join.right.as_ref().clone(), right_on, "__copy_right")?;
    let number = |name: &str| Expr::Column(Column::new_unqualified(name));
    let mut on = join.on;
    on.push((number("__copy_left"), number("__copy_right")));
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        on,
        None,
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    LogicalPlanBuilder::from(LogicalPlan::Join(joined)).project(columns.into_iter().map(Expr::from))?.build()
}

/// Adds the number of a row among those that are equal to it.
fn numbered(plan: LogicalPlan, equal: Vec<Expr>, name: &str) -> Result<LogicalPlan> {
    let number = row_number().partition_by(equal).build()?;
    let column = Expr::Column(Column::new_unqualified(number.schema_name().to_string()));
    let mut columns: Vec<Expr> = plan.schema().columns().into_iter().map(Expr::from).collect();
    columns.push(column.alias(name));
    LogicalPlanBuilder::from(plan).window([number])?.project(columns)?.build()
}
