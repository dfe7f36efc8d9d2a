//! Exact three-valued logic of subqueries in conditions: `IN`, `ANY`, `SOME`, `ALL`, `EXISTS`.
//!
//! `x IN (SELECT y …)` is true if a row has `y = x`, else unknown if `x` or any `y` is null, else false. DataFusion
//! plans it as a join whose result is true or false, which is right only where unknown means false. This rule comes
//! before DataFusion's and leaves it nothing but uncorrelated `IN` and `NOT IN` on the top level of a filter:
//!
//! ```text
//! x IN (SELECT y FROM i WHERE i.g = o.g)
//! CASE WHEN found THEN true WHEN null_value OR (x IS NULL AND any_row) THEN NULL ELSE false END
//!      found       mark join with i on i.g = o.g AND i.y = o.x
//!      null_value  mark join with the rows of i that have no y, on i.g = o.g
//!      any_row     mark join with i on i.g = o.g
//! ```
//!
//! A part is left out if the schema says that there are no nulls. Where only true counts, as in `WHERE`, the parts are
//! combined to true and false. What does not depend on the outer row is a scalar subquery, which is executed once.

mod body;
mod correlation;
mod marks;
mod predicates;

use std::sync::Arc;

use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TransformedResult, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, Result};
use datafusion::logical_expr::expr::{InSubquery, SetComparison};
use datafusion::logical_expr::expr_rewriter::NamePreserver;
use datafusion::logical_expr::utils::{conjunction, split_conjunction_owned};
use datafusion::logical_expr::{Expr, Filter, Join, JoinType, LogicalPlan, LogicalPlanBuilder};
use datafusion::optimizer::AnalyzerRule;

pub(crate) use correlation::{is_correlated, refuse};
use marks::{Aliases, Marks, Scalars};
pub(crate) use predicates::subquery_of;
use predicates::{has_predicate, has_scalar, used_columns};

/// Analyzer rule that replaces subqueries in conditions, after their types are coerced.
#[derive(Debug, Default)]
pub(crate) struct ThreeValuedSubqueries;

impl AnalyzerRule for ThreeValuedSubqueries {
    fn analyze(&self, plan: LogicalPlan, _: &ConfigOptions) -> Result<LogicalPlan> {
        let mut aliases = Aliases::default();
        plan.transform_up_with_subqueries(|node| rewrite(node, &mut aliases)).data()
    }

    fn name(&self) -> &str {
        "three_valued_subqueries"
    }
}

fn rewrite(node: LogicalPlan, aliases: &mut Aliases) -> Result<Transformed<LogicalPlan>> {
    if let LogicalPlan::Join(join) = &node
        && let Some(query) = lateral(&join.right)
    {
        body::check_lateral(query, join.left.schema())?;
    }
    // DataFusion does not find scalar subqueries in windows
    let in_window = matches!(node, LogicalPlan::Window(_));
    let mut found = false;
    node.apply_expressions(|expr| {
        found = has_predicate(expr) || (in_window && has_scalar(expr));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    if !found {
        return Ok(Transformed::no(node));
    }
    let columns = node.schema().columns();
    let rewritten = match node {
        LogicalPlan::Filter(filter) => rewrite_filter(filter, aliases)?,
        LogicalPlan::Join(join) => rewrite_join(join, aliases)?,
        LogicalPlan::Projection(_)
        | LogicalPlan::Aggregate(_)
        | LogicalPlan::Window(_)
        | LogicalPlan::Sort(_) => rewrite_values(&node, aliases)?,
        other => {
            let place = match &other {
                LogicalPlan::Distinct(_) => "in DISTINCT ON",
                LogicalPlan::Extension(_) => "in a query that fills gaps",
                LogicalPlan::Limit(_) => "in LIMIT",
                _ => "here",
            };
            return refuse(
                &other.expressions(),
                &format!(
                    "a subquery {place} is not supported: select its value under a name in a query in FROM, and use \
                     the name"
                ),
            );
        }
    };
    Ok(Transformed::yes(narrow(rewritten, columns)?))
}

/// Returns whether `expr` has a scalar subquery that depends on the outer row, or a comparison with one.
fn has_correlated_scalar(expr: &Expr) -> bool {
    let is_correlated_scalar = |part: &Expr| {
        Ok(match part {
            Expr::ScalarSubquery(subquery) => correlation::is_correlated(&subquery.subquery),
            Expr::SetComparison(SetComparison { subquery, .. })
            | Expr::InSubquery(InSubquery { subquery, .. }) => {
                correlation::is_correlated(&subquery.subquery) && body::has_one_row(&subquery.subquery)
            }
            _ => false,
        })
    };
    expr.exists(is_correlated_scalar).unwrap_or_default()
}

/// Returns the query that a side of a join is, if it may use the columns of the other side.
fn lateral(side: &LogicalPlan) -> Option<&LogicalPlan> {
    match side {
        LogicalPlan::SubqueryAlias(alias) => lateral(&alias.input),
        LogicalPlan::Subquery(query) => Some(&query.subquery),
        _ => None,
    }
}

/// Removes the columns that marks have added.
fn narrow(plan: LogicalPlan, columns: Vec<Column>) -> Result<LogicalPlan> {
    if plan.schema().fields().len() == columns.len() {
        return Ok(plan);
    }
    LogicalPlanBuilder::from(plan).project(columns.into_iter().map(Expr::from))?.build()
}

fn rewrite_filter(filter: Filter, aliases: &mut Aliases) -> Result<LogicalPlan> {
    let Filter { predicate, input, .. } = filter;
    // DataFusion leaves some that depend on the outer row where they are, and then has no plan
    let scalars = if has_correlated_scalar(&predicate) { Scalars::Below } else { Scalars::InPlace };
    let mut marks = Marks::new(Arc::unwrap_or_clone(input), scalars, aliases);
    let mut kept = vec![];
    for term in split_conjunction_owned(predicate) {
        kept.extend(marks.restrict(term)?);
    }
    let input = marks.into_plan();
    match conjunction(kept) {
        Some(predicate) => Ok(LogicalPlan::Filter(Filter::try_new(predicate, Arc::new(input))?)),
        None => Ok(input),
    }
}

/// Rewrites a node with one input, each of whose expressions needs the exact value.
fn rewrite_values(node: &LogicalPlan, aliases: &mut Aliases) -> Result<LogicalPlan> {
    let names = NamePreserver::new(node);
    let inputs = node.inputs();
    let [input] = inputs.as_slice() else {
        return refuse(&node.expressions(), "a subquery is not supported here");
    };
    let scalars = match node {
        LogicalPlan::Projection(_) => Scalars::InPlace,
        _ => Scalars::Below,
    };
    let mut marks = Marks::new((*input).clone(), scalars, aliases);
    let mut exprs = vec![];
    for expr in node.expressions() {
        let found = has_predicate(&expr) || (scalars == Scalars::Below && has_scalar(&expr));
        if found && matches!(expr, Expr::GroupingSet(_)) {
            return refuse(
                &[expr],
                "a subquery in GROUPING SETS, CUBE or ROLLUP is not supported: select its value under a name in a query \
                 in FROM, and use the name",
            );
        }
        let name = names.save(&expr);
        exprs.push(if found { name.restore(marks.value(expr)?) } else { expr });
    }
    let input = marks.into_plan();
    node.with_new_exprs(exprs, vec![input])
}

/// Rewrites subqueries in `ON`: marks belong to the side whose columns the subquery uses.
fn rewrite_join(join: Join, aliases: &mut Aliases) -> Result<LogicalPlan> {
    let on: Vec<Expr> = join.on.iter().flat_map(|(left, right)| [left.clone(), right.clone()]).collect();
    let filter = join.filter.clone();
    if on.iter().any(has_predicate) {
        return refuse(&on, "a subquery as an operand of = in ON is not supported: write it in WHERE");
    }
    let (mut left, mut right) = (join.left.as_ref().clone(), join.right.as_ref().clone());
    let (mut kept, mut above) = (vec![], vec![]);
    for term in filter.into_iter().flat_map(split_conjunction_owned) {
        if !has_predicate(&term) {
            kept.push(term);
            continue;
        }
        let used = used_columns(&term);
        if used.iter().all(|column| join.left.schema().has_column(column)) {
            let mut marks = Marks::new(left, Scalars::Below, aliases);
            kept.push(marks.value(term)?);
            left = marks.into_plan();
        } else if used.iter().all(|column| join.right.schema().has_column(column)) {
            let mut marks = Marks::new(right, Scalars::Below, aliases);
            kept.push(marks.value(term)?);
            right = marks.into_plan();
        } else if join.join_type == JoinType::Inner {
            above.push(term);
        } else {
            return refuse(
                &[term],
                "a subquery that uses columns of both tables in the ON of an outer join is not supported: compute its \
                 value in a query in FROM, and use that in ON",
            );
        }
    }
    let joined = Join::try_new(
        Arc::new(left),
        Arc::new(right),
        join.on,
        conjunction(kept),
        join.join_type,
        join.join_constraint,
        join.null_equality,
        join.null_aware,
    )?;
    let joined = LogicalPlan::Join(joined);
    match conjunction(above) {
        Some(predicate) => rewrite_filter(Filter::try_new(predicate, Arc::new(joined))?, aliases),
        None => Ok(joined),
    }
}
