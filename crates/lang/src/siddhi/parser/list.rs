//! Lists in brackets and without.

use super::super::code;
use super::super::keywords::is_one_of;
use super::definition::attribute_type;
use super::{Bail, Parse, Parser};
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
                return Err(self.empty_list(open, what));
            }
            if self.is_list_broken() {
                return Err(self.unclosed(open));
            }
            elements.push(read(self)?);
            if self.eat(")").is_some() {
                return Ok(elements);
            }
            if self.eat(",").is_none() {
                return Err(self.list_goes_wrong(open));
            }
            if self.is_punct(0, ")") {
                self.comma_too_many(what);
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
    pub(super) fn comma_too_many(&mut self, what: &str) {
        let comma = self.previous();
        let message = format!("expected {what} after `,`, found {}", self.found());
        self.report(
            Diagnostic::error(code::UNEXPECTED, comma, message).expected([what]).help("remove the comma"),
        );
    }

    fn empty_list(&mut self, open: Span, what: &str) -> Bail {
        let brackets = open.to(self.span());
        let message = format!("expected {what} between the brackets");
        let help = match what {
            "an element" => "remove the brackets, or write `key='value'` between them",
            "an attribute" => "write at least one: `(a int)`",
            _ => "write at least one",
        };
        self.report(Diagnostic::error(code::EMPTY, brackets, message).expected([what]).help(help));
        Bail
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
    pub(super) fn list_goes_wrong(&mut self, open: Span) -> Bail {
        let begins = !matches!(self.token().kind, TokenKind::Punct(_) | TokenKind::Body(_));
        let help = begins.then(|| "put `,` between two elements".to_owned());
        self.not_closed(open, &["`,`", "`)`"], help)
    }

    /// Reports that the bracket at `open` is not closed here, where one of `expected` could stand.
    pub(super) fn not_closed(&mut self, open: Span, expected: &[&str], help: Option<String>) -> Bail {
        let over = self.at_end() || self.is_punct_of(0, &[";", ")", "]", "}"]);
        if over || self.at_statement() || self.begins_clause() || self.is_word(0, "as") {
            return self.unclosed(open);
        }
        match self.foreign_continuation() {
            Some(bail) => bail,
            None => self.unexpected_with(expected, "", help),
        }
    }
}
