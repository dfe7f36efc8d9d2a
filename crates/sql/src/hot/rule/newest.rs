//! `ORDER BY time DESC LIMIT 1`: the newest of the latest rows of the keys.

use datafusion::common::{Column, JoinType, NullEquality};
use datafusion::logical_expr::{Expr, Join, LogicalPlan, Sort};

use super::base::Base;
use super::latest::with_latest_rows;
use super::unalias;

/// Returns the replacement of a sort that keeps the newest row of an event table, or of its join with another table by
/// its key.
pub(super) fn of_sort(node: &Sort) -> Option<LogicalPlan> {
    let [order] = node.expr.as_slice() else { return None };
    let Expr::Column(time) = &order.expr else { return None };
    if node.fetch != Some(1) || order.asc {
        return None;
    }
    let input = newest(&node.input, time)?;
    Some(LogicalPlan::Sort(Sort { expr: node.expr.clone(), input: input.into(), fetch: node.fetch }))
}

/// Returns `plan` over the latest rows, if its newest row by the column `time` is among them.
fn newest(plan: &LogicalPlan, time: &Column) -> Option<LogicalPlan> {
    if let Some(base) = Base::of(plan) {
        let by_field = base.is_time(&base.resolve(&Expr::Column(time.clone()))?)?;
        return with_latest_rows(plan, &base, by_field);
    }
    let replaced = match plan {
        LogicalPlan::Projection(node) => {
            let index = node.schema.maybe_index_of_column(time)?;
            let Expr::Column(inner) = unalias(node.expr.get(index)?) else { return None };
            newest(&node.input, inner)?
        }
        LogicalPlan::SubqueryAlias(node) => {
            let index = node.schema.maybe_index_of_column(time)?;
            newest(&node.input, &Column::from(node.input.schema().qualified_field(index)))?
        }
        LogicalPlan::Join(node) => return newest_of_join(node, time),
        _ => return None,
    };
    plan.with_new_exprs(plan.expressions(), vec![replaced]).ok()
}

fn newest_of_join(node: &Join, time: &Column) -> Option<LogicalPlan> {
    let [(left_key, right_key)] = node.on.as_slice() else { return None };
    let plain = node.join_type == JoinType::Inner
        && node.filter.is_none()
        && !node.null_aware
        && node.null_equality == NullEquality::NullEqualsNothing;
    if !plain {
        return None;
    }
    let left = node.left.schema().has_column(time);
    let (events, key) = if left { (&node.left, left_key) } else { (&node.right, right_key) };
    let base = Base::of(events)?;
    // all rows of a key are joined with the same rows: then the newest pair has the latest row of its key
    let joins_key = base.resolve(key)?.column_refs().iter().all(|c| base.is_key(&Expr::Column((*c).clone())));
    if !joins_key {
        return None;
    }
    let replaced = newest(events, time)?;
    let mut node = node.clone();
    if left {
        node.left = replaced.into();
    } else {
        node.right = replaced.into();
    }
    Some(LogicalPlan::Join(node))
}
