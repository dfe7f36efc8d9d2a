//! Applies an update in one pass over the document, in parallel to the operator tree.

use smallvec::SmallVec;
use tidemill_types::{Timestamp, budget};

use crate::DocBytes;
use crate::collation::Collation;
use crate::collection::with_id_first;
use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::{ARRAY_PAD_MAX, StoreLimits};
use crate::values::display::display;
use crate::values::order::compare_by;
use crate::values::raw::{
    EMPTY, OwnedRawValue, RawElement, RawValue, close_document, elements, field, put_element, tag,
};

use crate::reshape::ReshapeStage;
use crate::values::validate::too_large;

use super::tree::{OperatorTree, OperatorTreeChild};
use super::{Update, UpdateOperator, arith, arrays};

/// Bytes of a document that count as one step.
const BYTES_PER_STEP: usize = 1 << 10;

/// Inputs of operators besides the value.
#[derive(Clone, Copy)]
pub(crate) struct UpdateContext<'a> {
    /// Time that `$currentDate` writes.
    pub now: Timestamp,
    /// True while the document is inserted.
    pub inserting: bool,
    /// Document before the update, for `$rename` and messages.
    pub doc: &'a [u8],
    /// The element of an array that the filter has matched, which `$` stands for.
    pub matched: Option<u32>,
    /// Order and equality of strings.
    pub collation: Option<&'a Collation>,
}

impl UpdateContext<'_> {
    pub fn update(now: Timestamp) -> Self {
        Self { now, inserting: false, doc: EMPTY, matched: None, collation: None }
    }

    pub fn insert(now: Timestamp) -> Self {
        Self { now, inserting: true, doc: EMPTY, matched: None, collation: None }
    }

    /// Formats `_id: 1` of the document, for messages.
    pub fn id(&self) -> String {
        field(self.doc, b"_id").map_or_else(|| "no _id".to_owned(), |e| format!("_id: {}", display(e.value)))
    }
}

/// Result of an operator.
pub(crate) enum OperatorOutcome {
    /// The value stays as it was, or stays missing.
    Keep,
    Remove,
    /// A value of this type was appended to the output.
    Written(u8),
}

/// Path from the root to the current value, for messages.
type PathParts<'t> = SmallVec<[&'t str; 8]>;

impl Update {
    /// Appends the updated document to `out`.
    pub(crate) fn apply_bytes(
        &self,
        doc: &[u8],
        context: UpdateContext<'_>,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if let Some(e) = &self.error {
            return Err(e.clone());
        }
        budget::steps((doc.len() / BYTES_PER_STEP) as u64)?;
        if let Some(stages) = &self.pipeline {
            return apply_pipeline(stages, doc, out);
        }
        if !self.positional.is_empty() {
            return self.resolved(doc, &context)?.apply_bytes(doc, context, out);
        }
        out.reserve(doc.len() + 64);
        let collation = self.collation.as_ref();
        let mut walk =
            UpdateWalk { context: UpdateContext { doc, collation, ..context }, path: PathParts::new() };
        walk.document(&self.root, doc, out)
    }
}

/// Appends the document that the stages of a pipeline make of one. The `_id` stays in front.
fn apply_pipeline(stages: &[ReshapeStage], doc: &[u8], out: &mut Vec<u8>) -> Result<()> {
    let mut document = DocBytes::copy_from_slice(doc);
    for stage in stages {
        document = stage.apply(&document)?;
    }
    match (field(doc, b"_id"), field(&document, b"_id")) {
        (Some(id), None) => out.extend(with_id_first(&document, id.value)),
        (_, Some(id)) if id.start > 4 => out.extend(with_id_first(&document, id.value)),
        _ => out.extend_from_slice(&document),
    }
    Ok(())
}

struct UpdateWalk<'t, 'd> {
    context: UpdateContext<'d>,
    path: PathParts<'t>,
}

impl<'t> UpdateWalk<'t, '_> {
    fn document(&mut self, node: &'t OperatorTree, doc: &[u8], out: &mut Vec<u8>) -> Result<()> {
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

    /// Updates an array: numbers select elements, a removed element becomes null, gaps are filled with null.
    fn array(&mut self, node: &'t OperatorTree, array: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        // children are ordered by index, names come last
        let mut next = 0;
        let mut len = 0_u32;
        for elem in elements(array) {
            match node.children.get(next) {
                Some((part, child)) if part.index == Some(len) => {
                    next += 1;
                    let before = out.len();
                    self.child(part.text(), elem.name, child, Some(&elem), array, out)?;
                    if out.len() == before {
                        put_element(out, elem.name, RawValue::NULL);
                    }
                }
                _ => out.extend_from_slice(&array[elem.start..elem.end]),
            }
            len += 1;
        }
        for (part, child) in &node.children[next..] {
            let Some(index) = part.index else {
                // a name in an array: run the operator only to see whether it would create a field
                let before = out.len();
                self.child(part.text(), &part.name, child, None, EMPTY, out)?;
                if out.len() > before {
                    return Err(self.not_viable(part.text(), RawValue { tag: tag::ARRAY, bytes: array }));
                }
                continue;
            };
            let before = out.len();
            if index as usize - len as usize > ARRAY_PAD_MAX {
                return Err(DocsError::bad_value(format!(
                    "cannot insert {} nulls before element {index} of '{}': limit of {ARRAY_PAD_MAX}",
                    index - len,
                    self.path.join(".")
                )));
            }
            for hole in len..index {
                put_element(out, hole.to_string().as_bytes(), RawValue::NULL);
            }
            // 100,000 paths with nulls before each would need a terabyte before the whole document is found to be too large
            let max = StoreLimits::default().document_bytes_max;
            if out.len() > 2 * max {
                return Err(too_large(out.len(), max));
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

    /// Appends the updated element, or nothing if it is removed or was missing.
    fn child(
        &mut self,
        part: &'t str,
        name: &[u8],
        child: &'t OperatorTreeChild,
        old: Option<&RawElement<'_>>,
        container: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let start = out.len();
        out.push(0);
        out.extend_from_slice(name);
        out.push(0);
        self.path.push(part);
        let outcome = match child {
            OperatorTreeChild::Leaf(change) => self.change(change, old.map(|e| e.value), out)?,
            OperatorTreeChild::Inner(node) => self.nested(node, old.map(|e| e.value), out)?,
        };
        self.path.pop();
        match outcome {
            OperatorOutcome::Written(tag) => out[start] = tag,
            OperatorOutcome::Remove => out.truncate(start),
            OperatorOutcome::Keep => {
                out.truncate(start);
                if let Some(e) = old {
                    out.extend_from_slice(&container[e.start..e.end]);
                }
            }
        }
        Ok(())
    }

    fn nested(
        &mut self,
        node: &'t OperatorTree,
        old: Option<RawValue<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<OperatorOutcome> {
        match old {
            Some(doc) if doc.tag == tag::DOCUMENT => {
                self.document(node, doc.bytes, out)?;
                Ok(OperatorOutcome::Written(tag::DOCUMENT))
            }
            Some(array) if array.tag == tag::ARRAY => {
                self.array(node, array.bytes, out)?;
                Ok(OperatorOutcome::Written(tag::ARRAY))
            }
            other => {
                // neither document nor array: operators may create fields only if the value is missing
                let start = out.len();
                self.document(node, EMPTY, out)?;
                let made = out.len() > start + EMPTY.len();
                match other {
                    None if made => Ok(OperatorOutcome::Written(tag::DOCUMENT)),
                    Some(value) if made => {
                        let first = node.children.first().map_or("", |(part, _)| part.text());
                        Err(self.not_viable(first, value))
                    }
                    _ => Ok(OperatorOutcome::Keep),
                }
            }
        }
    }

    fn not_viable(&self, name: &str, value: RawValue<'_>) -> DocsError {
        let at = self.path.last().copied().unwrap_or_default();
        DocsError::new(
            ErrorCode::PathNotViable,
            format!("Cannot create field '{name}' in element {{{at}: {}}}", display(value)),
        )
    }

    fn change(
        &self,
        change: &UpdateOperator,
        old: Option<RawValue<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<OperatorOutcome> {
        let path = || self.path.join(".");
        Ok(match change {
            UpdateOperator::Set(v) => write_value(v.as_raw(), out),
            UpdateOperator::SetOnInsert(v) if self.context.inserting => write_value(v.as_raw(), out),
            UpdateOperator::SetOnInsert(_) => OperatorOutcome::Keep,
            UpdateOperator::Unset | UpdateOperator::RenameFrom => match (change, old) {
                // without its source, a rename does nothing; otherwise the source is removed
                (_, None) => OperatorOutcome::Keep,
                _ => OperatorOutcome::Remove,
            },
            UpdateOperator::RenameTo(source) => match rename_source(source, self.context.doc, &self.context)?
            {
                Some(v) => write_value(v, out),
                None => OperatorOutcome::Keep,
            },
            UpdateOperator::Inc(n) => match old {
                None => write_value(n.as_raw(), out),
                Some(v) => write_value(arith::add(v, n.as_raw(), &path, &self.context)?.as_raw(), out),
            },
            UpdateOperator::Mul(n) => match old {
                None => write_value(arith::zero(n.as_raw()).as_raw(), out),
                Some(v) => write_value(arith::multiply(v, n.as_raw(), &path, &self.context)?.as_raw(), out),
            },
            UpdateOperator::Bit(operations) => {
                write_value(arith::bits(operations, old, &path)?.as_raw(), out)
            }
            UpdateOperator::Min(v) => {
                replace_if(v, old, out, std::cmp::Ordering::Less, self.context.collation)
            }
            UpdateOperator::Max(v) => {
                replace_if(v, old, out, std::cmp::Ordering::Greater, self.context.collation)
            }
            UpdateOperator::CurrentDate { timestamp } => {
                write_value(current(self.context.now, *timestamp).as_raw(), out)
            }
            UpdateOperator::Push(push) => arrays::push(push, old, out, &path, &self.context)?,
            UpdateOperator::AddToSet(values) => arrays::add_to_set(values, old, out, &path, &self.context)?,
            UpdateOperator::PullAll(values) => arrays::pull_all(values, old, out, self.context.collation)?,
            UpdateOperator::Pull(pull) => arrays::pull(pull, old, out, self.context.collation)?,
            UpdateOperator::Pop { first } => arrays::pop(*first, old, out, &path)?,
        })
    }
}

fn write_value(value: RawValue<'_>, out: &mut Vec<u8>) -> OperatorOutcome {
    out.extend_from_slice(value.bytes);
    OperatorOutcome::Written(value.tag)
}

fn replace_if(
    new: &OwnedRawValue,
    old: Option<RawValue<'_>>,
    out: &mut Vec<u8>,
    when: std::cmp::Ordering,
    collation: Option<&Collation>,
) -> OperatorOutcome {
    match old {
        Some(old) if compare_by(new.as_raw(), old, collation) != when => OperatorOutcome::Keep,
        _ => write_value(new.as_raw(), out),
    }
}

fn current(now: Timestamp, timestamp: bool) -> OwnedRawValue {
    if timestamp {
        let seconds = u32::try_from(now.0.div_euclid(1_000_000)).unwrap_or_default();
        let bytes = (u64::from(seconds) << 32 | 1).to_le_bytes();
        return OwnedRawValue::of(RawValue { tag: tag::TIMESTAMP, bytes: &bytes });
    }
    OwnedRawValue::of(RawValue { tag: tag::DATE, bytes: &now.0.div_euclid(1000).to_le_bytes() })
}

/// Returns the value that a rename moves. Errors: its path leads through an array.
fn rename_source<'d>(
    source: &crate::values::path::Path,
    doc: &'d [u8],
    context: &UpdateContext<'_>,
) -> Result<Option<RawValue<'d>>> {
    let mut here = RawValue { tag: tag::DOCUMENT, bytes: doc };
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
