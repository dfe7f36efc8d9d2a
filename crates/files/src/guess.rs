//! What the values of a column have in common.

use arrow_schema::DataType;
use serde_json::Value;
use tidemill_types::{FieldType, Timestamp};

/// Type of the values seen so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guess {
    /// No value yet.
    Nothing,
    /// True or false.
    Bool,
    /// Whole numbers of 32 bits, only where the file says so: later rows may have larger numbers.
    Int,
    /// Whole numbers.
    Long,
    /// Numbers of 32 bits, only where the file says so.
    Float,
    /// Numbers.
    Double,
    /// Text with times in RFC 3339.
    Time,
    /// Other text.
    Text,
    /// Cells of CSV of several types, which are all text.
    Cells,
    /// JSON values of several types, objects and arrays.
    Any,
}

impl Guess {
    /// Returns the type of a column of Arrow, one that holds all values that such a column may have.
    pub fn of_type(ty: &DataType) -> Self {
        match ty {
            DataType::Dictionary(_, values) => Self::of_type(values),
            DataType::RunEndEncoded(_, values) => Self::of_type(values.data_type()),
            DataType::Null => Self::Nothing,
            DataType::Boolean => Self::Bool,
            DataType::Int8 | DataType::Int16 | DataType::UInt8 | DataType::UInt16 | DataType::Int32 => {
                Self::Int
            }
            DataType::Int64 | DataType::UInt32 => Self::Long,
            DataType::Float16 | DataType::Float32 => Self::Float,
            DataType::Float64 => Self::Double,
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => Self::Text,
            DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => Self::Time,
            // a number of up to 15 digits is the same again after it was a double
            DataType::Decimal32(..) | DataType::Decimal64(0..=15, _) | DataType::Decimal128(0..=15, _) => {
                Self::Double
            }
            DataType::Time32(_) | DataType::Time64(_) | DataType::Duration(_) => Self::Text,
            _ => Self::Any,
        }
    }

    /// Returns the type of a cell of CSV.
    pub fn of_cell(cell: &str) -> Self {
        match cell {
            "" => Self::Nothing,
            _ if cell.eq_ignore_ascii_case("true") || cell.eq_ignore_ascii_case("false") => Self::Bool,
            _ if cell.parse::<f64>().is_ok() && loses_characters(cell) => Self::Cells,
            _ if cell.parse::<i64>().is_ok() => Self::Long,
            _ if cell.parse::<f64>().is_ok() => Self::Double,
            _ if is_time(cell) => Self::Time,
            _ => Self::Cells,
        }
    }

    /// Returns the type of a JSON value.
    pub fn of_json(value: &Value) -> Self {
        match value {
            Value::Null => Self::Nothing,
            Value::Bool(_) => Self::Bool,
            Value::Number(number) if number.is_i64() => Self::Long,
            Value::Number(_) => Self::Double,
            Value::String(text) if is_time(text) => Self::Time,
            Value::String(_) => Self::Text,
            Value::Array(_) | Value::Object(_) => Self::Any,
        }
    }

    /// Returns the type that fits the values of both.
    pub fn join(self, other: Self) -> Self {
        match (self, other) {
            (a, b) if a == b => a,
            (Self::Nothing, a) | (a, Self::Nothing) => a,
            (Self::Cells, _) | (_, Self::Cells) => Self::Cells,
            (Self::Int, Self::Long) | (Self::Long, Self::Int) => Self::Long,
            (Self::Long | Self::Int, Self::Double) | (Self::Double, Self::Long | Self::Int) => Self::Double,
            (Self::Time, Self::Text) | (Self::Text, Self::Time) => Self::Text,
            _ => Self::Any,
        }
    }

    /// Returns the type of the field.
    pub fn field_type(self) -> FieldType {
        match self {
            Self::Bool => FieldType::Bool,
            Self::Int => FieldType::Int,
            Self::Long => FieldType::Long,
            Self::Float => FieldType::Float,
            Self::Double => FieldType::Double,
            Self::Time => FieldType::Time,
            Self::Nothing | Self::Text | Self::Cells => FieldType::String,
            Self::Any => FieldType::Object,
        }
    }
}

/// Returns whether a cell that looks like a number would not be the same text again: a postcode with zeros in front, a phone
/// number with a plus, an id with more digits than a number keeps.
fn loses_characters(cell: &str) -> bool {
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    let mut bytes = digits.bytes();
    let has_zero_in_front =
        bytes.next() == Some(b'0') && bytes.next().is_some_and(|byte| byte.is_ascii_digit());
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default().trim_start_matches(['0', '.']);
    let significant = mantissa.bytes().filter(u8::is_ascii_digit).count();
    let has_more_digits = match digits.bytes().all(|byte| byte.is_ascii_digit()) {
        true => cell.parse::<i64>().is_err(),
        false => significant > DIGITS_MAX,
    };
    has_zero_in_front || cell.starts_with('+') || has_more_digits
}

/// Digits that programs write of a `double` so that it is the same again.
const DIGITS_MAX: usize = 17;

/// Returns true if the text is a date or a time; digits alone do not count.
fn is_time(text: &str) -> bool {
    text.len() >= 10 && text.as_bytes().get(4) == Some(&b'-') && Timestamp::parse(text).is_ok()
}
