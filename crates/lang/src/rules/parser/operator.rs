//! Operators and their precedence.

use super::super::ast::BinaryOp;
use super::super::diagnostic_codes;
use super::Parser;
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;

/// Precedence of operators, loosest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Precedence {
    Or,
    And,
    Not,
    Compare,
    Sum,
    Product,
    Sign,
    Primary,
}

impl Precedence {
    /// Returns the next tighter precedence.
    pub(in super::super) fn tighter(self) -> Self {
        match self {
            Self::Or => Self::And,
            Self::And => Self::Not,
            Self::Not => Self::Compare,
            Self::Compare => Self::Sum,
            Self::Sum => Self::Product,
            Self::Product => Self::Sign,
            Self::Sign | Self::Primary => Self::Primary,
        }
    }

    pub(in super::super) fn of(op: BinaryOp) -> Self {
        match op {
            BinaryOp::Or => Self::Or,
            BinaryOp::And => Self::And,
            BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => {
                Self::Compare
            }
            BinaryOp::Add | BinaryOp::Sub => Self::Sum,
            BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem => Self::Product,
        }
    }
}

/// An infix operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InfixOperator {
    Binary(BinaryOp),
    In { negated: bool },
}

impl InfixOperator {
    pub(super) fn precedence(self) -> Precedence {
        match self {
            Self::Binary(op) => Precedence::of(op),
            Self::In { .. } => Precedence::Compare,
        }
    }

    /// Returns the number of tokens of the operator.
    pub(super) fn tokens(self) -> usize {
        if self == (Self::In { negated: true }) { 2 } else { 1 }
    }
}

impl Parser<'_> {
    /// Returns the infix operator at the current token, and whether it is in the spelling of another
    /// language.
    pub(super) fn infix(&self) -> Option<(InfixOperator, bool)> {
        use BinaryOp::*;
        let binary = |op, foreign| Some((InfixOperator::Binary(op), foreign));
        match &self.token().kind {
            TokenKind::Punct(p) => match *p {
                "==" => binary(Eq, false),
                "!=" => binary(Ne, false),
                "<" => binary(Lt, false),
                "<=" => binary(Le, false),
                ">" => binary(Gt, false),
                ">=" => binary(Ge, false),
                "+" => binary(Add, false),
                "-" => binary(Sub, false),
                "*" => binary(Mul, false),
                "/" => binary(Div, false),
                "%" => binary(Rem, false),
                "&&" => binary(And, false),
                "||" => binary(Or, false),
                "=" | "===" => binary(Eq, true),
                "<>" | "!==" => binary(Ne, true),
                "&" => binary(And, true),
                "|" => binary(Or, true),
                _ => None,
            },
            TokenKind::Word => {
                let word = self.word().unwrap_or("");
                match word.to_ascii_lowercase().as_str() {
                    lower @ "and" => binary(And, lower != word),
                    lower @ "or" => binary(Or, lower != word),
                    lower @ "in" => Some((InfixOperator::In { negated: false }, lower != word)),
                    lower @ "not" if self.word_at(1).is_some_and(|w| w.eq_ignore_ascii_case("in")) => {
                        Some((InfixOperator::In { negated: true }, lower != word))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Reports the operator `infix` at the current token, which is in the spelling of another language.
    pub(super) fn foreign_infix(&mut self, infix: InfixOperator) {
        let written = self.text(self.token());
        let ours = match infix {
            InfixOperator::Binary(op) => op.text(),
            InfixOperator::In { negated: false } => "in",
            InfixOperator::In { negated: true } => "not in",
        };
        let diagnostic = if written == "=" {
            Diagnostic::error(
                diagnostic_codes::ASSIGN_FOR_EQUALS,
                self.span(),
                "`=` sets a value and does not compare",
            )
            .help("to compare two values, write `==`")
        } else {
            let message = format!("`{written}` is not an operator of this language");
            Diagnostic::error(diagnostic_codes::FOREIGN, self.span(), message).help(format!("write `{ours}`"))
        };
        self.report(diagnostic.expected([format!("`{ours}`")]));
    }
}
