//! Collections.

use std::borrow::Borrow;
use std::marker::PhantomData;
use std::sync::Arc;

use bson::raw::RawDocumentBuf;
use bson::{Bson, Document};
use serde::Serialize;

use super::aggregate::{Aggregate, CountDocuments, Distinct, EstimatedDocumentCount};
use super::change_stream::{ChangeStreamEvent, Watch};
use super::client::Client;
use super::core::{Core, encode};
use super::error::Result;
use super::find::{Find, FindOne};
use super::find_and_modify::{FindOneAndDelete, FindOneAndReplace, FindOneAndUpdate};
use super::insert::{InsertMany, InsertOne};
use super::options::UpdateModifications;
use super::session::ClientSession;
use super::write::{Delete, ReplaceOne, Update};
use crate::namespace::stored_name;

/// A collection of documents of the type `T`: a type with serde's traits, [`Document`], or [`RawDocumentBuf`], which is not decoded.
/// Clones are cheap. A collection that does not exist has no documents.
pub struct Collection<T> {
    client: Client,
    database: Arc<str>,
    name: Arc<str>,
    /// Its name in the store; `None` if the name is wrong, which commands tell.
    stored: Option<Arc<str>>,
    types: PhantomData<fn() -> T>,
}

/// Name of a collection with that of its database.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Namespace {
    /// Name of the database.
    pub db: String,
    /// Name of the collection.
    pub coll: String,
}

impl<T> Collection<T> {
    pub(super) fn new(client: Client, database: Arc<str>, name: &str) -> Self {
        let stored = stored_name(&database, name).ok().map(Arc::from);
        Self { client, database, name: name.into(), stored, types: PhantomData }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Returns the name with that of the database.
    pub fn namespace(&self) -> Namespace {
        Namespace { db: self.database.to_string(), coll: self.name.to_string() }
    }

    /// Returns the same collection with another type of documents.
    pub fn clone_with_type<U: Send + Sync>(&self) -> Collection<U> {
        let Self { client, database, name, stored, .. } = self.clone();
        Collection { client, database, name, stored, types: PhantomData }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.client.core
    }

    pub(super) fn database_name(&self) -> &str {
        &self.database
    }

    pub(super) fn stored_name(&self) -> Option<&str> {
        self.stored.as_deref()
    }

    /// Runs a command on the database of the collection.
    pub(super) fn run(
        &self,
        session: Option<&mut ClientSession>,
        command: Document,
    ) -> Result<RawDocumentBuf> {
        self.core().run(&self.database, session, command)
    }
}

impl<T: Send + Sync> Collection<T> {
    /// Finds the documents that match a filter.
    pub fn find(&self, filter: Document) -> Find<'_, T> {
        Find::new(self, filter)
    }

    /// Finds the first document that matches a filter. By the `_id` alone it needs neither a command nor a lock.
    pub fn find_one(&self, filter: Document) -> FindOne<'_, T> {
        FindOne::new(self, filter)
    }

    /// Counts the documents that match a filter.
    pub fn count_documents(&self, filter: Document) -> CountDocuments<'_, T> {
        CountDocuments::new(self, filter)
    }

    /// Counts all documents.
    pub fn estimated_document_count(&self) -> EstimatedDocumentCount<'_, T> {
        EstimatedDocumentCount::new(self)
    }

    /// Finds the distinct values of a field in the documents that match a filter.
    pub fn distinct(&self, field_name: impl AsRef<str>, filter: Document) -> Distinct<'_, T> {
        Distinct::new(self, field_name.as_ref(), filter)
    }

    /// Runs a pipeline over the documents.
    pub fn aggregate(&self, pipeline: impl IntoIterator<Item = Document>) -> Aggregate<'_> {
        Aggregate::new(self.core(), &self.database, Bson::from(self.name.to_string()), pipeline)
    }

    /// Follows the changes of the collection, from now on.
    pub fn watch(&self) -> Watch<ChangeStreamEvent<T>> {
        Watch::new(self.core().clone(), &self.database, Bson::from(self.name.to_string()), Document::new())
    }

    /// Updates the first document that matches a filter.
    pub fn update_one(&self, query: Document, update: impl Into<UpdateModifications>) -> Update<'_, T> {
        Update::new(self, query, update.into(), false)
    }

    /// Updates all documents that match a filter, each atomically.
    pub fn update_many(&self, query: Document, update: impl Into<UpdateModifications>) -> Update<'_, T> {
        Update::new(self, query, update.into(), true)
    }

    /// Deletes the first document that matches a filter.
    pub fn delete_one(&self, query: Document) -> Delete<'_, T> {
        Delete::new(self, query, false)
    }

    /// Deletes all documents that match a filter.
    pub fn delete_many(&self, query: Document) -> Delete<'_, T> {
        Delete::new(self, query, true)
    }

    /// Updates the first document that matches a filter, and returns it in the same step.
    pub fn find_one_and_update(
        &self,
        filter: Document,
        update: impl Into<UpdateModifications>,
    ) -> FindOneAndUpdate<'_, T> {
        FindOneAndUpdate::new(self, filter, update.into())
    }

    /// Deletes the first document that matches a filter, and returns it in the same step.
    pub fn find_one_and_delete(&self, filter: Document) -> FindOneAndDelete<'_, T> {
        FindOneAndDelete::new(self, filter)
    }
}

impl<T: Serialize + Send + Sync> Collection<T> {
    /// Inserts a document. One without `_id` gets an object id.
    pub fn insert_one(&self, doc: impl Borrow<T>) -> InsertOne<'_, T> {
        InsertOne::new(self, encode(doc.borrow()))
    }

    /// Inserts documents. Each without `_id` gets an object id.
    pub fn insert_many(&self, docs: impl IntoIterator<Item = impl Borrow<T>>) -> InsertMany<'_, T> {
        InsertMany::new(self, docs.into_iter().map(|doc| encode(doc.borrow())).collect())
    }

    /// Replaces the first document that matches a filter. Its `_id` stays.
    pub fn replace_one(&self, query: Document, replacement: impl Borrow<T>) -> ReplaceOne<'_, T> {
        ReplaceOne::new(self, query, encode(replacement.borrow()))
    }

    /// Replaces the first document that matches a filter, and returns it in the same step.
    pub fn find_one_and_replace(
        &self,
        filter: Document,
        replacement: impl Borrow<T>,
    ) -> FindOneAndReplace<'_, T> {
        FindOneAndReplace::new(self, filter, encode(replacement.borrow()))
    }
}

impl<T> Clone for Collection<T> {
    fn clone(&self) -> Self {
        let Self { client, database, name, stored, .. } = self;
        Self {
            client: client.clone(),
            database: database.clone(),
            name: name.clone(),
            stored: stored.clone(),
            types: PhantomData,
        }
    }
}

impl<T> std::fmt::Debug for Collection<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Collection({}.{})", self.database, self.name)
    }
}
