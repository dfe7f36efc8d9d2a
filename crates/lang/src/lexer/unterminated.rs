//! What follows from a text or name without an end.

use super::diagnostic_codes;
use crate::diagnostic::Diagnostic;
use crate::source::{SourceFile, Span};

/// Drops what was reported only because a text, name or comment without an end swallowed what follows it: brackets
/// without an end, whose code is `unclosed`, and whatever is wrong behind it on the line and at the start of the next.
pub(crate) fn drop_follow_on_errors(diagnostics: &mut Vec<Diagnostic>, file: &SourceFile, unclosed: &str) {
    const OPEN: [&str; 4] = [
        diagnostic_codes::OPEN_STRING,
        diagnostic_codes::OPEN_NAME,
        diagnostic_codes::OPEN_COMMENT,
        diagnostic_codes::OPEN_BODY,
    ];
    let is_open = |d: &Diagnostic| OPEN.contains(&d.code);
    let open: Vec<Span> = diagnostics.iter().filter(|d| is_open(d)).map(|d| d.span).collect();
    if open.is_empty() {
        return;
    }
    let end = file.text().trim_end().len();
    let swallowed = |span: Span| {
        let behind = |o: &&Span| o.start < span.start;
        let Some(last) = open.iter().rfind(behind) else {
            return false;
        };
        // what lies between: the rest of the line, and the space before the next token
        let between = file.text().get(last.start as usize..span.start as usize).unwrap_or("");
        span.start as usize >= end || !between.trim_end().contains('\n')
    };
    diagnostics.retain(|d| {
        // the text lies between the bracket and the place where its end was missed
        let missed = d.notes.iter().filter_map(|note| note.span).map(|span| span.start).max();
        let around = |o: &Span| d.span.start < o.start && missed.is_none_or(|missed| o.start < missed);
        let bracket = d.code == unclosed && open.iter().any(around);
        is_open(d) || d.code.starts_with('L') || !(bracket || swallowed(d.span))
    });
}
