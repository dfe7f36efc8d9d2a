//! Recursive-descent parser of the rule language.
//!
//! A grammar rule that fails has already reported a diagnostic and returns [`SyntaxError`]; the enclosing
//! list of statements or items then skips to a token at which it can resume. So one run reports several
//! errors, and the tree contains everything that could be parsed.

mod action;
mod condition;
mod declaration;
mod expr;
mod list;
mod operator;
mod other_languages;
mod recovery;
mod rule;
mod span;

pub(super) use operator::Precedence;

use super::ast::{Ident, Item, Module};
use super::keywords::{is_keyword, is_reserved};
use super::{NESTING_MAX, diagnostic_codes};
use crate::diagnostic::{Diagnostic, DiagnosticSink, Severity};
use crate::foreign;
use crate::lexer::{Dialect, Token, TokenKind, Tokens, drop_follow_on_errors, lex};
use crate::source::{SourceFile, Span};

/// Result of parsing a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// Everything that could be parsed; the whole file if there are no errors.
    pub module: Module,
    /// Errors and warnings in source order.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parsed {
    /// Returns whether a diagnostic is an error, so that the tree must not be used.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }
}

/// Parses a `*.rules` file.
///
/// Bounds: [`crate::source::FILE_BYTES_MAX`], [`NESTING_MAX`], [`super::EXPR_DEPTH_MAX`] and
/// [`crate::diagnostic::DIAGNOSTICS_MAX`]; exceeding one is reported as a diagnostic.
pub fn parse(file: &SourceFile) -> Parsed {
    let (parsed, _) = parse_with_tokens(file);
    parsed
}

/// Parses a file and also returns its tokens, for the formatter.
pub(super) fn parse_with_tokens(file: &SourceFile) -> (Parsed, Tokens) {
    let mut sink = DiagnosticSink::default();
    let tokens = lex(file, &Dialect::RULES, &mut sink);
    let mut parser = Parser { file, tokens: &tokens.tokens, at: 0, sink: &mut sink, nesting: 0 };
    let items = parser.items();
    let mut diagnostics = sink.finish();
    drop_follow_on_errors(&mut diagnostics, file, diagnostic_codes::UNCLOSED);
    let diagnostics = foreign::in_rules(diagnostics, file, diagnostic_codes::FOREIGN);
    (Parsed { module: Module { items }, diagnostics }, tokens)
}

/// A grammar rule failed after reporting a diagnostic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyntaxError {
    /// The statement is dropped; parsing resumes in its block.
    Statement,
    /// The item is dropped, because it is incomplete or a block of it is not closed.
    Item,
}

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
    fn items(&mut self) -> Vec<Item> {
        let mut items = Vec::new();
        while !self.at_end() {
            let before = self.at;
            if self.eat(";").is_some() {
                continue;
            }
            match self.item() {
                Ok(item) => items.push(item),
                Err(_) => self.skip_item(before),
            }
        }
        items
    }

    fn item(&mut self) -> Parse<Item> {
        match self.word() {
            Some("event") => self.event().map(Item::Event),
            Some("entity") => self.entity().map(Item::Entity),
            Some("relation") => self.relation().map(Item::Relation),
            Some("rule") => self.rule(),
            _ => Err(self.report_not_an_item()),
        }
    }

    // ---- tokens

    fn token(&self) -> &'a Token {
        // `at` never exceeds the last token
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    /// Returns the token `n` positions ahead, or the end token.
    fn nth(&self, n: usize) -> &'a Token {
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

    /// Returns the current token as an unquoted word; `None` if it is not a word.
    fn word(&self) -> Option<&'a str> {
        self.word_at(0)
    }

    fn word_at(&self, n: usize) -> Option<&'a str> {
        let token = self.nth(n);
        (token.kind == TokenKind::Word).then(|| self.text(token))
    }

    fn is_at(&self, punct: &str) -> bool {
        self.is_nth(0, punct)
    }

    fn is_nth(&self, n: usize, punct: &str) -> bool {
        matches!(self.nth(n).kind, TokenKind::Punct(p) if p == punct)
    }

    /// Returns whether the token `n` positions ahead can be a name in its current spelling.
    fn is_name(&self, n: usize) -> bool {
        match self.nth(n).kind {
            TokenKind::Word => self.word_at(n).is_some_and(|w| !is_reserved(w)),
            TokenKind::Quoted(_) => true,
            _ => false,
        }
    }

    fn eat(&mut self, punct: &str) -> Option<Span> {
        self.is_at(punct).then(|| self.bump())
    }

    fn eat_word(&mut self, word: &str) -> Option<Span> {
        (self.word() == Some(word)).then(|| self.bump())
    }

    /// Consumes `punct`, or reports that it is missing; `context` says where, as in "after the rule's name".
    fn expect(&mut self, punct: &str, context: &str) -> Parse<Span> {
        match self.eat(punct) {
            Some(span) => Ok(span),
            None => Err(self.report_unexpected(&[&format!("`{punct}`")], context)),
        }
    }

    // ---- names

    /// Parses a name that refers to a declaration or binding.
    fn name(&mut self, what: &str) -> Parse<Ident> {
        self.name_unless(is_reserved, what)
    }

    /// Parses a name that is declared or bound.
    fn new_name(&mut self, what: &str) -> Parse<Ident> {
        self.name_unless(is_keyword, what)
    }

    fn name_unless(&mut self, refuse: fn(&str) -> bool, what: &str) -> Parse<Ident> {
        match self.word() {
            Some(word) if refuse(word) => {
                let message = format!("`{word}` is a keyword and cannot be {what}");
                let help = format!("choose another name, or write it in backticks: `` `{word}` ``");
                let expected = what.split_once(' ').map_or(what, |(_, noun)| noun);
                self.report(
                    Diagnostic::error(diagnostic_codes::KEYWORD_AS_NAME, self.span(), message)
                        .expected([expected])
                        .help(help),
                );
                Err(SyntaxError::Statement)
            }
            _ => self.any_name(what),
        }
    }

    /// Parses a name after a dot or before a colon, where keywords are also accepted.
    fn any_name(&mut self, what: &str) -> Parse<Ident> {
        let name = match &self.token().kind {
            TokenKind::Word => self.text(self.token()).to_owned(),
            TokenKind::Quoted(name) => name.clone(),
            _ => return Err(self.report_unexpected(&[what], "")),
        };
        Ok(Ident { name, span: self.bump() })
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
        let place = if self.at_end() { self.previous().at_end() } else { self.span() };
        let mut diagnostic =
            Diagnostic::error(diagnostic_codes::UNEXPECTED, place, message).expected(expected.to_vec());
        diagnostic.help = help;
        self.report(diagnostic);
        SyntaxError::Statement
    }

    /// Describes the current token for messages.
    fn describe_token(&self) -> String {
        let token = self.token();
        let text: String = self.text(token).chars().take(40).collect();
        match token.kind {
            TokenKind::End => "the end of the file".to_owned(),
            TokenKind::Word if is_reserved(&text) => format!("the keyword `{text}`"),
            TokenKind::Str(_) => format!("the string {text}"),
            TokenKind::Quoted(_) => format!("the name `{text}`"),
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
        let message = "the expression is nested too deeply";
        self.report(
            Diagnostic::error(diagnostic_codes::TOO_DEEP, span, message)
                .help("name a part of it with `let`, or split the condition into several"),
        );
        SyntaxError::Statement
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
