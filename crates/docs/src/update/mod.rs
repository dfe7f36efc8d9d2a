//! Updates: operators over paths, applied to raw documents in one pass.
//!
//! The operators of an update form a tree by their paths. Applying it walks the document once beside the tree:
//! stretches of elements that no operator names are copied as they lie, the others are computed from their old
//! bytes, and fields that were not there are added at the end, in order of their names as MongoDB does.
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
mod tree;

use bson::Bson;
use bson::raw::{RawDocument, RawDocumentBuf};
use tidemill_types::{Timestamp, Value};

use crate::error::{DocsError, ErrorCode, Result};
use crate::filter::Filter;
use crate::path::Path;
use crate::raw::{OwnedRawValue, RawValue, elements, tag};
use crate::sort::SortOrder;
pub(crate) use apply::UpdateContext;
use tree::OperatorTree;

/// A parsed update. Built with [`Update::parse`] from MongoDB's form, or with [`Update::new`] and its operators.
#[derive(Debug, Clone, Default)]
pub struct Update {
    root: OperatorTree,
    /// The first mistake of a programmatic update; told when it is applied.
    error: Option<DocsError>,
    /// Levels that the result may have where an operator wrote; a rename may move any number.
    depth: usize,
}

/// What an operator does to one value.
#[derive(Debug, Clone)]
pub(crate) enum UpdateOperator {
    Set(OwnedRawValue),
    SetOnInsert(OwnedRawValue),
    Unset,
    Inc(OwnedRawValue),
    Mul(OwnedRawValue),
    Min(OwnedRawValue),
    Max(OwnedRawValue),
    CurrentDate {
        timestamp: bool,
    },
    /// The source of a rename: goes away.
    RenameFrom,
    /// The target of a rename: takes the value that the source had.
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
    /// Levels below the field that it may make.
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

/// Documents and arrays inside one another.
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

/// What `$pull` takes out.
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
    /// The document as it was; `None` when there was none.
    pub before: Option<crate::DocBytes>,
    /// The document as it is; equal to `before` when the update changed nothing, `None` when there is none.
    pub after: Option<crate::DocBytes>,
}

impl UpdateOutcome {
    /// Whether the update changed anything.
    pub fn is_modified(&self) -> bool {
        self.before != self.after
    }
}

impl Update {
    /// An update that does nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads MongoDB's form, `{ $set: { … }, $inc: { … } }`.
    ///
    /// Errors: `FailedToParse` for unknown operators and replacement documents, `ConflictingUpdateOperators`,
    /// `TypeMismatch` and `BadValue` for operands, `EmptyFieldName`.
    pub fn parse(update: &RawDocument) -> Result<Self> {
        parse::parse(update)
    }

    /// Sets the field to the value.
    pub fn set(self, path: &str, value: impl Into<Bson>) -> Self {
        self.with_bson(path, value.into(), UpdateOperator::Set)
    }

    /// Sets the field to the value; a missing value sets null, a time loses what is below a millisecond.
    pub fn set_value(self, path: &str, value: &Value<'_>) -> Self {
        self.with(path, UpdateOperator::Set(OwnedRawValue::from_value(value)))
    }

    /// Sets the field when the update inserts a document.
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

    /// Sets the field when the value is less than it.
    pub fn min(self, path: &str, value: impl Into<Bson>) -> Self {
        self.with_bson(path, value.into(), UpdateOperator::Min)
    }

    /// Sets the field when the value is greater than it.
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

    /// Appends a value to an array unless it is there.
    pub fn add_to_set(self, path: &str, value: impl Into<Bson>) -> Self {
        self.with_bson(path, value.into(), |v| UpdateOperator::AddToSet(vec![v]))
    }

    /// Removes every element that equals the value from an array.
    pub fn pull(self, path: &str, value: impl Into<Bson>) -> Self {
        self.with_bson(path, value.into(), |v| UpdateOperator::PullAll(vec![v]))
    }

    /// Sets the field to `now` as a date.
    pub fn current_date(self, path: &str) -> Self {
        self.with(path, UpdateOperator::CurrentDate { timestamp: false })
    }

    /// Whether there is no operator in it.
    pub fn is_empty(&self) -> bool {
        self.root.children.is_empty()
    }

    /// The document with the update applied to it. `now` is what `$currentDate` writes.
    ///
    /// Errors: those of the operators, the path and the values in the message; the input is not changed.
    pub fn apply(&self, doc: &RawDocument, now: Timestamp) -> Result<RawDocumentBuf> {
        let mut out = Vec::new();
        self.apply_bytes(doc.as_bytes(), UpdateContext::update(now), &mut out)?;
        RawDocumentBuf::from_bytes(out).map_err(|e| {
            DocsError::new(ErrorCode::InvalidBson, format!("the updated document is not BSON: {e}"))
        })
    }

    /// The top-level names that operators may change.
    pub(crate) fn touches(&self, top: &[u8]) -> bool {
        self.root.children.iter().any(|(part, _)| *part.name == *top)
    }

    /// Sets the field to a value where it lies.
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
        self.root.add(path, change)
    }

    /// Whether the result may be nested deeper than `max`, so that it has to be looked at.
    pub(crate) fn may_exceed(&self, max: usize) -> bool {
        self.depth > max
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
