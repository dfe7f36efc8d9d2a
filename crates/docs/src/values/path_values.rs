//! The values that a path reaches when an array on the way stands for any of its elements.

use smallvec::SmallVec;

use crate::values::path::{Path, PathSegment};
use crate::values::raw::{RawValue, elements, field, tag};

/// Treatment of an array at the end of the path.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeafArray {
    /// Test its elements, then the array itself.
    Expand,
    /// Test the array itself.
    Whole,
}

/// Calls `test` with each value that the path reaches in `doc`, `None` for a missing one, until it returns
/// `true`.
///
/// Follows MongoDB: an array on the way stands for each of its documents, and a numeric segment also selects
/// its element. An array without documents on the way reaches no value, not even a missing one.
pub(crate) fn any_value<'a>(
    doc: &'a [u8],
    path: &Path,
    leaf: LeafArray,
    test: &mut dyn FnMut(Option<RawValue<'a>>) -> bool,
) -> bool {
    in_document(doc, &path.parts, leaf, test)
}

/// As [`any_value`], for the rest of a path.
pub(crate) fn any_value_below<'a>(
    doc: &'a [u8],
    rest: &[PathSegment],
    leaf: LeafArray,
    test: &mut dyn FnMut(Option<RawValue<'a>>) -> bool,
) -> bool {
    in_document(doc, rest, leaf, test)
}

type ValuePredicate<'a, 't> = &'t mut dyn FnMut(Option<RawValue<'a>>) -> bool;

fn in_document<'a>(
    doc: &'a [u8],
    parts: &[PathSegment],
    leaf: LeafArray,
    test: ValuePredicate<'a, '_>,
) -> bool {
    let Some((part, rest)) = parts.split_first() else {
        return false;
    };
    let Some(elem) = field(doc, &part.name) else {
        return test(None);
    };
    at_value(elem.value, rest, leaf, test)
}

/// Continues at `value` with the rest of the path.
fn at_value<'a>(
    value: RawValue<'a>,
    rest: &[PathSegment],
    leaf: LeafArray,
    test: ValuePredicate<'a, '_>,
) -> bool {
    match (value.tag, rest.is_empty()) {
        (tag::ARRAY, true) if leaf == LeafArray::Expand => {
            elements(value.bytes).any(|e| test(Some(e.value))) || test(Some(value))
        }
        (_, true) => test(Some(value)),
        (tag::DOCUMENT, false) => in_document(value.bytes, rest, leaf, test),
        (tag::ARRAY, false) => in_array(value.bytes, rest, leaf, test),
        (_, false) => test(None),
    }
}

fn in_array<'a>(
    array: &'a [u8],
    parts: &[PathSegment],
    leaf: LeafArray,
    test: ValuePredicate<'a, '_>,
) -> bool {
    let Some((part, rest)) = parts.split_first() else {
        return false;
    };
    for (i, e) in (0_u32..).zip(elements(array)) {
        if e.value.tag == tag::DOCUMENT && in_document(e.value.bytes, parts, leaf, test) {
            return true;
        }
        if part.index == Some(i) {
            let found = match (e.value.tag, rest.is_empty()) {
                // `a.0` selects the element itself: its own elements are not tested
                (_, true) => test(Some(e.value)),
                (tag::DOCUMENT, false) => in_document(e.value.bytes, rest, leaf, test),
                (tag::ARRAY, false) => in_array(e.value.bytes, rest, leaf, test),
                _ => false,
            };
            if found {
                return true;
            }
        }
    }
    false
}

/// Returns the values that a document is indexed and sorted by: the elements of arrays, undefined for an
/// empty array, null for a missing value.
///
/// They include every value that [`any_value`] reaches except arrays themselves, so an index holds a document
/// under every value that can match it; filters for whole arrays and for null do not use indexes.
pub(crate) fn key_values<'a>(doc: &'a [u8], path: &Path) -> SmallVec<[RawValue<'a>; 1]> {
    let mut values: SmallVec<[RawValue<'a>; 1]> = SmallVec::new();
    any_value(doc, path, LeafArray::Whole, &mut |value| {
        put_key_values(value.unwrap_or(RawValue::NULL), &mut values);
        false
    });
    if values.is_empty() {
        values.push(RawValue::NULL);
    }
    values
}

/// Returns the values as [`key_values`] does, but none for a missing value.
pub(crate) fn present_key_values<'a>(doc: &'a [u8], path: &Path) -> SmallVec<[RawValue<'a>; 1]> {
    let mut values: SmallVec<[RawValue<'a>; 1]> = SmallVec::new();
    any_value(doc, path, LeafArray::Whole, &mut |value| {
        if let Some(value) = value {
            put_key_values(value, &mut values);
        }
        false
    });
    values
}

/// Adds the elements of an array, undefined if it has none, or any other value itself.
fn put_key_values<'a>(value: RawValue<'a>, values: &mut SmallVec<[RawValue<'a>; 1]>) {
    if value.tag != tag::ARRAY {
        values.push(value);
        return;
    }
    let before = values.len();
    values.extend(elements(value.bytes).map(|e| e.value));
    if values.len() == before {
        values.push(RawValue { tag: tag::UNDEFINED, bytes: &[] });
    }
}

/// Returns whether there is an array on the path or at its end.
pub(crate) fn array_on(doc: &[u8], path: &Path) -> bool {
    let mut here = RawValue { tag: tag::DOCUMENT, bytes: doc };
    for part in &path.parts {
        if here.tag != tag::DOCUMENT {
            break;
        }
        match field(here.bytes, &part.name) {
            Some(found) => here = found.value,
            None => return false,
        }
    }
    here.tag == tag::ARRAY
}
