//! Values as `==` sees them: hashed where they lie, so that rows with equal values are found without looking at all.

use std::hash::BuildHasher;

use hashbrown::DefaultHashBuilder;
use tidemill_types::FieldType;

use crate::column::{Column, Data};
use crate::expr::{Comparison, compare};

/// What two columns are compared as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Domain {
    /// Two bools.
    Bool,
    /// Two whole numbers.
    Whole,
    /// Two numbers of which one is a decimal: both as doubles.
    Decimal,
    /// Two texts.
    Text,
}

impl Domain {
    /// What values of these types are compared as; none when `==` does not hold for any.
    pub(crate) fn of(a: FieldType, b: FieldType) -> Option<Self> {
        let whole = |ty| matches!(ty, FieldType::Int | FieldType::Long | FieldType::Time);
        let decimal = |ty| matches!(ty, FieldType::Float | FieldType::Double);
        match (a, b) {
            (FieldType::Bool, FieldType::Bool) => Some(Self::Bool),
            (FieldType::String, FieldType::String) => Some(Self::Text),
            _ if whole(a) && whole(b) => Some(Self::Whole),
            _ if (whole(a) || decimal(a)) && (whole(b) || decimal(b)) => Some(Self::Decimal),
            _ => None,
        }
    }
}

/// What is equal to nothing: null, and what is no number.
pub(crate) const NONE: u64 = 0;

/// All of value `row` as a number, the same for all that are equal to it in the domain and for no other. None when it
/// does not fit, or is equal to nothing; decimals are hashed.
#[inline]
pub(crate) fn exact(column: &Column, row: usize, domain: Domain) -> Option<u64> {
    if domain == Domain::Decimal { None } else { bits(column, row, domain) }
}

#[inline]
fn bits(column: &Column, row: usize, domain: Domain) -> Option<u64> {
    if column.is_null(row) {
        return None;
    }
    let decimal = |n: f64| if n.is_nan() { None } else { Some((n + 0.0).to_bits()) };
    match (column.data(), domain) {
        (Data::Str(v), Domain::Text) => v.tiny(row),
        (Data::Int(v), Domain::Whole) => Some(i64::from(v[row]) as u64),
        (Data::Long(v), Domain::Whole) => Some(v[row] as u64),
        (Data::Int(v), Domain::Decimal) => decimal(f64::from(v[row])),
        (Data::Long(v), Domain::Decimal) => decimal(v[row] as f64),
        (Data::Float(v), Domain::Decimal) => decimal(f64::from(v[row])),
        (Data::Double(v), Domain::Decimal) => decimal(v[row]),
        (Data::Bool(v), Domain::Bool) => Some(u64::from(v[row])),
        _ => None,
    }
}

/// The hash of value `row`, the same for all that are equal to it in the domain; [`NONE`] when nothing is.
#[inline]
pub(crate) fn hash(column: &Column, row: usize, domain: Domain, state: &DefaultHashBuilder) -> u64 {
    match column.data() {
        Data::Str(v) if domain == Domain::Text && !column.is_null(row) => v.hash(row, state) | 1,
        _ => bits(column, row, domain).map_or(NONE, |bits| state.hash_one(bits) | 1),
    }
}

/// One hash of two; [`NONE`] when either is.
#[inline]
pub(crate) fn both(a: u64, b: u64) -> u64 {
    if a == NONE || b == NONE {
        NONE
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
