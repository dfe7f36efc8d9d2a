//! Options of a collection: validation, a maximum size, the definition of a view.

use serde::{Deserialize, Serialize};

use super::BsonDocument;
use crate::collation::Collation;
use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::Filter;

/// Options of a collection. Those that are not set are not written.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CollectionOptions {
    /// Filter that documents must match when they are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validator: Option<BsonDocument>,
    /// Writes that are validated.
    #[serde(skip_serializing_if = "is_default")]
    pub validation_level: ValidationLevel,
    /// Handling of a document that does not match.
    #[serde(skip_serializing_if = "is_default")]
    pub validation_action: ValidationAction,
    /// Maximum size; the oldest documents are deleted as new ones are inserted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capped: Option<CappedSize>,
    /// Source of a view. A view has no documents of its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewSpec>,
    /// Collation of operations that name none, and of new indexes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collation: Option<BsonDocument>,
    /// Name of the index of `_id` if the documents are read in the order of `_id` instead of that of insertion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clustered: Option<String>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Writes that are validated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidationLevel {
    /// None.
    Off,
    /// Inserts and updates.
    #[default]
    Strict,
    /// Inserts, and updates of documents that are valid before.
    Moderate,
}

/// Handling of a document that is not valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidationAction {
    /// It is refused.
    #[default]
    Error,
    /// It is written.
    Warn,
}

/// Maximum size of a capped collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CappedSize {
    /// Bytes of all documents.
    pub bytes: u64,
    /// Number of documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<u64>,
}

/// Definition of a view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ViewSpec {
    /// Name in the store of the collection or view that it reads.
    pub on: String,
    /// Stages of its pipeline.
    pub pipeline: Vec<BsonDocument>,
}

impl CollectionOptions {
    pub(crate) fn is_default(&self) -> bool {
        is_default(self)
    }

    /// Returns the collation of operations that name none. Errors: as [`Collation::parse`].
    pub(crate) fn parsed_collation(&self) -> Result<Option<Collation>> {
        self.collation.as_ref().map_or(Ok(None), |collation| Collation::parse(collation.as_raw()))
    }

    /// Checks options that belong together. Errors: a validator that is not a filter, sizes of 0, a view with
    /// other options.
    pub(crate) fn check(&self, has_indexes: bool) -> Result<()> {
        let collation = self.parsed_collation()?;
        if let Some(validator) = &self.validator {
            let filter = Filter::parse_by(validator.as_raw(), collation.as_ref())?;
            if let Some(operator) = filter.search_operator() {
                return Err(DocsError::new(
                    ErrorCode::QueryFeatureNotAllowed,
                    format!("{operator} is not allowed in a validator"),
                ));
            }
        }
        if self.capped.is_some_and(|size| size.bytes == 0 || size.documents == Some(0)) {
            return Err(DocsError::bad_value(
                "a capped collection has room for at least one byte and one document",
            ));
        }
        if self.clustered.is_some() && (self.capped.is_some() || self.view.is_some()) {
            return Err(DocsError::bad_value("a clustered collection is no view, and has no maximum size"));
        }
        let others = self.validator.is_some() || self.capped.is_some() || has_indexes;
        if self.view.is_some() && others {
            return Err(DocsError::bad_value(
                "a view has no validator, no maximum size and no indexes of its own",
            ));
        }
        Ok(())
    }
}

/// Change of the definition of a collection; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CollectionChange {
    /// The new validator; one without conditions removes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validator: Option<BsonDocument>,
    /// Writes that are validated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_level: Option<ValidationLevel>,
    /// Handling of a document that is not valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation_action: Option<ValidationAction>,
    /// The new maximum size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capped: Option<CappedSize>,
    /// The new definition of a view.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub view: Option<ViewSpec>,
    /// Change of an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<IndexChange>,
    /// True if change streams keep both versions of a document that is updated, and the last version of one
    /// that is deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_images: Option<bool>,
    /// True if new documents go to one partition from now on.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gathered: bool,
    /// True if each partition puts its documents into the order of insertion, after some have come from
    /// others.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub put_in_order: bool,
}

/// Change of an index; what is `None` stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IndexChange {
    /// Name of the index.
    pub name: String,
    /// Seconds after which documents expire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_after_seconds: Option<i64>,
    /// True if no query uses the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hidden: Option<bool>,
}
