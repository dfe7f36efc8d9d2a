//! Projections: the fields of a document that a query returns.

mod elements;
mod fields;

use std::sync::Arc;

use bson::Document;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::DocBytes;
use crate::error::{DocsError, ErrorCode, Result};
use crate::expression::Variables;
use crate::filter::Filter;
use crate::reshape::{ComputedFields, encoded};
use crate::text::{TextQuery, mentions_meta, score_not_available, with_text_score};
use elements::ElementSelection;
use fields::FieldTree;

/// A parsed projection: fields to include, or fields to exclude; elements of arrays; computed fields. Fields keep the order of the
/// document, and computed ones follow.
#[derive(Debug, Clone)]
pub struct Projection {
    include: bool,
    root: FieldTree,
    selections: Vec<ElementSelection>,
    computed: ComputedFields,
    /// The search whose score computed fields ask for.
    scored: Option<Arc<TextQuery>>,
}

/// Clause of a projection for one path.
enum Clause<'v> {
    Flag(bool),
    Selection(ElementSelection),
    Computed(RawBsonRef<'v>),
    /// `{$meta: …}` of a query, which says nothing about the other fields.
    Meta(RawBsonRef<'v>),
}

impl Projection {
    /// Parses the projection of a query: `{ a: 1, b.c: 1, _id: 0 }`, `{ a: 0 }`, with `$slice`, `$elemMatch` and expressions. The
    /// positional operator `a.$` needs the query's filter: [`Self::parse_for`].
    ///
    /// Errors: inclusion together with exclusion, paths inside one another, wrong operands.
    pub fn parse(projection: &RawDocument) -> Result<Self> {
        Self::parse_clauses(projection, None, true, &Variables::default())
    }

    /// Parses the projection of a query with this filter.
    ///
    /// Errors: as [`Self::parse`].
    pub fn parse_for(projection: &RawDocument, filter: &Filter, variables: &Variables) -> Result<Self> {
        Self::parse_clauses(projection, Some(filter), true, variables)
    }

    /// Parses the projection of a `$project` stage, in which `$slice` is an expression.
    ///
    /// Errors: as [`Self::parse`].
    pub fn parse_stage(projection: &RawDocument, variables: &Variables) -> Result<Self> {
        if projection.is_empty() {
            let message =
                "Invalid $project :: caused by :: projection specification must have at least one field";
            return Err(DocsError::new(ErrorCode::EmptyProject, message));
        }
        Self::parse_clauses(projection, None, false, variables)
    }

    /// Parses the paths of an `$unset` stage: one, or an array of them.
    ///
    /// Errors: other values.
    pub fn excluding(paths: RawBsonRef<'_>) -> Result<Self> {
        let wrong = || DocsError::type_mismatch("$unset expects a string or an array of strings");
        let mut root = FieldTree::default();
        match paths {
            RawBsonRef::String(path) => root.add(path)?,
            RawBsonRef::Array(paths) => {
                for path in paths {
                    match path.map_err(|_| wrong())? {
                        RawBsonRef::String(path) => root.add(path)?,
                        _ => return Err(wrong()),
                    }
                }
            }
            _ => return Err(wrong()),
        }
        Ok(Self {
            include: false,
            root,
            selections: Vec::new(),
            computed: ComputedFields::default(),
            scored: None,
        })
    }

    fn parse_clauses(
        projection: &RawDocument,
        filter: Option<&Filter>,
        of_query: bool,
        variables: &Variables,
    ) -> Result<Self> {
        let mut clauses = Vec::new();
        for field in projection {
            let (name, value) = field.map_err(invalid)?;
            collect(name.as_str(), value, filter, of_query, &mut clauses)?;
        }
        let (mut include, mut id) = (None, None);
        for (path, clause) in &clauses {
            let include_here = match clause {
                Clause::Flag(shown) if path == "_id" => {
                    id = Some(*shown);
                    continue;
                }
                Clause::Flag(shown) => *shown,
                Clause::Meta(_) => continue,
                Clause::Selection(selection) if selection.fits_exclusion() => continue,
                Clause::Selection(_) | Clause::Computed(_) => true,
            };
            match include {
                Some(true) if !include_here => {
                    return Err(DocsError::new(
                        ErrorCode::ExclusionInInclusion,
                        format!("Cannot do exclusion on field {path} in inclusion projection"),
                    ));
                }
                Some(false) if include_here => {
                    return Err(DocsError::new(
                        ErrorCode::InclusionInExclusion,
                        format!("Cannot do inclusion on field {path} in exclusion projection"),
                    ));
                }
                _ => include = Some(include_here),
            }
        }
        // with `_id` alone, its flag decides between inclusion and exclusion
        let slices = clauses.iter().any(|(_, clause)| matches!(clause, Clause::Selection(_)));
        let include = include.unwrap_or(if slices { false } else { id.unwrap_or(false) });
        let mut parsed = Self {
            include,
            root: FieldTree::default(),
            selections: Vec::new(),
            computed: ComputedFields::default(),
            scored: None,
        };
        if let Some(filter) = filter.filter(|_| mentions_meta(projection)) {
            parsed.scored = Some(filter.text().ok_or_else(score_not_available)?.clone());
        }
        for (path, clause) in clauses {
            match clause {
                Clause::Flag(_) if path == "_id" => {}
                Clause::Flag(_) => parsed.root.add(&path)?,
                Clause::Selection(selection) => {
                    if include {
                        parsed.root.add(selection.path())?;
                    }
                    parsed.selections.push(selection);
                }
                Clause::Computed(value) | Clause::Meta(value) => {
                    parsed.computed.add(path, value, variables)?
                }
            }
        }
        if include == id.unwrap_or(include) && (id.is_some() || include) {
            parsed.root.add("_id")?;
        }
        Ok(parsed)
    }

    /// Returns the projected document.
    ///
    /// Errors: those of expressions.
    pub fn apply(&self, doc: &RawDocument) -> Result<RawDocumentBuf> {
        RawDocumentBuf::from_bytes(self.apply_bytes(doc.as_bytes())?.to_vec()).map_err(invalid)
    }

    /// Returns the projected document of encoded bytes.
    ///
    /// Errors: those of expressions.
    pub fn apply_bytes(&self, doc: &[u8]) -> Result<DocBytes> {
        let mut out = Vec::with_capacity(if self.include { 128 } else { doc.len() });
        self.root.document(self.include, doc, &mut out);
        if self.selections.is_empty() && self.computed.is_empty() {
            return Ok(out.into());
        }
        let mut target: Document =
            RawDocument::from_bytes(&out).map_err(invalid)?.try_into().map_err(invalid)?;
        for selection in &self.selections {
            selection.apply(doc, &mut target)?;
        }
        let source = RawDocument::from_bytes(doc).map_err(invalid)?;
        match &self.scored {
            Some(query) => {
                let score = query.score(doc)?;
                with_text_score(Some(score), || self.computed.set(source, &mut target))?;
            }
            None => self.computed.set(source, &mut target)?,
        }
        encoded(&target)
    }
}

/// Collects the clauses of a path, which a document without operators nests.
fn collect<'v>(
    path: &str,
    value: RawBsonRef<'v>,
    filter: Option<&Filter>,
    of_query: bool,
    clauses: &mut Vec<(String, Clause<'v>)>,
) -> Result<()> {
    let clause = match value {
        RawBsonRef::Boolean(shown) => Clause::Flag(shown),
        RawBsonRef::Int32(n) => Clause::Flag(n != 0),
        RawBsonRef::Int64(n) => Clause::Flag(n != 0),
        RawBsonRef::Double(n) => Clause::Flag(n != 0.0),
        RawBsonRef::Document(inner) => {
            let first = inner.into_iter().next().transpose().map_err(invalid)?;
            let operator = first.map(|(name, _)| name.as_str()).unwrap_or_default();
            match ElementSelection::parse(path, inner).transpose() {
                Some(selection) if of_query => Clause::Selection(selection?),
                _ if of_query && operator == "$meta" => Clause::Meta(value),
                _ if operator.starts_with('$') => Clause::Computed(value),
                _ if inner.is_empty() => {
                    let message = "An empty sub-projection is not a valid value. Found empty object at path";
                    return Err(DocsError::new(ErrorCode::EmptyProject, message));
                }
                _ => {
                    for field in inner {
                        let (name, value) = field.map_err(invalid)?;
                        collect(&format!("{path}.{name}"), value, filter, of_query, clauses)?;
                    }
                    return Ok(());
                }
            }
        }
        _ => Clause::Computed(value),
    };
    let clause = match (path.strip_suffix(".$"), clause, filter) {
        (Some(array), Clause::Flag(true), Some(filter)) if of_query => {
            Clause::Selection(ElementSelection::positional(array, filter.clone()))
        }
        (_, clause, _) => clause,
    };
    clauses.push((path.to_owned(), clause));
    Ok(())
}

fn invalid(error: impl std::fmt::Display) -> DocsError {
    DocsError::new(ErrorCode::InvalidBson, error.to_string())
}
