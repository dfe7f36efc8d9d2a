//! The shape of a statement: long chains made shallow, and bounds that hold before anything is planned.
//!
//! Planning recurses through the tree that the parser made, and through the plan that comes of it. Brackets are
//! bounded by the parser, but chains are not: `a OR b OR c …` is a tree as deep as it has terms. So chains of `AND`,
//! `OR`, `UNION` and `UNION ALL`, whose terms may be grouped at will, become balanced trees, and those of arithmetic and
//! `||` become calls of one function ([`chains`]). What is
//! still deeper than [`LEVELS_MAX`], or grows beyond [`RELATIONS_MAX`] tables once every `WITH` query stands where it
//! is used ([`size`]), is refused.

mod brackets;
mod chains;
mod grouping;
mod size;

use std::ops::ControlFlow;

use datafusion::logical_expr::sqlparser::ast::{Expr, ObjectName, Query, Select, Spanned, TableFactor};
use datafusion::logical_expr::sqlparser::ast::{Statement as Ast, VisitMut, VisitorMut};
use datafusion::logical_expr::sqlparser::tokenizer::Location;
use datafusion::sql::parser::Statement;
use tidemill_types::{Error, Result};

use crate::error::place;
use size::{QuerySize, Scopes};

pub(crate) use brackets::too_many as too_many_brackets;
pub(crate) use chains::make_lists;

/// The deepest tree, in operators and queries inside one another. The threads' stacks
/// ([`crate::stack::THREAD_BYTES`]) are made for it.
pub(crate) const LEVELS_MAX: usize = 500;

/// Tables that a query may read, those of `WITH` queries counted wherever the query is used.
pub(crate) const RELATIONS_MAX: usize = 2_000;

/// Tables that one `FROM` may join. Planning takes time that grows with the square of it.
pub(crate) const JOINED_MAX: usize = 300;

/// Grouping sets of one `SELECT`, as in PostgreSQL. Each is an expression of the plan for every grouped column.
pub(crate) const GROUPING_SETS_MAX: u64 = 4_096;

/// Operators, functions, columns and constants, those of `WITH` queries counted wherever the query is used.
pub(crate) const NODES_MAX: usize = 1_000_000;

/// Makes long chains shallow, then checks that the statement is within the bounds.
///
/// Errors: `Invalid` with the limit, what the statement has, and what to write instead.
pub(crate) fn bound(statement: &mut Statement, text: &str) -> Result<()> {
    match statement {
        Statement::Statement(ast) => bound_ast(ast, text),
        Statement::Explain(explain) => bound(&mut explain.statement, text),
        _ => Ok(()),
    }
}

fn bound_ast(ast: &mut Ast, text: &str) -> Result<()> {
    let mut bounds = BoundsChecker { text, levels: 0, scopes: Scopes::default() };
    match ast.visit(&mut bounds) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(error) => Err(*error),
    }
}

struct BoundsChecker<'t> {
    text: &'t str,
    /// Expressions that are being visited, one inside the other.
    levels: usize,
    scopes: Scopes,
}

type VisitFlow = ControlFlow<Box<Error>>;

fn refuse(message: String) -> VisitFlow {
    ControlFlow::Break(Box::new(Error::invalid(message)))
}

fn too_deep(levels: &str) -> VisitFlow {
    refuse(format!(
        "the query is nested {levels} levels deep, the limit is {LEVELS_MAX}. Write fewer operators \
         one upon the other: `x IN (…)` instead of many comparisons, `json_get(x, 'a', 'b', …)` instead of many `->`, \
         one join or GROUP BY instead of many queries"
    ))
}

/// Checks the size of one query, with everything in it.
fn check(size: &QuerySize) -> VisitFlow {
    if size.levels > LEVELS_MAX {
        return too_deep(&size.levels.to_string());
    }
    if size.relations > RELATIONS_MAX {
        return refuse(format!(
            "the query reads {} tables, the limit is {RELATIONS_MAX}; a WITH query counts wherever it is used. Read each \
             table once: filter with IN and group instead of joining or uniting many copies",
            size.relations
        ));
    }
    if size.nodes > NODES_MAX {
        return refuse(format!(
            "the query has {} expressions, the limit is {NODES_MAX}; a WITH query counts wherever it is used",
            size.nodes
        ));
    }
    ControlFlow::Continue(())
}

impl VisitorMut for BoundsChecker<'_> {
    type Break = Box<Error>;

    fn pre_visit_query(&mut self, query: &mut Query) -> VisitFlow {
        let levels = chains::balance_sets(&mut query.body);
        if levels > LEVELS_MAX {
            return too_deep(&levels.to_string());
        }
        self.scopes.enter(query, levels);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> VisitFlow {
        check(self.scopes.leave(query))
    }

    fn pre_visit_select(&mut self, select: &mut Select) -> VisitFlow {
        let sets = grouping::sets(&select.group_by);
        if sets > GROUPING_SETS_MAX {
            return refuse(format!(
                "GROUP BY makes {sets} grouping sets, the limit is {GROUPING_SETS_MAX}: CUBE of n expressions makes 2^n. \
                 Name those that you need with GROUPING SETS"
            ));
        }
        let joined: usize = select.from.iter().map(|t| 1 + t.joins.len()).sum();
        self.joined(joined)
    }

    fn pre_visit_table_factor(&mut self, factor: &mut TableFactor) -> VisitFlow {
        match factor {
            TableFactor::NestedJoin { table_with_joins, .. } => self.joined(1 + table_with_joins.joins.len()),
            _ => ControlFlow::Continue(()),
        }
    }

    fn pre_visit_relation(&mut self, relation: &mut ObjectName) -> VisitFlow {
        check(self.scopes.read(relation))
    }

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> VisitFlow {
        chains::balance(expr);
        chains::flatten(expr);
        // one node, but as many functions inside one another as there are brackets
        let accesses = match expr {
            Expr::CompoundFieldAccess { access_chain, .. } => access_chain.len(),
            _ => 0,
        };
        self.levels += 1;
        self.scopes.expression(self.levels + accesses);
        if self.levels + accesses > LEVELS_MAX {
            let at = first_place(expr);
            let deep = too_deep(&format!("more than {LEVELS_MAX}"));
            return match (deep, at.line) {
                (ControlFlow::Break(error), 1..) => {
                    ControlFlow::Break(Box::new(error.context(place(self.text, at.line, at.column))))
                }
                (deep, _) => deep,
            };
        }
        ControlFlow::Continue(())
    }

    fn post_visit_expr(&mut self, _: &mut Expr) -> VisitFlow {
        self.levels -= 1;
        ControlFlow::Continue(())
    }
}

/// Where the first operand of a chain is. Does not recurse, as [`Spanned::span`] does.
fn first_place(mut expr: &Expr) -> Location {
    loop {
        expr = match expr {
            Expr::BinaryOp { left, .. } => left,
            Expr::Cast { expr, .. } | Expr::Nested(expr) | Expr::IsNull(expr) | Expr::IsNotNull(expr) => expr,
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => return expr.span().start,
            _ => return Location::empty(),
        }
    }
}

impl BoundsChecker<'_> {
    fn joined(&mut self, tables: usize) -> VisitFlow {
        self.scopes.join(tables);
        if tables > JOINED_MAX {
            return refuse(format!(
                "one FROM joins {tables} tables, the limit is {JOINED_MAX}: join fewer, or unite the rows with UNION ALL \
                 and group them"
            ));
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests;
