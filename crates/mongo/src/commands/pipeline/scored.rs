//! Documents of a search with their scores, `{$meta: "textScore"}`.
//!
//! A document carries its score behind its own fields from stage to stage. A stage that evaluates expressions sees the document without
//! it, while the score is that of the evaluation; what it makes of the document gets the score again. The first stage that makes other
//! documents, such as `$group`, can still ask for it.

use tidemill_docs::{DocBytes, Filter, text_score, with_text_score};

use super::flow::{Chain, Flow, Receiver};
use super::{Context, Stage, run};
use crate::error::Result;

/// Name of the field that carries the score.
const CARRIER: &[u8] = b"\x01textScore\0";
/// Type of a double.
const DOUBLE: u8 = 1;
/// Bytes of the field: type, name, number.
const CARRIER_BYTES: usize = 1 + CARRIER.len() + 8;

/// Returns whether documents have their scores behind the stage.
pub(super) fn keeps_score(stage: &Stage) -> bool {
    match stage {
        Stage::Match(_) | Stage::Reshape(_) | Stage::Redact(_) | Stage::Unwind(_) => true,
        other => keeps_documents(other),
    }
}

/// Returns whether the stage passes documents on as they are, or holds them until it does.
fn keeps_documents(stage: &Stage) -> bool {
    matches!(stage, Stage::Sort(_) | Stage::Skip(_) | Stage::Limit(_) | Stage::Sample(_))
}

/// Returns the chain of stages whose results go to `last`, for documents that `filter` has found.
pub(super) fn chain<'r>(
    filter: Filter,
    stages: &'r [Stage],
    context: &'r Context<'r>,
    last: Chain<'r>,
) -> Chain<'r> {
    let kept = stages.iter().position(|stage| !keeps_score(stage)).unwrap_or(stages.len());
    let rest = stages.get(kept..).unwrap_or_default();
    let mut next: Chain<'r> = Box::new(Scored { inner: run::chain(rest, context, last), keeps: false });
    for at in (0..kept).rev() {
        next = match stages.get(at) {
            Some(stage) if keeps_documents(stage) => {
                Box::new(Scored { inner: run::link_at(stages, at, context, next), keeps: true })
            }
            _ => {
                let inner = run::link_at(stages, at, context, Box::new(Attach(next)));
                Box::new(Scored { inner, keeps: false })
            }
        };
    }
    Box::new(Search { filter, next })
}

/// Computes the scores.
struct Search<'r> {
    filter: Filter,
    next: Chain<'r>,
}

impl Receiver for Search<'_> {
    fn push(&mut self, document: DocBytes) -> Result<Flow> {
        let score = self.filter.text_score(&document)?.unwrap_or(0.0);
        self.next.push(attached(&document, score))
    }

    fn finish(&mut self) -> Result<()> {
        self.next.finish()
    }
}

/// Gives documents to a stage while their score is that of the evaluation.
struct Scored<'r> {
    inner: Chain<'r>,
    /// True if the stage gets the documents with the attached score.
    keeps: bool,
}

impl Receiver for Scored<'_> {
    fn push(&mut self, document: DocBytes) -> Result<Flow> {
        let (own, score) = detached(&document);
        let document = if self.keeps { document } else { own };
        with_text_score(score, || self.inner.push(document))
    }

    fn finish(&mut self) -> Result<()> {
        self.inner.finish()
    }
}

/// Gives what a stage makes of a document the score of the evaluation.
struct Attach<'r>(Chain<'r>);

impl Receiver for Attach<'_> {
    fn push(&mut self, document: DocBytes) -> Result<Flow> {
        let score = text_score()?;
        self.0.push(attached(&document, score))
    }

    fn finish(&mut self) -> Result<()> {
        self.0.finish()
    }
}

/// Returns the document with a score.
fn attached(document: &DocBytes, score: f64) -> DocBytes {
    let mut bytes = Vec::with_capacity(document.len() + CARRIER_BYTES);
    bytes.extend_from_slice(&document[..document.len().saturating_sub(1)]);
    bytes.push(DOUBLE);
    bytes.extend_from_slice(CARRIER);
    bytes.extend_from_slice(&score.to_le_bytes());
    bytes.push(0);
    set_length(&mut bytes);
    bytes.into()
}

/// Returns the document without the score that it carries, and the score.
fn detached(document: &DocBytes) -> (DocBytes, Option<f64>) {
    let carried = document.len().checked_sub(CARRIER_BYTES + 1).and_then(|at| {
        let (own, rest) = document.split_at(at);
        let score = rest.strip_prefix(&[DOUBLE])?.strip_prefix(CARRIER)?.first_chunk()?;
        Some((own, f64::from_le_bytes(*score)))
    });
    let Some((own, score)) = carried else { return (document.clone(), None) };
    let mut bytes = own.to_vec();
    bytes.push(0);
    set_length(&mut bytes);
    (bytes.into(), Some(score))
}

fn set_length(bytes: &mut [u8]) {
    let len = i32::try_from(bytes.len()).unwrap_or(i32::MAX);
    if let Some(head) = bytes.first_chunk_mut() {
        *head = len.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_carries_its_score() {
        let document: DocBytes = bson::rawdoc! { "a": 1, "b": "x" }.into_bytes().into();
        let carrying = attached(&document, 1.5);
        assert!(bson::RawDocument::from_bytes(&carrying).unwrap().iter().count() == 3);
        assert_eq!(detached(&carrying), (document.clone(), Some(1.5)));
        assert_eq!(detached(&document), (document, None));
    }
}
