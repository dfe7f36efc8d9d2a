//! Queries without rows, because a catalog has none: there are no policies, no rules, no sequences.

use std::ops::ControlFlow;

use datafusion::logical_expr::sqlparser::ast::helpers::attached_token::AttachedToken;
use datafusion::logical_expr::sqlparser::ast::{
    BinaryOperator, CaseWhen, Expr, FunctionArguments, JoinOperator, Query, Select, SelectItem, SetExpr,
    SetOperator, TableFactor, TableWithJoins, Value, Visit, Visitor,
};

use super::build::{arguments, as_text, boolean, call, called, null, null_number, null_text};
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
    let value = match expr {
        Expr::Subquery(query) if is_empty(query) => null_text(),
        Expr::Exists { subquery, negated } if is_empty(subquery) => boolean(*negated),
        Expr::InSubquery { subquery, negated, .. } if is_empty(subquery) => boolean(*negated),
        Expr::Function(array) if matches!(&array.args, FunctionArguments::Subquery(query) if is_empty(query)) => {
            call(NO_TEXTS, vec![])
        }
        _ => return,
    };
    *expr = in_place_of(expr, value);
}

/// Removes the branches of a `CASE` for domains, `typtype = 'd'`, as there are none: asyncpg has one with a recursive query in it.
pub(super) fn remove_domains(expr: &mut Expr) {
    let Expr::Case { operand: None, conditions, else_result, .. } = expr else { return };
    let count = conditions.len();
    conditions.retain(|branch| !is_about_domains(&branch.condition));
    if conditions.len() == count || !conditions.is_empty() {
        return;
    }
    // the branch had a number, as a null that is all of a column would not tell
    let value = else_result.take().map_or_else(null, |value| *value);
    *expr = match value {
        Expr::Value(null) if null.value == Value::Null => null_number(),
        value => value,
    };
}

fn is_about_domains(condition: &Expr) -> bool {
    let Expr::BinaryOp { left, op: BinaryOperator::Eq, right } = condition else { return false };
    let column = match &**left {
        Expr::Identifier(name) => Some(name),
        Expr::CompoundIdentifier(names) => names.last(),
        _ => None,
    };
    let is_domain = matches!(&**right, Expr::Value(value) if matches!(&value.value, Value::SingleQuotedString(kind) if kind == "d"));
    is_domain && column.is_some_and(|name| name.value.eq_ignore_ascii_case("typtype"))
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
            *expr = in_place_of(expr, null_text());
        }
    }
    if let Some(selection) = select.selection.as_mut().filter(|selection| has_subquery(selection)) {
        *selection = in_place_of(selection, boolean(false));
    }
}

/// Returns an expression with this value that has the parameters of the one that it replaces: a client sends values for all.
fn in_place_of(replaced: &Expr, value: Expr) -> Expr {
    #[derive(Default)]
    struct Finder(Vec<(String, Expr)>);
    impl Visitor for Finder {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            let found = match expr {
                // with the type that the client has written
                Expr::Cast { expr: inner, .. } => parameter(inner).map(|name| (name, expr.clone())),
                other => parameter(other).map(|name| (name, as_text(other.clone()))),
            };
            if let Some((name, expr)) = found
                && !self.0.iter().any(|(known, _)| *known == name)
            {
                self.0.push((name, expr));
            }
            ControlFlow::Continue(())
        }
    }
    let mut finder = Finder::default();
    let _ = replaced.visit(&mut finder);
    let conditions = finder
        .0
        .into_iter()
        .map(|(_, expr)| CaseWhen { condition: Expr::IsNull(Box::new(expr)), result: value.clone() });
    let conditions: Vec<CaseWhen> = conditions.collect();
    match conditions.is_empty() {
        true => value,
        false => Expr::Case {
            case_token: AttachedToken::empty(),
            end_token: AttachedToken::empty(),
            operand: None,
            conditions,
            else_result: Some(Box::new(value)),
        },
    }
}

/// Returns the name of a parameter, such as `$1`.
fn parameter(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Value(value) => match &value.value {
            Value::Placeholder(name) => Some(name.clone()),
            _ => None,
        },
        _ => None,
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
