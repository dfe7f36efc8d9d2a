//! Events of the engine as events of queries, and back.

use std::sync::Arc;

use arrow_array::RecordBatch;
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
    let fields = schema.fields.iter().zip(&output.attributes);
    let cell = |(field, attribute): (&tidemill_types::Field, &Option<usize>)| match attribute {
        Some(attribute) => cell(&events.columns[*attribute].get(row), field.ty),
        None => FieldValue::Missing,
    };
    fields.map(cell).collect()
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
