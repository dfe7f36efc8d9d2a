//! Recursive-descent parser of SiddhiQL.
//!
//! A grammar rule that fails has already reported a diagnostic and returns [`SyntaxError`]; the enclosing
//! statement list then skips to a token at which it can resume. So one run reports several errors, and the
//! tree contains everything that could be parsed.
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
use crate::diagnostic::{Diagnostic, DiagnosticSink, Severity};
use crate::foreign;
use crate::lexer::{Dialect, Token, TokenKind, Tokens, drop_follow_on_errors, lex, lex_in};
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

fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|d| d.severity == Severity::Error)
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
    let tokens = lex(file, &Dialect::SIDDHI, &mut sink);
    let app = Parser::new(file, &tokens, &mut sink).app();
    let diagnostics = foreign::in_queries(finish(sink, file), file, diagnostic_codes::FOREIGN);
    (Parsed { app, diagnostics }, tokens)
}

/// Parses an on-demand query. Bounds: as for [`parse`]. Errors: the diagnostics, in source order.
pub fn parse_on_demand(file: &SourceFile) -> Result<OnDemandQuery, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::default();
    let tokens = lex(file, &Dialect::SIDDHI, &mut sink);
    let query = Parser::new(file, &tokens, &mut sink).on_demand();
    into_result(query, sink, file)
}

/// Parses an expression, such as the string given to an `expression` window. Bounds and errors: as for
/// [`parse_on_demand`].
pub fn parse_expression(file: &SourceFile) -> Result<Expr, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::default();
    let tokens = lex(file, &Dialect::SIDDHI, &mut sink);
    expression(file, &tokens, sink)
}

/// Parses the expression inside the string literal at `text` in `file`; `text` includes the quotes. Strings
/// have no escapes, so spans of the expression are ranges of `file`.
pub fn parse_expression_in(file: &SourceFile, text: Span) -> Result<Expr, Vec<Diagnostic>> {
    let quotes = if file.slice(text).starts_with("\"\"\"") { 3 } else { 1 };
    let inner = Span::new(text.file, text.start + quotes, text.end.saturating_sub(quotes));
    let mut sink = DiagnosticSink::default();
    let tokens = lex_in(file, inner, &Dialect::SIDDHI, &mut sink);
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

/// A grammar rule failed after reporting a diagnostic. The statement is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SyntaxError;

type Parse<T> = Result<T, SyntaxError>;

struct Parser<'a> {
    file: &'a SourceFile,
    /// Never empty; the last token is [`TokenKind::End`].
    tokens: &'a [Token],
    at: usize,
    sink: &'a mut DiagnosticSink,
    nesting: usize,
}

impl<'a> Parser<'a> {
    fn new(file: &'a SourceFile, tokens: &'a Tokens, sink: &'a mut DiagnosticSink) -> Self {
        Self { file, tokens: &tokens.tokens, at: 0, sink, nesting: 0 }
    }

    // ---- tokens

    fn token(&self) -> &'a Token {
        self.nth(0)
    }

    /// Returns the token `n` positions ahead, or the end token.
    fn nth(&self, n: usize) -> &'a Token {
        // the last token is the end token
        &self.tokens[(self.at + n).min(self.tokens.len() - 1)]
    }

    fn span(&self) -> Span {
        self.token().span
    }

    fn at_end(&self) -> bool {
        self.token().kind == TokenKind::End
    }

    /// Advances past the current token and returns its source range.
    fn bump(&mut self) -> Span {
        let span = self.span();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        span
    }

    /// Returns the source range of the previous token.
    fn previous(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    /// Returns the range from `start` to the end of the previous token.
    fn span_since(&self, start: Span) -> Span {
        start.to(self.previous())
    }

    fn text(&self, token: &Token) -> &'a str {
        self.file.slice(token.span)
    }

    /// Returns the unquoted word `n` tokens ahead; `None` if that token is not a word.
    fn word(&self, n: usize) -> Option<&'a str> {
        let token = self.nth(n);
        (token.kind == TokenKind::Word).then(|| self.text(token))
    }

    /// Returns whether the token `n` positions ahead is the keyword `word`.
    fn is_word(&self, n: usize, word: &str) -> bool {
        self.word(n).is_some_and(|w| w.eq_ignore_ascii_case(word))
    }

    /// Returns whether the token `n` positions ahead is one of the keywords `words`.
    fn is_word_of(&self, n: usize, words: &[&str]) -> bool {
        self.word(n).is_some_and(|w| is_one_of(w, words))
    }

    fn is_punct(&self, n: usize, punct: &str) -> bool {
        matches!(self.nth(n).kind, TokenKind::Punct(p) if p == punct)
    }

    fn is_punct_of(&self, n: usize, puncts: &[&str]) -> bool {
        matches!(self.nth(n).kind, TokenKind::Punct(p) if puncts.contains(&p))
    }

    /// Returns whether the token `n` positions ahead can be a name.
    fn is_name(&self, n: usize) -> bool {
        matches!(self.nth(n).kind, TokenKind::Word | TokenKind::Quoted(_))
    }

    fn eat(&mut self, punct: &str) -> Option<Span> {
        self.is_punct(0, punct).then(|| self.bump())
    }

    fn eat_word(&mut self, word: &str) -> Option<Span> {
        self.is_word(0, word).then(|| self.bump())
    }

    /// Consumes `punct`, or reports that it is missing; `context` says where, as in "after the stream's
    /// name".
    fn expect(&mut self, punct: &str, context: &str) -> Parse<Span> {
        match self.eat(punct) {
            Some(span) => Ok(span),
            None => Err(self.report_unexpected(&[&format!("`{punct}`")], context)),
        }
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

    // ---- diagnostics

    fn report(&mut self, diagnostic: Diagnostic) {
        self.sink.push(diagnostic);
        if self.sink.is_full() {
            // no more diagnostics can be added, so parsing stops
            self.at = self.tokens.len() - 1;
        }
    }

    /// Reports that one of `expected` was expected at the current token.
    fn report_unexpected(&mut self, expected: &[&str], context: &str) -> SyntaxError {
        self.report_unexpected_with(expected, context, None)
    }

    fn report_unexpected_with(
        &mut self,
        expected: &[&str],
        context: &str,
        help: Option<String>,
    ) -> SyntaxError {
        let space = if context.is_empty() { "" } else { " " };
        let message =
            format!("expected {}{space}{context}, found {}", one_of(expected), self.describe_token());
        let mut diagnostic = Diagnostic::error(diagnostic_codes::UNEXPECTED, self.error_span(), message)
            .expected(expected.to_vec());
        diagnostic.help = help;
        self.report(diagnostic);
        SyntaxError
    }

    /// Returns the range to report for a missing token: the current one, or at the end of the source the
    /// position after the last token.
    fn error_span(&self) -> Span {
        if self.at_end() { self.previous().at_end() } else { self.span() }
    }

    /// Describes the current token for messages.
    fn describe_token(&self) -> String {
        let token = self.token();
        let text: String = self.text(token).chars().take(40).collect();
        match token.kind {
            TokenKind::End => "the end of the text".to_owned(),
            TokenKind::Str(_) => format!("the string {text}"),
            TokenKind::Quoted(_) => format!("the name {text}"),
            TokenKind::Body(_) => "`{`".to_owned(),
            _ => format!("`{text}`"),
        }
    }

    /// Runs `inner` one nesting level deeper; reports an error at [`NESTING_MAX`].
    fn nested<T>(&mut self, inner: impl FnOnce(&mut Self) -> Parse<T>) -> Parse<T> {
        if self.nesting >= NESTING_MAX {
            return Err(self.report_too_deep(self.span()));
        }
        self.nesting += 1;
        let result = inner(self);
        self.nesting -= 1;
        result
    }

    fn report_too_deep(&mut self, span: Span) -> SyntaxError {
        self.report(
            Diagnostic::error(diagnostic_codes::TOO_DEEP, span, "this is nested too deeply")
                .help("split it: let one query compute a part of it for the next"),
        );
        SyntaxError
    }
}

/// Joins alternatives: `a`, `a or b`, `a, b or c`.
fn one_of(expected: &[&str]) -> String {
    match expected {
        [] => "something else".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
