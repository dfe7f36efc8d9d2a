//! Tokens to tree, by recursive descent.
//!
//! A rule of grammar that fails has reported why and returns [`SyntaxError`]; the nearest list of statements skips to where
//! it can go on. So one run reports several mistakes, and the tree holds all that could be read.
//!
//! Keywords are names too. Where both readings are possible, what follows the word decides, never more than three
//! tokens on, so the text is read once.

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
use crate::lexer::{Dialect, Token, TokenKind, Tokens, drop_follow_on_errors, lex, lex_in};
use crate::source::{SourceFile, Span};

/// What became of an app's text.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// Everything that could be read. Without errors it is the whole app.
    pub app: App,
    /// What is wrong, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parsed {
    /// Whether something is wrong enough for the tree not to be used.
    pub fn has_errors(&self) -> bool {
        has_errors(&self.diagnostics)
    }
}

fn has_errors(diagnostics: &[Diagnostic]) -> bool {
    diagnostics.iter().any(|d| d.severity == Severity::Error)
}

/// Reads an app.
///
/// Bounds: [`crate::source::FILE_BYTES_MAX`], [`NESTING_MAX`], [`super::EXPR_DEPTH_MAX`] and
/// [`crate::diagnostic::DIAGNOSTICS_MAX`]; each is reported as a diagnostic when it is reached.
pub fn parse(file: &SourceFile) -> Parsed {
    let (parsed, _) = parse_with_tokens(file);
    parsed
}

/// The same with the tokens, for the formatter.
pub(super) fn parse_with_tokens(file: &SourceFile) -> (Parsed, Tokens) {
    let mut sink = DiagnosticSink::default();
    let tokens = lex(file, &Dialect::SIDDHI, &mut sink);
    let app = Parser::new(file, &tokens, &mut sink).app();
    (Parsed { app, diagnostics: finish(sink, file) }, tokens)
}

/// Reads an on-demand query. Bounds: as for [`parse`]. Errors: what is wrong, in the order of the text.
pub fn parse_on_demand(file: &SourceFile) -> Result<OnDemandQuery, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::default();
    let tokens = lex(file, &Dialect::SIDDHI, &mut sink);
    let query = Parser::new(file, &tokens, &mut sink).on_demand();
    into_result(query, sink, file)
}

/// Reads an expression, such as the text given to an `expression` window. Bounds and errors: as for
/// [`parse_on_demand`].
pub fn parse_expression(file: &SourceFile) -> Result<Expr, Vec<Diagnostic>> {
    let mut sink = DiagnosticSink::default();
    let tokens = lex(file, &Dialect::SIDDHI, &mut sink);
    expression(file, &tokens, sink)
}

/// Reads the expression in the text literal that stands at `text` in `file`, quotes included. Texts have no escapes,
/// so places in the expression are places in `file`.
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

/// A rule of grammar failed; its diagnostic is in the sink. The statement is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SyntaxError;

type Parse<T> = Result<T, SyntaxError>;

struct Parser<'a> {
    file: &'a SourceFile,
    /// Never empty; the last is the end.
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

    /// The token `n` further on, or the end.
    fn nth(&self, n: usize) -> &'a Token {
        // the last token is the end
        &self.tokens[(self.at + n).min(self.tokens.len() - 1)]
    }

    fn span(&self) -> Span {
        self.token().span
    }

    fn at_end(&self) -> bool {
        self.token().kind == TokenKind::End
    }

    /// Moves past the token and gives its place.
    fn bump(&mut self) -> Span {
        let span = self.span();
        self.at = (self.at + 1).min(self.tokens.len() - 1);
        span
    }

    /// The place of the token before.
    fn previous(&self) -> Span {
        self.tokens[self.at.saturating_sub(1)].span
    }

    /// From `start` to the token before.
    fn span_since(&self, start: Span) -> Span {
        start.to(self.previous())
    }

    fn text(&self, token: &Token) -> &'a str {
        self.file.slice(token.span)
    }

    /// The word that the token `n` further on is.
    fn word(&self, n: usize) -> Option<&'a str> {
        let token = self.nth(n);
        (token.kind == TokenKind::Word).then(|| self.text(token))
    }

    /// Whether the token `n` further on is the keyword `word`.
    fn is_word(&self, n: usize, word: &str) -> bool {
        self.word(n).is_some_and(|w| w.eq_ignore_ascii_case(word))
    }

    /// Whether the token `n` further on is one of the keywords `words`.
    fn is_word_of(&self, n: usize, words: &[&str]) -> bool {
        self.word(n).is_some_and(|w| is_one_of(w, words))
    }

    fn is_punct(&self, n: usize, punct: &str) -> bool {
        matches!(self.nth(n).kind, TokenKind::Punct(p) if p == punct)
    }

    fn is_punct_of(&self, n: usize, puncts: &[&str]) -> bool {
        matches!(self.nth(n).kind, TokenKind::Punct(p) if puncts.contains(&p))
    }

    /// Whether the token `n` further on can be a name.
    fn is_name(&self, n: usize) -> bool {
        matches!(self.nth(n).kind, TokenKind::Word | TokenKind::Quoted(_))
    }

    fn eat(&mut self, punct: &str) -> Option<Span> {
        self.is_punct(0, punct).then(|| self.bump())
    }

    fn eat_word(&mut self, word: &str) -> Option<Span> {
        self.is_word(0, word).then(|| self.bump())
    }

    /// Moves past `punct`, or reports `context` (as in "after the stream's name").
    fn expect(&mut self, punct: &str, context: &str) -> Parse<Span> {
        match self.eat(punct) {
            Some(span) => Ok(span),
            None => Err(self.report_unexpected(&[&format!("`{punct}`")], context)),
        }
    }

    /// Moves past the keyword `word`, or reports `context`.
    fn expect_word(&mut self, word: &str, context: &str) -> Parse<Span> {
        match self.eat_word(word) {
            Some(span) => Ok(span),
            None => Err(self.report_unexpected_word(&[word], context)),
        }
    }

    // ---- names and texts

    fn name(&mut self, what: &str) -> Parse<Ident> {
        if self.is_word(0, "define") && self.at_statement() {
            return Err(self.report_unexpected(&[what], ""));
        }
        let name = match &self.token().kind {
            TokenKind::Word => self.text(self.token()).to_owned(),
            TokenKind::Quoted(name) => name.clone(),
            TokenKind::Str(text) => {
                let help = format!("names stand without quotes, or between backticks: `` `{text}` ``");
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

    /// A text where the grammar wants one.
    fn text_value(&mut self, what: &str, context: &str) -> Parse<Text> {
        match &self.token().kind {
            TokenKind::Str(value) => Ok(Text { value: value.clone(), span: self.bump() }),
            TokenKind::Word | TokenKind::Quoted(_) => {
                let help = format!("put quotes around it: `'{}'`", self.text(self.token()));
                Err(self.report_unexpected_with(&[what], context, Some(help)))
            }
            _ => Err(self.report_unexpected(&[what], context)),
        }
    }

    // ---- diagnostics

    fn report(&mut self, diagnostic: Diagnostic) {
        self.sink.push(diagnostic);
        if self.sink.is_full() {
            // nothing more can be said, so nothing more is read
            self.at = self.tokens.len() - 1;
        }
    }

    /// Reports that one of `expected` should stand here.
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

    /// Where something is missing: here, or at the end of the text right behind the last token.
    fn error_span(&self) -> Span {
        if self.at_end() { self.previous().at_end() } else { self.span() }
    }

    /// The token in words.
    fn describe_token(&self) -> String {
        let token = self.token();
        let text: String = self.text(token).chars().take(40).collect();
        match token.kind {
            TokenKind::End => "the end of the text".to_owned(),
            TokenKind::Str(_) => format!("the text {text}"),
            TokenKind::Quoted(_) => format!("the name {text}"),
            TokenKind::Body(_) => "`{`".to_owned(),
            _ => format!("`{text}`"),
        }
    }

    /// Runs `inner` one level deeper; reports when that is too deep.
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
            Diagnostic::error(diagnostic_codes::TOO_DEEP, span, "this is too deeply nested")
                .help("divide it: let one query compute a part of it for the next"),
        );
        SyntaxError
    }
}

/// `a`, `a or b`, `a, b or c`
fn one_of(expected: &[&str]) -> String {
    match expected {
        [] => "something else".to_owned(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}
