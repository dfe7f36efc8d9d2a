//! Conversion of events and values to JSON.

use arrow_array::RecordBatch;
use serde_json::{Map, Value as Json};

use crate::{FieldType, StreamSchema, Value, column, row_value};

/// Converts the event in `row` of `batch`, whose first columns are `stream`'s fields: all fields as they were
/// sent, declared ones first, without missing ones, times as RFC 3339.
pub fn event_json(stream: &StreamSchema, batch: &RecordBatch, row: usize) -> Map<String, Json> {
    let mut event = Map::new();
    for (index, field) in stream.fields.iter().enumerate() {
        let value = row_value(batch, index, row);
        let json = match (field.ty, &value) {
            (_, Value::Missing) => continue,
            (FieldType::Object, Value::Str(text)) => {
                serde_json::from_str(text).unwrap_or_else(|_| Json::from(text.as_ref()))
            }
            _ => value_json(&value),
        };
        event.insert(field.name.clone(), json);
    }
    let extra = batch.schema_ref().index_of(column::EXTRA).ok().map(|i| row_value(batch, i, row));
    if let Some(Value::Str(text)) = extra
        && let Ok(fields) = serde_json::from_str::<Map<String, Json>>(&text)
    {
        event.extend(fields);
    }
    event
}

/// Converts a value: times as RFC 3339, documents as relaxed extended JSON, missing values as null.
pub fn value_json(value: &Value<'_>) -> Json {
    match value {
        Value::Missing | Value::Null => Json::Null,
        Value::Bool(b) => Json::from(*b),
        Value::Int(n) => Json::from(*n),
        Value::Float(x) => Json::from(*x),
        Value::Str(s) => Json::from(s.as_ref()),
        Value::Time(t) => Json::from(t.to_string()),
        Value::Bson(v) => bson::Bson::try_from(*v).map_or(Json::Null, bson::Bson::into_relaxed_extjson),
    }
}
