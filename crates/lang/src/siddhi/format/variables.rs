//! Variables `${NAME}` in a text that is formatted: what stands for them while it is read.
//!
//! Whether a variable is a number or a name is known only where it stands, so each is first tried as a number and, when
//! that cannot be read, as a name. What stands for one is as long as it is: places and lengths of lines stay right.

use crate::diagnostic::{Diagnostic, DiagnosticSink};
use crate::lexer::{Dialect, TokenKind, lex};
use crate::source::{SourceFile, Span};

/// The variables of a text, and what stands for each.
pub(super) struct Placeholders {
    variables: Vec<Variable>,
}

struct Variable {
    span: Span,
    /// `${NAME}`
    written: String,
    number: String,
    /// The number as it is written where zeros in front are left out.
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
    /// The variables outside of texts, comments and bodies of functions, where they are kept anyway.
    pub(super) fn new(file: &SourceFile) -> Self {
        if !file.text().contains("${") {
            return Self { variables: vec![] };
        }
        let tokens = lex(file, &Dialect::SIDDHI, &mut DiagnosticSink::default());
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
            // zeros in front: a number has at most 64 bits
            let number = format!("{digits:0>width$}");
            let name = format!("{}{word}", word[..1].repeat(width.saturating_sub(word.len())));
            Some(Variable { span, written, number, digits, name, is_name: false })
        });
        Self { variables: variables.collect() }
    }

    /// The text with something that can be read in the place of each variable.
    pub(super) fn file(&self, file: &SourceFile) -> SourceFile {
        let mut text = file.text().to_owned();
        for variable in self.variables.iter().rev() {
            text.replace_range(variable.span.start as usize..variable.span.end as usize, variable.text());
        }
        SourceFile::new(file.id(), file.name(), text)
    }

    /// Takes the last number at or before a mistake for a name. Returns whether there is one.
    pub(super) fn retry_as_name(&mut self, mistake: &Diagnostic) -> bool {
        let number = self.variables.iter_mut().rev().find(|v| !v.is_name && v.span.start <= mistake.span.end);
        number.map(|variable| variable.is_name = true).is_some()
    }

    /// Puts the variables back.
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
