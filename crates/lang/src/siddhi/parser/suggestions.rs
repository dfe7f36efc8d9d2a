//! Suggestions for misspelled words and for constructs of other languages.

use tidemill_types::nearest;

use super::super::diagnostic_codes;
use super::super::keywords::{AFTER_SOURCE, CLAUSES, is_one_of};
use super::recovery::DEFINED;
use super::{Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::parser::one_of;

/// Keywords of the clauses of a query, in the required order.
const ORDER: [&str; 10] =
    ["select", "group", "having", "order", "limit", "offset", "output", "insert", "delete", "update"];

/// Help for a closing bracket without an opening one.
const STRAY_HELP: &str = "remove it, or look for a bracket above that is closed too early";

/// Keywords that begin a statement.
const STATEMENTS: [&str; 3] = ["define", "from", "partition"];

impl Parser<'_> {
    /// Reports that one of the keywords `expected` was expected at the current token, and which of them it
    /// misspells, if any.
    pub(super) fn report_unexpected_word(&mut self, expected: &[&str], context: &str) -> SyntaxError {
        let quoted: Vec<String> = expected.iter().map(|w| format!("`{w}`")).collect();
        let quoted: Vec<&str> = quoted.iter().map(String::as_str).collect();
        if let Some((word, best)) = self.misspelling_of(expected) {
            let message = format!("expected {}, found `{word}`", one_of(&quoted));
            self.report(
                Diagnostic::error(diagnostic_codes::MISSPELT, self.span(), message)
                    .expected(quoted)
                    .help(format!("write `{best}`")),
            );
            return SyntaxError::Statement;
        }
        self.report_unexpected(&quoted, context)
    }

    /// Returns the current word and the one of `words` that it misspells.
    pub(super) fn misspelling_of<'w>(&self, words: &[&'w str]) -> Option<(&str, &'w str)> {
        let word = self.word(0)?;
        Some((word, nearest(word, words.iter().copied())?))
    }

    /// Reports that none of the query clauses `expected` begins at the current token. `done` is the last
    /// clause that was parsed.
    pub(super) fn report_missing_clause(&mut self, expected: &[&str], done: &str) -> SyntaxError {
        if let Some(bail) = self.report_foreign_clause() {
            return bail;
        }
        if done == "from"
            && let Some(bail) = self.report_foreign_input()
        {
            return bail;
        }
        if let Some(closer) = [")", "]", "}"].iter().find(|c| self.is_punct(0, c)) {
            return self.report_stray_closer(closer, STRAY_HELP);
        }
        let word = self.word(0).unwrap_or("").to_ascii_lowercase();
        if is_one_of(&word, &ORDER) && !expected.contains(&word.as_str()) && self.begins_clause() {
            return self.report_late_clause(&word, done);
        }
        if self.is_punct(0, ";") || self.at_end() || self.at_statement() || self.is_word(0, "end") {
            return self.report_missing_output();
        }
        let context = if done == "from" { "after the input".to_owned() } else { format!("after `{done}`") };
        self.report_unexpected_word(expected, &context)
    }

    /// Reports a continuation of a query's input that other languages have and SiddhiQL does not.
    fn report_foreign_input(&mut self) -> Option<SyntaxError> {
        let before = self.file.slice(self.previous());
        if self.is_name(0)
            && (self.is_punct(1, "=") || self.is_punct(1, "->"))
            && let Some(best) = nearest(before, ["every", "not"])
        {
            let message = format!("expected `{best}`, found `{before}`");
            self.report(
                Diagnostic::error(diagnostic_codes::MISSPELT, self.previous(), message)
                    .expected([format!("`{best}`")])
                    .help(format!("write `{best}`")),
            );
            return Some(SyntaxError::Statement);
        }
        if self.is_name(0) && self.is_word_of(1, &CLAUSES) && self.misspelling_of(&CLAUSES).is_none() {
            self.report(
                Diagnostic::error(
                    diagnostic_codes::CLAUSE_MISPLACED,
                    self.span(),
                    "a single stream cannot have an alias",
                )
                .help(format!("remove it, and write `{before}.a` for its attributes")),
            );
            return Some(SyntaxError::Statement);
        }
        let help = match &self.token().kind {
            TokenKind::Punct("-") if self.is_punct(1, ">") => "write `->` without a space",
            TokenKind::Punct("=>") => "write `->`",
            TokenKind::Punct(":" | "==") => "write a step's name before `=`: `e=S`",
            TokenKind::Punct("<>") => "a count needs a number: `<2>`, `<2:5>`, `<2:>` or `<:5>`",
            _ => return None,
        };
        let message = format!("`{}` is not allowed here", self.text(self.token()));
        self.report(Diagnostic::error(diagnostic_codes::FOREIGN, self.span(), message).help(help));
        Some(SyntaxError::Statement)
    }

    /// Reports the clause `word`, which must come before the clause `done`.
    pub(super) fn report_late_clause(&mut self, word: &str, done: &str) -> SyntaxError {
        let name = match word {
            "group" => "group by",
            "order" => "order by",
            _ => word,
        };
        let message = if name == done {
            format!("duplicate `{name}`")
        } else {
            format!("`{name}` is not allowed after `{done}`")
        };
        let help = "the order is `select`, `group by`, `having`, `order by`, `limit`, `offset`, `output`, \
                    then `insert`, `delete` or `update`";
        self.report(Diagnostic::error(diagnostic_codes::CLAUSE_ORDER, self.span(), message).help(help));
        SyntaxError::Statement
    }

    fn report_missing_output(&mut self) -> SyntaxError {
        let place = self.previous().at_end();
        self.report(
            Diagnostic::error(diagnostic_codes::NO_OUTPUT, place, "the query has no output")
                .expected(["`insert`", "`delete`", "`update`"])
                .help("end it with `insert into NAME`"),
        );
        SyntaxError::Statement
    }

    /// Returns whether a clause begins at the current token, and the token is not a name that is also a
    /// keyword: after a name, the next word would be invalid.
    pub(super) fn begins_clause(&self) -> bool {
        match self.word(0).unwrap_or("").to_ascii_lowercase().as_str() {
            "group" | "order" => self.is_word(1, "by"),
            "insert" => self.is_word_of(1, &["into", "all", "expired", "current", "events"]),
            "output" => self.is_word_of(1, &["all", "first", "last", "every", "snapshot"]),
            "select" | "having" | "limit" | "offset" | "update" | "delete" => {
                let value = !matches!(self.nth(1).kind, TokenKind::Punct(_) | TokenKind::End);
                let after_name = ["and", "or", "in", "is", "asc", "desc", "for", "set", "of"];
                let name = [&after_name[..], &CLAUSES, &AFTER_SOURCE];
                value && !name.iter().any(|words| self.is_word_of(1, words))
            }
            _ => false,
        }
    }

    /// Reports a clause of SQL.
    fn report_foreign_clause(&mut self) -> Option<SyntaxError> {
        let word = self.word(0)?;
        let help = match word.to_ascii_lowercase().as_str() {
            "where" => {
                "write a condition in square brackets after the stream, `from S[a > 1]`, or after `on` in a join"
            }
            "into" => "write `insert into`",
            "upsert" | "merge" => "write `update or insert into T on …`",
            "from" if !self.token().first_on_line => "write the input first: `from S select …`",
            "union" => "write two queries that insert into the same stream",
            _ => return None,
        };
        let message = format!("`{word}` does not begin a clause here");
        self.report(Diagnostic::error(diagnostic_codes::FOREIGN, self.span(), message).help(help));
        Some(SyntaxError::Statement)
    }

    /// Reports a word or operator that continues an expression in another language but not in SiddhiQL.
    pub(super) fn report_foreign_continuation(&mut self) -> Option<SyntaxError> {
        if self.is_behind_text() {
            return Some(self.report_escape());
        }
        let written = self.text(self.token());
        let help = match &self.token().kind {
            TokenKind::Word => match written.to_ascii_lowercase().as_str() {
                "like" => "write `str:contains(text, part)` or `regex:find(pattern, text)`",
                "between" => "write `x >= a and x <= b`",
                "equals" | "eq" => "write `==`",
                "mod" => "write `%`",
                "xor" => "write `a != b`",
                "then" | "when" => "write `ifThenElse(condition, a, b)`",
                _ => return None,
            },
            TokenKind::Punct("?") => "write `ifThenElse(condition, a, b)`",
            TokenKind::Punct("^") => "write `math:power(a, b)`",
            TokenKind::Punct("~") => "write `regex:find(pattern, text)`",
            TokenKind::Punct("->") => "write an attribute after a dot: `x.a`",
            TokenKind::Punct("=>") => "write `>=`",
            _ => return None,
        };
        let message = format!("`{written}` is not an operator of SiddhiQL");
        self.report(Diagnostic::error(diagnostic_codes::FOREIGN, self.span(), message).help(help));
        Some(SyntaxError::Statement)
    }

    /// Returns the keyword of the statement at the current token. A misspelled one is reported.
    pub(super) fn statement_word(&mut self) -> Option<&'static str> {
        if let Some(word) = STATEMENTS.into_iter().find(|word| self.is_word(0, word)) {
            return Some(word);
        }
        let (_, best) = self.misspelling_of(&STATEMENTS)?;
        let goes_on = match best {
            "define" => self.is_word_of(1, &DEFINED),
            "partition" => self.is_word(1, "with"),
            _ => self.is_name(1),
        };
        if goes_on {
            self.report_unexpected_word(&STATEMENTS, "");
        }
        goes_on.then_some(best)
    }

    /// Returns whether the current token is a word or string directly after a string.
    fn is_behind_text(&self) -> bool {
        let before = &self.tokens[self.at.saturating_sub(1)];
        let texts = matches!(before.kind, TokenKind::Str(_))
            && matches!(self.token().kind, TokenKind::Str(_) | TokenKind::Word);
        texts && before.span.end == self.span().start
    }

    /// Reports a string that ends at a quote which was meant to be escaped.
    fn report_escape(&mut self) -> SyntaxError {
        let message = "a string ends at the first quote: there are no escapes";
        let help = "write double quotes around a string that contains `'`, three of them around any other";
        self.report(Diagnostic::error(diagnostic_codes::FOREIGN, self.previous(), message).help(help));
        SyntaxError::Statement
    }

    /// Reports a token that does not begin a statement.
    pub(super) fn report_not_a_statement(&mut self) -> SyntaxError {
        if let Some(closer) = [")", "]", "}"].iter().find(|c| self.is_punct(0, c)) {
            return self.report_stray_closer(closer, STRAY_HELP);
        }
        if self.is_word(0, "end") {
            return self
                .report_stray_closer("end", "remove it, or look for a partition above that ends too early");
        }
        let Some(word) = self.word(0) else {
            return self.report_unexpected(&["`define`", "`from`", "`partition`"], "");
        };
        let help = match word.to_ascii_lowercase().as_str() {
            kind @ ("stream" | "table" | "window" | "trigger" | "function" | "aggregation") => {
                format!("write `define {kind}`")
            }
            "create" => "write `define`".to_owned(),
            "select" | "insert" | "update" | "delete" => {
                "a query begins with its input: `from S select … insert into …`".to_owned()
            }
            "event" | "entity" | "relation" | "rule" => {
                "this looks like a rule file, whose name must end with `.rules`".to_owned()
            }
            _ => return self.report_unexpected_word(&STATEMENTS, ""),
        };
        self.report_unexpected_with(&["`define`", "`from`", "`partition`"], "", Some(help))
    }

    fn report_stray_closer(&mut self, closer: &str, help: &str) -> SyntaxError {
        let message = format!("this `{closer}` has no opening counterpart");
        self.report(Diagnostic::error(diagnostic_codes::STRAY_CLOSE, self.span(), message).help(help));
        SyntaxError::Statement
    }
}
