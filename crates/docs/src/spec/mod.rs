//! Definition of a collection: its name, its partitioning, its indexes.

mod bson_document;
mod index;
mod options;

use serde::{Deserialize, Serialize};

pub use crate::direction::Direction;
use crate::error::{DocsError, Result};

pub use bson_document::BsonDocument;
pub use index::IndexSpec;
pub use options::{
    CappedSize, CollectionChange, CollectionOptions, IndexChange, ValidationAction, ValidationLevel, ViewSpec,
};

/// Definition of a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CollectionSpec {
    /// Name, unique in the store.
    pub name: String,
    /// Path whose value decides the partition; `_id` when absent.
    #[serde(default)]
    pub shard_key: Option<String>,
    /// True if every partition has a copy of all documents.
    #[serde(default)]
    pub replicated: bool,
    /// True if one partition, found by the name of the collection, has all documents, so that an index can be
    /// unique over them and their order is that of all inserts.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub gathered: bool,
    /// The partition of a gathered collection, instead of the one that its name gives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub home: Option<u32>,
    /// Indexes besides the one on `_id`.
    #[serde(default)]
    pub indexes: Vec<IndexSpec>,
    /// True if change streams keep both versions of a document that is updated, and the last version of one
    /// that is deleted.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub change_images: bool,
    /// Validation, a maximum size, the definition of a view.
    #[serde(default, skip_serializing_if = "CollectionOptions::is_default")]
    pub options: CollectionOptions,
    /// Identity that clients see, chosen by the creator. It says nothing about the documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<bson::Uuid>,
}

impl CollectionSpec {
    /// Creates the definition of a collection sharded by `_id`, without indexes.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            shard_key: None,
            replicated: false,
            gathered: false,
            home: None,
            indexes: Vec::new(),
            change_images: false,
            options: CollectionOptions::default(),
            uuid: None,
        }
    }

    /// Describes for users where the documents are stored: `replicated`, `in one partition`, or `spread by FIELD`.
    pub fn placement(&self) -> String {
        match &self.shard_key {
            _ if self.replicated => "replicated".to_owned(),
            _ if self.gathered && self.home.is_some() => {
                format!("in partition {}", self.home.unwrap_or_default())
            }
            _ if self.gathered => "in one partition".to_owned(),
            Some(field) => format!("spread by `{field}`"),
            None => "spread by `_id`".to_owned(),
        }
    }

    /// Returns whether the definitions are equal, apart from the UUIDs of the collections.
    pub fn is_same(&self, other: &Self) -> bool {
        Self { uuid: other.uuid, ..self.clone() } == *other
    }

    /// Returns whether documents are placed in partitions as those of `other` are.
    pub fn has_same_placement(&self, other: &Self) -> bool {
        let field = |spec: &Self| spec.shard_key.clone().filter(|key| key != "_id");
        (self.replicated, self.gathered, self.home) == (other.replicated, other.gathered, other.home)
            && (self.replicated || field(self) == field(other))
    }

    /// Checks the name and the indexes. Errors: what is wrong and what is allowed.
    pub(crate) fn check(&self) -> Result<()> {
        let bad = self.name.is_empty()
            || self.name.len() > 255
            || self.name.starts_with("system.")
            || self.name.contains(['\0', '$']);
        if bad {
            return Err(DocsError::bad_value(format!(
                "collection name {:?}: expected 1 to 255 bytes without `$` and NUL, not starting with `system.`",
                self.name
            )));
        }
        if let Some(key) = &self.shard_key {
            check_path(key).map_err(|why| {
                DocsError::bad_value(format!("shard key {key:?} of `{}`: {why}", self.name))
            })?;
        }
        self.options.check(!self.indexes.is_empty())?;
        self.indexes.iter().try_for_each(IndexSpec::check)
    }
}

/// Checks that an index or shard key may use the path.
pub(super) fn check_path(path: &str) -> Result<(), &'static str> {
    if path.split('.').any(str::is_empty) {
        return Err("empty field name: expected a path such as `a` or `a.b`");
    }
    if path.split('.').any(|p| p.starts_with('$')) {
        return Err("expected field names without a leading `$`");
    }
    if path.contains('\0') {
        return Err("a field name must not contain NUL");
    }
    Ok(())
}
