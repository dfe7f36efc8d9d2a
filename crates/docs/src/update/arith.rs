//! `$inc` and `$mul`: integers grow from 32 to 64 bits, and do not wrap around.

use crate::display::display;
use crate::error::{DocsError, Result};
use crate::raw::{OwnedRawValue, RawValue, tag};

use super::UpdateContext;

/// Checks the operand of `op`.
pub(crate) fn operand(op: &str, path: &str, n: OwnedRawValue) -> Result<OwnedRawValue> {
    let verb = if op == "$mul" { "multiply" } else { "increment" };
    match n.tag {
        tag::INT32 | tag::INT64 | tag::DOUBLE => Ok(n),
        tag::DECIMAL => Err(no_decimals(op, path)),
        _ => Err(DocsError::type_mismatch(format!(
            "Cannot {verb} with non-numeric argument: {{{path}: {}}}",
            display(n.as_raw())
        ))),
    }
}

fn no_decimals(op: &str, path: &str) -> DocsError {
    DocsError::bad_value(format!(
        "{op} of '{path}': Decimal128 arithmetic is not supported; use int, long or double"
    ))
}

/// Returns zero of the operand's type.
pub(crate) fn zero(n: RawValue<'_>) -> OwnedRawValue {
    OwnedRawValue::of(RawValue { tag: n.tag, bytes: &[0; 8][..n.bytes.len().min(8)] })
}

pub(crate) fn add(
    old: RawValue<'_>,
    n: RawValue<'_>,
    path: &dyn Fn() -> String,
    context: &UpdateContext<'_>,
) -> Result<OwnedRawValue> {
    compute("$inc", old, n, path, context, i64::checked_add, |a, b| a + b)
}

pub(crate) fn multiply(
    old: RawValue<'_>,
    n: RawValue<'_>,
    path: &dyn Fn() -> String,
    context: &UpdateContext<'_>,
) -> Result<OwnedRawValue> {
    compute("$mul", old, n, path, context, i64::checked_mul, |a, b| a * b)
}

fn compute(
    op: &str,
    old: RawValue<'_>,
    n: RawValue<'_>,
    path: &dyn Fn() -> String,
    context: &UpdateContext<'_>,
    integers: fn(i64, i64) -> Option<i64>,
    floats: fn(f64, f64) -> f64,
) -> Result<OwnedRawValue> {
    match (old.tag, n.tag) {
        (tag::DECIMAL, _) => Err(no_decimals(op, &path())),
        (tag::DOUBLE, _) | (tag::INT32 | tag::INT64, tag::DOUBLE) => {
            let x = floats(as_f64(old), as_f64(n));
            Ok(OwnedRawValue::of(RawValue { tag: tag::DOUBLE, bytes: &x.to_le_bytes() }))
        }
        (tag::INT32 | tag::INT64, _) => {
            let Some(sum) = integers(as_i64(old), as_i64(n)) else {
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
