//! Diagnostics for constructs of other languages.

use tidemill_types::nearest;

use super::super::diagnostic_codes;
use super::super::keywords::ITEMS;
use super::{Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;

impl Parser<'_> {
    /// Reports a word or operator that continues an expression in another language but not in this one.
    pub(super) fn report_foreign_continuation(&mut self) -> Option<SyntaxError> {
        let written = self.text(self.token());
        let help = match &self.token().kind {
            TokenKind::Word => word_help(&written.to_ascii_lowercase())?,
            TokenKind::Punct(p) => punct_help(p)?,
            _ => return None,
        };
        let message = format!("`{written}` is not an operator of this language");
        self.report(Diagnostic::error(diagnostic_codes::FOREIGN, self.span(), message).help(help));
        Some(SyntaxError::Statement)
    }

    /// Reports a token that does not begin an item.
    pub(super) fn report_not_an_item(&mut self) -> SyntaxError {
        const EXPECTED: [&str; 4] = ["`event`", "`entity`", "`relation`", "`rule`"];
        if let Some(closer) = [")", "]", "}"].iter().find(|c| self.is_punct(0, c)) {
            let message = format!("this `{closer}` has no opening bracket");
            let help = "remove it, or look for a bracket above that is closed too early";
            self.report(Diagnostic::error(diagnostic_codes::STRAY_CLOSE, self.span(), message).help(help));
            return SyntaxError::Item;
        }
        let help = self.word(0).and_then(|w| item_help(&w.to_ascii_lowercase()));
        self.report_unexpected_with(&EXPECTED, "", help);
        SyntaxError::Item
    }
}

fn word_help(lower: &str) -> Option<String> {
    Some(match lower {
        "is" => "write `x == null` or `x != null`, or `exists(x)`".to_owned(),
        "like" => {
            "write `contains(text, part)`, `starts_with(…)`, `ends_with(…)` or `matches(text, pattern)`"
                .to_owned()
        }
        "between" => "write `x >= a and x <= b`".to_owned(),
        "equals" | "eq" => "write `==`".to_owned(),
        "mod" => "write `%` or `mod(a, b)`".to_owned(),
        "xor" => "write `a != b`".to_owned(),
        "as" => "the name comes first: `x: Stream(…)` or `let x = …`".to_owned(),
        _ => return None,
    })
}

fn punct_help(punct: &str) -> Option<String> {
    Some(match punct {
        "?" => "write `if(condition, a, b)` or `coalesce(a, b)`".to_owned(),
        "**" | "^" => "write `pow(a, b)`".to_owned(),
        "++" | "--" => "write `+= 1` or `-= 1` in an `update`; put a space between two signs".to_owned(),
        "+=" | "-=" | "*=" | "/=" | "%=" | ":=" => "to change a value, write `update` in `then`".to_owned(),
        "->" | "::" => "write a field after a dot: `x.field`".to_owned(),
        _ => return None,
    })
}

fn item_help(lower: &str) -> Option<String> {
    Some(match lower {
        "define" | "from" | "partition" => {
            "this looks like SiddhiQL, which belongs in a file `*.siddhi`".to_owned()
        }
        "stream" => "declare a stream with `event`".to_owned(),
        "table" | "collection" | "document" => "declare a collection of documents with `entity`".to_owned(),
        "when" | "aggregate" => {
            "write conditions in a rule: `rule Name { when { … } then { … } }`".to_owned()
        }
        "then" | "do" => "write actions in a rule: `rule Name { when { … } then { … } }`".to_owned(),
        "test" | "given" => "tests belong in a file `*.test`".to_owned(),
        _ => format!("write `{}`", nearest(lower, ITEMS)?),
    })
}
