//! Parsing of annotations.

use super::super::ast::{Annotation, AnnotationArg, AnnotationEntry, AppAnnotation, Text};
use super::super::diagnostic_codes;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

/// An annotation before a statement.
pub(super) enum PrefixAnnotation {
    App(AppAnnotation),
    Other(Annotation),
}

impl Parser<'_> {
    /// Parses the annotation at the current token, which is `@`.
    pub(super) fn prefix_annotation(&mut self) -> Parse<PrefixAnnotation> {
        if self.is_app_annotation() {
            self.app_annotation().map(PrefixAnnotation::App)
        } else {
            self.annotation().map(PrefixAnnotation::Other)
        }
    }

    /// Returns whether an annotation of the app begins here: `@app:`, or `@plan:` as older versions of SiddhiQL say.
    fn is_app_annotation(&self) -> bool {
        (self.is_word(1, "app") || self.is_word(1, "plan")) && self.is_punct(2, ":")
    }

    /// Parses `@app:name(…)`.
    fn app_annotation(&mut self) -> Parse<AppAnnotation> {
        let start = self.bump();
        self.bump();
        self.bump();
        let name = self.name("the name of an app annotation")?;
        let elements =
            if self.is_punct(0, "(") { self.list("", "an element", Self::app_element)? } else { Vec::new() };
        Ok(AppAnnotation { name, elements, span: self.span_since(start) })
    }

    fn app_element(&mut self) -> Parse<AnnotationEntry> {
        if self.is_punct(0, "@") {
            let help = "write it as an annotation of its own".to_owned();
            return Err(self.report_unexpected_with(&["an element"], "in an app annotation", Some(help)));
        }
        self.element()
    }

    /// Parses `@name(…)`.
    fn annotation(&mut self) -> Parse<Annotation> {
        let start = self.bump();
        let name = self.name("an annotation's name")?;
        if self.is_punct(0, ":") {
            let help = "only the annotation `@app:…` has a colon";
            return Err(self.report_unexpected_with(
                &["`(`"],
                "after the annotation's name",
                Some(help.to_owned()),
            ));
        }
        let args = if self.is_punct(0, "(") {
            self.nested(|p| p.list("", "an element", Self::annotation_arg))?
        } else {
            Vec::new()
        };
        Ok(Annotation { name, args, span: self.span_since(start) })
    }

    fn annotation_arg(&mut self) -> Parse<AnnotationArg> {
        if !self.is_punct(0, "@") {
            return Ok(AnnotationArg::Element(self.element()?));
        }
        if self.is_app_annotation() {
            let span = self.span();
            self.report_misplaced_app_annotation(span);
        }
        Ok(AnnotationArg::Annotation(self.annotation()?))
    }

    /// Parses `key='value'`, `'value'`.
    fn element(&mut self) -> Parse<AnnotationEntry> {
        let start = self.span();
        if let TokenKind::Str(text) = &self.token().kind {
            let first = Text { value: text.clone(), span: self.bump() };
            if self.eat("=").is_none() {
                return Ok(AnnotationEntry { key: None, value: first, span: start });
            }
            let value = self.element_value()?;
            return Ok(AnnotationEntry { key: Some(first), value, span: self.span_since(start) });
        }
        if !self.is_name(0) {
            return Err(match self.token().kind {
                TokenKind::Punct(_) => self.report_unexpected(&["an element"], ""),
                _ => self.report_unquoted(),
            });
        }
        let key = self.key()?;
        if self.is_punct_of(0, &[":", "==", "=>"]) || matches!(self.token().kind, TokenKind::Str(_)) {
            let help = format!("write `{}='…'`", key.value);
            return Err(self.report_unexpected_with(&["`=`"], "after the key", Some(help)));
        }
        if self.eat("=").is_none() {
            let message = format!("a value must be a string in quotes, found `{}`", key.value);
            self.report(
                Diagnostic::error(diagnostic_codes::UNQUOTED, key.span, message)
                    .expected(["a string"])
                    .help(format!("write `'{}'`", key.value)),
            );
            return Ok(AnnotationEntry { key: None, value: key, span: self.span_since(start) });
        }
        let value = self.element_value()?;
        Ok(AnnotationEntry { key: Some(key), value, span: self.span_since(start) })
    }

    /// Parses `name`, `buffer.size`, `a-b:c`.
    fn key(&mut self) -> Parse<Text> {
        let start = self.span();
        let mut value = self.name("a key")?.name;
        while self.is_punct_of(0, &[".", "-", ":"]) && self.is_name(1) {
            value.push_str(self.text(self.token()));
            self.bump();
            value.push_str(&self.name("a key")?.name);
        }
        Ok(Text { value, span: self.span_since(start) })
    }

    fn element_value(&mut self) -> Parse<Text> {
        match self.token().kind {
            TokenKind::Str(_) | TokenKind::Punct(_) | TokenKind::End => {
                self.text_value("a string", "after `=`")
            }
            _ => Err(self.report_unquoted()),
        }
    }

    /// Reports a value without quotes.
    fn report_unquoted(&mut self) -> SyntaxError {
        let written = self.text(self.token());
        let message = format!("a value must be a string in quotes, found `{written}`");
        self.report(
            Diagnostic::error(diagnostic_codes::UNQUOTED, self.span(), message)
                .expected(["a string"])
                .help(format!("write `'{}'`", written.trim_matches('`'))),
        );
        SyntaxError::Statement
    }

    /// Reports an app annotation that is not at the beginning of the app.
    pub(super) fn report_misplaced_app_annotation(&mut self, span: Span) {
        let message = "annotations of the app must be at its beginning";
        self.report(
            Diagnostic::error(diagnostic_codes::ANNOTATION_MISPLACED, span, message)
                .help("move it before the first definition and its annotations"),
        );
    }
}
