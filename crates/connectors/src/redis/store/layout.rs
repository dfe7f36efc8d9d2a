//! How a table is laid out in keys, as Siddhi's store does it.
//!
//! A row is the hash `TABLE:KEY` with a field for each column that has a value; several columns of a primary key are
//! joined by `:`. Without a primary key, `KEY` is a random id. Each value of a column with an index has the set
//! `TABLE:COLUMN:VALUE` with the keys of its rows.

use std::collections::HashMap;
use std::sync::Arc;

use tidemill_connect::{StoreContext, StoredRow, TypedValue, is_missing, write_value};
use tidemill_types::{Error, FieldType, Result, StreamSchema, Timestamp, Value};

/// Keys and fields of a table.
pub(super) struct Layout {
    /// Name of the table in Redis.
    pub table: String,
    pub schema: Arc<StreamSchema>,
    pub types: Vec<FieldType>,
    pub primary_key: Vec<usize>,
    pub indexes: Vec<usize>,
}

impl Layout {
    pub(super) fn new(table: String, context: &StoreContext) -> Self {
        Self {
            table,
            schema: context.schema.clone(),
            types: context.schema.fields.iter().map(|field| field.ty).collect(),
            primary_key: context.primary_key.clone(),
            indexes: context.indexes.clone(),
        }
    }

    /// Returns the name of a column.
    pub(super) fn column(&self, column: usize) -> &str {
        self.schema.fields.get(column).map_or("", |field| field.name.as_str())
    }

    /// Returns the key of a row; a new one in a table without a primary key.
    ///
    /// Errors: why it has none.
    pub(super) fn key_of(&self, row: &[Value<'static>]) -> Result<String, String> {
        if self.primary_key.is_empty() {
            return Ok(format!("{}:{}", self.table, uuid::Uuid::new_v4()));
        }
        let mut key = self.table.clone();
        for column in &self.primary_key {
            let value = row.get(*column).filter(|value| !is_missing(value));
            let value = value.ok_or_else(|| {
                format!("the column `{}` of the primary key has no value", self.column(*column))
            })?;
            self.push_key(&mut key, *column, value);
        }
        Ok(key)
    }

    fn push_key(&self, key: &mut String, column: usize, value: &Value<'static>) {
        let text = self.text(column, value);
        key.push(':');
        match self.primary_key.len() {
            1 => key.push_str(&text),
            // the parts stay apart
            _ => key.push_str(&text.replace('\\', "\\\\").replace(':', "\\:")),
        }
    }

    /// Returns the key of the row whose primary key has these values; `None` if no row can have it.
    pub(super) fn key_with(&self, values: &[TypedValue]) -> Option<String> {
        let mut key = self.table.clone();
        for (column, value) in self.primary_key.iter().zip(values) {
            self.push_key(&mut key, *column, &self.as_column(*column, value)?);
        }
        Some(key)
    }

    /// Returns the key of the rows whose column has this value; `None` if no row can have it.
    pub(super) fn index_with(&self, column: usize, value: &TypedValue) -> Option<String> {
        Some(self.index_key(column, &self.as_column(column, value)?))
    }

    /// Returns the keys of the sets in which a row is.
    pub(super) fn index_keys(&self, row: &[Value<'static>]) -> Vec<String> {
        let of = |column: &usize| {
            let value = row.get(*column).filter(|value| !is_missing(value))?;
            Some(self.index_key(*column, value))
        };
        self.indexes.iter().filter_map(of).collect()
    }

    fn index_key(&self, column: usize, value: &Value<'static>) -> String {
        format!("{}:{}:{}", self.table, self.column(column), self.text(column, value))
    }

    /// Returns a value as one of a column; `None` if a row cannot have it there.
    pub(super) fn as_column(&self, column: usize, (_, value): &TypedValue) -> Option<Value<'static>> {
        Some(match (self.types.get(column)?, value) {
            (FieldType::Int, Value::Int(n)) => Value::Int(i64::from(i32::try_from(*n).ok()?)),
            (FieldType::Long, Value::Int(n)) => Value::Int(*n),
            (ty @ (FieldType::Int | FieldType::Long), Value::Float(x)) => {
                let max = if *ty == FieldType::Int { f64::from(i32::MAX) } else { 9e18 };
                (x.fract() == 0.0 && x.abs() <= max).then_some(Value::Int(*x as i64))?
            }
            (FieldType::Float | FieldType::Double, Value::Int(n)) => Value::Float(*n as f64),
            (FieldType::Float, Value::Float(x)) => Value::Float(f64::from(*x as f32)),
            (FieldType::Double, Value::Float(x)) => Value::Float(*x),
            (FieldType::Bool, Value::Bool(b)) => Value::Bool(*b),
            (FieldType::String, Value::Str(text)) => Value::Str(text.clone()),
            (FieldType::Time, Value::Time(time)) => Value::Time(*time),
            _ => return None,
        })
    }

    /// Returns a value as it is written in keys and fields.
    pub(super) fn text(&self, column: usize, value: &Value<'static>) -> String {
        let mut text = String::new();
        match (self.types.get(column), value) {
            // the shortest text of the narrow number, as Java writes it
            (Some(FieldType::Float), Value::Float(x)) => text = format!("{:?}", *x as f32),
            _ => write_value(value, &mut text),
        }
        text
    }

    /// Returns the fields of a row that have values.
    pub(super) fn fields(&self, row: &[Value<'static>]) -> Vec<(&str, String)> {
        let values = row.iter().enumerate().filter(|(_, value)| !is_missing(value));
        values.map(|(column, value)| (self.column(column), self.text(column, value))).collect()
    }

    /// Returns the row in a hash, or `None` if the hash is empty.
    ///
    /// Errors: a field has no value of its column's type.
    pub(super) fn row(&self, key: &str, fields: &HashMap<String, Vec<u8>>) -> Result<Option<StoredRow>> {
        if fields.is_empty() {
            return Ok(None);
        }
        let of = |column: usize| {
            let Some(bytes) = fields.get(self.column(column)) else { return Ok(Value::Missing) };
            let ty = self.types.get(column).copied().unwrap_or(FieldType::String);
            let text = String::from_utf8_lossy(bytes);
            parse(ty, &text).ok_or_else(|| {
                let shown: String = text.chars().take(40).collect();
                Error::invalid(format!(
                    "the hash `{key}` in Redis has `{shown}` in the field `{}`; expected a value of type {}",
                    self.column(column),
                    ty.name()
                ))
            })
        };
        (0..self.types.len()).map(of).collect::<Result<StoredRow>>().map(Some)
    }

    /// Returns whether a row may have this key, which begins like those of the table.
    pub(super) fn is_key_of(&self, key: &str, row: &[Value<'static>]) -> bool {
        match self.primary_key.is_empty() {
            true => key.get(self.table.len() + 1..).is_some_and(|id| !id.contains(':')),
            false => self.key_of(row).is_ok_and(|own| own == key),
        }
    }

    /// Returns the pattern that all keys of the table match, and some of other tables may.
    pub(super) fn pattern(&self) -> String {
        let mut pattern = String::new();
        for c in self.table.chars() {
            if matches!(c, '*' | '?' | '[' | ']' | '\\' | '^') {
                pattern.push('\\');
            }
            pattern.push(c);
        }
        pattern + ":*"
    }
}

fn parse(ty: FieldType, text: &str) -> Option<Value<'static>> {
    if text.is_empty() && ty != FieldType::String {
        return Some(Value::Missing);
    }
    Some(match ty {
        FieldType::Bool => Value::Bool(text.to_ascii_lowercase().parse().ok()?),
        FieldType::Int => Value::Int(i64::from(text.parse::<i32>().ok()?)),
        FieldType::Long => Value::Int(text.parse().ok()?),
        FieldType::Float => Value::Float(f64::from(text.parse::<f32>().ok()?)),
        FieldType::Double => Value::Float(text.parse().ok()?),
        FieldType::String | FieldType::Object => Value::Str(text.to_owned().into()),
        FieldType::Time => Value::Time(Timestamp::parse(text).ok()?),
    })
}
