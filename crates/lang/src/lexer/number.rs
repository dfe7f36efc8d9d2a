//! Numbers of the rule language.

use super::{Lexer, TokenKind, diagnostic_codes};
use crate::diagnostic::Diagnostic;

impl Lexer<'_> {
    /// `1`, `1_000`, `1.5`, `1e3`, `1.5e-3`
    pub(super) fn number(&mut self) {
        let start = self.at;
        self.skip_while(is_digit);
        let mut float = false;
        // a dot belongs to the number only when a digit follows
        if self.followed_by_digit(".") {
            self.at += 1;
            self.skip_while(is_digit);
            float = true;
        }
        for exponent in ["e", "E", "e-", "E-", "e+", "E+"] {
            if self.followed_by_digit(exponent) {
                self.at += exponent.len();
                self.skip_while(is_digit);
                float = true;
                break;
            }
        }
        let digits = self.text[start..self.at].replace('_', "");
        if float { self.float(start, &digits) } else { self.integer(start, &digits) }
    }

    pub(super) fn followed_by_digit(&self, mark: &str) -> bool {
        self.rest().strip_prefix(mark).is_some_and(|r| r.starts_with(|c: char| c.is_ascii_digit()))
    }

    fn integer(&mut self, start: usize, digits: &str) {
        let value = digits.parse().unwrap_or_else(|_| {
            let span = self.span(start, self.at);
            let message = format!("the number is larger than {}", i64::MAX);
            self.sink.push(
                Diagnostic::error(diagnostic_codes::NUMBER, span, message)
                    .help("write it with a decimal point: `1.0` is a float"),
            );
            0
        });
        self.push(TokenKind::Int(value), start);
    }

    fn float(&mut self, start: usize, digits: &str) {
        let value = digits.parse::<f64>().ok().filter(|x| x.is_finite()).unwrap_or_else(|| {
            let span = self.span(start, self.at);
            let message = format!("the number is larger than {:e}", f64::MAX);
            self.sink.push(
                Diagnostic::error(diagnostic_codes::NUMBER, span, message).help("write a smaller exponent"),
            );
            0.0
        });
        self.push(TokenKind::Float(value), start);
    }
}

fn is_digit(c: char) -> bool {
    c.is_ascii_digit() || c == '_'
}
