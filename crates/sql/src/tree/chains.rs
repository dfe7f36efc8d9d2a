//! Rewriting of long chains of operators into shallow trees.

use std::collections::HashMap;
use std::mem;

use datafusion::logical_expr::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    Ident, ObjectName, SetExpr, SetOperator, SetQuantifier, Value, ValueWithSpan, Values, VisitMut,
    VisitorMut,
};
use datafusion::sql::parser::Statement;

use crate::functions::CHAIN;
use std::ops::ControlFlow;

/// Chains up to this length are not changed.
const SHORT: usize = 32;

/// Rewrites a long chain of `AND` or `OR` at `expr` as a balanced tree. The terms keep their order.
///
/// Only these two are balanced: `+` and `||` are not associative for times, floats and lists, so they become
/// a function call ([`flatten`]).
pub(super) fn balance(expr: &mut Expr) {
    let Some(op) = logical(expr) else { return };
    let mut length = 1;
    let mut at = &*expr;
    while let Expr::BinaryOp { left, op: this, .. } = at
        && *this == op
    {
        length += 1;
        at = left;
    }
    if length > SHORT {
        *expr = balanced_tree(terms(take(expr), &op), &op);
    }
}

/// Rewrites a long chain of arithmetic operators and `||` at `expr` as one call of
/// [`crate::functions::CHAIN`].
pub(super) fn flatten(expr: &mut Expr) {
    let mut length = 0;
    let mut at = &*expr;
    while let Expr::BinaryOp { left, op, .. } = at
        && letter(op).is_some()
    {
        length += 1;
        at = left;
    }
    if length <= SHORT {
        return;
    }
    let (mut operators, mut operands) = (vec![], vec![]);
    let mut at = take(expr);
    let first = loop {
        match at {
            Expr::BinaryOp { left, op, right } if letter(&op).is_some() => {
                operators.extend(letter(&op));
                operands.push(*right);
                at = *left;
            }
            first => break first,
        }
    };
    operands.push(first);
    let operators: String = operators.into_iter().rev().collect();
    let text = Expr::Value(Value::SingleQuotedString(operators).with_empty_span());
    *expr = call(CHAIN, std::iter::once(text).chain(operands.into_iter().rev()));
}

fn letter(op: &BinaryOperator) -> Option<char> {
    Some(match op {
        BinaryOperator::Plus => '+',
        BinaryOperator::Minus => '-',
        BinaryOperator::Multiply => '*',
        BinaryOperator::Divide => '/',
        BinaryOperator::Modulo => '%',
        BinaryOperator::StringConcat => '|',
        _ => return None,
    })
}

pub(super) fn call(name: &str, args: impl Iterator<Item = Expr>) -> Expr {
    let args = args.map(|e| FunctionArg::Unnamed(FunctionArgExpr::Expr(e))).collect();
    Expr::Function(Function {
        name: ObjectName::from(vec![Ident::new(name)]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(FunctionArgumentList {
            duplicate_treatment: None,
            args,
            clauses: vec![],
        }),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}

fn logical(expr: &Expr) -> Option<BinaryOperator> {
    match expr {
        Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => Some(op.clone()),
        _ => None,
    }
}

pub(super) fn take(expr: &mut Expr) -> Expr {
    mem::replace(expr, Expr::Value(Value::Null.with_empty_span()))
}

/// Returns the terms of the chain of `op` at `expr`, left to right.
fn terms(expr: Expr, op: &BinaryOperator) -> Vec<Expr> {
    let mut terms = vec![];
    let mut rest = vec![expr];
    while let Some(expr) = rest.pop() {
        match expr {
            Expr::BinaryOp { left, op: this, right } if this == *op => rest.extend([*right, *left]),
            term => terms.push(term),
        }
    }
    terms
}

/// Builds a balanced tree of `terms`.
pub(super) fn balanced_tree(mut terms: Vec<Expr>, op: &BinaryOperator) -> Expr {
    while terms.len() > 1 {
        let mut pairs = Vec::with_capacity(terms.len().div_ceil(2));
        let mut left = terms.into_iter();
        while let Some(first) = left.next() {
            pairs.push(match left.next() {
                Some(second) => {
                    Expr::BinaryOp { left: Box::new(first), op: op.clone(), right: Box::new(second) }
                }
                None => first,
            });
        }
        terms = pairs;
    }
    terms.pop().unwrap_or_else(|| Expr::Value(Value::Null.with_empty_span()))
}

/// Rewrites long chains of `UNION` or `UNION ALL` as balanced trees and returns the resulting depth of the
/// set operations. Does not descend into parenthesized queries.
pub(super) fn balance_sets(body: &mut SetExpr) -> usize {
    let mut deepest = 0;
    let mut rest = vec![(body, 0_usize)];
    while let Some((body, level)) = rest.pop() {
        deepest = deepest.max(level);
        balance_set(body);
        if let SetExpr::SetOperation { left, right, .. } = body {
            rest.extend([(left.as_mut(), level + 1), (right.as_mut(), level + 1)]);
        }
    }
    deepest
}

fn balance_set(body: &mut SetExpr) {
    let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, .. } = body else { return };
    // BY NAME appends columns of later queries after those of earlier ones, so grouping would matter
    if !matches!(set_quantifier, SetQuantifier::All | SetQuantifier::Distinct | SetQuantifier::None) {
        return;
    }
    let quantifier = *set_quantifier;
    let mut length = 1;
    let mut at = &*body;
    while let SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, .. } = at
        && *set_quantifier == quantifier
    {
        length += 1;
        at = left;
    }
    if length > SHORT {
        *body = balanced_set_tree(set_terms(take_set(body), quantifier), quantifier);
    }
}

fn take_set(body: &mut SetExpr) -> SetExpr {
    mem::replace(body, no_rows())
}

fn no_rows() -> SetExpr {
    SetExpr::Values(Values { explicit_row: false, value_keyword: false, rows: vec![] })
}

fn set_terms(body: SetExpr, quantifier: SetQuantifier) -> Vec<SetExpr> {
    let mut terms = vec![];
    let mut at = body;
    loop {
        match at {
            SetExpr::SetOperation { op: SetOperator::Union, set_quantifier, left, right }
                if set_quantifier == quantifier =>
            {
                terms.push(*right);
                at = *left;
            }
            first => {
                terms.push(first);
                terms.reverse();
                return terms;
            }
        }
    }
}

fn balanced_set_tree(mut terms: Vec<SetExpr>, quantifier: SetQuantifier) -> SetExpr {
    while terms.len() > 1 {
        let mut pairs = Vec::with_capacity(terms.len().div_ceil(2));
        let mut left = terms.into_iter();
        while let Some(first) = left.next() {
            pairs.push(match left.next() {
                Some(second) => SetExpr::SetOperation {
                    op: SetOperator::Union,
                    set_quantifier: quantifier,
                    left: Box::new(first),
                    right: Box::new(second),
                },
                None => first,
            });
        }
        terms = pairs;
    }
    terms.pop().unwrap_or_else(no_rows)
}

/// Rewrites `x = 1 OR x = 2 OR …` as `x IN (1, 2, …)`, and `x <> 1 AND x <> 2 AND …` as `x NOT IN (1, 2, …)`,
/// which is planned and run in a fraction of the time.
pub(crate) fn make_lists(statement: &mut Statement) {
    match statement {
        Statement::Statement(ast) => {
            let _ = ast.visit(&mut InListRewriter);
        }
        Statement::Explain(explain) => make_lists(&mut explain.statement),
        _ => {}
    }
}

struct InListRewriter;

impl VisitorMut for InListRewriter {
    type Break = ();

    fn pre_visit_expr(&mut self, expr: &mut Expr) -> ControlFlow<()> {
        let Some(op) = logical(expr) else { return ControlFlow::Continue(()) };
        let found = terms(take(expr), &op);
        *expr = match found.len() > SHORT {
            true => balanced_tree(to_in_lists(found, &op), &op),
            false => left_deep_chain(found, &op),
        };
        ControlFlow::Continue(())
    }
}

/// Builds a left-deep chain, as the parser does.
fn left_deep_chain(terms: Vec<Expr>, op: &BinaryOperator) -> Expr {
    let join = |left: Expr, right: Expr| Expr::BinaryOp {
        left: Box::new(left),
        op: op.clone(),
        right: Box::new(right),
    };
    terms.into_iter().reduce(join).unwrap_or_else(|| Expr::Value(Value::Null.with_empty_span()))
}

/// Merges the terms of a chain of `op` that compare one expression with constants of one kind into an IN
/// list, at the position of the first of them.
fn to_in_lists(terms: Vec<Expr>, op: &BinaryOperator) -> Vec<Expr> {
    let negated = *op == BinaryOperator::And;
    let comparison = if negated { BinaryOperator::NotEq } else { BinaryOperator::Eq };
    let mut places: HashMap<(Expr, ConstantKind), usize> = HashMap::new();
    let mut listed: Vec<Expr> = vec![];
    for term in terms {
        let (left, right, kind) = match term {
            Expr::BinaryOp { left, op, right } if op == comparison => match ConstantKind::of(&right) {
                Some(kind) => (left, right, kind),
                None => {
                    listed.push(Expr::BinaryOp { left, op, right });
                    continue;
                }
            },
            other => {
                listed.push(other);
                continue;
            }
        };
        let key = (*left, kind);
        let place = places.get(&key).copied();
        match place.and_then(|p| listed.get_mut(p)) {
            Some(Expr::InList { list, .. }) => list.push(*right),
            _ => {
                let expr = Box::new(key.0.clone());
                places.insert(key, listed.len());
                listed.push(Expr::InList { expr, list: vec![*right], negated });
            }
        }
    }
    listed
}

/// Kind of a constant. Constants of one kind have one type, so that a list of them compares as each of them
/// would.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum ConstantKind {
    Whole,
    Fraction,
    Text,
}

impl ConstantKind {
    fn of(expr: &Expr) -> Option<Self> {
        match expr {
            Expr::Value(ValueWithSpan { value: Value::Number(digits, _), .. }) => {
                Some(if digits.bytes().all(|b| b.is_ascii_digit()) { Self::Whole } else { Self::Fraction })
            }
            Expr::Value(ValueWithSpan { value: Value::SingleQuotedString(_), .. }) => Some(Self::Text),
            _ => None,
        }
    }
}
