//! Identity of the documents of an entity: their `_id` is the value of their key.
//!
//! A document that has only one of the two gets the other. One that has both with different values is refused, also where
//! validation is bypassed: rules would not find it. Documents that were stored before this held stay as they are, are
//! counted, and may be changed in their other fields.

use std::borrow::Cow;
use std::sync::Arc;

use super::Collection;
use crate::DocBytes;
use crate::error::{DocsError, Result};
use crate::values::display::display;
use crate::values::order::equal;
use crate::values::raw::{OwnedRawValue, RawValue, close_document, elements, field, put_element, tag};

impl Collection {
    /// Returns the field whose value is the `_id`; `None` if the collection is not an entity.
    pub fn key_field(&self) -> Option<&str> {
        self.key_field.as_deref()
    }

    /// Returns how many documents have an `_id` that is not the value of their key.
    pub fn contradictions(&self) -> u64 {
        self.contradictions
    }

    /// Sets the field whose value is the `_id` from now on.
    pub(crate) fn set_key_field(&mut self, key: Option<&Arc<str>>) {
        if self.key_field.as_ref() == key {
            return;
        }
        self.key_field = key.cloned();
        self.contradictions = match &self.key_field {
            Some(key) => self.iter().filter(|doc| contradicts(doc, key)).count() as u64,
            None => 0,
        };
    }

    /// Returns the key field, unless the command that is applied was written before it was checked.
    pub(crate) fn checked_key(&self) -> Option<&str> {
        self.key_field.as_deref().filter(|_| !self.bypass_identity)
    }

    /// Returns a document with `_id` and key, adding the one that it lacks. Errors: they contradict each
    /// other.
    pub(super) fn identified<'d>(&self, doc: &'d [u8]) -> Result<Cow<'d, [u8]>> {
        match self.checked_key() {
            Some(key) => identified(doc, key, &self.spec.name),
            None => Ok(Cow::Borrowed(doc)),
        }
    }

    /// Inserts a document, or replaces the one with its `_id`, as a load does. Returns whether it is new. Its identity was checked
    /// when it was read.
    ///
    /// Errors: as [`Collection::insert`].
    pub fn load_or_replace(&mut self, doc: DocBytes) -> Result<bool> {
        let bypass = std::mem::replace(&mut self.bypass_identity, true);
        let done = self.replace(doc.clone()).and_then(|done| match done.before {
            Some(_) => Ok(false),
            None => self.insert(doc).map(|_| true),
        });
        self.bypass_identity = bypass;
        done
    }

    /// Returns a replacement with its key, which it may lack as it may lack its `_id`.
    pub(super) fn with_kept_key<'d>(&self, doc: &'d [u8]) -> Cow<'d, [u8]> {
        self.checked_key().map_or(Cow::Borrowed(doc), |key| with_identity(doc, key))
    }

    /// Checks the new version of a document. Errors: its key is not its `_id`, and was not the same before.
    pub(super) fn check_identity(
        &self,
        before: &[u8],
        after: &[u8],
        touches: &impl Fn(&[u8]) -> bool,
    ) -> Result<()> {
        let Some(key) = self.checked_key().filter(|key| touches(key.as_bytes())) else { return Ok(()) };
        let value = |doc| field(doc, key.as_bytes()).map(|e| e.value);
        let is_equal = |a: Option<RawValue<'_>>, b: Option<RawValue<'_>>| match (a, b) {
            (Some(a), Some(b)) => equal(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        let id = field(after, b"_id").map(|e| e.value);
        if is_equal(value(after), id) || is_equal(value(after), value(before)) {
            return Ok(());
        }
        let shown = id.map_or_else(String::new, display);
        let reason = format!(
            "entity {}: the key `{key}` is the _id of the document, {shown}, and cannot be changed or removed: \
             delete the document and insert it with the other key",
            self.spec.name
        );
        Err(refusal(after, key, &reason))
    }

    /// Counts the documents that contradict themselves when one is replaced, inserted or deleted.
    pub(super) fn count_contradictions(&mut self, before: Option<&[u8]>, after: Option<&[u8]>) {
        if self.contradictions == 0 && !self.bypass_identity {
            return;
        }
        let Some(key) = self.key_field.clone() else { return };
        let count = |doc: Option<&[u8]>| u64::from(doc.is_some_and(|doc| contradicts(doc, &key)));
        self.contradictions = (self.contradictions + count(after)).saturating_sub(count(before));
    }
}

/// Returns a document of an entity with `_id` and key, adding the one that it lacks.
///
/// Errors: they contradict each other.
pub fn identified<'d>(doc: &'d [u8], key: &str, entity: &str) -> Result<Cow<'d, [u8]>> {
    match (field(doc, b"_id"), field(doc, key.as_bytes())) {
        (Some(id), Some(value)) if !equal(id.value, value.value) => {
            let (id, value) = (display(id.value), display(value.value));
            let reason = format!(
                "entity {entity}: `_id` must be the value of its key `{key}`, found _id: {id} and {key}: {value}; \
                 write _id: {value}, with or without {key}: {value} (drivers make an `_id` where there is none)"
            );
            Err(refusal(doc, key, &reason))
        }
        _ => Ok(with_identity(doc, key)),
    }
}

/// Returns a document of an entity with this key, adding the one of `_id` and key that it lacks. A document
/// that contradicts itself or has neither stays as it is.
pub fn with_identity<'d>(doc: &'d [u8], key: &str) -> Cow<'d, [u8]> {
    let (id, value) = (field(doc, b"_id"), field(doc, key.as_bytes()));
    let (id, value) = match (id, value) {
        (Some(id), None) => (id.value, id.value),
        (None, Some(value)) => (value.value, value.value),
        _ => return Cow::Borrowed(doc),
    };
    let mut out = Vec::with_capacity(doc.len() + key.len() + id.bytes.len() + 8);
    out.extend_from_slice(&[0; 4]);
    put_element(&mut out, b"_id", id);
    put_element(&mut out, key.as_bytes(), value);
    for e in elements(doc).filter(|e| e.name != b"_id" && e.name != key.as_bytes()) {
        out.extend_from_slice(&doc[e.start..e.end]);
    }
    close_document(&mut out, 0);
    Cow::Owned(out)
}

/// Returns whether the `_id` of a document is not the value of its key.
fn contradicts(doc: &[u8], key: &str) -> bool {
    match (field(doc, b"_id"), field(doc, key.as_bytes())) {
        (Some(id), Some(value)) => !equal(id.value, value.value),
        _ => true,
    }
}

/// Returns the error of a validator that compares `_id` and key.
fn refusal(doc: &[u8], key: &str, reason: &str) -> DocsError {
    let text = |text: &str| OwnedRawValue::string(text);
    let mut both = vec![0; 4];
    put_element(&mut both, b"0", text("$_id").as_raw());
    put_element(&mut both, b"1", text(&format!("${key}")).as_raw());
    close_document(&mut both, 0);
    let equal = RawValue { tag: tag::ARRAY, bytes: &both }.in_document("$eq");
    let condition = RawValue { tag: tag::DOCUMENT, bytes: &equal }.in_document("$expr");
    let mut details = vec![0; 4];
    put_element(&mut details, b"operatorName", text("$expr").as_raw());
    put_element(&mut details, b"specifiedAs", RawValue { tag: tag::DOCUMENT, bytes: &condition });
    put_element(&mut details, b"reason", text(reason).as_raw());
    close_document(&mut details, 0);
    let mut info = vec![0; 4];
    if let Some(id) = field(doc, b"_id") {
        put_element(&mut info, b"failingDocumentId", id.value);
    }
    put_element(&mut info, b"details", RawValue { tag: tag::DOCUMENT, bytes: &details });
    close_document(&mut info, 0);
    DocsError::document_validation(DocBytes::from(info)).because(reason)
}
