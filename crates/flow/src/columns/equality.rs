//! Equality of values as `==` defines it, evaluated on columns without materializing values; hashes find rows
//! with equal values.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use tidemill_types::FieldType;

use crate::columns::column::{Column, Data};
use crate::expr::{Comparison, compare};

/// Type as which two columns are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CompareType {
    /// Two bools.
    Bool,
    /// Two whole numbers.
    Integer,
    /// Two numbers, at least one a float or double: both as doubles.
    Float,
    /// Two strings.
    Text,
}

impl CompareType {
    /// Returns the type as which values of types `a` and `b` are compared; `None` if `==` never holds.
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

/// Hash of values that equal no value: null and NaN.
pub(crate) const NO_HASH: u64 = 0;

/// Returns value `row` as a number that represents it exactly: equal values have the same number, other
/// values of the domain have others. `None` if the value does not fit or equals no value, and for doubles,
/// which are hashed.
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

/// Returns the hash of value `row`, which all values equal to it in the domain share; [`NO_HASH`] if it
/// equals no value.
#[inline]
pub(crate) fn hash(column: &Column, row: usize, domain: CompareType, state: &DefaultHashBuilder) -> u64 {
    match column.data() {
        Data::Str(v) if domain == CompareType::Text && !column.is_null(row) => v.hash(row, state) | 1,
        _ => bits(column, row, domain).map_or(NO_HASH, |bits| state.hash_one(bits) | 1),
    }
}

/// Combines two hashes; [`NO_HASH`] if either is.
#[inline]
pub(crate) fn combine_hashes(a: u64, b: u64) -> u64 {
    if a == NO_HASH || b == NO_HASH {
        NO_HASH
    } else {
        (a.rotate_left(23) ^ b).wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1
    }
}

/// Returns whether `a[i] == b[j]`.
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
