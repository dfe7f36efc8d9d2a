//! One walk over a document beside the operator tree.

use smallvec::SmallVec;
use tidemill_types::Timestamp;

use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::ARRAY_PAD_MAX;
use crate::order::compare;
use crate::raw::{EMPTY, Elem, OwnedRaw, Raw, close_document, elements, field, put_element, tag};
use crate::show::show;

use super::tree::{Child, Node};
use super::{Change, Update, arith, arrays};

/// What operators need to know besides the value.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// What `$currentDate` writes.
    pub now: Timestamp,
    /// Whether the document is being inserted.
    pub inserting: bool,
    /// The document before the update, for `$rename` and messages.
    pub doc: &'a [u8],
}

impl Context<'_> {
    pub fn update(now: Timestamp) -> Self {
        Self { now, inserting: false, doc: EMPTY }
    }

    pub fn insert(now: Timestamp) -> Self {
        Self { now, inserting: true, doc: EMPTY }
    }

    /// `{_id: 1}` of the document, for messages.
    pub fn id(&self) -> String {
        field(self.doc, b"_id").map_or_else(|| "no _id".to_owned(), |e| format!("_id: {}", show(e.value)))
    }
}

/// What an operator made of a value.
pub(crate) enum Outcome {
    /// As it was, which may be not there.
    Keep,
    Remove,
    /// A value of this type was appended to the output.
    Written(u8),
}

/// The path from the root to the value in work, for messages.
type Trail<'t> = SmallVec<[&'t str; 8]>;

impl Update {
    /// Appends the updated document to `out`.
    pub(crate) fn apply_bytes(&self, doc: &[u8], context: Context<'_>, out: &mut Vec<u8>) -> Result<()> {
        if let Some(e) = &self.error {
            return Err(e.clone());
        }
        out.reserve(doc.len() + 64);
        let mut walk = Walk { context: Context { doc, ..context }, trail: Trail::new() };
        walk.document(&self.root, doc, out)
    }
}

struct Walk<'t, 'd> {
    context: Context<'d>,
    trail: Trail<'t>,
}

impl<'t> Walk<'t, '_> {
    fn document(&mut self, node: &'t Node, doc: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        let mut seen: SmallVec<[bool; 16]> = SmallVec::from_elem(false, node.children.len());
        let mut left = node.children.len();
        // elements from here on are not copied yet
        let mut pending = 4;
        for elem in elements(doc) {
            if left == 0 {
                break;
            }
            let Some(i) = node.children.iter().position(|(p, _)| *p.name == *elem.name) else {
                continue;
            };
            if std::mem::replace(&mut seen[i], true) {
                continue;
            }
            left -= 1;
            out.extend_from_slice(&doc[pending..elem.start]);
            pending = elem.end;
            let (part, child) = &node.children[i];
            self.child(part.text(), elem.name, child, Some(&elem), doc, out)?;
        }
        out.extend_from_slice(&doc[pending..doc.len() - 1]);
        for ((part, child), _) in node.children.iter().zip(&seen).filter(|(_, seen)| !**seen) {
            self.child(part.text(), &part.name, child, None, doc, out)?;
        }
        close_document(out, start);
        Ok(())
    }

    /// Arrays: numbers name elements, a removed element becomes null, holes are filled with null.
    fn array(&mut self, node: &'t Node, array: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        // children are in order of their numbers, names come last
        let mut next = 0;
        let mut len = 0_u32;
        for elem in elements(array) {
            match node.children.get(next) {
                Some((part, child)) if part.index == Some(len) => {
                    next += 1;
                    let before = out.len();
                    self.child(part.text(), elem.name, child, Some(&elem), array, out)?;
                    if out.len() == before {
                        put_element(out, elem.name, Raw::NULL);
                    }
                }
                _ => out.extend_from_slice(&array[elem.start..elem.end]),
            }
            len += 1;
        }
        for (part, child) in &node.children[next..] {
            let Some(index) = part.index else {
                // made in passing, to know whether the operator would create something
                let before = out.len();
                self.child(part.text(), &part.name, child, None, EMPTY, out)?;
                if out.len() > before {
                    return Err(self.not_viable(part.text(), Raw { tag: tag::ARRAY, bytes: array }));
                }
                continue;
            };
            let before = out.len();
            if index as usize - len as usize > ARRAY_PAD_MAX {
                return Err(DocsError::bad_value(format!(
                    "cannot put {} nulls before element {index} of '{}': at most {ARRAY_PAD_MAX}",
                    index - len,
                    self.trail.join(".")
                )));
            }
            for hole in len..index {
                put_element(out, hole.to_string().as_bytes(), Raw::NULL);
            }
            let padded = out.len();
            self.child(part.text(), &part.name, child, None, EMPTY, out)?;
            if out.len() == padded {
                out.truncate(before);
            } else {
                len = index + 1;
            }
        }
        close_document(out, start);
        Ok(())
    }

    /// Appends what becomes of one element, or nothing when it goes or was not there.
    fn child(
        &mut self,
        part: &'t str,
        name: &[u8],
        child: &'t Child,
        old: Option<&Elem<'_>>,
        container: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        out.push(0);
        out.extend_from_slice(name);
        out.push(0);
        self.trail.push(part);
        let outcome = match child {
            Child::Leaf(change) => self.change(change, old.map(|e| e.value), out)?,
            Child::Inner(node) => self.inner(node, old.map(|e| e.value), out)?,
        };
        self.trail.pop();
        match outcome {
            Outcome::Written(tag) => out[start] = tag,
            Outcome::Remove => out.truncate(start),
            Outcome::Keep => {
                out.truncate(start);
                if let Some(e) = old {
                    out.extend_from_slice(&container[e.start..e.end]);
                }
            }
        }
        Ok(())
    }

    fn inner(&mut self, node: &'t Node, old: Option<Raw<'_>>, out: &mut Vec<u8>) -> Result<Outcome> {
        match old {
            Some(doc) if doc.tag == tag::DOCUMENT => {
                self.document(node, doc.bytes, out)?;
                Ok(Outcome::Written(tag::DOCUMENT))
            }
            Some(array) if array.tag == tag::ARRAY => {
                self.array(node, array.bytes, out)?;
                Ok(Outcome::Written(tag::ARRAY))
            }
            other => {
                // nothing to go into: only operators that create may do so, and only where there is nothing yet
                let start = out.len();
                self.document(node, EMPTY, out)?;
                let made = out.len() > start + EMPTY.len();
                match other {
                    None if made => Ok(Outcome::Written(tag::DOCUMENT)),
                    Some(value) if made => {
                        let first = node.children.first().map_or("", |(part, _)| part.text());
                        Err(self.not_viable(first, value))
                    }
                    _ => Ok(Outcome::Keep),
                }
            }
        }
    }

    fn not_viable(&self, name: &str, value: Raw<'_>) -> DocsError {
        let at = self.trail.last().copied().unwrap_or_default();
        DocsError::new(
            ErrorCode::PathNotViable,
            format!("Cannot create field '{name}' in element {{{at}: {}}}", show(value)),
        )
    }

    fn change(&self, change: &Change, old: Option<Raw<'_>>, out: &mut Vec<u8>) -> Result<Outcome> {
        let path = || self.trail.join(".");
        Ok(match change {
            Change::Set(v) => write(v.as_raw(), out),
            Change::SetOnInsert(v) if self.context.inserting => write(v.as_raw(), out),
            Change::SetOnInsert(_) => Outcome::Keep,
            Change::Unset | Change::RenameFrom => match (change, old) {
                // a rename whose source is not there does nothing; one whose source is there removes it
                (_, None) => Outcome::Keep,
                _ => Outcome::Remove,
            },
            Change::RenameTo(source) => match rename_source(source, self.context.doc, &self.context)? {
                Some(v) => write(v, out),
                None => Outcome::Keep,
            },
            Change::Inc(n) => match old {
                None => write(n.as_raw(), out),
                Some(v) => write(arith::add(v, n.as_raw(), &path, &self.context)?.as_raw(), out),
            },
            Change::Mul(n) => match old {
                None => write(arith::zero(n.as_raw()).as_raw(), out),
                Some(v) => write(arith::multiply(v, n.as_raw(), &path, &self.context)?.as_raw(), out),
            },
            Change::Min(v) => replace_if(v, old, out, std::cmp::Ordering::Less),
            Change::Max(v) => replace_if(v, old, out, std::cmp::Ordering::Greater),
            Change::CurrentDate { timestamp } => write(current(self.context.now, *timestamp).as_raw(), out),
            Change::Push(push) => arrays::push(push, old, out, &path, &self.context)?,
            Change::AddToSet(values) => arrays::add_to_set(values, old, out, &path, &self.context)?,
            Change::PullAll(values) => arrays::pull_all(values, old, out)?,
            Change::Pull(pull) => arrays::pull(pull, old, out)?,
            Change::Pop { first } => arrays::pop(*first, old, out, &path)?,
        })
    }
}

fn write(value: Raw<'_>, out: &mut Vec<u8>) -> Outcome {
    out.extend_from_slice(value.bytes);
    Outcome::Written(value.tag)
}

fn replace_if(new: &OwnedRaw, old: Option<Raw<'_>>, out: &mut Vec<u8>, when: std::cmp::Ordering) -> Outcome {
    match old {
        Some(old) if compare(new.as_raw(), old) != when => Outcome::Keep,
        _ => write(new.as_raw(), out),
    }
}

fn current(now: Timestamp, timestamp: bool) -> OwnedRaw {
    if timestamp {
        let seconds = u32::try_from(now.0.div_euclid(1_000_000)).unwrap_or_default();
        let bytes = (u64::from(seconds) << 32 | 1).to_le_bytes();
        return OwnedRaw::of(Raw { tag: tag::TIMESTAMP, bytes: &bytes });
    }
    OwnedRaw::of(Raw { tag: tag::DATE, bytes: &now.0.div_euclid(1000).to_le_bytes() })
}

/// The value that a rename moves. Errors: the way to it goes through an array.
fn rename_source<'d>(
    source: &crate::path::Path,
    doc: &'d [u8],
    context: &Context<'_>,
) -> Result<Option<Raw<'d>>> {
    let mut here = Raw { tag: tag::DOCUMENT, bytes: doc };
    let mut name = "";
    for part in &source.parts {
        match here.tag {
            tag::DOCUMENT => {}
            tag::ARRAY => {
                return Err(DocsError::bad_value(format!(
                    "The source field cannot be an array element, '{source}' in doc with {} has an array field called '{name}'",
                    context.id()
                )));
            }
            _ => return Ok(None),
        }
        let Some(elem) = field(here.bytes, &part.name) else {
            return Ok(None);
        };
        here = elem.value;
        name = part.text();
    }
    Ok(Some(here))
}
