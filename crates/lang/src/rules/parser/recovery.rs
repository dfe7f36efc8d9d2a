//! Error recovery: where to resume after a syntax error.

use super::super::keywords::{ACTIONS, ITEMS};
use super::{Parse, Parser, SyntaxError};
use crate::lexer::TokenKind;
use crate::source::Span;

impl Parser<'_> {
    /// Returns whether an item begins at the current token: an item keyword, first on its line, before a
    /// name.
    pub(super) fn at_item(&self) -> bool {
        self.token().first_on_line && self.word(0).is_some_and(|w| ITEMS.contains(&w)) && self.is_name(1)
    }

    /// Returns whether a statement seems to begin at the current token: first on its line, `x:`, `let x` or
    /// an action.
    fn at_statement(&self) -> bool {
        self.token().first_on_line
            && match self.word(0) {
                Some("let") => self.is_name(1),
                Some(w) if ACTIONS.contains(&w) && self.is_name(1) => true,
                _ => self.is_name(0) && self.is_punct(1, ":"),
            }
    }

    /// Skips to the next item after one that began at the token `start` and failed: to an item keyword, or to
    /// a new line after a `;` or `}` outside all braces.
    pub(super) fn skip_item(&mut self, start: usize) {
        let mut open = self.open_since(start, "{", "}");
        let mut moved = self.at > start;
        while !(self.at_end() || moved && self.at_item()) {
            let ends = match self.token().kind {
                TokenKind::Punct("{") => {
                    open += 1;
                    false
                }
                TokenKind::Punct("}") => {
                    open = open.saturating_sub(1);
                    open == 0
                }
                TokenKind::Punct(";") => open == 0,
                _ => false,
            };
            self.bump();
            moved = true;
            if ends && self.token().first_on_line {
                return;
            }
        }
    }

    /// Skips the rest of a statement that began at the token `start` and failed: past its `;`, or up to the
    /// `}` of its block, or up to a token that looks like the next statement or item.
    pub(super) fn skip_statement(&mut self, start: usize) {
        // open braces of the statement itself, and of skipped tokens: a `;` ends the statement inside the
        // former, not the latter
        let mut open = self.open_since(start, "{", "}");
        let mut skipped = 0_usize;
        let first = self.at;
        while !self.at_end() && !self.at_item() {
            if self.at > first.max(start) && open + skipped == 0 && self.at_statement() {
                return;
            }
            if self.is_punct(0, "}") {
                if skipped > 0 {
                    skipped -= 1;
                } else if open > 0 {
                    open -= 1;
                } else {
                    return;
                }
            }
            skipped += usize::from(self.is_punct(0, "{"));
            let ends = self.is_punct(0, ";") && skipped == 0;
            self.bump();
            if ends {
                return;
            }
        }
    }

    /// Parses `statement … }` after the opening brace at `open`, and skips statements with errors. `read`
    /// receives the index of the statement. The returned flag is false if a statement had errors.
    pub(super) fn block<T>(
        &mut self,
        open: Span,
        mut read: impl FnMut(&mut Self, usize) -> Parse<T>,
    ) -> Parse<(Vec<T>, bool)> {
        let mut statements = Vec::new();
        let mut number = 0;
        let mut good = true;
        loop {
            if self.eat("}").is_some() {
                return Ok((statements, good));
            }
            if self.at_end() || self.at_item() {
                self.report_unclosed(open);
                return Err(SyntaxError::Item);
            }
            if self.at_next_block() {
                self.report_unclosed(open);
                return Ok((statements, false));
            }
            if self.eat(";").is_some() {
                continue;
            }
            let start = self.at;
            match read(self, number) {
                Ok(statement) => statements.push(statement),
                Err(SyntaxError::Item) => return Err(SyntaxError::Item),
                Err(SyntaxError::Statement) => {
                    good = false;
                    self.skip_statement(start);
                }
            }
            number += 1;
        }
    }

    /// Returns whether the next block of the rule begins at the current token, so that the previous one has
    /// ended.
    fn at_next_block(&self) -> bool {
        matches!(self.word(0), Some("then" | "do" | "groupby")) && self.is_punct(1, "{")
    }

    /// Consumes the `;` after a `what`. If it is merely missing at the end of a line or block, reports that
    /// and continues.
    pub(super) fn semicolon(&mut self, what: &str) -> Parse<()> {
        if self.eat(";").is_some() {
            return Ok(());
        }
        if let Some(bail) = self.report_foreign_continuation() {
            return Err(bail);
        }
        if self.is_punct(0, "}") || self.at_end() || self.token().first_on_line {
            self.report_no_semicolon(what);
            return Ok(());
        }
        Err(self.report_unexpected(&["`;`"], &format!("after the {what}")))
    }
}
