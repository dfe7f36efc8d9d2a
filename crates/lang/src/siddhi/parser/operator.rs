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
                "=" | "===" => binary(Eq, true),
                "<>" | "!==" => binary(Ne, true),
                "=>" => binary(Ge, true),
                "&&" | "&" => binary(And, true),
                "||" | "|" => binary(Or, true),
                _ => None,
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
        let written = self.text(self.token());
        if !written.is_ascii() {
            // the lexer reported it
            return;
        }
        let diagnostic = if written == "=" {
            Diagnostic::error(
                diagnostic_codes::ASSIGN_FOR_EQUALS,
                self.span(),
                "`=` sets a value and does not compare",
            )
            .help("to compare two values, write `==`")
        } else {
            let message = format!("`{written}` is not an operator of SiddhiQL");
            Diagnostic::error(diagnostic_codes::FOREIGN, self.span(), message)
                .help(format!("write `{}`", op.text()))
        };
        self.report(diagnostic.expected([format!("`{}`", op.text())]));
    }
}
