//! Projections: the fields of a document that a query returns.

use bson::raw::{RawDocument, RawDocumentBuf};

use crate::DocBytes;
use crate::display::display;
use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::CLAUSES_MAX;
use crate::raw::{RawValue, close_document, elements, put_element, tag};

/// A parsed projection: fields to include, or fields to exclude. Fields keep the order of the document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Projection {
    include: bool,
    root: FieldTree,
}

/// Field names on one level; a name without fields below it stands for the whole field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct FieldTree(Vec<(Box<[u8]>, FieldTree)>);

impl Projection {
    /// Parses a MongoDB projection: `{ a: 1, b.c: 1, _id: 0 }` or `{ a: 0 }`.
    ///
    /// Errors: inclusion together with exclusion, paths inside one another, operators such as `$slice`.
    pub fn parse(projection: &RawDocument) -> Result<Self> {
        let mut include: Option<bool> = None;
        let mut id: Option<bool> = None;
        let mut root = FieldTree::default();
        for e in elements(projection.as_bytes()) {
            let name = std::str::from_utf8(e.name).unwrap_or_default();
            let give = flag(name, e.value)?;
            if name == "_id" {
                id = Some(give);
                continue;
            }
            match include {
                Some(true) if !give => {
                    return Err(DocsError::new(
                        ErrorCode::ExclusionInInclusion,
                        format!("Cannot do exclusion on field {name} in inclusion projection"),
                    ));
                }
                Some(false) if give => {
                    return Err(DocsError::new(
                        ErrorCode::InclusionInExclusion,
                        format!("Cannot do inclusion on field {name} in exclusion projection"),
                    ));
                }
                _ => include = Some(give),
            }
            add(&mut root, name)?;
        }
        // with `_id` alone, its flag decides between inclusion and exclusion
        let include = include.unwrap_or(id.unwrap_or(false));
        if include == id.unwrap_or(include) && (id.is_some() || include) {
            add(&mut root, "_id")?;
        }
        Ok(Self { include, root })
    }

    /// Returns the projected document.
    pub fn apply(&self, doc: &RawDocument) -> Result<RawDocumentBuf> {
        RawDocumentBuf::from_bytes(self.apply_bytes(doc.as_bytes()).to_vec()).map_err(|e| {
            DocsError::new(ErrorCode::InvalidBson, format!("the projected document is not BSON: {e}"))
        })
    }

    pub(crate) fn apply_bytes(&self, doc: &[u8]) -> DocBytes {
        let mut out = Vec::with_capacity(if self.include { 128 } else { doc.len() });
        self.document(&self.root, doc, &mut out);
        out.into()
    }

    fn document(&self, fields: &FieldTree, doc: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        for e in elements(doc) {
            match fields.0.iter().find(|(name, _)| **name == *e.name) {
                Some((_, below)) if !below.0.is_empty() => self.nested_field(below, e.name, e.value, out),
                found if found.is_some() == self.include => out.extend_from_slice(&doc[e.start..e.end]),
                _ => {}
            }
        }
        close_document(out, start);
    }

    /// Appends a field that the projection names only in part.
    fn nested_field(&self, fields: &FieldTree, name: &[u8], value: RawValue<'_>, out: &mut Vec<u8>) {
        match value.tag {
            tag::DOCUMENT => {
                open(out, tag::DOCUMENT, name);
                self.document(fields, value.bytes, out);
            }
            tag::ARRAY => {
                open(out, tag::ARRAY, name);
                let start = out.len();
                out.extend_from_slice(&[0; 4]);
                let mut count = 0_usize;
                for e in elements(value.bytes) {
                    let before = out.len();
                    self.nested_field(fields, count.to_string().as_bytes(), e.value, out);
                    count += usize::from(out.len() > before);
                }
                close_document(out, start);
            }
            // a value without fields has nothing to include and nothing to exclude
            _ if !self.include => put_element(out, name, value),
            _ => {}
        }
    }
}

fn open(out: &mut Vec<u8>, tag: u8, name: &[u8]) {
    out.push(tag);
    out.extend_from_slice(name);
    out.push(0);
}

fn flag(name: &str, v: RawValue<'_>) -> Result<bool> {
    match v.tag {
        tag::BOOL => Ok(v.bytes == [1]),
        tag::DOUBLE => Ok(v.f64() != 0.0),
        tag::INT32 | tag::INT64 => Ok(v.as_integer() != Some(0)),
        _ => Err(DocsError::parse(format!(
            "projection of '{name}': expected 1 (include) or 0 (exclude), found {}; operators and expressions in projections are not supported",
            display(v)
        ))),
    }
}

fn add(root: &mut FieldTree, path: &str) -> Result<()> {
    if path.split('.').any(|p| p.is_empty() || p.starts_with('$')) {
        return Err(DocsError::parse(format!(
            "projection of {path:?}: expected a field path such as `a` or `a.b`"
        )));
    }
    let collision = |at: &str| DocsError::new(ErrorCode::PathCollision, format!("Path collision at {at}"));
    let mut fields = root;
    let mut parts = path.split('.').peekable();
    while let Some(name) = parts.next() {
        let last = parts.peek().is_none();
        let at = match fields.0.iter().position(|(n, _)| **n == *name.as_bytes()) {
            Some(at) if last || fields.0[at].1.0.is_empty() => return Err(collision(path)),
            Some(at) => at,
            None if fields.0.len() >= CLAUSES_MAX => {
                return Err(DocsError::parse(
                    "projection too large: limit of {CLAUSES_MAX} fields at one level",
                ));
            }
            None => {
                fields.0.push((name.as_bytes().into(), FieldTree::default()));
                fields.0.len() - 1
            }
        };
        fields = &mut fields.0[at].1;
    }
    Ok(())
}
