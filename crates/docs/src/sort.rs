//! Sort orders: keys of one or more paths in MongoDB's order.

use bson::raw::RawDocument;

use crate::collation::Collation;
use crate::direction::Direction;
use crate::display::display;
use crate::error::{DocsError, ErrorCode, Result};
use crate::key::{Key, KeyBuf, put_by, put_descending};
use crate::limits::INDEX_FIELDS_MAX;
use crate::order::compare_by;
use crate::path::Path;
use crate::path_values::key_values;
use crate::raw::{RawValue, elements};

/// The order of a result: paths with their directions, the most significant first.
///
/// An array sorts by its smallest element if ascending and by its largest if descending; a missing field
/// sorts as null.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SortOrder {
    pub(crate) fields: Vec<(Path, Direction)>,
    /// Order of strings; that of their bytes if `None`.
    pub(crate) collation: Option<Collation>,
}

impl SortOrder {
    /// Parses a MongoDB sort document, `{ a: 1, b: -1 }`.
    ///
    /// Errors: `BadValue` for directions other than 1 and -1, `$meta`, empty names, more than 32 fields.
    pub fn parse(sort: &RawDocument) -> Result<Self> {
        let mut fields = Vec::new();
        for e in elements(sort.as_bytes()) {
            let name = std::str::from_utf8(e.name).unwrap_or_default();
            fields.push((check_name(name)?, direction(name, e.value)?));
        }
        if fields.len() > INDEX_FIELDS_MAX {
            return Err(DocsError::bad_value(format!(
                "sort by {} fields: limit of {INDEX_FIELDS_MAX}",
                fields.len()
            )));
        }
        Ok(Self { fields, collation: None })
    }

    /// Returns whether these are the fields of the order, one after the other.
    pub fn has_fields<'n>(&self, names: impl Iterator<Item = &'n str>) -> bool {
        names.eq(self.fields.iter().map(|(path, _)| path.as_str()))
    }

    /// Returns this order with one more path after the others.
    pub fn then(mut self, path: &str, direction: Direction) -> Self {
        self.fields.push((Path::new(path), direction));
        self
    }

    /// Returns this order with strings in the order of a collation.
    pub fn with_collation(mut self, collation: Option<Collation>) -> Self {
        self.collation = collation;
        self
    }

    /// Returns the collation.
    pub fn collation(&self) -> Option<&Collation> {
        self.collation.as_ref()
    }

    /// Returns whether no order is required.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns the key that `doc` sorts by.
    pub fn key(&self, doc: &[u8]) -> Key {
        let mut buf = KeyBuf::new();
        let collation = self.collation.as_ref();
        for (path, direction) in &self.fields {
            let values = key_values(doc, path);
            let pick = |less: bool| {
                values
                    .iter()
                    .copied()
                    .reduce(|a, b| if compare_by(b, a, collation).is_lt() == less { b } else { a })
                    .unwrap_or(RawValue::NULL)
            };
            match direction {
                Direction::Ascending => put_by(&mut buf, pick(true), collation),
                Direction::Descending => put_descending(&mut buf, pick(false), collation),
            }
        }
        Key(buf)
    }
}

fn check_name(name: &str) -> Result<Path> {
    if name.split('.').any(|p| p.is_empty() || p.starts_with('$')) {
        return Err(DocsError::new(
            ErrorCode::BadValue,
            format!("sort by {name:?}: expected a field path such as `a` or `a.b`"),
        ));
    }
    Ok(Path::new(name))
}

/// Parses 1 or -1.
pub(crate) fn direction(name: &str, value: RawValue<'_>) -> Result<Direction> {
    match value.as_integer() {
        Some(1) => Ok(Direction::Ascending),
        Some(-1) => Ok(Direction::Descending),
        _ => Err(DocsError::bad_value(format!(
            "sort direction of '{name}': expected 1 (ascending) or -1 (descending), found {}",
            display(value)
        ))),
    }
}
