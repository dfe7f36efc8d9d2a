//! The names of fields that a projection includes or excludes.

use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::CLAUSES_MAX;
use crate::values::raw::{RawValue, close_document, elements, put_element, tag};

/// Field names on one level; a name without fields below it stands for the whole field.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FieldTree(Vec<(Box<[u8]>, FieldTree)>);

impl FieldTree {
    /// Adds a path. Errors: it is not a valid path, or equal to another one or inside it.
    pub fn add(&mut self, path: &str) -> Result<()> {
        if path.split('.').any(|p| p.is_empty() || p.starts_with('$')) {
            return Err(DocsError::parse(format!(
                "projection of {path:?}: expected a field path such as `a` or `a.b`"
            )));
        }
        let collision =
            |at: &str| DocsError::new(ErrorCode::PathCollision, format!("Path collision at {at}"));
        let mut fields = self;
        let mut parts = path.split('.').peekable();
        while let Some(name) = parts.next() {
            let last = parts.peek().is_none();
            let at = match fields.0.iter().position(|(n, _)| **n == *name.as_bytes()) {
                Some(at) if last || fields.0[at].1.0.is_empty() => return Err(collision(path)),
                Some(at) => at,
                None if fields.0.len() >= CLAUSES_MAX => {
                    return Err(DocsError::parse(format!(
                        "projection too large: limit of {CLAUSES_MAX} fields at one level"
                    )));
                }
                None => {
                    fields.0.push((name.as_bytes().into(), Self::default()));
                    fields.0.len() - 1
                }
            };
            fields = &mut fields.0[at].1;
        }
        Ok(())
    }

    /// Appends a document with these fields, or with all others.
    pub fn document(&self, include: bool, doc: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        for e in elements(doc) {
            match self.0.iter().find(|(name, _)| **name == *e.name) {
                Some((_, below)) if !below.0.is_empty() => below.nested(include, e.name, e.value, out),
                found if found.is_some() == include => out.extend_from_slice(&doc[e.start..e.end]),
                _ => {}
            }
        }
        close_document(out, start);
    }

    /// Appends a field that the projection names only in part.
    fn nested(&self, include: bool, name: &[u8], value: RawValue<'_>, out: &mut Vec<u8>) {
        match value.tag {
            tag::DOCUMENT => {
                open(out, tag::DOCUMENT, name);
                self.document(include, value.bytes, out);
            }
            tag::ARRAY => {
                open(out, tag::ARRAY, name);
                let start = out.len();
                out.extend_from_slice(&[0; 4]);
                let mut count = 0_usize;
                for e in elements(value.bytes) {
                    let before = out.len();
                    self.nested(include, count.to_string().as_bytes(), e.value, out);
                    count += usize::from(out.len() > before);
                }
                close_document(out, start);
            }
            // a value without fields has nothing to include and nothing to exclude
            _ if !include => put_element(out, name, value),
            _ => {}
        }
    }
}

fn open(out: &mut Vec<u8>, tag: u8, name: &[u8]) {
    out.push(tag);
    out.extend_from_slice(name);
    out.push(0);
}
