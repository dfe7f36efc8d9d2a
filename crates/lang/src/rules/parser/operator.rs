//! Operators and their ranks.

use super::super::ast::BinaryOp;
use super::super::code;
use super::Parser;
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;

/// How tightly operators bind, loosest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in super::super) enum Rank {
    Or,
    And,
    Not,
    Compare,
    Sum,
    Product,
    Sign,
    Primary,
}

impl Rank {
    /// The next tighter rank.
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

/// An operator between two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Infix {
    Binary(BinaryOp),
    In { negated: bool },
}

impl Infix {
    pub(super) fn rank(self) -> Rank {
        match self {
            Self::Binary(op) => Rank::of(op),
            Self::In { .. } => Rank::Compare,
        }
    }

    /// How many tokens it has.
    pub(super) fn tokens(self) -> usize {
        if self == (Self::In { negated: true }) { 2 } else { 1 }
    }
}

impl Parser<'_> {
    /// The operator here. `true` with it when another language writes it so.
    pub(super) fn infix(&self) -> Option<(Infix, bool)> {
        use BinaryOp::*;
        let binary = |op, foreign| Some((Infix::Binary(op), foreign));
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
                    lower @ "in" => Some((Infix::In { negated: false }, lower != word)),
                    lower @ "not" if self.word_at(1).is_some_and(|w| w.eq_ignore_ascii_case("in")) => {
                        Some((Infix::In { negated: true }, lower != word))
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Reports that `infix`, which stands here, is written differently.
    pub(super) fn foreign_infix(&mut self, infix: Infix) {
        let written = self.text(self.token());
        let ours = match infix {
            Infix::Binary(op) => op.text(),
            Infix::In { negated: false } => "in",
            Infix::In { negated: true } => "not in",
        };
        let diagnostic = if written == "=" {
            Diagnostic::error(code::ASSIGN_FOR_EQUALS, self.span(), "`=` sets a value and does not compare")
                .help("to compare two values, write `==`")
        } else {
            let message = format!("`{written}` is not an operator of this language");
            Diagnostic::error(code::FOREIGN, self.span(), message).help(format!("write `{ours}`"))
        };
        self.report(diagnostic.expected([format!("`{ours}`")]));
    }
}
