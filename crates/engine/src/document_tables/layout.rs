//! Rows as documents, and documents as rows.
//!
//! Each column is a field with its name. The primary key is also the `_id`: the value of its column, or a document with
//! the values of its columns in their order. A row has the key that the `_id` says. What a column cannot have, such as a
//! text in a number, reads as null; fields without a column are kept and not seen.

use std::sync::Arc;

use bson::raw::RawDocument;
use bson::{Bson, Document};
use tidemill_connect::{StoreContext, StoredRow, bson_of, is_missing, value_of_bson};
use tidemill_types::{FieldType, StreamSchema, Value};

/// Greatest integer up to which doubles have all.
pub const WHOLE_MAX: i64 = 1 << 53;

/// Collection, columns and key of a table.
#[derive(Debug)]
pub struct Layout {
    /// Collection of the documents.
    pub collection: String,
    /// Columns.
    pub schema: Arc<StreamSchema>,
    /// Types of the columns.
    pub types: Vec<FieldType>,
    /// Columns of the primary key; empty without one.
    pub key: Vec<usize>,
}

impl Layout {
    pub fn new(collection: String, context: &StoreContext) -> Self {
        let types = context.schema.fields.iter().map(|field| field.ty).collect();
        Self { collection, schema: context.schema.clone(), types, key: context.primary_key.clone() }
    }

    /// Returns the name of a column.
    pub fn name(&self, column: usize) -> &str {
        self.schema.fields.get(column).map_or("", |field| field.name.as_str())
    }

    /// Returns where documents have the value of a column.
    pub fn path(&self, column: usize) -> String {
        match self.key.as_slice() {
            [only] if *only == column => "_id".to_owned(),
            several if several.contains(&column) => format!("_id.{}", self.name(column)),
            _ => self.name(column).to_owned(),
        }
    }

    /// Returns the row of a document.
    pub fn row(&self, document: &RawDocument) -> StoredRow {
        let id = document.get("_id").ok().flatten();
        let value = |column: usize| {
            let name = self.name(column);
            match self.key.as_slice() {
                [only] if *only == column => id,
                several if several.contains(&column) => {
                    id.and_then(|id| id.as_document()?.get(name).ok().flatten())
                }
                _ => document.get(name).ok().flatten(),
            }
        };
        let cell = |(column, ty): (usize, &FieldType)| {
            value(column).map_or(Value::Missing, |value| value_of_bson(value, *ty).unwrap_or(Value::Missing))
        };
        self.types.iter().enumerate().map(cell).collect()
    }

    /// Returns the `_id` of a row; `None` if the table has no primary key.
    ///
    /// Errors: a column of the key has no value, or one that BSON cannot represent.
    pub fn id(&self, row: &StoredRow) -> Result<Option<Bson>, String> {
        let of = |column: usize| match row.get(column) {
            Some(value) if !is_missing(value) => self.bson(column, value),
            _ => Err(format!("the column `{}` of the primary key has no value", self.name(column))),
        };
        match self.key.as_slice() {
            [] => Ok(None),
            [only] => of(*only).map(Some),
            several => {
                let parts = several.iter().map(|column| Ok((self.name(*column).to_owned(), of(*column)?)));
                Ok(Some(Bson::Document(parts.collect::<Result<Document, String>>()?)))
            }
        }
    }

    /// Returns the document of a row with this `_id`.
    ///
    /// Errors: a value that BSON cannot represent.
    pub fn document(&self, id: Bson, row: &StoredRow) -> Result<Document, String> {
        let mut document = Document::new();
        document.insert("_id", id);
        for (column, value) in row.iter().enumerate().take(self.types.len()) {
            document.insert(self.name(column), self.bson(column, value)?);
        }
        Ok(document)
    }

    /// Returns the value of a column as documents have it.
    ///
    /// Errors: an object that is not JSON.
    pub fn bson(&self, column: usize, value: &Value<'_>) -> Result<Bson, String> {
        let ty = self.types.get(column).copied().unwrap_or(FieldType::String);
        bson_of(value, ty).map_err(|e| format!("the column `{}`: {e}", self.name(column)))
    }
}
