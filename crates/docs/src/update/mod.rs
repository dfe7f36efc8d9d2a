//! Updates: operators over paths, applied to raw documents in one pass.
//!
//! The operators of an update form a tree by their paths. Applying it walks the document once, in parallel to
//! the tree: runs of elements that no operator names are copied as bytes, the others are computed from their
//! old bytes, and new fields are appended at the end, ordered by name as in MongoDB.
//!
//! ```
//! use tidemill_docs::Update;
//! let doc = bson::rawdoc! { "_id": 1, "n": 2, "tags": ["a"] };
//! let update = Update::new().inc("n", 3).push("tags", "b").set("seen.at", "gate 4");
//! let after = update.apply(&doc, Default::default()).unwrap();
//! assert_eq!(after, bson::rawdoc! { "_id": 1, "n": 5, "tags": ["a", "b"], "seen": { "at": "gate 4" } });
//! ```

mod apply;
mod arith;
mod arrays;
mod parse;
mod positional;
mod tree;

use bson::Bson;
use bson::raw::{RawDocument, RawDocumentBuf};
use tidemill_types::{Timestamp, Value};

use crate::collation::Collation;
use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::Filter;
use crate::reshape::ReshapeStage;
use crate::sort::SortOrder;
use crate::values::path::Path;
use crate::values::raw::{OwnedRawValue, RawValue, elements, tag};
pub(crate) use apply::UpdateContext;
use arith::BitOperation;
use positional::ArrayFilter;
use tree::{OperatorTree, OperatorTreeChild};

/// A parsed update. Created with [`Update::parse`] from a MongoDB update, or with [`Update::new`] and its
/// methods.
#[derive(Debug, Clone, Default)]
pub struct Update {
    root: OperatorTree,
    /// First error of an update built with methods; reported when it is applied.
    error: Option<DocsError>,
    /// Upper bound on the nesting depth at the paths that operators write; a rename may move a value of any
    /// depth.
    depth: usize,
    /// Operators whose paths stand for elements of arrays, which differ by document.
    positional: Vec<(String, UpdateOperator)>,
    /// Filters for the array elements that `$[name]` selects.
    array_filters: Vec<ArrayFilter>,
    /// The stages of an update by a pipeline.
    pipeline: Option<Vec<ReshapeStage>>,
    /// Order and equality of strings for the operators that compare.
    collation: Option<Collation>,
}

/// An operator on one value.
#[derive(Debug, Clone)]
pub(crate) enum UpdateOperator {
    Set(OwnedRawValue),
    SetOnInsert(OwnedRawValue),
    Unset,
    Inc(OwnedRawValue),
    Mul(OwnedRawValue),
    /// `and`, `or` and `xor` with numbers, in their order.
    Bit(Vec<(BitOperation, OwnedRawValue)>),
    Min(OwnedRawValue),
    Max(OwnedRawValue),
    CurrentDate {
        timestamp: bool,
    },
    /// The source of a rename, which is removed.
    RenameFrom,
    /// The target of a rename, which gets the value of the source.
    RenameTo(Path),
    Push(Box<PushOperator>),
    AddToSet(Vec<OwnedRawValue>),
    PullAll(Vec<OwnedRawValue>),
    Pull(Box<PullOperator>),
    Pop {
        first: bool,
    },
}

impl UpdateOperator {
    /// Returns an upper bound on the nesting depth of the value that the operator writes.
    fn depth(&self) -> usize {
        let deepest = |values: &[OwnedRawValue]| {
            values.iter().map(|v| 1 + nesting_depth(v.as_raw())).max().unwrap_or(1)
        };
        match self {
            Self::Set(v) | Self::SetOnInsert(v) | Self::Min(v) | Self::Max(v) => nesting_depth(v.as_raw()),
            Self::Push(push) => deepest(&push.values),
            Self::AddToSet(values) => deepest(values),
            Self::RenameTo(_) => usize::MAX / 2,
            _ => 0,
        }
    }
}

/// Returns the nesting depth of documents and arrays.
fn nesting_depth(value: RawValue<'_>) -> usize {
    match value.tag {
        tag::DOCUMENT | tag::ARRAY => {
            1 + elements(value.bytes).map(|e| nesting_depth(e.value)).max().unwrap_or(0)
        }
        tag::CODE_WITH_SCOPE => usize::MAX / 4,
        _ => 0,
    }
}

/// `$push` with its modifiers.
#[derive(Debug, Clone)]
pub(crate) struct PushOperator {
    pub values: Vec<OwnedRawValue>,
    pub position: Option<i64>,
    pub slice: Option<i64>,
    pub sort: Option<PushSort>,
}

/// Order of the elements after a `$push`.
#[derive(Debug, Clone)]
pub(crate) enum PushSort {
    Whole(crate::spec::Direction),
    Fields(SortOrder),
}

/// Condition of `$pull` on the elements to remove.
#[derive(Debug, Clone)]
pub(crate) enum PullOperator {
    /// Elements that are documents matching this filter.
    Documents(Filter),
    /// Elements for which the pseudo field `""` matches.
    Values(Filter),
    /// Elements equal to this value.
    Equal(OwnedRawValue),
}

/// A document before and after an update.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UpdateOutcome {
    /// Document before the update; `None` if there was none.
    pub before: Option<crate::DocBytes>,
    /// Document after the update; equal to `before` if nothing changed, `None` if it does not exist.
    pub after: Option<crate::DocBytes>,
}

impl UpdateOutcome {
    /// Returns whether the update changed anything.
    pub fn is_modified(&self) -> bool {
        self.before != self.after
    }
}

impl Update {
    /// Creates an update without operators.
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses a MongoDB update document, `{ $set: { … }, $inc: { … } }`. Beside the operators, `$arrayFilters` has the filters of the
    /// elements that `$[name]` stands for; `{ $pipeline: [ … ] }` is an update by stages. `now` is the time of `$$NOW`.
    ///
    /// Errors: `FailedToParse` for unknown operators and replacement documents, `ConflictingUpdateOperators`,
    /// `TypeMismatch` and `BadValue` for operands, `EmptyFieldName`.
    pub fn parse(update: &RawDocument, now: Timestamp) -> Result<Self> {
        parse::parse(update, now, None)
    }

    /// Parses an update whose operators compare strings by a collation.
    ///
    /// Errors: as [`Self::parse`].
    pub fn parse_by(update: &RawDocument, now: Timestamp, collation: Option<&Collation>) -> Result<Self> {
        parse::parse(update, now, collation)
    }

    /// Sets the field to the value.
    pub fn set(self, path: &str, value: impl Into<Bson>) -> Self {
        self.with_bson(path, value.into(), UpdateOperator::Set)
    }

    /// Sets the field to the value; a missing value sets null, a time is rounded down to milliseconds.
    pub fn set_value(self, path: &str, value: &Value<'_>) -> Self {
        self.with(path, UpdateOperator::Set(OwnedRawValue::from_value(value)))
    }

    /// Sets the field if the update inserts a document.
    pub fn set_on_insert(self, path: &str, value: impl Into<Bson>) -> Self {
        self.with_bson(path, value.into(), UpdateOperator::SetOnInsert)
    }

    /// Removes the field.
    pub fn unset(self, path: &str) -> Self {
        self.with(path, UpdateOperator::Unset)
    }

    /// Adds a number to the field; a missing field counts as 0.
    pub fn inc(self, path: &str, by: impl Into<Bson>) -> Self {
        self.with_number(path, by.into(), "$inc", UpdateOperator::Inc)
    }

    /// Multiplies the field by a number; a missing field becomes 0.
    pub fn mul(self, path: &str, by: impl Into<Bson>) -> Self {
        self.with_number(path, by.into(), "$mul", UpdateOperator::Mul)
    }

    /// Sets the field if the value is less than it.
    pub fn min(self, path: &str, value: impl Into<Bson>) -> Self {
        self.with_bson(path, value.into(), UpdateOperator::Min)
    }

    /// Sets the field if the value is greater than it.
    pub fn max(self, path: &str, value: impl Into<Bson>) -> Self {
        self.with_bson(path, value.into(), UpdateOperator::Max)
    }

    /// Appends a value to an array.
    pub fn push(self, path: &str, value: impl Into<Bson>) -> Self {
        self.with_bson(path, value.into(), |v| {
            UpdateOperator::Push(Box::new(PushOperator {
                values: vec![v],
                position: None,
                slice: None,
                sort: None,
            }))
        })
    }

    /// Appends a value to an array unless it contains the value.
    pub fn add_to_set(self, path: &str, value: impl Into<Bson>) -> Self {
        self.with_bson(path, value.into(), |v| UpdateOperator::AddToSet(vec![v]))
    }

    /// Removes every element equal to the value from an array.
    pub fn pull(self, path: &str, value: impl Into<Bson>) -> Self {
        self.with_bson(path, value.into(), |v| UpdateOperator::PullAll(vec![v]))
    }

    /// Sets the field to `now` as a date.
    pub fn current_date(self, path: &str) -> Self {
        self.with(path, UpdateOperator::CurrentDate { timestamp: false })
    }

    /// Returns whether there are no operators.
    pub fn is_empty(&self) -> bool {
        self.root.children.is_empty() && self.positional.is_empty() && self.pipeline.is_none()
    }

    /// Returns the document with the update applied. `now` is the time that `$currentDate` writes.
    ///
    /// Errors: those of the operators, with the path and the values in the message; the input is not changed.
    pub fn apply(&self, doc: &RawDocument, now: Timestamp) -> Result<RawDocumentBuf> {
        let mut out = Vec::new();
        self.apply_bytes(doc.as_bytes(), UpdateContext::update(now), &mut out)?;
        RawDocumentBuf::from_bytes(out).map_err(|e| {
            DocsError::new(ErrorCode::InvalidBson, format!("the updated document is not BSON: {e}"))
        })
    }

    /// Returns whether an operator may change the top-level field `top`.
    pub(crate) fn touches(&self, top: &[u8]) -> bool {
        let names = self.positional.iter().filter_map(|(path, _)| path.split('.').next());
        self.pipeline.is_some()
            || self.root.children.iter().any(|(part, _)| *part.name == *top)
            || names.into_iter().any(|name| name.as_bytes() == top)
    }

    /// Returns whether it changes a document whatever its values are: it only sets and removes fields at the top.
    pub(crate) fn suits_all(&self) -> bool {
        let suits = |child: &OperatorTreeChild| {
            use UpdateOperator::{CurrentDate, Set, SetOnInsert, Unset};
            matches!(child, OperatorTreeChild::Leaf(Set(_) | SetOnInsert(_) | Unset | CurrentDate { .. }))
        };
        let is_plain = self.pipeline.is_none() && self.positional.is_empty() && self.error.is_none();
        is_plain && self.root.children.iter().all(|(_, child)| suits(child))
    }

    /// Returns whether it makes the new version by stages.
    pub(crate) fn is_pipeline(&self) -> bool {
        self.pipeline.is_some()
    }

    /// Returns whether applying it depends on the element that the filter has matched.
    pub(crate) fn needs_matched_element(&self) -> bool {
        self.positional.iter().any(|(path, _)| path.split('.').any(|name| name == "$"))
    }

    /// Sets the field to a raw value.
    pub(crate) fn set_raw(self, path: &str, value: RawValue<'_>) -> Self {
        self.with(path, UpdateOperator::Set(OwnedRawValue::of(value)))
    }

    fn with(mut self, path: &str, change: UpdateOperator) -> Self {
        if let Err(e) = self.add(path, change) {
            self.error.get_or_insert(e);
        }
        self
    }

    fn add(&mut self, path: &str, change: UpdateOperator) -> Result<()> {
        self.depth = self.depth.max(path.split('.').count() + change.depth());
        if positional::is_positional(path) {
            return self.add_positional(path, change);
        }
        self.root.add(path, change)
    }

    /// Returns whether the result may be nested deeper than `max`, so that it has to be validated.
    pub(crate) fn may_exceed(&self, max: usize) -> bool {
        self.depth > max || self.pipeline.is_some()
    }

    fn with_bson(
        mut self,
        path: &str,
        value: Bson,
        change: impl FnOnce(OwnedRawValue) -> UpdateOperator,
    ) -> Self {
        match OwnedRawValue::from_bson(&value) {
            Ok(raw) => self.with(path, change(raw)),
            Err(why) => {
                self.error.get_or_insert(DocsError::bad_value(format!("value of `{path}`: {why}")));
                self
            }
        }
    }

    fn with_number(
        mut self,
        path: &str,
        by: Bson,
        op: &str,
        change: impl FnOnce(OwnedRawValue) -> UpdateOperator,
    ) -> Self {
        match OwnedRawValue::from_bson(&by)
            .map_err(DocsError::bad_value)
            .and_then(|n| arith::operand(op, path, n))
        {
            Ok(n) => self.with(path, change(n)),
            Err(e) => {
                self.error.get_or_insert(e);
                self
            }
        }
    }
}
