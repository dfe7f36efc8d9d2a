//! Measurements: streams as clients of InfluxDB see them.

use tidemill_types::{FieldType, StreamSchema};

use crate::value::Kind;

/// A stream as a measurement.
#[derive(Debug, Clone, PartialEq)]
pub struct Measurement {
    /// Name of the stream.
    pub name: String,
    /// Tags and fields, sorted by name.
    pub columns: Vec<Column>,
}

/// Tag or field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Name.
    pub name: String,
    /// Type for clients.
    pub kind: Kind,
    /// Type in the table.
    pub stored: FieldType,
}

impl Measurement {
    /// Returns the measurement of a stream: texts of its key and its id are tags, the field with the time is `time`.
    pub fn of(schema: &StreamSchema) -> Self {
        let is_tag = |index| schema.key == Some(index) || schema.id.contains(&index);
        let mut columns: Vec<Column> = schema
            .fields
            .iter()
            .enumerate()
            .filter(|(index, _)| schema.time != Some(*index))
            .map(|(index, field)| Column {
                name: field.name.clone(),
                kind: match field.ty {
                    FieldType::String if is_tag(index) => Kind::Tag,
                    FieldType::Bool => Kind::Boolean,
                    FieldType::Int | FieldType::Long => Kind::Integer,
                    FieldType::Float | FieldType::Double => Kind::Float,
                    FieldType::String | FieldType::Time | FieldType::Object => Kind::Text,
                },
                stored: field.ty,
            })
            .collect();
        columns.sort_by(|a, b| a.name.cmp(&b.name));
        Self { name: schema.name.clone(), columns }
    }

    /// Returns the index of a column.
    pub fn column(&self, name: &str) -> Option<usize> {
        self.columns.binary_search_by(|column| column.name.as_str().cmp(name)).ok()
    }

    /// Returns the indexes of its tags.
    pub fn tags(&self) -> impl Iterator<Item = usize> {
        self.columns.iter().enumerate().filter(|(_, column)| column.kind == Kind::Tag).map(|(index, _)| index)
    }
}
