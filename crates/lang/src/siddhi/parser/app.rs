//! Parsing of an app: annotations, definitions, queries and partitions.

use super::super::ast::{Annotation, App, ExecutionElement};
use super::super::diagnostic_codes;
use super::annotation::PrefixAnnotation;
use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::source::{FILE_BYTES_MAX, Span};

/// Kinds of statements seen so far; they determine which may follow.
#[derive(Default)]
struct AppProgress {
    /// Set once a definition has begun, even one with errors.
    definition: bool,
    /// Source range of the first query or partition, even one with errors.
    element: Option<Span>,
}

impl Parser<'_> {
    pub(super) fn app(&mut self) -> App {
        let mut app = App::default();
        let mut progress = AppProgress::default();
        while !self.at_end() {
            if self.is_punct(0, ";") {
                self.empty_statement();
                continue;
            }
            let start = self.at;
            if self.statement(&mut app, &mut progress).is_err() {
                self.skip_statement(start, false);
            }
        }
        if !progress.definition {
            self.report_missing_definition(progress.element);
        }
        app
    }

    fn report_missing_definition(&mut self, element: Option<Span>) {
        if self.file.text().len() > FILE_BYTES_MAX {
            // the lexer rejected the file
            return;
        }
        let place = element.unwrap_or_else(|| self.tokens[0].span.at_start());
        self.report(
            Diagnostic::error(diagnostic_codes::NO_DEFINITION, place, "an app needs at least one definition")
                .expected(["`define`"])
                .help("begin with an input stream: `define stream S (a int);`"),
        );
    }

    /// Parses app annotations, or a statement with its `;`.
    fn statement(&mut self, app: &mut App, progress: &mut AppProgress) -> Parse<()> {
        let start = self.span();
        let mut annotations: Vec<Annotation> = Vec::new();
        while self.is_punct(0, "@") {
            let at = self.span();
            match self.prefix_annotation()? {
                PrefixAnnotation::Other(annotation) => annotations.push(annotation),
                PrefixAnnotation::App(annotation) => {
                    let first = annotations.is_empty() && !progress.definition && progress.element.is_none();
                    if !first {
                        self.report_misplaced_app_annotation(at.to(annotation.span));
                    }
                    app.annotations.push(annotation);
                    if first {
                        self.check_semicolon_after_annotation();
                        return Ok(());
                    }
                }
            }
        }
        let word = self.statement_word();
        if word == Some("define") {
            let late = std::mem::replace(&mut progress.definition, true) && progress.element.is_some();
            if let Some(element) = progress.element {
                self.report_late_definition(element, late);
            }
            let definition = self.definition(start, annotations)?;
            app.definitions.push(definition);
            return self.semicolon("definition");
        }
        if word == Some("from") {
            progress.element.get_or_insert(start);
            let query = self.query(start, annotations)?;
            app.elements.push(ExecutionElement::Query(Box::new(query)));
            return self.end_of_query();
        }
        if word == Some("partition") {
            progress.element.get_or_insert(start);
            let partition = self.partition(start, annotations)?;
            app.elements.push(ExecutionElement::Partition(partition));
            return self.semicolon("partition");
        }
        let nothing_yet = !progress.definition && progress.element.is_none();
        // an unreadable first statement was probably meant as a definition, so none is reported missing
        progress.definition |= nothing_yet;
        if !annotations.is_empty() && (self.at_end() || self.is_punct(0, ";")) {
            return Err(
                self.report_unexpected(&["`define`", "`from`", "`partition`"], "after the annotation")
            );
        }
        Err(self.report_not_a_statement())
    }

    fn check_semicolon_after_annotation(&mut self) {
        if self.is_punct(0, ";") {
            let span = self.bump();
            self.report(
                Diagnostic::error(
                    diagnostic_codes::EMPTY_STATEMENT,
                    span,
                    "an annotation applies to what follows it and has no `;`",
                )
                .help("remove it"),
            );
        }
    }

    /// Reports the current definition, which follows the first query or partition at `element`. `again`:
    /// definitions precede `element` too.
    fn report_late_definition(&mut self, element: Span, again: bool) {
        let message = "definitions must be before the first query or partition";
        let help = match again {
            true => "move it up to the other definitions",
            false => "move it up, before the first query",
        };
        self.report(
            Diagnostic::error(diagnostic_codes::DEFINITION_LATE, self.span(), message)
                .help(help)
                .note_at(element.at_start(), "the first query or partition begins here"),
        );
    }

    /// Parses the `;` after a query. A clause after the output is reported as out of order.
    pub(super) fn end_of_query(&mut self) -> Parse<()> {
        if self.begins_clause() {
            let word = self.word(0).unwrap_or("").to_ascii_lowercase();
            return Err(self.report_late_clause(&word, "insert"));
        }
        self.semicolon("query")
    }
}
