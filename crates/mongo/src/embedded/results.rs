//! What writes return.

use std::collections::HashMap;

use bson::Bson;

/// Result of [`Collection::insert_one`](super::Collection::insert_one).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct InsertOneResult {
    /// `_id` of the document, its own or the one that it got.
    pub inserted_id: Bson,
}

/// Result of [`Collection::insert_many`](super::Collection::insert_many).
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct InsertManyResult {
    /// `_id` of each document, by its position from 0.
    pub inserted_ids: HashMap<usize, Bson>,
}

/// Result of an update or a replacement.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct UpdateResult {
    /// Documents that the filter matched.
    pub matched_count: u64,
    /// Documents that became different.
    pub modified_count: u64,
    /// `_id` of the document that an upsert inserted.
    pub upserted_id: Option<Bson>,
}

/// Result of a delete.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DeleteResult {
    /// Documents that were deleted.
    pub deleted_count: u64,
}

/// Result of [`Collection::create_index`](super::Collection::create_index).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreateIndexResult {
    /// Name of the index.
    pub index_name: String,
}

/// Result of [`Collection::create_indexes`](super::Collection::create_indexes).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CreateIndexesResult {
    /// Names of the indexes, in the order in which they were given.
    pub index_names: Vec<String>,
}
