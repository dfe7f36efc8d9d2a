//! Rows of tables as values.

use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{Result, StreamSchema, Timestamp, Value, row_value};

/// Row of a table: a value for each column.
pub type StoredRow = Vec<Value<'static>>;

/// Returns the values of a row.
pub fn values(batch: &RecordBatch, row: usize) -> StoredRow {
    let value = |column| row_value(batch, column, row).into_scalar().unwrap_or(Value::Missing);
    (0..batch.num_columns()).map(value).collect()
}

/// Returns the values of all rows.
pub fn all_values(batch: &RecordBatch) -> Vec<StoredRow> {
    (0..batch.num_rows()).map(|row| values(batch, row)).collect()
}

/// Returns rows as a batch with the columns of a table.
///
/// Errors: a value does not fit its column.
pub fn batch_of(schema: &Arc<StreamSchema>, rows: &[StoredRow]) -> Result<RecordBatch> {
    let mut batch = BatchBuilder::new(schema.clone());
    for row in rows {
        let cells: Vec<FieldValue> = row.iter().map(field_value).collect();
        batch.push_values(&cells, Timestamp(0))?;
    }
    Ok(batch.finish())
}

fn field_value(value: &Value<'_>) -> FieldValue {
    match value {
        Value::Bool(b) => FieldValue::Bool(*b),
        Value::Int(n) => FieldValue::Int(*n),
        Value::Float(x) => FieldValue::Float(*x),
        Value::Str(text) => FieldValue::Text(text.to_string()),
        Value::Time(time) => FieldValue::Time(*time),
        Value::Missing | Value::Null | Value::Bson(_) => FieldValue::Missing,
    }
}
