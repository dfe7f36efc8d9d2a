//! Suppression of diagnostics that only follow from an unterminated string, name or comment.

use super::diagnostic_codes;
use crate::diagnostic::Diagnostic;
use crate::source::{SourceFile, Span};

/// Drops diagnostics that were reported only because an unterminated string, name, comment or body swallowed
/// what follows it: unclosed brackets, whose code is `unclosed`, and errors after it on its line and at the
/// start of the next line. Lexical diagnostics are retained.
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
        // source text between the opening mark and `span`: the rest of the line, and whitespace before the
        // next token
        let between = file.text().get(last.start as usize..span.start as usize).unwrap_or("");
        span.start as usize >= end || !between.trim_end().contains('\n')
    };
    diagnostics.retain(|d| {
        // the unterminated text is between the bracket and the location where its closing bracket was missed
        let missed = d.notes.iter().filter_map(|note| note.span).map(|span| span.start).max();
        let around = |o: &Span| d.span.start < o.start && missed.is_none_or(|missed| o.start < missed);
        let bracket = d.code == unclosed && open.iter().any(around);
        is_open(d) || d.code.starts_with('L') || !(bracket || swallowed(d.span))
    });
}
