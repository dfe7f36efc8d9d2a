//! Keeps conditions that name no column above aggregates without groups.
//!
//! ```sql
//! SELECT count(*) FROM t HAVING (SELECT count(*) FROM t) > 100
//! ```
//!
//! DataFusion pushes a condition without columns through every aggregate. Below one without groups it would remove rows
//! instead of the result, which has one row even if it has no input. A limit of one row changes nothing there, and no
//! condition passes it.

use datafusion::common::Result;
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{BinaryExpr, Expr, LogicalPlan, LogicalPlanBuilder, Operator};
use datafusion::optimizer::AnalyzerRule;

use crate::subqueries::subquery_of;

/// Analyzer rule that limits aggregates without groups to their one row, in plans with conditions that name no column.
#[derive(Debug)]
pub(crate) struct GuardGlobalAggregates;

impl AnalyzerRule for GuardGlobalAggregates {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        if !has_condition_without_columns(&plan)? {
            return Ok(plan);
        }
        let guarded = plan.transform_up_with_subqueries(|node| match node {
            LogicalPlan::Aggregate(ref aggregate) if aggregate.group_expr.is_empty() => {
                Ok(Transformed::yes(LogicalPlanBuilder::from(node).limit(0, Some(1))?.build()?))
            }
            node => Ok(Transformed::no(node)),
        });
        guarded.data()
    }

    fn name(&self) -> &str {
        "guard_global_aggregates"
    }
}

fn has_condition_without_columns(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        let condition = match node {
            LogicalPlan::Filter(filter) => Some(&filter.predicate),
            LogicalPlan::Join(join) => join.filter.as_ref(),
            _ => None,
        };
        found =
            condition.is_some_and(|condition| split_conjunction(condition).into_iter().any(names_no_column));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// Returns whether a condition names no column, or has a part that may stand alone once the condition is simplified:
/// `NOT (x OR (SELECT …) > 0)` becomes `NOT x AND (SELECT …) <= 0`.
fn names_no_column(condition: &Expr) -> bool {
    let is_subquery = |part: &Expr| Ok(subquery_of(part).is_some());
    // a list instead of recursion, as conditions may be long chains
    let mut parts = vec![condition];
    while let Some(part) = parts.pop() {
        match part {
            Expr::Not(inner) => parts.push(inner),
            Expr::BinaryExpr(BinaryExpr { left, op: Operator::And | Operator::Or, right }) => {
                parts.extend([left.as_ref(), right.as_ref()]);
            }
            part if !part.any_column_refs() || part.exists(is_subquery).unwrap_or(true) => return true,
            _ => {}
        }
    }
    false
}
