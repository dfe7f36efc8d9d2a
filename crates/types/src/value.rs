//! A uniform view of a value in an Arrow column or a BSON document.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;

use arrow_array::cast::AsArray;
use arrow_array::types::{Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use arrow_schema::{DataType, TimeUnit};
use bson::RawBsonRef;

use crate::Timestamp;

/// A value as rules and queries see it. Strings and documents are borrowed.
#[derive(Debug, Clone)]
pub enum Value<'a> {
    /// The field does not exist.
    Missing,
    /// The field exists and is null.
    Null,
    /// True or false.
    Bool(bool),
    /// An integer of any width.
    Int(i64),
    /// A float of any width.
    Float(f64),
    /// A string.
    Str(Cow<'a, str>),
    /// An instant in microseconds since the Unix epoch, UTC.
    Time(Timestamp),
    /// A document, an array, or another BSON type without a variant of its own.
    Bson(RawBsonRef<'a>),
}

impl<'a> Value<'a> {
    /// Creates a borrowed string value.
    pub fn str(text: &'a str) -> Self {
        Self::Str(Cow::Borrowed(text))
    }

    /// Converts a BSON value. Dates become [`Value::Time`], numbers [`Value::Int`] or [`Value::Float`].
    pub fn from_bson(value: RawBsonRef<'a>) -> Self {
        match value {
            RawBsonRef::Null => Self::Null,
            RawBsonRef::Boolean(b) => Self::Bool(b),
            RawBsonRef::Int32(n) => Self::Int(n.into()),
            RawBsonRef::Int64(n) => Self::Int(n),
            RawBsonRef::Double(x) => Self::Float(x),
            RawBsonRef::String(s) => Self::str(s),
            RawBsonRef::DateTime(t) => Self::Time(Timestamp(t.timestamp_millis().saturating_mul(1000))),
            other => Self::Bson(other),
        }
    }

    /// Returns whether the value is missing or null.
    pub fn is_absent(&self) -> bool {
        matches!(self, Self::Missing | Self::Null)
    }

    /// Returns the name of the type, for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Null => "null",
            Self::Bool(_) => "bool",
            Self::Int(_) => "integer",
            Self::Float(_) => "float",
            Self::Str(_) => "string",
            Self::Time(_) => "time",
            Self::Bson(RawBsonRef::Document(_)) => "object",
            Self::Bson(RawBsonRef::Array(_)) => "array",
            Self::Bson(_) => "bson",
        }
    }

    /// Returns an owned copy, or `None` for [`Value::Bson`], which is only borrowed.
    pub fn into_scalar(self) -> Option<Value<'static>> {
        Some(match self {
            Self::Missing => Value::Missing,
            Self::Null => Value::Null,
            Self::Bool(b) => Value::Bool(b),
            Self::Int(n) => Value::Int(n),
            Self::Float(x) => Value::Float(x),
            Self::Str(s) => Value::Str(Cow::Owned(s.into_owned())),
            Self::Time(t) => Value::Time(t),
            Self::Bson(_) => return None,
        })
    }

    /// Compares two values of comparable types: numbers with numbers, strings with strings, times with times,
    /// booleans with booleans, other BSON values for equality only. `None` when they are not comparable:
    /// absent values, NaN, different types.
    pub fn compare(&self, other: &Value<'_>) -> Option<Ordering> {
        match (self, other) {
            (Self::Bool(a), Value::Bool(b)) => Some(a.cmp(b)),
            (Self::Int(a), Value::Int(b)) => Some(a.cmp(b)),
            (Self::Float(a), Value::Float(b)) => a.partial_cmp(b),
            (Self::Int(a), Value::Float(b)) => compare_int_float(*a, *b),
            (Self::Float(a), Value::Int(b)) => compare_int_float(*b, *a).map(Ordering::reverse),
            (Self::Str(a), Value::Str(b)) => Some(a.as_ref().cmp(b.as_ref())),
            (Self::Time(a), Value::Time(b)) => Some(a.cmp(b)),
            (Self::Bson(a), Value::Bson(b)) => (a == b).then_some(Ordering::Equal),
            _ => None,
        }
    }
}

/// Compares exactly: never rounds an integer to a float.
fn compare_int_float(a: i64, b: f64) -> Option<Ordering> {
    if b.is_nan() {
        return None;
    }
    if b >= 9_223_372_036_854_775_808.0 {
        return Some(Ordering::Less);
    }
    if b < -9_223_372_036_854_775_808.0 {
        return Some(Ordering::Greater);
    }
    // `b` is within the range of `i64` here; its integer part converts exactly, the fraction decides ties.
    let whole = b.trunc();
    Some(a.cmp(&(whole as i64)).then_with(|| 0.0_f64.partial_cmp(&(b - whole)).unwrap_or(Ordering::Equal)))
}

impl fmt::Display for Value<'_> {
    /// Formats the value for explanations: strings in quotes, times as RFC 3339.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("missing"),
            Self::Null => f.write_str("null"),
            Self::Bool(b) => b.fmt(f),
            Self::Int(n) => n.fmt(f),
            Self::Float(x) => x.fmt(f),
            Self::Str(s) => write!(f, "{s:?}"),
            Self::Time(t) => t.fmt(f),
            Self::Bson(v) => match bson::Bson::try_from(*v) {
                Ok(b) => write!(f, "{}", b.into_relaxed_extjson()),
                Err(_) => f.write_str("invalid bson"),
            },
        }
    }
}

/// Returns the value in `row` of column `column`. An Arrow null is [`Value::Missing`]: the event did not
/// carry the field.
///
/// Columns of types without a [`crate::FieldType`] are read as missing. Panics if `row` or `column` is out of
/// bounds.
pub fn row_value(batch: &RecordBatch, column: usize, row: usize) -> Value<'_> {
    let array = batch.column(column);
    if array.is_null(row) {
        return Value::Missing;
    }
    match array.data_type() {
        DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
        DataType::Int32 => Value::Int(array.as_primitive::<Int32Type>().value(row).into()),
        DataType::Int64 => Value::Int(array.as_primitive::<Int64Type>().value(row)),
        DataType::Float32 => Value::Float(array.as_primitive::<Float32Type>().value(row).into()),
        DataType::Float64 => Value::Float(array.as_primitive::<Float64Type>().value(row)),
        DataType::Utf8 => Value::str(array.as_string::<i32>().value(row)),
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            Value::Time(Timestamp(array.as_primitive::<TimestampMicrosecondType>().value(row)))
        }
        _ => Value::Missing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_and_floats_compare_exactly() {
        let big = (1_i64 << 53) + 1;
        assert_eq!(Value::Int(big).compare(&Value::Float((1_i64 << 53) as f64)), Some(Ordering::Greater));
        assert_eq!(Value::Float(1.5).compare(&Value::Int(1)), Some(Ordering::Greater));
        assert_eq!(Value::Int(-1).compare(&Value::Float(-1.5)), Some(Ordering::Greater));
        assert_eq!(Value::Int(i64::MAX).compare(&Value::Float(f64::INFINITY)), Some(Ordering::Less));
        assert_eq!(Value::Int(1).compare(&Value::Float(f64::NAN)), None);
        assert_eq!(Value::Missing.compare(&Value::Missing), None);
    }
}
