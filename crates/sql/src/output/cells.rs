//! Conversion of columns for writing.

use std::sync::Arc;

use arrow::array::builder::StringBuilder;
use arrow::array::{Array, ArrayRef, RecordBatch, RecordBatchOptions};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::writer::{EncoderOptions, make_encoder};
use tidemill_types::{Error, Result};

/// Renames the columns to `names` and converts times without a zone to UTC.
pub(super) fn with_utc(batch: &RecordBatch, names: &SchemaRef) -> Result<RecordBatch> {
    map_columns(batch, names, |column| match column.data_type() {
        DataType::Timestamp(unit, None) => cast(column, &DataType::Timestamp(*unit, Some("UTC".into()))),
        _ => Ok(column.clone()),
    })
}

/// Renames the columns to `names` and converts them for formats with types: times without a zone to UTC, views to plain texts and
/// bytes.
pub(super) fn columnar(batch: &RecordBatch, names: &SchemaRef) -> Result<RecordBatch> {
    map_columns(batch, names, |column| match column.data_type() {
        DataType::Timestamp(unit, None) => cast(column, &DataType::Timestamp(*unit, Some("UTC".into()))),
        DataType::Utf8View => cast(column, &DataType::Utf8),
        DataType::BinaryView => cast(column, &DataType::Binary),
        _ => Ok(column.clone()),
    })
}

/// Converts lists, structs and maps to JSON strings.
pub(super) fn nested_to_json(batch: &RecordBatch) -> Result<RecordBatch> {
    if !batch.columns().iter().any(|c| c.data_type().is_nested()) {
        return Ok(batch.clone());
    }
    map_columns(batch, batch.schema_ref(), |column| match column.data_type().is_nested() {
        true => json_text(column),
        false => Ok(column.clone()),
    })
}

fn map_columns(
    batch: &RecordBatch,
    names: &SchemaRef,
    convert: impl Fn(&ArrayRef) -> std::result::Result<ArrayRef, ArrowError>,
) -> Result<RecordBatch> {
    let failed =
        |e: ArrowError| Error::internal("a result cannot be converted for its output").with_source(e);
    let columns =
        batch.columns().iter().map(convert).collect::<std::result::Result<Vec<_>, _>>().map_err(failed)?;
    let fields = names.fields().iter().zip(&columns);
    let fields: Vec<Field> = fields.map(|(f, c)| Field::new(f.name(), c.data_type().clone(), true)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options).map_err(failed)
}

pub(crate) fn json_text(column: &ArrayRef) -> std::result::Result<ArrayRef, ArrowError> {
    let field: FieldRef = Arc::new(Field::new("value", column.data_type().clone(), true));
    let options = EncoderOptions::default().with_explicit_nulls(true);
    let mut encoder = make_encoder(&field, column.as_ref(), &options)?;
    let mut text = Vec::new();
    let mut out = StringBuilder::with_capacity(column.len(), 0);
    for row in 0..column.len() {
        if encoder.is_null(row) {
            out.append_null();
            continue;
        }
        text.clear();
        encoder.encode(row, &mut text);
        out.append_value(String::from_utf8_lossy(&text));
    }
    Ok(Arc::new(out.finish()))
}
