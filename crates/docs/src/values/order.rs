//! MongoDB's order of values, compared in place.

use std::cmp::Ordering;

use crate::collation::Collation;
use crate::values::key::{Key, KeyBuf, put, rank};
use crate::values::raw::{RawValue, elements, field, tag};

/// Compares the `_id` of two documents; one without comes first.
pub fn cmp_ids(a: &[u8], b: &[u8]) -> Ordering {
    let id = |document| field(document, b"_id").map(|element| element.value);
    match (id(a), id(b)) {
        (Some(a), Some(b)) => compare(a, b),
        (a, b) => a.is_some().cmp(&b.is_some()),
    }
}

/// Compares any two values; equivalent to comparing their keys.
pub(crate) fn compare(a: RawValue<'_>, b: RawValue<'_>) -> Ordering {
    rank(a.tag).cmp(&rank(b.tag)).then_with(|| compare_payload(a, b))
}

/// Returns whether two values are equal; numbers of different types are if they are numerically equal.
pub(crate) fn equal(a: RawValue<'_>, b: RawValue<'_>) -> bool {
    (a.tag == b.tag && a.bytes == b.bytes) || compare(a, b) == Ordering::Equal
}

/// Compares any two values, with strings in the order of a collation.
pub(crate) fn compare_by(a: RawValue<'_>, b: RawValue<'_>, collation: Option<&Collation>) -> Ordering {
    match collation {
        Some(_) if rank(a.tag) == rank(b.tag) => {
            Key::of_raw_by(a, collation).cmp(&Key::of_raw_by(b, collation))
        }
        _ => compare(a, b),
    }
}

/// Returns whether two values are equal by a collation.
pub(crate) fn equal_by(a: RawValue<'_>, b: RawValue<'_>, collation: Option<&Collation>) -> bool {
    equal(a, b) || (collation.is_some() && compare_by(a, b, collation) == Ordering::Equal)
}

/// Compares two values of one rank.
fn compare_payload(a: RawValue<'_>, b: RawValue<'_>) -> Ordering {
    match (a.tag, b.tag) {
        (tag::INT32, tag::INT32) => a.i32().cmp(&b.i32()),
        (tag::INT32 | tag::INT64, tag::INT32 | tag::INT64) => integer(a).cmp(&integer(b)),
        (tag::DOUBLE, tag::DOUBLE) => {
            let (x, y) = (a.f64(), b.f64());
            // NaN equals itself and comes before every number
            x.partial_cmp(&y).unwrap_or_else(|| y.is_nan().cmp(&x.is_nan()))
        }
        (tag::STRING | tag::SYMBOL | tag::CODE, _) => a.text_bytes().cmp(b.text_bytes()),
        (tag::OBJECT_ID | tag::BOOL, _) => a.bytes.cmp(b.bytes),
        (tag::DATE, _) => a.i64().cmp(&b.i64()),
        (tag::DOCUMENT, _) => compare_elements(a.bytes, b.bytes, true),
        (tag::ARRAY, _) => compare_elements(a.bytes, b.bytes, false),
        (tag::NULL | tag::UNDEFINED | tag::MIN_KEY | tag::MAX_KEY, _) => Ordering::Equal,
        // rare cases: integers with doubles, decimals, binary, code
        _ => {
            let (mut x, mut y) = (KeyBuf::new(), KeyBuf::new());
            put(&mut x, a);
            put(&mut y, b);
            x.cmp(&y)
        }
    }
}

fn integer(raw: RawValue<'_>) -> i64 {
    if raw.tag == tag::INT32 { raw.i32().into() } else { raw.i64() }
}

fn compare_elements(a: &[u8], b: &[u8], with_names: bool) -> Ordering {
    let (mut xs, mut ys) = (elements(a), elements(b));
    loop {
        let (x, y) = match (xs.next(), ys.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(x), Some(y)) => (x, y),
        };
        let order = rank(x.value.tag)
            .cmp(&rank(y.value.tag))
            .then_with(|| if with_names { x.name.cmp(y.name) } else { Ordering::Equal })
            .then_with(|| compare_payload(x.value, y.value));
        if order != Ordering::Equal {
            return order;
        }
    }
}
