//! `insert`.

use std::collections::HashSet;

use bson::cstr;
use bson::raw::{RawDocument, RawDocumentBuf};
use tidemill_docs::{Command, DocBytes, get_path};

use super::write::{self, WriteErrors};
use crate::connection::Session;
use crate::error::{CommandError, Result};
use crate::fields::Call;
use crate::reply::ok;
use crate::server::Shared;

pub(super) fn insert(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&write::FIELDS)?;
    let collection = call.collection()?;
    let ordered = call.flag("ordered", true)?;
    let durability = write::durability(call)?;
    let mut errors = WriteErrors::default();
    let mut documents = Vec::new();
    // position of each document in the request
    let mut indexes = Vec::new();
    for (index, document) in call.documents("documents")?.into_iter().enumerate() {
        match tidemill_docs::validate(document) {
            Ok(document) => {
                documents.push(document);
                indexes.push(index);
            }
            Err(error) => errors.push(index, error),
        }
        if ordered && !errors.is_empty() {
            break;
        }
    }
    if ordered && let Some(at) = first_duplicate(shared, &collection, &documents)? {
        let error = duplicate(call, &documents[at])?;
        errors = WriteErrors::default();
        errors.push(indexes[at], error);
        documents.truncate(at);
    }
    let mut inserted = 0;
    if !documents.is_empty() {
        let command = Command::Insert { collection, docs: documents, ordered };
        let outcome = shared.engine.write_documents(command, durability)?;
        inserted = outcome.inserted;
        for failed in outcome.errors {
            let index = indexes.get(failed.index).copied().unwrap_or(failed.index);
            errors.push(index, failed.error);
        }
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("n"), inserted as i32);
    errors.append_to(&mut reply);
    Ok(ok(reply))
}

/// Returns the first document whose `_id` exists already or is that of an earlier one. An ordered insert ends there, and
/// partitions, which insert side by side, do not know of each other's errors.
fn first_duplicate(shared: &Shared, collection: &str, documents: &[DocBytes]) -> Result<Option<usize>> {
    let mut seen = HashSet::new();
    for (at, document) in documents.iter().enumerate() {
        let raw = RawDocument::from_bytes(document)?;
        let Some(id) = raw.get("_id")? else { continue };
        let id = bson::Bson::try_from(id)?;
        let key = tidemill_docs::Key::of(&get_path(raw, "_id"));
        if !seen.insert(key) {
            return Ok(Some(at));
        }
        if matches!(shared.engine.get_document(collection, &id), Ok(Some(_))) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

fn duplicate(call: &Call<'_>, document: &DocBytes) -> Result<CommandError> {
    let id = RawDocument::from_bytes(document)?.get("_id")?.map(bson::Bson::try_from).transpose()?;
    let id = id.map_or_else(String::new, |id| id.to_string());
    let message = format!(
        "E11000 duplicate key error collection: {} index: _id_ dup key: {{ _id: {id} }}",
        call.namespace()
    );
    Ok(CommandError { code: 11000, message })
}
