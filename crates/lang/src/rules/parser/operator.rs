//! Operators and their precedence.

use super::super::ast::BinaryOp;
use super::Parser;
use crate::lexer::TokenKind;
use crate::parser::binary_operator;

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
                "&&" => binary(And, false),
                "||" => binary(Or, false),
                p => binary_operator(p).and_then(|(op, foreign)| binary(op, foreign)),
            },
            TokenKind::Word => {
                let word = self.word(0).unwrap_or("");
                match word.to_ascii_lowercase().as_str() {
                    lower @ "and" => binary(And, lower != word),
                    lower @ "or" => binary(Or, lower != word),
                    lower @ "in" => Some((InfixOperator::In { negated: false }, lower != word)),
                    lower @ "not" if self.word(1).is_some_and(|w| w.eq_ignore_ascii_case("in")) => {
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
        let ours = match infix {
            InfixOperator::Binary(op) => op.text(),
            InfixOperator::In { negated: false } => "in",
            InfixOperator::In { negated: true } => "not in",
        };
        self.report_foreign_operator(ours);
    }
}
