//! Comparisons, in the order of BSON values.

use std::cmp::Ordering;

use bson::Bson;
use tidemill_types::Value;

use super::{EvalValue, Expression};
use crate::error::Result;
use crate::key::Key;

/// Returns the key by which a value is ordered; no value comes first.
pub(super) fn key(value: &EvalValue) -> Result<Key> {
    value.as_ref().map_or_else(|| Ok(Key::of(&Value::Missing)), Key::of_bson)
}

fn order(arguments: &[EvalValue]) -> Result<Ordering> {
    // a missing value and null differ
    let rank = |value: &EvalValue| u8::from(value.is_some());
    let [a, b] = arguments else { return Ok(Ordering::Equal) };
    Ok(rank(a).cmp(&rank(b)).then(key(a)?.cmp(&key(b)?)))
}

fn bool(value: bool) -> Result<EvalValue> {
    Ok(Some(Bson::Boolean(value)))
}

pub(super) fn cmp(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    Ok(Some(Bson::Int32(order(arguments)? as i32)))
}

pub(super) fn eq(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bool(order(arguments)?.is_eq())
}

pub(super) fn ne(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bool(order(arguments)?.is_ne())
}

pub(super) fn gt(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bool(order(arguments)?.is_gt())
}

pub(super) fn gte(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bool(order(arguments)?.is_ge())
}

pub(super) fn lt(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bool(order(arguments)?.is_lt())
}

pub(super) fn lte(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bool(order(arguments)?.is_le())
}

pub(super) fn not(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bool(!arguments.first().is_some_and(Expression::is_true))
}

pub(super) fn min(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    extreme(arguments, Ordering::Less)
}

pub(super) fn max(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    extreme(arguments, Ordering::Greater)
}

fn extreme(arguments: &[EvalValue], wanted: Ordering) -> Result<EvalValue> {
    let mut best: Option<(Key, Bson)> = None;
    for value in values(arguments) {
        let value = Some(value.clone());
        if super::is_nullish(&value) {
            continue;
        }
        let key = key(&value)?;
        if best.as_ref().is_none_or(|(least, _)| key.cmp(least) == wanted) {
            best = value.map(|value| (key, value));
        }
    }
    Ok(Some(best.map_or(Bson::Null, |(_, value)| value)))
}

/// Returns the values over which an accumulator runs: the elements of a single array, else the arguments.
pub(super) fn values(arguments: &[EvalValue]) -> Vec<&Bson> {
    match arguments {
        [Some(Bson::Array(elements))] => elements.iter().collect(),
        arguments => arguments.iter().flatten().collect(),
    }
}
