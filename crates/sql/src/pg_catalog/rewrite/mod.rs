//! Statements over PostgreSQL's catalogs in words that DataFusion understands.
//!
//! Tools send statements that PostgreSQL alone understands. Those that name a catalog, or a function or a type of the catalogs, are
//! rewritten on the way to planning; all others stay as they are.
//!
//! ```text
//! c.relname OPERATOR(pg_catalog.~) '^(a)$' COLLATE pg_catalog.default     c.relname ~ '^(a)$'
//! 'pg_class'::regclass, c.oid::regclass::text                             __regclass_oid('pg_class'), __regclass_name(c.oid)
//! (SELECT x FROM t WHERE t.a = o.a)                                       (SELECT __single_value(x) FROM t WHERE t.a = o.a)
//! (SELECT x FROM t WHERE t.a <> o.a)                                      a column of LEFT JOIN LATERAL (SELECT x …) ON true
//! ARRAY(SELECT x FROM t ORDER BY 1)                                       __or_empty((SELECT array_agg(x ORDER BY x) FROM t))
//! SELECT generate_subscripts(i.indkey, 1)                                 SELECT unnest(generate_subscripts(i.indkey, 1))
//! (SELECT … FROM pg_policy …)                                             NULL: the catalog has no rows
//! ```

mod build;
mod emptiness;
mod expressions;
mod names;
mod scalars;
mod series;

use std::ops::ControlFlow;

use datafusion::logical_expr::sqlparser::ast::{
    BinaryOperator, DataType, Expr, ObjectName, Query, Select, Statement as Ast, TableFactor, Visit,
    VisitMut, Visitor, VisitorMut,
};
use datafusion::logical_expr::sqlparser::parser::Parser;
use datafusion::sql::parser::Statement;
use tidemill_types::{Error, Result};

pub(crate) use build::call;
pub(crate) use names::without_marks;

use super::objects::{INFORMATION_SCHEMA, PG_CATALOG};
use super::{definitions, functions};
use crate::dialect::TidemillDialect;

/// Parts of the catalogs that a statement names.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mentions {
    /// A table or view.
    pub relations: bool,
    /// A function, a type or an operator.
    pub functions: bool,
}

impl Mentions {
    /// Returns whether the statement names any part.
    pub fn any(self) -> bool {
        self.relations || self.functions
    }
}

/// Words, one at least in each statement that names a part of the catalogs: a look at them is cheaper than one at the tree.
const WORDS: [&str; 23] = [
    "pg_",
    "information_schema",
    "reg",
    "current_",
    "session_user",
    "version",
    "has_",
    "format",
    "_description",
    "quote_",
    "set_config",
    "generate_subscripts",
    "array_upper",
    "array_lower",
    "parse_ident",
    "oidvectortypes",
    "user",
    "getdatabaseencoding",
    "operator",
    "row_security_active",
    "show",
    "unnest",
    "::",
];

/// Rewrites a statement if it names a part of the catalogs. `named` has the numbers of its result columns whose name is the text of
/// their expression.
///
/// Errors: `Invalid` for what cannot be rewritten.
pub(crate) fn rewrite(statement: &mut Statement, text: &str, named: &[usize]) -> Result<Mentions> {
    let text = text.to_ascii_lowercase();
    if text.contains("generate_series") {
        series::expand(statement);
    }
    if !WORDS.iter().any(|word| text.contains(word)) {
        return Ok(Mentions::default());
    }
    let ast = match statement {
        Statement::Statement(ast) => ast.as_mut(),
        Statement::Explain(explain) => return rewrite(&mut explain.statement, &text, &[]),
        _ => return Ok(Mentions::default()),
    };
    if let Ast::ShowTables { .. } = ast {
        return show_tables(ast);
    }
    let mut finder = MentionFinder::default();
    let _ = Visit::visit(ast, &mut finder);
    let mentions = finder.0;
    if !mentions.any() {
        return Ok(mentions);
    }
    if mentions.relations {
        names::fold(ast);
    }
    names::name_columns(ast, named, mentions);
    let mut rewriter = Rewriter::default();
    match VisitMut::visit(ast, &mut rewriter) {
        ControlFlow::Continue(()) => {}
        ControlFlow::Break(error) => return Err(*error),
    }
    expressions::show_names(ast);
    Ok(mentions)
}

/// Makes `SHOW TABLES` list the tables of the data, without those of the catalogs.
fn show_tables(ast: &mut Ast) -> Result<Mentions> {
    const TABLES: &str = "SELECT table_catalog, table_schema, table_name, table_type FROM information_schema.tables \
                          WHERE table_schema NOT IN ('pg_catalog', 'information_schema')";
    let plain = ast.to_string().eq_ignore_ascii_case("show tables");
    if plain {
        let parsed = Parser::parse_sql(&TidemillDialect, TABLES);
        let parsed = parsed.map_err(|e| Error::internal(format!("SHOW TABLES: {e}")))?;
        if let Some(query) = parsed.into_iter().next() {
            *ast = query;
        }
    }
    Ok(Mentions { relations: true, functions: false })
}

/// Returns the catalog that a table's name means.
pub(super) fn catalog_of(name: &ObjectName) -> Option<&'static definitions::Definition> {
    let parts: Vec<String> =
        name.0.iter().filter_map(|part| part.as_ident().map(|ident| ident.value.to_lowercase())).collect();
    match parts.as_slice() {
        [name] => definitions::find(PG_CATALOG, name),
        [schema, name] | [_, schema, name] => definitions::find(schema, name),
        _ => None,
    }
}

/// Returns the last part of a name, and whether the one before is a schema of the catalogs.
fn last_part(name: &ObjectName) -> (String, bool) {
    let mut parts: Vec<String> =
        name.0.iter().filter_map(|part| part.as_ident().map(|ident| ident.value.to_lowercase())).collect();
    let last = parts.pop().unwrap_or_default();
    let is_of_catalogs =
        parts.last().is_some_and(|schema| schema == PG_CATALOG || schema == INFORMATION_SCHEMA);
    (last, is_of_catalogs)
}

#[derive(Default)]
struct MentionFinder(Mentions);

impl MentionFinder {
    fn ty(&mut self, ty: &DataType) {
        match ty {
            DataType::Regclass => self.0.functions = true,
            DataType::Custom(name, _) => {
                let (last, is_of_catalogs) = last_part(name);
                self.0.functions |= is_of_catalogs || expressions::object_type(&last).is_some();
            }
            _ => {}
        }
    }
}

impl Visitor for MentionFinder {
    type Break = ();

    fn pre_visit_relation(&mut self, name: &ObjectName) -> ControlFlow<()> {
        let (_, is_of_catalogs) = last_part(name);
        self.0.relations |= is_of_catalogs || catalog_of(name).is_some();
        ControlFlow::Continue(())
    }

    fn pre_visit_table_factor(&mut self, factor: &TableFactor) -> ControlFlow<()> {
        if let TableFactor::Table { name, args: Some(_), .. } = factor {
            let (last, is_of_catalogs) = last_part(name);
            self.0.functions |= is_of_catalogs || last == KEYWORDS || last == SETTINGS;
        }
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &Expr) -> ControlFlow<()> {
        match expr {
            Expr::Function(call) => {
                let (last, is_of_catalogs) = last_part(&call.name);
                self.0.functions |= is_of_catalogs || last.starts_with("pg_") || functions::is_known(&last);
            }
            Expr::Cast { data_type, .. } => self.ty(data_type),
            Expr::BinaryOp { op: BinaryOperator::PGCustomBinaryOperator(_), .. } => self.0.functions = true,
            _ => {}
        }
        ControlFlow::Continue(())
    }
}

/// Name of the table function of PostgreSQL's words.
pub(crate) const KEYWORDS: &str = "pg_get_keywords";
/// Name of the function whose rows are those of `pg_settings`.
const SETTINGS: &str = "pg_show_all_settings";

/// Visitor that rewrites from the inside to the outside.
#[derive(Default)]
struct Rewriter {
    /// Number of lateral queries so far.
    laterals: usize,
}

type Flow = ControlFlow<Box<Error>>;

fn refuse(error: Error) -> Flow {
    ControlFlow::Break(Box::new(error))
}

impl VisitorMut for Rewriter {
    type Break = Box<Error>;

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> Flow {
        series::table(factor);
        ControlFlow::Continue(())
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        emptiness::remove_domains(expr);
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, expr: &mut Expr) -> Flow {
        emptiness::replace(expr);
        scalars::replace_list(expr);
        match expressions::replace(expr) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => refuse(error),
        }
    }

    fn post_visit_select(&mut self, select: &mut Select) -> Flow {
        emptiness::simplify(select);
        scalars::join(select, &mut self.laterals);
        series::unnest(select);
        names::table_oids(select);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, _: &mut Query) -> Flow {
        ControlFlow::Continue(())
    }
}
