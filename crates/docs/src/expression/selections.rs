//! Operators that order arrays, or select the first or the largest elements.

use std::cmp::Ordering;

use bson::Bson;
use tidemill_types::budget;

use super::{EvalValue, compare, elements, is_nullish, positive, wrong_type};
use crate::collation::Collation;
use crate::error::{DocsError, Result};
use crate::sort::SortOrder;
use crate::values::key::Key;

fn null() -> Result<EvalValue> {
    Ok(Some(Bson::Null))
}

fn key(value: &Bson, by: Option<&Collation>) -> Result<Key> {
    compare::key(&Some(value.clone()), by)
}

/// `$sortArray`: input, sortBy, which is 1, -1 or a document as that of a sort.
pub(super) fn sort_array(name: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    let Some(mut array) = elements(name, arguments.first().cloned().flatten())? else { return null() };
    match arguments.get(1) {
        Some(Some(Bson::Int32(1) | Bson::Int64(1))) => sort_values(&mut array, false, by)?,
        Some(Some(Bson::Int32(-1) | Bson::Int64(-1))) => sort_values(&mut array, true, by)?,
        Some(Some(Bson::Document(order))) => {
            let order = bson::RawDocumentBuf::try_from(order).map_err(super::invalid)?;
            let order = SortOrder::parse(&order)?.with_collation(by.cloned());
            let mut keyed = Vec::with_capacity(array.len());
            for element in array {
                budget::step()?;
                let bytes = match &element {
                    Bson::Document(document) => bson::serialize_to_vec(document).map_err(super::invalid)?,
                    _ => vec![5, 0, 0, 0, 0],
                };
                keyed.push((order.key(&bytes), element));
            }
            keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
            array = keyed.into_iter().map(|(_, element)| element).collect();
        }
        other => {
            let found = other.cloned().flatten();
            return Err(wrong_type(name, "1, -1 or an object as `sortBy`", &found));
        }
    }
    Ok(Some(Bson::Array(array)))
}

fn sort_values(array: &mut Vec<Bson>, descending: bool, by: Option<&Collation>) -> Result<()> {
    let mut keyed = Vec::with_capacity(array.len());
    for element in array.drain(..) {
        budget::step()?;
        keyed.push((key(&element, by)?, element));
    }
    keyed.sort_by(|(a, _), (b, _)| if descending { b.cmp(a) } else { a.cmp(b) });
    array.extend(keyed.into_iter().map(|(_, element)| element));
    Ok(())
}

/// `$zip`: inputs, useLongestLength, defaults.
pub(super) fn zip(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some(inputs) = elements(name, arguments.first().cloned().flatten())? else { return null() };
    let mut arrays = Vec::new();
    for input in inputs {
        match elements(name, Some(input))? {
            Some(array) => arrays.push(array),
            None => return null(),
        }
    }
    let longest = matches!(arguments.get(1), Some(Some(Bson::Boolean(true))));
    let defaults = elements(name, arguments.get(2).cloned().flatten())?;
    if defaults.is_some() && !longest {
        return Err(DocsError::bad_value(format!("{name}: `defaults` needs useLongestLength: true")));
    }
    if defaults.as_ref().is_some_and(|defaults| defaults.len() != arrays.len()) {
        return Err(DocsError::bad_value(format!(
            "{name}: `defaults` and `inputs` must have the same length"
        )));
    }
    let lengths = arrays.iter().map(Vec::len);
    let length = if longest { lengths.max() } else { lengths.min() }.unwrap_or(0);
    if length.saturating_mul(arrays.len()) > super::arrays::ELEMENTS_MAX {
        return Err(DocsError::bad_value(format!(
            "{name}: limit of {} elements",
            super::arrays::ELEMENTS_MAX
        )));
    }
    let _held = budget::reserve(length.saturating_mul(arrays.len() + 1) * size_of::<Bson>())?;
    let default = |input: usize| defaults.as_ref().and_then(|d| d.get(input)).cloned().unwrap_or(Bson::Null);
    let row = |at: usize| {
        let row = arrays.iter().enumerate();
        Bson::Array(
            row.map(|(input, array)| array.get(at).cloned().unwrap_or_else(|| default(input))).collect(),
        )
    };
    Ok(Some(Bson::Array((0..length).map(row).collect())))
}

/// Returns the input and the number of elements that are wanted; `None` for a null input.
fn counted(name: &str, arguments: &[EvalValue]) -> Result<Option<(Vec<Bson>, usize)>> {
    let count = positive(name, &arguments.first().cloned().flatten())?;
    let input = elements(name, arguments.get(1).cloned().flatten())?;
    Ok(input.map(|input| (input, count)))
}

/// `$firstN`: n, input.
pub(super) fn first_n(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some((mut array, count)) = counted(name, arguments)? else { return null() };
    array.truncate(count);
    Ok(Some(Bson::Array(array)))
}

/// `$lastN`: n, input.
pub(super) fn last_n(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let Some((array, count)) = counted(name, arguments)? else { return null() };
    let skip = array.len().saturating_sub(count);
    Ok(Some(Bson::Array(array.into_iter().skip(skip).collect())))
}

fn extreme_n(
    name: &str,
    arguments: &[EvalValue],
    descending: bool,
    by: Option<&Collation>,
) -> Result<EvalValue> {
    let Some((mut array, count)) = counted(name, arguments)? else { return null() };
    array.retain(|element| !matches!(element, Bson::Null | Bson::Undefined));
    sort_values(&mut array, descending, by)?;
    array.truncate(count);
    Ok(Some(Bson::Array(array)))
}

/// `$maxN`: n, input.
pub(super) fn max_n(name: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    extreme_n(name, arguments, true, by)
}

/// `$minN`: n, input.
pub(super) fn min_n(name: &str, arguments: &[EvalValue], by: Option<&Collation>) -> Result<EvalValue> {
    extreme_n(name, arguments, false, by)
}

/// Returns the numbers of a value or an array in order; others do not count.
pub(super) fn numbers(input: &EvalValue) -> Vec<f64> {
    let number = |value: &Bson| match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) if !n.is_nan() => Some(*n),
        Bson::Decimal128(n) => Some(crate::values::decimal_math::to_double(*n)),
        _ => None,
    };
    let mut numbers: Vec<f64> = match input {
        Some(Bson::Array(array)) => array.iter().filter_map(number).collect(),
        Some(value) => number(value).into_iter().collect(),
        None => Vec::new(),
    };
    numbers.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
    numbers
}

/// Returns the percentile of ordered numbers: the least number with at least that part of the numbers up to it.
pub(super) fn percentile_of(numbers: &[f64], part: f64) -> Bson {
    let at = (numbers.len() as f64 * part).ceil() as usize;
    numbers.get(at.saturating_sub(1)).map_or(Bson::Null, |n| Bson::Double(*n))
}

/// `$median`: input, method.
pub(super) fn median(_: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    Ok(Some(percentile_of(&numbers(&arguments.first().cloned().flatten()), 0.5)))
}

/// `$percentile`: input, p, method.
pub(super) fn percentile(name: &str, arguments: &[EvalValue]) -> Result<EvalValue> {
    let numbers = numbers(&arguments.first().cloned().flatten());
    let parts = elements(name, arguments.get(1).cloned().flatten())?.unwrap_or_default();
    let mut found = Vec::new();
    for part in parts {
        let part = match part {
            Bson::Int32(n) => f64::from(n),
            Bson::Double(n) => n,
            other => return Err(wrong_type(name, "numbers from 0 to 1 as `p`", &Some(other))),
        };
        if !(0.0..=1.0).contains(&part) {
            return Err(DocsError::bad_value(format!("{name}: `p` has {part}: expected 0 to 1")));
        }
        found.push(percentile_of(&numbers, part));
    }
    let empty = arguments.first().is_none_or(is_nullish) && found.is_empty();
    Ok(Some(if empty { Bson::Null } else { Bson::Array(found) }))
}
