//! Values as `==` sees them: hashed where they lie, so that rows with equal values are found without looking at all.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use tidemill_types::FieldType;

use crate::column::{Column, Data};
use crate::expr::{Comparison, compare};

/// What two columns are compared as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompareType {
    /// Two bools.
    Bool,
    /// Two whole numbers.
    Integer,
    /// Two numbers of which one is a decimal: both as doubles.
    Float,
    /// Two texts.
    Text,
}

impl CompareType {
    /// What values of these types are compared as; none when `==` does not hold for any.
    pub(crate) fn of(a: FieldType, b: FieldType) -> Option<Self> {
        let whole = |ty| matches!(ty, FieldType::Int | FieldType::Long | FieldType::Time);
        let decimal = |ty| matches!(ty, FieldType::Float | FieldType::Double);
        match (a, b) {
            (FieldType::Bool, FieldType::Bool) => Some(Self::Bool),
            (FieldType::String, FieldType::String) => Some(Self::Text),
            _ if whole(a) && whole(b) => Some(Self::Integer),
            _ if (whole(a) || decimal(a)) && (whole(b) || decimal(b)) => Some(Self::Float),
            _ => None,
        }
    }
}

/// What is equal to nothing: null, and what is no number.
pub(crate) const NO_HASH: u64 = 0;

/// All of value `row` as a number, the same for all that are equal to it in the domain and for no other. None when it
/// does not fit, or is equal to nothing; decimals are hashed.
#[inline]
pub(crate) fn exact_bits(column: &Column, row: usize, domain: CompareType) -> Option<u64> {
    if domain == CompareType::Float { None } else { bits(column, row, domain) }
}

#[inline]
fn bits(column: &Column, row: usize, domain: CompareType) -> Option<u64> {
    if column.is_null(row) {
        return None;
    }
    let decimal = |n: f64| if n.is_nan() { None } else { Some((n + 0.0).to_bits()) };
    match (column.data(), domain) {
        (Data::Str(v), CompareType::Text) => v.tiny_key(row),
        (Data::Int(v), CompareType::Integer) => Some(i64::from(v[row]) as u64),
        (Data::Long(v), CompareType::Integer) => Some(v[row] as u64),
        (Data::Int(v), CompareType::Float) => decimal(f64::from(v[row])),
        (Data::Long(v), CompareType::Float) => decimal(v[row] as f64),
        (Data::Float(v), CompareType::Float) => decimal(f64::from(v[row])),
        (Data::Double(v), CompareType::Float) => decimal(v[row]),
        (Data::Bool(v), CompareType::Bool) => Some(u64::from(v[row])),
        _ => None,
    }
}

/// The hash of value `row`, the same for all that are equal to it in the domain; [`NO_HASH`] when nothing is.
#[inline]
pub(crate) fn hash(column: &Column, row: usize, domain: CompareType, state: &DefaultHashBuilder) -> u64 {
    match column.data() {
        Data::Str(v) if domain == CompareType::Text && !column.is_null(row) => v.hash(row, state) | 1,
        _ => bits(column, row, domain).map_or(NO_HASH, |bits| state.hash_one(bits) | 1),
    }
}

/// One hash of two; [`NO_HASH`] when either is.
#[inline]
pub(crate) fn combine_hashes(a: u64, b: u64) -> u64 {
    if a == NO_HASH || b == NO_HASH {
        NO_HASH
    } else {
        (a.rotate_left(23) ^ b).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
    }
}

/// `a[i] == b[j]`.
#[inline]
pub(crate) fn equal(a: &Column, i: usize, b: &Column, j: usize) -> bool {
    if a.is_null(i) || b.is_null(j) {
        return false;
    }
    match (a.data(), b.data()) {
        (Data::Str(a), Data::Str(b)) => a.is_equal(i, b, j),
        (Data::Long(a), Data::Long(b)) => a[i] == b[j],
        (Data::Int(a), Data::Int(b)) => a[i] == b[j],
        (Data::Double(a), Data::Double(b)) => a[i] == b[j],
        _ => compare(Comparison::Eq, &a.get(i), &b.get(j)),
    }
}
