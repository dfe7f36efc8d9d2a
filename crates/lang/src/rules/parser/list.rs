//! Parsing of lists in brackets.

use super::super::ast::{Ident, ObjectField};
use super::super::diagnostic_codes;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::lexer::text::quote;
use crate::source::Span;

impl Parser<'_> {
    /// Parses a comma-separated list between the bracket `opener` and `closer`; a trailing comma is allowed.
    /// `context` says where, for messages.
    pub(super) fn list<T>(
        &mut self,
        opener: &str,
        closer: &str,
        context: &str,
        mut read: impl FnMut(&mut Self) -> Parse<T>,
    ) -> Parse<Vec<T>> {
        let open = self.expect(opener, context)?;
        let mut elements = Vec::new();
        loop {
            if self.eat(closer).is_some() {
                return Ok(elements);
            }
            if self.is_list_broken() {
                return Err(self.report_unclosed(open));
            }
            elements.push(read(self)?);
            if self.eat(",").is_none() && !self.is_punct(0, closer) {
                return Err(self.report_broken_list(open, closer));
            }
        }
    }

    /// Returns whether the current token cannot be part of a list.
    fn is_list_broken(&self) -> bool {
        self.at_end() || self.is_punct(0, ";") || self.at_item()
    }

    /// Reports why the list opened at `open` neither continues nor ends at the current token.
    fn report_broken_list(&mut self, open: Span, closer: &str) -> SyntaxError {
        let closes_another = [")", "]", "}"].iter().any(|c| *c != closer && self.is_punct(0, c));
        if self.is_list_broken() || closes_another {
            return self.report_unclosed(open);
        }
        if let Some(bail) = self.report_foreign_continuation() {
            return bail;
        }
        let begins = matches!(
            self.token().kind,
            TokenKind::Word
                | TokenKind::Quoted(_)
                | TokenKind::Int(_)
                | TokenKind::Float(_)
                | TokenKind::Str(_)
        );
        let doubled =
            matches!(self.token().kind, TokenKind::Str(_)) && self.previous().end == self.span().start;
        let help = if doubled {
            Some(r#"write a quote inside a string as `\'` or `\"`"#.to_owned())
        } else {
            begins.then(|| "write `,` between two elements".to_owned())
        };
        self.report_unexpected_with(&["`,`", &format!("`{closer}`")], "", help)
    }

    /// Parses `{ name: value, … }`; reports and drops fields with a repeated name.
    pub(super) fn object(&mut self, context: &str) -> Parse<Vec<ObjectField>> {
        let mut fields = self.list("{", "}", context, Self::object_field)?;
        let mut seen = std::collections::HashMap::new();
        fields.retain(|field| match seen.get(&field.name.name) {
            None => {
                seen.insert(field.name.name.clone(), field.name.span);
                true
            }
            Some(first) => {
                self.report_duplicate(&field.name, *first);
                false
            }
        });
        Ok(fields)
    }

    fn object_field(&mut self) -> Parse<ObjectField> {
        let start = self.span();
        let name = match &self.token().kind {
            TokenKind::Str(text) => Ident { name: text.clone(), span: self.bump() },
            TokenKind::Int(number) => {
                let help = format!("write it as a string: `{}`", quote(&number.to_string()));
                return Err(self.report_unexpected_with(&["a field's name"], "", Some(help)));
            }
            _ => self.any_name("a field's name")?,
        };
        if !self.is_punct(0, ":") {
            let help = format!("write `{}: …`", name.name);
            let known = self.is_punct(0, "=")
                || self.is_punct(0, "=>")
                || self.is_punct(0, ",")
                || self.is_punct(0, "}");
            let help = (known && crate::lexer::is_word(&name.name)).then_some(help);
            return Err(self.report_unexpected_with(&["`:`"], "after the field's name", help));
        }
        self.bump();
        let value = self.expr()?;
        Ok(ObjectField { name, value, span: self.span_since(start) })
    }

    /// Reports that the name `second` was already given at `first`.
    pub(super) fn report_duplicate(&mut self, second: &Ident, first: Span) {
        let message = format!("duplicate name `{}`", second.name);
        self.report(
            Diagnostic::error(diagnostic_codes::TWICE, second.span, message)
                .help("remove one of them")
                .note_at(first, "first named here"),
        );
    }
}
