//! Names as PostgreSQL has them: those without quotes in lower case, and columns named after their function.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use arrow::datatypes::{DataType as ArrowType, Field, FieldRef, Schema, SchemaRef};
use datafusion::logical_expr::sqlparser::ast::{
    AccessExpr, DataType, Expr, Ident, JoinConstraint, JoinOperator, ObjectName, Query, Select, SelectItem,
    SelectItemQualifiedWildcardKind, SetExpr, Statement as Ast, TableAlias, TableFactor, VisitMut,
    VisitorMut,
};
use tidemill_database::PG_TYPE;

use super::build::{called, number};
use super::{Mentions, catalog_of};
use crate::pg_catalog::functions;

/// Mark at the end of the name of a column that has the name of another one, as DataFusion allows each name once. It has no width.
const REPEATED: char = '\u{2060}';

/// Writes the names without quotes in lower case.
pub(super) fn fold(ast: &mut Ast) {
    let _ = VisitMut::visit(ast, &mut Folder);
}

struct Folder;

fn ident(ident: &mut Ident) {
    if ident.quote_style.is_none() {
        ident.value = ident.value.to_lowercase();
    }
}

fn object(name: &mut ObjectName) {
    for part in &mut name.0 {
        if let datafusion::logical_expr::sqlparser::ast::ObjectNamePart::Identifier(part) = part {
            ident(part);
        }
    }
}

fn alias(alias: &mut TableAlias) {
    ident(&mut alias.name);
    for column in &mut alias.columns {
        ident(&mut column.name);
    }
}

impl VisitorMut for Folder {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> ControlFlow<()> {
        if let Some(with) = &mut query.with {
            for table in &mut with.cte_tables {
                alias(&mut table.alias);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> ControlFlow<()> {
        for item in &mut select.projection {
            match item {
                SelectItem::ExprWithAlias { alias, .. } => ident(alias),
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                    object(name)
                }
                _ => {}
            }
        }
        for join in select.from.iter_mut().flat_map(|table| &mut table.joins) {
            let (JoinOperator::Join(constraint)
            | JoinOperator::Inner(constraint)
            | JoinOperator::Left(constraint)
            | JoinOperator::LeftOuter(constraint)
            | JoinOperator::Right(constraint)
            | JoinOperator::RightOuter(constraint)
            | JoinOperator::FullOuter(constraint)) = &mut join.join_operator
            else {
                continue;
            };
            if let JoinConstraint::Using(columns) = constraint {
                columns.iter_mut().for_each(object);
            }
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> ControlFlow<()> {
        object(relation);
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { alias: Some(name), .. }
        | TableFactor::Derived { alias: Some(name), .. }
        | TableFactor::UNNEST { alias: Some(name), .. }
        | TableFactor::NestedJoin { alias: Some(name), .. } = factor
        {
            alias(name);
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        match expr {
            Expr::Identifier(name) => ident(name),
            Expr::CompoundIdentifier(parts) => parts.iter_mut().for_each(ident),
            Expr::Function(call) => object(&mut call.name),
            Expr::CompoundFieldAccess { access_chain, .. } => {
                for access in access_chain {
                    if let AccessExpr::Dot(Expr::Identifier(name)) = access {
                        ident(name);
                    }
                }
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Gives the columns that are named after their text the names that PostgreSQL gives them.
pub(super) fn name_columns(ast: &mut Ast, named: &[usize], mentions: Mentions) {
    let Ast::Query(query) = ast else { return };
    let mut body = query.body.as_mut();
    let select = loop {
        body = match body {
            SetExpr::Select(select) => break select,
            SetExpr::SetOperation { left, .. } => left,
            SetExpr::Query(inner) => inner.body.as_mut(),
            _ => return,
        };
    };
    let mut taken: HashSet<String> = select
        .projection
        .iter()
        .enumerate()
        .filter(|(at, _)| !named.contains(at))
        .filter_map(|(_, item)| match item {
            SelectItem::ExprWithAlias { alias, .. } => Some(alias.value.clone()),
            SelectItem::UnnamedExpr(Expr::Identifier(name)) => Some(name.value.clone()),
            SelectItem::UnnamedExpr(Expr::CompoundIdentifier(parts)) => {
                parts.last().map(|name| name.value.clone())
            }
            _ => None,
        })
        .collect();
    for (at, item) in select.projection.iter_mut().enumerate() {
        let SelectItem::ExprWithAlias { expr, alias } = item else { continue };
        if !named.contains(&at) {
            continue;
        }
        let is_own = mentions.relations || called(expr).is_some_and(|name| functions::is_known(&name));
        if !is_own {
            continue;
        }
        alias.value = free_name(name_of(expr).unwrap_or_else(|| "?column?".to_owned()), &mut taken);
    }
    if mentions.relations {
        repeat_columns(select);
    }
}

/// Returns the name, with marks at its end if it is taken.
fn free_name(mut name: String, taken: &mut HashSet<String>) -> String {
    while !taken.insert(name.clone()) {
        name.push(REPEATED);
    }
    name
}

/// Marks the columns that are in the result once more, as in `SELECT c.oid, c.*`.
fn repeat_columns(select: &mut Select) {
    let mut wildcards: Vec<String> = vec![];
    let mut has_star = false;
    for item in &select.projection {
        match item {
            SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), _) => {
                wildcards
                    .extend(name.0.last().and_then(|part| part.as_ident()).map(|ident| ident.value.clone()));
            }
            SelectItem::Wildcard(_) => has_star = true,
            _ => {}
        }
    }
    let (mut seen, mut marked) = (HashSet::new(), HashSet::new());
    for item in &mut select.projection {
        let SelectItem::UnnamedExpr(expr) = item else { continue };
        let (table, column) = match &*expr {
            Expr::Identifier(column) => (None, column.value.clone()),
            Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                [.., table, column] => (Some(table.value.clone()), column.value.clone()),
                _ => continue,
            },
            _ => continue,
        };
        let in_wildcard = has_star || table.as_ref().is_some_and(|table| wildcards.contains(table));
        if seen.insert((table, column.clone())) && !in_wildcard {
            continue;
        }
        marked.insert(column.clone());
        let name = free_name(column, &mut marked);
        let expr = std::mem::replace(expr, super::build::null());
        *item = SelectItem::ExprWithAlias { expr, alias: Ident::with_quote('"', name) };
    }
}

/// Returns the columns of a result as clients see them: without the marks at the end of their names, and with the type of lists of oids.
pub(crate) fn without_marks(schema: &SchemaRef) -> SchemaRef {
    let is_marked = |field: &FieldRef| field.name().ends_with(REPEATED);
    let is_of_catalogs = schema.fields().iter().any(|field| pg_type(field) == Some("oid"));
    if !is_of_catalogs && !schema.fields().iter().any(is_marked) {
        return schema.clone();
    }
    let fields = schema.fields().iter().map(|field| {
        let name = field.name().trim_end_matches(REPEATED).to_owned();
        let mut field = field.as_ref().clone().with_name(name);
        if is_of_catalogs && is_list_of_oids(&field) {
            field = field.with_metadata([(PG_TYPE.to_owned(), "oid[]".to_owned())].into());
        }
        field
    });
    Arc::new(Schema::new_with_metadata(fields.collect::<Vec<_>>(), schema.metadata().clone()))
}

fn pg_type(field: &Field) -> Option<&str> {
    field.metadata().get(PG_TYPE).map(String::as_str)
}

/// Returns whether a column beside oids is a list of them. `array_agg` and `CASE` do not keep the type of their arguments; asyncpg looks types up
/// by a statement with such a column, `attrtypoids`, and would look up a list of another type by the same statement, for ever.
fn is_list_of_oids(field: &Field) -> bool {
    let items = match field.data_type() {
        ArrowType::List(item) | ArrowType::LargeList(item) => item.data_type(),
        _ => return false,
    };
    *items == ArrowType::Int64 && pg_type(field).is_none() && field.name().ends_with("oids")
}

/// Returns the name of a column that is an expression.
fn name_of(expr: &Expr) -> Option<String> {
    Some(match expr {
        Expr::Identifier(name) => name.value.clone(),
        Expr::CompoundIdentifier(parts) => parts.last()?.value.clone(),
        Expr::Function(_) => called(expr)?,
        Expr::Nested(inner) | Expr::Collate { expr: inner, .. } => name_of(inner)?,
        Expr::Cast { expr: inner, data_type, .. } => name_of(inner).unwrap_or_else(|| match data_type {
            DataType::Custom(name, _) => name.0.last().map(ToString::to_string).unwrap_or_default(),
            other => other.to_string().to_lowercase(),
        }),
        Expr::Case { else_result, .. } => {
            else_result.as_ref().and_then(|last| name_of(last)).unwrap_or_else(|| "case".to_owned())
        }
        Expr::CompoundFieldAccess { root, access_chain } => match access_chain.last() {
            Some(AccessExpr::Dot(Expr::Identifier(name))) => name.value.clone(),
            _ => name_of(root)?,
        },
        Expr::Array(_) => "array".to_owned(),
        Expr::Exists { .. } => "exists".to_owned(),
        Expr::Subquery(query) => match query.body.as_ref() {
            SetExpr::Select(select) => match select.projection.first()? {
                SelectItem::ExprWithAlias { alias, .. } => alias.value.clone(),
                SelectItem::UnnamedExpr(expr) => name_of(expr)?,
                _ => return None,
            },
            _ => return None,
        },
        _ => return None,
    })
}

/// Replaces `table.tableoid` by the number of the catalog.
pub(super) fn table_oids(select: &mut Select) {
    struct Replacer(Vec<(String, u32)>);
    impl VisitorMut for Replacer {
        type Break = ();

        fn post_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
            let found = match expr {
                Expr::CompoundIdentifier(parts) => match parts.as_slice() {
                    [.., table, column] if column.value == "tableoid" => {
                        self.0.iter().find(|(name, _)| *name == table.value).map(|(_, oid)| *oid)
                    }
                    _ => None,
                },
                Expr::Identifier(column) if column.value == "tableoid" => match self.0.as_slice() {
                    [(_, oid)] => Some(*oid),
                    _ => None,
                },
                _ => None,
            };
            if let Some(oid) = found {
                *expr = number(oid.into());
            }
            ControlFlow::Continue(())
        }
    }
    let mut catalogs = vec![];
    for table in &select.from {
        for factor in std::iter::once(&table.relation).chain(table.joins.iter().map(|join| &join.relation)) {
            if let TableFactor::Table { name, alias, args: None, .. } = factor
                && let Some(catalog) = catalog_of(name)
            {
                let name =
                    alias.as_ref().map_or_else(|| catalog.name.to_owned(), |alias| alias.name.value.clone());
                catalogs.push((name, catalog.oid));
            }
        }
    }
    if !catalogs.is_empty() {
        let _ = VisitMut::visit(select, &mut Replacer(catalogs));
    }
}
