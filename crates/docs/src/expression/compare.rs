//! Comparisons, in the order of BSON values.

use std::cmp::Ordering;

use bson::Bson;
use tidemill_types::Value;

use super::{EvalValue, Expression};
use crate::collation::Collation;
use crate::error::Result;
use crate::values::key::Key;

/// Returns the key by which a value is ordered; no value comes first.
pub(super) fn key(value: &EvalValue, collation: Option<&Collation>) -> Result<Key> {
    match value {
        None => Ok(Key::of(&Value::Missing)),
        Some(value) => Key::of_bson_by(value, collation),
    }
}

fn order(arguments: &[EvalValue], by: Option<&Collation>) -> Result<Ordering> {
    // a missing value and null differ
    let rank = |value: &EvalValue| u8::from(value.is_some());
    let [a, b] = arguments else { return Ok(Ordering::Equal) };
    Ok(rank(a).cmp(&rank(b)).then(key(a, by)?.cmp(&key(b, by)?)))
}

fn bool(value: bool) -> Result<EvalValue> {
    Ok(Some(Bson::Boolean(value)))
}

pub(super) fn cmp(_: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    Ok(Some(Bson::Int32(order(arguments, by)? as i32)))
}

pub(super) fn eq(_: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    bool(order(arguments, by)?.is_eq())
}

pub(super) fn ne(_: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    bool(order(arguments, by)?.is_ne())
}

pub(super) fn gt(_: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    bool(order(arguments, by)?.is_gt())
}

pub(super) fn gte(_: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    bool(order(arguments, by)?.is_ge())
}

pub(super) fn lt(_: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    bool(order(arguments, by)?.is_lt())
}

pub(super) fn lte(_: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    bool(order(arguments, by)?.is_le())
}

pub(super) fn not(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bool(!arguments.first().is_some_and(Expression::is_true))
}

pub(super) fn min(_: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    extreme(arguments, Ordering::Less, by)
}

pub(super) fn max(_: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    extreme(arguments, Ordering::Greater, by)
}

fn extreme(arguments: &[EvalValue], wanted: Ordering, by: Option<&Collation>) -> Result<EvalValue> {
    let mut best: Option<(Key, Bson)> = None;
    for value in values(arguments) {
        let value = Some(value.clone());
        if super::is_nullish(&value) {
            continue;
        }
        let key = key(&value, by)?;
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
