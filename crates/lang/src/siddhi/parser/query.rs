//! Parsing of queries and their inputs.

use super::super::ast::{Annotation, Handler, HandlerKind, Input, NestedQuery, Query, StreamInput, Window};
use super::super::diagnostic_codes;
use super::super::keywords::{AFTER_SOURCE, CLAUSES};
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

impl Parser<'_> {
    /// Parses `from …`; `start` is where the query begins, annotations included.
    pub(super) fn query(&mut self, start: Span, annotations: Vec<Annotation>) -> Parse<Query> {
        self.bump();
        let input = self.input()?;
        let mut done = "from";
        let select = match self.is_word(0, "select") {
            true => Some(self.selection(&mut done)?),
            false => None,
        };
        let rate = match self.is_word(0, "output") {
            true => Some(self.rate(&mut done)?),
            false => None,
        };
        let output = self.output(done)?;
        Ok(Query { annotations, input, select, rate, output, span: self.span_since(start) })
    }

    fn input(&mut self) -> Parse<Input> {
        if self.at_nested_query() {
            // a nested query uses twice as much stack as other nested constructs
            let nested = self.nested(|p| p.nested(Self::nested_query))?;
            return Ok(Input::Nested(Box::new(nested)));
        }
        if self.at_state() {
            return self.state(None).map(Input::State);
        }
        let first = self.stream_input()?;
        let state = self.is_punct_of(0, &["->", ",", "<", "*", "+", "?", "&&", "||"]);
        if state || self.is_word_of(0, &["and", "or", "within"]) {
            return self.state(Some(first)).map(Input::State);
        }
        if self.at_join() {
            return self.join(first);
        }
        Ok(Input::Stream(first))
    }

    /// Returns whether a source follows the word `n` tokens ahead, so that the word is a keyword.
    pub(super) fn precedes_source(&self, n: usize) -> bool {
        let next = n + 1;
        match &self.nth(next).kind {
            TokenKind::Quoted(_) | TokenKind::Punct("(") => true,
            TokenKind::Punct("!") => self.is_name(next + 1),
            TokenKind::Punct("#") => self.is_name(next + 1) && !self.is_punct_of(next + 2, &["(", ":", "."]),
            TokenKind::Word => {
                let follows = [&CLAUSES[..], &AFTER_SOURCE, &["and", "or"]];
                let follows = follows.iter().any(|words| self.is_word_of(next, words));
                // a stream may be called `Update`: then a token that continues a stream follows
                !follows
                    || self.is_punct_of(next + 1, &["->", ",", "[", "#", "<", "=", "+", "?", ")"])
                    || self.is_word_of(next + 1, &["for", "and", "or"])
            }
            _ => false,
        }
    }

    /// Returns whether `from S … return` begins at the current token, possibly in brackets.
    fn at_nested_query(&self) -> bool {
        let mut n = 0;
        while self.is_punct(n, "(") {
            n += 1;
        }
        self.is_word(n, "from") && self.precedes_source(n)
    }

    /// Parses `from … select … return` in the position of a stream.
    fn nested_query(&mut self) -> Parse<NestedQuery> {
        let start = self.span();
        if self.eat("(").is_some() {
            let mut query = self.nested(Self::nested_query)?;
            if self.eat(")").is_none() {
                return Err(self.report_unclosed(start));
            }
            query.span = self.span_since(start);
            return Ok(query);
        }
        self.bump();
        let input = self.input()?;
        let mut done = "from";
        let select = match self.is_word(0, "select") {
            true => Some(self.selection(&mut done)?),
            false => None,
        };
        let rate = match self.is_word(0, "output") {
            true => Some(self.rate(&mut done)?),
            false => None,
        };
        self.expect_word("return", "at the end of a query in the place of a stream")?;
        let kind = self.optional_kind()?;
        Ok(NestedQuery { input, select, rate, kind, span: self.span_since(start) })
    }

    /// Reports a clause in the position of a stream.
    pub(super) fn check_clause_in_place_of_stream(&mut self) -> Parse<()> {
        if self.begins_clause() {
            return Err(self.report_unexpected(&["a stream's name"], ""));
        }
        Ok(())
    }

    /// Parses `S[…]#f(…)#window.length(5)[…]`.
    pub(super) fn stream_input(&mut self) -> Parse<StreamInput> {
        self.check_clause_in_place_of_stream()?;
        let start = self.span();
        let stream = self.stream_ref("a stream's name")?;
        let mut handlers = Vec::new();
        let mut window: Option<Window> = None;
        let mut after = Vec::new();
        loop {
            if self.at_window() {
                let second = self.window()?;
                match &window {
                    Some(first) => self.report_second_window(first.span, second.span),
                    None => window = Some(second),
                }
            } else if let Some(handler) = self.handler()? {
                if window.is_none() { handlers.push(handler) } else { after.push(handler) }
            } else {
                break;
            }
        }
        let span = self.span_since(start);
        Ok(StreamInput { stream, handlers, window, after, span })
    }

    pub(super) fn at_window(&self) -> bool {
        self.is_punct(0, "#") && self.is_word(1, "window") && self.is_punct(2, ".")
    }

    fn window(&mut self) -> Parse<Window> {
        let start = self.bump();
        self.bump();
        self.bump();
        let call = self.call()?;
        Ok(Window { call, span: self.span_since(start) })
    }

    fn report_second_window(&mut self, first: Span, second: Span) {
        self.report(
            Diagnostic::error(diagnostic_codes::SECOND_WINDOW, second, "a stream can have only one window")
                .help("insert into a stream first, and apply the second window to that stream")
                .note_at(first, "the first window"),
        );
    }

    /// Parses a filter or function on a stream, if present.
    pub(super) fn handler(&mut self) -> Parse<Option<Handler>> {
        let start = self.span();
        if self.is_punct(0, "[") || self.is_punct(0, "#") && self.is_punct(1, "[") {
            self.eat("#");
            let open = self.bump();
            let condition = self.expr()?;
            if self.eat("]").is_none() {
                return Err(self.report_not_closed(open, &["an operator", "`]`"], None));
            }
            let span = self.span_since(start);
            return Ok(Some(Handler { kind: HandlerKind::Filter(condition), span }));
        }
        if self.is_punct(0, "#") {
            self.bump();
            if self.is_name(0) && !self.at_call() {
                return Err(self.report_missing_function());
            }
            let call = self.call()?;
            let span = self.span_since(start);
            return Ok(Some(Handler { kind: HandlerKind::Function(call), span }));
        }
        if self.is_punct(0, "(") {
            let message = "a condition on a stream needs square brackets";
            self.report(
                Diagnostic::error(diagnostic_codes::FOREIGN, self.span(), message)
                    .expected(["`[`"])
                    .help("write `S[a > 1]`"),
            );
            return Err(SyntaxError::Statement);
        }
        if self.is_punct(0, ".") {
            let help = self.is_word(1, "window").then(|| "write `#window.`".to_owned());
            return Err(self.report_unexpected_with(&["`#`", "`[`"], "after the stream", help));
        }
        Ok(None)
    }

    /// Reports a `#name` after a stream that is neither a window nor a call.
    fn report_missing_function(&mut self) -> SyntaxError {
        if self.is_punct(1, ".") {
            let word = self.text(self.token()).to_owned();
            let message = format!("expected `window` before the dot, found `{word}`");
            self.report(
                Diagnostic::error(diagnostic_codes::MISSPELT, self.span(), message)
                    .expected(["`window`"])
                    .help("write `#window.`"),
            );
            return SyntaxError::Statement;
        }
        let name = self.text(self.token()).to_owned();
        let help = match self.is_word(0, "window") {
            true => "write `#window.length(5)`, with a dot".to_owned(),
            false => format!("write `#{name}()`"),
        };
        self.bump();
        self.report_unexpected_with(&["`(`"], "after the function's name", Some(help))
    }
}
