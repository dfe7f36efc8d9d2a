//! Values of a query as values of fields.

use std::sync::Arc;

use arrow::array::cast::AsArray;
use arrow::array::types::{Float64Type, Int64Type, TimestampMicrosecondType, UInt64Type};
use arrow::array::{
    Array, ArrayRef, BooleanArray, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray,
    UInt64Array,
};
use arrow::compute::cast_with_options;
use arrow::datatypes::{DataType, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use tidemill_types::decode::CellValue;
use tidemill_types::{Error, Field, FieldType, Result};

use crate::change::STRICT;
use crate::output::json_text;

/// A column of a query, in the few forms that fields take.
pub(super) enum FieldColumn {
    Nulls,
    Bool(BooleanArray),
    Int(Int64Array),
    Unsigned(UInt64Array),
    Float(Float64Array),
    Text(StringArray),
    Json(StringArray),
    /// Texts of numbers.
    Number(StringArray),
    Time(TimestampMicrosecondArray),
}

impl FieldColumn {
    /// Returns the values of a column for a field.
    ///
    /// Errors: `Invalid` for a type that the field cannot have, and for a time out of range.
    pub fn new(array: &ArrayRef, field: &Field) -> Result<Self> {
        let cast = |ty: &DataType| {
            cast_with_options(array, ty, &STRICT)
                .map_err(|e| Error::invalid(format!("field `{}`: a value does not fit: {e}", field.name)))
        };
        let is_object = field.ty == FieldType::Object;
        Ok(match array.data_type() {
            DataType::Null => Self::Nulls,
            DataType::Boolean => Self::Bool(array.as_boolean().clone()),
            DataType::UInt64 => Self::Unsigned(array.as_primitive::<UInt64Type>().clone()),
            ty if ty.is_integer() => Self::Int(cast(&DataType::Int64)?.as_primitive::<Int64Type>().clone()),
            ty if ty.is_floating() => {
                Self::Float(cast(&DataType::Float64)?.as_primitive::<Float64Type>().clone())
            }
            DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View if is_object => {
                Self::Json(cast(&DataType::Utf8)?.as_string().clone())
            }
            DataType::Utf8
            | DataType::LargeUtf8
            | DataType::Utf8View
            | DataType::Binary
            | DataType::LargeBinary
            | DataType::BinaryView => Self::Text(cast(&DataType::Utf8)?.as_string().clone()),
            DataType::Dictionary(_, values) => return Self::new(&cast(values)?, field),
            DataType::RunEndEncoded(_, values) => return Self::new(&cast(values.data_type())?, field),
            DataType::Timestamp(..) => Self::time(&cast(&micros())?),
            DataType::Date32 | DataType::Date64 if field.ty == FieldType::Time => {
                Self::time(&cast(&micros())?)
            }
            DataType::Decimal32(..)
            | DataType::Decimal64(..)
            | DataType::Decimal128(..)
            | DataType::Decimal256(..) => match field.ty {
                FieldType::String | FieldType::Bool => Self::Text(formatted(array)?),
                FieldType::Object => Self::Json(formatted(array)?),
                _ => Self::Number(formatted(array)?.iter().map(|text| text.map(without_fraction)).collect()),
            },
            ty if ty.is_nested() && is_object => Self::Json(
                json_text(array)
                    .map_err(|e| Error::invalid(format!("field `{}`: no JSON: {e}", field.name)))?
                    .as_string()
                    .clone(),
            ),
            ty if ty.is_nested() => {
                return Err(Error::invalid(format!(
                    "field `{}`: expected a value of type {}, found lists or objects, which fit fields of type object",
                    field.name, field.ty
                )));
            }
            _ => Self::Text(formatted(array)?),
        })
    }

    fn time(array: &ArrayRef) -> Self {
        Self::Time(array.as_primitive::<TimestampMicrosecondType>().clone())
    }

    /// Returns the value of a row; `None` for null.
    pub fn cell(&self, row: usize) -> Option<CellValue<'_>> {
        fn valid<A: Array>(array: &A, row: usize) -> Option<&A> {
            array.is_valid(row).then_some(array)
        }
        Some(match self {
            Self::Nulls => return None,
            Self::Bool(array) => CellValue::Bool(valid(array, row)?.value(row)),
            Self::Int(array) => CellValue::Int(valid(array, row)?.value(row)),
            Self::Unsigned(array) => CellValue::Unsigned(valid(array, row)?.value(row)),
            Self::Float(array) => CellValue::Float(valid(array, row)?.value(row)),
            Self::Text(array) => CellValue::Text(valid(array, row)?.value(row)),
            Self::Json(array) => CellValue::Json(valid(array, row)?.value(row)),
            Self::Number(array) => CellValue::Untyped(valid(array, row)?.value(row)),
            Self::Time(array) => CellValue::Time(tidemill_types::Timestamp(valid(array, row)?.value(row))),
        })
    }
}

/// Type of instants of events. Times without a zone are of UTC.
fn micros() -> DataType {
    DataType::Timestamp(TimeUnit::Microsecond, Some(Arc::from("UTC")))
}

/// Returns a decimal number without zeros behind the point, so that a whole number is one.
fn without_fraction(text: &str) -> &str {
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => text,
    }
}

fn formatted(array: &ArrayRef) -> Result<StringArray> {
    let options = FormatOptions::new();
    let failed = |e| Error::internal("a value cannot be written as a text").with_source(e);
    let formatter = ArrayFormatter::try_new(array.as_ref(), &options).map_err(failed)?;
    let text = |row| (!array.is_null(row)).then(|| formatter.value(row).try_to_string()).transpose();
    (0..array.len()).map(text).collect::<std::result::Result<_, _>>().map_err(failed)
}
