//! Vectorized evaluation of conditions on events alone.

use super::conditions::{ComparisonDomain, EVENT, holds, swap_operands};
use crate::columns::batch::Batch;
use crate::columns::column::{Column, Data};
use crate::columns::value::Value;
use crate::expr::{Comparison, Expr, Node};

/// Returns whether [`compute`] supports a condition: comparisons of columns with constants, `is null` of
/// columns, and combinations of these by `and`, `or` and `not`.
pub(super) fn is_vectorizable(condition: &Expr) -> bool {
    match &condition.node {
        Node::And(a, b) | Node::Or(a, b) => is_vectorizable(a) && is_vectorizable(b),
        Node::Not(x) => is_vectorizable(x),
        Node::IsNull(x) => matches!(x.node, Node::Column { slot: EVENT, .. }),
        Node::Compare(op, a, b) => with_constant(*op, a, b).is_some(),
        _ => false,
    }
}

/// Splits `column op constant`, in either order, and determines the comparison domain.
fn with_constant<'e>(
    op: Comparison,
    a: &'e Expr,
    b: &'e Expr,
) -> Option<(usize, Comparison, &'e Value, ComparisonDomain)> {
    match (&a.node, &b.node) {
        (Node::Column { slot: EVENT, column }, Node::Const(value)) if !value.is_null() => {
            Some((*column, op, value, ComparisonDomain::of(op, a.ty, b.ty)?))
        }
        (Node::Const(value), Node::Column { slot: EVENT, column }) if !value.is_null() => {
            Some((*column, swap_operands(op), value, ComparisonDomain::of(op, a.ty, b.ty)?))
        }
        _ => None,
    }
}

/// Returns for each row of the batch whether it satisfies a condition that [`is_vectorizable`].
pub(super) fn compute(condition: &Expr, batch: &Batch) -> Vec<bool> {
    let mut mask = vec![true; batch.len()];
    narrow(condition, batch, &mut mask);
    mask
}

/// Clears the mask of the rows that do not satisfy the condition.
pub(super) fn narrow(condition: &Expr, batch: &Batch, mask: &mut [bool]) {
    match &condition.node {
        Node::And(a, b) => {
            narrow(a, batch, mask);
            narrow(b, batch, mask);
        }
        Node::Or(a, b) => {
            let either = compute(a, batch).into_iter().zip(compute(b, batch)).map(|(a, b)| a | b);
            mask.iter_mut().zip(either).for_each(|(m, x)| *m &= x);
        }
        Node::Not(x) => mask.iter_mut().zip(compute(x, batch)).for_each(|(m, x)| *m &= !x),
        Node::IsNull(x) => {
            if let Node::Column { column, .. } = x.node {
                mask.iter_mut().enumerate().for_each(|(row, m)| *m &= batch.columns[column].is_null(row));
            }
        }
        Node::Compare(op, a, b) => {
            if let Some((column, op, value, domain)) = with_constant(*op, a, b) {
                compare(&batch.columns[column], op, value, domain, mask);
            }
        }
        _ => {}
    }
}

/// Expands to one loop per operator, so that no loop branches on the operator.
macro_rules! each {
    ($mask:expr, $values:expr, $op:expr, $x:expr, $map:expr) => {{
        let (x, map) = ($x, $map);
        match $op {
            Comparison::Eq => $mask.iter_mut().zip($values).for_each(|(m, v)| *m &= map(v) == x),
            Comparison::Ne => $mask.iter_mut().zip($values).for_each(|(m, v)| *m &= map(v) != x),
            Comparison::Lt => $mask.iter_mut().zip($values).for_each(|(m, v)| *m &= map(v) < x),
            Comparison::Le => $mask.iter_mut().zip($values).for_each(|(m, v)| *m &= map(v) <= x),
            Comparison::Gt => $mask.iter_mut().zip($values).for_each(|(m, v)| *m &= map(v) > x),
            Comparison::Ge => $mask.iter_mut().zip($values).for_each(|(m, v)| *m &= map(v) >= x),
        }
    }};
}

fn compare(column: &Column, op: Comparison, value: &Value, domain: ComparisonDomain, mask: &mut [bool]) {
    let nulls = column.nulls();
    if !nulls.is_empty() && op == Comparison::Ne {
        // `null != x` holds for every x
        let one = |row| column.is_null(row) || crate::expr::compare(op, &column.get(row), value);
        return mask.iter_mut().enumerate().for_each(|(row, m)| *m &= one(row));
    }
    match domain {
        ComparisonDomain::Long => {
            let x = value.as_i64().unwrap_or_default();
            match column.data() {
                Data::Int(values) => each!(mask, values, op, x, |v: &i32| i64::from(*v)),
                Data::Long(values) => each!(mask, values, op, x, |v: &i64| *v),
                _ => mask.fill(false),
            }
        }
        ComparisonDomain::Double => {
            let x = value.as_f64().unwrap_or(f64::NAN);
            match column.data() {
                Data::Int(values) => each!(mask, values, op, x, |v: &i32| f64::from(*v)),
                Data::Long(values) => each!(mask, values, op, x, |v: &i64| *v as f64),
                Data::Float(values) => each!(mask, values, op, x, |v: &f32| f64::from(*v)),
                Data::Double(values) => each!(mask, values, op, x, |v: &f64| *v),
                _ => mask.fill(false),
            }
        }
        ComparisonDomain::Float => {
            let x = to_f32(value);
            match column.data() {
                Data::Int(values) => each!(mask, values, op, x, |v: &i32| *v as f32),
                Data::Long(values) => each!(mask, values, op, x, |v: &i64| *v as f32),
                Data::Float(values) => each!(mask, values, op, x, |v: &f32| *v),
                _ => mask.fill(false),
            }
        }
        ComparisonDomain::String => match (column.data(), value.as_str()) {
            (Data::Str(values), Some(x)) => {
                mask.iter_mut().enumerate().for_each(|(row, m)| *m &= holds(op, values.get(row), x));
            }
            _ => mask.fill(false),
        },
    }
    if !nulls.is_empty() {
        mask.iter_mut().zip(nulls).for_each(|(m, null)| *m &= !null);
    }
}

/// Converts a number to `f32`.
pub(super) fn to_f32(value: &Value) -> f32 {
    match value {
        Value::Int(n) => *n as f32,
        Value::Long(n) => *n as f32,
        Value::Float(n) => *n,
        _ => f32::NAN,
    }
}
