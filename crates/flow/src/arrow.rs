//! Conversion between columns and Arrow arrays, for batches of events at the boundaries of the system.
//!
//! | attribute | written as array | read from arrays |
//! | --- | --- | --- |
//! | `bool` | Boolean | Boolean |
//! | `int` | Int32 | integers of up to 32 bits |
//! | `long` | Int64 | integers of up to 64 bits, timestamps (as milliseconds) |
//! | `float` | Float32 | Float16, Float32, integers of up to 16 bits |
//! | `double` | Float64 | floats, integers of up to 32 bits |
//! | `string` | Utf8 | Utf8, LargeUtf8, Utf8View |
//! | `object` | Utf8, its JSON text | as `string` |
//! | `time` | Timestamp in microseconds, UTC | timestamps; a column holds milliseconds |
//!
//! Dictionaries of these types are read too, and arrays of type Null as nulls. Buffers without another owner
//! are reused without a copy if the types are equal.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowPrimitiveType, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type,
};
use arrow_array::{
    Array, ArrayRef, BooleanArray, Float32Array, Float64Array, Int32Array, Int64Array, RecordBatch,
    RecordBatchOptions, StringArray, TimestampMicrosecondArray,
};
use arrow_buffer::{Buffer, NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use serde_json::Value as Json;
use tidemill_types::{Error, FieldType, Result, did_you_mean};

use crate::catalog::Attributes;
use crate::columns::column::{Column, Data, StringColumn};
use crate::columns::value::{OpaqueValue, Value};
use crate::functions::json_text::{from_json, to_json};

/// Returns the Arrow schema of a stream: one nullable field per attribute, in order.
pub fn schema(attributes: &Attributes) -> SchemaRef {
    let fields = attributes.iter().map(|(name, ty)| Field::new(name, ty.arrow(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Converts a batch to the columns of a stream. Attributes are matched by name; other fields of the batch are
/// ignored.
///
/// Errors: `Invalid` if an attribute is missing or cannot be read from its field's type.
pub fn columns(batch: RecordBatch, attributes: &Attributes) -> Result<Vec<Column>> {
    let (schema, arrays, _) = batch.into_parts();
    let mut arrays: Vec<Option<ArrayRef>> = arrays.into_iter().map(Some).collect();
    let column = |(name, ty): &(String, FieldType)| {
        let found = schema.fields().iter().position(|f| f.name() == name);
        let array = found.and_then(|i| arrays[i].take()).ok_or_else(|| {
            let hint = did_you_mean(name, schema.fields().iter().map(|f| f.name().as_str()));
            Error::invalid(format!("the batch has no field `{name}`{hint}"))
        })?;
        column(array, *ty).map_err(|e| e.context(format!("field `{name}`")))
    };
    attributes.iter().map(column).collect()
}

/// Converts the columns of a stream to a batch.
///
/// Errors: `Invalid` if they do not match the attributes, `LimitReached` if the strings of a column exceed 2
/// GiB.
pub fn record_batch(columns: Vec<Column>, attributes: &Attributes) -> Result<RecordBatch> {
    if columns.len() != attributes.len() {
        let (given, wanted) = (columns.len(), attributes.len());
        return Err(Error::invalid(format!(
            "expected {wanted} columns, one for each attribute, found {given}"
        )));
    }
    let rows = columns.first().map_or(0, Column::len);
    let array = |(column, (name, ty)): (Column, &(String, FieldType))| {
        array(column, *ty).map_err(|e| e.context(format!("attribute `{name}`")))
    };
    let arrays = columns.into_iter().zip(attributes).map(array).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(schema(attributes), arrays, &options)
        .map_err(|e| Error::invalid("the columns do not form a batch").with_source(e))
}

/// Converts an array to a column of type `ty`.
///
/// Errors: `Invalid` if `ty` cannot be read from the array's type, or an `object` is not valid JSON.
pub fn column(array: ArrayRef, ty: FieldType) -> Result<Column> {
    if let Some(dictionary) = array.as_any_dictionary_opt() {
        let values = column(dictionary.values().clone(), ty)?;
        return Ok(decoded(&values, array.nulls(), &dictionary.normalized_keys()));
    }
    if *array.data_type() == DataType::Null {
        let mut column = Column::new(ty);
        (0..array.len()).for_each(|_| column.push_null());
        return Ok(column);
    }
    let nulls = nulls_of(array.as_ref());
    let found = array.data_type().clone();
    let data = match ty {
        FieldType::Bool => bools(array),
        FieldType::Int => ints(array),
        FieldType::Long => longs(array),
        FieldType::Float => floats(array),
        FieldType::Double => doubles(array),
        FieldType::String => strings(array).map(Data::Str),
        FieldType::Time => timestamps(&array).map(Data::Long),
        FieldType::Object => strings(array).map(|texts| objects(&texts, &nulls)).transpose()?,
    };
    let data = data.ok_or_else(|| {
        Error::invalid(format!("a column of Arrow type {found} cannot be converted to `{ty}`"))
    })?;
    Ok(Column::with_nulls(data, nulls))
}

/// Converts a column of type `ty` to an array of its Arrow type.
///
/// Errors: `Invalid` if the column has another type, `LimitReached` if its strings exceed 2 GiB in total.
pub fn array(column: Column, ty: FieldType) -> Result<ArrayRef> {
    let found = column.ty();
    let (data, nulls) = column.into_parts();
    let nulls = (!nulls.is_empty()).then(|| nulls.iter().map(|null| !null).collect::<NullBuffer>());
    Ok(match (ty, data) {
        (FieldType::Bool, Data::Bool(v)) => Arc::new(BooleanArray::new(v.into(), nulls)),
        (FieldType::Int, Data::Int(v)) => Arc::new(Int32Array::new(v.into(), nulls)),
        (FieldType::Long, Data::Long(v)) => Arc::new(Int64Array::new(v.into(), nulls)),
        (FieldType::Float, Data::Float(v)) => Arc::new(Float32Array::new(v.into(), nulls)),
        (FieldType::Double, Data::Double(v)) => Arc::new(Float64Array::new(v.into(), nulls)),
        (FieldType::String, Data::Str(v)) => Arc::new(string_array(v, nulls)?),
        (FieldType::Object, Data::Object(v)) => {
            let text = |v: &Value| (!v.is_null()).then(|| to_json(v).to_string());
            Arc::new(v.iter().map(text).collect::<StringArray>())
        }
        (FieldType::Time, Data::Long(v)) => {
            let micros: Vec<i64> = v.into_iter().map(|ms| ms.saturating_mul(1000)).collect();
            Arc::new(TimestampMicrosecondArray::new(micros.into(), nulls).with_timezone("UTC"))
        }
        _ => return Err(Error::invalid(format!("expected a column of type `{ty}`, found `{found}`"))),
    })
}

/// Returns for each value whether it is null; empty if none is.
fn nulls_of(array: &dyn Array) -> Vec<bool> {
    match array.nulls().filter(|nulls| nulls.null_count() > 0) {
        Some(nulls) => nulls.iter().map(|valid| !valid).collect(),
        None => vec![],
    }
}

/// Decodes a dictionary array.
fn decoded(values: &Column, nulls: Option<&NullBuffer>, keys: &[usize]) -> Column {
    let mut column = Column::new(values.ty());
    for (i, key) in keys.iter().enumerate() {
        match nulls.is_some_and(|n| n.is_null(i)) || *key >= values.len() {
            true => column.push_null(),
            false => column.push_from(values, *key),
        }
    }
    column
}

/// Consumes an array and returns its values, without a copy if its buffer has no other owner.
fn into_values<T: ArrowPrimitiveType>(array: ArrayRef) -> Vec<T::Native> {
    let values = array.as_primitive::<T>().values().clone();
    drop(array);
    Vec::from(values)
}

/// Converts the values of an array to a wider type.
fn widen<T: ArrowPrimitiveType, W: From<T::Native>>(array: &ArrayRef) -> Vec<W> {
    array.as_primitive::<T>().values().iter().map(|v| W::from(*v)).collect()
}

fn bools(array: ArrayRef) -> Option<Data> {
    array.as_boolean_opt().map(|array| Data::Bool(array.values().iter().collect()))
}

fn ints(array: ArrayRef) -> Option<Data> {
    Some(Data::Int(match array.data_type() {
        DataType::Int32 => into_values::<Int32Type>(array),
        DataType::Int8 => widen::<Int8Type, _>(&array),
        DataType::Int16 => widen::<Int16Type, _>(&array),
        DataType::UInt8 => widen::<UInt8Type, _>(&array),
        DataType::UInt16 => widen::<UInt16Type, _>(&array),
        _ => return None,
    }))
}

fn longs(array: ArrayRef) -> Option<Data> {
    Some(Data::Long(match array.data_type() {
        DataType::Int64 => into_values::<Int64Type>(array),
        DataType::UInt32 => widen::<UInt32Type, _>(&array),
        DataType::Timestamp(..) => timestamps(&array)?,
        _ => match ints(array)? {
            Data::Int(v) => v.into_iter().map(i64::from).collect(),
            _ => return None,
        },
    }))
}

fn floats(array: ArrayRef) -> Option<Data> {
    Some(Data::Float(match array.data_type() {
        DataType::Float32 => into_values::<Float32Type>(array),
        DataType::Float16 => widen::<Float16Type, _>(&array),
        DataType::Int8 => widen::<Int8Type, _>(&array),
        DataType::Int16 => widen::<Int16Type, _>(&array),
        DataType::UInt8 => widen::<UInt8Type, _>(&array),
        DataType::UInt16 => widen::<UInt16Type, _>(&array),
        _ => return None,
    }))
}

fn doubles(array: ArrayRef) -> Option<Data> {
    Some(Data::Double(match array.data_type() {
        DataType::Float64 => into_values::<Float64Type>(array),
        DataType::Float32 => widen::<Float32Type, _>(&array),
        DataType::Float16 => widen::<Float16Type, _>(&array),
        DataType::UInt32 => widen::<UInt32Type, _>(&array),
        _ => match ints(array)? {
            Data::Int(v) => v.into_iter().map(f64::from).collect(),
            _ => return None,
        },
    }))
}

/// Converts timestamps to milliseconds since 1970, rounding down.
fn timestamps(array: &ArrayRef) -> Option<Vec<i64>> {
    let DataType::Timestamp(unit, _) = array.data_type() else { return None };
    Some(match unit {
        TimeUnit::Second => each::<TimestampSecondType>(array, |t| t.saturating_mul(1000)),
        TimeUnit::Millisecond => each::<TimestampMillisecondType>(array, |t| t),
        TimeUnit::Microsecond => each::<TimestampMicrosecondType>(array, |t| t.div_euclid(1000)),
        TimeUnit::Nanosecond => each::<TimestampNanosecondType>(array, |t| t.div_euclid(1_000_000)),
    })
}

fn each<T: ArrowPrimitiveType<Native = i64>>(array: &ArrayRef, convert: fn(i64) -> i64) -> Vec<i64> {
    array.as_primitive::<T>().values().iter().map(|t| convert(*t)).collect()
}

fn strings(array: ArrayRef) -> Option<StringColumn> {
    match array.data_type() {
        DataType::Utf8 => {}
        DataType::LargeUtf8 => return Some(copied(array.as_string::<i64>().iter())),
        DataType::Utf8View => return Some(copied(array.as_string_view().iter())),
        _ => return None,
    }
    let (offsets, values, _) = array.as_string::<i32>().clone().into_parts();
    let ends: Vec<u32> = offsets[1..].iter().map(|o| *o as u32).collect();
    // a slice of a larger array shares its buffer, so it is copied
    if offsets[0] != 0 {
        return Some(copied(array.as_string::<i32>().iter()));
    }
    drop(array);
    let mut text = values.into_vec::<u8>().unwrap_or_else(|shared| shared.to_vec());
    text.truncate(ends.last().map_or(0, |end| *end as usize));
    Some(StringColumn::of(String::from_utf8(text).ok()?, &ends))
}

fn copied<'t>(texts: impl Iterator<Item = Option<&'t str>>) -> StringColumn {
    let mut strings = StringColumn::default();
    texts.for_each(|text| strings.push(text.unwrap_or_default()));
    strings
}

fn objects(texts: &StringColumn, nulls: &[bool]) -> Result<Data> {
    let object = |i: usize| {
        if nulls.get(i) == Some(&true) {
            return Ok(Value::Null);
        }
        match serde_json::from_str::<Json>(texts.get(i)) {
            Ok(json @ (Json::Array(_) | Json::Object(_))) => {
                Ok(Value::Object(OpaqueValue::Json(json.into())))
            }
            Ok(scalar) => Ok(from_json(&scalar)),
            Err(e) => Err(Error::invalid(format!("row {i}: not valid JSON")).with_source(e)),
        }
    };
    (0..texts.len()).map(object).collect::<Result<_>>().map(Data::Object)
}

fn string_array(texts: StringColumn, nulls: Option<NullBuffer>) -> Result<StringArray> {
    let (text, ends) = texts.into_parts();
    if i32::try_from(text.len()).is_err() {
        return Err(Error::limit("the strings of a column exceed 2 GiB: send smaller batches"));
    }
    let offsets: Vec<i32> = std::iter::once(0).chain(ends.iter().map(|end| *end as i32)).collect();
    let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
    StringArray::try_new(offsets, Buffer::from_vec(text.into_bytes()), nulls)
        .map_err(|e| Error::internal("internal error: the strings do not form an array").with_source(e))
}

#[cfg(test)]
mod tests;
