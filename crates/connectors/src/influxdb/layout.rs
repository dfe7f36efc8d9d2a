//! How rows are points: which columns are tags, which is the time, and the statements that name them.

use std::sync::Arc;

use serde_json::Value as Json;
use tidemill_connect::{OptionError, StoreContext, StoredRow, is_missing};
use tidemill_types::{Error, FieldType, Result, StreamSchema, Value};

use super::text_of;

/// Column that has the time of a point.
const TIME: &str = "time";
/// Greatest time that InfluxDB has, in milliseconds.
pub(super) const TIME_MS_MAX: i64 = 9_223_372_036_854;

/// Role of a column in a point.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    Tag,
    Time,
    Field,
}

/// Points of a table.
pub(super) struct Layout {
    pub schema: Arc<StreamSchema>,
    pub measurement: String,
    pub policy: String,
    parts: Vec<Part>,
}

impl Layout {
    /// Determines the roles of the columns.
    ///
    /// Errors: the columns lack a time or are nothing but tags, or the key is one that a point does not have.
    pub(super) fn new(measurement: &str, policy: &str, context: &StoreContext) -> Result<Self, OptionError> {
        let wrong = |message: String| Err(OptionError::connector(message));
        let is_whole = |ty: FieldType| matches!(ty, FieldType::Int | FieldType::Long);
        let mut parts = vec![];
        for (at, field) in context.schema.fields.iter().enumerate() {
            parts.push(match (field.name == TIME, context.indexes.contains(&at)) {
                (true, _) if is_whole(field.ty) => Part::Time,
                (true, _) => return wrong("the column `time` has milliseconds: define it as `time long`".into()),
                (_, true) if field.ty == FieldType::String || field.ty == FieldType::Bool || is_whole(field.ty) => Part::Tag,
                (_, true) => {
                    let name = &field.name;
                    return wrong(format!(
                        "`{name}` cannot have an index: it would be a tag, which is a text, and equal numbers may have \
                         different texts"
                    ));
                }
                _ => Part::Field,
            });
        }
        if !parts.contains(&Part::Time) {
            return wrong(
                "a table in InfluxDB needs a column `time long`, the time of its points in milliseconds"
                    .into(),
            );
        }
        if !parts.contains(&Part::Field) {
            return wrong(
                "a table in InfluxDB needs a column without an index: points have at least one field".into(),
            );
        }
        let identity = |at: &usize| parts.get(*at) != Some(&Part::Field);
        let names = (0..parts.len()).filter(identity).count();
        if !context.primary_key.is_empty()
            && (context.primary_key.len() != names || !context.primary_key.iter().all(identity))
        {
            return wrong(
                "points are told apart by their tags and their time: `@primaryKey` must name the columns with an index and \
                 `time`, or be left out"
                    .into(),
            );
        }
        Ok(Self {
            schema: context.schema.clone(),
            measurement: measurement.to_owned(),
            policy: policy.to_owned(),
            parts,
        })
    }

    pub(super) fn name(&self, column: usize) -> &str {
        self.schema.fields.get(column).map_or("", |field| field.name.as_str())
    }

    pub(super) fn ty(&self, column: usize) -> FieldType {
        self.schema.fields.get(column).map_or(FieldType::String, |field| field.ty)
    }

    pub(super) fn types(&self) -> Vec<FieldType> {
        self.schema.fields.iter().map(|field| field.ty).collect()
    }

    pub(super) fn part(&self, column: usize) -> Part {
        self.parts.get(column).copied().unwrap_or(Part::Field)
    }

    /// Returns the columns that are of this kind.
    pub(super) fn columns(&self, part: Part) -> impl Iterator<Item = usize> {
        self.parts.iter().enumerate().filter(move |(_, of)| **of == part).map(|(at, _)| at)
    }

    /// Returns the statement that selects points.
    pub(super) fn select(&self, filter: &str, limit: Option<usize>) -> String {
        let columns: Vec<String> = (0..self.parts.len())
            .filter(|at| self.part(*at) != Part::Time)
            .map(|at| identifier(self.name(at)))
            .collect();
        let limit = limit.map_or(String::new(), |limit| format!(" LIMIT {limit}"));
        let from = format!("{}.{}", identifier(&self.policy), identifier(&self.measurement));
        format!("SELECT {} FROM {from}{}{limit}", columns.join(", "), where_of(filter))
    }

    /// Returns the statement that deletes points.
    pub(super) fn delete(&self, filter: &str) -> String {
        format!("DELETE FROM {}{}", identifier(&self.measurement), where_of(filter))
    }

    /// Returns the condition that only the point of a row satisfies.
    pub(super) fn identity(&self, row: &StoredRow) -> String {
        let tag = |at: usize| {
            let value = row.get(at).filter(|value| !is_missing(value)).map(text_of).unwrap_or_default();
            format!("{} = {}", identifier(self.name(at)), literal(&value))
        };
        let time = self.columns(Part::Time).filter_map(|at| match row.get(at) {
            Some(Value::Int(ms)) => Some(format!("time = {ms}ms")),
            _ => None,
        });
        self.columns(Part::Tag).map(tag).chain(time).collect::<Vec<_>>().join(" AND ")
    }

    /// Returns whether two rows are the same point.
    pub(super) fn is_same_point(&self, one: &StoredRow, other: &StoredRow) -> bool {
        self.identity(one) == self.identity(other)
    }

    /// Returns the rows of an answer.
    ///
    /// Errors: a value does not fit its column.
    pub(super) fn rows(&self, answer: &Json) -> Result<Vec<StoredRow>> {
        let no_series = vec![];
        let series = answer.pointer("/results/0/series").and_then(Json::as_array).unwrap_or(&no_series);
        let mut rows = vec![];
        for one in series {
            let names: Vec<&str> =
                one["columns"].as_array().into_iter().flatten().filter_map(Json::as_str).collect();
            let places: Vec<Option<usize>> = (0..self.parts.len())
                .map(|at| names.iter().position(|name| *name == self.name(at)))
                .collect();
            for cells in one["values"].as_array().into_iter().flatten().filter_map(Json::as_array) {
                let cell = |(column, place): (usize, &Option<usize>)| {
                    let json = place.and_then(|place| cells.get(place)).unwrap_or(&Json::Null);
                    self.value(column, json)
                };
                rows.push(places.iter().enumerate().map(cell).collect::<Result<StoredRow>>()?);
            }
        }
        Ok(rows)
    }

    fn value(&self, column: usize, json: &Json) -> Result<Value<'static>> {
        let wrong = || {
            let (name, ty) = (self.name(column), self.ty(column).name());
            Error::invalid(format!("the column `{name}` is {ty}; InfluxDB has `{json}`"))
        };
        let is_tag = self.part(column) == Part::Tag;
        let found = match (json, self.ty(column)) {
            (Json::Null, _) => return Ok(Value::Missing),
            // a tag that a point does not have
            (Json::String(text), _) if is_tag && text.is_empty() => return Ok(Value::Missing),
            (Json::String(text), FieldType::String) => Some(Value::Str(text.clone().into())),
            (Json::String(text), FieldType::Int | FieldType::Long) if is_tag => {
                text.parse().ok().map(Value::Int)
            }
            (Json::String(text), FieldType::Bool) if is_tag => text.parse().ok().map(Value::Bool),
            (Json::Bool(flag), FieldType::Bool) => Some(Value::Bool(*flag)),
            (Json::Number(number), FieldType::Int | FieldType::Long) => number.as_i64().map(Value::Int),
            (Json::Number(number), FieldType::Float | FieldType::Double) => number.as_f64().map(Value::Float),
            _ => None,
        };
        found.ok_or_else(wrong)
    }
}

fn where_of(filter: &str) -> String {
    if filter.is_empty() { String::new() } else { format!(" WHERE {filter}") }
}

/// Returns a name as InfluxQL writes it.
pub(super) fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

/// Returns a text as InfluxQL writes it.
pub(super) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'").replace('\n', "\\n"))
}
