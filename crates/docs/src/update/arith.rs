//! `$inc`, `$mul` and `$bit`: integers grow from 32 to 64 bits, and do not wrap around.

use bson::Decimal128;

use crate::error::{DocsError, Result};
use crate::values::decimal_math;
use crate::values::display::display;
use crate::values::raw::{OwnedRawValue, RawValue, elements, tag};

use super::UpdateContext;

/// Checks the operand of `op`.
pub(crate) fn operand(op: &str, path: &str, n: OwnedRawValue) -> Result<OwnedRawValue> {
    let verb = if op == "$mul" { "multiply" } else { "increment" };
    match n.tag {
        tag::INT32 | tag::INT64 | tag::DOUBLE | tag::DECIMAL => Ok(n),
        _ => Err(DocsError::type_mismatch(format!(
            "Cannot {verb} with non-numeric argument: {{{path}: {}}}",
            display(n.as_raw())
        ))),
    }
}

/// Returns zero of the operand's type.
pub(crate) fn zero(n: RawValue<'_>) -> OwnedRawValue {
    match n.tag {
        tag::DECIMAL => of_decimal(decimal_math::of_whole(0)),
        _ => OwnedRawValue::of(RawValue { tag: n.tag, bytes: &[0; 8][..n.bytes.len().min(8)] }),
    }
}

pub(crate) fn add(
    old: RawValue<'_>,
    n: RawValue<'_>,
    path: &dyn Fn() -> String,
    context: &UpdateContext<'_>,
) -> Result<OwnedRawValue> {
    let operation =
        UpdateArithmetic { integers: i64::checked_add, floats: |a, b| a + b, decimals: decimal_math::add };
    compute("$inc", old, n, path, context, &operation)
}

pub(crate) fn multiply(
    old: RawValue<'_>,
    n: RawValue<'_>,
    path: &dyn Fn() -> String,
    context: &UpdateContext<'_>,
) -> Result<OwnedRawValue> {
    let operation = UpdateArithmetic {
        integers: i64::checked_mul,
        floats: |a, b| a * b,
        decimals: decimal_math::multiply,
    };
    compute("$mul", old, n, path, context, &operation)
}

/// An operation on two numbers, by their types.
struct UpdateArithmetic {
    integers: fn(i64, i64) -> Option<i64>,
    floats: fn(f64, f64) -> f64,
    decimals: fn(Decimal128, Decimal128) -> Decimal128,
}

fn compute(
    op: &str,
    old: RawValue<'_>,
    n: RawValue<'_>,
    path: &dyn Fn() -> String,
    context: &UpdateContext<'_>,
    operation: &UpdateArithmetic,
) -> Result<OwnedRawValue> {
    match (old.tag, n.tag) {
        (tag::DECIMAL, _) | (tag::INT32 | tag::INT64 | tag::DOUBLE, tag::DECIMAL) => {
            Ok(of_decimal((operation.decimals)(as_decimal(old), as_decimal(n))))
        }
        (tag::DOUBLE, _) | (tag::INT32 | tag::INT64, tag::DOUBLE) => {
            let x = (operation.floats)(as_f64(old), as_f64(n));
            Ok(OwnedRawValue::of(RawValue { tag: tag::DOUBLE, bytes: &x.to_le_bytes() }))
        }
        (tag::INT32 | tag::INT64, _) => {
            let Some(sum) = (operation.integers)(as_i64(old), as_i64(n)) else {
                return Err(DocsError::bad_value(format!(
                    "Failed to apply {op} operations to current value (({}){}) of '{}' for document {{{}}}: it does not fit 64 bits",
                    if old.tag == tag::INT64 { "NumberLong" } else { "NumberInt" },
                    as_i64(old),
                    path(),
                    context.id()
                )));
            };
            let narrow =
                if old.tag == tag::INT32 && n.tag == tag::INT32 { i32::try_from(sum).ok() } else { None };
            Ok(match narrow {
                Some(small) => OwnedRawValue::of(RawValue { tag: tag::INT32, bytes: &small.to_le_bytes() }),
                None => OwnedRawValue::of(RawValue { tag: tag::INT64, bytes: &sum.to_le_bytes() }),
            })
        }
        _ => {
            let path = path();
            Err(DocsError::type_mismatch(format!(
                "Cannot apply {op} to a value of non-numeric type. {{{}}} has the field '{}' of non-numeric type {}",
                context.id(),
                path,
                old.type_name()
            )))
        }
    }
}

fn as_i64(raw: RawValue<'_>) -> i64 {
    if raw.tag == tag::INT32 { raw.i32().into() } else { raw.i64() }
}

fn as_f64(raw: RawValue<'_>) -> f64 {
    if raw.tag == tag::DOUBLE { raw.f64() } else { as_i64(raw) as f64 }
}

fn as_decimal(raw: RawValue<'_>) -> Decimal128 {
    match raw.tag {
        tag::DECIMAL => Decimal128::from_bytes(raw.bytes.first_chunk().copied().unwrap_or_default()),
        tag::DOUBLE => decimal_math::of_double(raw.f64()),
        _ => decimal_math::of_whole(as_i64(raw)),
    }
}

fn of_decimal(number: Decimal128) -> OwnedRawValue {
    OwnedRawValue::of(RawValue { tag: tag::DECIMAL, bytes: &number.bytes() })
}

/// An operation of `$bit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BitOperation {
    And,
    Or,
    Xor,
}

/// Parses the operand of `$bit`: `{ and: 7 }`.
pub(crate) fn bit_operations(path: &str, v: RawValue<'_>) -> Result<Vec<(BitOperation, OwnedRawValue)>> {
    let wrong = |why: String| DocsError::bad_value(format!("$bit of '{path}': {why}"));
    if v.tag != tag::DOCUMENT || elements(v.bytes).next().is_none() {
        return Err(wrong(format!("expected an object such as {{and: 7}}, found {}", display(v))));
    }
    elements(v.bytes)
        .map(|e| {
            let operation = match e.name {
                b"and" => BitOperation::And,
                b"or" => BitOperation::Or,
                b"xor" => BitOperation::Xor,
                other => {
                    let other = String::from_utf8_lossy(other);
                    return Err(wrong(format!("only and, or and xor are supported, found {other}")));
                }
            };
            match e.value.tag {
                tag::INT32 | tag::INT64 => Ok((operation, OwnedRawValue::of(e.value))),
                _ => Err(wrong(format!("expected an int or a long, found {}", display(e.value)))),
            }
        })
        .collect()
}

/// Combines the bits of a value, which counts as 0 if it is missing.
pub(crate) fn bits(
    operations: &[(BitOperation, OwnedRawValue)],
    old: Option<RawValue<'_>>,
    path: &dyn Fn() -> String,
) -> Result<OwnedRawValue> {
    let (mut result, mut long) = match old {
        None => (0, false),
        Some(old) if matches!(old.tag, tag::INT32 | tag::INT64) => (as_i64(old), old.tag == tag::INT64),
        Some(old) => {
            return Err(DocsError::bad_value(format!(
                "Cannot apply $bit to the value of '{}' of non-integral type {}",
                path(),
                old.type_name()
            )));
        }
    };
    for (operation, operand) in operations {
        let number = as_i64(operand.as_raw());
        long |= operand.tag == tag::INT64;
        result = match operation {
            BitOperation::And => result & number,
            BitOperation::Or => result | number,
            BitOperation::Xor => result ^ number,
        };
    }
    Ok(match long {
        true => OwnedRawValue::of(RawValue { tag: tag::INT64, bytes: &result.to_le_bytes() }),
        false => OwnedRawValue::of(RawValue { tag: tag::INT32, bytes: &(result as i32).to_le_bytes() }),
    })
}
