//! Parsing of partitions.

use super::super::ast::{Annotation, Expr, Partition, PartitionKey, PartitionKeyKind, PartitionRange, Query};
use super::super::diagnostic_codes;
use super::annotation::PrefixAnnotation;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::source::Span;

impl Parser<'_> {
    /// Parses `partition with (…) begin … end`; `start` is where the partition begins, annotations included.
    pub(super) fn partition(&mut self, start: Span, annotations: Vec<Annotation>) -> Parse<Partition> {
        let (keys, begin) = self.head()?;
        let queries = self.body(begin)?;
        Ok(Partition { annotations, keys, queries, span: self.span_since(start) })
    }

    /// Parses `partition with (…) begin`; returns the keys and the source range of `begin`.
    fn head(&mut self) -> Parse<(Vec<PartitionKey>, Span)> {
        let first = self.at;
        self.bump();
        let keys = match self.keys() {
            Ok(keys) => keys,
            Err(bail) => {
                if !self.skip_to_begin(first) {
                    return Err(bail);
                }
                Vec::new()
            }
        };
        Ok((keys, self.begin()?))
    }

    /// Parses `begin`. If it is merely missing before a query, reports that and continues as if it were
    /// there.
    fn begin(&mut self) -> Parse<Span> {
        if let Some(begin) = self.eat_word("begin") {
            return Ok(begin);
        }
        let bail = self.report_unexpected_word(&["begin"], "after the keys");
        if self.is_word(0, "from") || self.is_punct(0, "@") { Ok(self.span()) } else { Err(bail) }
    }

    fn keys(&mut self) -> Parse<Vec<PartitionKey>> {
        self.expect_word("with", "after `partition`")?;
        self.list("after `with`", "a key", Self::key_of_stream)
    }

    /// Skips unreadable keys up to `begin`; returns false if the statement ends before it.
    fn skip_to_begin(&mut self, start: usize) -> bool {
        self.at = self.at.max(start + 1);
        while !self.at_end() && !self.is_punct(0, ";") {
            if self.token().first_on_line && self.at_statement() {
                return false;
            }
            if self.is_word(0, "begin") && (self.is_word(1, "from") || self.is_punct(1, "@")) {
                return true;
            }
            self.bump();
        }
        false
    }

    /// Parses `expr of S`, `cond as 'low' or cond as 'high' of S`.
    fn key_of_stream(&mut self) -> Parse<PartitionKey> {
        let start = self.span();
        let first = self.expr()?;
        let kind = if self.is_word(0, "as") {
            let mut ranges = vec![self.range_name(start, first)?];
            while self.eat_word("or").is_some() {
                let start = self.span();
                let condition = self.expr()?;
                ranges.push(self.range_name(start, condition)?);
            }
            PartitionKeyKind::Ranges(ranges)
        } else {
            PartitionKeyKind::Value(first)
        };
        if self.eat_word("of").is_none() {
            if matches!(kind, PartitionKeyKind::Ranges(_)) {
                return Err(self.report_unexpected_word(&["or", "of"], "after the range"));
            }
            let help = "write `a of S`: the attribute and the stream".to_owned();
            return Err(match self.misspelling_of(&["of", "as"]) {
                Some(_) => self.report_unexpected_word(&["of", "as"], ""),
                None => self.report_unexpected_with(&["`of`", "`as`"], "after the key", Some(help)),
            });
        }
        let stream = self.name("a stream's name")?;
        Ok(PartitionKey { kind, stream, span: self.span_since(start) })
    }

    /// Parses `as 'name'` after a range's condition.
    fn range_name(&mut self, start: Span, condition: Expr) -> Parse<PartitionRange> {
        self.expect_word("as", "after the range's condition")?;
        let name = self.text_value("a string", "after `as`")?;
        Ok(PartitionRange { condition, name, span: self.span_since(start) })
    }

    /// Parses the queries between `begin` and `end`.
    fn body(&mut self, begin: Span) -> Parse<Vec<Query>> {
        let mut queries = Vec::new();
        let mut tried = false;
        // number of open nested partitions, which are an error
        let mut open = 0_usize;
        loop {
            if self.is_word(0, "end") && open > 0 {
                self.bump();
                self.eat(";");
                open -= 1;
                continue;
            }
            if self.is_word(0, "end") {
                let end = self.bump();
                if !tried {
                    self.report_empty_partition(begin.to(end));
                }
                return Ok(queries);
            }
            if self.at_end() {
                return Err(self.report_unclosed(begin));
            }
            if self.is_punct(0, ";") {
                self.empty_statement();
                continue;
            }
            tried = true;
            let start = self.at;
            match self.query_in_partition(begin, &mut open) {
                Ok(query) => queries.extend(query),
                Err(_) => {
                    self.skip_statement(start, true);
                    if self.at == start {
                        self.bump();
                    }
                }
            }
        }
    }

    /// Parses a query with its `;`, which is optional after the last one. `open` counts the partitions nested
    /// in the one that begins at `begin`. Returns `None` for a misplaced definition or nested partition.
    fn query_in_partition(&mut self, begin: Span, open: &mut usize) -> Parse<Option<Query>> {
        let start = self.span();
        let mut annotations = Vec::new();
        while self.is_punct(0, "@") {
            let at = self.span();
            match self.prefix_annotation()? {
                PrefixAnnotation::Other(annotation) => annotations.push(annotation),
                PrefixAnnotation::App(annotation) => {
                    self.report_misplaced_app_annotation(at.to(annotation.span))
                }
            }
        }
        if self.is_word(0, "define") {
            let message = "definitions must be before the first query or partition";
            self.report(
                Diagnostic::error(diagnostic_codes::DEFINITION_LATE, self.span(), message)
                    .help("move it out of the partition and up, before the first query"),
            );
            self.definition(start, annotations)?;
            self.semicolon("definition")?;
            return Ok(None);
        }
        if self.is_word(0, "partition") && self.is_word(1, "with") {
            self.report_nested_partition(begin);
            self.head()?;
            *open += 1;
            return Ok(None);
        }
        if !self.is_word(0, "from") {
            self.report_unexpected_word(&["from", "end"], "in a partition");
            // a misspelled `from` is treated as `from`
            if self.misspelling_of(&["from"]).is_none() || !self.is_name(1) {
                return Err(SyntaxError::Statement);
            }
        }
        let query = self.query(start, annotations)?;
        if !self.is_word(0, "end") {
            self.end_of_query()?;
        }
        Ok(Some(query))
    }

    fn report_empty_partition(&mut self, span: Span) {
        self.report(
            Diagnostic::error(diagnostic_codes::EMPTY, span, "a partition needs at least one query")
                .expected(["`from`"])
                .help("write a query between `begin` and `end`"),
        );
    }

    fn report_nested_partition(&mut self, begin: Span) {
        self.report(
            Diagnostic::error(
                diagnostic_codes::NESTED_PARTITION,
                self.span(),
                "a partition cannot be inside another one",
            )
            .help(
                "close the other one with `end;`, or partition by both keys: `with (str:concat(a, b) of S)`",
            )
            .note_at(begin, "the open partition begins here"),
        );
    }
}
