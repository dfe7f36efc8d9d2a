//! `createIndexes`, `listIndexes`, `dropIndexes`.

use bson::cstr;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use tidemill_docs::{BsonDocument, CollectionSpec, DocBytes, DocumentCommand, IndexSpec};

use crate::commands::catalog::collections::{batch_size, no_collection};
use crate::commands::index::index_spec::{self, check_conflict, describe, id_index, id_index_name, is_same};
use crate::commands::writing::update::require_collection;
use crate::commands::writing::write;
use crate::error::{Code, CommandError, Result};
use crate::fields::Call;
use crate::session::Session;
use crate::shared::Shared;
use crate::wire::reply::{first_batch, ok};

pub(in crate::commands) fn create(
    shared: &Shared,
    _: &mut Session,
    call: &Call<'_>,
) -> Result<RawDocumentBuf> {
    call.allow(&["indexes", "commitQuorum"])?;
    let collection = call.collection()?;
    let durability = write::durability(call)?;
    let default =
        shared.engine.collation(&collection)?.map(|collation| BsonDocument::new(collation.document()));
    let indexes = indexes_of(call, default.as_ref())?;
    let created = shared.engine.collection_spec(&collection).is_err();
    require_collection(shared, &collection, durability)?;
    let before = shared.engine.collection_spec(&collection)?;
    let is_new = |index: &&IndexSpec| !before.indexes.iter().any(|other| is_same(other, index));
    let gathers = indexes.iter().filter(is_new).any(|index| index.unique && !is_on_id(index));
    if gathers && !shared.engine.is_in_transaction() {
        // each partition keeps its own indexes
        shared.whole_engine.gather_collection(&collection, durability).map_err(|error| {
            CommandError::new(Code::CannotCreateIndex, format!("a unique index is not possible: {error}"))
        })?;
    }
    for index in indexes {
        // the index on _id is there; one that is the same is, too
        let is_id = index.hashed.is_none()
            && index.has_values()
            && matches!(index.fields.as_slice(), [(path, _)] if path == "_id");
        if is_id || before.indexes.iter().any(|other| is_same(other, &index)) {
            continue;
        }
        before.indexes.iter().try_for_each(|other| check_conflict(other, &index))?;
        let name = index.name.clone();
        let command = DocumentCommand::CreateIndex { collection: collection.clone(), index };
        if let Err(error) = shared.engine.write_documents(command, durability) {
            // partitions without the documents that it does not allow have created it
            let command = DocumentCommand::DropIndex { collection: collection.clone(), name };
            if let Err(error) = shared.engine.write_documents(command, durability) {
                // the one that has them has no such index
                tracing::debug!(%error, "an index that could not be created was dropped");
            }
            return Err(with_namespace(error, call));
        }
    }
    let after = shared.engine.collection_spec(&collection)?;
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("numIndexesBefore"), before.indexes.len() as i32 + 1);
    reply.append(cstr!("numIndexesAfter"), after.indexes.len() as i32 + 1);
    reply.append(cstr!("createdCollectionAutomatically"), created);
    if before.indexes.len() == after.indexes.len() {
        reply.append(cstr!("note"), "all indexes already exist");
    }
    Ok(ok(reply))
}

/// Reads the indexes of `createIndexes`.
fn indexes_of(call: &Call<'_>, default: Option<&BsonDocument>) -> Result<Vec<IndexSpec>> {
    let parse = |index: &DocBytes| index_spec::parse(RawDocument::from_bytes(index)?, default);
    call.documents("indexes")?.iter().map(parse).collect()
}

/// Returns whether a collection has all indexes of `createIndexes`.
pub(in crate::commands) fn has_all(call: &Call<'_>, spec: &CollectionSpec) -> Result<bool> {
    let has = |index: IndexSpec| is_on_id(&index) || spec.indexes.iter().any(|other| is_same(other, &index));
    Ok(indexes_of(call, spec.options.collation.as_ref())?.into_iter().all(has))
}

/// Returns whether the first field is `_id`, whose values are unique over all partitions.
fn is_on_id(index: &IndexSpec) -> bool {
    index.fields.first().is_some_and(|(path, _)| path == "_id")
}

/// Writes the name of the collection in an error as clients know it.
fn with_namespace(error: tidemill_types::Error, call: &Call<'_>) -> CommandError {
    let mut error = CommandError::from(error);
    if let Ok(stored) = call.collection() {
        let shown = format!("collection: {} ", call.namespace());
        error.message = error.message.replacen(&format!("collection: {stored} "), &shown, 1);
    }
    error
}

pub(in crate::commands) fn list(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&["cursor"])?;
    let spec = spec(shared, call)?;
    let mut listed: Vec<DocBytes> = vec![id_index(&spec).into_bytes().into()];
    for index in &spec.indexes {
        listed.push(describe(index)?.into_bytes().into());
    }
    first_batch(&shared.cursors, call.namespace(), listed, batch_size(call)?, false)
}

pub(in crate::commands) fn drop(shared: &Shared, _: &mut Session, call: &Call<'_>) -> Result<RawDocumentBuf> {
    call.allow(&["index"])?;
    let spec = spec(shared, call)?;
    let not_found = |what: String| CommandError::new(Code::IndexNotFound, what);
    let by_name = |name: &str| -> Result<String> {
        if name == id_index_name(&spec) {
            return Err(CommandError::new(
                Code::InvalidOptions,
                format!("cannot drop the index {name} of _id"),
            ));
        }
        let known = spec.indexes.iter().any(|index| index.name == name);
        if known {
            Ok(name.to_owned())
        } else {
            Err(not_found(format!("index not found with name [{name}]")))
        }
    };
    let names: Vec<String> = match call.get("index") {
        Some(RawBsonRef::String("*")) => spec.indexes.iter().map(|index| index.name.clone()).collect(),
        Some(RawBsonRef::String(name)) => vec![by_name(name)?],
        Some(RawBsonRef::Array(names)) => {
            let mut all = Vec::new();
            for name in names {
                all.push(by_name(name?.as_str().unwrap_or_default())?);
            }
            all
        }
        Some(RawBsonRef::Document(key)) => {
            let key = index_spec::key(key)?;
            let found = spec.indexes.iter().find(|index| key.is_of(index));
            vec![found.ok_or_else(|| not_found("can't find index with this key".to_owned()))?.name.clone()]
        }
        _ => {
            return Err(CommandError::new(
                Code::MissingField,
                "BSON field 'dropIndexes.index' is missing but a required field",
            ));
        }
    };
    for name in names {
        let command = DocumentCommand::DropIndex { collection: spec.name.clone(), name };
        shared.engine.write_documents(command, write::durability(call)?)?;
    }
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("nIndexesWas"), spec.indexes.len() as i32 + 1);
    Ok(ok(reply))
}

fn spec(shared: &Shared, call: &Call<'_>) -> Result<CollectionSpec> {
    shared.engine.collection_spec(&call.collection()?).map_err(|_| no_collection(call))
}
