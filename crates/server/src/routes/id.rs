//! The `_id` of a document: interpretation of the id in a path, and the `_id` of new documents.

use bson::oid::ObjectId;
use bson::{Bson, Document};
use serde::Deserialize;
use tidemill_docs::DocBytes;
use tidemill_types::{Error, Result};
use utoipa::ToSchema;

use crate::Engine;
use crate::error::ApiError;

/// Type of an id in a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum IdType {
    /// As text.
    String,
    /// As a 64-bit integer.
    Int,
    /// As an ObjectId of 24 hexadecimal digits.
    ObjectId,
}

/// Returns the values that an id in a path may represent, at least one. Errors: `text` is not of the
/// requested type.
pub(crate) fn candidates(text: &str, id_type: Option<IdType>) -> Result<Vec<Bson>, ApiError> {
    let int = || text.parse::<i64>().ok().map(Bson::Int64);
    let object_id = || ObjectId::parse_str(text).ok().map(Bson::ObjectId);
    let wrong = |expected: &str| ApiError::invalid(format!("id `{text}`: expected {expected}"));
    match id_type {
        Some(IdType::String) => Ok(vec![text.into()]),
        Some(IdType::Int) => int().map(|id| vec![id]).ok_or_else(|| wrong("a 64-bit integer")),
        Some(IdType::ObjectId) => {
            object_id().map(|id| vec![id]).ok_or_else(|| wrong("24 hexadecimal digits"))
        }
        None => Ok([Some(text.into()), int(), object_id()].into_iter().flatten().collect()),
    }
}

/// Returns the first document found under one of `ids`, with that id.
pub(crate) fn existing(
    engine: &Engine,
    collection: &str,
    ids: Vec<Bson>,
) -> Result<Option<(Bson, DocBytes)>> {
    for id in ids {
        if let Some(doc) = engine.get_document(collection, &id)? {
            return Ok(Some((id, doc)));
        }
    }
    Ok(None)
}

/// Returns a filter for the document with that `_id`.
pub(crate) fn by_id(id: Bson) -> Result<DocBytes> {
    let mut filter = Document::new();
    filter.insert("_id", id);
    doc_bytes(&filter)
}

/// Returns the error for a document that does not exist.
pub(crate) fn missing(collection: &str, id: &str) -> Error {
    Error::not_found(format!("collection `{collection}` has no document with the _id `{id}`"))
}

/// Returns the `_id` for a document that does not exist yet: its own `_id` or key field, which must match one
/// of `ids`, else the first of `ids`.
pub(crate) fn new_id(engine: &Engine, collection: &str, document: &Document, ids: &[Bson]) -> Result<Bson> {
    let key = engine.entity_key(collection);
    let own = document.get("_id").or_else(|| key.and_then(|key| document.get(key)));
    match own {
        None => Ok(ids[0].clone()),
        Some(own) => ids.iter().find(|id| same_id(id, own)).cloned().ok_or_else(|| {
            Error::invalid(format!("the document's id is {own}: expected the one in the path, or none"))
        }),
    }
}

fn same_id(a: &Bson, b: &Bson) -> bool {
    let int = |v: &Bson| match v {
        Bson::Int32(n) => Some(i64::from(*n)),
        Bson::Int64(n) => Some(*n),
        _ => None,
    };
    a == b || int(a).is_some_and(|n| int(b) == Some(n))
}

/// Encodes a document as BSON. Errors: it cannot be encoded, is too large or nested too deeply.
pub(crate) fn doc_bytes(document: &Document) -> Result<DocBytes> {
    let bytes = document
        .to_vec()
        .map_err(|e| Error::invalid("the document cannot be written as BSON").with_source(e))?;
    Ok(tidemill_docs::validate(bytes)?)
}
