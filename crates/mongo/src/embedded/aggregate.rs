//! Pipelines, counts and distinct values.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use bson::raw::RawDocument;
use bson::{Bson, Document, doc};

use super::collection::Collection;
use super::core::{Core, to_bson, unexpected};
use super::cursor::{Cursor, SessionCursor};
use super::error::Result;
use super::find::{ExplicitSession, ImplicitSession};
use super::options::Hint;
use super::session::ClientSession;
use super::setters::{milliseconds, session_setter, setters, whole};
use super::write::count;

/// Runs a pipeline: [`Collection::aggregate`].
#[must_use]
pub struct Aggregate<'a, S = ImplicitSession, T = Document> {
    core: &'a Arc<Core>,
    database: &'a str,
    options: Document,
    session: S,
    types: PhantomData<fn() -> T>,
}

impl<'a> Aggregate<'a> {
    /// `target` is the name of a collection, or 1.
    pub(super) fn new(
        core: &'a Arc<Core>,
        database: &'a str,
        target: Bson,
        pipeline: impl IntoIterator<Item = Document>,
    ) -> Self {
        let stages: Vec<Document> = pipeline.into_iter().collect();
        // a first batch without documents leaves all of them in the cursor, which gives handles instead of copies
        let options = doc! { "aggregate": target, "pipeline": stages, "cursor": { "batchSize": 0 } };
        Self { core, database, options, session: ImplicitSession, types: PhantomData }
    }
}

impl<'a, T> Aggregate<'a, ImplicitSession, T> {
    /// Runs it in the transaction of a session. The cursor then is a [`SessionCursor`].
    pub fn session<'s>(self, session: &'s mut ClientSession) -> Aggregate<'s, ExplicitSession<'s>, T>
    where
        'a: 's,
    {
        let Self { core, database, options, .. } = self;
        Aggregate { core, database, options, session: ExplicitSession(session), types: PhantomData }
    }
}

impl<'a, S, T> Aggregate<'a, S, T> {
    setters! {
        /// Variables of the expressions.
        let_vars: Document => "let", Bson::from;
        /// An index that must exist.
        hint: Hint => "hint", Bson::from;
        /// Allows the use of the disk, which is never needed. Ignored.
        allow_disk_use: bool => "allowDiskUse", Bson::from;
        /// Lets `$out` and `$merge` write documents that do not match the validator of the collection.
        bypass_document_validation: bool => "bypassDocumentValidation", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
        /// The time that it may take, which is not limited yet.
        max_time: Duration => "maxTimeMS", milliseconds;
    }

    /// Number of documents that a driver fetches at once. Ignored: a cursor has handles of all of them.
    pub fn batch_size(self, _documents: u32) -> Self {
        self
    }

    /// Sets the type of the documents that come out.
    pub fn with_type<U>(self) -> Aggregate<'a, S, U> {
        let Self { core, database, options, session, .. } = self;
        Aggregate { core, database, options, session, types: PhantomData }
    }
}

impl<T> Aggregate<'_, ImplicitSession, T> {
    /// Runs the pipeline to its end and returns a cursor over what comes out.
    ///
    /// Errors: a stage is wrong or fails.
    pub fn run(self) -> Result<Cursor<T>> {
        let reply = self.core.run(self.database, None, self.options)?;
        Ok(Cursor::new(self.core.documents_of(&reply)?))
    }
}

impl<T> Aggregate<'_, ExplicitSession<'_>, T> {
    /// Runs the pipeline over what the session's transaction sees.
    ///
    /// Errors: a stage is wrong or fails; the transaction has ended.
    pub fn run(self) -> Result<SessionCursor<T>> {
        let reply = self.core.run(self.database, Some(self.session.0), self.options)?;
        Ok(SessionCursor::new(self.core.documents_of(&reply)?))
    }
}

/// Counts documents: [`Collection::count_documents`].
#[must_use]
pub struct CountDocuments<'a, T> {
    collection: &'a Collection<T>,
    filter: Document,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a, T> CountDocuments<'a, T> {
    pub(super) fn new(collection: &'a Collection<T>, filter: Document) -> Self {
        Self { collection, filter, options: Document::new(), session: None }
    }

    setters! {
        /// Number of matching documents to skip.
        skip: u64 => "skip", whole;
        /// Maximum number of documents to count.
        limit: u64 => "limit", whole;
        /// An index that must exist.
        hint: Hint => "hint", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
        /// The time that it may take, which is not limited yet.
        max_time: Duration => "maxTimeMS", milliseconds;
    }
    session_setter!();

    /// Returns the number of documents that match. Errors: the filter is wrong.
    pub fn run(self) -> Result<u64> {
        let Self { collection, filter, mut options, session } = self;
        if !session.as_ref().is_some_and(|session| session.is_in_transaction()) {
            let mut command = doc! { "count": collection.name(), "query": filter };
            command.extend(options);
            return count(&collection.run(None, command)?, "n");
        }
        // transactions do not support the command `count`
        let mut pipeline = vec![doc! { "$match": filter }];
        for (option, stage) in [("skip", "$skip"), ("limit", "$limit")] {
            pipeline.extend(options.remove(option).map(|count| doc! { stage: count }));
        }
        pipeline.push(doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } });
        let mut command = doc! { "aggregate": collection.name(), "pipeline": pipeline, "cursor": {} };
        command.extend(options);
        let reply = collection.run(session, command)?;
        match collection.core().documents_of(&reply)?.next() {
            Some(counted) => count(RawDocument::from_bytes(&counted)?, "n"),
            None => Ok(0),
        }
    }
}

/// Counts all documents: [`Collection::estimated_document_count`].
#[must_use]
pub struct EstimatedDocumentCount<'a, T> {
    collection: &'a Collection<T>,
    options: Document,
}

impl<'a, T> EstimatedDocumentCount<'a, T> {
    pub(super) fn new(collection: &'a Collection<T>) -> Self {
        Self { collection, options: Document::new() }
    }

    setters! {
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
        /// The time that it may take, which is not limited yet.
        max_time: Duration => "maxTimeMS", milliseconds;
    }

    /// Returns the number of documents, which is kept and exact.
    pub fn run(self) -> Result<u64> {
        let mut command = doc! { "count": self.collection.name() };
        command.extend(self.options);
        count(&self.collection.run(None, command)?, "n")
    }
}

/// Distinct values: [`Collection::distinct`].
#[must_use]
pub struct Distinct<'a, T> {
    collection: &'a Collection<T>,
    field: String,
    filter: Document,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a, T> Distinct<'a, T> {
    pub(super) fn new(collection: &'a Collection<T>, field: &str, filter: Document) -> Self {
        Self { collection, field: field.to_owned(), filter, options: Document::new(), session: None }
    }

    setters! {
        /// An index that must exist.
        hint: Hint => "hint", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
        /// The time that it may take, which is not limited yet.
        max_time: Duration => "maxTimeMS", milliseconds;
    }
    session_setter!();

    /// Returns the values, each once, in their order. Errors: the filter is wrong.
    pub fn run(self) -> Result<Vec<Bson>> {
        let mut command =
            doc! { "distinct": self.collection.name(), "key": self.field, "query": self.filter };
        command.extend(self.options);
        let reply = self.collection.run(self.session, command)?;
        reply.get_array("values").map_err(unexpected)?.into_iter().map(|value| to_bson(value?)).collect()
    }
}
