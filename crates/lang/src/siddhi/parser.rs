//! Recursive-descent parser of SiddhiQL.
//!
//! [`crate::parser`] has the tokens and the reports of what is missing; the grammar is here.
//!
//! Keywords are also names. Where both readings are possible, a lookahead of at most three tokens after the
//! word decides, so parsing never backtracks.

mod annotation;
mod app;
mod definition;
mod expr;
mod join;
mod list;
mod on_demand;
mod operator;
mod output;
mod partition;
mod pattern;
mod query;
mod recovery;
mod reference;
mod selection;
mod step;
mod suggestions;
mod time;

pub(super) use operator::Precedence;

use super::ast::{App, Expr, Ident, OnDemandQuery, Scope, StreamRef, Text};
use super::keywords::is_one_of;
use super::{NESTING_MAX, diagnostic_codes};
use crate::diagnostic::{Diagnostic, DiagnosticSink};
use crate::foreign;
use crate::lexer::{LexicalSyntax, TokenKind, Tokens, drop_follow_on_errors, lex, lex_in};
use crate::parser::{Language, Parse, SyntaxError, has_errors};
use crate::source::{SourceFile, Span};

/// Result of parsing an app.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// Everything that could be parsed; the whole app if there are no errors.
    pub app: App,
    /// Errors and warnings in source order.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parsed {
    /// Returns whether a diagnostic is an error, so that the tree must not be used.
    pub fn has_errors(&self) -> bool {
        has_errors(&self.diagnostics)
    }
}

/// Parses an app.
///
/// Bounds: [`crate::source::FILE_BYTES_MAX`], [`NESTING_MAX`], [`super::EXPR_DEPTH_MAX`] and
/// [`crate::diagnostic::DIAGNOSTICS_MAX`]; exceeding one is reported as a diagnostic.
pub fn parse(file: &SourceFile) -> Parsed {
    let (parsed, _) = parse_with_tokens(file);
    parsed
}

/// Parses an app and also returns its tokens, for the formatter.
pub(super) fn parse_with_tokens(file: &SourceFile) -> (Parsed, Tokens) {
    let mut sink = DiagnosticSink::default();
    let tokens = lex(file, &LexicalSyntax::SIDDHI, &mut sink);
    let app = Parser::new(file, &tokens, &mut sink).app();
    let diagnostics = foreign::in_queries(finish(sink, file), file, diagnostic_codes::FOREIGN);
    (Parsed { app, diagnostics }, tokens)
}

/// Parses an on-demand query. Bounds: as for [`parse`]. Errors: the diagnostics, in source order.
pub fn parse_on_demand(file: &SourceFile) -> Result<OnDemandQuery, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::default();
    let tokens = lex(file, &LexicalSyntax::SIDDHI, &mut sink);
    let query = Parser::new(file, &tokens, &mut sink).on_demand();
    into_result(query, sink, file)
}

/// Parses an expression, such as the string given to an `expression` window. Bounds and errors: as for
/// [`parse_on_demand`].
pub fn parse_expression(file: &SourceFile) -> Result<Expr, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::default();
    let tokens = lex(file, &LexicalSyntax::SIDDHI, &mut sink);
    expression(file, &tokens, sink)
}

/// Parses the expression inside the string literal at `text` in `file`; `text` includes the quotes. Strings
/// have no escapes, so spans of the expression are ranges of `file`.
pub fn parse_expression_in(file: &SourceFile, text: Span) -> Result<Expr, Vec<Diagnostic>> {
    let quotes = if file.slice(text).starts_with("\"\"\"") { 3 } else { 1 };
    let inner = Span::new(text.file, text.start + quotes, text.end.saturating_sub(quotes));
    let mut sink = DiagnosticSink::default();
    let tokens = lex_in(file, inner, &LexicalSyntax::SIDDHI, &mut sink);
    expression(file, &tokens, sink)
}

fn expression(file: &SourceFile, tokens: &Tokens, mut sink: DiagnosticSink) -> Result<Expr, Vec<Diagnostic>> {
    let expr = Parser::new(file, tokens, &mut sink).lone_expr();
    into_result(expr, sink, file)
}

fn into_result<T>(read: Parse<T>, sink: DiagnosticSink, file: &SourceFile) -> Result<T, Vec<Diagnostic>> {
    let diagnostics = finish(sink, file);
    match read {
        Ok(read) if !has_errors(&diagnostics) => Ok(read),
        _ => Err(diagnostics),
    }
}

fn finish(sink: DiagnosticSink, file: &SourceFile) -> Vec<Diagnostic> {
    let mut diagnostics = sink.finish();
    drop_follow_on_errors(&mut diagnostics, file, diagnostic_codes::UNCLOSED);
    diagnostics
}

/// Wording and codes of the reports of SiddhiQL.
struct Siddhi;

impl Language for Siddhi {
    const NAME: &'static str = "SiddhiQL";
    const END: &'static str = "the end of the text";
    const BLOCK_CLOSER: &'static str = "end";
    const NESTING: (usize, &'static str, &'static str) = (
        NESTING_MAX,
        "this is nested too deeply",
        "split it: let one query compute a part of it for the next",
    );
    const UNEXPECTED: &'static str = diagnostic_codes::UNEXPECTED;
    const UNCLOSED: &'static str = diagnostic_codes::UNCLOSED;
    const SEMICOLON: &'static str = diagnostic_codes::SEMICOLON;
    const ASSIGN_FOR_EQUALS: &'static str = diagnostic_codes::ASSIGN_FOR_EQUALS;
    const FOREIGN: &'static str = diagnostic_codes::FOREIGN;
    const TOO_DEEP: &'static str = diagnostic_codes::TOO_DEEP;

    fn is_reserved(_: &str) -> bool {
        false
    }
}

type Parser<'a> = crate::parser::Parser<'a, Siddhi>;

impl Parser<'_> {
    // ---- keywords

    /// Returns whether the token `n` positions ahead is the keyword `word`.
    fn is_word(&self, n: usize, word: &str) -> bool {
        self.word(n).is_some_and(|w| w.eq_ignore_ascii_case(word))
    }

    /// Returns whether the token `n` positions ahead is one of the keywords `words`.
    fn is_word_of(&self, n: usize, words: &[&str]) -> bool {
        self.word(n).is_some_and(|w| is_one_of(w, words))
    }

    fn eat_word(&mut self, word: &str) -> Option<Span> {
        self.is_word(0, word).then(|| self.bump())
    }

    /// Consumes the keyword `word`, or reports that it is missing; `context` says where.
    fn expect_word(&mut self, word: &str, context: &str) -> Parse<Span> {
        match self.eat_word(word) {
            Some(span) => Ok(span),
            None => Err(self.report_unexpected_word(&[word], context)),
        }
    }

    // ---- names and strings

    fn name(&mut self, what: &str) -> Parse<Ident> {
        if self.is_word(0, "define") && self.at_statement() {
            return Err(self.report_unexpected(&[what], ""));
        }
        let name = match &self.token().kind {
            TokenKind::Word => self.text(self.token()).to_owned(),
            TokenKind::Quoted(name) => name.clone(),
            TokenKind::Str(text) => {
                let help = format!("write a name without quotes, or between backticks: `` `{text}` ``");
                return Err(self.report_unexpected_with(&[what], "", Some(help)));
            }
            _ => return Err(self.report_unexpected(&[what], "")),
        };
        Ok(Ident { name, span: self.bump() })
    }

    /// `S`, `#S`, `!S`
    fn stream_ref(&mut self, what: &str) -> Parse<StreamRef> {
        let start = self.span();
        let scope = match self.token().kind {
            TokenKind::Punct("#") => Scope::Inner,
            TokenKind::Punct("!") => Scope::Fault,
            _ => Scope::App,
        };
        if scope != Scope::App {
            self.bump();
        }
        let name = self.name(what)?;
        Ok(StreamRef { name, scope, span: self.span_since(start) })
    }

    /// Parses a string literal where the grammar requires one.
    fn text_value(&mut self, what: &str, context: &str) -> Parse<Text> {
        match &self.token().kind {
            TokenKind::Str(value) => Ok(Text { value: value.clone(), span: self.bump() }),
            TokenKind::Word | TokenKind::Quoted(_) => {
                let help = format!("write quotes around it: `'{}'`", self.text(self.token()));
                Err(self.report_unexpected_with(&[what], context, Some(help)))
            }
            _ => Err(self.report_unexpected(&[what], context)),
        }
    }
}
