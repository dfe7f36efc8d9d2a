//! Which correlated subqueries keep their meaning when they become joins, and the errors for the others.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, Diagnostic, NullEquality, Result, Span};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::{Distinct, Expr, LogicalPlan};
use tidemill_types::Error;

use super::predicates::subquery_of;
use crate::error::to_datafusion;

/// Returns the error for an expression among `exprs`, with its place as far as it is known.
pub(crate) fn refuse<T>(exprs: &[Expr], message: &str) -> Result<T> {
    let error = to_datafusion(Error::invalid(message));
    match exprs.iter().find_map(span) {
        Some(span) => {
            let diagnostic = Diagnostic::new_error(message, Some(span));
            Err(DataFusionError::Diagnostic(Box::new(diagnostic), Box::new(error)))
        }
        None => Err(error),
    }
}

/// Returns the location of the first column in `expr`, or else in its subqueries.
fn span(expr: &Expr) -> Option<Span> {
    let (mut found, mut inner) = (None, None);
    let _ = expr.apply(|expr| {
        match expr {
            Expr::Column(column) => found = column.spans.first(),
            expr => inner = inner.or_else(|| subquery_of(expr).and_then(plan_span)),
        }
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found.or(inner)
}

fn plan_span(plan: &LogicalPlan) -> Option<Span> {
    let mut found = None;
    let _ = plan.apply(|node| {
        found = node.expressions().iter().find_map(span);
        Ok(if found.is_some() { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    });
    found
}

/// Returns whether any part of a subquery's plan depends on the outer row.
pub(crate) fn is_correlated(plan: &LogicalPlan) -> bool {
    !plan.all_out_ref_exprs().is_empty()
}

/// Place of a subquery that decides what may be at its top.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// The rows are a set of values, or their existence is asked for.
    Set,
    /// The value of one row.
    Scalar,
}

/// Checks that the conditions on the outer row can become conditions of a join.
///
/// Errors: `Invalid` for a subquery that would change its meaning, with what to write instead.
pub(super) fn check(plan: &LogicalPlan, usage: Use, outer: &DFSchema) -> Result<()> {
    for reference in plan.all_out_ref_exprs() {
        if let Expr::OuterReferenceColumn(_, column) = &reference
            && !outer.has_column(column)
        {
            return refuse(
                &plan.expressions(),
                &format!(
                    "the subquery uses `{}`, which the query directly around it does not have at this place: select it there \
                     under a name, or join its table there",
                    column.flat_name()
                ),
            );
        }
    }
    match problem(plan, usage == Use::Scalar) {
        None => Ok(()),
        Some((node, what)) => {
            let exprs: Vec<Expr> = node.expressions();
            let exprs = if exprs.iter().any(|e| span(e).is_some()) { exprs } else { all_expressions(plan) };
            refuse(
                &exprs,
                &format!(
                    "{what} in a subquery that depends on the row of the outer query is not supported: join the tables \
                     instead, or select from a query in FROM that computes it for all rows"
                ),
            )
        }
    }
}

/// Returns the expressions of a plan and of all that is below.
pub(super) fn all_expressions(plan: &LogicalPlan) -> Vec<Expr> {
    let mut all = vec![];
    let _ = plan.apply(|node| {
        all.extend(node.expressions());
        Ok(TreeNodeRecursion::Continue)
    });
    all
}

/// Returns a node over correlated conditions that would see other rows once they are part of a join.
fn problem(plan: &LogicalPlan, scalar_top: bool) -> Option<(&LogicalPlan, &'static str)> {
    if !is_correlated(plan) {
        return None;
    }
    let below = plan.inputs().into_iter().any(is_correlated);
    let own = plan.contains_outer_reference();
    let what = match plan {
        LogicalPlan::Limit(_) if below => Some("LIMIT"),
        LogicalPlan::Sort(sort) if below && sort.fetch.is_some() => Some("LIMIT"),
        LogicalPlan::Window(_) => Some("a window function"),
        LogicalPlan::Distinct(Distinct::On(_)) => Some("DISTINCT ON"),
        LogicalPlan::Union(_) => Some("UNION"),
        // no condition of a query makes nulls equal
        LogicalPlan::Join(join) if join.null_equality == NullEquality::NullEqualsNull => {
            Some("INTERSECT or EXCEPT")
        }
        LogicalPlan::Aggregate(aggregate) if below => {
            let one_row = aggregate.group_expr.is_empty() && !aggregate.aggr_expr.is_empty();
            let sets = aggregate.group_expr.iter().any(|e| matches!(e, Expr::GroupingSet(_)));
            match (one_row && !scalar_top, sets) {
                (true, _) => Some("an aggregate without GROUP BY"),
                (_, true) => Some("GROUPING SETS, CUBE or ROLLUP"),
                _ => None,
            }
        }
        LogicalPlan::Filter(_)
        | LogicalPlan::Projection(_)
        | LogicalPlan::SubqueryAlias(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Sort(_)
        | LogicalPlan::Distinct(Distinct::All(_))
        | LogicalPlan::Join(_)
        | LogicalPlan::Subquery(_)
        | LogicalPlan::Limit(_) => None,
        _ => Some("such a part"),
    };
    let what = what.or(match plan {
        LogicalPlan::Filter(_) | LogicalPlan::Subquery(_) => None,
        _ if own => Some("a column of the outer query outside of WHERE"),
        _ => None,
    });
    if let Some(what) = what {
        return Some((plan, what));
    }
    let scalar_top = scalar_top
        && matches!(plan, LogicalPlan::Projection(_) | LogicalPlan::SubqueryAlias(_) | LogicalPlan::Sort(_));
    plan.inputs().into_iter().find_map(|input| problem(input, scalar_top))
}
