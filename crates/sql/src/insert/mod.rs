//! `INSERT INTO stream …`: rows of a statement become events.
//!
//! ```text
//! INSERT INTO events.readings (device, speed) VALUES ('d1', 1.5), ($1, $2 * 3.6) RETURNING _offset
//!        stream, which the caller may write ─┐        │    │        │      │                 │
//!        fields of the columns ──────────────┤        └────┴────────┘      │                 │
//!        cells: literals and values as they are, expressions by a query ───┘                 │
//!        rows are checked one after the other, as those of a request over HTTP               │
//!        all of them are appended, or none ── columns of the stored events ──────────────────┘
//! ```
//!
//! Literals and parameters never meet the planner: their field tells what they are, and an error names the row. All other
//! expressions of a statement are evaluated by one query. `INSERT … SELECT` runs the query as any other.

mod arrow_cells;
mod cell;
mod parts;
mod returning;
mod stage;

use datafusion::execution::SessionState;
use datafusion::logical_expr::sqlparser::ast::{
    ConflictTarget, Ident, Insert as Ast, ObjectName, OnConflictAction, OnInsert, Query, SelectItem, SetExpr,
    Statement as AstStatement, TableObject,
};
use datafusion::sql::parser::Statement;
use tidemill_types::{Error, Result};

use crate::catalog::{CATALOG, DEFAULT_SCHEMA};
use crate::error::place;
use crate::{execution::stack, parse};
use cell::ValuesCell;
use parts::Parts;

/// An `INSERT` as its text tells.
pub(crate) struct Insert {
    schema: String,
    table: String,
    /// Place of the table in the text.
    table_place: String,
    alias: Option<String>,
    /// Columns with their places; `None` for the fields in their order.
    columns: Option<Vec<(String, String)>>,
    source: InsertSource,
    conflict: Option<Conflict>,
    returning: Option<ReturningItems>,
    parts: Parts,
}

enum InsertSource {
    /// `DEFAULT VALUES`: one event without fields.
    Defaults,
    Values(Vec<Vec<ValuesCell>>),
    Query,
}

/// `ON CONFLICT DO NOTHING`, with its columns and their places.
struct Conflict(Vec<(String, String)>);

/// Items of `RETURNING`.
struct ReturningItems {
    has_wildcard: bool,
}

impl Insert {
    /// Parses a text whose first word is `INSERT`.
    ///
    /// Errors: those of the syntax, with their place; `Invalid` for a part of the statement that is not supported, with what to write
    /// instead.
    pub fn parse(state: &SessionState, text: &str, bytes_max: usize) -> Result<Self> {
        parse::check_size(text, bytes_max)?;
        // the tree of a long chain of operators is deep, and it is dropped here
        stack::parsing(text, || match parse::one_statement(state, text)? {
            Statement::Statement(ast) => match *ast {
                AstStatement::Insert(insert) => Self::of(&insert, text),
                _ => Err(unsupported()),
            },
            _ => Err(unsupported()),
        })?
    }

    fn of(ast: &Ast, text: &str) -> Result<Self> {
        check_form(ast)?;
        let TableObject::TableName(name) = &ast.table else { return Err(unsupported()) };
        let (schema, table) = table_name(name)?;
        let named = |ident: &Ident| (ident.value.clone(), place_of_ident(ident, text));
        let last = |name: &ObjectName| name.0.last().and_then(|part| part.as_ident()).map(named);
        let columns = ast.columns.iter().map(|name| last(name).ok_or_else(unsupported));
        let columns = columns.collect::<Result<Vec<_>>>()?;
        let first = name.0.first().and_then(|part| part.as_ident());
        let source = match ast.source.as_deref() {
            None => InsertSource::Defaults,
            Some(query) => match values_of(query) {
                Some(rows) => InsertSource::Values(rows),
                None => InsertSource::Query,
            },
        };
        let conflict = match &ast.on {
            None => None,
            Some(OnInsert::OnConflict(conflict)) => match (&conflict.action, &conflict.conflict_target) {
                (OnConflictAction::DoNothing, None) => Some(Conflict(vec![])),
                (OnConflictAction::DoNothing, Some(ConflictTarget::Columns(columns))) => {
                    Some(Conflict(columns.iter().map(named).collect()))
                }
                (OnConflictAction::DoNothing, Some(ConflictTarget::OnConstraint(_))) => {
                    return Err(Error::invalid(
                        "ON CONFLICT ON CONSTRAINT is not supported: name the columns of the stream's id, ON CONFLICT (…) DO NOTHING",
                    ));
                }
                (OnConflictAction::DoUpdate(_), _) => {
                    return Err(Error::invalid(
                        "ON CONFLICT DO UPDATE is not supported, as an event that was sent does not change by the next one: write ON CONFLICT DO \
                         NOTHING",
                    ));
                }
            },
            Some(_) => return Err(unsupported()),
        };
        let is_wildcard =
            |item: &SelectItem| matches!(item, SelectItem::Wildcard(_) | SelectItem::QualifiedWildcard(..));
        let returning = ast.returning.as_ref().map(|items| {
            let names_received = items.iter().filter(|item| !is_wildcard(item)).any(|item| {
                item.to_string().to_lowercase().contains(tidemill_types::column::RECEIVED)
            });
            match names_received {
                true => Err(Error::invalid(format!(
                    "RETURNING {0} is not supported, as the time of the log is known to readers only: leave it out, or SELECT it",
                    tidemill_types::column::RECEIVED
                ))),
                false => Ok(ReturningItems { has_wildcard: items.iter().any(is_wildcard) }),
            }
        });
        let parts = Parts::of(text, !columns.is_empty())?;
        if let InsertSource::Values(rows) = &source
            && rows.iter().map(Vec::len).ne(parts.cells.iter().map(Vec::len))
        {
            return Err(Error::internal("the cells of an INSERT were not found in its text"));
        }
        Ok(Self {
            schema,
            table,
            table_place: first.map_or_else(|| "INSERT".to_owned(), |ident| place_of_ident(ident, text)),
            alias: ast.table_alias.as_ref().map(|alias| alias.alias.to_string()),
            columns: Some(columns).filter(|columns| !columns.is_empty()),
            source,
            conflict,
            returning: returning.transpose()?,
            parts,
        })
    }
}

/// Returns the rows of a query that is `VALUES` and nothing else.
fn values_of(query: &Query) -> Option<Vec<Vec<ValuesCell>>> {
    let SetExpr::Values(values) = query.body.as_ref() else { return None };
    let is_plain = query.with.is_none()
        && query.order_by.is_none()
        && query.limit_clause.is_none()
        && query.fetch.is_none()
        && !values.explicit_row;
    is_plain.then(|| values.rows.iter().map(|row| row.content.iter().map(ValuesCell::of).collect()).collect())
}

/// Checks for parts of the statement that other databases have.
fn check_form(ast: &Ast) -> Result<()> {
    let is_plain = ast.into
        && ast.or.is_none()
        && !ast.ignore
        && !ast.overwrite
        && ast.assignments.is_empty()
        && ast.partitioned.is_none()
        && ast.after_columns.is_empty()
        && !ast.has_table_keyword
        && ast.output.is_none()
        && !ast.replace_into
        && ast.priority.is_none()
        && ast.insert_alias.is_none()
        && ast.settings.is_none()
        && ast.format_clause.is_none()
        && ast.multi_table_insert_type.is_none();
    if is_plain { Ok(()) } else { Err(unsupported()) }
}

fn unsupported() -> Error {
    Error::invalid(
        "this form of INSERT is not supported: write INSERT INTO stream (columns) VALUES (…), (…), or a query in place of VALUES, with ON \
         CONFLICT DO NOTHING and RETURNING behind it",
    )
}

/// Returns the schema and the name of a table.
fn table_name(name: &ObjectName) -> Result<(String, String)> {
    let parts: Option<Vec<&str>> =
        name.0.iter().map(|part| part.as_ident().map(|ident| ident.value.as_str())).collect();
    match parts.ok_or_else(unsupported)?.as_slice() {
        [table] => Ok((DEFAULT_SCHEMA.to_owned(), (*table).to_owned())),
        [schema, table] | [CATALOG, schema, table] => Ok(((*schema).to_owned(), (*table).to_owned())),
        [catalog, ..] => Err(Error::not_found(format!(
            "there is no catalog `{catalog}`: write schema and table, for example events.readings"
        ))),
        [] => Err(unsupported()),
    }
}

fn place_of_ident(ident: &Ident, text: &str) -> String {
    place(text, ident.span.start.line, ident.span.start.column)
}
