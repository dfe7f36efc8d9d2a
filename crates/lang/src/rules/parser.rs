//! Tokens to tree, by recursive descent.
//!
//! A rule of grammar that fails has reported why and returns [`SyntaxError`]; the nearest list of statements or items
//! skips to where it can go on. So one run reports several mistakes, and the tree holds all that could be read.

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
use crate::lexer::{Dialect, Token, TokenKind, Tokens, drop_follow_on_errors, lex};
use crate::source::{SourceFile, Span};

/// What became of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// Everything that could be read. Without errors it is the whole file.
    pub module: Module,
    /// What is wrong, in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
}

impl Parsed {
    /// Whether something is wrong enough for the tree not to be used.
    pub fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(|d| d.severity == Severity::Error)
    }
}

/// Reads a `*.rules` file.
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
    let tokens = lex(file, &Dialect::RULES, &mut sink);
    let mut parser = Parser { file, tokens: &tokens.tokens, at: 0, sink: &mut sink, nesting: 0 };
    let items = parser.items();
    let mut diagnostics = sink.finish();
    drop_follow_on_errors(&mut diagnostics, file, diagnostic_codes::UNCLOSED);
    (Parsed { module: Module { items }, diagnostics }, tokens)
}

/// A rule of grammar failed; its diagnostic is in the sink.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SyntaxError {
    /// The statement is lost; the block it stands in goes on.
    Statement,
    /// The item is lost: a block has no end.
    Item,
}

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
        // `at` never passes the last token
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    /// The token `n` further on, or the end.
    fn nth(&self, n: usize) -> &'a Token {
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

    /// The word that the token is.
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

    /// Whether the token `n` further on can be a name as it stands.
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

    /// Moves past `punct`, or reports `context` (as in "after the rule's name").
    fn expect(&mut self, punct: &str, context: &str) -> Parse<Span> {
        match self.eat(punct) {
            Some(span) => Ok(span),
            None => Err(self.report_unexpected(&[&format!("`{punct}`")], context)),
        }
    }

    // ---- names

    /// A name that refers to something.
    fn name(&mut self, what: &str) -> Parse<Ident> {
        self.name_unless(is_reserved, what)
    }

    /// A name that is declared or bound here.
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

    /// A name after a dot or before a colon, where keywords are names too.
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
        let place = if self.at_end() { self.previous().at_end() } else { self.span() };
        let mut diagnostic =
            Diagnostic::error(diagnostic_codes::UNEXPECTED, place, message).expected(expected.to_vec());
        diagnostic.help = help;
        self.report(diagnostic);
        SyntaxError::Statement
    }

    /// The token in words.
    fn describe_token(&self) -> String {
        let token = self.token();
        let text: String = self.text(token).chars().take(40).collect();
        match token.kind {
            TokenKind::End => "the end of the file".to_owned(),
            TokenKind::Word if is_reserved(&text) => format!("the keyword `{text}`"),
            TokenKind::Str(_) => format!("the text {text}"),
            TokenKind::Quoted(_) => format!("the name `{text}`"),
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
        let message = "the expression is too deeply nested";
        self.report(
            Diagnostic::error(diagnostic_codes::TOO_DEEP, span, message)
                .help("name a part of it with `let`, or divide the condition into several"),
        );
        SyntaxError::Statement
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
