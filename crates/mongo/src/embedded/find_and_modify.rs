//! `find_one_and_update`, `find_one_and_replace` and `find_one_and_delete`: they change one document and return it, in one step.

use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Bson, Document, doc};
use serde::de::DeserializeOwned;

use super::collection::Collection;
use super::core::{decode, to_bson, unexpected};
use super::error::Result;
use super::options::{Hint, ReturnDocument, UpdateModifications, WriteConcern};
use super::session::ClientSession;
use super::setters::{session_setter, setters};
use super::write::{check_replacement, check_update};

/// Converts which version is returned.
fn is_new(version: ReturnDocument) -> Bson {
    (version == ReturnDocument::After).into()
}

/// Updates and returns a document: [`Collection::find_one_and_update`].
#[must_use]
pub struct FindOneAndUpdate<'a, T> {
    collection: &'a Collection<T>,
    filter: Document,
    update: UpdateModifications,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a, T> FindOneAndUpdate<'a, T> {
    pub(super) fn new(collection: &'a Collection<T>, filter: Document, update: UpdateModifications) -> Self {
        Self { collection, filter, update, options: Document::new(), session: None }
    }

    setters! {
        /// Version of the document to return; the one before the change by default.
        return_document: ReturnDocument => "new", is_new;
        /// Inserts a document if none matches.
        upsert: bool => "upsert", Bson::from;
        /// Filters for the array elements that `$[name]` selects.
        array_filters: Vec<Document> => "arrayFilters", Bson::from;
        /// Sort order. The first document is taken.
        sort: Document => "sort", Bson::from;
        /// Fields to return.
        projection: Document => "fields", Bson::from;
        /// An index that must exist.
        hint: Hint => "hint", Bson::from;
        /// Variables, which updates do not support yet.
        let_vars: Document => "let", Bson::from;
        /// Allows a document that does not match the validator of the collection.
        bypass_document_validation: bool => "bypassDocumentValidation", Bson::from;
        /// When it returns.
        write_concern: WriteConcern => "writeConcern", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
    }
    session_setter!();
}

impl<T: DeserializeOwned> FindOneAndUpdate<'_, T> {
    /// Updates the document and returns it; `None` if nothing matches.
    ///
    /// Errors: those of [`Collection::update_one`]; the document has not the fields of `T`, and is changed nevertheless.
    pub fn run(self) -> Result<Option<T>> {
        check_update(&self.update)?;
        let change = doc! { "update": self.update.into_bson() };
        run(self.collection, self.session, self.filter, change, self.options)
    }
}

/// Replaces and returns a document: [`Collection::find_one_and_replace`].
#[must_use]
pub struct FindOneAndReplace<'a, T> {
    collection: &'a Collection<T>,
    filter: Document,
    replacement: Result<RawDocumentBuf>,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a, T> FindOneAndReplace<'a, T> {
    pub(super) fn new(
        collection: &'a Collection<T>,
        filter: Document,
        replacement: Result<RawDocumentBuf>,
    ) -> Self {
        Self { collection, filter, replacement, options: Document::new(), session: None }
    }

    setters! {
        /// Version of the document to return; the one before the change by default.
        return_document: ReturnDocument => "new", is_new;
        /// Inserts the document if none matches.
        upsert: bool => "upsert", Bson::from;
        /// Sort order. The first document is taken.
        sort: Document => "sort", Bson::from;
        /// Fields to return.
        projection: Document => "fields", Bson::from;
        /// An index that must exist.
        hint: Hint => "hint", Bson::from;
        /// Variables, which replacements do not support yet.
        let_vars: Document => "let", Bson::from;
        /// Allows a document that does not match the validator of the collection.
        bypass_document_validation: bool => "bypassDocumentValidation", Bson::from;
        /// When it returns.
        write_concern: WriteConcern => "writeConcern", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
    }
    session_setter!();
}

impl<T: DeserializeOwned> FindOneAndReplace<'_, T> {
    /// Replaces the document and returns it; `None` if nothing matches.
    ///
    /// Errors: those of [`Collection::replace_one`]; the document has not the fields of `T`, and is changed nevertheless.
    pub fn run(self) -> Result<Option<T>> {
        let replacement = self.replacement?;
        check_replacement(&replacement)?;
        let change = doc! { "update": to_bson(RawBsonRef::Document(&replacement))? };
        run(self.collection, self.session, self.filter, change, self.options)
    }
}

/// Deletes and returns a document: [`Collection::find_one_and_delete`].
#[must_use]
pub struct FindOneAndDelete<'a, T> {
    collection: &'a Collection<T>,
    filter: Document,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a, T> FindOneAndDelete<'a, T> {
    pub(super) fn new(collection: &'a Collection<T>, filter: Document) -> Self {
        Self { collection, filter, options: Document::new(), session: None }
    }

    setters! {
        /// Sort order. The first document is taken.
        sort: Document => "sort", Bson::from;
        /// Fields to return.
        projection: Document => "fields", Bson::from;
        /// An index that must exist.
        hint: Hint => "hint", Bson::from;
        /// Variables, which deletes do not support yet.
        let_vars: Document => "let", Bson::from;
        /// When it returns.
        write_concern: WriteConcern => "writeConcern", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
    }
    session_setter!();
}

impl<T: DeserializeOwned> FindOneAndDelete<'_, T> {
    /// Deletes the document and returns it; `None` if nothing matches.
    ///
    /// Errors: the filter or an option is wrong; the document has not the fields of `T`, and is deleted nevertheless.
    pub fn run(self) -> Result<Option<T>> {
        run(self.collection, self.session, self.filter, doc! { "remove": true }, self.options)
    }
}

fn run<T: DeserializeOwned>(
    collection: &Collection<T>,
    session: Option<&mut ClientSession>,
    filter: Document,
    change: Document,
    options: Document,
) -> Result<Option<T>> {
    let mut command = doc! { "findAndModify": collection.name(), "query": filter };
    command.extend(change);
    command.extend(options);
    let reply = collection.run(session, command)?;
    match reply.get("value").map_err(unexpected)? {
        Some(RawBsonRef::Document(document)) => decode(document.as_bytes()).map(Some),
        _ => Ok(None),
    }
}
