//! Placeholders for variables `${NAME}` while a file is formatted.
//!
//! Whether a variable is a number or a name depends on its context, so each is first replaced by a number
//! and, if parsing fails there, by a name. A placeholder is as long as its variable, so source positions and
//! line lengths remain valid.

use crate::diagnostic::{Diagnostic, DiagnosticSink};
use crate::lexer::{LexicalSyntax, TokenKind, lex};
use crate::source::{SourceFile, Span};

/// The variables of a file and their placeholders.
pub(super) struct Placeholders {
    variables: Vec<Variable>,
}

struct Variable {
    span: Span,
    /// Source text of the variable: `${NAME}`.
    written: String,
    number: String,
    /// The number without leading zeros, which is how the formatter prints counts.
    digits: String,
    name: String,
    is_name: bool,
}

impl Variable {
    fn text(&self) -> &str {
        if self.is_name { &self.name } else { &self.number }
    }
}

impl Placeholders {
    /// Collects the variables outside of strings, comments and function bodies; inside these they need no
    /// placeholder.
    pub(super) fn new(file: &SourceFile) -> Self {
        if !file.text().contains("${") {
            return Self { variables: vec![] };
        }
        let tokens = lex(file, &LexicalSyntax::SIDDHI, &mut DiagnosticSink::default());
        let spans = tokens.tokens.into_iter().filter_map(|token| {
            let written = file.slice(token.span);
            let is_variable = matches!(token.kind, TokenKind::Quoted(_)) && written.starts_with("${");
            (is_variable && written.ends_with('}')).then_some(token.span)
        });
        let variables = spans.enumerate().filter_map(|(i, span)| {
            let written = file.slice(span).to_owned();
            let unused = |first: char| Some(format!("{first}{i:03}")).filter(|id| !file.text().contains(id));
            let (digits, word) = (('1'..='9').find_map(unused)?, ('p'..='z').find_map(unused)?);
            let width = written.len();
            // leading zeros, because a number has at most 64 bits
            let number = format!("{digits:0>width$}");
            let name = format!("{}{word}", word[..1].repeat(width.saturating_sub(word.len())));
            Some(Variable { span, written, number, digits, name, is_name: false })
        });
        Self { variables: variables.collect() }
    }

    /// Returns the file with each variable replaced by its placeholder.
    pub(super) fn file(&self, file: &SourceFile) -> SourceFile {
        let mut text = file.text().to_owned();
        for variable in self.variables.iter().rev() {
            text.replace_range(variable.span.start as usize..variable.span.end as usize, variable.text());
        }
        SourceFile::new(file.id(), file.name(), text)
    }

    /// Changes the last number placeholder at or before the error to a name. Returns whether there is one.
    pub(super) fn retry_as_name(&mut self, mistake: &Diagnostic) -> bool {
        let number = self.variables.iter_mut().rev().find(|v| !v.is_name && v.span.start <= mistake.span.end);
        number.map(|variable| variable.is_name = true).is_some()
    }

    /// Replaces the placeholders in `text` by their variables.
    pub(super) fn restore(&self, mut text: String) -> String {
        for variable in &self.variables {
            text = text.replace(variable.text(), &variable.written);
            if !variable.is_name {
                text = text.replace(&variable.digits, &variable.written);
            }
        }
        text
    }

    pub(super) fn restore_in(&self, mut mistake: Diagnostic) -> Diagnostic {
        mistake.message = self.restore(mistake.message);
        mistake.help = mistake.help.map(|help| self.restore(help));
        mistake
    }
}
