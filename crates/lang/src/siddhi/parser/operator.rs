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
    In,
    Equal,
    Compare,
    Sum,
    Product,
    Not,
    Primary,
}

impl Precedence {
    /// Returns the next tighter precedence.
    pub(in super::super) fn tighter(self) -> Self {
        match self {
            Self::Or => Self::And,
            Self::And => Self::In,
            Self::In => Self::Equal,
            Self::Equal => Self::Compare,
            Self::Compare => Self::Sum,
            Self::Sum => Self::Product,
            Self::Product => Self::Not,
            Self::Not | Self::Primary => Self::Primary,
        }
    }

    pub(in super::super) fn of(op: BinaryOp) -> Self {
        match op {
            BinaryOp::Or => Self::Or,
            BinaryOp::And => Self::And,
            BinaryOp::Eq | BinaryOp::Ne => Self::Equal,
            BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => Self::Compare,
            BinaryOp::Add | BinaryOp::Sub => Self::Sum,
            BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem => Self::Product,
        }
    }
}

/// An infix operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InfixOperator {
    Binary(BinaryOp),
    In,
}

impl InfixOperator {
    pub(super) fn precedence(self) -> Precedence {
        match self {
            Self::Binary(op) => Precedence::of(op),
            Self::In => Precedence::In,
        }
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
                "=>" => binary(Ge, true),
                "&&" => binary(And, true),
                "||" => binary(Or, true),
                p => binary_operator(p).and_then(|(op, foreign)| binary(op, foreign)),
            },
            TokenKind::Word if self.is_word(0, "and") => binary(And, false),
            TokenKind::Word if self.is_word(0, "or") => binary(Or, false),
            TokenKind::Word if self.is_word(0, "in") => Some((InfixOperator::In, false)),
            _ => None,
        }
    }

    /// Reports the operator `infix` at the current token, which is in the spelling of another language.
    pub(super) fn foreign_infix(&mut self, infix: InfixOperator) {
        let InfixOperator::Binary(op) = infix else { return };
        // the lexer reported one that is not ASCII
        if self.text(self.token()).is_ascii() {
            self.report_foreign_operator(op.text());
        }
    }
}
