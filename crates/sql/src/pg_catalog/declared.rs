//! Declarations of streams.

use arrow::datatypes::SchemaRef;
use tidemill_types::column;

use crate::tables::Tables;

/// Declaration of a stream.
pub(super) struct Declared {
    pub columns: SchemaRef,
    key: Option<String>,
    pub id: Vec<String>,
    time: Option<String>,
}

impl Declared {
    /// Returns the declaration of a stream; `None` for an unknown one.
    pub fn of(tables: &dyn Tables, name: &str) -> Option<Self> {
        if let Some(table) = tables.stored(name) {
            let stream = table.stream();
            let field = |at: &usize| stream.fields.get(*at).map(|field| field.name.clone());
            return Some(Self {
                columns: table.schema().clone(),
                key: stream.key.as_ref().and_then(field),
                id: stream.id.iter().filter_map(field).collect(),
                time: stream.time.as_ref().and_then(field),
            });
        }
        let snapshot = tables.stream(name).ok().flatten()?;
        let field = |at: &usize| snapshot.schema.fields().get(*at).map(|field| field.name().clone());
        Some(Self {
            key: snapshot.key.as_ref().and_then(field),
            id: snapshot.id.iter().filter_map(field).collect(),
            time: snapshot.time_field.as_ref().and_then(field),
            columns: snapshot.schema.clone(),
        })
    }

    /// Returns the comment of the table.
    pub fn comment(&self) -> String {
        let mut parts = vec!["stream".to_owned()];
        parts.extend((!self.id.is_empty()).then(|| format!("id {}", self.id.join(", "))));
        parts.extend(self.key.as_ref().map(|key| format!("key {key}")));
        parts.extend(self.time.as_ref().map(|time| format!("time {time}")));
        parts.join("; ")
    }

    /// Returns the comments of columns, by name.
    pub fn column_comments(&self) -> Vec<(String, &'static str)> {
        let mut comments: Vec<(String, &'static str)> = vec![
            (column::TIME.to_owned(), "event time"),
            (column::EXTRA.to_owned(), "fields that the stream does not declare, as a JSON object"),
            (column::RECEIVED.to_owned(), "time at which the record was appended to the log"),
            (column::PARTITION.to_owned(), "partition of the log"),
            (column::OFFSET.to_owned(), "offset of the record in its partition"),
            (column::ROW.to_owned(), "row in the record"),
        ];
        for name in &self.id {
            let is_key = self.key.as_ref() == Some(name);
            let both = if is_key { "id of the event, and key of its partition" } else { "id of the event" };
            comments.push((name.clone(), both));
        }
        if let Some(key) = self.key.as_ref().filter(|key| !self.id.contains(key)) {
            comments.push((key.clone(), "key: its values select the partition"));
        }
        if let Some(time) =
            self.time.as_ref().filter(|time| !self.id.contains(time) && self.key.as_ref() != Some(time))
        {
            comments.push((time.clone(), "event time as it was sent"));
        }
        comments
    }
}
