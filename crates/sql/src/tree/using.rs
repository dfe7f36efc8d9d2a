//! `JOIN … USING`: the columns that both tables have in common are those of the left table, of the right one in a `RIGHT JOIN`,
//! and of the one that has a row in a `FULL JOIN`.
//!
//! DataFusion always takes those of the left table, which are null where it has no row, and finds them
//! ambiguous in `WHERE`. Here a join of two tables becomes one with `ON`, and the columns are replaced where
//! the query names them. Of other joins, those that would have other values are refused. A `NATURAL` outer
//! join of tables without a common column is not an outer join to DataFusion.

use std::mem;
use std::ops::ControlFlow;

use datafusion::logical_expr::sqlparser::ast::{
    BinaryOperator, Expr, Ident, JoinConstraint, JoinOperator, OrderByKind, Query, Select, SelectItem,
    SetExpr, Spanned, TableFactor, TableWithJoins, VisitMut, VisitorMut,
};
use datafusion::logical_expr::sqlparser::tokenizer::Location;

use super::chains::call;

type Refused = (Location, String);

/// Replaces the joins of a query, but for those of queries inside of it.
///
/// Errors: why a join is not supported, with its place.
pub(super) fn replace(query: &mut Query) -> Result<(), Refused> {
    if let SetExpr::Select(select) = query.body.as_mut() {
        let Some(merged) = of_select(select)? else { return Ok(()) };
        let outputs = outputs(select);
        merged.replace_in_select(select)?;
        if let Some(order) = &mut query.order_by
            && let OrderByKind::Expressions(exprs) = &mut order.kind
        {
            for order in exprs {
                // a name alone is that of a result column, if there is one
                let is_output =
                    matches!(&order.expr, Expr::Identifier(name) if outputs.contains(&name.value));
                if !is_output {
                    merged.replace_in(&mut order.expr);
                }
            }
        }
        return Ok(());
    }
    let mut bodies = vec![query.body.as_mut()];
    while let Some(body) = bodies.pop() {
        match body {
            SetExpr::Select(select) => {
                if let Some(merged) = of_select(select)? {
                    merged.replace_in_select(select)?;
                }
            }
            SetExpr::SetOperation { left, right, .. } => bodies.extend([left.as_mut(), right.as_mut()]),
            // a query in brackets is visited itself
            _ => {}
        }
    }
    Ok(())
}

/// The columns of a join that have no table.
struct Merged {
    names: Vec<Ident>,
    left: Ident,
    right: Ident,
    kept: Kept,
    at: Location,
}

/// The table whose column has no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kept {
    Left,
    Right,
    Any,
}

fn of_select(select: &mut Select) -> Result<Option<Merged>, Refused> {
    let is_alone = matches!(select.from.as_slice(), [TableWithJoins { joins, .. }] if joins.len() == 1);
    // `*` has the column once, which DataFusion knows of USING only
    let has_wildcard = select.projection.iter().any(|item| matches!(item, SelectItem::Wildcard(_)));
    let mut found = None;
    for tables in &mut select.from {
        found = found.or(of_tables(tables, is_alone, has_wildcard)?);
    }
    Ok(found)
}

fn of_tables(
    tables: &mut TableWithJoins,
    is_alone: bool,
    has_wildcard: bool,
) -> Result<Option<Merged>, Refused> {
    if let TableFactor::NestedJoin { table_with_joins, .. } = &mut tables.relation {
        of_tables(table_with_joins, false, has_wildcard)?;
    }
    let mut found = None;
    for join in &mut tables.joins {
        if let TableFactor::NestedJoin { table_with_joins, .. } = &mut join.relation {
            of_tables(table_with_joins, false, has_wildcard)?;
        }
        let at = join.relation.span().start;
        let (kind, kept, constraint) = match &mut join.join_operator {
            JoinOperator::Join(of) | JoinOperator::Inner(of) => ("INNER", Kept::Left, of),
            JoinOperator::Left(of) | JoinOperator::LeftOuter(of) => ("LEFT", Kept::Left, of),
            JoinOperator::Right(of) | JoinOperator::RightOuter(of) => ("RIGHT", Kept::Right, of),
            JoinOperator::FullOuter(of) => ("FULL", Kept::Any, of),
            _ => continue,
        };
        let names = match constraint {
            JoinConstraint::Natural if kind == "INNER" => continue,
            JoinConstraint::Natural => {
                return Err((
                    at,
                    format!("NATURAL {kind} JOIN is not supported: write {kind} JOIN … ON a.x = b.x"),
                ));
            }
            JoinConstraint::Using(names) => names,
            _ => continue,
        };
        let names: Option<Vec<Ident>> = names
            .iter()
            .map(|name| match name.0.as_slice() {
                [part] => part.as_ident().cloned(),
                _ => None,
            })
            .collect();
        let parts = (is_alone, names, name_of(&tables.relation), name_of(&join.relation));
        let (true, Some(names), Some(left), Some(right)) = parts else {
            if kept == Kept::Left {
                continue;
            }
            return Err((
                at,
                format!(
                    "{kind} JOIN … USING is supported between two tables with names only: write {kind} JOIN … ON a.x = b.x, \
                     and coalesce(a.x, b.x) for the column"
                ),
            ));
        };
        if has_wildcard && kept == Kept::Left {
            continue;
        }
        let merged = Merged { names, left, right, kept, at };
        *constraint = JoinConstraint::On(merged.condition());
        found = Some(merged);
    }
    Ok(found)
}

fn name_of(factor: &TableFactor) -> Option<Ident> {
    match factor {
        TableFactor::Table { alias: Some(alias), .. } | TableFactor::Derived { alias: Some(alias), .. } => {
            Some(alias.name.clone())
        }
        TableFactor::Table { name, .. } => name.0.last()?.as_ident().cloned(),
        _ => None,
    }
}

/// Returns the names of the result columns.
fn outputs(select: &Select) -> Vec<String> {
    let names = select.projection.iter().filter_map(|item| match item {
        SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
        SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.value.clone()),
        SelectItem::UnnamedExpr(Expr::CompoundIdentifier(name)) => Some(name.last()?.value.clone()),
        _ => None,
    });
    names.collect()
}

impl Merged {
    fn columns(&self, name: &Ident) -> (Expr, Expr) {
        let of = |table: &Ident| Expr::CompoundIdentifier(vec![table.clone(), name.clone()]);
        (of(&self.left), of(&self.right))
    }

    fn condition(&self) -> Expr {
        let equal = self.names.iter().map(|name| {
            let (left, right) = self.columns(name);
            Expr::BinaryOp { left: left.into(), op: BinaryOperator::Eq, right: right.into() }
        });
        let all =
            equal.reduce(|a, b| Expr::BinaryOp { left: a.into(), op: BinaryOperator::And, right: b.into() });
        all.unwrap_or_else(|| Expr::Tuple(vec![]))
    }

    /// Returns what a column is; `None` for one that is not merged.
    fn value(&self, name: &Ident) -> Option<Expr> {
        let known = self.names.iter().find(|known| known.value == name.value)?;
        let (left, right) = self.columns(known);
        Some(match self.kept {
            Kept::Left => left,
            Kept::Right => right,
            Kept::Any => call("coalesce", [left, right].into_iter()),
        })
    }

    fn replace_in_select(&self, select: &mut Select) -> Result<(), Refused> {
        for item in &mut select.projection {
            match item {
                SelectItem::Wildcard(_) => {
                    return Err((
                        self.at,
                        "SELECT * of a RIGHT or FULL JOIN … USING is not supported: name the columns"
                            .to_owned(),
                    ));
                }
                SelectItem::UnnamedExpr(Expr::Identifier(name)) => {
                    if let Some(value) = self.value(name) {
                        *item = SelectItem::ExprWithAlias { expr: value, alias: name.clone() };
                    }
                }
                _ => {}
            }
        }
        // tables in FROM are queries, and what stands in ON has tables
        let from = mem::take(&mut select.from);
        self.replace_in(select);
        select.from = from;
        Ok(())
    }

    fn replace_in(&self, part: &mut impl VisitMut) {
        let _ = part.visit(&mut UsingReplacer { merged: self, depth: 0 });
    }
}

struct UsingReplacer<'m> {
    merged: &'m Merged,
    /// Number of queries around; names inside of one may be those of its own tables.
    depth: usize,
}

impl VisitorMut for UsingReplacer<'_> {
    type Break = ();

    fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth += 1;
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
        self.depth -= 1;
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        if self.depth == 0
            && let Expr::Identifier(name) = expr
            && let Some(value) = self.merged.value(name)
        {
            *expr = value;
        }
        ControlFlow::Continue(())
    }
}
