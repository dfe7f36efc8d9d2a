//! Parsing of times: numbers with units.

use super::super::ast::TimeLiteral;
use super::super::diagnostic_codes;
use super::super::keywords::{KEYWORDS, is_one_of};
use super::super::units::{advice, nearest_unit, unit};
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

impl Parser<'_> {
    /// Returns whether a number is followed by a time unit, or by a word that can only be meant as one.
    pub(super) fn at_time(&self) -> bool {
        let number = matches!(
            self.token().kind,
            TokenKind::Int(_) | TokenKind::Long(_) | TokenKind::Float(_) | TokenKind::Single(_)
        );
        let Some(word) = self.word(1).filter(|_| number) else {
            return false;
        };
        if unit(word).is_some() {
            return true;
        }
        // another word may be the name of a column whose `as` is missing
        let ends = self.is_punct_of(2, &[")", "]"]) || self.is_word(2, "as");
        let slip = nearest_unit(word).is_some() || ends;
        slip && !is_one_of(word, &KEYWORDS) && !self.nth(1).first_on_line
    }

    /// Parses `1 hour 30 min`; requires [`Parser::at_time`] or [`Parser::at_number_and_word`]. A sum out of
    /// range is reported and replaced by zero.
    pub(super) fn time_literal(&mut self) -> Parse<TimeLiteral> {
        let start = self.span();
        let mut ms = Some(0_i64);
        let mut text = String::new();
        let mut last: Option<(usize, Span)> = None;
        loop {
            let part_start = self.span();
            let (place, part) = self.time_part(&mut text);
            ms = ms.and_then(|sum| sum.checked_add(part?));
            let part_span = self.span_since(part_start);
            if let (Some(place), Some((before, before_span))) = (place, last)
                && place <= before
            {
                self.report_unit_order(before_span, part_span, place == before);
            }
            last = place.map(|place| (place, part_span)).or(last);
            let goes_on = self.word(1).is_some_and(|word| unit(word).is_some());
            if !goes_on || !matches!(self.token().kind, TokenKind::Int(_) | TokenKind::Float(_)) {
                break;
            }
            text.push(' ');
        }
        let span = self.span_since(start);
        if ms.is_none() {
            let message = "the time is longer than 292 million years";
            self.report(
                Diagnostic::error(diagnostic_codes::RANGE, span, message).help("write a shorter time"),
            );
        }
        Ok(TimeLiteral { ms: ms.unwrap_or(0), text, span })
    }

    /// Parses a number and its unit. Returns the unit's index among the units, `None` if it is unknown, and
    /// the milliseconds, `None` if out of range.
    fn time_part(&mut self, text: &mut String) -> (Option<usize>, Option<i64>) {
        let number = self.token();
        let number_span = self.bump();
        let word = self.text(self.token());
        let Some((place, unit)) = unit(word) else {
            let message = format!("`{word}` is not a unit of time");
            self.report(
                Diagnostic::error(diagnostic_codes::UNKNOWN_UNIT, self.span(), message)
                    .expected(["a unit of time"])
                    .help(advice(word)),
            );
            self.bump();
            return (None, Some(0));
        };
        let span = number_span.to(self.bump());
        text.push_str(self.text(number));
        text.push(' ');
        text.push_str(&word.to_ascii_lowercase());
        let TokenKind::Int(count) = number.kind else {
            self.report_fractional_time(&number.kind, unit.ms, number_span, span);
            return (Some(place), Some(0));
        };
        (Some(place), i64::try_from(count).ok().and_then(|n| n.checked_mul(unit.ms)))
    }

    fn report_fractional_time(&mut self, number: &TokenKind, unit_ms: i64, number_span: Span, span: Span) {
        let ms = match number {
            TokenKind::Float(x) => *x * unit_ms as f64,
            TokenKind::Single(x) => f64::from(*x) * unit_ms as f64,
            TokenKind::Long(n) => *n as f64 * unit_ms as f64,
            _ => f64::NAN,
        };
        let help = if ms.fract() == 0.0 && ms < 1e15 {
            format!("write `{ms} millisec`")
        } else {
            "write it in a smaller unit".to_owned()
        };
        let message =
            format!("a time needs a whole number without a suffix, found `{}`", self.file.slice(number_span));
        self.report(
            Diagnostic::error(diagnostic_codes::RANGE, span, message)
                .expected(["a whole number of units"])
                .help(help),
        );
    }

    fn report_unit_order(&mut self, before: Span, part: Span, same: bool) {
        let help = match same {
            true => "write their sum".to_owned(),
            false => format!("write `{} {}`", self.file.slice(part), self.file.slice(before)),
        };
        self.report(
            Diagnostic::error(
                diagnostic_codes::UNIT_ORDER,
                part,
                "units must go from large to small, each at most once",
            )
            .help(help)
            .note_at(before, "this unit is before it"),
        );
    }

    /// Parses the time of the clause `clause`, where only a time is allowed.
    pub(super) fn time(&mut self, clause: &str) -> Parse<TimeLiteral> {
        if self.at_time() || self.at_number_and_word() {
            return self.time_literal();
        }
        let help = format!("write a number and a unit: `{clause} 10 sec`");
        if matches!(self.token().kind, TokenKind::Int(_) | TokenKind::Long(_)) {
            self.bump();
            return Err(self.report_unexpected_with(&["a unit of time"], "after the number", Some(help)));
        }
        Err(self.report_unexpected_with(&["a time"], &format!("after `{clause}`"), Some(help)))
    }

    /// Returns whether a number is followed, on its line, by a word that is not a keyword.
    pub(super) fn at_number_and_word(&self) -> bool {
        let number = matches!(self.token().kind, TokenKind::Int(_) | TokenKind::Float(_));
        let word = self.word(1).is_some_and(|word| !is_one_of(word, &KEYWORDS));
        number && word && !self.nth(1).first_on_line
    }

    /// Reports a sign before a time.
    pub(super) fn report_signed_time(&mut self, sign: Span) -> SyntaxError {
        self.report(
            Diagnostic::error(diagnostic_codes::SIGN, sign, "a time cannot have a sign")
                .help("subtract it: `x - 5 sec`"),
        );
        SyntaxError::Statement
    }
}
