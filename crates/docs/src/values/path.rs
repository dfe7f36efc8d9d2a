//! Dotted paths such as `a.b.0.c`.

use std::cmp::Ordering;
use std::fmt;

use bson::raw::RawDocument;
use smallvec::SmallVec;
use tidemill_types::Value;

use crate::values::raw::{RawElement, RawValue, elements, field, tag, view};

/// A dotted path, split into its segments once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    text: Box<str>,
    pub(crate) parts: SmallVec<[PathSegment; 2]>,
}

/// One segment of a path: a field name, which may also be an index into an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathSegment {
    pub name: Box<[u8]>,
    pub index: Option<u32>,
}

impl PathSegment {
    pub fn new(name: &str) -> Self {
        Self { name: name.as_bytes().into(), index: array_index(name.as_bytes()) }
    }

    /// Returns the segment as a string; segments are created from strings, so they are UTF-8.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.name).unwrap_or_default()
    }

    /// Compares by the order in which an update adds new fields: numbers by value and before names, names by
    /// bytes.
    pub fn update_order(&self, other: &Self) -> Ordering {
        match (self.index, other.index) {
            (Some(a), Some(b)) => a.cmp(&b),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => self.name.cmp(&other.name),
        }
    }
}

/// Parses an array index: `0`, `7`, `12`, but not `07`.
pub(crate) fn array_index(name: &[u8]) -> Option<u32> {
    let canonical = name == b"0" || name.first().is_some_and(|b| *b != b'0');
    if !canonical || name.len() > 9 {
        return None;
    }
    name.iter().try_fold(0_u32, |n, b| b.is_ascii_digit().then(|| n * 10 + u32::from(b - b'0')))
}

impl Path {
    /// Splits `text` at its dots.
    pub fn new(text: &str) -> Self {
        Self { text: text.into(), parts: text.split('.').map(PathSegment::new).collect() }
    }

    /// Returns the path as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the first field name.
    pub(crate) fn top(&self) -> &[u8] {
        &self.parts[0].name
    }

    /// Returns the value at this path. A number selects an element of an array; apart from that, arrays are
    /// not searched. Nothing is copied; [`Value::Missing`] if the field does not exist.
    pub fn get<'a>(&self, doc: &'a RawDocument) -> Value<'a> {
        let mut container = doc.as_bytes();
        let mut is_array = false;
        for (i, part) in self.parts.iter().enumerate() {
            let Some(elem) = step(container, is_array, &part.name, part.index) else {
                return Value::Missing;
            };
            if i + 1 == self.parts.len() {
                return view(container, &elem);
            }
            match elem.value.tag {
                tag::DOCUMENT => is_array = false,
                tag::ARRAY => is_array = true,
                _ => return Value::Missing,
            }
            container = elem.value.bytes;
        }
        Value::Missing
    }

    /// Returns the value as [`Self::get`] does, as raw bytes.
    pub(crate) fn lookup<'a>(&self, doc: &'a [u8]) -> Option<RawValue<'a>> {
        let mut here = RawValue { tag: tag::DOCUMENT, bytes: doc };
        for part in &self.parts {
            here = match here.tag {
                tag::DOCUMENT => step(here.bytes, false, &part.name, part.index)?.value,
                tag::ARRAY => step(here.bytes, true, &part.name, part.index)?.value,
                _ => return None,
            };
        }
        Some(here)
    }
}

impl From<&str> for Path {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn step<'a>(container: &'a [u8], is_array: bool, name: &[u8], index: Option<u32>) -> Option<RawElement<'a>> {
    if is_array { elements(container).nth(index? as usize) } else { field(container, name) }
}

/// Returns the value at a dotted path, as [`Path::get`] does. For repeated use, create a [`Path`] once.
pub fn get_path<'a>(doc: &'a RawDocument, path: &str) -> Value<'a> {
    let mut container = doc.as_bytes();
    let mut is_array = false;
    let mut rest = path;
    loop {
        let (name, tail) = rest.split_once('.').map_or((rest, None), |(a, b)| (a, Some(b)));
        let index = if is_array { array_index(name.as_bytes()) } else { None };
        let Some(elem) = step(container, is_array, name.as_bytes(), index) else {
            return Value::Missing;
        };
        let Some(tail) = tail else {
            return view(container, &elem);
        };
        match elem.value.tag {
            tag::DOCUMENT => is_array = false,
            tag::ARRAY => is_array = true,
            _ => return Value::Missing,
        }
        container = elem.value.bytes;
        rest = tail;
    }
}
