//! `returnKey`: in place of each document its key in the index that finds it.

use bson::raw::{CString, RawBsonRef, RawDocument, RawDocumentBuf};
use tidemill_docs::{DocBytes, Filter, FindOptions};

use crate::error::{CommandError, Result};
use crate::shared::Shared;

/// Returns the keys of documents that a query has found; documents without fields if it has used no index.
///
/// Errors: the index is not ordered, or it has several keys for a document.
pub(in crate::commands) fn keys(
    shared: &Shared,
    collection: &str,
    filter: &Filter,
    options: &FindOptions,
    found: Vec<DocBytes>,
) -> Result<Vec<DocBytes>> {
    let fields = index_fields(shared, collection, filter, options)?;
    let key = |document: DocBytes| -> Result<DocBytes> {
        let document = RawDocument::from_bytes(&document)?;
        let mut key = RawDocumentBuf::new();
        for path in &fields {
            key.append(CString::try_from(path.clone())?, value_at(document, path)?);
        }
        Ok(key.into_bytes().into())
    };
    found.into_iter().map(key).collect()
}

/// Returns the fields of the index that a query uses.
fn index_fields(
    shared: &Shared,
    collection: &str,
    filter: &Filter,
    options: &FindOptions,
) -> Result<Vec<String>> {
    let Ok(spec) = shared.engine.collection_spec(collection) else { return Ok(Vec::new()) };
    if options.natural.is_some() {
        return Ok(Vec::new());
    }
    let used = shared.engine.read_collection(collection, |part| {
        Ok(part.explain(filter, &options.sort).index(part).map(str::to_owned))
    })?;
    let by_id = || Ok(vec!["_id".to_owned()]);
    match used.into_iter().flatten().next() {
        Some(name) => match spec.indexes.iter().find(|index| index.name == name) {
            Some(index) if index.hashed.is_some() || index.is_wildcard() => {
                Err(CommandError::not_supported("`find.returnKey` with a hashed or a wildcard index"))
            }
            Some(index) => Ok(index.fields.iter().map(|(path, _)| path.clone()).collect()),
            None => by_id(),
        },
        // the index of _id in order may not be built yet
        None if options.sort.has_fields(std::iter::once("_id")) => by_id(),
        None => Ok(Vec::new()),
    }
}

/// Returns the value at a path, null if it is missing.
fn value_at<'d>(document: &'d RawDocument, path: &str) -> Result<RawBsonRef<'d>> {
    let several = || CommandError::not_supported(format!("`find.returnKey` of arrays, as at `{path}`,"));
    let mut value = RawBsonRef::Document(document);
    for name in path.split('.') {
        value = match value {
            RawBsonRef::Document(document) => document.get(name)?.unwrap_or(RawBsonRef::Null),
            RawBsonRef::Array(_) => return Err(several()),
            _ => RawBsonRef::Null,
        };
    }
    match value {
        RawBsonRef::Array(_) => Err(several()),
        value => Ok(value),
    }
}
