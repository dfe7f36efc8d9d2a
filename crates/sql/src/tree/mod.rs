//! Flattening of long chains, and limits on the size of a statement that are checked before planning.
//!
//! Planning recurses through the parser's tree and through the plan. The parser limits nested brackets but
//! not chains: `a OR b OR c …` is a tree as deep as it has terms. Therefore chains of `AND`, `OR`, `UNION`
//! and `UNION ALL`, which are associative, become balanced trees, and chains of arithmetic operators and `||`
//! become calls of one function ([`chains`]). A statement that is still deeper than [`LEVELS_MAX`], or that
//! reads more than [`RELATIONS_MAX`] tables once every `WITH` query is expanded where it is used ([`size`]),
//! is rejected.
//!
//! What DataFusion would misunderstand is written in other words on the way: powers, types of times, rows in brackets
//! ([`rows`]), `ANY` and `ALL` ([`quantified`]), patterns ([`patterns`]), `FETCH`, and columns of `USING` ([`using`]).

mod brackets;
mod chains;
mod fetch;
mod grouping;
mod json;
mod patterns;
mod power;
mod quantified;
mod rows;
mod size;
mod synonyms;
mod time_types;
mod using;

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
pub(crate) use patterns::with_backslashes;

/// Maximum depth of a tree, in nested operators and queries. The threads' stacks
/// ([`crate::execution::stack::THREAD_BYTES`]) are sized for it.
pub(crate) const LEVELS_MAX: usize = 500;

/// Maximum tables that a query may read; those of a `WITH` query count at each use.
pub(crate) const RELATIONS_MAX: usize = 2_000;

/// Maximum tables that one `FROM` may join. Planning time grows with its square.
pub(crate) const JOINED_MAX: usize = 300;

/// Maximum grouping sets of one `SELECT`, as in PostgreSQL. Each is an expression of the plan for every
/// grouped column.
pub(crate) const GROUPING_SETS_MAX: u64 = 4_096;

/// Maximum operators, functions, columns and constants; those of a `WITH` query count at each use.
pub(crate) const NODES_MAX: usize = 1_000_000;

/// Flattens long chains, then checks that the statement is within the limits.
///
/// Errors: `Invalid` with the limit, the statement's value, and what to write instead.
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
    /// Depth of the expression being visited.
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

/// Checks the size of one query, including its subqueries.
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
        if let Err(why) = fetch::replace(query) {
            return refuse(why.to_owned());
        }
        let levels = chains::balance_sets(&mut query.body);
        if levels > LEVELS_MAX {
            return too_deep(&levels.to_string());
        }
        self.scopes.enter(query, levels);
        ControlFlow::Continue(())
    }

    fn post_visit_query(&mut self, query: &mut Query) -> VisitFlow {
        check(self.scopes.leave(query))?;
        // its expressions are not too deep to be visited once more
        using::replace(query).map_or_else(|refused| self.refuse_at(refused), ControlFlow::Continue)
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
        let checked = json::check(expr)
            .and_then(|()| rows::expand(expr))
            .and_then(|()| quantified::replace(expr))
            .and_then(|()| patterns::replace(expr));
        if let Err(refused) = checked {
            return self.refuse_at(refused);
        }
        synonyms::replace(expr);
        power::replace(expr);
        time_types::to_micros(expr);
        chains::balance(expr);
        chains::flatten(expr);
        // one node, but it becomes as many nested functions as there are accesses
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

/// Returns the location of the first operand of a chain. Unlike [`Spanned::span`], it does not recurse.
fn first_place(mut expr: &Expr) -> Location {
    loop {
        expr = match expr {
            Expr::BinaryOp { left, .. } => left,
            Expr::Tuple(columns) => match columns.first() {
                Some(first) => first,
                None => return Location::empty(),
            },
            Expr::Cast { expr, .. } | Expr::Nested(expr) | Expr::IsNull(expr) | Expr::IsNotNull(expr) => expr,
            Expr::Identifier(_) | Expr::CompoundIdentifier(_) | Expr::Value(_) => return expr.span().start,
            _ => return Location::empty(),
        }
    }
}

impl BoundsChecker<'_> {
    fn refuse_at(&self, (at, why): (Location, String)) -> VisitFlow {
        let error = Error::invalid(why);
        ControlFlow::Break(Box::new(match at.line {
            0 => error,
            _ => error.context(place(self.text, at.line, at.column)),
        }))
    }

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
