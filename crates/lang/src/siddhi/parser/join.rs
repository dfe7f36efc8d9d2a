//! Parsing of joins.

use super::super::ast::{Input, JoinInput, JoinKind, JoinSide, StreamInput, Within};
use super::super::diagnostic_codes;
use super::super::keywords::{AFTER_SOURCE, CLAUSES};
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;

/// Words that may occur between the two sides of a join.
const JOIN_WORDS: [&str; 7] = ["join", "inner", "left", "right", "full", "outer", "cross"];

impl Parser<'_> {
    /// Returns whether an alias, `unidirectional` or a join keyword follows a stream here.
    pub(super) fn at_join(&self) -> bool {
        self.is_word_of(0, &["as", "unidirectional"]) || self.at_join_word(0) || self.at_bare_alias()
    }

    fn at_join_word(&self, n: usize) -> bool {
        self.is_word(n, "join")
            || self.is_word_of(n, &JOIN_WORDS) && self.is_word_of(n + 1, &["outer", "join"])
    }

    /// Returns whether the current token is an alias without `as`.
    fn at_bare_alias(&self) -> bool {
        let follows = self.is_word_of(0, &CLAUSES) || self.is_word_of(0, &AFTER_SOURCE);
        let alias = self.is_name(0) && !follows && !self.at_join_word(0);
        alias && (self.at_join_word(1) || self.is_word_of(1, &["on", "unidirectional"]))
    }

    /// Parses the rest of a join after the input of its first side.
    pub(super) fn join(&mut self, first: StreamInput) -> Parse<Input> {
        let start = first.span;
        let mut left = self.side(first)?;
        left.unidirectional = self.eat_word("unidirectional");
        if !self.at_join_word(0) {
            return self.report_missing_join(left);
        }
        self.check_no_handlers_after_window(&left);
        let kind = self.join_kind()?;
        let second = self.stream_input()?;
        let mut right = self.side(second)?;
        right.unidirectional = self.eat_word("unidirectional");
        self.check_no_handlers_after_window(&right);
        if let (Some(one), Some(two)) = (left.unidirectional, right.unidirectional) {
            self.report(
                Diagnostic::error(
                    diagnostic_codes::CLAUSE_MISPLACED,
                    two,
                    "only one side can be `unidirectional`",
                )
                .help("remove one; without it both sides trigger")
                .note_at(one, "the other one"),
            );
        }
        let on = match self.eat_word("on") {
            Some(_) => Some(self.expr()?),
            None => None,
        };
        let within = self.within_per()?;
        if self.is_word(0, "on") {
            return Err(self.report_clause_order("on", "within"));
        }
        let span = self.span_since(start);
        Ok(Input::Join(Box::new(JoinInput { left, kind, right, on, within, span })))
    }

    /// Parses the alias of a side whose input is `input`.
    fn side(&mut self, input: StreamInput) -> Parse<JoinSide> {
        let start = input.span;
        let alias = if self.eat_word("as").is_some() {
            Some(self.name("an alias")?)
        } else if self.at_bare_alias() {
            let alias = self.name("an alias")?;
            self.report(
                Diagnostic::error(diagnostic_codes::AS_MISSING, alias.span, "expected `as` before the alias")
                    .expected(["`as`"])
                    .help(format!("write `as {}`", alias.name)),
            );
            Some(alias)
        } else {
            None
        };
        Ok(JoinSide { input, alias, unidirectional: None, span: self.span_since(start) })
    }

    /// Reports an alias or `unidirectional` after a single stream, and returns that stream as the input.
    fn report_missing_join(&mut self, side: JoinSide) -> Parse<Input> {
        if let Some(word) = side.unidirectional {
            let message = "`unidirectional` is only allowed in a join";
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, word, message)
                    .expected(["`join`"])
                    .help("remove it, or continue with `join`"),
            );
        } else if self.is_word(0, "on") || self.misspelling_of(&["join"]).is_some() {
            return Err(self.report_unexpected_word(&["join"], "after the alias"));
        } else if let Some(alias) = &side.alias {
            let name = side.input.stream.name.name.clone();
            let message = "a single stream cannot have an alias";
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, alias.span, message)
                    .help(format!("remove it, and write `{name}.a` for its attributes")),
            );
        }
        Ok(Input::Stream(side.input))
    }

    fn check_no_handlers_after_window(&mut self, side: &JoinSide) {
        if let (Some(first), Some(last)) = (side.input.after.first(), side.input.after.last()) {
            let message = "in a join the window must be last";
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, first.span.to(last.span), message)
                    .help("move it before the window, or filter by `on` and `having`"),
            );
        }
    }

    /// Parses `join`, `left outer join`.
    fn join_kind(&mut self) -> Parse<JoinKind> {
        let kind = match self.word(0).unwrap_or("").to_ascii_lowercase().as_str() {
            "join" => {
                self.bump();
                return Ok(JoinKind::Inner);
            }
            "inner" => JoinKind::Inner,
            "left" => JoinKind::LeftOuter,
            "right" => JoinKind::RightOuter,
            "full" => JoinKind::FullOuter,
            _ => return Err(self.report_unknown_join()),
        };
        let start = self.bump();
        if kind == JoinKind::Inner {
            self.expect_word("join", "after `inner`")?;
        } else if self.is_word(0, "join") {
            self.bump();
            let message = format!("expected `outer` between `{}` and `join`", self.file.slice(start));
            self.report(
                Diagnostic::error(diagnostic_codes::UNEXPECTED, self.span_since(start), message)
                    .expected(["`outer`"])
                    .help(format!("write `{}`", kind.text())),
            );
        } else {
            self.bump();
            self.expect_word("join", "after `outer`")?;
        }
        Ok(kind)
    }

    fn report_unknown_join(&mut self) -> SyntaxError {
        let start = self.bump();
        let written = format!("{} join", self.file.slice(start));
        let help = match self.file.slice(start).to_ascii_lowercase().as_str() {
            "outer" => "write `left outer join`, `right outer join` or `full outer join`",
            _ => "write `join` without `on`",
        };
        let span = start.to(self.span());
        let message = format!("SiddhiQL has no `{written}`");
        self.report(
            Diagnostic::error(diagnostic_codes::FOREIGN, span, message).expected(["`join`"]).help(help),
        );
        SyntaxError::Statement
    }

    /// Parses `within from, to per p`, if present.
    pub(super) fn within_per(&mut self) -> Parse<Option<Within>> {
        if self.is_word(0, "per") {
            return Err(self.report_clause_alone("per", "within"));
        }
        let Some(start) = self.eat_word("within") else {
            return Ok(None);
        };
        let from = self.expr()?;
        let to = match self.eat(",") {
            Some(_) => Some(self.expr()?),
            None => None,
        };
        if !self.is_word(0, "per") {
            return Err(self.report_clause_alone("within", "per"));
        }
        self.bump();
        let per = self.expr()?;
        Ok(Some(Within { from, to, per, span: self.span_since(start) }))
    }

    fn report_clause_alone(&mut self, one: &str, other: &str) -> SyntaxError {
        if one == "within" && self.misspelling_of(&["per"]).is_some() {
            return self.report_unexpected_word(&["per"], "");
        }
        let message = format!("`{one}` needs `{other}`");
        let place = self.error_span();
        self.report(
            Diagnostic::error(diagnostic_codes::CLAUSE_MISSING, place, message)
                .expected([format!("`{other}`")])
                .help("to read an aggregation, write `within '2023-**-** **:**:**' per 'hours'`"),
        );
        SyntaxError::Statement
    }

    /// Reports that the clause `first` at the current token must come before `second`.
    pub(super) fn report_clause_order(&mut self, first: &str, second: &str) -> SyntaxError {
        let message = format!("`{first}` must be before `{second}`");
        self.report(
            Diagnostic::error(diagnostic_codes::CLAUSE_ORDER, self.span(), message)
                .help(format!("write `{first} …` before `{second} …`")),
        );
        SyntaxError::Statement
    }
}
