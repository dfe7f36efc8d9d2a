//! Operators on fields of objects, on sizes, bits and angles.

use bson::{Bson, Document};

use super::{EvalValue, is_nullish, wrong_type};
use crate::error::{DocsError, Result};

fn null() -> Result<EvalValue> {
    Ok(Some(Bson::Null))
}

/// `$getField`: field, input.
pub(super) fn get_field(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some(Some(Bson::String(field))) = arguments.first() else {
        return Err(wrong_type(name, "a field, a string", &arguments.first().cloned().flatten()));
    };
    match arguments.get(1) {
        Some(Some(Bson::Document(document))) => Ok(document.get(field).cloned()),
        Some(Some(Bson::Null | Bson::Undefined)) => null(),
        _ => Ok(None),
    }
}

/// `$setField`: field, input, value; `$$REMOVE` as the value removes the field.
pub(super) fn set_field(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some(Some(Bson::String(field))) = arguments.first() else {
        return Err(wrong_type(name, "a field, a string", &arguments.first().cloned().flatten()));
    };
    match arguments.get(1) {
        Some(Some(Bson::Document(document))) => {
            let mut document: Document = document.clone();
            match arguments.get(2).cloned().flatten() {
                Some(value) => drop(document.insert(field.as_str(), value)),
                None => drop(document.remove(field)),
            }
            Ok(Some(Bson::Document(document)))
        }
        Some(value) if !is_nullish(value) => Err(wrong_type(name, "an object as its input", value)),
        _ => null(),
    }
}

/// `$unsetField`: field, input.
pub(super) fn unset_field(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let mut arguments = arguments.to_vec();
    arguments.push(None);
    set_field(name, &arguments)
}

pub(super) fn binary_size(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    match arguments.first() {
        Some(Some(Bson::String(text))) => Ok(Some(Bson::Int32(text.len() as i32))),
        Some(Some(Bson::Binary(binary))) => Ok(Some(Bson::Int32(binary.bytes.len() as i32))),
        Some(value) if !is_nullish(value) => Err(wrong_type(name, "a string or binary data", value)),
        _ => null(),
    }
}

pub(super) fn bson_size(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    match arguments.first() {
        Some(Some(Bson::Document(document))) => {
            let bytes = bson::serialize_to_vec(document);
            let bytes = bytes.map_err(|e| DocsError::bad_value(format!("{name}: {e}")))?;
            Ok(Some(Bson::Int32(bytes.len() as i32)))
        }
        Some(value) if !is_nullish(value) => Err(wrong_type(name, "an object", value)),
        _ => null(),
    }
}

/// Combines ints and longs bit by bit; a long makes the result one.
fn bits(name: &str, arguments: &[EvalValue], start: i64, combine: fn(i64, i64) -> i64) -> Result<EvalValue> {
    let (mut result, mut long) = (start, false);
    for argument in arguments {
        result = match argument {
            Some(Bson::Int32(n)) => combine(result, i64::from(*n)),
            Some(Bson::Int64(n)) => {
                long = true;
                combine(result, *n)
            }
            value if is_nullish(value) => return null(),
            value => return Err(wrong_type(name, "ints and longs", value)),
        };
    }
    Ok(Some(if long { Bson::Int64(result) } else { Bson::Int32(result as i32) }))
}

pub(super) fn bit_and(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bits(name, arguments, -1, |a, b| a & b)
}

pub(super) fn bit_or(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bits(name, arguments, 0, |a, b| a | b)
}

pub(super) fn bit_xor(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bits(name, arguments, 0, |a, b| a ^ b)
}

pub(super) fn bit_not(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bits(name, arguments, 0, |_, b| !b)
}
