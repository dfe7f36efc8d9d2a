//! Both spellings of the join, in the words of other joins.

use std::collections::{HashMap, HashSet};

use datafusion::logical_expr::sqlparser::ast::{
    BinaryOperator, Expr, Function, FunctionArg, FunctionArgExpr, FunctionArgumentList, FunctionArguments,
    Ident, Join, JoinConstraint, JoinOperator, ObjectName, ObjectNamePart, Query, SetExpr, TableFactor,
    TableWithJoins, Value, VisitMut, VisitorMut,
};
use datafusion::logical_expr::sqlparser::dialect::Dialect;
use datafusion::logical_expr::sqlparser::keywords::Keyword;
use datafusion::logical_expr::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer, Word};
use datafusion::sql::parser::Statement;
use tidemill_types::{Error, Result};

use super::invalid;
use super::rule::MARKER;
use crate::error::place;

/// Match conditions that stand for the comparison in `ON`.
const IN_ON: [&str; 2] = ["inner", "left"];

/// Returns the tokens of `text` with a match condition for each ASOF join, as the parser wants it; `None` if
/// the text has no such join, or cannot be tokenized.
///
/// Errors: `Invalid`, with a place, for a join without conditions.
pub(crate) fn tokens(text: &str, dialect: &dyn Dialect) -> Result<Option<Vec<TokenWithSpan>>> {
    if !text.as_bytes().windows(4).any(|word| word.eq_ignore_ascii_case(b"asof")) {
        return Ok(None);
    }
    let Ok(tokens) = Tokenizer::new(dialect, text).tokenize_with_location() else { return Ok(None) };
    let mut left_out = HashSet::new();
    let mut inserted: HashMap<usize, &str> = HashMap::new();
    let mut found = false;
    for (index, token) in tokens.iter().enumerate() {
        if keyword(token) != Some(Keyword::ASOF) {
            continue;
        }
        let Some((is_left, join)) = join_after(&tokens, index + 1) else { continue };
        found = true;
        left_out.extend(index + 1..join);
        let condition = condition_after(&tokens, join + 1).ok_or_else(|| {
            let at = token.span.start;
            invalid(&format!("{}: an ASOF JOIN needs conditions", place(text, at.line, at.column)))
        })?;
        if keyword(&tokens[condition]) != Some(Keyword::MATCH_CONDITION) {
            inserted.insert(condition, IN_ON[usize::from(is_left)]);
        }
    }
    if !found {
        return Ok(None);
    }
    let mut out: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len() + 4 * inserted.len());
    for (index, token) in tokens.into_iter().enumerate() {
        if let Some(kind) = inserted.get(&index) {
            out.extend(
                match_condition(kind).map(|inserted| TokenWithSpan { token: inserted, span: token.span }),
            );
        }
        if !left_out.contains(&index) {
            out.push(token);
        }
    }
    Ok(Some(out))
}

/// Returns `MATCH_CONDITION ('kind')`.
fn match_condition(kind: &str) -> [Token; 4] {
    let word =
        Word { value: "MATCH_CONDITION".to_owned(), quote_style: None, keyword: Keyword::MATCH_CONDITION };
    [Token::Word(word), Token::LParen, Token::SingleQuotedString(kind.to_owned()), Token::RParen]
}

fn keyword(token: &TokenWithSpan) -> Option<Keyword> {
    match &token.token {
        Token::Word(word) if word.quote_style.is_none() => Some(word.keyword),
        _ => None,
    }
}

/// Returns whether the join from token `next` on keeps all left rows, and the place of JOIN.
fn join_after(tokens: &[TokenWithSpan], next: usize) -> Option<(bool, usize)> {
    let mut is_left = false;
    for (index, token) in tokens.iter().enumerate().skip(next) {
        match (&token.token, keyword(token)) {
            (Token::Whitespace(_), _) => {}
            (_, Some(Keyword::LEFT)) => is_left = true,
            (_, Some(Keyword::OUTER)) if is_left => {}
            (_, Some(Keyword::JOIN)) => return Some((is_left, index)),
            _ => return None,
        }
    }
    None
}

/// Returns the place of the condition of the join whose table begins at token `next`.
fn condition_after(tokens: &[TokenWithSpan], next: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, token) in tokens.iter().enumerate().skip(next) {
        match &token.token {
            Token::LParen => depth += 1,
            Token::RParen => depth = depth.checked_sub(1)?,
            Token::SemiColon if depth == 0 => return None,
            _ if depth > 0 => {}
            _ => match keyword(token) {
                Some(Keyword::MATCH_CONDITION | Keyword::ON) => return Some(index),
                Some(Keyword::JOIN | Keyword::WHERE | Keyword::GROUP | Keyword::ORDER | Keyword::USING) => {
                    return None;
                }
                _ => {}
            },
        }
    }
    None
}

/// Replaces the ASOF joins of a statement by joins with a marked condition.
///
/// Errors: `Invalid` for conditions that such a join cannot have.
pub(crate) fn rewrite(statement: &mut Statement) -> Result<()> {
    match statement {
        Statement::Statement(ast) => {
            let mut visitor = Rewriter(None);
            let _ = ast.visit(&mut visitor);
            visitor.0.map_or(Ok(()), Err)
        }
        Statement::Explain(explain) => rewrite(&mut explain.statement),
        _ => Ok(()),
    }
}

struct Rewriter(Option<Error>);

impl VisitorMut for Rewriter {
    type Break = ();

    fn pre_visit_query(&mut self, query: &mut Query) -> std::ops::ControlFlow<()> {
        match of_body(&mut query.body) {
            Ok(()) => std::ops::ControlFlow::Continue(()),
            Err(error) => {
                self.0 = Some(error);
                std::ops::ControlFlow::Break(())
            }
        }
    }
}

fn of_body(body: &mut SetExpr) -> Result<()> {
    // a loop, because a union may be a long chain
    let mut bodies = vec![body];
    while let Some(body) = bodies.pop() {
        match body {
            SetExpr::Select(select) => select.from.iter_mut().try_for_each(of_tables)?,
            SetExpr::SetOperation { left, right, .. } => bodies.extend([left.as_mut(), right.as_mut()]),
            // a query in brackets is visited itself
            _ => {}
        }
    }
    Ok(())
}

fn of_tables(tables: &mut TableWithJoins) -> Result<()> {
    of_factor(&mut tables.relation)?;
    for Join { relation, join_operator, .. } in &mut tables.joins {
        of_factor(relation)?;
        if let JoinOperator::AsOf { match_condition, constraint } = join_operator {
            *join_operator = replacement(match_condition, constraint)?;
        }
    }
    Ok(())
}

fn of_factor(factor: &mut TableFactor) -> Result<()> {
    match factor {
        TableFactor::NestedJoin { table_with_joins, .. } => of_tables(table_with_joins),
        _ => Ok(()),
    }
}

fn replacement(condition: &Expr, constraint: &JoinConstraint) -> Result<JoinOperator> {
    let on = match constraint {
        JoinConstraint::On(on) => Some(on.clone()),
        JoinConstraint::None => None,
        JoinConstraint::Using(_) | JoinConstraint::Natural => {
            return Err(invalid("an ASOF JOIN has no USING"));
        }
    };
    let kind = match condition {
        Expr::Value(value) => match &value.value {
            Value::SingleQuotedString(kind) => IN_ON.iter().position(|known| known == kind),
            _ => None,
        },
        _ => None,
    };
    let Some(kind) = kind else {
        let marked = marked(condition.clone());
        return Ok(JoinOperator::Left(JoinConstraint::On(match on {
            Some(on) => and(marked, on),
            None => marked,
        })));
    };
    let mut conditions = on.map(conjuncts).unwrap_or_default();
    let comparisons: Vec<usize> =
        conditions.iter().enumerate().filter(|(_, c)| is_comparison(c)).map(|(index, _)| index).collect();
    let [comparison] = comparisons.as_slice() else {
        let count = comparisons.len();
        return Err(invalid(&format!(
            "ON of an ASOF JOIN has one comparison of times (>=, >, <=, <), found {count}"
        )));
    };
    let comparison = marked(conditions.remove(*comparison));
    let on = JoinConstraint::On(conditions.into_iter().fold(comparison, and));
    Ok(if kind == 0 { JoinOperator::Inner(on) } else { JoinOperator::Left(on) })
}

fn is_comparison(expr: &Expr) -> bool {
    use BinaryOperator::{Gt, GtEq, Lt, LtEq};
    match expr {
        Expr::Nested(inner) => is_comparison(inner),
        Expr::BinaryOp { op, .. } => matches!(op, Gt | GtEq | Lt | LtEq),
        _ => false,
    }
}

/// Returns the conditions that `AND` joins.
fn conjuncts(expr: Expr) -> Vec<Expr> {
    let (mut out, mut rest) = (vec![], vec![expr]);
    while let Some(expr) = rest.pop() {
        match expr {
            Expr::BinaryOp { left, op: BinaryOperator::And, right } => rest.extend([*right, *left]),
            Expr::Nested(inner) if matches!(*inner, Expr::BinaryOp { op: BinaryOperator::And, .. }) => {
                rest.push(*inner)
            }
            other => out.push(other),
        }
    }
    out
}

fn and(left: Expr, right: Expr) -> Expr {
    Expr::BinaryOp { left: left.into(), op: BinaryOperator::And, right: Expr::Nested(right.into()).into() }
}

fn marked(condition: Expr) -> Expr {
    let args = FunctionArgumentList {
        duplicate_treatment: None,
        args: vec![FunctionArg::Unnamed(FunctionArgExpr::Expr(condition))],
        clauses: vec![],
    };
    Expr::Function(Function {
        name: ObjectName(vec![ObjectNamePart::Identifier(Ident::new(MARKER))]),
        uses_odbc_syntax: false,
        parameters: FunctionArguments::None,
        args: FunctionArguments::List(args),
        filter: None,
        null_treatment: None,
        over: None,
        within_group: vec![],
    })
}
