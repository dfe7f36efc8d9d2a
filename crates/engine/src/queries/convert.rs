//! Events of the engine as events of queries, and back.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, RecordBatch, TimestampMicrosecondArray, new_null_array};
use arrow_schema::DataType;
use tidemill_flow::functions::json_text::to_json;
use tidemill_flow::{Batch, Column, Value, arrow};
use tidemill_types::decode::FieldValue;
use tidemill_types::{Error, FieldType, Result, StreamSchema, Timestamp};

use super::{InputMapping, OutputMapping};

/// The attributes of a unit's stream from a batch of the engine's.
pub fn input_columns(batch: &RecordBatch, input: &InputMapping) -> Result<Vec<Column>> {
    let column = |(field, ty): &(usize, FieldType)| match batch.columns().get(*field) {
        Some(array) => arrow::column(array.clone(), *ty),
        None => Err(Error::internal(format!("a batch without column {field}"))),
    };
    input.fields.iter().map(column).collect()
}

/// One row of columns.
pub fn single_row(columns: &[Column], row: usize) -> Vec<Column> {
    let one = |from: &Column| {
        let mut column = Column::new(from.ty());
        column.push_from(from, row);
        column
    };
    columns.iter().map(one).collect()
}

/// The event time of a row, milliseconds.
pub fn time_ms(time: Timestamp) -> i64 {
    time.0.div_euclid(1000)
}

/// The fields of an event that came out.
pub fn output_cells(
    schema: &Arc<StreamSchema>,
    output: &OutputMapping,
    events: &Batch,
    row: usize,
) -> Vec<FieldValue> {
    (0..schema.fields.len()).map(|field| output_cell(schema, output, events, row, field)).collect()
}

/// One field of an emitted event.
pub fn output_cell(
    schema: &StreamSchema,
    output: &OutputMapping,
    events: &Batch,
    row: usize,
    field: usize,
) -> FieldValue {
    match output.attributes[field] {
        Some(attribute) => cell(&events.columns[attribute].get(row), schema.fields[field].ty),
        None => FieldValue::Missing,
    }
}

/// The emitted events as a batch of `schema`; `None` if an attribute has another type than its field, so that the
/// events have to be converted cell by cell.
///
/// Errors: `LimitReached` if the strings of a column exceed 2 GiB.
pub fn output_batch(
    schema: &Arc<StreamSchema>,
    output: &OutputMapping,
    events: &Batch,
) -> Result<Option<RecordBatch>> {
    let rows = events.len();
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(schema.fields.len() + 2);
    for (field, attribute) in schema.fields.iter().zip(&output.attributes) {
        arrays.push(match attribute {
            None => new_null_array(&field.ty.arrow(), rows),
            Some(attribute) => {
                let column = &events.columns[*attribute];
                if column.ty() != field.ty && (column.ty(), field.ty) != (FieldType::Long, FieldType::Time) {
                    return Ok(None);
                }
                arrow::array(column.clone(), field.ty)?
            }
        });
    }
    let emitted = events.times.iter().map(|ms| ms.saturating_mul(1000));
    let declared = schema.time.and_then(|field| arrays[field].as_primitive_opt::<TimestampMicrosecondType>());
    let times: TimestampMicrosecondArray = match declared {
        Some(declared) => declared.iter().zip(emitted).map(|(own, emitted)| own.or(Some(emitted))).collect(),
        None => emitted.collect::<Vec<_>>().into(),
    };
    arrays.push(Arc::new(times.with_timezone("UTC")));
    arrays.push(new_null_array(&DataType::Utf8, rows));
    let batch = RecordBatch::try_new(schema.batch_schema(), arrays);
    batch.map(Some).map_err(|e| Error::internal("emitted events do not fit their stream").with_source(e))
}

fn cell(value: &Value, ty: FieldType) -> FieldValue {
    match (ty, value) {
        (_, Value::Null) => FieldValue::Missing,
        (FieldType::Object, value) => FieldValue::Text(to_json(value).to_string()),
        (FieldType::Time, Value::Long(ms)) => FieldValue::Time(Timestamp(ms.saturating_mul(1000))),
        (_, Value::Bool(b)) => FieldValue::Bool(*b),
        (_, Value::Int(n)) => FieldValue::Int(i64::from(*n)),
        (_, Value::Long(n)) => FieldValue::Int(*n),
        (_, Value::Float(n)) => FieldValue::Float(f64::from(*n)),
        (_, Value::Double(n)) => FieldValue::Float(*n),
        (_, Value::Str(s)) => FieldValue::Text(s.to_string()),
        (_, value @ Value::Object(_)) => FieldValue::Text(to_json(value).to_string()),
    }
}

/// A stored value as a cell of a field.
pub fn cell_of(value: &tidemill_types::Value<'_>, ty: FieldType) -> FieldValue {
    use tidemill_types::Value as Stored;
    match value {
        Stored::Missing | Stored::Null | Stored::Bson(_) => FieldValue::Missing,
        Stored::Bool(b) => FieldValue::Bool(*b),
        Stored::Int(n) if ty == FieldType::Time => FieldValue::Time(Timestamp(n.saturating_mul(1000))),
        Stored::Int(n) => FieldValue::Int(*n),
        Stored::Float(x) => FieldValue::Float(*x),
        Stored::Str(s) => FieldValue::Text(s.to_string()),
        Stored::Time(t) => FieldValue::Time(*t),
    }
}
