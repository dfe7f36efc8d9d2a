//! Diagnostics: errors and warnings about source text, with location, expected tokens and a suggested fix.

use std::fmt::Write as _;

use serde::Serialize;

use crate::secrets;
use crate::source::{Position, SourceFile, Sources, Span};

/// Maximum number of diagnostics of one parse. After the last one follows [`TOO_MANY`], and the parser stops.
pub const DIAGNOSTICS_MAX: usize = 100;

/// Code of the diagnostic which reports that further diagnostics were dropped.
pub const TOO_MANY: &str = "L0002";

/// Maximum length of a source line in a rendered diagnostic, in characters.
const SHOWN_CHARS_MAX: usize = 140;

/// Severity of a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The source is valid, but may not mean what the author intended.
    Warning,
    /// The app cannot be used.
    Error,
}

impl Severity {
    /// Returns the lower-case name that starts a rendered diagnostic.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// An error or warning about source text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// Severity; only errors prevent the use of the app.
    pub severity: Severity,
    /// Stable identifier: `L…` lexical, `R…` rules, `S…` SiddhiQL; a code never changes its meaning.
    pub code: &'static str,
    /// Description of the problem, in one line, without a full stop.
    pub message: String,
    /// Source range of the problem.
    pub span: Span,
    /// Tokens or constructs that would be valid at `span`; empty if the problem is of another kind.
    pub expected: Vec<String>,
    /// Suggested fix, such as the source text to write.
    pub help: Option<String>,
    /// Additional information, possibly about other source ranges.
    pub notes: Vec<Note>,
}

/// Additional information about a diagnostic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The information, in one line.
    pub message: String,
    /// Source range that the note refers to, if any.
    pub span: Option<Span>,
}

impl Diagnostic {
    /// Creates an error without expectations, help and notes.
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self {
            severity: Severity::Error,
            code,
            message: message.into(),
            span,
            expected: Vec::new(),
            help: None,
            notes: Vec::new(),
        }
    }

    /// Creates a warning without expectations, help and notes.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, message) }
    }

    /// Sets the suggested fix.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Sets the tokens or constructs that would be valid.
    pub fn expected(mut self, expected: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.expected = expected.into_iter().map(Into::into).collect();
        self
    }

    /// Appends a note without a source range.
    pub fn note(mut self, message: impl Into<String>) -> Self {
        self.notes.push(Note { message: message.into(), span: None });
        self
    }

    /// Appends a note about the source range `span`.
    pub fn note_at(mut self, span: Span, message: impl Into<String>) -> Self {
        self.notes.push(Note { message: message.into(), span: Some(span) });
        self
    }

    /// Renders the diagnostic for a terminal: message, location, source line with the range marked, help,
    /// notes. Ends in a newline.
    ///
    /// Omits location and source line if `sources` does not contain the file. Confidential values in the line are
    /// replaced by stars.
    pub fn render(&self, sources: &Sources) -> String {
        let mut out = format!("{}[{}]: {}\n", self.severity.name(), self.code, self.message);
        let gutter = self.gutter(sources);
        let pad = " ".repeat(gutter);
        snippet(&mut out, sources, self.span, gutter);
        match &self.help {
            Some(help) => {
                let _ = writeln!(out, "{pad} = help: {help}");
            }
            // messages of parsers already name the expected tokens
            None if !self.expected.is_empty() && !self.message.contains("expected") => {
                let _ = writeln!(out, "{pad} = help: write {}", self.expected.join(" or "));
            }
            None => {}
        }
        for note in &self.notes {
            match note.span {
                None => {
                    let _ = writeln!(out, "{pad} = note: {}", note.message);
                }
                Some(span) => {
                    let _ = writeln!(out, "note: {}", note.message);
                    snippet(&mut out, sources, span, gutter);
                }
            }
        }
        out
    }

    /// Returns the number of digits of the largest line number that will be shown.
    fn gutter(&self, sources: &Sources) -> usize {
        let places = self.notes.iter().filter_map(|n| n.span).chain([self.span]);
        let lines = places.filter_map(|s| Some(sources.get(s.file)?.position(s.start).line));
        lines.max().unwrap_or(1).to_string().len()
    }

    /// Converts the diagnostic to plain data with file names, lines and columns, for serialization as JSON.
    pub fn to_report(&self, sources: &Sources) -> DiagnosticReport {
        DiagnosticReport {
            severity: self.severity,
            code: self.code,
            message: self.message.clone(),
            place: SourceRange::of(self.span, sources),
            expected: self.expected.clone(),
            help: self.help.clone(),
            notes: self
                .notes
                .iter()
                .map(|n| DiagnosticReportNote {
                    message: n.message.clone(),
                    place: n.span.and_then(|s| SourceRange::of(s, sources)),
                })
                .collect(),
        }
    }
}

/// A [`Diagnostic`] as plain data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiagnosticReport {
    /// Severity; only errors prevent the use of the app.
    pub severity: Severity,
    /// Stable identifier.
    pub code: &'static str,
    /// Description of the problem, in one line.
    pub message: String,
    /// Source range of the problem; `None` if the file is unknown.
    pub place: Option<SourceRange>,
    /// Tokens or constructs that would be valid there.
    pub expected: Vec<String>,
    /// Suggested fix.
    pub help: Option<String>,
    /// Additional information.
    pub notes: Vec<DiagnosticReportNote>,
}

/// A [`Note`] as plain data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiagnosticReportNote {
    /// The information, in one line.
    pub message: String,
    /// Source range that the note refers to; `None` if it has none or the file is unknown.
    pub place: Option<SourceRange>,
}

/// A [`Span`] with the file name, and with lines and columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceRange {
    /// File name.
    pub file: String,
    /// Position of the first character.
    pub start: Position,
    /// Position one past the last character.
    pub end: Position,
}

impl SourceRange {
    fn of(span: Span, sources: &Sources) -> Option<Self> {
        let file = sources.get(span.file)?;
        Some(Self {
            file: file.name().to_owned(),
            start: file.position(span.start),
            end: file.position(span.end),
        })
    }
}

/// Renders all `diagnostics`, separated by empty lines.
pub fn render_all(diagnostics: &[Diagnostic], sources: &Sources) -> String {
    let texts: Vec<String> = diagnostics.iter().map(|d| d.render(sources)).collect();
    texts.join("\n")
}

/// Collector of up to [`DIAGNOSTICS_MAX`] diagnostics.
#[derive(Debug, Default)]
pub struct DiagnosticSink {
    list: Vec<Diagnostic>,
}

impl DiagnosticSink {
    /// Appends `diagnostic`, unless one with an equal code and source range exists or the sink is full.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if self.is_full() || self.list.iter().any(|d| d.code == diagnostic.code && d.span == diagnostic.span)
        {
            return;
        }
        let span = diagnostic.span;
        self.list.push(diagnostic);
        if self.list.len() == DIAGNOSTICS_MAX {
            let message = format!("more than {DIAGNOSTICS_MAX} errors; further ones are not reported");
            self.list.push(
                Diagnostic::error(TOO_MANY, span, message).help("correct these errors, then check again"),
            );
        }
    }

    /// Returns whether the sink accepts no more diagnostics.
    pub fn is_full(&self) -> bool {
        self.list.len() > DIAGNOSTICS_MAX
    }

    /// Returns the diagnostics in source order, [`TOO_MANY`] last.
    pub fn finish(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|d| (d.code == TOO_MANY, d.span.file, d.span.start));
        self.list
    }
}

/// Writes the location of `span` as ` --> file:line:column`, then its first line with carets under `span`.
fn snippet(out: &mut String, sources: &Sources, span: Span, gutter: usize) {
    let Some(file) = sources.get(span.file) else {
        return;
    };
    let at = file.position(span.start);
    let pad = " ".repeat(gutter);
    let _ = writeln!(out, "{pad}--> {}:{}:{}", file.name(), at.line, at.column);
    let (shown, mark) = marked_line(file, span, at);
    let _ = writeln!(out, "{pad} |");
    let _ = writeln!(out, "{}", format!("{:>gutter$} | {shown}", at.line).trim_end());
    let _ = writeln!(out, "{pad} | {}", mark);
}

/// Returns the line on which `span` begins, cut to [`SHOWN_CHARS_MAX`] characters, and the line of carets
/// under it.
fn marked_line(file: &SourceFile, span: Span, at: Position) -> (String, String) {
    let (line, line_start) = file.line(at.line);
    let column = at.column as usize - 1;
    let inside_end = (span.end.saturating_sub(line_start) as usize).min(line.len());
    let inside_start = (span.start.saturating_sub(line_start) as usize).min(line.len());
    let width = line.get(inside_start..inside_end.max(inside_start)).map_or(0, |s| s.chars().count()).max(1);

    let cut = if column > SHOWN_CHARS_MAX * 3 / 4 { column - SHOWN_CHARS_MAX / 2 } else { 0 };
    let mut shown = String::from(if cut > 0 { "… " } else { "" });
    let mut mark = String::from(if cut > 0 { "  " } else { "" });
    let line = secrets::hide(line);
    let mut rest = line.chars().skip(cut);
    for (i, c) in rest.by_ref().take(SHOWN_CHARS_MAX).enumerate() {
        // control characters, which could move the terminal's cursor, are replaced; a tab is repeated in the
        // caret line
        shown.push(if c.is_control() && c != '\t' { '\u{fffd}' } else { c });
        if cut + i < column {
            mark.push(if c == '\t' { '\t' } else { ' ' });
        }
    }
    if rest.next().is_some() {
        shown.push_str(" …");
    }
    mark.push_str(&"^".repeat(width.min(SHOWN_CHARS_MAX - (column - cut).min(SHOWN_CHARS_MAX - 1))));
    (shown.trim_end().to_owned(), mark)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::FileId;

    #[test]
    fn a_report_has_names_and_positions() {
        let mut sources = Sources::default();
        let file = sources.add("a.rules", "ä\nbc d\n");
        let span = Span::new(file, 3, 5);
        let diagnostic =
            Diagnostic::error("R0000", span, "wrong").help("right").note_at(Span::new(file, 0, 2), "here");
        let report = diagnostic.to_report(&sources);
        let place = report.place.as_ref().expect("the file is known");
        assert_eq!((place.start.line, place.start.column, place.end.column), (2, 1, 3));
        let json = serde_json::to_value(&report).expect("plain data");
        assert_eq!(json["severity"], "error");
        assert_eq!(json["notes"][0]["place"]["end"]["column"], 2);
        assert_eq!(
            Diagnostic::error("R0000", Span::new(FileId(7), 0, 1), "x").to_report(&sources).place,
            None
        );
        assert_eq!(
            Diagnostic::error("R0000", Span::new(FileId(7), 0, 1), "x").render(&sources),
            "error[R0000]: x\n"
        );
    }
}
