//! A BSON document inside a definition.

use std::fmt;

use bson::raw::{RawDocument, RawDocumentBuf};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::DocBytes;
use crate::values::display::display;
use crate::values::raw::{EMPTY, RawValue, tag};

/// A document as it was received, such as the filter of an index. Two are equal if their bytes are.
#[derive(Clone, PartialEq, Eq)]
pub struct BsonDocument(DocBytes);

impl BsonDocument {
    /// Copies a document.
    pub fn new(document: &RawDocument) -> Self {
        Self(DocBytes::copy_from_slice(document.as_bytes()))
    }

    /// Returns the document.
    pub fn as_raw(&self) -> &RawDocument {
        RawDocument::from_bytes(&self.0)
            .or_else(|_| RawDocument::from_bytes(EMPTY))
            .unwrap_or_else(|_| unreachable!("a document without fields"))
    }

    /// Returns the bytes of the document.
    pub fn bytes(&self) -> &DocBytes {
        &self.0
    }
}

impl fmt::Display for BsonDocument {
    /// Writes the document in one line, truncated: `{ a: 1 }`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&display(RawValue { tag: tag::DOCUMENT, bytes: &self.0 }))
    }
}

impl fmt::Debug for BsonDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for BsonDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.as_raw().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for BsonDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawDocumentBuf::deserialize(deserializer).map(|document| Self(document.into_bytes().into()))
    }
}
