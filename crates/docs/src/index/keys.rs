//! The keys of a document in an index of two or more fields.
//!
//! An array gives one entry for each of its elements. Fields inside the elements of one array are taken from the same
//! element, so `{a: [{b: 1, c: 2}, {b: 3, c: 4}]}` has the entries (1, 2) and (3, 4) in an index over `a.b` and `a.c`.

use smallvec::SmallVec;

use super::{Index, IndexKeys, put_field};
use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::INDEX_KEYS_PER_DOCUMENT_MAX;
use crate::values::key::{Key, KeyBuf};
use crate::values::path::PathSegment;
use crate::values::raw::{RawValue, elements, field, tag};

/// A field of the index on its way into the document: the value reached so far, and the rest of the path. A value of `None` is
/// missing.
#[derive(Clone, Copy)]
struct FieldCursor<'a> {
    value: Option<RawValue<'a>>,
    rest: &'a [PathSegment],
    /// True if the value is that of the field, even if it is an array.
    done: bool,
}

type Cursors<'a> = SmallVec<[FieldCursor<'a>; 4]>;

/// Builds the keys of one document.
pub(super) struct CompoundKeys<'a> {
    index: &'a Index,
    keys: IndexKeys,
}

impl<'a> CompoundKeys<'a> {
    /// Returns the keys of `doc`, without duplicates and in order.
    ///
    /// Errors: two fields have different arrays; too many keys; an array in a hashed field.
    pub fn of(index: &'a Index, doc: &'a [u8]) -> Result<IndexKeys> {
        let root = RawValue { tag: tag::DOCUMENT, bytes: doc };
        let cursors = index
            .fields
            .iter()
            .map(|(path, _)| FieldCursor { value: Some(root), rest: &path.parts, done: false })
            .collect();
        let mut builder = Self { index, keys: SmallVec::new() };
        builder.expand(cursors)?;
        let mut keys = builder.keys;
        keys.sort_unstable();
        keys.dedup();
        Ok(keys)
    }

    /// Adds the keys of these cursors; each array on the way is one level of recursion.
    fn expand(&mut self, mut cursors: Cursors<'a>) -> Result<()> {
        for cursor in &mut cursors {
            cursor.advance()?;
        }
        let Some(first) = cursors.iter().position(|cursor| !cursor.done) else {
            return self.push(&cursors);
        };
        let array = cursors[first].value.map_or(&[][..], |value| value.bytes);
        if let Some(other) = cursors.iter().position(|cursor| !cursor.done && !cursor.is_at(array)) {
            let path = |at: usize| self.index.fields.get(at).map_or("", |(path, _)| path.as_str());
            return Err(DocsError::new(
                ErrorCode::CannotIndexParallelArrays,
                format!(
                    "index `{}`: cannot index parallel arrays [{}] [{}]",
                    self.index.spec.name,
                    path(other),
                    path(first)
                ),
            ));
        }
        if let Some(at) = cursors.iter().position(|cursor| !cursor.done) {
            self.index.refuse_hashed_array(at)?;
        }
        let mut empty = true;
        for element in elements(array) {
            empty = false;
            self.expand(cursors.iter().map(|cursor| cursor.into_element(element.value)).collect())?;
        }
        if empty {
            self.expand(cursors.iter().map(|cursor| cursor.of_empty_array()).collect())?;
        }
        Ok(())
    }

    fn push(&mut self, cursors: &Cursors<'a>) -> Result<()> {
        // of a sparse index, an entry without any of the fields is left out
        if self.index.spec.sparse && cursors.iter().all(|cursor| cursor.value.is_none()) {
            return Ok(());
        }
        if self.keys.len() >= INDEX_KEYS_PER_DOCUMENT_MAX {
            return Err(self.index.too_many_keys());
        }
        let mut key = KeyBuf::new();
        for (at, cursor) in cursors.iter().enumerate() {
            let value = cursor.value.unwrap_or(RawValue::NULL);
            match self.index.fields.get(at) {
                Some((_, direction)) if self.index.hashed != Some(at) => {
                    put_field(&mut key, value, *direction, self.index.collation.as_ref())
                }
                _ => super::put_hash(&mut key, value, self.index.collation.as_ref()),
            }
        }
        self.keys.push(Key(key));
        Ok(())
    }
}

impl<'a> FieldCursor<'a> {
    /// Goes down through documents, and through an array whose element the path selects by number, until the value of the field
    /// or an array.
    fn advance(&mut self) -> Result<()> {
        while !self.done {
            let Some(value) = self.value else {
                self.done = true;
                break;
            };
            match (value.tag, self.rest.split_first()) {
                (tag::ARRAY, None) => break,
                (_, None) => self.done = true,
                (tag::DOCUMENT, Some((part, rest))) => {
                    (self.value, self.rest) = (field(value.bytes, &part.name).map(|e| e.value), rest);
                }
                (tag::ARRAY, Some((part, rest))) => {
                    let Some(selected) = selected(value.bytes, part)? else { break };
                    (self.value, self.rest) = (Some(selected), rest);
                }
                (_, Some(_)) => self.value = None,
            }
        }
        Ok(())
    }

    fn is_at(&self, array: &[u8]) -> bool {
        self.value.is_some_and(|value| std::ptr::eq(value.bytes, array))
    }

    fn into_element(self, element: RawValue<'a>) -> Self {
        match (self.done, self.rest.is_empty(), element.tag) {
            (true, _, _) => self,
            // arrays inside arrays are values
            (false, true, _) => Self { value: Some(element), done: true, ..self },
            (false, false, tag::DOCUMENT) => Self { value: Some(element), ..self },
            (false, false, _) => Self { value: None, done: true, ..self },
        }
    }

    fn of_empty_array(self) -> Self {
        match (self.done, self.rest.is_empty()) {
            (true, _) => self,
            (false, true) => {
                Self { value: Some(RawValue { tag: tag::UNDEFINED, bytes: &[] }), done: true, ..self }
            }
            (false, false) => Self { value: None, done: true, ..self },
        }
    }
}

/// Returns the element of an array that a segment selects by number.
///
/// Errors: the segment is also the name of a field of one of its elements.
fn selected<'a>(array: &'a [u8], part: &PathSegment) -> Result<Option<RawValue<'a>>> {
    let Some(at) = part.index.and_then(|at| usize::try_from(at).ok()) else { return Ok(None) };
    let named = |value: RawValue<'_>| value.tag == tag::DOCUMENT && field(value.bytes, &part.name).is_some();
    let found = elements(array).nth(at).map(|e| e.value);
    if found.is_some() && elements(array).any(|e| named(e.value)) {
        let name = part.text();
        return Err(DocsError::new(
            ErrorCode::AmbiguousIndexPath,
            format!(
                "the name '{name}' in the path of an index is the number of an element and a field of another one"
            ),
        ));
    }
    Ok(found)
}
