//! Recursive-descent parser of the rule language.
//!
//! [`crate::parser`] has the tokens and the reports of what is missing; the grammar is here.

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
use crate::diagnostic::{Diagnostic, DiagnosticSink};
use crate::foreign;
use crate::lexer::{LexicalSyntax, TokenKind, Tokens, drop_follow_on_errors, lex};
use crate::parser::{Language, Parse, SyntaxError, has_errors};
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
        has_errors(&self.diagnostics)
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
    let tokens = lex(file, &LexicalSyntax::RULES, &mut sink);
    let items = Parser::new(file, &tokens, &mut sink).items();
    let mut diagnostics = sink.finish();
    drop_follow_on_errors(&mut diagnostics, file, diagnostic_codes::UNCLOSED);
    let diagnostics = foreign::in_rules(diagnostics, file, diagnostic_codes::FOREIGN);
    (Parsed { module: Module { items }, diagnostics }, tokens)
}

/// Wording and codes of the reports of the rule language.
struct Rules;

impl Language for Rules {
    const NAME: &'static str = "this language";
    const END: &'static str = "the end of the file";
    const BLOCK_CLOSER: &'static str = "}";
    const NESTING: (usize, &'static str, &'static str) = (
        NESTING_MAX,
        "the expression is nested too deeply",
        "name a part of it with `let`, or split the condition into several",
    );
    const UNEXPECTED: &'static str = diagnostic_codes::UNEXPECTED;
    const UNCLOSED: &'static str = diagnostic_codes::UNCLOSED;
    const SEMICOLON: &'static str = diagnostic_codes::SEMICOLON;
    const ASSIGN_FOR_EQUALS: &'static str = diagnostic_codes::ASSIGN_FOR_EQUALS;
    const FOREIGN: &'static str = diagnostic_codes::FOREIGN;
    const TOO_DEEP: &'static str = diagnostic_codes::TOO_DEEP;

    fn is_reserved(word: &str) -> bool {
        is_reserved(word)
    }
}

type Parser<'a> = crate::parser::Parser<'a, Rules>;

impl Parser<'_> {
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
        match self.word(0) {
            Some("event") => self.event().map(Item::Event),
            Some("entity") => self.entity().map(Item::Entity),
            Some("relation") => self.relation().map(Item::Relation),
            Some("rule") => self.rule(),
            _ => Err(self.report_not_an_item()),
        }
    }

    fn eat_word(&mut self, word: &str) -> Option<Span> {
        (self.word(0) == Some(word)).then(|| self.bump())
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
        match self.word(0) {
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
}
