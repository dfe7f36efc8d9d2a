//! Values of Arrow columns as values of fields.
//!
//! A value that a field cannot hold becomes null, which the caller tells from a null of the column. Numbers go into `float` and
//! `double` as those of JSON do: rounded to the nearest, and refused if they would become infinite.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{
    Decimal128Type, Float64Type, Int64Type, TimestampMicrosecondType, TimestampMillisecondType,
};
use arrow_array::{
    Array, ArrayRef, Float64Array, Int64Array, StringArray, TimestampMicrosecondArray, new_empty_array,
};
use arrow_cast::display::{ArrayFormatter, FormatOptions};
use arrow_cast::{CastOptions, cast, cast_with_options};
use arrow_json::writer::{EncoderOptions, make_encoder};
use arrow_schema::{ArrowError, DataType as T, Field as ArrowField, FieldRef, TimeUnit};
use tidemill_types::{EpochUnit, Field, FieldType, repeated_key};

use crate::guess::Guess;

/// Name of Arrow's extension type of UUIDs.
pub(crate) const UUID: &str = "arrow.uuid";
/// Largest magnitude up to which every whole number is a `double`.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// Type of a column.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// Type of its values, without the encoding of the column.
    ty: T,
    /// True if its 16 bytes are UUIDs.
    is_uuid: bool,
}

/// Values that fit their field, and null for the others.
pub(crate) struct Fit {
    pub array: ArrayRef,
    /// Reasons of rows that the type of the value does not tell.
    pub reasons: Vec<(usize, String)>,
}

impl Column {
    /// Returns what a column of a schema holds.
    pub(crate) fn of(field: &FieldRef) -> Self {
        let ty = unpacked_type(field.data_type()).clone();
        let logical = field.metadata().get("logicalType").map(String::as_str);
        let is_uuid = ty == T::FixedSizeBinary(16)
            && (field.extension_type_name() == Some(UUID) || logical == Some("uuid"));
        Self { ty, is_uuid }
    }

    /// Returns whether its values are UUIDs.
    pub(crate) fn is_uuid(&self) -> bool {
        self.is_uuid
    }

    /// Returns the values of a column without its encoding.
    pub(crate) fn unpacked(&self, array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
        let wanted = match &self.ty {
            T::LargeUtf8 | T::Utf8View => &T::Utf8,
            T::LargeBinary | T::BinaryView => &T::Binary,
            ty => ty,
        };
        match array.data_type() == wanted {
            true => Ok(array.clone()),
            false => cast(array, wanted),
        }
    }
}

fn unpacked_type(ty: &T) -> &T {
    match ty {
        T::Dictionary(_, values) => unpacked_type(values),
        T::RunEndEncoded(_, values) => unpacked_type(values.data_type()),
        ty => ty,
    }
}

fn is_text(ty: &T) -> bool {
    matches!(ty, T::Utf8 | T::LargeUtf8 | T::Utf8View)
}

fn is_decimal(ty: &T) -> bool {
    matches!(ty, T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) | T::Decimal256(..))
}

/// Returns whether a field of type `to` may hold values of a column.
pub(crate) fn is_readable(column: &Column, to: FieldType) -> bool {
    let from = &column.ty;
    let is_number = from.is_integer() || from.is_floating() || is_decimal(from);
    let is_binary = matches!(from, T::Binary | T::LargeBinary | T::BinaryView | T::FixedSizeBinary(_));
    let is_span = matches!(from, T::Time32(_) | T::Time64(_) | T::Duration(_));
    let is_date = matches!(from, T::Date32 | T::Date64);
    let is_instant = is_date || matches!(from, T::Timestamp(..));
    match to {
        _ if *from == T::Null => true,
        FieldType::Bool => *from == T::Boolean,
        // spans of time are milliseconds
        FieldType::Int => is_number || is_span,
        FieldType::Long => is_number || is_span || is_instant,
        FieldType::Float | FieldType::Double => is_number,
        FieldType::String => {
            is_text(from)
                || is_decimal(from)
                || is_binary
                || is_instant
                || is_span
                || matches!(from, T::Interval(_))
        }
        // whole numbers count the field's unit since 1970
        FieldType::Time => from.is_integer() || is_instant || is_text(from),
        FieldType::Object => encoder_exists(from),
    }
}

/// Returns the types other than `object` that a field should have for a column.
pub(crate) fn suggested(column: &Column) -> Option<FieldType> {
    let ty = if column.is_uuid { FieldType::String } else { Guess::of_type(&column.ty).field_type() };
    (ty != FieldType::Object).then_some(ty)
}

/// Returns whether the values of a type have a form in JSON.
fn encoder_exists(ty: &T) -> bool {
    let field: FieldRef = Arc::new(ArrowField::new("", ty.clone(), true));
    let empty = new_empty_array(ty);
    make_encoder(&field, empty.as_ref(), &EncoderOptions::default()).is_ok()
}

/// Returns the values of an unpacked column that fit a field, and null for the others.
pub(crate) fn fit(array: &ArrayRef, column: &Column, field: &Field) -> Result<Fit, ArrowError> {
    if field.ty == FieldType::Object && *array.data_type() != T::Null {
        return objects(array, column, field);
    }
    let array = match field.ty {
        _ if *array.data_type() == T::Null => cast(array, &field.ty.arrow())?,
        FieldType::Bool | FieldType::Object => array.clone(),
        FieldType::Int => or_null(&longs(array)?, &T::Int32)?,
        FieldType::Long => longs(array)?,
        FieldType::Double => Arc::new(doubles(array)?),
        FieldType::Float => floats(array)?,
        FieldType::String => texts(array, column)?,
        FieldType::Time => times(array, field)?,
    };
    Ok(Fit { array, reasons: Vec::new() })
}

/// Casts; values that do not fit become null.
fn or_null(array: &ArrayRef, to: &T) -> Result<ArrayRef, ArrowError> {
    cast_with_options(array, to, &CastOptions { safe: true, ..CastOptions::default() })
}

/// Whole numbers, instants in milliseconds since 1970, spans of time in milliseconds.
fn longs(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    let long = T::Int64;
    match array.data_type() {
        T::Int64 => Ok(array.clone()),
        ty if is_decimal(ty) => {
            let texts = decimal_texts(array)?;
            let whole = |text: &str| {
                let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
                whole.parse().ok().filter(|_| fraction.bytes().all(|digit| digit == b'0'))
            };
            Ok(Arc::new(texts.iter().map(|text| text.and_then(whole)).collect::<Int64Array>()))
        }
        ty if ty.is_floating() => {
            let doubles = cast(array, &T::Float64)?;
            let whole = |x: f64| (x.fract() == 0.0 && x.abs() <= EXACT_MAX).then_some(x as i64);
            let doubles = doubles.as_primitive::<Float64Type>();
            Ok(Arc::new(doubles.iter().map(|x| x.and_then(whole)).collect::<Int64Array>()))
        }
        T::Timestamp(..) => {
            let millis = or_null(array, &T::Timestamp(TimeUnit::Millisecond, None))?;
            Ok(Arc::new(millis.as_primitive::<TimestampMillisecondType>().reinterpret_cast::<Int64Type>()))
        }
        T::Date32 | T::Date64 => cast(&cast(array, &T::Date64)?, &long),
        T::Time32(unit) => millis_of(&cast(&cast(array, &T::Int32)?, &long)?, *unit),
        T::Time64(unit) | T::Duration(unit) => millis_of(&cast(array, &long)?, *unit),
        _ => or_null(array, &long),
    }
}

/// Converts numbers of a unit to whole milliseconds; null if there is a rest.
fn millis_of(numbers: &ArrayRef, unit: TimeUnit) -> Result<ArrayRef, ArrowError> {
    let millis = |n: i64| match unit {
        TimeUnit::Second => n.checked_mul(1000),
        TimeUnit::Millisecond => Some(n),
        TimeUnit::Microsecond => (n % 1000 == 0).then_some(n / 1000),
        TimeUnit::Nanosecond => (n % 1_000_000 == 0).then_some(n / 1_000_000),
    };
    let numbers = numbers.as_primitive::<Int64Type>();
    Ok(Arc::new(numbers.iter().map(|n| n.and_then(millis)).collect::<Int64Array>()))
}

fn doubles(array: &ArrayRef) -> Result<Float64Array, ArrowError> {
    // numbers below 2^53 and powers of ten up to 10^22 are exact, so that one division rounds once
    if let T::Decimal128(precision @ 0..=15, scale @ 0..=22) = array.data_type() {
        debug_assert!(*precision <= 15);
        let divisor = 10_f64.powi((*scale).into());
        return Ok(array.as_primitive::<Decimal128Type>().unary(|n| n as f64 / divisor));
    }
    if is_decimal(array.data_type()) {
        let number = |text: &str| text.parse::<f64>().ok().filter(|x| x.is_finite());
        return Ok(decimal_texts(array)?.iter().map(|text| text.and_then(number)).collect());
    }
    Ok(cast(array, &T::Float64)?.as_primitive::<Float64Type>().clone())
}

fn floats(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    if matches!(array.data_type(), T::Float32 | T::Float16) {
        return cast(array, &T::Float32);
    }
    let fits = |x: f64| !x.is_finite() || (x as f32).is_finite();
    let doubles = doubles(array)?.iter().map(|x| x.filter(|x| fits(*x))).collect::<Float64Array>();
    cast(&doubles, &T::Float32)
}

fn decimal_texts(array: &ArrayRef) -> Result<StringArray, ArrowError> {
    formatted(array, &FormatOptions::new())
}

/// Formats values; those that have no text become null.
fn formatted(array: &ArrayRef, options: &FormatOptions<'_>) -> Result<StringArray, ArrowError> {
    let formatter = ArrayFormatter::try_new(array.as_ref(), options)?;
    let text = |row| match array.is_null(row) {
        true => None,
        false => formatter.value(row).try_to_string().ok(),
    };
    Ok((0..array.len()).map(text).collect())
}

/// Texts: bytes in UTF-8, decimal numbers in full, dates, times and spans of time as in ISO 8601.
fn texts(array: &ArrayRef, column: &Column) -> Result<ArrayRef, ArrowError> {
    let plain = FormatOptions::new();
    Ok(match array.data_type() {
        T::Utf8 => array.clone(),
        _ if column.is_uuid => Arc::new(uuids(array)),
        T::Binary => {
            let bytes = array.as_binary::<i32>();
            let text = |bytes: &[u8]| std::str::from_utf8(bytes).ok().map(str::to_owned);
            Arc::new(bytes.iter().map(|bytes| bytes.and_then(text)).collect::<StringArray>())
        }
        T::FixedSizeBinary(_) => return texts(&cast(array, &T::Binary)?, column),
        // a day has no time, whatever its unit
        T::Date64 => Arc::new(formatted(&cast(array, &T::Date32)?, &plain)?),
        // times without a zone count as UTC
        T::Timestamp(unit, _) => {
            let utc = cast(array, &T::Timestamp(*unit, Some("UTC".into())))?;
            Arc::new(formatted(&utc, &plain)?)
        }
        _ => Arc::new(formatted(array, &plain)?),
    })
}

fn uuids(array: &ArrayRef) -> StringArray {
    let text = |bytes: &[u8]| uuid::Uuid::from_slice(bytes).ok().map(|id| id.to_string());
    array.as_fixed_size_binary().iter().map(|bytes| bytes.and_then(text)).collect()
}

/// Instants: of texts, of dates at midnight UTC, of whole numbers in the unit of the field.
fn times(array: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    let in_range = |micros: i64| EpochUnit::Micros.timestamp(micros).map(|time| time.0);
    let times: TimestampMicrosecondArray = match array.data_type() {
        T::Utf8 => {
            let time = |text: &str| field.time_from_text(text).map(|time| time.0);
            array.as_string::<i32>().iter().map(|text| text.and_then(time)).collect()
        }
        T::Timestamp(..) | T::Date32 | T::Date64 => {
            let micros = or_null(array, &T::Timestamp(TimeUnit::Microsecond, None))?;
            let micros = micros.as_primitive::<TimestampMicrosecondType>();
            micros.iter().map(|time| time.and_then(in_range)).collect()
        }
        _ => {
            let unit = field.unit.unwrap_or_default();
            let numbers = or_null(array, &T::Int64)?;
            let time = |number: i64| unit.timestamp(number).map(|time| time.0);
            numbers.as_primitive::<Int64Type>().iter().map(|n| n.and_then(time)).collect()
        }
    };
    Ok(Arc::new(times.with_timezone("UTC")))
}

/// JSON texts; an object with a key twice, as Arrow's maps may be, does not fit.
fn objects(array: &ArrayRef, column: &Column, field: &Field) -> Result<Fit, ArrowError> {
    let array = json_texts(array, column)?;
    if !column.ty.is_nested() && !is_text(&column.ty) {
        return Ok(Fit { array, reasons: Vec::new() });
    }
    let mut reasons = Vec::new();
    let mut distinct = StringBuilder::new();
    for (row, text) in array.as_string::<i32>().iter().enumerate() {
        match text.and_then(repeated_key) {
            None => distinct.append_option(text),
            Some(path) => {
                let dot = if path.starts_with('[') { "" } else { "." };
                reasons.push((row, format!("field `{}{dot}{path}` occurs twice", field.name)));
                distinct.append_null();
            }
        }
    }
    Ok(Fit { array: Arc::new(distinct.finish()), reasons })
}

/// Encodes each value as JSON. Texts are the JSON text of objects, as columns of `object` have it, or else strings.
pub(crate) fn json_texts(array: &ArrayRef, column: &Column) -> Result<ArrayRef, ArrowError> {
    if let Some(texts) = array.as_string_opt::<i32>() {
        let json = |text: &str| match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Ok(_) => text.to_owned(),
            Err(_) => serde_json::Value::from(text).to_string(),
        };
        return Ok(Arc::new(texts.iter().map(|text| text.map(json)).collect::<StringArray>()));
    }
    let uuids: ArrayRef;
    let array = match column.is_uuid {
        true => {
            uuids = Arc::new(self::uuids(array));
            &uuids
        }
        false => array,
    };
    let field: FieldRef = Arc::new(ArrowField::new("", array.data_type().clone(), true));
    let options = EncoderOptions::default();
    let mut encoder = make_encoder(&field, array.as_ref(), &options)?;
    let mut texts = StringBuilder::new();
    let mut text = Vec::new();
    for row in 0..array.len() {
        if array.is_null(row) {
            texts.append_null();
            continue;
        }
        text.clear();
        encoder.encode(row, &mut text);
        texts.append_value(String::from_utf8_lossy(&text));
    }
    Ok(Arc::new(texts.finish()))
}

/// Returns a value for a message, of a long one its beginning.
pub(crate) fn shown(array: &ArrayRef, row: usize) -> String {
    let options = FormatOptions::new().with_display_error(true);
    let Ok(formatter) = ArrayFormatter::try_new(array.as_ref(), &options) else {
        return "another value".into();
    };
    let mut text = formatter.value(row).to_string();
    if let Some((end, _)) = text.char_indices().nth(60) {
        text.truncate(end);
        text.push('…');
    }
    match array.data_type() {
        T::Utf8 => format!("text {text:?}"),
        T::Binary | T::FixedSizeBinary(_) => format!("bytes that are no UTF-8: {text}"),
        _ => text,
    }
}

#[cfg(test)]
mod tests;
