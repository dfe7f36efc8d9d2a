//! Documents on their way into a collection.

use std::borrow::Cow;
use std::ops::Range;

use bson::oid::ObjectId;
use tidemill_types::Value;

use crate::DocBytes;
use crate::collection::{with_id_first, with_identity};
use crate::values::raw::{RawElement, RawValue, field, tag, view};

/// Document that has an `_id`, whose place is known: routing and storing it need not look for it again.
///
/// ```
/// use tidemill_docs::PreparedDocument;
/// use tidemill_types::Value;
///
/// let sent = bson::rawdoc! { "size": 3, "_id": "bolt" };
/// let document = PreparedDocument::new(sent.into_bytes().into(), None);
/// assert!(matches!(document.id(), Value::Str(id) if id == "bolt"));
/// ```
#[derive(Debug, Clone)]
pub struct PreparedDocument {
    bytes: DocBytes,
    /// Range of the element `_id`.
    id: Range<usize>,
    /// Type of the value of `_id`, and the range of its bytes.
    value: (u8, Range<usize>),
}

impl PreparedDocument {
    /// Prepares a document, valid BSON, for a collection: with its own `_id`, the value of its `key`, or a new ObjectId. Of `_id` and
    /// `key` a document that has one gets the other. A document that lacks nothing is not copied.
    pub fn new(document: DocBytes, key: Option<&str>) -> Self {
        let identified = |document: DocBytes| match key.map(|key| with_identity(&document, key)) {
            Some(Cow::Owned(changed)) => changed.into(),
            Some(Cow::Borrowed(_)) | None => document,
        };
        let document = identified(document);
        if let Some(id) = field(&document, b"_id") {
            let (id, value) = places(&id);
            return Self { bytes: document, id, value };
        }
        let new = ObjectId::new().bytes();
        let with_id = with_id_first(&document, RawValue { tag: tag::OBJECT_ID, bytes: &new });
        let bytes = identified(with_id.into());
        // both functions put it in front, with a value of 12 bytes
        let start = 4;
        let end = start + 1 + b"_id\0".len() + new.len();
        Self { bytes, id: start..end, value: (tag::OBJECT_ID, end - new.len()..end) }
    }

    /// Returns the document.
    pub fn bytes(&self) -> &DocBytes {
        &self.bytes
    }

    /// Returns the document.
    pub fn into_bytes(self) -> DocBytes {
        self.bytes
    }

    /// Returns the `_id` as rules read it.
    pub fn id(&self) -> Value<'_> {
        let (tag, bytes) = &self.value;
        let value = RawValue { tag: *tag, bytes: &self.bytes[bytes.clone()] };
        view(&self.bytes, &RawElement { start: self.id.start, end: self.id.end, name: b"_id", value })
    }
}

fn places(id: &RawElement<'_>) -> (Range<usize>, (u8, Range<usize>)) {
    (id.start..id.end, (id.value.tag, id.end - id.value.bytes.len()..id.end))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn prepared(document: bson::RawDocumentBuf, key: Option<&str>) -> PreparedDocument {
        PreparedDocument::new(document.into_bytes().into(), key)
    }

    fn text(value: &Value<'_>) -> String {
        format!("{value:?}")
    }

    #[test]
    fn a_document_keeps_its_id_and_its_bytes() {
        for document in [rawdoc! { "_id": 7, "a": 1 }, rawdoc! { "a": 1, "_id": 7 }] {
            let bytes: DocBytes = document.into_bytes().into();
            let prepared = PreparedDocument::new(bytes.clone(), None);
            assert_eq!(text(&prepared.id()), text(&Value::Int(7)));
            assert_eq!(prepared.bytes().as_ptr(), bytes.as_ptr(), "it was copied");
        }
    }

    #[test]
    fn ids_of_all_kinds_are_those_that_a_path_reads() {
        let oid = ObjectId::from_bytes([9; 12]);
        let ids = [
            rawdoc! { "_id": oid },
            rawdoc! { "_id": { "a": 1 } },
            rawdoc! { "_id": [1, 2] },
            rawdoc! { "_id": "text" },
            rawdoc! { "_id": 1.5 },
            rawdoc! { "_id": bson::RawBson::Null },
            rawdoc! { "_id": bson::DateTime::from_millis(5) },
        ];
        for document in ids {
            let prepared = prepared(document.clone(), None);
            assert_eq!(text(&prepared.id()), text(&crate::get_path(&document, "_id")), "{document:?}");
        }
    }

    #[test]
    fn a_missing_id_is_the_key_or_new() {
        let of_key = prepared(rawdoc! { "a": 1, "name": "bolt" }, Some("name"));
        assert_eq!(text(&of_key.id()), text(&Value::str("bolt")));
        let new = prepared(rawdoc! { "a": 1 }, None);
        let raw = bson::RawDocument::from_bytes(new.bytes()).unwrap();
        assert_eq!(text(&new.id()), text(&crate::get_path(raw, "_id")));
        assert!(matches!(new.id(), Value::Bson(bson::RawBsonRef::ObjectId(_))));
        // an entity without both gets the same new value twice
        let of_entity = prepared(rawdoc! { "a": 1 }, Some("name"));
        let raw = bson::RawDocument::from_bytes(of_entity.bytes()).unwrap();
        assert_eq!(text(&of_entity.id()), text(&crate::get_path(raw, "name")));
        assert_eq!(text(&of_entity.id()), text(&crate::get_path(raw, "_id")));
    }
}
