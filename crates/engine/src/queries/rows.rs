//! Events of the engine as events of queries, and back.

use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_flow::functions::json_text::to_json;
use tidemill_flow::{Batch, Column, Value, arrow};
use tidemill_types::decode::Cell;
use tidemill_types::{Error, FieldType, Result, StreamSchema, Timestamp};

use super::{Input, Output};

/// The attributes of a unit's stream from a batch of the engine's.
pub fn columns(batch: &RecordBatch, input: &Input) -> Result<Vec<Column>> {
    let column = |(field, ty): &(usize, FieldType)| match batch.columns().get(*field) {
        Some(array) => arrow::column(array.clone(), *ty),
        None => Err(Error::internal(format!("a batch without column {field}"))),
    };
    input.fields.iter().map(column).collect()
}

/// One row of columns.
pub fn row(columns: &[Column], row: usize) -> Vec<Column> {
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
pub fn cells(schema: &Arc<StreamSchema>, output: &Output, events: &Batch, row: usize) -> Vec<Cell> {
    let fields = schema.fields.iter().zip(&output.attributes);
    let cell = |(field, attribute): (&tidemill_types::Field, &Option<usize>)| match attribute {
        Some(attribute) => cell(&events.columns[*attribute].get(row), field.ty),
        None => Cell::Missing,
    };
    fields.map(cell).collect()
}

fn cell(value: &Value, ty: FieldType) -> Cell {
    match (ty, value) {
        (_, Value::Null) => Cell::Missing,
        (FieldType::Object, value) => Cell::Text(to_json(value).to_string()),
        (FieldType::Time, Value::Long(ms)) => Cell::Time(Timestamp(ms.saturating_mul(1000))),
        (_, Value::Bool(b)) => Cell::Bool(*b),
        (_, Value::Int(n)) => Cell::Int(i64::from(*n)),
        (_, Value::Long(n)) => Cell::Int(*n),
        (_, Value::Float(n)) => Cell::Float(f64::from(*n)),
        (_, Value::Double(n)) => Cell::Float(*n),
        (_, Value::Str(s)) => Cell::Text(s.to_string()),
        (_, value @ Value::Object(_)) => Cell::Text(to_json(value).to_string()),
    }
}

/// A stored value as a cell of a field.
pub fn cell_of(value: &tidemill_types::Value<'_>, ty: FieldType) -> Cell {
    use tidemill_types::Value as Stored;
    match value {
        Stored::Missing | Stored::Null | Stored::Bson(_) => Cell::Missing,
        Stored::Bool(b) => Cell::Bool(*b),
        Stored::Int(n) if ty == FieldType::Time => Cell::Time(Timestamp(n.saturating_mul(1000))),
        Stored::Int(n) => Cell::Int(*n),
        Stored::Float(x) => Cell::Float(*x),
        Stored::Str(s) => Cell::Text(s.to_string()),
        Stored::Time(t) => Cell::Time(*t),
    }
}
