//! The partition that has the document with an `_id`.

use bson::{DateTime, RawBson, rawdoc};
use serde::{Deserialize, Serialize};
use tidemill_docs::{Collation, Collection, DocBytes, Filter};
use tidemill_types::{Result, Value};

/// Partition that has the document with an `_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum PlaceOfId {
    /// The one that the `_id` determines.
    Home,
    /// It cannot be told.
    Unknown,
    /// Several may, as the collation decides which `_id`s are equal.
    Any,
}

impl PlaceOfId {
    /// Returns the place of the document with this `_id`.
    pub fn of(part: &Collection, id: &Value<'_>) -> Self {
        // a string may equal others, in any partition
        if matches!(id, Value::Str(_) | Value::Bson(_)) && part.collation().is_some() {
            return Self::Any;
        }
        let spec = part.spec();
        let is_home =
            spec.replicated || !spec.gathered && spec.shard_key.as_deref().is_none_or(|key| key == "_id");
        if is_home { Self::Home } else { Self::Unknown }
    }
}

/// Returns the document with this `_id`, and where it may be if it is not in the part.
pub fn find_by_id(part: &Collection, id: &Value<'_>) -> (Option<DocBytes>, PlaceOfId) {
    match PlaceOfId::of(part, id) {
        PlaceOfId::Any => (None, PlaceOfId::Any),
        place => (part.get(id).cloned(), place),
    }
}

/// Returns an `_id` as BSON.
pub fn raw_id(id: &Value<'_>) -> RawBson {
    match id {
        Value::Missing | Value::Null => RawBson::Null,
        Value::Bool(value) => RawBson::Boolean(*value),
        Value::Int(number) => RawBson::Int64(*number),
        Value::Float(number) => RawBson::Double(*number),
        Value::Str(text) => RawBson::String(text.clone().into_owned()),
        Value::Time(time) => RawBson::DateTime(DateTime::from_millis(time.0.div_euclid(1000))),
        Value::Bson(value) => RawBson::from(*value),
    }
}

/// Returns the filter for the document with an `_id`, which another process can evaluate, too.
///
/// Errors: `Invalid` for an `_id` that no document has.
pub fn id_filter(id: &Value<'_>, collation: Option<&Collation>) -> Result<Filter> {
    let filter = rawdoc! { "_id": { "$eq": raw_id(id) } };
    Ok(Filter::parse_by(&filter, collation)?.with_source(&filter, collation))
}
