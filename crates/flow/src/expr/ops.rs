//! Operators on single values.

use std::cmp::Ordering;

use tidemill_types::FieldType;

use super::{Arithmetic, Comparison};
use crate::columns::value::Value;
use crate::columns::value_ref::ValueRef;

/// Computes `a op b`, both widened to `ty`. Null if either operand is null or the divisor is zero.
pub(crate) fn arithmetic(op: Arithmetic, ty: FieldType, a: &Value, b: &Value) -> Value {
    let value = match ty {
        FieldType::Int => match (a, b) {
            (Value::Int(a), Value::Int(b)) => int(op, *a, *b).map(Value::Int),
            _ => None,
        },
        FieldType::Long => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => long(op, a, b).map(Value::Long),
            _ => None,
        },
        FieldType::Float => match (a.borrowed().as_f32(), b.borrowed().as_f32()) {
            (Some(a), Some(b)) => float(op, a, b).map(Value::Float),
            _ => None,
        },
        _ => match (a.as_f64(), b.as_f64()) {
            (Some(a), Some(b)) => double(op, a, b).map(Value::Double),
            _ => None,
        },
    };
    value.unwrap_or(Value::Null)
}

#[inline]
pub(crate) fn int(op: Arithmetic, a: i32, b: i32) -> Option<i32> {
    Some(match op {
        Arithmetic::Add => a.wrapping_add(b),
        Arithmetic::Sub => a.wrapping_sub(b),
        Arithmetic::Mul => a.wrapping_mul(b),
        Arithmetic::Div | Arithmetic::Rem if b == 0 => return None,
        Arithmetic::Div => a.wrapping_div(b),
        Arithmetic::Rem => a.wrapping_rem(b),
    })
}

#[inline]
pub(crate) fn long(op: Arithmetic, a: i64, b: i64) -> Option<i64> {
    Some(match op {
        Arithmetic::Add => a.wrapping_add(b),
        Arithmetic::Sub => a.wrapping_sub(b),
        Arithmetic::Mul => a.wrapping_mul(b),
        Arithmetic::Div | Arithmetic::Rem if b == 0 => return None,
        Arithmetic::Div => a.wrapping_div(b),
        Arithmetic::Rem => a.wrapping_rem(b),
    })
}

#[inline]
pub(crate) fn float(op: Arithmetic, a: f32, b: f32) -> Option<f32> {
    Some(match op {
        Arithmetic::Add => a + b,
        Arithmetic::Sub => a - b,
        Arithmetic::Mul => a * b,
        Arithmetic::Div | Arithmetic::Rem if b == 0.0 => return None,
        Arithmetic::Div => a / b,
        Arithmetic::Rem => a % b,
    })
}

#[inline]
pub(crate) fn double(op: Arithmetic, a: f64, b: f64) -> Option<f64> {
    Some(match op {
        Arithmetic::Add => a + b,
        Arithmetic::Sub => a - b,
        Arithmetic::Mul => a * b,
        Arithmetic::Div | Arithmetic::Rem if b == 0.0 => return None,
        Arithmetic::Div => a / b,
        Arithmetic::Rem => a % b,
    })
}

/// Computes `a op b`. If either operand is null, only `!=` is true.
pub(crate) fn compare(op: Comparison, a: &Value, b: &Value) -> bool {
    compare_refs(op, a.borrowed(), b.borrowed())
}

/// Computes `a op b` as [`compare`] does.
pub(crate) fn compare_refs(op: Comparison, a: ValueRef<'_>, b: ValueRef<'_>) -> bool {
    if a.is_null() || b.is_null() {
        return op == Comparison::Ne;
    }
    let order = match (a, b) {
        (ValueRef::Str(a), ValueRef::Str(b)) => Some(a.cmp(b)),
        (ValueRef::Bool(a), ValueRef::Bool(b)) => Some(a.cmp(&b)),
        _ => match (a.as_i64(), b.as_i64()) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => as_floats(op, a, b).or_else(|| {
                // NaN, and values whose types are not known at compile time
                a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b))
            }),
        },
    };
    op.holds(order)
}

impl Comparison {
    /// Returns whether the comparison holds for operands in this order; `None` if they are not ordered.
    pub(crate) fn holds(self, order: Option<Ordering>) -> bool {
        match self {
            Self::Eq => order == Some(Ordering::Equal),
            Self::Ne => order != Some(Ordering::Equal),
            Self::Lt => order == Some(Ordering::Less),
            Self::Le => matches!(order, Some(Ordering::Less | Ordering::Equal)),
            Self::Gt => order == Some(Ordering::Greater),
            Self::Ge => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
        }
    }
}

/// Orders a float and a whole number with the precision of floats. `None` for other operands and for
/// equality, which does not round.
fn as_floats(op: Comparison, a: ValueRef<'_>, b: ValueRef<'_>) -> Option<Ordering> {
    let ordering = !matches!(op, Comparison::Eq | Comparison::Ne);
    let mixed = matches!((a, b), (ValueRef::Float(_), ValueRef::Int(_) | ValueRef::Long(_)))
        || matches!((a, b), (ValueRef::Int(_) | ValueRef::Long(_), ValueRef::Float(_)));
    if !(ordering && mixed) {
        return None;
    }
    a.as_f32().zip(b.as_f32()).and_then(|(a, b)| a.partial_cmp(&b))
}
