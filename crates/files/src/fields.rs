//! The columns of event batches.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, RecordBatch, TimestampMicrosecondArray, new_null_array};
use arrow_schema::{ArrowError, DataType, Field as ArrowField, Schema, SchemaRef};
use tidemill_types::{Error, Field, Result, StreamSchema, Timestamp, columns_of_fields, did_you_mean};

use crate::options::ColumnOptions;

/// Returns the schema of files: exactly the declared fields.
pub(crate) fn declared(schema: &StreamSchema) -> SchemaRef {
    let fields = schema.fields.iter().map(|f| ArrowField::new(&f.name, f.ty.arrow(), true));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

/// Returns a batch of the first `fields` columns.
pub(crate) fn only_declared(batch: &RecordBatch, fields: usize) -> Result<RecordBatch> {
    batch.project(&(0..fields).collect::<Vec<_>>()).map_err(internal)
}

/// Appends `_time` and `_extra` to `rows` rows of the declared fields: the result has the columns of
/// [`StreamSchema::batch_schema`]. The time is that of the stream's time field, or `now`.
pub(crate) fn with_system_columns(
    mut columns: Vec<ArrayRef>,
    extra: Option<ArrayRef>,
    rows: usize,
    schema: &StreamSchema,
    now: Timestamp,
) -> Result<RecordBatch> {
    let times = match schema.time.and_then(|i| columns[i].as_primitive_opt::<TimestampMicrosecondType>()) {
        Some(times) => times.iter().map(|time| time.unwrap_or(now.0)).collect(),
        None => vec![now.0; rows],
    };
    columns.push(Arc::new(TimestampMicrosecondArray::from(times).with_timezone("UTC")));
    columns.push(extra.unwrap_or_else(|| new_null_array(&DataType::Utf8, rows)));
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

/// Returns for each declared field the index of its column among `names`. Errors: a field is missing, or it is not clear which
/// column it is.
pub(crate) fn field_columns<'n>(
    names: impl Iterator<Item = &'n str>,
    schema: &StreamSchema,
    options: &ColumnOptions,
) -> Result<Vec<usize>> {
    let names: Vec<&str> = names.map(|name| options.renamed(name)).collect();
    let columns = columns_of_fields(schema, &names)?;
    let place = |(field, column): (&Field, Option<usize>)| {
        column.ok_or_else(|| {
            let hint = did_you_mean(&field.name, names.iter().copied());
            Error::invalid(format!("there is no field `{}`{hint}", field.name))
        })
    };
    schema.fields.iter().zip(columns).map(place).collect()
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

pub(crate) fn internal(e: ArrowError) -> Error {
    Error::internal("columns do not make a batch").with_source(e)
}
