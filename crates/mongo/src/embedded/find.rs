//! `find` and `find_one`.

use std::time::Duration;

use bson::{Bson, Document, doc};
use serde::de::DeserializeOwned;

use super::collection::Collection;
use super::core::{decode, first_batch};
use super::cursor::{Cursor, SessionCursor};
use super::direct;
use super::error::Result;
use super::options::Hint;
use super::session::ClientSession;
use super::setters::{milliseconds, session_setter, setters, whole};

/// An operation outside of a session.
#[derive(Debug)]
pub struct ImplicitSession;

/// An operation in a session.
#[derive(Debug)]
pub struct ExplicitSession<'s>(pub(super) &'s mut ClientSession);

/// Finds documents: [`Collection::find`].
#[must_use]
pub struct Find<'a, T, S = ImplicitSession> {
    collection: &'a Collection<T>,
    filter: Document,
    options: Document,
    session: S,
}

impl<'a, T> Find<'a, T> {
    pub(super) fn new(collection: &'a Collection<T>, filter: Document) -> Self {
        Self { collection, filter, options: Document::new(), session: ImplicitSession }
    }

    /// Runs it in the transaction of a session. The cursor then is a [`SessionCursor`].
    pub fn session<'s>(self, session: &'s mut ClientSession) -> Find<'s, T, ExplicitSession<'s>>
    where
        'a: 's,
    {
        let Self { collection, filter, options, .. } = self;
        Find { collection, filter, options, session: ExplicitSession(session) }
    }
}

impl<T, S> Find<'_, T, S> {
    setters! {
        /// The order of the documents: fields with 1 or -1.
        sort: Document => "sort", Bson::from;
        /// Number of documents to skip.
        skip: u64 => "skip", whole;
        /// Maximum number of documents to return; 0 for no limit.
        limit: i64 => "limit", |limit: i64| whole(limit.unsigned_abs());
        /// Fields to return.
        projection: Document => "projection", Bson::from;
        /// An index that must exist.
        hint: Hint => "hint", Bson::from;
        /// Variables of the filter's and the projection's expressions.
        let_vars: Document => "let", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
        /// The time that it may take, which is not limited yet.
        max_time: Duration => "maxTimeMS", milliseconds;
        /// Allows the use of the disk, which is never needed. Ignored.
        allow_disk_use: bool => "allowDiskUse", Bson::from;
    }

    /// Number of documents that a driver fetches at once. Ignored: a cursor has handles of all of them.
    pub fn batch_size(self, _documents: u32) -> Self {
        self
    }
}

/// Returns the command.
fn command(name: &str, filter: Document, options: Document) -> Document {
    // a first batch without documents leaves all of them in the cursor, which gives handles instead of copies
    let mut command = doc! { "find": name, "filter": filter, "batchSize": 0 };
    command.extend(options);
    command
}

impl<T> Find<'_, T> {
    /// Returns a cursor over the documents; empty if the collection does not exist.
    ///
    /// Errors: the filter or an option is wrong.
    pub fn run(self) -> Result<Cursor<T>> {
        let Self { collection, filter, options, .. } = self;
        let reply = collection.run(None, command(collection.name(), filter, options))?;
        Ok(Cursor::new(collection.core().documents_of(&reply)?))
    }
}

impl<T> Find<'_, T, ExplicitSession<'_>> {
    /// Returns a cursor over the documents that the session's transaction sees.
    ///
    /// Errors: the filter or an option is wrong; the transaction has ended.
    pub fn run(self) -> Result<SessionCursor<T>> {
        let Self { collection, filter, options, session } = self;
        let reply = collection.run(Some(session.0), command(collection.name(), filter, options))?;
        Ok(SessionCursor::new(collection.core().documents_of(&reply)?))
    }
}

/// Finds one document: [`Collection::find_one`].
#[must_use]
pub struct FindOne<'a, T> {
    collection: &'a Collection<T>,
    filter: Document,
    options: Document,
    session: Option<&'a mut ClientSession>,
}

impl<'a, T> FindOne<'a, T> {
    pub(super) fn new(collection: &'a Collection<T>, filter: Document) -> Self {
        Self { collection, filter, options: Document::new(), session: None }
    }

    setters! {
        /// Sort order, as fields with 1 or -1. The first document is returned.
        sort: Document => "sort", Bson::from;
        /// Number of documents to skip.
        skip: u64 => "skip", whole;
        /// Fields to return.
        projection: Document => "projection", Bson::from;
        /// An index that must exist.
        hint: Hint => "hint", Bson::from;
        /// Variables of the filter's and the projection's expressions.
        let_vars: Document => "let", Bson::from;
        /// Free-form comment. Ignored.
        comment: impl Into<Bson> => "comment", Into::into;
        /// The time that it may take, which is not limited yet.
        max_time: Duration => "maxTimeMS", milliseconds;
    }
    session_setter!();
}

impl<T: DeserializeOwned> FindOne<'_, T> {
    /// Returns the first document that matches.
    ///
    /// Errors: the filter or an option is wrong; the document has not the fields of `T`, with code 22.
    pub fn run(self) -> Result<Option<T>> {
        let Self { collection, filter, options, session } = self;
        if options.is_empty()
            && !session.as_ref().is_some_and(|session| session.is_in_transaction())
            && let Some(found) = direct::find_one(collection, &filter)
        {
            return decode(&found).map(Some);
        }
        let mut command =
            doc! { "find": collection.name(), "filter": filter, "limit": 1, "singleBatch": true };
        command.extend(options);
        let reply = collection.run(session, command)?;
        first_batch(&reply)?.first().map(|found| decode(found)).transpose()
    }
}
