//! Conversion of a file's columns to the declared fields of a stream.

use std::sync::Arc;

use arrow_array::builder::StringBuilder;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{
    Array, ArrayRef, RecordBatch, RecordBatchOptions, TimestampMicrosecondArray, new_null_array,
};
use arrow_cast::cast;
use arrow_json::writer::{EncoderOptions, make_encoder};
use arrow_schema::{ArrowError, DataType, Field as ArrowField, FieldRef, Schema, SchemaRef, TimeUnit};
use tidemill_types::{EpochUnit, Error, Field, FieldType, Result, StreamSchema, Timestamp, did_you_mean};

/// Returns the schema of output batches: exactly the declared fields.
pub(crate) fn declared(schema: &StreamSchema) -> SchemaRef {
    let fields = schema.fields.iter().map(|f| ArrowField::new(&f.name, f.ty.arrow(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns a batch of the first `fields` columns.
pub(crate) fn only_declared(batch: &RecordBatch, fields: usize) -> Result<RecordBatch> {
    batch.project(&(0..fields).collect::<Vec<_>>()).map_err(internal)
}

/// Appends `_time` and `_extra` to the declared fields: the result has the columns of
/// [`StreamSchema::batch_schema`]. The time is that of the stream's time field, or `now`.
pub(crate) fn with_system_columns(
    batch: &RecordBatch,
    schema: &StreamSchema,
    now: Timestamp,
) -> Result<RecordBatch> {
    let rows = batch.num_rows();
    let times = match schema.time.and_then(|i| batch.column(i).as_primitive_opt::<TimestampMicrosecondType>())
    {
        Some(times) => times.iter().map(|time| time.unwrap_or(now.0)).collect(),
        None => vec![now.0; rows],
    };
    let mut columns = batch.columns().to_vec();
    columns.push(Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")));
    columns.push(new_null_array(&DataType::Utf8, rows));
    RecordBatch::try_new(schema.batch_schema(), columns).map_err(internal)
}

/// Replaces the event times of a batch by those of a field of type `time`, or `long` in milliseconds; where
/// it is null, by `now`. Times that microseconds cannot represent become the nearest one.
pub(crate) fn set_event_time(
    batch: &RecordBatch,
    schema: &StreamSchema,
    field: usize,
    now: Timestamp,
) -> Result<RecordBatch> {
    let column = batch.columns().get(field);
    let millis = column.and_then(|c| c.as_primitive_opt::<Int64Type>());
    let micros = column.and_then(|c| c.as_primitive_opt::<TimestampMicrosecondType>());
    let times: Vec<i64> = match (millis, micros) {
        (Some(millis), _) => millis.iter().map(|ms| ms.map_or(now.0, |ms| ms.saturating_mul(1000))).collect(),
        (None, Some(micros)) => micros.iter().map(|time| time.unwrap_or(now.0)).collect(),
        (None, None) => {
            return Err(Error::invalid(format!(
                "the event time is read from a field of type long or time; field {field} of `{}` is none",
                schema.name
            )));
        }
    };
    let mut columns = batch.columns().to_vec();
    columns[schema.fields.len()] = Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC"));
    RecordBatch::try_new(batch.schema(), columns).map_err(internal)
}

/// Returns for each declared field its index in `names`. Errors: a field is missing.
pub(crate) fn field_columns<'n>(
    names: impl Iterator<Item = &'n str>,
    schema: &StreamSchema,
) -> Result<Vec<usize>> {
    let names: Vec<&str> = names.collect();
    let place = |field: &Field| {
        names.iter().position(|name| *name == field.name).ok_or_else(|| {
            let hint = did_you_mean(&field.name, names.iter().copied());
            Error::invalid(format!("there is no field `{}`{hint}", field.name))
        })
    };
    schema.fields.iter().map(place).collect()
}

/// Checks that fields of a file can be read as the declared ones, pairwise. Errors: a field has an
/// incompatible type.
pub(crate) fn check(found: &[FieldRef], schema: &StreamSchema) -> Result<()> {
    for (found, field) in found.iter().zip(&schema.fields) {
        if !is_readable(found.data_type(), field.ty) {
            let (name, ty, found) = (&field.name, field.ty, found.data_type());
            return Err(Error::invalid(format!("field `{name}`: `{ty}` cannot be read from {found}")));
        }
    }
    Ok(())
}

/// Converts columns that passed [`check`] to a batch of the declared fields.
pub(crate) fn convert(
    columns: &[ArrayRef],
    rows: usize,
    schema: &StreamSchema,
    declared: &SchemaRef,
) -> Result<RecordBatch> {
    let column = |(array, field): (&ArrayRef, &Field)| {
        as_type(array, field).map_err(|e| {
            Error::invalid(format!("field `{}` cannot be read as `{}`", field.name, field.ty)).with_source(e)
        })
    };
    let columns = columns.iter().zip(&schema.fields).map(column).collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows));
    RecordBatch::try_new_with_options(declared.clone(), columns, &options).map_err(internal)
}

/// Returns whether the conversion from a type to a declared one loses no value.
fn is_readable(from: &DataType, to: FieldType) -> bool {
    use DataType as T;
    if let T::Dictionary(_, values) = from {
        return is_readable(values, to);
    }
    let small = matches!(from, T::Int8 | T::Int16 | T::UInt8 | T::UInt16);
    let int = small || *from == T::Int32;
    match to {
        _ if *from == T::Null => true,
        FieldType::Bool => *from == T::Boolean,
        FieldType::Int => int,
        FieldType::Long => int || matches!(from, T::Int64 | T::UInt32 | T::Timestamp(..)),
        FieldType::Float => small || matches!(from, T::Float16 | T::Float32),
        FieldType::Double => int || matches!(from, T::UInt32 | T::Float16 | T::Float32 | T::Float64),
        FieldType::String => matches!(from, T::Utf8 | T::LargeUtf8 | T::Utf8View),
        // Integers count the field's unit since 1970.
        FieldType::Time => int || matches!(from, T::Int64 | T::UInt32 | T::Timestamp(..)),
        // Every value has a JSON representation.
        FieldType::Object => true,
    }
}

fn as_type(array: &ArrayRef, field: &Field) -> Result<ArrayRef, ArrowError> {
    let ty = field.ty;
    let wanted = ty.arrow();
    match array.data_type() {
        found if *found == wanted => Ok(array.clone()),
        DataType::Timestamp(..) if ty == FieldType::Long => {
            cast(&cast(array, &DataType::Timestamp(TimeUnit::Millisecond, None))?, &wanted)
        }
        DataType::LargeUtf8 | DataType::Utf8View => cast(array, &wanted),
        _ if ty == FieldType::Object => json_texts(array),
        DataType::Timestamp(..) | DataType::Null => cast(array, &wanted),
        _ if ty == FieldType::Time => times(array, field.unit.unwrap_or_default()),
        _ => cast(array, &wanted),
    }
}

/// Converts numbers of `unit` since 1970 to times. Errors: a number is out of range.
fn times(array: &ArrayRef, unit: EpochUnit) -> Result<ArrayRef, ArrowError> {
    let numbers = cast(array, &DataType::Int64)?;
    let time = |number: i64| {
        unit.timestamp(number).map(|time| time.0).ok_or_else(|| {
            ArrowError::CastError(format!(
                "{number} {} since 1970 are not in the years -9999 to 9999",
                unit.name()
            ))
        })
    };
    let times = numbers.as_primitive::<Int64Type>().iter().map(|n| n.map(time).transpose());
    let times: TimestampMicrosecondArray = times.collect::<Result<Vec<Option<i64>>, _>>()?.into();
    Ok(Arc::new(times.with_timezone("UTC")))
}

/// Encodes each value as JSON.
fn json_texts(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
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

/// Returns the average size of a row in bytes; counts strings by their length and other values as 8 bytes.
pub(crate) fn row_bytes(batch: &RecordBatch) -> usize {
    let bytes = |array: &ArrayRef| match array.as_string_opt::<i32>() {
        Some(texts) => {
            texts.value_offsets().last().zip(texts.value_offsets().first()).map_or(0, |(z, a)| z - a) as usize
        }
        None => 8 * array.len(),
    };
    batch.columns().iter().map(bytes).sum::<usize>() / batch.num_rows().max(1)
}

fn internal(e: ArrowError) -> Error {
    Error::internal("columns do not make a batch").with_source(e)
}
