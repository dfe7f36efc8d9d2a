//! Sort orders: keys of one or more paths in MongoDB's order.

use std::sync::Arc;

use bson::raw::{CString, RawDocument, RawDocumentBuf};

use crate::collation::Collation;
use crate::direction::Direction;
use crate::error::{DocsError, ErrorCode, Result};
use crate::geo::NearQuery;
use crate::limits::INDEX_FIELDS_MAX;
use crate::text::{TextQuery, score_not_available, text_score};
use crate::values::display::display;
use crate::values::key::{Key, KeyBuf, put, put_by, put_descending};
use crate::values::order::compare_by;
use crate::values::path::Path;
use crate::values::path_values::key_values;
use crate::values::raw::{RawValue, elements, field, tag};

/// The order of a result: paths with their directions, the most significant first.
///
/// An array sorts by its smallest element if ascending and by its largest if descending; a missing field
/// sorts as null.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SortOrder {
    pub(crate) fields: Vec<(Path, Direction)>,
    /// Sort keys besides the fields, each with the number of fields before it.
    measures: Vec<(usize, Measure)>,
    /// Order of strings; that of their bytes if `None`.
    pub(crate) collation: Option<Collation>,
}

/// A number that a search gives to a document.
#[derive(Debug, Clone)]
enum Measure {
    /// Distance of the geometries at a path; near ones first.
    Distance(Path, Arc<NearQuery>),
    /// Score of a search; high ones first. `None` until the search is known: then it is that of the document's evaluation.
    TextScore(Option<Arc<TextQuery>>),
}

impl PartialEq for Measure {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Distance(_, near), Self::Distance(_, other)) => Arc::ptr_eq(near, other),
            (Self::TextScore(Some(query)), Self::TextScore(Some(other))) => Arc::ptr_eq(query, other),
            (Self::TextScore(None), Self::TextScore(None)) => true,
            _ => false,
        }
    }
}

impl Eq for Measure {}

impl Measure {
    /// Appends the measure of a document. One that cannot be told, as the work has to end, is the greatest.
    fn put(&self, key: &mut KeyBuf, doc: &[u8]) {
        match self {
            Self::Distance(path, near) => {
                let distance = near.distance(path, doc).ok().flatten().unwrap_or(f64::INFINITY);
                put(key, RawValue { tag: tag::DOUBLE, bytes: &distance.to_le_bytes() });
            }
            Self::TextScore(query) => {
                let score = query.as_ref().map_or_else(text_score, |query| query.score(doc)).unwrap_or(0.0);
                put_descending(key, RawValue { tag: tag::DOUBLE, bytes: &score.to_le_bytes() }, None);
            }
        }
    }
}

impl SortOrder {
    /// Returns the order by fields, the most significant first.
    pub(crate) fn by_fields(fields: Vec<(Path, Direction)>, collation: Option<Collation>) -> Self {
        Self { fields, collation, ..Self::default() }
    }

    /// Returns the order by the distance of the geometries at a path.
    pub(crate) fn by_distance(path: &Path, near: &Arc<NearQuery>) -> Self {
        let measure = Measure::Distance(path.clone(), near.clone());
        Self { measures: vec![(0, measure)], ..Self::default() }
    }

    /// Returns whether this is the order by the distance of a query, and nothing else.
    pub(crate) fn is_by_distance(&self, near: &Arc<NearQuery>) -> bool {
        match self.measures.as_slice() {
            [(_, Measure::Distance(_, own))] => Arc::ptr_eq(own, near) && self.fields.is_empty(),
            _ => false,
        }
    }

    /// Returns whether the score of a search decides about the order.
    pub fn needs_text_score(&self) -> bool {
        self.measures.iter().any(|(_, measure)| matches!(measure, Measure::TextScore(None)))
    }

    /// Returns the order by the score of this search.
    pub(crate) fn with_text(&self, query: &Arc<TextQuery>) -> Self {
        let mut bound = self.clone();
        for (_, measure) in &mut bound.measures {
            if let Measure::TextScore(None) = measure {
                *measure = Measure::TextScore(Some(query.clone()));
            }
        }
        bound
    }

    /// Returns whether fields alone decide about the order.
    pub(crate) fn is_by_fields(&self) -> bool {
        self.measures.is_empty()
    }

    /// Parses a MongoDB sort document, `{ a: 1, b: -1 }`.
    ///
    /// Errors: `BadValue` for directions other than 1 and -1, empty names, more than 32 fields.
    pub fn parse(sort: &RawDocument) -> Result<Self> {
        let parsed = Self::parse_query(sort)?;
        match parsed.is_by_fields() {
            true => Ok(parsed),
            false => Err(score_not_available()),
        }
    }

    /// Parses the order of a query, which may also be by the score of its search, `{ score: { $meta: "textScore" } }`.
    ///
    /// Errors: as [`Self::parse`].
    pub fn parse_query(sort: &RawDocument) -> Result<Self> {
        let (mut fields, mut measures) = (Vec::new(), Vec::new());
        for e in elements(sort.as_bytes()) {
            let name = std::str::from_utf8(e.name).unwrap_or_default();
            if let Some(meta) = field(e.value.bytes, b"$meta").filter(|_| e.value.tag == tag::DOCUMENT) {
                if meta.value.text() != Some("textScore") {
                    let message = format!("Illegal $meta sort: {}: expected \"textScore\"", display(e.value));
                    return Err(DocsError::bad_value(message));
                }
                measures.push((fields.len(), Measure::TextScore(None)));
                continue;
            }
            fields.push((check_name(name)?, direction(name, e.value)?));
        }
        if fields.len() > INDEX_FIELDS_MAX {
            return Err(DocsError::bad_value(format!(
                "sort by {} fields: limit of {INDEX_FIELDS_MAX}",
                fields.len()
            )));
        }
        Ok(Self { fields, measures, collation: None })
    }

    /// Returns the order as [`Self::parse`] reads it, without its collation; `None` if something else than fields decides.
    pub fn document(&self) -> Option<RawDocumentBuf> {
        let mut document = RawDocumentBuf::new();
        for (path, direction) in &self.fields {
            document.append(CString::try_from(path.as_str()).ok()?, direction.sign());
        }
        self.is_by_fields().then_some(document)
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
        self.fields.is_empty() && self.measures.is_empty()
    }

    /// Returns the key that `doc` sorts by.
    pub fn key(&self, doc: &[u8]) -> Key {
        let mut buf = KeyBuf::new();
        let collation = self.collation.as_ref();
        let mut measures = self.measures.iter().peekable();
        for (at, (path, direction)) in self.fields.iter().enumerate() {
            while let Some((_, measure)) = measures.next_if(|(before, _)| *before <= at) {
                measure.put(&mut buf, doc);
            }
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
        measures.for_each(|(_, measure)| measure.put(&mut buf, doc));
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
