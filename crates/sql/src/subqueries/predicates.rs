//! Subqueries that are part of an expression.

use std::collections::HashSet;

use datafusion::common::Column;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::expr::{Exists, InSubquery, SetComparison};
use datafusion::logical_expr::{Expr, LogicalPlan};

use super::correlation::is_correlated;

/// Returns whether `expr` has a subquery that this rule replaces or checks: all but scalar ones that do not depend on
/// the outer row.
pub(super) fn has_predicate(expr: &Expr) -> bool {
    let is_predicate = |part: &Expr| {
        Ok(match part {
            Expr::Exists(_) | Expr::InSubquery(_) | Expr::SetComparison(_) => true,
            Expr::ScalarSubquery(subquery) => is_correlated(&subquery.subquery),
            _ => false,
        })
    };
    expr.exists(is_predicate).unwrap_or_default()
}

/// Returns whether `expr` has a scalar subquery.
pub(super) fn has_scalar(expr: &Expr) -> bool {
    expr.exists(|part| Ok(matches!(part, Expr::ScalarSubquery(_)))).unwrap_or_default()
}

/// Returns the columns of the surrounding query that `expr` uses, in its subqueries as well.
pub(super) fn used_columns(expr: &Expr) -> HashSet<Column> {
    let mut used: HashSet<Column> = expr.column_refs().into_iter().cloned().collect();
    let _ = expr.apply(|expr| {
        if let Some(plan) = subquery_of(expr) {
            used.extend(plan.all_out_ref_exprs().into_iter().filter_map(|expr| match expr {
                Expr::OuterReferenceColumn(_, column) => Some(column),
                _ => None,
            }));
        }
        Ok(TreeNodeRecursion::Continue)
    });
    used
}

/// Returns the plan of an expression that is a subquery.
pub(crate) fn subquery_of(expr: &Expr) -> Option<&LogicalPlan> {
    match expr {
        Expr::Exists(Exists { subquery, .. })
        | Expr::InSubquery(InSubquery { subquery, .. })
        | Expr::SetComparison(SetComparison { subquery, .. })
        | Expr::ScalarSubquery(subquery) => Some(&subquery.subquery),
        _ => None,
    }
}
