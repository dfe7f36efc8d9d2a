//! Parsing of the steps of patterns and sequences.

use super::super::ast::{
    AbsentStep, BinaryOp, Count, CountForm, Handler, Ident, LogicalOp, LogicalSide, LogicalStep, Step,
    StreamInput, StreamRef, StreamStep,
};
use super::super::diagnostic_codes;
use super::operator::InfixOperator;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

impl Parser<'_> {
    /// Returns whether the current token is `not` before a stream.
    pub(super) fn at_absent(&self) -> bool {
        self.is_word(0, "not") && self.precedes_source(0)
    }

    /// Parses a step.
    pub(super) fn step(&mut self) -> Parse<Step> {
        let first = self.side_step()?;
        self.rest_of_step(first)
    }

    /// Parses the rest of a step whose stream was already parsed.
    pub(super) fn step_of(&mut self, input: StreamInput) -> Parse<Step> {
        if let Some(window) = &input.window {
            self.report_window_in_step(window.span);
        }
        let start = input.span;
        let first = self.stream_step(start, None, input.stream, input.handlers)?;
        self.rest_of_step(LogicalSide::Stream(first))
    }

    /// Parses the rest of a step after its first side.
    fn rest_of_step(&mut self, first: LogicalSide) -> Parse<Step> {
        let Some(op) = self.logical_op() else {
            return Ok(match first {
                LogicalSide::Stream(step) => Step::Stream(step),
                LogicalSide::Absent(step) => {
                    self.report_missing_time(&step);
                    Step::Absent(step)
                }
            });
        };
        if let TokenKind::Punct(_) = self.token().kind {
            self.foreign_infix(InfixOperator::Binary(match op {
                LogicalOp::And => BinaryOp::And,
                LogicalOp::Or => BinaryOp::Or,
            }));
        }
        self.bump();
        let second = self.side_step()?;
        for side in [&first, &second] {
            self.check_no_count(side, op);
        }
        if let Some(third) = self.logical_op() {
            let message = format!("`{}` combines two steps, not three", third.text());
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, self.span(), message)
                    .help("write two queries, or consecutive steps"),
            );
            return Err(SyntaxError::Statement);
        }
        self.check_absent(&first, &second, op);
        self.check_absent(&second, &first, op);
        let span = first.span().to(second.span());
        Ok(Step::Logical(LogicalStep { op, left: first, right: second, span }))
    }

    fn logical_op(&self) -> Option<LogicalOp> {
        if self.is_word(0, "and") || self.is_punct_of(0, &["&&", "&"]) {
            Some(LogicalOp::And)
        } else if self.is_word(0, "or") || self.is_punct_of(0, &["||", "|"]) {
            Some(LogicalOp::Or)
        } else {
            None
        }
    }

    /// Reports a count on an operand of `and` or `or`.
    fn check_no_count(&mut self, side: &LogicalSide, op: LogicalOp) {
        if let LogicalSide::Stream(StreamStep { count: Some(count), .. }) = side {
            let message = format!("a step of `{}` cannot have a count", op.text());
            self.report(
                Diagnostic::error(diagnostic_codes::CLAUSE_MISPLACED, count.span, message)
                    .help("remove the count"),
            );
        }
    }

    /// Reports `side` if it is absent without a duration although it needs one.
    fn check_absent(&mut self, side: &LogicalSide, other: &LogicalSide, op: LogicalOp) {
        let stream_beside = op == LogicalOp::And && matches!(other, LogicalSide::Stream(_));
        if let LogicalSide::Absent(step) = side
            && !stream_beside
        {
            self.report_missing_time(step);
        }
    }

    fn report_missing_time(&mut self, step: &AbsentStep) {
        if step.wait.is_some() {
            return;
        }
        let name = &step.stream.name.name;
        let message = "`not` needs a time, unless `and` combines it with a stream";
        self.report(
            Diagnostic::error(diagnostic_codes::ABSENT_STEP, step.span, message)
                .expected(["`for`"])
                .help(format!("write `not {name} for 5 sec`, or `not {name} and …`")),
        );
    }

    /// Parses `e=A[…]<2:5>` or `not A for 5 sec`.
    fn side_step(&mut self) -> Parse<LogicalSide> {
        if self.at_absent() {
            return self.absent_step().map(LogicalSide::Absent);
        }
        self.check_clause_in_place_of_stream()?;
        let start = self.span();
        let reference = if self.is_name(0) && self.is_punct(1, "=") {
            let name = self.name("a name")?;
            self.bump();
            Some(name)
        } else {
            None
        };
        if let Some(name) = &reference {
            self.keyword_behind_reference(name)?;
        }
        let stream = self.stream_ref("a stream's name")?;
        let handlers = self.step_handlers()?;
        self.stream_step(start, reference, stream, handlers).map(LogicalSide::Stream)
    }

    /// Reports `e=not A` and `e=every A`.
    fn keyword_behind_reference(&mut self, name: &Ident) -> Parse<()> {
        if self.at_absent() {
            let message = "a step with `not` cannot have a name: it matches no event";
            self.report(
                Diagnostic::error(diagnostic_codes::ABSENT_STEP, name.span, message)
                    .help(format!("remove `{}=`", name.name)),
            );
            return Err(SyntaxError::Statement);
        }
        if self.is_word(0, "every") && self.precedes_source(0) {
            let message = "`every` must be before the step's name";
            self.report(
                Diagnostic::error(diagnostic_codes::EVERY_MISPLACED, self.span(), message)
                    .help(format!("write `every {}=…`", name.name)),
            );
            return Err(SyntaxError::Statement);
        }
        Ok(())
    }

    fn absent_step(&mut self) -> Parse<AbsentStep> {
        let start = self.bump();
        if self.is_name(0) && self.is_punct(1, "=") {
            let name = self.name("a name")?;
            self.bump();
            let message = "a step with `not` cannot have a name: it matches no event";
            self.report(
                Diagnostic::error(diagnostic_codes::ABSENT_STEP, name.span, message)
                    .help(format!("remove `{}=`", name.name)),
            );
        }
        let stream = self.stream_ref("a stream's name")?;
        let handlers = self.step_handlers()?;
        let wait = match self.eat_word("for") {
            Some(_) => Some(self.time("for")?),
            None => None,
        };
        Ok(AbsentStep { stream, handlers, wait, span: self.span_since(start) })
    }

    fn step_handlers(&mut self) -> Parse<Vec<Handler>> {
        let mut handlers = Vec::new();
        loop {
            if self.at_window() {
                let start = self.span();
                for _ in 0..3 {
                    self.bump();
                }
                self.call()?;
                self.report_window_in_step(self.span_since(start));
            } else if let Some(handler) = self.handler()? {
                handlers.push(handler);
            } else {
                return Ok(handlers);
            }
        }
    }

    fn report_window_in_step(&mut self, span: Span) {
        self.report(
            Diagnostic::error(
                diagnostic_codes::CLAUSE_MISPLACED,
                span,
                "a step of a pattern or sequence cannot have a window",
            )
            .help("remove it; to limit how long a match may take, write `within 5 sec` at the end"),
        );
    }

    /// Parses the count of the step `reference=stream handlers`, which began at `start`, and returns the
    /// step.
    fn stream_step(
        &mut self,
        start: Span,
        reference: Option<Ident>,
        stream: StreamRef,
        handlers: Vec<Handler>,
    ) -> Parse<StreamStep> {
        let count = self.count()?;
        Ok(StreamStep { reference, stream, handlers, count, span: self.span_since(start) })
    }

    /// Parses `<2:5>`, `+`, if present.
    fn count(&mut self) -> Parse<Option<Count>> {
        let start = self.span();
        let (form, min, max) = match self.token().kind {
            TokenKind::Punct("<") => return self.range(start).map(Some),
            TokenKind::Punct("*") => (CountForm::Star, 0, None),
            TokenKind::Punct("+") => (CountForm::Plus, 1, None),
            TokenKind::Punct("?") => (CountForm::Question, 0, Some(1)),
            _ => return Ok(None),
        };
        let span = self.bump();
        Ok(Some(Count { min, max, form, span }))
    }

    /// Parses `<n>`, `<n:m>`, `<n:>`, `<:m>`.
    fn range(&mut self, start: Span) -> Parse<Count> {
        self.bump();
        let (min, max) = if self.eat(":").is_some() {
            (0, Some(self.whole_number("after `:`")?))
        } else {
            let min = self.whole_number("after `<`")?;
            if self.eat(":").is_none() {
                (min, Some(min))
            } else if self.is_punct(0, ">") {
                (min, None)
            } else {
                (min, Some(self.whole_number("after `:`")?))
            }
        };
        if self.eat(">").is_none() {
            let help = "write `<2>`, `<2:5>`, `<2:>` or `<:5>`".to_owned();
            return Err(self.report_unexpected_with(&["`:`", "`>`"], "in a count", Some(help)));
        }
        Ok(Count { min, max, form: CountForm::Range, span: self.span_since(start) })
    }
}
