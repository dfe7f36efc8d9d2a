//! What an update changed: the difference of two versions of a document.

use bson::RawArrayBuf;
use bson::raw::{RawDocument, RawDocumentBuf};

use crate::error::{DocsError, ErrorCode, Result};
use crate::values::raw::{RawElement, RawValue, close_document, elements, field, put_element, tag};

/// The difference of two versions of a document, as change streams tell it: paths with dots, and elements of arrays by number.
#[derive(Debug, Clone, PartialEq)]
pub struct UpdateDescription {
    /// New values by path.
    pub updated: RawDocumentBuf,
    /// Paths that are gone.
    pub removed: Vec<String>,
    /// Arrays that became shorter: path, and new length.
    pub truncated: Vec<(String, u32)>,
    /// Parts of the paths in which a field has a number or a dot in its name, so that it could be taken for an element or for two fields.
    pub ambiguous: Vec<(String, Vec<PathPart>)>,
}

/// A part of a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathPart {
    /// A field of a document.
    Field(String),
    /// An element of an array.
    Element(u32),
}

impl PathPart {
    fn is_ambiguous(&self) -> bool {
        matches!(self, Self::Field(name) if name.contains('.') || name.parse::<u32>().is_ok())
    }
}

impl UpdateDescription {
    /// Compares two versions of a document.
    ///
    /// Errors: bytes that are no document.
    pub fn between(before: &[u8], after: &[u8]) -> Result<Self> {
        let mut comparison = DocumentComparison {
            updated: vec![0; 4],
            removed: Vec::new(),
            truncated: Vec::new(),
            path: String::new(),
            ambiguous: Vec::new(),
            parts: Vec::new(),
            in_array: false,
        };
        comparison.documents(before, after);
        close_document(&mut comparison.updated, 0);
        let updated = RawDocument::from_bytes(&comparison.updated)
            .map_err(|e| DocsError::new(ErrorCode::InvalidBson, e.to_string()))?
            .to_owned();
        let DocumentComparison { removed, truncated, ambiguous, .. } = comparison;
        Ok(Self { updated, removed, truncated, ambiguous })
    }

    /// Returns `{ updatedFields, removedFields, truncatedArrays }`, and `disambiguatedPaths` if there are ambiguous ones.
    pub fn to_document(&self) -> RawDocumentBuf {
        let mut removed = RawArrayBuf::new();
        self.removed.iter().for_each(|path| removed.push(path.as_str()));
        let mut truncated = RawArrayBuf::new();
        for (path, length) in &self.truncated {
            truncated.push(bson::rawdoc! { "field": path.as_str(), "newSize": *length as i32 });
        }
        let mut description = RawDocumentBuf::new();
        description.append(bson::cstr!("updatedFields"), self.updated.clone());
        description.append(bson::cstr!("removedFields"), removed);
        description.append(bson::cstr!("truncatedArrays"), truncated);
        let mut paths = RawDocumentBuf::new();
        for (path, parts) in &self.ambiguous {
            let mut array = RawArrayBuf::new();
            for part in parts {
                match part {
                    PathPart::Field(name) => array.push(name.as_str()),
                    PathPart::Element(at) => array.push(at.cast_signed()),
                }
            }
            // a name of a field has no NUL
            if let Ok(path) = bson::raw::CString::try_from(path.clone()) {
                paths.append(path, array);
            }
        }
        if !paths.is_empty() {
            description.append(bson::cstr!("disambiguatedPaths"), paths);
        }
        description
    }
}

struct DocumentComparison {
    updated: Vec<u8>,
    removed: Vec<String>,
    truncated: Vec<(String, u32)>,
    /// Path of the documents that are compared, with a dot at its end unless it is empty.
    path: String,
    ambiguous: Vec<(String, Vec<PathPart>)>,
    /// Parts of `path`.
    parts: Vec<PathPart>,
    /// True while elements of an array are compared.
    in_array: bool,
}

impl DocumentComparison {
    fn documents(&mut self, before: &[u8], after: &[u8]) {
        for old in elements(before).filter(|old| field(after, old.name).is_none()) {
            let path = format!("{}{}", self.path, String::from_utf8_lossy(old.name));
            self.note_ambiguous(&path, old.name);
            self.removed.push(path);
        }
        for new in elements(after) {
            self.element(field(before, new.name), &new);
        }
    }

    fn element(&mut self, old: Option<RawElement<'_>>, new: &RawElement<'_>) {
        let Some(old) = old else { return self.put(new) };
        if old.value.tag == new.value.tag && old.value.bytes == new.value.bytes {
            return;
        }
        match (old.value.tag, new.value.tag) {
            (tag::DOCUMENT, tag::DOCUMENT) => {
                self.inside(new.name, false, |inner| inner.documents(old.value.bytes, new.value.bytes));
            }
            (tag::ARRAY, tag::ARRAY) => self.arrays(new, old.value, new.value),
            // values of other types may be equal, as 1 and 1.0, but the document has changed
            _ => self.put(new),
        }
    }

    /// Compares arrays element by element, unless more of them were exchanged than not: then the whole array is the new value.
    fn arrays(&mut self, element: &RawElement<'_>, old: RawValue<'_>, new: RawValue<'_>) {
        let (old_len, new_len) = (elements(old.bytes).count(), elements(new.bytes).count());
        let same = elements(old.bytes)
            .zip(elements(new.bytes))
            .filter(|(a, b)| is_same(a.value, b.value) || is_changed_inside(a.value, b.value))
            .count();
        if same * 2 < new_len.min(old_len) || new_len == 0 {
            return self.put(element);
        }
        if new_len < old_len {
            let path = format!("{}{}", self.path, String::from_utf8_lossy(element.name));
            self.note_ambiguous(&path, element.name);
            self.truncated.push((path, new_len as u32));
        }
        self.inside(element.name, true, |inner| {
            let mut old = elements(old.bytes);
            for new in elements(new.bytes) {
                inner.element(old.next(), &new);
            }
        });
    }

    fn part(&self, name: &[u8]) -> PathPart {
        let name = String::from_utf8_lossy(name);
        match name.parse() {
            Ok(at) if self.in_array => PathPart::Element(at),
            _ => PathPart::Field(name.into_owned()),
        }
    }

    fn note_ambiguous(&mut self, path: &str, last: &[u8]) {
        let last = self.part(last);
        if self.parts.iter().any(PathPart::is_ambiguous) || last.is_ambiguous() {
            let parts = self.parts.iter().cloned().chain([last]).collect();
            self.ambiguous.push((path.to_owned(), parts));
        }
    }

    /// Compares what is inside a field or an element; `is_array` says what it is.
    fn inside(&mut self, name: &[u8], is_array: bool, compare: impl FnOnce(&mut Self)) {
        let outer = self.path.len();
        let part = self.part(name);
        self.parts.push(part);
        let outer_in_array = std::mem::replace(&mut self.in_array, is_array);
        self.path.push_str(&String::from_utf8_lossy(name));
        self.path.push('.');
        compare(self);
        self.path.truncate(outer);
        self.parts.pop();
        self.in_array = outer_in_array;
    }

    fn put(&mut self, element: &RawElement<'_>) {
        let mut path = self.path.clone().into_bytes();
        path.extend_from_slice(element.name);
        self.note_ambiguous(&String::from_utf8_lossy(&path), element.name);
        put_element(&mut self.updated, &path, element.value);
    }
}

fn is_same(a: RawValue<'_>, b: RawValue<'_>) -> bool {
    a.tag == b.tag && a.bytes == b.bytes
}

/// Returns whether an element seems to be the same one with other contents: a document with the same fields, or in which one has kept
/// its value; an array of the same length.
fn is_changed_inside(old: RawValue<'_>, new: RawValue<'_>) -> bool {
    let names = |value: RawValue<'_>| elements(value.bytes).map(|e| e.name.to_vec()).collect::<Vec<_>>();
    match (old.tag, new.tag) {
        (tag::DOCUMENT, tag::DOCUMENT) => {
            let kept =
                |e: RawElement<'_>| field(old.bytes, e.name).is_some_and(|o| is_same(o.value, e.value));
            names(old) == names(new) || elements(new.bytes).any(kept)
        }
        (tag::ARRAY, tag::ARRAY) => elements(old.bytes).count() == elements(new.bytes).count(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described(before: bson::Document, after: bson::Document) -> String {
        let bytes = |d: &bson::Document| RawDocumentBuf::try_from(d).unwrap().into_bytes();
        let description = UpdateDescription::between(&bytes(&before), &bytes(&after)).unwrap();
        bson::Document::try_from(description.to_document()).unwrap().to_string()
    }

    #[test]
    fn names_what_changed() {
        use bson::doc;
        for (before, after, expected) in [
            (
                doc! { "a": 1 },
                doc! { "a": 1 },
                r#"{ "updatedFields": {}, "removedFields": [], "truncatedArrays": [] }"#,
            ),
            (
                doc! { "a": 1, "b": 1, "c": 1 },
                doc! { "a": 2, "c": 1, "d": "x" },
                r#"{ "updatedFields": { "a": 2, "d": "x" }, "removedFields": ["b"], "truncatedArrays": [] }"#,
            ),
            (
                doc! { "a": { "b": { "c": 1, "d": 2 }, "e": 3 } },
                doc! { "a": { "b": { "c": 1, "d": 4 } } },
                r#"{ "updatedFields": { "a.b.d": 4 }, "removedFields": ["a.e"], "truncatedArrays": [] }"#,
            ),
            (
                doc! { "a": [1, 2, 3] },
                doc! { "a": [1, 5, 3, 4] },
                r#"{ "updatedFields": { "a.1": 5, "a.3": 4 }, "removedFields": [], "truncatedArrays": [] }"#,
            ),
            (
                doc! { "a": [1, 2, 3] },
                doc! { "a": [1, 2] },
                r#"{ "updatedFields": {}, "removedFields": [], "truncatedArrays": [{ "field": "a", "newSize": 2 }] }"#,
            ),
            (
                doc! { "a": { "1": 1 }, "b": [{ "2": 1 }, 3], "c": { "x": 1 } },
                doc! { "a": { "1": 2 }, "b": [{ "2": 2 }, 3], "c": { "x": 2 } },
                r#"{ "updatedFields": { "a.1": 2, "b.0.2": 2, "c.x": 2 }, "removedFields": [], "truncatedArrays": [], "disambiguatedPaths": { "a.1": ["a", "1"], "b.0.2": ["b", 0, "2"] } }"#,
            ),
            (
                doc! { "a": [{ "1": 1 }] },
                doc! { "a": [{ "1": 2 }] },
                r#"{ "updatedFields": { "a.0.1": 2 }, "removedFields": [], "truncatedArrays": [], "disambiguatedPaths": { "a.0.1": ["a", 0, "1"] } }"#,
            ),
            (
                doc! { "a": [{ "k": 1, "n": 1 }, [1, 2]] },
                doc! { "a": [{ "k": 1, "m": 1 }, [1, 3]] },
                r#"{ "updatedFields": { "a.0.m": 1, "a.1.1": 3 }, "removedFields": ["a.0.n"], "truncatedArrays": [] }"#,
            ),
            (
                doc! { "a": [{ "k": 1 }, { "k": 2 }] },
                doc! { "a": [{ "x": 1 }, { "y": 2 }] },
                r#"{ "updatedFields": { "a": [{ "x": 1 }, { "y": 2 }] }, "removedFields": [], "truncatedArrays": [] }"#,
            ),
            (
                doc! { "a": [1, 2, 3], "n": 1 },
                doc! { "a": [7], "n": 1.0 },
                r#"{ "updatedFields": { "a": [7], "n": 1 }, "removedFields": [], "truncatedArrays": [] }"#,
            ),
        ] {
            assert_eq!(described(before, after), expected);
        }
    }
}
