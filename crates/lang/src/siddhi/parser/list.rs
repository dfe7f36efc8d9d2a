//! Parsing of lists, with and without brackets.

use super::super::diagnostic_codes;
use super::super::keywords::is_one_of;
use super::definition::attribute_type;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

impl Parser<'_> {
    /// Parses a comma-separated list in round brackets; `context` says where and `what` names an element in
    /// messages. At least one element is required.
    pub(super) fn list<T>(
        &mut self,
        context: &str,
        what: &str,
        mut read: impl FnMut(&mut Self) -> Parse<T>,
    ) -> Parse<Vec<T>> {
        let open = self.expect("(", context)?;
        let mut elements = Vec::new();
        loop {
            if self.is_punct(0, ")") && elements.is_empty() {
                return Err(self.report_empty_list(open, what));
            }
            if self.is_list_broken() {
                return Err(self.report_unclosed(open));
            }
            elements.push(read(self)?);
            if self.eat(")").is_some() {
                return Ok(elements);
            }
            if self.eat(",").is_none() {
                return Err(self.report_broken_list(open));
            }
            if self.is_punct(0, ")") {
                self.report_extra_comma(what);
                self.bump();
                return Ok(elements);
            }
        }
    }

    /// Parses elements separated by commas, at least one.
    pub(super) fn commas<T>(&mut self, mut read: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let mut elements = vec![read(self)?];
        while self.eat(",").is_some() {
            elements.push(read(self)?);
        }
        Ok(elements)
    }

    /// Reports that no `what` follows the comma before the current token.
    pub(super) fn report_extra_comma(&mut self, what: &str) {
        let comma = self.previous();
        let message = format!("expected {what} after `,`, found {}", self.describe_token());
        self.report(
            Diagnostic::error(diagnostic_codes::UNEXPECTED, comma, message)
                .expected([what])
                .help("remove the comma"),
        );
    }

    fn report_empty_list(&mut self, open: Span, what: &str) -> SyntaxError {
        let brackets = open.to(self.span());
        let message = format!("expected {what} between the brackets");
        let help = match what {
            "an element" => "remove the brackets, or write `key='value'` between them",
            "an attribute" => "write at least one: `(a int)`",
            _ => "write at least one",
        };
        self.report(
            Diagnostic::error(diagnostic_codes::EMPTY, brackets, message).expected([what]).help(help),
        );
        SyntaxError::Statement
    }

    /// Returns whether the current token cannot begin an element of a list.
    fn is_list_broken(&self) -> bool {
        if self.at_end() || self.is_punct(0, ";") {
            return true;
        }
        // a name may be called `from`: then a type or the rest of an expression follows
        let name = match self.word(1).filter(|_| self.is_word(0, "from")) {
            Some(next) => {
                attribute_type(next).is_some() || is_one_of(next, &["of", "as", "and", "or", "in", "is"])
            }
            None => self.is_word(0, "from"),
        };
        !self.is_punct(0, "@") && !name && self.at_statement()
    }

    /// Reports why the list opened at `open` neither continues nor ends at the current token.
    pub(super) fn report_broken_list(&mut self, open: Span) -> SyntaxError {
        let begins = !matches!(self.token().kind, TokenKind::Punct(_) | TokenKind::Body(_));
        let help = begins.then(|| "write `,` between two elements".to_owned());
        self.report_not_closed(open, &["`,`", "`)`"], help)
    }

    /// Reports that the bracket at `open` is not closed at the current token, where one of `expected` was
    /// possible.
    pub(super) fn report_not_closed(
        &mut self,
        open: Span,
        expected: &[&str],
        help: Option<String>,
    ) -> SyntaxError {
        let over = self.at_end() || self.is_punct_of(0, &[";", ")", "]", "}"]);
        if over || self.at_statement() || self.begins_clause() || self.is_word(0, "as") {
            return self.report_unclosed(open);
        }
        match self.report_foreign_continuation() {
            Some(bail) => bail,
            None => self.report_unexpected_with(expected, "", help),
        }
    }
}
