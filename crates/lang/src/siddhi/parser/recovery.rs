//! Error recovery: where to resume after a syntax error.

use super::super::diagnostic_codes;
use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;

/// Keywords that may follow `define`.
pub(super) const DEFINED: [&str; 6] = ["stream", "table", "window", "trigger", "function", "aggregation"];

impl Parser<'_> {
    /// Returns whether a statement begins at the current token: after another statement, these words cannot
    /// have another meaning.
    pub(super) fn at_statement(&self) -> bool {
        match self.word(0).unwrap_or("").to_ascii_lowercase().as_str() {
            "define" => self.is_word_of(1, &DEFINED),
            "from" => self.is_name(1) || self.is_punct_of(1, &["#", "!", "("]),
            "partition" => self.is_word(1, "with"),
            _ => self.is_punct(0, "@") && self.is_name(1),
        }
    }

    /// Skips the rest of a statement that began at the token `start` and failed: past its `;`, or up to a
    /// token that looks like the next statement or the end of the enclosing partition. At the top level it
    /// skips at least one token.
    pub(super) fn skip_statement(&mut self, start: usize, in_partition: bool) {
        let mut open = self.open_since(start, "(", ")");
        let is = |token, word: &str| self.text(token).eq_ignore_ascii_case(word);
        let defines_aggregation = self.tokens[start..self.at]
            .windows(2)
            .any(|pair| is(&pair[0], "define") && is(&pair[1], "aggregation"));
        let mut moved = self.at > start;
        while !self.at_end() {
            let token = self.token();
            let begins = moved && token.first_on_line && self.at_statement();
            // an annotation in brackets is nested in another one, and `from` may be part of an aggregation's
            // definition
            let inside = self.is_punct(0, "@") && open > 0 || defines_aggregation && self.is_word(0, "from");
            if begins && !inside || in_partition && self.at_partition_end() {
                return;
            }
            match token.kind {
                TokenKind::Punct("(") => open += 1,
                TokenKind::Punct(")") => open = open.saturating_sub(1),
                _ => {}
            }
            let ends = self.is_punct(0, ";");
            self.bump();
            moved = true;
            if ends {
                return;
            }
        }
    }

    /// Returns whether the current token is the `end` of a partition.
    pub(super) fn at_partition_end(&self) -> bool {
        self.is_word(0, "end") && (self.is_punct(1, ";") || self.nth(1).kind == TokenKind::End)
    }

    /// Consumes the `;` after a `what`. If it is merely missing before a statement, reports that and
    /// continues.
    pub(super) fn semicolon(&mut self, what: &str) -> Parse<()> {
        if self.eat(";").is_some() || self.at_end() {
            return Ok(());
        }
        if self.at_statement() {
            self.report_no_semicolon(what);
            return Ok(());
        }
        Err(self.report_unexpected(&["`;`"], &format!("after the {what}")))
    }

    /// Consumes a superfluous `;` and reports it.
    pub(super) fn empty_statement(&mut self) {
        let span = self.bump();
        self.report(
            Diagnostic::error(diagnostic_codes::EMPTY_STATEMENT, span, "this `;` ends no statement")
                .help("remove it"),
        );
    }
}
