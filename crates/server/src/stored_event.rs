//! Events of a stream's table as JSON, with their places in the log.

use std::sync::Arc;

use arrow_array::RecordBatch;
use serde_json::{Map, Value as Json};
use tidemill_types::{StreamSchema, Value, column, event_json, row_value};

/// Partition, offset and row of an event.
pub(crate) type EventPlace = (u32, i64, i32);

/// Events of a stream.
pub(crate) struct StoredEvents(Arc<StreamSchema>);

impl StoredEvents {
    /// Creates the conversion for a stream.
    pub(crate) fn of(stream: Arc<StreamSchema>) -> Self {
        Self(stream)
    }

    /// Returns the name of the stream.
    pub(crate) fn stream(&self) -> &str {
        &self.0.name
    }

    /// Returns the event of a batch with the columns of the table; `None` without its place.
    pub(crate) fn of_batch(&self, batch: &RecordBatch, row: usize) -> Option<(EventPlace, Json)> {
        let value =
            |name: &str| batch.schema_ref().index_of(name).ok().map(|index| row_value(batch, index, row));
        let number = |name: &str| match value(name) {
            Some(Value::Int(n)) => Some(n),
            _ => None,
        };
        let at = place(number(column::PARTITION)?, number(column::OFFSET)?, number(column::ROW)?)?;
        let time = match value(column::TIME) {
            Some(Value::Time(time)) => Json::from(time.to_string()),
            _ => Json::Null,
        };
        Some((at, with_time(time, event_json(&self.0, batch, row))))
    }

    /// Returns the event of a row that SQL found; `None` without its place.
    pub(crate) fn of_json(&self, mut row: Map<String, Json>) -> Option<(EventPlace, Json)> {
        let number = |name: &str| row.get(name).and_then(Json::as_i64);
        let at = place(number(column::PARTITION)?, number(column::OFFSET)?, number(column::ROW)?)?;
        let time = row.remove(column::TIME).unwrap_or_default();
        let mut event = Map::new();
        for field in &self.0.fields {
            match row.remove(&field.name) {
                None | Some(Json::Null) => {}
                Some(value) => drop(event.insert(field.name.clone(), value)),
            }
        }
        if let Some(Json::String(extra)) = row.remove(column::EXTRA)
            && let Ok(fields) = serde_json::from_str::<Map<String, Json>>(&extra)
        {
            event.extend(fields);
        }
        Some((at, with_time(time, event)))
    }
}

fn place(partition: i64, offset: i64, row: i64) -> Option<EventPlace> {
    Some((partition.try_into().ok()?, offset, row.try_into().ok()?))
}

fn with_time(time: Json, event: Map<String, Json>) -> Json {
    let mut all = Map::new();
    all.insert(column::TIME.to_owned(), time);
    all.extend(event);
    Json::Object(all)
}
