//! `$inc` and `$mul`: integers grow from 32 to 64 bits, and do not wrap.

use crate::error::{DocsError, Result};
use crate::raw::{OwnedRaw, Raw, tag};
use crate::show::show;

use super::Context;

/// Checks the operand of `op`.
pub(crate) fn operand(op: &str, path: &str, n: OwnedRaw) -> Result<OwnedRaw> {
    let verb = if op == "$mul" { "multiply" } else { "increment" };
    match n.tag {
        tag::INT32 | tag::INT64 | tag::DOUBLE => Ok(n),
        tag::DECIMAL => Err(no_decimals(op, path)),
        _ => Err(DocsError::type_mismatch(format!(
            "Cannot {verb} with non-numeric argument: {{{path}: {}}}",
            show(n.as_raw())
        ))),
    }
}

fn no_decimals(op: &str, path: &str) -> DocsError {
    DocsError::bad_value(format!(
        "{op} of '{path}': Decimal128 arithmetic is not supported; use int, long or double"
    ))
}

/// Zero of the operand's type.
pub(crate) fn zero(n: Raw<'_>) -> OwnedRaw {
    OwnedRaw::of(Raw { tag: n.tag, bytes: &[0; 8][..n.bytes.len().min(8)] })
}

pub(crate) fn add(
    old: Raw<'_>,
    n: Raw<'_>,
    path: &dyn Fn() -> String,
    context: &Context<'_>,
) -> Result<OwnedRaw> {
    compute("$inc", old, n, path, context, i64::checked_add, |a, b| a + b)
}

pub(crate) fn multiply(
    old: Raw<'_>,
    n: Raw<'_>,
    path: &dyn Fn() -> String,
    context: &Context<'_>,
) -> Result<OwnedRaw> {
    compute("$mul", old, n, path, context, i64::checked_mul, |a, b| a * b)
}

fn compute(
    op: &str,
    old: Raw<'_>,
    n: Raw<'_>,
    path: &dyn Fn() -> String,
    context: &Context<'_>,
    integers: fn(i64, i64) -> Option<i64>,
    floats: fn(f64, f64) -> f64,
) -> Result<OwnedRaw> {
    match (old.tag, n.tag) {
        (tag::DECIMAL, _) => Err(no_decimals(op, &path())),
        (tag::DOUBLE, _) | (tag::INT32 | tag::INT64, tag::DOUBLE) => {
            let x = floats(as_f64(old), as_f64(n));
            Ok(OwnedRaw::of(Raw { tag: tag::DOUBLE, bytes: &x.to_le_bytes() }))
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
                Some(small) => OwnedRaw::of(Raw { tag: tag::INT32, bytes: &small.to_le_bytes() }),
                None => OwnedRaw::of(Raw { tag: tag::INT64, bytes: &sum.to_le_bytes() }),
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

fn as_i64(raw: Raw<'_>) -> i64 {
    if raw.tag == tag::INT32 { raw.i32().into() } else { raw.i64() }
}

fn as_f64(raw: Raw<'_>) -> f64 {
    if raw.tag == tag::DOUBLE { raw.f64() } else { as_i64(raw) as f64 }
}
