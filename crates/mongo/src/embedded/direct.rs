//! Operations on one document by its `_id`, without a command: they call the engine on the caller's thread.

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Bson, Document};
use bytes::Bytes;
use tidemill_docs::{CommandOutcome, DocBytes, DocumentCommand};
use tidemill_engine::DocumentWrite;
use tidemill_types::{ErrorKind, Value};

use super::collection::Collection;
use super::core::encode;
use super::error::{Error, Result};
use super::results::{DeleteResult, UpdateResult};
use crate::commands::writing::insert::{checked, insert_documents};
use crate::commands::writing::write::WriteOptions;

/// Returns whether a filter asks for one document by its `_id`.
pub(super) fn is_by_id(filter: &Document) -> bool {
    id_of(filter).is_some()
}

/// Returns the `_id` that a filter asks for; `None` for another filter. A document, an array or a pattern may mean something else
/// than to be equal.
fn id_of(filter: &Document) -> Option<RawBsonRef<'_>> {
    let mut fields = filter.iter();
    let (Some((name, value)), None) = (fields.next(), fields.next()) else { return None };
    if name != "_id" {
        return None;
    }
    match value {
        Bson::Int32(n) => Some(RawBsonRef::Int32(*n)),
        Bson::Int64(n) => Some(RawBsonRef::Int64(*n)),
        Bson::Double(n) => Some(RawBsonRef::Double(*n)),
        Bson::String(text) => Some(RawBsonRef::String(text)),
        Bson::ObjectId(id) => Some(RawBsonRef::ObjectId(*id)),
        Bson::DateTime(time) => Some(RawBsonRef::DateTime(*time)),
        Bson::Boolean(flag) => Some(RawBsonRef::Boolean(*flag)),
        _ => None,
    }
}

/// Returns the name of the collection in the store; `None` if its name is wrong or that of a view, which a command refuses, or if that
/// cannot be told, which a command tells.
pub(super) fn stored_name<T>(collection: &Collection<T>) -> Option<&str> {
    let stored = collection.stored_name()?;
    collection.core().engine().view(stored).is_ok_and(|view| view.is_none()).then_some(stored)
}

/// Returns the stored bytes of a document. `None` if a command must look for it: the filter asks for more
/// than an `_id`, or the collection does not hold it, as a view has no documents of its own; or if its partition cannot be asked.
pub(super) fn find_one<T>(collection: &Collection<T>, filter: &Document) -> Option<DocBytes> {
    let id = id_of(filter)?;
    let engine = collection.core().engine();
    engine.collection(collection.stored_name()?).find_one(&Value::from_bson(id)).ok()?
}

/// Inserts a document, which has an `_id`.
pub(super) fn insert_one<T>(
    collection: &Collection<T>,
    stored: &str,
    document: RawDocumentBuf,
) -> Result<()> {
    let documents = vec![Bytes::from(document.into_bytes())];
    // a single document has no order to keep, so the search for duplicates is skipped
    let (_, failed) =
        insert_documents(&collection.core().present(), stored, documents, false, WriteOptions::default())?;
    match failed.into_iter().next() {
        Some((_, failed)) => Err(failed.error.into()),
        None => Ok(()),
    }
}

/// Inserts a document, which has an `_id`, without waiting.
pub(super) fn submit_insert_one<T>(
    collection: &Collection<T>,
    stored: &str,
    document: RawDocumentBuf,
) -> Result<DocumentWrite> {
    let docs = vec![checked(Bytes::from(document.into_bytes())).map_err(|refused| refused.error)?];
    let command = DocumentCommand::Insert { collection: stored.to_owned(), docs, ordered: true };
    Ok(collection.core().engine().submit_documents(command, None)?)
}

/// Returns the command that updates the document that the filter's `_id` names.
pub(super) fn update_one(stored: &str, filter: &Document, update: &Document) -> Result<DocumentCommand> {
    Ok(DocumentCommand::Update {
        collection: stored.to_owned(),
        filter: encode(filter)?.into_bytes().into(),
        update: tidemill_docs::validate(encode(update)?.into_bytes())?,
        multi: false,
        upsert: false,
        upsert_id: None,
    })
}

/// Returns the command that replaces the document that the filter's `_id` names.
pub(super) fn replace_one(
    stored: &str,
    filter: &Document,
    document: RawDocumentBuf,
) -> Result<DocumentCommand> {
    Ok(DocumentCommand::Replace {
        collection: stored.to_owned(),
        filter: encode(filter)?.into_bytes().into(),
        doc: tidemill_docs::validate(document.into_bytes())?,
        upsert: false,
        upsert_id: None,
    })
}

/// Returns the command that deletes the document that the filter's `_id` names.
pub(super) fn delete_one(stored: &str, filter: &Document) -> Result<DocumentCommand> {
    let filter = encode(filter)?.into_bytes().into();
    Ok(DocumentCommand::Delete { collection: stored.to_owned(), filter, multi: false })
}

/// Runs a command on one document, and waits for it.
pub(super) fn run<T>(collection: &Collection<T>, command: DocumentCommand) -> Result<CommandOutcome> {
    or_nothing(collection.core().engine().write_documents(command, None))
}

/// Submits a command on one document; `None` if its collection does not exist.
pub(super) fn submit<T>(
    collection: &Collection<T>,
    command: DocumentCommand,
) -> Result<Option<DocumentWrite>> {
    match collection.core().engine().submit_documents(command, None) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        submitted => Ok(Some(submitted?)),
    }
}

/// In a collection that does not exist there is nothing to write.
pub(super) fn or_nothing(outcome: tidemill_types::Result<CommandOutcome>) -> Result<CommandOutcome> {
    match outcome {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(CommandOutcome::default()),
        outcome => Ok(outcome?),
    }
}

/// Returns what an update or a replacement did.
pub(super) fn updated(outcome: CommandOutcome) -> Result<UpdateResult> {
    check(&outcome)?;
    Ok(UpdateResult { matched_count: outcome.matched, modified_count: outcome.modified, upserted_id: None })
}

/// Returns what a delete did.
pub(super) fn deleted(outcome: CommandOutcome) -> Result<DeleteResult> {
    Ok(DeleteResult { deleted_count: outcome.deleted })
}

/// Returns the error of the only document of a command.
pub(super) fn check(outcome: &CommandOutcome) -> Result<()> {
    match outcome.errors.first() {
        Some(failed) => Err(Error::from(failed.error.clone())),
        None => Ok(()),
    }
}
