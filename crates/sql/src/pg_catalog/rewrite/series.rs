//! Functions whose rows become rows of the query: in the list of `SELECT`, and in `FROM` with columns of tables before them.

use std::ops::ControlFlow;

use datafusion::logical_expr::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, Query, Select, SelectItem, TableAlias,
    TableAliasColumnDef, TableFactor, TableWithJoins, Visit, VisitMut, Visitor, VisitorMut,
};
use datafusion::logical_expr::sqlparser::parser::Parser;
use datafusion::sql::parser::Statement;

use super::build::{call, called, select_of, take};
use super::{KEYWORDS, SETTINGS, last_part};
use crate::dialect::TidemillDialect;
use crate::pg_catalog::functions::{EXPAND, SUBSCRIPTS};
use crate::pg_catalog::objects::PG_CATALOG;

const SERIES: &str = "generate_series";
const UNNEST: &str = "unnest";
const LIST: &str = "string_to_array";

/// Makes each call of `generate_series` that is an item of a `SELECT` have a row for each of its values. As an argument it is a list.
pub(super) fn expand(statement: &mut Statement) {
    struct Expander;
    impl VisitorMut for Expander {
        type Break = ();

        fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
            if let Some(row) = row_of_list(factor) {
                *factor = row;
            }
            ControlFlow::Continue(())
        }

        fn post_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
            name_columns(select);
            for item in &mut select.projection {
                if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item
                    && called(expr).as_deref() == Some(SERIES)
                {
                    let series = take(expr);
                    *expr = call(UNNEST, vec![series]);
                }
            }
            ControlFlow::Continue(())
        }
    }
    if let Statement::Statement(ast) = statement {
        let _ = VisitMut::visit(ast.as_mut(), &mut Expander);
    }
}

/// Gives the only column of `generate_series(…) AS i` in `FROM` the name of the alias, where the query uses it as a column.
fn name_columns(select: &mut Select) {
    let is_column =
        |expr: &Expr, name: &Ident| matches!(expr, Expr::Identifier(of) if of.value == name.value);
    let series = |factor: &TableFactor| match factor {
        TableFactor::Table { name, alias: Some(alias), args: Some(_), .. }
            if last_part(name).0 == SERIES && alias.columns.is_empty() =>
        {
            Some(alias.name.clone())
        }
        _ => None,
    };
    let factors = |table: &TableWithJoins| {
        let joined = table.joins.iter().map(|join| series(&join.relation));
        std::iter::once(series(&table.relation)).chain(joined).flatten().collect::<Vec<_>>()
    };
    let names: Vec<Ident> = select.from.iter().flat_map(factors).collect();
    let used: Vec<Ident> =
        names.into_iter().filter(|name| has(&*select, |expr| is_column(expr, name))).collect();
    for table in &mut select.from {
        let joined = table.joins.iter_mut().map(|join| &mut join.relation);
        for factor in std::iter::once(&mut table.relation).chain(joined) {
            let name = series(factor).filter(|name| used.contains(name));
            if let (Some(name), TableFactor::Table { alias: Some(alias), .. }) = (name, factor) {
                alias.columns = vec![TableAliasColumnDef { name, data_type: None }];
            }
        }
    }
}

/// Returns the row that `string_to_array(…) s` is in `FROM`: its column has the name of the alias. `None` for another table.
fn row_of_list(factor: &TableFactor) -> Option<TableFactor> {
    let TableFactor::Table { name, alias: Some(alias), args: Some(args), .. } = factor else { return None };
    if last_part(name).0 != LIST || !alias.columns.is_empty() {
        return None;
    }
    let args: Vec<String> = args.args.iter().map(ToString::to_string).collect();
    let (name, args) = (&alias.name, args.join(", "));
    let text = format!("(SELECT {LIST}({args}) AS {name}) AS {name}");
    Parser::new(&TidemillDialect).try_with_sql(&text).ok()?.parse_table_factor().ok()
}

/// Makes the functions of the catalogs whose result is a list have rows, wherever they are in an item of a `SELECT`.
pub(super) fn unnest(select: &mut Select) {
    struct Wrapper {
        /// Depth of subqueries and calls of `unnest` around the expression.
        depth: usize,
    }
    impl VisitorMut for Wrapper {
        type Break = ();

        fn pre_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.depth += 1;
            ControlFlow::Continue(())
        }

        fn post_visit_query(&mut self, _: &mut Query) -> ControlFlow<()> {
            self.depth -= 1;
            ControlFlow::Continue(())
        }

        fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            self.depth += usize::from(called(expr).as_deref() == Some(UNNEST));
            ControlFlow::Continue(())
        }

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            match called(expr).as_deref() {
                Some(UNNEST) => self.depth -= 1,
                Some(SUBSCRIPTS | EXPAND) if self.depth == 0 => {
                    let list = take(expr);
                    *expr = call(UNNEST, vec![list]);
                }
                _ => {}
            }
            ControlFlow::Continue(())
        }
    }
    for item in &mut select.projection {
        if let SelectItem::UnnamedExpr(expr) | SelectItem::ExprWithAlias { expr, .. } = item {
            let _ = VisitMut::visit(expr, &mut Wrapper { depth: 0 });
        }
    }
}

/// Replaces a function in `FROM` whose arguments are columns or computed by a query, and one of the catalogs by its table.
pub(super) fn table(factor: &mut TableFactor) {
    let (name, args, alias) = match factor {
        TableFactor::Table { name, args: Some(args), alias, .. } => {
            let (last, is_of_catalogs) = last_part(name);
            if last == SETTINGS {
                let names = [PG_CATALOG, "pg_settings"].map(Ident::new);
                *factor = plain_table(ObjectName::from(names.to_vec()), alias.take());
                return;
            }
            if is_of_catalogs || last == KEYWORDS {
                *name = ObjectName::from(vec![Ident::new(last.clone())]);
            }
            let args: Vec<Expr> = args
                .args
                .iter()
                .filter_map(|arg| match arg {
                    FunctionArg::Unnamed(FunctionArgExpr::Expr(expr)) => Some(expr.clone()),
                    _ => None,
                })
                .collect();
            (last, args, alias)
        }
        TableFactor::UNNEST { array_exprs, alias, with_ordinality: false, with_offset: false, .. } => {
            (UNNEST.to_owned(), array_exprs.clone(), alias)
        }
        _ => return,
    };
    let is_of_rows = [UNNEST, SERIES, SUBSCRIPTS, EXPAND].contains(&name.as_str());
    let is_lateral = args.iter().any(has_column);
    // arguments of a function in `FROM` are literals
    let is_computed = name == SERIES && args.iter().any(has_call);
    if !is_of_rows || !is_lateral && !is_computed || name == UNNEST && args.len() != 1 {
        return;
    }
    let list = match name.as_str() {
        UNNEST => args.into_iter().next(),
        _ => Some(call(&name, args)),
    };
    let Some(list) = list else { return };
    let column = match alias.as_ref() {
        Some(alias) => alias.columns.first().map_or_else(|| alias.name.clone(), |column| column.name.clone()),
        None => Ident::new(name.clone()),
    };
    let Ok(mut parsed) =
        Parser::new(&TidemillDialect).try_with_sql("SELECT 1").and_then(|mut parser| parser.parse_query())
    else {
        return;
    };
    if let Some(select) = select_of(&mut parsed) {
        select.projection = vec![SelectItem::ExprWithAlias { expr: call(UNNEST, vec![list]), alias: column }];
    }
    let alias = alias.take().map(|alias| TableAlias { columns: vec![], ..alias });
    *factor = TableFactor::Derived { lateral: is_lateral, subquery: parsed, alias, sample: None };
}

fn plain_table(name: ObjectName, alias: Option<TableAlias>) -> TableFactor {
    TableFactor::Table {
        name,
        alias,
        args: None,
        with_hints: vec![],
        version: None,
        with_ordinality: false,
        partitions: vec![],
        json_path: None,
        sample: None,
        index_hints: vec![],
    }
}

fn has_column(expr: &Expr) -> bool {
    has(expr, |expr| matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)))
}

fn has_call(expr: &Expr) -> bool {
    has(expr, |expr| matches!(expr, Expr::Function(_)))
}

/// Returns whether an expression or a part of it fits.
fn has(expr: &impl Visit, fits: impl Fn(&Expr) -> bool) -> bool {
    struct Finder<F>(F);
    impl<F: Fn(&Expr) -> bool> Visitor for Finder<F> {
        type Break = ();

        fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
            if (self.0)(expr) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    expr.visit(&mut Finder(fits)).is_break()
}
