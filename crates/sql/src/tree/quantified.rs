//! Comparisons with `ANY` and `ALL` of a list that is written out, or that is a parameter.
//!
//! DataFusion plans them with functions of lists that do not know null from false. A list that is written out becomes `IN` or a chain of
//! comparisons; one that is a parameter is marked, and replaced when it has its value ([`crate::plans::quantified`]).

use datafusion::logical_expr::sqlparser::ast::{
    Array, ArrayElemTypeDef, BinaryOperator, CastKind, DataType, Expr, Value,
};
use datafusion::logical_expr::sqlparser::tokenizer::Location;
use tidemill_database::list_items;

use super::chains::{balanced_tree, take};
use super::first_place;
use crate::pg_catalog::call;
use crate::plans::quantified::{ALL_OF, ANY_OF, is_operator};

/// Replaces the comparison, or the text that is cast to a list, at `expr`.
///
/// Errors: the reason why a text cannot be a list, with its place.
pub(super) fn replace(expr: &mut Expr) -> Result<(), (Location, String)> {
    match expr {
        Expr::AnyOp { left, compare_op, right, .. } => {
            let Some(replaced) = quantified(left, operator(compare_op), right, false)? else { return Ok(()) };
            *expr = replaced;
        }
        Expr::AllOp { left, compare_op, right } => {
            let Some(replaced) = quantified(left, operator(compare_op), right, true)? else { return Ok(()) };
            *expr = replaced;
        }
        Expr::Like { negated, any: true, expr: left, pattern, escape_char: None } => {
            let op = if *negated { BinaryOperator::PGNotLikeMatch } else { BinaryOperator::PGLikeMatch };
            let Some(replaced) = quantified(left, Some(op), pattern, false)? else { return Ok(()) };
            *expr = replaced;
        }
        Expr::ILike { negated, any: true, expr: left, pattern, escape_char: None } => {
            let op = if *negated { BinaryOperator::PGNotILikeMatch } else { BinaryOperator::PGILikeMatch };
            let Some(replaced) = quantified(left, Some(op), pattern, false)? else { return Ok(()) };
            *expr = replaced;
        }
        Expr::Cast { .. } => {
            if let Some(items) = cast_text(expr)? {
                // a list without values has its type from the cast
                if !items.is_empty()
                    && let Expr::Cast { expr: inner, .. } = expr
                {
                    **inner = Expr::Array(Array { elem: items, named: true });
                }
            }
        }
        _ => {}
    }
    Ok(())
}

fn operator(op: &BinaryOperator) -> Option<BinaryOperator> {
    is_operator(name(op)?).then(|| op.clone())
}

/// Returns the name of an operator in a mark.
fn name(op: &BinaryOperator) -> Option<&'static str> {
    Some(match op {
        BinaryOperator::Eq => "=",
        BinaryOperator::NotEq => "<>",
        BinaryOperator::Lt => "<",
        BinaryOperator::LtEq => "<=",
        BinaryOperator::Gt => ">",
        BinaryOperator::GtEq => ">=",
        BinaryOperator::PGRegexMatch => "~",
        BinaryOperator::PGLikeMatch => "LIKE",
        BinaryOperator::PGNotLikeMatch => "NOT LIKE",
        BinaryOperator::PGILikeMatch => "ILIKE",
        BinaryOperator::PGNotILikeMatch => "NOT ILIKE",
        _ => return None,
    })
}

/// Returns what takes the place of a comparison; `None` for one with a query, a column or another expression.
fn quantified(
    left: &mut Expr,
    op: Option<BinaryOperator>,
    right: &mut Expr,
    is_all: bool,
) -> Result<Option<Expr>, (Location, String)> {
    let Some((op, name)) = op.and_then(|op| name(&op).map(|name| (op, name))) else { return Ok(None) };
    let right = inside(right);
    if is_parameter(right) {
        let name = Expr::Value(Value::SingleQuotedString(name.to_owned()).with_empty_span());
        let function = if is_all { ALL_OF } else { ANY_OF };
        return Ok(Some(call(function, vec![name, take(left), take(right)])));
    }
    let Some(items) = items(right)? else { return Ok(None) };
    let is_list = match op {
        BinaryOperator::Eq => !is_all,
        BinaryOperator::NotEq => is_all,
        _ => false,
    };
    Ok(Some(match (items.is_empty(), is_list) {
        (true, _) => Expr::Value(Value::Boolean(is_all).with_empty_span()),
        (false, true) => Expr::Nested(Box::new(Expr::InList {
            expr: Box::new(Expr::Nested(Box::new(take(left)))),
            list: items,
            negated: is_all,
        })),
        (false, false) => {
            let left = Expr::Nested(Box::new(take(left)));
            let compared = |item| Expr::BinaryOp {
                left: Box::new(left.clone()),
                op: op.clone(),
                right: Box::new(Expr::Nested(Box::new(item))),
            };
            let joined = if is_all { BinaryOperator::And } else { BinaryOperator::Or };
            Expr::Nested(Box::new(balanced_tree(items.into_iter().map(compared).collect(), &joined)))
        }
    }))
}

fn inside(mut expr: &mut Expr) -> &mut Expr {
    while let Expr::Nested(inner) = expr {
        expr = inner;
    }
    expr
}

/// Returns whether an expression is a parameter or a cast of one.
fn is_parameter(expr: &Expr) -> bool {
    match expr {
        Expr::Value(value) => matches!(value.value, Value::Placeholder(_)),
        Expr::Nested(inner) => is_parameter(inner),
        Expr::Cast { expr, kind: CastKind::Cast | CastKind::DoubleColon, .. } => is_parameter(expr),
        _ => false,
    }
}

/// Takes the values of a list that is written out: `ARRAY[…]` or a text, with a cast or without; `None` for another expression.
fn items(expr: &mut Expr) -> Result<Option<Vec<Expr>>, (Location, String)> {
    match expr {
        // a list of lists is compared with lists
        Expr::Array(Array { elem, .. }) if !elem.iter().any(|item| matches!(item, Expr::Array(_))) => {
            Ok(Some(std::mem::take(elem)))
        }
        Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr: inner, data_type, .. } => {
            let Some(ty) = item_type(data_type).cloned() else { return Ok(None) };
            let inner = inside(inner);
            match inner {
                Expr::Array(_) => {
                    let items = items(inner)?;
                    Ok(items.map(|items| items.into_iter().map(|item| cast(item, &ty)).collect()))
                }
                _ => cast_text(expr),
            }
        }
        _ => Ok(None),
    }
}

/// Returns the values of a text that is cast to a list, each with its cast; `None` for another expression, and for types of the catalogs.
fn cast_text(expr: &Expr) -> Result<Option<Vec<Expr>>, (Location, String)> {
    let Expr::Cast { kind: CastKind::Cast | CastKind::DoubleColon, expr: inner, data_type, .. } = expr else {
        return Ok(None);
    };
    let Some(ty) = item_type(data_type) else { return Ok(None) };
    let mut inner = inner.as_ref();
    while let Expr::Nested(nested) = inner {
        inner = nested;
    }
    let Expr::Value(value) = inner else { return Ok(None) };
    let (Value::SingleQuotedString(text) | Value::EscapedStringLiteral(text)) = &value.value else {
        return Ok(None);
    };
    let items = list_items(text).map_err(|why| (first_place(inner), why.to_string()))?;
    let item = |item: Option<String>| {
        let value = item.map_or(Value::Null, Value::SingleQuotedString);
        cast(Expr::Value(value.with_empty_span()), ty)
    };
    Ok(Some(items.into_iter().map(item).collect()))
}

/// Returns the type of the values of a list; `None` for another type, and for lists of a type of the catalogs.
fn item_type(ty: &DataType) -> Option<&DataType> {
    let DataType::Array(ArrayElemTypeDef::SquareBracket(item, _)) = ty else { return None };
    (!matches!(item.as_ref(), DataType::Custom(..) | DataType::Regclass | DataType::Array(_))).then_some(item)
}

fn cast(item: Expr, ty: &DataType) -> Expr {
    Expr::Cast {
        kind: CastKind::DoubleColon,
        expr: Box::new(item),
        data_type: ty.clone(),
        array: false,
        format: None,
    }
}
