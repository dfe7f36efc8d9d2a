//! Parsing of time spans: numbers with units.

use super::super::ast::SpanLiteral;
use super::super::diagnostic_codes;
use super::super::keywords::is_reserved;
use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::{TokenKind, units};
use crate::source::Span;

impl Parser<'_> {
    /// Returns whether a number is followed, on its line, by a word that can only be meant as a time unit.
    pub(super) fn at_span(&self) -> bool {
        let number = matches!(self.token().kind, TokenKind::Int(_) | TokenKind::Float(_));
        let Some(unit) = self.word(1).filter(|_| number && !self.nth(1).first_on_line) else {
            return false;
        };
        if units::micros(unit).is_some() {
            return true;
        }
        // a word that begins another construct is not a misspelled unit; rather, a comma is missing
        const GOES_ON: [&str; 12] = [".", ":", "=", "==", "!=", "<", "<=", ">", ">=", "(", "{", "+="];
        let other = units::nearest_unit(unit).is_none() && GOES_ON.iter().any(|p| self.is_punct(2, p));
        !other && !is_reserved(unit) && !is_sql_operator(unit)
    }

    /// Parses `20 min`, `1 hour 30 min`. A sum out of range is reported and replaced by zero.
    pub(super) fn span_literal(&mut self) -> Parse<SpanLiteral> {
        let start = self.span();
        let mut micros = Some(0_i64);
        let mut text = String::new();
        loop {
            let part = self.span_part(&mut text)?;
            micros = micros.and_then(|sum| sum.checked_add(part?));
            // another number is part of the span only if a known unit follows it
            if !self.at_span() || self.token().first_on_line || self.word(1).and_then(units::micros).is_none()
            {
                break;
            }
            text.push(' ');
        }
        let span = self.span_since(start);
        if micros.is_none() {
            let message = "the span of time is longer than 292,000 years";
            self.report(
                Diagnostic::error(diagnostic_codes::RANGE, span, message).help("write a shorter span"),
            );
        }
        Ok(SpanLiteral { micros: micros.unwrap_or(0), text, span })
    }

    /// Parses a number and its unit. The inner `None` means that the length is out of range.
    fn span_part(&mut self, text: &mut String) -> Parse<Option<i64>> {
        let number = self.token();
        self.bump();
        let unit = self.text(self.token());
        let Some(unit_micros) = units::micros(unit) else {
            let message = format!("`{unit}` is not a unit of time");
            self.report(
                Diagnostic::error(diagnostic_codes::UNKNOWN_UNIT, self.span(), message)
                    .expected(["a unit of time"])
                    .help(units::advice(unit)),
            );
            self.bump();
            return Ok(Some(0));
        };
        self.bump();
        text.push_str(self.text(number));
        text.push(' ');
        text.push_str(unit);
        Ok(match number.kind {
            TokenKind::Int(n) => units::whole_span(n, unit_micros),
            TokenKind::Float(x) => units::fractional_span(x, unit_micros),
            _ => None,
        })
    }

    /// Parses the time span of a clause such as `every 1 min`, and reports one of zero length.
    pub(super) fn span_clause(&mut self, keyword: &str, keyword_span: Span) -> Parse<SpanLiteral> {
        if !self.at_span() {
            let help = format!("write a number and a unit: `{keyword} 10 min`");
            return Err(self.report_unexpected_with(
                &["a span of time"],
                &format!("after `{keyword}`"),
                Some(help),
            ));
        }
        let literal = self.span_literal()?;
        if literal.micros == 0 {
            let message = format!("`{keyword}` needs a span of time longer than zero");
            self.report(
                Diagnostic::error(diagnostic_codes::RANGE, keyword_span.to(literal.span), message)
                    .help(format!("write a number and a unit: `{keyword} 10 min`")),
            );
        }
        Ok(literal)
    }
}

/// Returns whether `word` is an operator of SQL such as `AND` or `is`: after a number it is reported as such,
/// not as a unit.
fn is_sql_operator(word: &str) -> bool {
    ["and", "or", "in", "is", "not", "like", "between"].iter().any(|w| w.eq_ignore_ascii_case(word))
}
