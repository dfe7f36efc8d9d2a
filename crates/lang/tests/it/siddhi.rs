//! Tests of SiddhiQL: limits, spans, and random and truncated input.

mod bounds;
mod places;
mod roundtrip;
mod torn;

use tidemill_lang::siddhi::{format, parse, structural_text};
use tidemill_lang::source::{FileId, SourceFile};

fn file(text: impl Into<String>) -> SourceFile {
    SourceFile::new(FileId(0), "a.siddhi", text)
}

/// Returns the inputs of a case file.
fn case_texts(cases: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for case in cases.split("=== ").skip(1) {
        let text = case.split_once('\n').map_or("", |(_, text)| text);
        texts.push(text.split_once("\n---").map_or(text, |(text, _)| text).to_owned());
    }
    texts
}

/// Formats `text` if it can be parsed. Asserts that the result parses to an equal tree and that formatting is
/// idempotent.
fn check_format(text: &str) -> Option<String> {
    let before = file(text);
    let canonical = format(&before).ok()?;
    let after = file(canonical.clone());
    assert_eq!(format(&after).as_deref(), Ok(canonical.as_str()), "formatting twice changes\n{text}");
    assert_eq!(
        structural_text(&parse(&after).app),
        structural_text(&parse(&before).app),
        "formatting changes the tree of\n{text}\nnow\n{canonical}"
    );
    Some(canonical)
}
