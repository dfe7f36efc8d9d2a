//! Lists in brackets and without.

use super::super::diagnostic_codes;
use super::super::keywords::is_one_of;
use super::definition::attribute_type;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

impl Parser<'_> {
    /// What stands between the round bracket here and its end, with commas between; at least one `what`.
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

    /// Elements with commas between, at least one.
    pub(super) fn commas<T>(&mut self, mut read: impl FnMut(&mut Self) -> Parse<T>) -> Parse<Vec<T>> {
        let mut elements = vec![read(self)?];
        while self.eat(",").is_some() {
            elements.push(read(self)?);
        }
        Ok(elements)
    }

    /// Reports that after the comma before no `what` comes.
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
        SyntaxError
    }

    /// Whether something stands here with which no element of a list begins.
    fn is_list_broken(&self) -> bool {
        if self.at_end() || self.is_punct(0, ";") {
            return true;
        }
        // a name may be called `from`: then its type follows, or what goes on with an expression
        let name = match self.word(1).filter(|_| self.is_word(0, "from")) {
            Some(next) => {
                attribute_type(next).is_some() || is_one_of(next, &["of", "as", "and", "or", "in", "is"])
            }
            None => self.is_word(0, "from"),
        };
        !self.is_punct(0, "@") && !name && self.at_statement()
    }

    /// Reports why the list begun at `open` neither goes on nor ends here.
    pub(super) fn report_broken_list(&mut self, open: Span) -> SyntaxError {
        let begins = !matches!(self.token().kind, TokenKind::Punct(_) | TokenKind::Body(_));
        let help = begins.then(|| "put `,` between two elements".to_owned());
        self.report_not_closed(open, &["`,`", "`)`"], help)
    }

    /// Reports that the bracket at `open` is not closed here, where one of `expected` could stand.
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
