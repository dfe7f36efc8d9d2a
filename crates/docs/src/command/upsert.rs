//! Upserts: the document that a command inserts if it finds none.

use bson::oid::ObjectId;
use tidemill_types::Timestamp;

use super::{CommandOutcome, DocumentCommand, DocumentError, Modification, document};
use crate::DocBytes;
use crate::collection::{Collection, with_id_first, with_identity, with_some_id};
use crate::error::{DocsError, Result};
use crate::filter::Filter;
use crate::update::{Update, UpdateContext};
use crate::values::raw::{OwnedRawValue, close_document, field, put_element};

impl DocumentCommand {
    /// Returns the document that the command inserts if it finds none; `None` if it would insert none. `now` is the time of
    /// its record, `key` the field whose value is the `_id` if the collection is an entity.
    ///
    /// Errors: the filter or the update is wrong, or they do not make a document.
    pub fn upserted(&self, now: Timestamp, key: Option<&str>) -> Result<Option<DocBytes>> {
        let updated = |filter: &DocBytes, update: &DocBytes, id: Option<ObjectId>| {
            let filter = Filter::parse(document("filter", filter)?)?;
            let update = Update::parse(document("update", update)?, now)?;
            let base = updated_from(&filter, &update, id, key)?;
            let mut made = Vec::new();
            update.apply_bytes(&base, UpdateContext::insert(now), &mut made)?;
            Ok(Some(with_some_id(&made, key, id)?.into_owned().into()))
        };
        let replaced = |filter: &DocBytes, doc: &DocBytes, id: Option<ObjectId>| {
            document("replacement", doc)?;
            let made = replacement(&Filter::parse(document("filter", filter)?)?, doc, id, key)?;
            Ok(Some(key.map_or(made.clone(), |key| with_identity(&made, key).into_owned().into())))
        };
        match self {
            Self::Update { filter, update, upsert: true, upsert_id, .. } => {
                updated(filter, update, *upsert_id)
            }
            Self::Replace { filter, doc, upsert: true, upsert_id, .. } => replaced(filter, doc, *upsert_id),
            Self::FindAndModify { filter, change, upsert: true, upsert_id, .. } => match change {
                Modification::Update(update) => updated(filter, update, *upsert_id),
                Modification::Replace(doc) => replaced(filter, doc, *upsert_id),
                Modification::Remove => Ok(None),
            },
            Self::Unvalidated(command) | Self::Collated { command, .. } => command.upserted(now, key),
            _ => Ok(None),
        }
    }
}

/// Returns the document to which an upsert applies its update: the values that the filter requires, `_id` first. It has no
/// `_id` if the update, or the key of an entity, may give it one.
///
/// Errors: nothing has an `_id`.
fn updated_from(
    filter: &Filter,
    update: &Update,
    new_id: Option<ObjectId>,
    key: Option<&str>,
) -> Result<Vec<u8>> {
    let mut base = Update::new();
    let mut id = None;
    for (path, value) in filter.equalities() {
        if path.as_str() == "_id" {
            id = Some(OwnedRawValue::of(value));
        } else {
            base = base.set_raw(path.as_str(), value);
        }
    }
    let has_key = |key: &str| {
        update.touches(key.as_bytes()) || filter.equalities().iter().any(|(path, _)| path.as_str() == key)
    };
    if id.is_none() && !update.touches(b"_id") && !key.is_some_and(has_key) {
        id = Some(fresh_id(new_id)?);
    }
    let mut doc = vec![0; 4];
    if let Some(id) = &id {
        put_element(&mut doc, b"_id", id.as_raw());
    }
    close_document(&mut doc, 0);
    let mut out = Vec::new();
    base.apply_bytes(&doc, UpdateContext::update(Timestamp(0)), &mut out)?;
    Ok(out)
}

/// Inserts the document of an update that found none.
pub(super) fn upsert_updated(
    collection: &mut Collection,
    filter: &Filter,
    update: &Update,
    id: Option<ObjectId>,
    now: Timestamp,
    outcome: &mut CommandOutcome,
) {
    let inserted = updated_from(filter, update, id, collection.checked_key())
        .and_then(|base| collection.insert_updated(&base, update, now, id));
    finish(collection, inserted, outcome);
}

/// Inserts the document of a replacement that found none.
pub(super) fn upsert_replaced(
    collection: &mut Collection,
    filter: &Filter,
    doc: &DocBytes,
    id: Option<ObjectId>,
    outcome: &mut CommandOutcome,
) {
    let inserted =
        replacement(filter, doc, id, collection.checked_key()).and_then(|doc| collection.insert(doc));
    finish(collection, inserted, outcome);
}

/// Returns the replacement with an `_id`: its own, that of the filter, the value of the key of an entity, or the given one.
fn replacement(filter: &Filter, doc: &DocBytes, id: Option<ObjectId>, key: Option<&str>) -> Result<DocBytes> {
    if field(doc, b"_id").is_some() {
        return Ok(doc.clone());
    }
    let equalities = filter.equalities();
    let asked = |name: &str| {
        let found = equalities.iter().find(|(path, _)| path.as_str() == name);
        found.map(|(_, value)| OwnedRawValue::of(*value))
    };
    let own_key = || key.and_then(|key| field(doc, key.as_bytes())).map(|e| OwnedRawValue::of(e.value));
    let id = match asked("_id").or_else(own_key).or_else(|| asked(key?)) {
        Some(id) => id,
        None => fresh_id(id)?,
    };
    Ok(with_id_first(doc, id.as_raw()).into())
}

fn finish(collection: &Collection, inserted: Result<crate::Key>, outcome: &mut CommandOutcome) {
    match inserted {
        Ok(key) => {
            let id = collection.get_key(&key).and_then(|doc| field(doc, b"_id"));
            outcome.upserted_id = id.map(|id| id.value.to_bson());
        }
        Err(error) => outcome.errors.push(DocumentError { index: 0, error }),
    }
}

fn fresh_id(id: Option<ObjectId>) -> Result<OwnedRawValue> {
    let id = id.ok_or_else(|| {
        DocsError::bad_value("the upsert needs an _id: put one into the filter or the update, or give the command an upsert_id")
    })?;
    OwnedRawValue::from_bson(&id.into()).map_err(DocsError::bad_value)
}
