//! Name resolution for typed queries: locations of unknown tables, and columns written in another case.
//!
//! Names are case-sensitive, so that `TakeOffEvent` needs no quotes. An unquoted name that exists in exactly
//! one other case resolves to that one. Unnamed columns get the text of their expression as name.

use std::collections::HashSet;
use std::ops::ControlFlow;

use datafusion::common::{Column, SchemaError, Span, TableReference};
use datafusion::error::DataFusionError;
use datafusion::execution::SessionState;
use datafusion::logical_expr::sqlparser::ast::{
    Expr, FunctionArg, FunctionArgExpr, Ident, ObjectName, SelectItem, SetExpr, Statement as Ast,
    TableFactor, Value, Visit, VisitMut, Visitor, VisitorMut, visit_relations,
};
use datafusion::logical_expr::sqlparser::tokenizer::Location;
use datafusion::sql::parser::Statement;
use tidemill_types::{Error, Result};

use crate::catalog::{CATALOG, DEFAULT_SCHEMA, QuerySnapshots};
use crate::error::{from_datafusion, place, span_of};
use crate::pg_catalog::{self, INFORMATION_SCHEMA, PG_CATALOG};
use crate::schema_name::SchemaName;

/// Name of the function whose argument names a table.
pub(crate) const LATEST: &str = "latest";

/// Checks that every table of the statement exists, and returns the tables, those in arguments of `latest` included.
///
/// Errors: those of [`QuerySnapshots::locate`], with line and column.
pub(crate) fn check_tables(
    state: &SessionState,
    snapshots: &QuerySnapshots,
    statement: &Statement,
    text: &str,
) -> Result<Vec<(SchemaName, String)>> {
    let mut found: Vec<(SchemaName, String)> = Vec::new();
    let references =
        state.resolve_table_references(statement).map_err(|e| from_datafusion(&e, Some(text)))?;
    for reference in references {
        // a call of a table function is not a table, but its arguments are not in the reference
        if reference.schema().is_none()
            && state.table_functions().contains_key(&reference.table().to_lowercase())
        {
            continue;
        }
        match check_table(snapshots, &reference) {
            Ok(table) => found.extend(table),
            Err(error) => {
                return Err(match location(statement, &reference) {
                    Some(at) => error.context(place(text, at.line, at.column)),
                    None => error,
                });
            }
        }
    }
    // wrong arguments are reported when the function is planned
    let named = tables_of_latest(statement).into_iter();
    found.extend(named.filter_map(|(schema, name)| snapshots.locate(&schema, &name).ok()));
    Ok(found)
}

/// Returns schema and name of a table from the text that names it.
pub(crate) fn split_name(name: &str) -> (String, String) {
    let name = name.strip_prefix(CATALOG).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name);
    match name.split_once('.') {
        Some((schema, table)) => (schema.to_owned(), table.to_owned()),
        None => (DEFAULT_SCHEMA.to_owned(), name.to_owned()),
    }
}

/// Returns the tables that calls of `latest` name, as they are written.
fn tables_of_latest(statement: &Statement) -> Vec<(String, String)> {
    let ast = match statement {
        Statement::Statement(ast) => ast,
        Statement::Explain(explain) => return tables_of_latest(&explain.statement),
        _ => return vec![],
    };
    let mut calls = LatestCalls::default();
    let _ = ast.visit(&mut calls);
    calls.0
}

#[derive(Default)]
struct LatestCalls(Vec<(String, String)>);

impl Visitor for LatestCalls {
    type Break = ();

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(args), .. } = factor
            && name.to_string().eq_ignore_ascii_case(LATEST)
            && let [FunctionArg::Unnamed(FunctionArgExpr::Expr(Expr::Value(value)))] = args.args.as_slice()
            && let Value::SingleQuotedString(table) = &value.value
        {
            self.0.push(split_name(table));
        }
        ControlFlow::Continue(())
    }
}

/// Returns the table; `None` for one that DataFusion provides.
fn check_table(
    snapshots: &QuerySnapshots,
    reference: &TableReference,
) -> Result<Option<(SchemaName, String)>> {
    if let Some(catalog) = reference.catalog().filter(|c| *c != CATALOG) {
        return Err(Error::not_found(format!(
            "there is no catalog `{catalog}`: write schema and table, for example events.{}",
            reference.table()
        )));
    }
    let schema = reference.schema().unwrap_or(DEFAULT_SCHEMA);
    if schema == INFORMATION_SCHEMA || schema == PG_CATALOG {
        return pg_catalog::check(schema, reference.table()).map(|()| None);
    }
    if reference.schema().is_none() && pg_catalog::is_catalog(reference.table()) {
        return Ok(None);
    }
    snapshots.locate(schema, reference.table()).map(Some)
}

/// Returns the location of the first occurrence of `reference` in the statement.
fn location(statement: &Statement, reference: &TableReference) -> Option<Location> {
    let wanted: Vec<&str> =
        [reference.catalog(), reference.schema(), Some(reference.table())].into_iter().flatten().collect();
    let mut found = None;
    let mut look = |name: &ObjectName| {
        let parts: Vec<&Ident> = name.0.iter().filter_map(|p| p.as_ident()).collect();
        if parts.iter().map(|i| i.value.as_str()).eq(wanted.iter().copied()) {
            found = parts.first().map(|i| i.span.start);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    };
    match statement {
        Statement::Statement(ast) => {
            let _ = visit_relations(ast.as_ref(), &mut look);
        }
        Statement::Explain(explain) => return location(&explain.statement, reference),
        _ => return None,
    }
    found.filter(|at| at.line > 0)
}

/// Corrects the case of the column that planning did not find, if the column exists in exactly one other
/// case.
///
/// Returns whether the statement changed, in which case planning can be retried.
pub(crate) fn correct_case(statement: &mut Statement, error: &DataFusionError) -> bool {
    let Some((wanted, known)) = unknown_column(error) else { return false };
    let Some(span) = span_of(error) else { return false };
    let mut alike = known.iter().filter(|c| same_but_case(wanted, c));
    let Some(first) = alike.next() else { return false };
    // a column of several tables is ambiguous in any case: the next error reports that
    if alike.any(|c| c.name != first.name) {
        return false;
    }
    let mut correction = IdentifierFix { span, column: first, done: false };
    apply_fix(statement, &mut correction);
    correction.done
}

fn apply_fix(statement: &mut Statement, correction: &mut IdentifierFix<'_>) {
    match statement {
        Statement::Statement(ast) => {
            let _ = VisitMut::visit(ast.as_mut(), correction);
        }
        Statement::Explain(explain) => apply_fix(&mut explain.statement, correction),
        _ => {}
    }
}

/// Returns the column that planning did not find, and the available columns.
pub(crate) fn unknown_column(error: &DataFusionError) -> Option<(&Column, &[Column])> {
    match error {
        DataFusionError::Diagnostic(_, inner) | DataFusionError::Context(_, inner) => unknown_column(inner),
        DataFusionError::Shared(inner) => unknown_column(inner),
        DataFusionError::Collection(all) => all.first().and_then(unknown_column),
        DataFusionError::SchemaError(inner, _) => match inner.as_ref() {
            SchemaError::FieldNotFound { field, valid_fields } => Some((field, valid_fields)),
            _ => None,
        },
        _ => None,
    }
}

fn same_but_case(wanted: &Column, known: &Column) -> bool {
    let same = |a: &str, b: &str| a.to_lowercase() == b.to_lowercase();
    let table = match (&wanted.relation, &known.relation) {
        (None, _) => true,
        (Some(w), Some(k)) => same(w.table(), k.table()),
        (Some(_), None) => false,
    };
    table && same(&wanted.name, &known.name) && wanted != known
}

/// Visitor that replaces the identifier at `span` by the column's own spelling.
struct IdentifierFix<'a> {
    span: Span,
    column: &'a Column,
    done: bool,
}

impl IdentifierFix<'_> {
    fn is_here(&self, ident: &Ident) -> bool {
        ident.span.start.line == self.span.start.line && ident.span.start.column == self.span.start.column
    }

    /// Replaces the identifier unless it is quoted: quoted names are exact.
    fn replace(&mut self, ident: &mut Ident, spelling: &str) {
        if ident.quote_style.is_none() && ident.value != spelling {
            ident.value = spelling.to_owned();
            self.done = true;
        }
    }
}

impl VisitorMut for IdentifierFix<'_> {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(ident) if self.is_here(ident) => {
                let name = self.column.name.clone();
                self.replace(ident, &name);
            }
            Expr::CompoundIdentifier(parts) if parts.first().is_some_and(|i| self.is_here(i)) => {
                let column = self.column.clone();
                if let [.., table, name] = parts.as_mut_slice() {
                    self.replace(name, &column.name);
                    if let Some(relation) = &column.relation {
                        self.replace(table, relation.table());
                    }
                }
            }
            _ => {}
        }
        match self.done {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }
}

/// Maximum characters of a column name derived from an expression.
const NAME_CHARS_MAX: usize = 64;

/// Names result columns that are expressions by their text: `count(*)`, `distance / 2`. DataFusion would name
/// them `count(Int64(1))` and reject duplicates. Returns the numbers of the columns that it has named.
pub(crate) fn name_columns(statement: &mut Statement) -> Vec<usize> {
    let Statement::Statement(ast) = statement else { return vec![] };
    let Ast::Query(query) = ast.as_mut() else { return vec![] };
    let mut body = query.body.as_mut();
    let select = loop {
        body = match body {
            SetExpr::Select(select) => break select,
            SetExpr::SetOperation { left, .. } => left,
            SetExpr::Query(inner) => inner.body.as_mut(),
            _ => return vec![],
        };
    };
    let mut taken = HashSet::new();
    let mut named = vec![];
    for (at, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        if matches!(expr, Expr::Identifier(_) | Expr::CompoundIdentifier(_)) || makes_columns(expr) {
            continue;
        }
        let text: String = expr.to_string().chars().take(NAME_CHARS_MAX).collect();
        let numbered = (2_usize..).map(|n| format!("{text}_{n}"));
        let free = std::iter::once(text.clone()).chain(numbered).find(|name| !taken.contains(name));
        let name = free.unwrap_or(text);
        taken.insert(name.clone());
        // moved, not cloned: the tree has not been checked for depth yet, and cloning takes more stack than
        // dropping
        let expr = std::mem::replace(expr, Expr::Identifier(Ident::new("")));
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
        named.push(at);
    }
    named
}

/// Returns whether the expression expands to several columns, so that one name cannot fit.
fn makes_columns(expr: &Expr) -> bool {
    matches!(expr, Expr::Function(f) if f.name.to_string().eq_ignore_ascii_case("unnest"))
}
