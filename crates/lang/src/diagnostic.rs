//! What is wrong with a text: place, what was expected, what to type.

use std::fmt::Write as _;

use serde::Serialize;

use crate::source::{Position, SourceFile, Sources, Span};

/// Most diagnostics kept in one run. After the last comes [`TOO_MANY`] and the parser stops.
pub const DIAGNOSTICS_MAX: usize = 100;

/// Code of the diagnostic that says that no more are given.
pub const TOO_MANY: &str = "L0002";

/// Longest piece of a source line that is shown, in characters.
const SHOWN_CHARS_MAX: usize = 140;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It works, but perhaps not as meant.
    Warning,
    /// The app cannot be used.
    Error,
}

impl Severity {
    /// As it is written in front of a message.
    pub fn name(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How bad it is.
    pub severity: Severity,
    /// Stable identifier: `L…` lexical, `R…` rules, `S…` SiddhiQL; a code never changes its meaning.
    pub code: &'static str,
    /// What is wrong, in one line, without a full stop.
    pub message: String,
    /// Where.
    pub span: Span,
    /// What could stand there instead; empty when that is not the point.
    pub expected: Vec<String>,
    /// What to type.
    pub help: Option<String>,
    /// More to know, perhaps about other places.
    pub notes: Vec<Note>,
}

/// Something more to know about a diagnostic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The text, in one line.
    pub message: String,
    /// The place it is about.
    pub span: Option<Span>,
}

impl Diagnostic {
    /// An error.
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

    /// A warning.
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::error(code, span, message) }
    }

    /// The same with what to type.
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// The same with what could stand there.
    pub fn expected(mut self, expected: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.expected = expected.into_iter().map(Into::into).collect();
        self
    }

    /// The same with a note.
    pub fn note(mut self, message: impl Into<String>) -> Self {
        self.notes.push(Note { message: message.into(), span: None });
        self
    }

    /// The same with a note about the place `span`.
    pub fn note_at(mut self, span: Span, message: impl Into<String>) -> Self {
        self.notes.push(Note { message: message.into(), span: Some(span) });
        self
    }

    /// As text for a terminal: message, place, source line with the place marked, help, notes. Ends in a newline.
    ///
    /// A file that `sources` does not have is left out of the text.
    pub fn render(&self, sources: &Sources) -> String {
        let mut out = format!("{}[{}]: {}\n", self.severity.name(), self.code, self.message);
        let gutter = self.gutter(sources);
        let pad = " ".repeat(gutter);
        snippet(&mut out, sources, self.span, gutter);
        match &self.help {
            Some(help) => {
                let _ = writeln!(out, "{pad} = help: {help}");
            }
            // messages of parsers say themselves what was expected
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

    /// Digits of the largest line number that will be shown.
    fn gutter(&self, sources: &Sources) -> usize {
        let places = self.notes.iter().filter_map(|n| n.span).chain([self.span]);
        let lines = places.filter_map(|s| Some(sources.get(s.file)?.position(s.start).line));
        lines.max().unwrap_or(1).to_string().len()
    }

    /// As plain data with names and positions, to be sent as JSON.
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
    /// How bad it is.
    pub severity: Severity,
    /// Stable identifier.
    pub code: &'static str,
    /// What is wrong.
    pub message: String,
    /// Where; `None` when the file is not known.
    pub place: Option<SourceRange>,
    /// What could stand there instead.
    pub expected: Vec<String>,
    /// What to type.
    pub help: Option<String>,
    /// More to know.
    pub notes: Vec<DiagnosticReportNote>,
}

/// A [`Note`] as plain data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiagnosticReportNote {
    /// The text.
    pub message: String,
    /// The place it is about.
    pub place: Option<SourceRange>,
}

/// A [`Span`] with the file's name, and lines and columns.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SourceRange {
    /// The file.
    pub file: String,
    /// The first character.
    pub start: Position,
    /// One past the last character.
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

/// All of `diagnostics` as text, an empty line between two.
pub fn render_all(diagnostics: &[Diagnostic], sources: &Sources) -> String {
    let texts: Vec<String> = diagnostics.iter().map(|d| d.render(sources)).collect();
    texts.join("\n")
}

/// Collects up to [`DIAGNOSTICS_MAX`] diagnostics.
#[derive(Debug, Default)]
pub struct DiagnosticSink {
    list: Vec<Diagnostic>,
}

impl DiagnosticSink {
    /// Keeps `diagnostic`, unless there is one of the same code at the same place, or there are too many.
    pub fn push(&mut self, diagnostic: Diagnostic) {
        if self.is_full() || self.list.iter().any(|d| d.code == diagnostic.code && d.span == diagnostic.span)
        {
            return;
        }
        let span = diagnostic.span;
        self.list.push(diagnostic);
        if self.list.len() == DIAGNOSTICS_MAX {
            let message = format!("more than {DIAGNOSTICS_MAX} errors; the rest is not checked");
            self.list.push(
                Diagnostic::error(TOO_MANY, span, message).help("correct the first ones, then check again"),
            );
        }
    }

    /// Whether no more are taken.
    pub fn is_full(&self) -> bool {
        self.list.len() > DIAGNOSTICS_MAX
    }

    /// The diagnostics in the order of the text.
    pub fn finish(mut self) -> Vec<Diagnostic> {
        self.list.sort_by_key(|d| (d.code == TOO_MANY, d.span.file, d.span.start));
        self.list
    }
}

/// The place of `span` as ` --> file:line:column`, its first line, and a mark under it.
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

/// The line on which `span` begins, cut to what is worth showing, and the line of carets under it.
fn marked_line(file: &SourceFile, span: Span, at: Position) -> (String, String) {
    let (line, line_start) = file.line(at.line);
    let column = at.column as usize - 1;
    let inside_end = (span.end.saturating_sub(line_start) as usize).min(line.len());
    let inside_start = (span.start.saturating_sub(line_start) as usize).min(line.len());
    let width = line.get(inside_start..inside_end.max(inside_start)).map_or(0, |s| s.chars().count()).max(1);

    let cut = if column > SHOWN_CHARS_MAX * 3 / 4 { column - SHOWN_CHARS_MAX / 2 } else { 0 };
    let mut shown = String::from(if cut > 0 { "… " } else { "" });
    let mut mark = String::from(if cut > 0 { "  " } else { "" });
    let mut rest = line.chars().skip(cut);
    for (i, c) in rest.by_ref().take(SHOWN_CHARS_MAX).enumerate() {
        // what moves the cursor of a terminal is not repeated to it; a tab is, under itself
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
