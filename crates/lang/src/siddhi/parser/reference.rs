//! Parsing of attribute references and their qualifiers.

use super::super::ast::{AttributeRef, EventIndex, IndexKind, InnerRef, SourceRef};
use super::super::diagnostic_codes;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;

/// Result of parsing a name with an optional qualifier.
pub(super) enum AttributeOrSource {
    Attribute(AttributeRef),
    /// A reference with a mark or an index and without a dot, which can only be a stream or step.
    Source(Box<SourceRef>),
}

impl Parser<'_> {
    /// Parses `a`, `S.a`, `e[0]`.
    pub(super) fn reference(&mut self) -> Parse<AttributeOrSource> {
        let start = self.span();
        let stream = self.stream_ref("an attribute")?;
        let index = self.index()?;
        let inner = self.inner_ref()?;
        let span = self.span_since(start);
        let source = Box::new(SourceRef { stream, index, inner, span });
        if self.eat(".").is_some() {
            let name = self.name("an attribute's name")?;
            let span = self.span_since(start);
            return Ok(AttributeOrSource::Attribute(AttributeRef { source: Some(source), name, span }));
        }
        Ok(match source.as_name() {
            Some(name) => {
                AttributeOrSource::Attribute(AttributeRef { source: None, name: name.clone(), span })
            }
            None => AttributeOrSource::Source(source),
        })
    }

    /// Parses an attribute where `clause` allows no other expression.
    pub(super) fn attribute_ref(&mut self, clause: &str) -> Parse<AttributeRef> {
        if !self.is_name(0) && !self.is_punct_of(0, &["#", "!"]) {
            return Err(self.report_unexpected(&["an attribute"], &format!("in `{clause}`")));
        }
        let start = self.span();
        let reference = self.reference()?;
        let sets = clause == "set" && self.is_punct_of(0, &["=", "=="]);
        let operator = self.infix().is_some() && !sets || self.is_punct(0, "(");
        if operator || self.is_word(0, "is") {
            let message = format!("`{clause}` takes attributes, not expressions");
            let help = match clause {
                "set" => "write the column alone: `set T.a = …`",
                _ => "let an earlier query compute it under a name, and write that name here",
            };
            self.report(
                Diagnostic::error(diagnostic_codes::NOT_AN_ATTRIBUTE, start.to(self.span()), message)
                    .expected(["an attribute"])
                    .help(help),
            );
            return Err(SyntaxError::Statement);
        }
        match reference {
            AttributeOrSource::Attribute(attribute) => Ok(attribute),
            AttributeOrSource::Source(_) => {
                Err(self.report_unexpected(&["`.`"], "before the attribute's name"))
            }
        }
    }

    /// Parses `[0]`, `[last]`, `[last - 1]`, if present.
    fn index(&mut self) -> Parse<Option<EventIndex>> {
        if !self.is_punct(0, "[") {
            return Ok(None);
        }
        let start = self.bump();
        let kind = if self.eat_word("last").is_some() {
            let back = if self.eat("-").is_some() { self.whole_number("after `last -`")? } else { 0 };
            IndexKind::Last(back)
        } else if let TokenKind::Int(_) = self.token().kind {
            IndexKind::First(self.whole_number("")?)
        } else {
            let help = match self.word(0) {
                Some(word) if word.eq_ignore_ascii_case("first") => "write `[0]`",
                _ => "events are counted from `[0]`, or back from `[last]`: `[last - 1]`",
            };
            return Err(self.report_unexpected_with(&["a number", "`last`"], "", Some(help.to_owned())));
        };
        if !self.is_punct(0, "]") {
            return Err(self.report_unexpected(&["`]`"], "after the event's number"));
        }
        self.bump();
        Ok(Some(EventIndex { kind, span: self.span_since(start) }))
    }

    /// Parses `#name`, `#name[0]` after a source, if a dot or index follows.
    fn inner_ref(&mut self) -> Parse<Option<InnerRef>> {
        let inner = self.is_punct(0, "#") && self.is_name(1) && self.is_punct_of(2, &[".", "["]);
        if !inner || self.is_word(1, "window") {
            return Ok(None);
        }
        self.bump();
        let name = self.name("a name")?;
        let index = self.index()?;
        Ok(Some(InnerRef { name, index }))
    }

    /// Parses an integer without sign and suffix that fits in an int. One out of range is reported and
    /// replaced by zero.
    pub(super) fn whole_number(&mut self, context: &str) -> Parse<u32> {
        let TokenKind::Int(number) = self.token().kind else {
            return Err(self.report_unexpected(&["a whole number"], context));
        };
        let span = self.bump();
        Ok(u32::try_from(number).ok().filter(|n| *n <= i32::MAX.unsigned_abs()).unwrap_or_else(|| {
            let message = format!("the number is larger than {}", i32::MAX);
            self.report(
                Diagnostic::error(diagnostic_codes::RANGE, span, message).help("write a smaller number"),
            );
            0
        }))
    }
}
