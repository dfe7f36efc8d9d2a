//! Queries without rows, because a catalog has none: there are no policies, no rules, no sequences.

use std::ops::ControlFlow;

use datafusion::logical_expr::sqlparser::ast::{
    Expr, FunctionArguments, JoinOperator, Query, Select, SelectItem, SetExpr, SetOperator, TableFactor,
    TableWithJoins, Visit, Visitor,
};

use super::build::{arguments, boolean, call, called, null_text, take};
use super::catalog_of;
use crate::pg_catalog::functions::NO_TEXTS;
use crate::pg_catalog::single_value::SINGLE_VALUE;

/// Lists of the catalogs that are always null.
const NULL_LISTS: [&str; 14] = [
    "reloptions",
    "relacl",
    "attacl",
    "attoptions",
    "attfdwoptions",
    "nspacl",
    "datacl",
    "proacl",
    "typacl",
    "lanacl",
    "spcacl",
    "spcoptions",
    "proconfig",
    "rolconfig",
];

/// Functions that have a value without rows.
const AGGREGATES: [&str; 12] = [
    "count",
    "sum",
    "min",
    "max",
    "avg",
    "array_agg",
    "string_agg",
    "bool_and",
    "bool_or",
    "every",
    "json_agg",
    SINGLE_VALUE,
];

/// Replaces a subquery without rows by its value.
pub(super) fn replace(expr: &mut Expr) {
    match expr {
        Expr::Subquery(query) if is_empty(query) => *expr = null_text(),
        Expr::Exists { subquery, negated } if is_empty(subquery) => *expr = boolean(*negated),
        Expr::InSubquery { subquery, negated, .. } if is_empty(subquery) => *expr = boolean(*negated),
        Expr::Function(array) if matches!(&array.args, FunctionArguments::Subquery(query) if is_empty(query)) =>
        {
            *expr = call(NO_TEXTS, vec![]);
        }
        _ => {}
    }
}

/// Removes what has no effect from a `SELECT` without rows: subqueries, which would have to be planned.
pub(super) fn simplify(select: &mut Select) {
    if !is_empty_select(select) {
        return;
    }
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
            && has_subquery(expr)
        {
            let _ = take(expr);
            *expr = null_text();
        }
    }
    if select.selection.as_ref().is_some_and(has_subquery) {
        select.selection = Some(boolean(false));
    }
}

fn has_subquery(expr: &Expr) -> bool {
    struct Finder;
    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            ControlFlow::Break(())
        }
    }
    expr.visit(&mut Finder).is_break()
}

/// Returns whether a query never has rows.
pub(super) fn is_empty(query: &Query) -> bool {
    // the name of a `WITH` query may be that of a catalog
    query.with.is_none() && is_empty_body(&query.body)
}

fn is_empty_body(body: &SetExpr) -> bool {
    match body {
        SetExpr::Select(select) => is_empty_select(select),
        SetExpr::Query(query) => is_empty(query),
        SetExpr::SetOperation { op: SetOperator::Union, left, right, .. } => {
            is_empty_body(left) && is_empty_body(right)
        }
        _ => false,
    }
}

fn is_empty_select(select: &Select) -> bool {
    select.from.iter().any(is_empty_join) && !select.projection.iter().any(has_aggregate)
}

fn has_aggregate(item: &SelectItem) -> bool {
    match item {
        SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } => calls_aggregate(expr),
        _ => false,
    }
}

/// Returns whether an expression calls an aggregate outside of its subqueries.
pub(super) fn calls_aggregate(expr: &Expr) -> bool {
    /// Depth of queries around the expression.
    struct Finder(usize);
    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &Query) -> ControlFlow<()> {
            self.0 -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            match self.0 == 0 && called(expr).is_some_and(|name| AGGREGATES.contains(&name.as_str())) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        }
    }
    expr.visit(&mut Finder(0)).is_break()
}

fn is_empty_join(table: &TableWithJoins) -> bool {
    let keeps_first = |join: &JoinOperator| {
        matches!(
            join,
            JoinOperator::Join(_)
                | JoinOperator::Inner(_)
                | JoinOperator::Left(_)
                | JoinOperator::LeftOuter(_)
                | JoinOperator::CrossJoin(_)
        )
    };
    if !table.joins.iter().all(|join| keeps_first(&join.join_operator)) {
        return false;
    }
    is_empty_factor(&table.relation)
        || table.joins.iter().any(|join| {
            let is_inner = matches!(
                join.join_operator,
                JoinOperator::Join(_) | JoinOperator::Inner(_) | JoinOperator::CrossJoin(_)
            );
            is_inner && is_empty_factor(&join.relation)
        })
}

fn is_empty_factor(factor: &TableFactor) -> bool {
    match factor {
        TableFactor::Table { name, args: None, .. } => {
            catalog_of(name).is_some_and(|catalog| catalog.is_empty)
        }
        TableFactor::Derived { subquery, .. } => is_empty(subquery) || is_of_null_list(subquery),
        TableFactor::NestedJoin { table_with_joins, .. } => is_empty_join(table_with_joins),
        _ => false,
    }
}

/// Returns whether the rows of a query are the elements of a list that is always null.
fn is_of_null_list(query: &Query) -> bool {
    let SetExpr::Select(select) = query.body.as_ref() else { return false };
    let [SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. }] =
        select.projection.as_slice()
    else {
        return false;
    };
    if called(expr).as_deref() != Some("unnest") {
        return false;
    }
    match arguments(expr).as_slice() {
        [Expr::Identifier(name)] => NULL_LISTS.contains(&name.value.as_str()),
        [Expr::CompoundIdentifier(parts)] => {
            parts.last().is_some_and(|name| NULL_LISTS.contains(&name.value.as_str()))
        }
        _ => false,
    }
}
