//! `$push`, `$addToSet`, `$pull`, `$pullAll`, `$pop`.

use std::cmp::Ordering;

use tidemill_types::budget;

use crate::collation::Collation;
use crate::error::{DocsError, ErrorCode, Result};
use crate::spec::Direction;
use crate::values::key::Key;
use crate::values::order::{compare_by, equal_by};
use crate::values::raw::{OwnedRawValue, RawValue, close_document, elements, put_element, tag};

use super::apply::OperatorOutcome;
use super::{PullOperator, PushOperator, PushSort, UpdateContext};

/// Values that one element is compared with for one step of the budget.
const VALUES_PER_STEP: usize = 8;

/// Appends an array of `values`.
fn write_array<'v>(values: impl Iterator<Item = RawValue<'v>>, out: &mut Vec<u8>) -> OperatorOutcome {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    let mut name = itoa::Counter::default();
    for value in values {
        put_element(out, name.next(), value);
    }
    close_document(out, start);
    OperatorOutcome::Written(tag::ARRAY)
}

/// Names of array elements, `0`, `1`, `2`…, without an allocation each.
mod itoa {
    pub(super) struct Counter {
        digits: [u8; 20],
        from: usize,
        started: bool,
    }

    impl Default for Counter {
        fn default() -> Self {
            Self { digits: [b'0'; 20], from: 19, started: false }
        }
    }

    impl Counter {
        pub fn next(&mut self) -> &[u8] {
            if std::mem::replace(&mut self.started, true) {
                let mut at = 19;
                while self.digits[at] == b'9' {
                    self.digits[at] = b'0';
                    at -= 1;
                }
                self.digits[at] += 1;
                self.from = self.from.min(at);
            }
            &self.digits[self.from..]
        }
    }
}

pub(crate) fn push(
    push: &PushOperator,
    old: Option<RawValue<'_>>,
    out: &mut Vec<u8>,
    path: &dyn Fn() -> String,
    context: &UpdateContext<'_>,
) -> Result<OperatorOutcome> {
    let array = match old {
        None => crate::values::raw::EMPTY,
        Some(v) if v.tag == tag::ARRAY => v.bytes,
        Some(v) => {
            return Err(DocsError::bad_value(format!(
                "The field '{}' must be an array but is of type {} in document {{{}}}",
                path(),
                v.type_name(),
                context.id()
            )));
        }
    };
    let mut all: Vec<RawValue<'_>> = elements(array).map(|e| e.value).collect();
    let at = match push.position {
        None => all.len(),
        Some(p) if p < 0 => all.len().saturating_sub(usize::try_from(p.unsigned_abs()).unwrap_or(usize::MAX)),
        Some(p) => usize::try_from(p).unwrap_or(usize::MAX).min(all.len()),
    };
    all.splice(at..at, push.values.iter().map(OwnedRawValue::as_raw));
    let by = context.collation;
    budget::steps((all.len() / VALUES_PER_STEP) as u64)?;
    match &push.sort {
        None => {}
        Some(PushSort::Whole(Direction::Ascending)) => all.sort_by(|a, b| compare_by(*a, *b, by)),
        Some(PushSort::Whole(Direction::Descending)) => all.sort_by(|a, b| compare_by(*b, *a, by)),
        // an element that is not a document has none of the fields
        Some(PushSort::Fields(order)) => all.sort_by_cached_key(|v| {
            order.key(if v.tag == tag::DOCUMENT { v.bytes } else { crate::values::raw::EMPTY })
        }),
    }
    if let Some(slice) = push.slice {
        let keep = usize::try_from(slice.unsigned_abs()).unwrap_or(usize::MAX).min(all.len());
        if slice < 0 {
            all.drain(..all.len() - keep);
        } else {
            all.truncate(keep);
        }
    }
    Ok(write_array(all.into_iter(), out))
}

pub(crate) fn add_to_set(
    values: &[OwnedRawValue],
    old: Option<RawValue<'_>>,
    out: &mut Vec<u8>,
    path: &dyn Fn() -> String,
    context: &UpdateContext<'_>,
) -> Result<OperatorOutcome> {
    let array = match old {
        None => crate::values::raw::EMPTY,
        Some(v) if v.tag == tag::ARRAY => v.bytes,
        Some(v) => {
            return Err(DocsError::bad_value(format!(
                "Cannot apply $addToSet to non-array field. Field named '{}' has non-array type {} in document {{{}}}",
                path(),
                v.type_name(),
                context.id()
            )));
        }
    };
    let mut all: Vec<RawValue<'_>> = elements(array).map(|e| e.value).collect();
    let (before, by) = (all.len(), context.collation);
    budget::steps((all.len() / VALUES_PER_STEP) as u64)?;
    if values.len() > 8 {
        // many values: look them up instead of comparing all pairs
        let mut known: hashbrown::HashSet<Key> = all.iter().map(|v| Key::of_raw_by(*v, by)).collect();
        all.extend(values.iter().map(OwnedRawValue::as_raw).filter(|v| known.insert(Key::of_raw_by(*v, by))));
    } else {
        for value in values {
            if !all.iter().any(|v| equal_by(*v, value.as_raw(), by)) {
                all.push(value.as_raw());
            }
        }
    }
    if all.len() == before && old.is_some() {
        return Ok(OperatorOutcome::Keep);
    }
    Ok(write_array(all.into_iter(), out))
}

/// Appends the array without the elements for which `goes` holds. Errors: the value is not an array.
fn retain(
    op: &str,
    old: Option<RawValue<'_>>,
    out: &mut Vec<u8>,
    goes: impl Fn(RawValue<'_>) -> Result<bool>,
) -> Result<OperatorOutcome> {
    let Some(v) = old else { return Ok(OperatorOutcome::Keep) };
    if v.tag != tag::ARRAY {
        return Err(DocsError::bad_value(format!("Cannot apply {op} to a non-array value")));
    }
    let (mut kept, mut count) = (Vec::new(), 0);
    for element in elements(v.bytes) {
        count += 1;
        budget::step()?;
        if !goes(element.value)? {
            kept.push(element.value);
        }
    }
    match kept.len() == count {
        true => Ok(OperatorOutcome::Keep),
        false => Ok(write_array(kept.into_iter(), out)),
    }
}

pub(crate) fn pull_all(
    values: &[OwnedRawValue],
    old: Option<RawValue<'_>>,
    out: &mut Vec<u8>,
    by: Option<&Collation>,
) -> Result<OperatorOutcome> {
    retain("$pullAll", old, out, |v| {
        budget::steps(1 + (values.len() / VALUES_PER_STEP) as u64)?;
        Ok(values.iter().any(|gone| equal_by(v, gone.as_raw(), by)))
    })
}

pub(crate) fn pull(
    pull: &PullOperator,
    old: Option<RawValue<'_>>,
    out: &mut Vec<u8>,
    by: Option<&Collation>,
) -> Result<OperatorOutcome> {
    retain("$pull", old, out, |v| match pull {
        PullOperator::Documents(filter) => Ok(v.tag == tag::DOCUMENT && filter.test(v.bytes)?),
        PullOperator::Values(filter) => filter.test(&v.in_document("")),
        PullOperator::Equal(gone) => Ok(equal_by(v, gone.as_raw(), by)),
    })
}

pub(crate) fn pop(
    first: bool,
    old: Option<RawValue<'_>>,
    out: &mut Vec<u8>,
    path: &dyn Fn() -> String,
) -> Result<OperatorOutcome> {
    let Some(v) = old else { return Ok(OperatorOutcome::Keep) };
    if v.tag != tag::ARRAY {
        return Err(DocsError::new(
            ErrorCode::TypeMismatch,
            format!("Path '{}' contains an element of non-array type '{}'", path(), v.type_name()),
        ));
    }
    let len = elements(v.bytes).count();
    if len == 0 {
        return Ok(OperatorOutcome::Keep);
    }
    let gone = if first { 0 } else { len - 1 };
    let rest = elements(v.bytes).enumerate().filter(|(i, _)| i.cmp(&gone) != Ordering::Equal);
    Ok(write_array(rest.map(|(_, e)| e.value), out))
}
