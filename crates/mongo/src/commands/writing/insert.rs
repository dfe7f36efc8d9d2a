//! `insert`.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Timestamp, cstr};
use tidemill_docs::{DocBytes, DocumentCommand};

use crate::commands::writing::let_variables::LetVariables;
use crate::commands::writing::update::require_collection;
use crate::commands::writing::write::{self, WriteErrors, WriteOptions};
use crate::error::{Code, CommandError, Result, WriteError};
use crate::fields::Call;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::ok;

pub(in crate::commands) fn insert(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&write::FIELDS)?;
    let collection = call.collection()?;
    let ordered = call.flag("ordered", true)?;
    let variables = LetVariables::of(shared, call)?;
    let write = WriteOptions::of(call, &variables)?;
    let (inserted, failed) =
        insert_documents(shared, &collection, call.documents("documents")?, ordered, write)?;
    let mut errors = WriteErrors::default();
    failed.into_iter().for_each(|(index, error)| errors.push(index, error));
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("n"), inserted as i32);
    errors.append_to(&mut reply);
    Ok(ok(reply))
}

/// Maximum bytes of a document that a client sends. What operators make of it may be a bit larger.
pub(crate) const DOCUMENT_BYTES_MAX: usize = 16 << 20;

/// Returns whether the `_id` of a document has a field named like an operator.
fn has_operator_id(document: &[u8]) -> Result<bool> {
    let id = RawDocument::from_bytes(document)?.get("_id")?;
    let Some(RawBsonRef::Document(id)) = id else { return Ok(false) };
    Ok(id.into_iter().any(|field| field.is_ok_and(|(name, _)| name.as_str().starts_with('$'))))
}

/// Returns the error of a document that is too large.
pub(crate) fn too_large(document: &[u8]) -> CommandError {
    let message = format!(
        "object to insert too large. size in bytes: {}, max size: {DOCUMENT_BYTES_MAX}",
        document.len()
    );
    CommandError { code: 10334, message }
}

/// Returns a document as it is stored, with `_id` in front.
///
/// Errors: the document is not valid BSON, it is too large, or its `_id` has operators.
pub(crate) fn checked(document: DocBytes) -> std::result::Result<DocBytes, WriteError> {
    let document = tidemill_docs::validate(document)?;
    if has_operator_id(&document)? {
        let message = "_id fields may not contain '$'-prefixed fields".to_owned();
        return Err(CommandError { code: 52, message }.into());
    }
    check_fields(&document)?;
    match document.len() > DOCUMENT_BYTES_MAX {
        true => Err(too_large(&document).into()),
        false => Ok(with_id_first(document)?),
    }
}

/// Refuses a document, or the values of an update, with a field that comes twice: filters, indexes and rules would not mean the same one.
pub(crate) fn check_fields(document: &[u8]) -> Result<()> {
    match tidemill_docs::repeated_field(document) {
        None => Ok(()),
        Some(path) => {
            let message =
                format!("the field `{path}` comes twice in a document: give each field a name of its own");
            Err(CommandError::new(Code::BadValue, message))
        }
    }
}

/// Returns a document that is written as a whole, with the present time in the place of empty timestamps among its fields, but for
/// `_id`: so a client writes the time of the server.
pub(crate) fn with_times(document: DocBytes, now: impl FnOnce() -> Timestamp) -> Result<DocBytes> {
    const EMPTY: RawBsonRef<'_> = RawBsonRef::Timestamp(Timestamp { time: 0, increment: 0 });
    let raw = RawDocument::from_bytes(&document)?;
    let is_empty = |name: &str, value: RawBsonRef<'_>| value == EMPTY && name != "_id";
    if !raw.into_iter().any(|field| field.is_ok_and(|(name, value)| is_empty(name.as_str(), value))) {
        return Ok(document);
    }
    let now = now();
    let mut timed = RawDocumentBuf::new();
    for field in raw {
        let (name, value) = field?;
        match is_empty(name.as_str(), value) {
            true => timed.append(name, now),
            false => timed.append(name, value),
        }
    }
    Ok(timed.into_bytes().into())
}

/// Inserts documents into the collection with this name in the store. Returns how many, and the errors of the others by their
/// position: if they are ordered, that of the first.
pub(crate) fn insert_documents(
    shared: &Shared,
    collection: &str,
    sent: Vec<DocBytes>,
    ordered: bool,
    write: WriteOptions<'_>,
) -> Result<(u64, Vec<(usize, WriteError)>)> {
    let mut errors: Vec<(usize, WriteError)> = Vec::new();
    let mut documents = Vec::new();
    // position of each document in the request
    let mut indexes = Vec::new();
    if sent.is_empty() {
        let message = "Write batch sizes must be between 1 and 100000. Got 0 operations.";
        return Err(CommandError::new(Code::InvalidLength, message));
    }
    for (index, document) in sent.into_iter().enumerate() {
        match checked(document) {
            Ok(document) => {
                documents.push(with_times(document, || shared.cluster_time())?);
                indexes.push(index);
            }
            Err(error) => errors.push((index, error)),
        }
        if ordered && !errors.is_empty() {
            break;
        }
    }
    let mut inserted = 0;
    if !documents.is_empty() {
        require_collection(shared, collection, write.durability)?;
        let command = DocumentCommand::Insert { collection: collection.to_owned(), docs: documents, ordered };
        let outcome = shared.engine.write_documents(write.command(command, None)?, write.durability)?;
        inserted = outcome.inserted;
        for failed in outcome.errors {
            let index = indexes.get(failed.index).copied().unwrap_or(failed.index);
            errors.push((index, failed.error.into()));
        }
    }
    if ordered {
        // an ordered insert reports only the first error
        errors.sort_by_key(|(index, _)| *index);
        errors.truncate(1);
    }
    Ok((inserted, errors))
}

/// Moves `_id` to the front, where MongoDB keeps it.
fn with_id_first(document: DocBytes) -> Result<DocBytes> {
    let raw = RawDocument::from_bytes(&document)?;
    let at = raw.into_iter().position(|element| element.is_ok_and(|(name, _)| name.as_str() == "_id"));
    if at.is_none_or(|at| at == 0) {
        return Ok(document);
    }
    let mut moved = RawDocumentBuf::new();
    if let Some(id) = raw.get("_id")? {
        moved.append(cstr!("_id"), id);
    }
    for element in raw {
        let (name, value) = element?;
        if name.as_str() != "_id" {
            moved.append(name, value);
        }
    }
    Ok(moved.into_bytes().into())
}
