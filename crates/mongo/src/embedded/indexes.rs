//! Indexes of a collection, and dropping it.

use bson::{Bson, Document, RawDocument, doc};

use super::collection::Collection;
use super::core::unexpected;
use super::error::Result;
use super::options::IndexModel;
use super::results::{CreateIndexResult, CreateIndexesResult};

/// Creates an index: [`Collection::create_index`].
#[must_use]
pub struct CreateIndex<'a, T> {
    collection: &'a Collection<T>,
    index: IndexModel,
}

/// Creates indexes: [`Collection::create_indexes`].
#[must_use]
pub struct CreateIndexes<'a, T> {
    collection: &'a Collection<T>,
    indexes: Vec<IndexModel>,
}

/// Lists the names of indexes: [`Collection::list_index_names`].
#[must_use]
pub struct ListIndexNames<'a, T> {
    collection: &'a Collection<T>,
}

/// Drops an index, or all but that on `_id`: [`Collection::drop_index`] and [`Collection::drop_indexes`].
#[must_use]
pub struct DropIndex<'a, T> {
    collection: &'a Collection<T>,
    name: String,
}

/// Drops a collection: [`Collection::drop`].
#[must_use]
pub struct DropCollection<'a, T> {
    collection: &'a Collection<T>,
}

impl<T: Send + Sync> Collection<T> {
    /// Creates an index, and the collection if it does not exist.
    pub fn create_index(&self, index: IndexModel) -> CreateIndex<'_, T> {
        CreateIndex { collection: self, index }
    }

    /// Creates indexes, and the collection if it does not exist.
    pub fn create_indexes(&self, indexes: impl IntoIterator<Item = IndexModel>) -> CreateIndexes<'_, T> {
        CreateIndexes { collection: self, indexes: indexes.into_iter().collect() }
    }

    /// Returns the names of the indexes. That on `_id` is `_id_`.
    pub fn list_index_names(&self) -> ListIndexNames<'_, T> {
        ListIndexNames { collection: self }
    }

    /// Drops the index of that name.
    pub fn drop_index(&self, name: impl AsRef<str>) -> DropIndex<'_, T> {
        DropIndex { collection: self, name: name.as_ref().to_owned() }
    }

    /// Drops all indexes but that on `_id`.
    pub fn drop_indexes(&self) -> DropIndex<'_, T> {
        DropIndex { collection: self, name: "*".to_owned() }
    }

    /// Drops the collection with its documents and indexes.
    pub fn drop(&self) -> DropCollection<'_, T> {
        DropCollection { collection: self }
    }
}

fn create<T>(collection: &Collection<T>, indexes: Vec<IndexModel>) -> Result<Vec<String>> {
    let names = indexes.iter().map(IndexModel::name).collect();
    let indexes: Vec<Document> = indexes.into_iter().map(IndexModel::into_document).collect();
    collection.run(None, doc! { "createIndexes": collection.name(), "indexes": indexes })?;
    Ok(names)
}

impl<T> CreateIndex<'_, T> {
    /// Creates it, and returns when it has all documents. Succeeds if the same index exists already.
    ///
    /// Errors: documents have the same key, with code 11000; there is another index of that name, with code 85 or 86; the kind is not
    /// supported, with code 67.
    pub fn run(self) -> Result<CreateIndexResult> {
        let index_name = create(self.collection, vec![self.index])?.remove(0);
        Ok(CreateIndexResult { index_name })
    }
}

impl<T> CreateIndexes<'_, T> {
    /// Creates them. Errors: as [`CreateIndex::run`]; those before the one with the error are there.
    pub fn run(self) -> Result<CreateIndexesResult> {
        Ok(CreateIndexesResult { index_names: create(self.collection, self.indexes)? })
    }
}

impl<T> ListIndexNames<'_, T> {
    /// Returns the names. Errors: the collection does not exist, with code 26.
    pub fn run(self) -> Result<Vec<String>> {
        let command = doc! { "listIndexes": self.collection.name(), "cursor": {} };
        let reply = self.collection.run(None, command)?;
        let indexes = self.collection.core().documents_of(&reply)?;
        indexes
            .map(|index| Ok(RawDocument::from_bytes(&index)?.get_str("name").map_err(unexpected)?.to_owned()))
            .collect()
    }
}

impl<T> DropIndex<'_, T> {
    /// Drops it. Errors: the index does not exist, with code 27, or the collection does not exist, with code
    /// 26.
    pub fn run(self) -> Result<()> {
        let command = doc! { "dropIndexes": self.collection.name(), "index": Bson::from(self.name) };
        self.collection.run(None, command).map(|_| ())
    }
}

impl<T> DropCollection<'_, T> {
    /// Drops it. Succeeds if the collection does not exist.
    pub fn run(self) -> Result<()> {
        self.collection.run(None, doc! { "drop": self.collection.name() }).map(|_| ())
    }
}
