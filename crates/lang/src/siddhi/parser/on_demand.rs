//! Parsing of on-demand queries.

use super::super::ast::{ChangeQuery, FindQuery, OnDemandQuery, Output, OutputAction, Selection};
use super::super::diagnostic_codes;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::source::Span;

impl Parser<'_> {
    /// Parses an on-demand query up to the end of the source.
    pub(super) fn on_demand(&mut self) -> Parse<OnDemandQuery> {
        let mut done = "from";
        let query = if self.is_word(0, "from") {
            OnDemandQuery::Find(Box::new(self.find(&mut done)?))
        } else {
            OnDemandQuery::Change(Box::new(self.change()?))
        };
        self.eat(";");
        if self.at_end() {
            return Ok(query);
        }
        if self.begins_clause() {
            let word = self.word(0).unwrap_or("").to_ascii_lowercase();
            return Err(match &query {
                OnDemandQuery::Find(_) => self.find_with_output(&word, done),
                OnDemandQuery::Change(_) => self.report_late_clause(&word, "insert"),
            });
        }
        Err(self.report_unexpected(&["the end of the query"], ""))
    }

    /// Parses `from T as t on … within … per … select …`.
    fn find(&mut self, done: &mut &'static str) -> Parse<FindQuery> {
        let start = self.bump();
        let store = self.name("a table, window or aggregation")?;
        if self.is_punct_of(0, &["[", "#", "("]) {
            let message = "an on-demand query cannot have filters and windows: it selects rows by `on`";
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, self.span(), message)
                    .expected(["`on`"])
                    .help(format!("write `from {} on …`", store.name)),
            );
            return Err(SyntaxError::Statement);
        }
        let alias = match self.eat_word("as") {
            Some(_) => Some(self.name("an alias")?),
            None => None,
        };
        let on = match self.eat_word("on") {
            Some(_) => Some(self.expr()?),
            None => None,
        };
        let within = self.within_per()?;
        let select = match self.is_word(0, "select") {
            true => Some(self.selection(done)?),
            false => None,
        };
        let ends = self.at_end() || self.is_punct(0, ";") || self.begins_clause();
        if select.is_none() && !ends {
            if self.is_word(0, "where") {
                return Err(self.report_unexpected_with(&["`on`"], "", Some("write `on`".to_owned())));
            }
            if on.is_none() && within.is_some() && self.is_word(0, "on") {
                return Err(self.report_clause_order("on", "within"));
            }
            let expected: &[&str] = match (&on, &within) {
                (None, None) => &["as", "on", "within", "select"],
                (Some(_), None) => &["within", "select"],
                _ => &["select"],
            };
            return Err(self.report_unexpected_word(expected, ""));
        }
        Ok(FindQuery { store, alias, on, within, select, span: self.span_since(start) })
    }

    fn find_with_output(&mut self, word: &str, done: &str) -> SyntaxError {
        if matches!(word, "select" | "group" | "having" | "order" | "limit" | "offset") {
            return self.report_late_clause(word, done);
        }
        let message = format!("an on-demand query with `from` cannot have `{word}`");
        self.report(Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, self.span(), message).help(
            "to change rows, write `select … insert into T`, `delete T on …` or `update T set … on …`",
        ));
        SyntaxError::Statement
    }

    /// Parses `select … insert into T`, `update T set … on …`.
    fn change(&mut self) -> Parse<ChangeQuery> {
        let start = self.span();
        let select = match self.is_word(0, "select") {
            true => Some(self.selection(&mut "")?),
            false => None,
        };
        if !self.is_word_of(0, &["insert", "delete", "update"]) {
            return Err(match select {
                Some(_) => self.report_unexpected_word(&["insert", "delete", "update"], "after `select`"),
                None => self.report_unexpected_word(&["from", "select", "delete", "update"], ""),
            });
        }
        let output = self.output("select")?;
        self.check_change(select.as_ref(), &output, start);
        Ok(ChangeQuery { select, output, span: self.span_since(start) })
    }

    /// Reports kinds of events, which only queries of an app can have, and an insert without `select`.
    fn check_change(&mut self, select: Option<&Selection>, output: &Output, start: Span) {
        if let Some(kind) = output.kind {
            let message = "an on-demand query cannot select a kind of events";
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, kind.span, message)
                    .help(format!("remove `{}`", self.file.slice(kind.span))),
            );
        }
        let inserts =
            matches!(output.action, OutputAction::Insert { .. } | OutputAction::UpdateOrInsert { .. });
        if select.is_none() && inserts {
            let message = "the values to insert are missing";
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISSING, start.at_start(), message)
                    .expected(["`select`"])
                    .help("write `select 'a' as k, 5 as v insert into T`"),
            );
        }
    }
}
