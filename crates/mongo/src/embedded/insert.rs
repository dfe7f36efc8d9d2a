//! `insert_one` and `insert_many`.

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Bson, Document, cstr, doc};
use bytes::Bytes;

use super::collection::Collection;
use super::core::{to_bson, unexpected};
use super::direct;
use super::error::{Error, Result, WriteError};
use super::options::WriteConcern;
use super::pending::{PendingWrite, only_by_id};
use super::results::{InsertManyResult, InsertOneResult};
use super::session::ClientSession;
use super::setters::{session_setter, setters};

/// Documents that one command inserts at most, as a driver does it.
const BATCH_DOCUMENTS_MAX: usize = 100_000;
/// Bytes of documents that one command inserts at most, unless it is one document.
const BATCH_BYTES_MAX: usize = 48_000_000;

/// Inserts a document: [`Collection::insert_one`].
#[must_use]
pub struct InsertOne<'a, T> {
    collection: &'a Collection<T>,
    document: Result<RawDocumentBuf>,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a, T> InsertOne<'a, T> {
    pub(super) fn new(collection: &'a Collection<T>, document: Result<RawDocumentBuf>) -> Self {
        Self { collection, document, options: Document::new(), session: None }
    }

    setters! {
        /// Allows a document that does not match the validator of the collection.
        bypass_document_validation: bool => "bypassDocumentValidation", Bson::from;
        /// When it returns.
        write_concern: WriteConcern => "writeConcern", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
    }
    session_setter!();

    /// Inserts it, and waits until it is as safe as the setting `durability` says.
    ///
    /// Errors: the `_id` or another unique key exists, with code 11000; the document cannot be encoded; the validator refuses it, with
    /// code 121.
    pub fn run(self) -> Result<InsertOneResult> {
        let (document, inserted_id) = with_id(self.document?)?;
        let in_transaction = self.session.as_ref().is_some_and(|session| session.is_in_transaction());
        if self.options.is_empty()
            && !in_transaction
            && let Some(stored) = direct::stored_name(self.collection)
        {
            direct::insert_one(self.collection, stored, document)?;
            return Ok(InsertOneResult { inserted_id });
        }
        let batch = vec![Bytes::from(document.into_bytes())];
        match insert(self.collection, self.session, self.options, batch)?.into_iter().next() {
            Some(failed) => Err(Error::of_writes(vec![failed]).without_documents()),
            None => Ok(InsertOneResult { inserted_id }),
        }
    }

    /// Submits the insert, and does not wait for it.
    ///
    /// Errors: as [`Self::run`], those of the document excepted; it has options, or belongs to a transaction.
    pub fn submit(self) -> Result<PendingWrite<InsertOneResult>> {
        let (document, inserted_id) = with_id(self.document?)?;
        let in_transaction = self.session.as_ref().is_some_and(|session| session.is_in_transaction());
        match direct::stored_name(self.collection) {
            Some(stored) if self.options.is_empty() && !in_transaction => {
                let write = direct::submit_insert_one(self.collection, stored, document)?;
                Ok(PendingWrite::new(Some(write), move |outcome| {
                    direct::check(&outcome)?;
                    Ok(InsertOneResult { inserted_id })
                }))
            }
            _ => Err(only_by_id()),
        }
    }
}

/// Inserts documents: [`Collection::insert_many`].
#[must_use]
pub struct InsertMany<'a, T> {
    collection: &'a Collection<T>,
    documents: Result<Vec<RawDocumentBuf>>,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a, T> InsertMany<'a, T> {
    pub(super) fn new(collection: &'a Collection<T>, documents: Result<Vec<RawDocumentBuf>>) -> Self {
        Self { collection, documents, options: Document::new(), session: None }
    }

    setters! {
        /// Stops at the first document that is refused, which is the default. `false` continues with the
        /// others.
        ordered: bool => "ordered", Bson::from;
        /// Allows documents that do not match the validator of the collection.
        bypass_document_validation: bool => "bypassDocumentValidation", Bson::from;
        /// When it returns.
        write_concern: WriteConcern => "writeConcern", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
    }
    session_setter!();

    /// Inserts them, and waits until they are as safe as the setting `durability` says. More than 100,000 documents or 48 MB are
    /// several inserts.
    ///
    /// Errors: there are no documents; some of them were refused ([`Error::write_errors`]), and the others are there.
    pub fn run(mut self) -> Result<InsertManyResult> {
        let documents = self.documents?;
        if documents.is_empty() {
            return Err(Error::invalid("no documents to insert"));
        }
        let ordered = !matches!(self.options.get("ordered"), Some(Bson::Boolean(false)));
        let mut inserted = InsertManyResult::default();
        let mut errors = Vec::new();
        let mut documents = documents.into_iter().enumerate().peekable();
        while documents.peek().is_some() && (!ordered || errors.is_empty()) {
            let (mut batch, mut bytes) = (Vec::new(), 0);
            let first = inserted.inserted_ids.len();
            while let Some((index, document)) = documents.next_if(|(_, next)| {
                let length = next.as_bytes().len();
                batch.is_empty() || (batch.len() < BATCH_DOCUMENTS_MAX && bytes + length <= BATCH_BYTES_MAX)
            }) {
                let (document, id) = with_id(document)?;
                bytes += document.as_bytes().len();
                batch.push(Bytes::from(document.into_bytes()));
                inserted.inserted_ids.insert(index, id);
            }
            let failed = insert(self.collection, self.session.as_deref_mut(), self.options.clone(), batch)?;
            errors.extend(failed.into_iter().map(|error| WriteError { index: first + error.index, ..error }));
        }
        if errors.is_empty() { Ok(inserted) } else { Err(Error::of_writes(errors)) }
    }
}

/// Runs the command for one batch. Returns the errors of single documents.
fn insert<T>(
    collection: &Collection<T>,
    session: Option<&mut ClientSession>,
    options: Document,
    batch: Vec<Bytes>,
) -> Result<Vec<WriteError>> {
    let mut command = doc! { "insert": collection.name() };
    command.extend(options);
    let sequences = vec![("documents".to_owned(), batch)];
    let reply = collection.core().run_with(collection.database_name(), session, command, sequences)?;
    write_errors(&reply)
}

/// Returns the errors of single documents or statements of a reply.
pub(super) fn write_errors(reply: &bson::RawDocument) -> Result<Vec<WriteError>> {
    let Some(RawBsonRef::Array(errors)) = reply.get("writeErrors").map_err(unexpected)? else {
        return Ok(Vec::new());
    };
    let mut found = Vec::new();
    for error in errors {
        let RawBsonRef::Document(error) = error? else { continue };
        found.push(WriteError {
            index: usize::try_from(error.get_i32("index").unwrap_or(0)).unwrap_or(0),
            code: error.get_i32("code").map_err(unexpected)?,
            message: error.get_str("errmsg").map_err(unexpected)?.to_owned(),
        });
    }
    found.sort_by_key(|error| error.index);
    Ok(found)
}

/// Returns the document with an `_id`, and its value.
fn with_id(document: RawDocumentBuf) -> Result<(RawDocumentBuf, Bson)> {
    if let Some(id) = document.get("_id")? {
        let id = to_bson(id)?;
        return Ok((document, id));
    }
    let id = ObjectId::new();
    let mut whole = RawDocumentBuf::new();
    whole.append(cstr!("_id"), id);
    for element in &document {
        let (name, value) = element?;
        whole.append(name, value);
    }
    Ok((whole, Bson::ObjectId(id)))
}
