//! Operators on arrays, sets and objects.

use std::collections::BTreeMap;

use bson::{Bson, Document};
use tidemill_types::budget::{self, Reservation};

use super::compare::key;
use super::{EvalValue, Expression, elements, is_nullish, wrong_type};
use crate::collation::Collation;
use crate::error::{DocsError, Result};
use crate::values::key::Key;

/// Elements that an operator may make of a few arguments.
pub(super) const ELEMENTS_MAX: usize = 1_000_000;

fn null() -> Result<EvalValue> {
    Ok(Some(Bson::Null))
}

fn array(elements: Vec<Bson>) -> Result<EvalValue> {
    Ok(Some(Bson::Array(elements)))
}

fn bool(value: bool) -> Result<EvalValue> {
    Ok(Some(Bson::Boolean(value)))
}

/// Returns the elements of an argument that must be an array.
fn required<'a>(name: &str, value: Option<&'a EvalValue>) -> Result<&'a [Bson]> {
    match value {
        Some(Some(Bson::Array(elements))) => Ok(elements),
        other => Err(wrong_type(name, "an array", other.unwrap_or(&None))),
    }
}

fn whole(name: &str, value: &EvalValue) -> Result<i64> {
    match value {
        Some(Bson::Int32(n)) => Ok((*n).into()),
        Some(Bson::Int64(n)) => Ok(*n),
        Some(Bson::Double(n)) if n.fract() == 0.0 && n.abs() < 9e15 => Ok(*n as i64),
        value => Err(wrong_type(name, "a whole number", value)),
    }
}

pub(super) fn size(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    Ok(Some(Bson::Int32(required(name, arguments.first())?.len() as i32)))
}

pub(super) fn is_array(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bool(matches!(arguments.first(), Some(Some(Bson::Array(_)))))
}

/// Returns the position of an index, which counts from the end if it is negative.
fn position(index: i64, length: usize) -> Option<usize> {
    let index = if index < 0 { index.checked_add(length as i64)? } else { index };
    usize::try_from(index).ok().filter(|at| *at < length)
}

pub(super) fn element_at(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let [value, index] = arguments else { return null() };
    let Some(elements) = elements(name, value.clone())? else { return null() };
    if is_nullish(index) {
        return null();
    }
    Ok(position(whole(name, index)?, elements.len()).map(|at| elements[at].clone()))
}

pub(super) fn first(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some(elements) = elements(name, arguments.first().cloned().flatten())? else { return null() };
    Ok(elements.into_iter().next())
}

pub(super) fn last(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some(elements) = elements(name, arguments.first().cloned().flatten())? else { return null() };
    Ok(elements.into_iter().next_back())
}

pub(super) fn contains(name: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    let wanted = key(arguments.first().unwrap_or(&None), by)?;
    for element in required(name, arguments.get(1))? {
        budget::step()?;
        if key(&Some(element.clone()), by)? == wanted {
            return bool(true);
        }
    }
    bool(false)
}

pub(super) fn index_of(name: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    let [value, wanted, bounds @ ..] = arguments else { return null() };
    let Some(elements) = elements(name, value.clone())? else { return null() };
    let bound = |value: Option<&EvalValue>| -> Result<Option<usize>> {
        let negative = || DocsError::bad_value(format!("{name} expects indexes of 0 or more"));
        value.map(|value| usize::try_from(whole(name, value)?).map_err(|_| negative())).transpose()
    };
    let from = bound(bounds.first())?.unwrap_or(0);
    let end = bound(bounds.get(1))?.unwrap_or(usize::MAX).min(elements.len());
    let wanted = key(wanted, by)?;
    for (at, element) in elements.into_iter().enumerate().take(end).skip(from) {
        budget::step()?;
        if key(&Some(element), by)? == wanted {
            return Ok(Some(Bson::Int32(at as i32)));
        }
    }
    Ok(Some(Bson::Int32(-1)))
}

pub(super) fn concat(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let mut all = Vec::new();
    for argument in arguments {
        match elements(name, argument.clone())? {
            Some(elements) => all.extend(elements),
            None => return null(),
        }
    }
    array(all)
}

pub(super) fn reverse(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some(mut elements) = elements(name, arguments.first().cloned().flatten())? else { return null() };
    elements.reverse();
    array(elements)
}

pub(super) fn slice(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let [value, numbers @ ..] = arguments else { return null() };
    let Some(elements) = elements(name, value.clone())? else { return null() };
    if numbers.iter().any(is_nullish) {
        return null();
    }
    let length = elements.len();
    let clamp = |n: i64| usize::try_from(n).unwrap_or(usize::MAX).min(length);
    let (from, count) = match numbers {
        [count] => match whole(name, count)? {
            count if count < 0 => (length - clamp(count.saturating_neg()), length),
            count => (0, clamp(count)),
        },
        [from, count] => {
            let (from, count) = (whole(name, from)?, whole(name, count)?);
            if count <= 0 {
                return Err(DocsError::bad_value(format!(
                    "{name} expects a number of elements above 0, found {count}"
                )));
            }
            (if from < 0 { length - clamp(from.saturating_neg()) } else { clamp(from) }, clamp(count))
        }
        _ => return null(),
    };
    array(elements.into_iter().skip(from).take(count).collect())
}

/// Reserves the memory of the numbers from `start` to `end`.
fn reserve_elements(step: i64, start: i64, end: i64) -> Result<Reservation> {
    let distance = if step > 0 { end.saturating_sub(start) } else { start.saturating_sub(end) };
    let count = distance.max(0).unsigned_abs().div_ceil(step.unsigned_abs().max(1));
    let count = usize::try_from(count).unwrap_or(usize::MAX).min(ELEMENTS_MAX);
    budget::steps(count as u64 / 64)?;
    Ok(budget::reserve(count * size_of::<Bson>())?)
}

pub(super) fn range(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let number = |at: usize| arguments.get(at).map(|value| whole(name, value)).transpose();
    let (start, end, step) = (number(0)?.unwrap_or(0), number(1)?.unwrap_or(0), number(2)?.unwrap_or(1));
    if step == 0 {
        return Err(DocsError::bad_value("$range requires a non-zero step value"));
    }
    let mut out = Vec::new();
    let mut next = start;
    let _held = reserve_elements(step, start, end)?;
    while (step > 0 && next < end) || (step < 0 && next > end) {
        if out.len() == ELEMENTS_MAX {
            return Err(DocsError::bad_value(format!("$range: limit of {ELEMENTS_MAX} elements")));
        }
        out.push(i32::try_from(next).map_or(Bson::Int64(next), Bson::Int32));
        let Some(following) = next.checked_add(step) else { break };
        next = following;
    }
    array(out)
}

pub(super) fn all_elements_true(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bool(required(name, arguments.first())?.iter().all(|element| Expression::is_true(&Some(element.clone()))))
}

pub(super) fn any_element_true(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    bool(required(name, arguments.first())?.iter().any(|element| Expression::is_true(&Some(element.clone()))))
}

/// Returns the different elements of an array, by their keys; of equal ones the first.
fn set(elements: &[Bson], by: Option<&Collation>) -> Result<BTreeMap<Key, Bson>> {
    let mut all = BTreeMap::new();
    for element in elements {
        budget::step()?;
        all.entry(key(&Some(element.clone()), by)?).or_insert_with(|| element.clone());
    }
    Ok(all)
}

pub(super) fn set_union(name: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    let mut all = BTreeMap::new();
    for argument in arguments {
        let Some(elements) = elements(name, argument.clone())? else { return null() };
        for (key, element) in set(&elements, by)? {
            all.entry(key).or_insert(element);
        }
    }
    array(all.into_values().collect())
}

pub(super) fn set_intersection(
    name: &str,
    arguments: &[EvalValue],
    by: Option<&Collation>,
) -> Result<EvalValue> {
    let mut common: Option<BTreeMap<Key, Bson>> = None;
    for argument in arguments {
        let Some(elements) = elements(name, argument.clone())? else { return null() };
        let mut next = set(&elements, by)?;
        if let Some(common) = common {
            next.retain(|key, _| common.contains_key(key));
        }
        common = Some(next);
    }
    array(common.unwrap_or_default().into_values().collect())
}

pub(super) fn set_difference(
    name: &str,
    arguments: &[EvalValue],
    by: Option<&Collation>,
) -> Result<EvalValue> {
    let [a, b] = arguments else { return null() };
    let (Some(a), Some(b)) = (elements(name, a.clone())?, elements(name, b.clone())?) else { return null() };
    let mut without = set(&b, by)?;
    let mut left = Vec::new();
    for element in a {
        budget::step()?;
        if without.insert(key(&Some(element.clone()), by)?, Bson::Null).is_none() {
            left.push(element);
        }
    }
    array(left)
}

pub(super) fn set_equals(name: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    let keys =
        |value| -> Result<Vec<Key>> { Ok(set(required(name, Some(value))?, by)?.into_keys().collect()) };
    let mut sets = arguments.iter();
    let Some(first) = sets.next().map(keys).transpose()? else { return bool(true) };
    for other in sets {
        if keys(other)? != first {
            return bool(false);
        }
    }
    bool(true)
}

pub(super) fn set_is_subset(
    name: &str,
    arguments: &[EvalValue],
    by: Option<&Collation>,
) -> Result<EvalValue> {
    let (a, b) = (set(required(name, arguments.first())?, by)?, set(required(name, arguments.get(1))?, by)?);
    bool(a.keys().all(|key| b.contains_key(key)))
}

pub(super) fn merge_objects(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let mut merged = Document::new();
    let single = match arguments {
        [Some(Bson::Array(elements))] => Some(elements.iter().cloned().map(Some).collect::<Vec<_>>()),
        _ => None,
    };
    for value in single.as_deref().unwrap_or(arguments) {
        match value {
            Some(Bson::Document(document)) => merged.extend(document.clone()),
            value if is_nullish(value) => {}
            value => return Err(wrong_type(name, "objects", value)),
        }
    }
    Ok(Some(Bson::Document(merged)))
}

pub(super) fn of_object(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    match arguments.first() {
        Some(Some(Bson::Document(document))) => {
            let pairs = document.iter().map(|(name, value)| {
                let mut pair = Document::new();
                pair.insert("k", name.as_str());
                pair.insert("v", value.clone());
                Bson::Document(pair)
            });
            array(pairs.collect())
        }
        Some(value) if !is_nullish(value) => Err(wrong_type(name, "an object", value)),
        _ => null(),
    }
}

pub(super) fn to_object(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some(elements) = elements(name, arguments.first().cloned().flatten())? else { return null() };
    let mut object = Document::new();
    for element in elements {
        let pair = match &element {
            Bson::Array(pair) => match pair.as_slice() {
                [Bson::String(name), value] => Some((name.clone(), value.clone())),
                _ => None,
            },
            Bson::Document(pair) if pair.len() == 2 => match (pair.get("k"), pair.get("v")) {
                (Some(Bson::String(name)), Some(value)) => Some((name.clone(), value.clone())),
                _ => None,
            },
            _ => None,
        };
        let (field, value) = pair.ok_or_else(|| {
            DocsError::type_mismatch(format!("{name} expects pairs: [name, value] or {{k: name, v: value}}"))
        })?;
        object.insert(field, value);
    }
    Ok(Some(Bson::Document(object)))
}
