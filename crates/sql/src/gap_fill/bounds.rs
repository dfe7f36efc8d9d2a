//! Finds the time range of a query in its conditions on the time.

use datafusion::common::Column;
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::logical_expr::utils::split_conjunction;
use datafusion::logical_expr::{Between, BinaryExpr, Expr, JoinType, LogicalPlan, Operator};

use super::node::{BoundSide, FillBound};
use crate::time_cast::without_time_cast;

/// Returns the bounds that the conditions below an aggregate set to `time`, an expression over the output of `plan`.
pub(super) fn of_conditions(plan: &LogicalPlan, time: &Expr) -> Vec<FillBound> {
    let mut bounds = Vec::new();
    collect(plan, time, &mut bounds);
    bounds
}

fn collect(plan: &LogicalPlan, time: &Expr, bounds: &mut Vec<FillBound>) {
    let time = without_time_cast(unalias(time));
    match plan {
        LogicalPlan::Filter(node) => {
            for condition in split_conjunction(&node.predicate) {
                add(condition, time, bounds);
            }
            collect(&node.input, time, bounds);
        }
        LogicalPlan::Sort(node) => collect(&node.input, time, bounds),
        LogicalPlan::Projection(node) => {
            let index = column(time).and_then(|c| node.schema.maybe_index_of_column(c));
            if let Some(inner) = index.and_then(|index| node.expr.get(index)) {
                collect(&node.input, inner, bounds);
            }
        }
        LogicalPlan::SubqueryAlias(node) => {
            if let Some(index) = column(time).and_then(|c| node.schema.maybe_index_of_column(c)) {
                let inner = Column::from(node.input.schema().qualified_field(index));
                collect(&node.input, &Expr::Column(inner), bounds);
            }
        }
        LogicalPlan::Join(node) if node.join_type == JoinType::Inner => {
            for side in [&node.left, &node.right] {
                if column(time).is_some_and(|c| side.schema().maybe_index_of_column(c).is_some()) {
                    collect(side, time, bounds);
                }
            }
        }
        _ => {}
    }
}

fn unalias(expr: &Expr) -> &Expr {
    match expr {
        Expr::Alias(alias) => unalias(&alias.expr),
        other => other,
    }
}

fn column(expr: &Expr) -> Option<&Column> {
    match expr {
        Expr::Column(column) => Some(column),
        _ => None,
    }
}

/// Adds the bounds of one condition.
fn add(condition: &Expr, time: &Expr, bounds: &mut Vec<FillBound>) {
    let is_time = |expr: &Expr| without_time_cast(unalias(expr)) == time;
    let mut push = |side, expr: &Expr| bounds.push(FillBound { side, expr: expr.clone() });
    match condition {
        Expr::Between(Between { expr, negated: false, low, high }) if is_time(expr) => {
            if is_constant(low) {
                push(BoundSide::From, low);
            }
            if is_constant(high) {
                push(BoundSide::To, high);
            }
        }
        Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
            let (op, constant) = match (is_time(left), is_time(right)) {
                (true, false) => (Some(*op), right),
                (false, true) => (op.swap(), left),
                _ => return,
            };
            if !is_constant(constant) {
                return;
            }
            match op {
                Some(Operator::GtEq) => push(BoundSide::From, constant),
                Some(Operator::Gt) => push(BoundSide::After, constant),
                Some(Operator::Lt) => push(BoundSide::Before, constant),
                Some(Operator::LtEq) => push(BoundSide::To, constant),
                Some(Operator::Eq) => {
                    push(BoundSide::From, constant);
                    push(BoundSide::To, constant);
                }
                _ => {}
            }
        }
        _ => {}
    }
}

/// Returns whether planning can evaluate the expression: it reads no row, and has one value in a query.
pub(super) fn is_constant(expr: &Expr) -> bool {
    let mut constant = !expr.is_volatile();
    let _ = expr.apply(|expr| {
        constant &= !matches!(
            expr,
            Expr::Column(_)
                | Expr::OuterReferenceColumn(..)
                | Expr::ScalarSubquery(_)
                | Expr::Exists(_)
                | Expr::InSubquery(_)
                | Expr::SetComparison(_)
                | Expr::AggregateFunction(_)
                | Expr::WindowFunction(_)
                | Expr::Placeholder(_)
        );
        Ok(if constant { TreeNodeRecursion::Continue } else { TreeNodeRecursion::Stop })
    });
    constant
}
