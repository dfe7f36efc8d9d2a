//! The score of the document for which expressions are evaluated, `{$meta: "textScore"}`.

use std::cell::Cell;

use bson::raw::RawDocument;

use crate::error::{DocsError, ErrorCode, Result};
use crate::values::raw::{elements, tag};

thread_local! {
    static SCORE: Cell<Option<f64>> = const { Cell::new(None) };
}

/// Evaluates expressions for a document with this score; `None` if it has none.
pub fn with_text_score<T>(score: Option<f64>, work: impl FnOnce() -> T) -> T {
    let outer = SCORE.replace(score);
    let result = work();
    SCORE.set(outer);
    result
}

/// Returns the score of the document for which expressions are evaluated. Errors: nothing was searched.
pub fn text_score() -> Result<f64> {
    SCORE.get().ok_or_else(score_not_available)
}

/// Returns the error for a score where nothing was searched.
pub fn score_not_available() -> DocsError {
    DocsError::new(
        ErrorCode::MetaNotAvailable,
        "query requires text score metadata, but it is not available: expected a $text condition",
    )
}

/// Returns whether `$meta` is a field of the document, or of one inside.
pub fn mentions_meta(document: &RawDocument) -> bool {
    mentions(document.as_bytes())
}

/// Documents are at most `depth_max` deep, and so is the recursion.
fn mentions(document: &[u8]) -> bool {
    elements(document).any(|e| {
        e.name == b"$meta" || (matches!(e.value.tag, tag::DOCUMENT | tag::ARRAY) && mentions(e.value.bytes))
    })
}
