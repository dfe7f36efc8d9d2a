//! Writes of a call: one statement for each row, sent together where they are of one kind.

use mongodb::bson::{Bson, Document, doc};
use tidemill_connect::{StoreExpr, StoreUpdate, StoredRow, TypedValue, bson_of, is_missing};
use tidemill_types::{Error, Result, StreamSchema};

use super::condition::{Translation, equalities};

/// Statement that is written for a row.
#[derive(Debug, Clone)]
pub(super) enum RowWrite {
    /// Inserts a document.
    Insert(Document),
    /// Deletes all documents that match.
    Delete(Document),
    /// Updates all documents that match, by one statement of the command `update`.
    Update(Document),
    /// Updates all documents that match, or inserts a document if none matches.
    UpdateOrInsert(Document, Document),
}

/// Statements that one command can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StatementKind {
    Insert,
    Delete,
    Update,
    /// Alone: it depends on what the update finds.
    UpdateOrInsert,
}

impl RowWrite {
    /// Returns the statement that inserts a row.
    pub(super) fn insert(schema: &StreamSchema, row: &StoredRow) -> Result<Self> {
        Ok(Self::Insert(document(schema, row)?))
    }

    /// Returns the statement that updates what a condition finds, or else inserts a row.
    pub(super) fn update(
        schema: &StreamSchema,
        change: &StoreUpdate,
        given: &[TypedValue],
        inserted: Option<&StoredRow>,
    ) -> Result<Self> {
        let translation = Translation { schema, parameters: given };
        let filter = translation.filter(&change.condition)?;
        let update = translation.update(&change.set)?;
        let Some(row) = inserted else {
            return Ok(Self::Update(doc! { "q": filter, "u": update, "multi": true }));
        };
        let new = document(schema, row)?;
        match upsert(&translation, change, &new)? {
            Some(upsert) => Ok(Self::Update(upsert)),
            None => Ok(Self::UpdateOrInsert(doc! { "q": filter, "u": update, "multi": true }, new)),
        }
    }

    pub(super) fn kind(&self) -> StatementKind {
        match self {
            Self::Insert(_) => StatementKind::Insert,
            Self::Delete(_) => StatementKind::Delete,
            Self::Update(_) => StatementKind::Update,
            Self::UpdateOrInsert(..) => StatementKind::UpdateOrInsert,
        }
    }
}

/// Returns the upsert that does the same as an update or else an insert: the condition says what columns equal, and each
/// column is assigned what the inserted row has.
fn upsert(translation: &Translation<'_>, change: &StoreUpdate, new: &Document) -> Result<Option<Document>> {
    let Some(equal) = equalities(&change.condition) else { return Ok(None) };
    let name = |column: usize| translation.schema.fields.get(column).map_or("", |field| field.name.as_str());
    let mut filter = Document::new();
    for (column, parameter) in equal {
        let has_value = translation.parameters.get(parameter).is_some_and(|(_, value)| !is_missing(value));
        let value = translation.given(column, parameter)?;
        if !has_value || new.get(name(column)) != Some(&value) {
            return Ok(None);
        }
        filter.insert(name(column), value);
    }
    let mut assigned = Document::new();
    for (column, x) in &change.set {
        let StoreExpr::Parameter(parameter) = x else { return Ok(None) };
        let value = translation.given(*column, *parameter)?;
        if new.get(name(*column)) != Some(&value) {
            return Ok(None);
        }
        assigned.insert(name(*column), value);
    }
    let is_set = |name: &str| assigned.contains_key(name) || filter.contains_key(name);
    let rest: Document =
        new.iter().filter(|(name, _)| !is_set(name)).map(|(n, v)| (n.clone(), v.clone())).collect();
    let mut update = Document::new();
    if !assigned.is_empty() {
        update.insert("$set", assigned);
    }
    if !rest.is_empty() {
        update.insert("$setOnInsert", rest);
    }
    Ok(Some(doc! { "q": filter, "u": update, "multi": true, "upsert": true }))
}

fn document(schema: &StreamSchema, row: &StoredRow) -> Result<Document> {
    let mut document = Document::new();
    for (field, value) in schema.fields.iter().zip(row) {
        let value: Bson = bson_of(value, field.ty)
            .map_err(|e| Error::invalid(format!("the column `{}`: {e}", field.name)))?;
        document.insert(&field.name, value);
    }
    Ok(document)
}
