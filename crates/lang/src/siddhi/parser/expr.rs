//! Parsing of expressions, by precedence climbing.

use super::super::ast::{Args, Call, Expr, ExprKind, Literal, NullOperand, SourceRef};
use super::super::{EXPR_DEPTH_MAX, diagnostic_codes};
use super::operator::{InfixOperator, Precedence};
use super::reference::AttributeOrSource;
use super::{Parse, Parser, SyntaxError};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

/// Keywords that may follow an operand.
const LINKS: [&str; 5] = ["and", "or", "in", "is", "as"];

/// An expression and the depth of its tree.
struct MeasuredExpr {
    expr: Expr,
    depth: usize,
}

impl MeasuredExpr {
    fn leaf(kind: ExprKind, span: Span) -> Self {
        Self { expr: Expr { kind, span }, depth: 1 }
    }
}

impl Parser<'_> {
    /// Parses an expression up to the end of the source.
    pub(super) fn lone_expr(&mut self) -> Parse<Expr> {
        let expr = self.expr()?;
        if self.at_end() {
            return Ok(expr);
        }
        Err(self
            .report_foreign_continuation()
            .unwrap_or_else(|| self.report_unexpected(&["an operator"], "")))
    }

    /// Parses an expression.
    pub(super) fn expr(&mut self) -> Parse<Expr> {
        Ok(self.ranked(Precedence::Or)?.expr)
    }

    /// Parses an expression whose operators bind at least as tightly as `min`.
    fn ranked(&mut self, min: Precedence) -> Parse<MeasuredExpr> {
        self.nested(|p| {
            let mut left = p.prefix()?;
            while let Some((infix, foreign)) = p.infix() {
                if infix.precedence() < min {
                    break;
                }
                if foreign {
                    p.foreign_infix(infix);
                }
                p.bump();
                left = match infix {
                    InfixOperator::Binary(op) => {
                        let right = p.ranked(infix.precedence().tighter())?;
                        let span = left.expr.span.to(right.expr.span);
                        let depth = left.depth.max(right.depth);
                        let (left, right) = (Box::new(left.expr), Box::new(right.expr));
                        p.grow(ExprKind::Binary { op, left, right }, span, depth)?
                    }
                    InfixOperator::In => p.membership(left)?,
                };
            }
            Ok(left)
        })
    }

    /// Parses `condition in Table` after `in`.
    fn membership(&mut self, condition: MeasuredExpr) -> Parse<MeasuredExpr> {
        if self.is_punct(0, "(") {
            let help = "`in` only searches tables: compare with each value, `a == 1 or a == 2`".to_owned();
            return Err(self.report_unexpected_with(&["a table's name"], "after `in`", Some(help)));
        }
        let table = self.name("a table's name")?;
        let span = condition.expr.span.to(table.span);
        let depth = condition.depth;
        self.grow(ExprKind::In { condition: Box::new(condition.expr), table }, span, depth)
    }

    /// Creates a node above children of the depth `below`; reports an error at [`EXPR_DEPTH_MAX`].
    fn grow(&mut self, kind: ExprKind, span: Span, below: usize) -> Parse<MeasuredExpr> {
        if below >= EXPR_DEPTH_MAX {
            return Err(self.report_too_deep(span.at_end()));
        }
        Ok(MeasuredExpr { expr: Expr { kind, span }, depth: below + 1 })
    }

    /// Parses `not x`, `-5`, or an operand without prefix.
    fn prefix(&mut self) -> Parse<MeasuredExpr> {
        if self.at_not() {
            return self.negation();
        }
        match &self.token().kind {
            TokenKind::Punct(sign @ ("-" | "+")) => self.signed(sign),
            TokenKind::Punct("!") if !self.at_fault_stream() => {
                self.report(
                    Diagnostic::error(
                        diagnostic_codes::FOREIGN,
                        self.span(),
                        "`!` is not an operator of SiddhiQL",
                    )
                    .expected(["`not`"])
                    .help("write `not`"),
                );
                self.negation()
            }
            _ => self.null_check(),
        }
    }

    /// Returns whether `not` at the current token is an operator; it may also be an attribute's name.
    fn at_not(&self) -> bool {
        if !self.is_word(0, "not") {
            return false;
        }
        match &self.nth(1).kind {
            TokenKind::Punct("(" | "!" | "#") => true,
            TokenKind::Punct("-" | "+") => is_number(&self.nth(2).kind),
            TokenKind::Punct(_) | TokenKind::End | TokenKind::Body(_) => false,
            TokenKind::Word if self.is_word_of(1, &LINKS) => {
                // in `not and b` the first word is a name, in `not and(b)` and `not in is null` the second
                let operand = match &self.nth(2).kind {
                    TokenKind::Word => !self.is_word_of(2, &LINKS),
                    TokenKind::Punct(p) => matches!(*p, "!" | "#"),
                    TokenKind::End | TokenKind::Body(_) => false,
                    _ => true,
                };
                !operand
            }
            _ => true,
        }
    }

    fn negation(&mut self) -> Parse<MeasuredExpr> {
        let start = self.bump();
        let operand = self.nested(Self::prefix)?;
        let span = start.to(operand.expr.span);
        self.grow(ExprKind::Not(Box::new(operand.expr)), span, operand.depth)
    }

    /// Returns whether the current `!` begins `!S.a` or `!S is null`, which refer to a fault stream, and is
    /// not a negation as in other languages.
    fn at_fault_stream(&self) -> bool {
        self.is_name(1) && (self.is_punct_of(2, &[".", "["]) || self.is_word(2, "is"))
    }

    /// Parses a number after the sign `sign`.
    fn signed(&mut self, sign: &str) -> Parse<MeasuredExpr> {
        let start = self.bump();
        if !is_number(&self.token().kind) {
            let help = match sign {
                "-" => "subtract it: `0 - x`",
                _ => "remove `+`",
            };
            self.report(
                Diagnostic::error(diagnostic_codes::SIGN, start, "a sign is only allowed before a number")
                    .help(help),
            );
            return Err(SyntaxError::Statement);
        }
        if self.at_time() {
            return Err(self.report_signed_time(start));
        }
        let literal = self.number(sign == "-");
        let span = self.span_since(start);
        self.refuse_null_check(MeasuredExpr::leaf(ExprKind::Literal(literal), span))
    }

    /// Parses a number; reports one that is out of range and returns zero instead.
    fn number(&mut self, negative: bool) -> Literal {
        let (kind, span) = (&self.token().kind, self.bump());
        let sign = if negative { -1 } else { 1 };
        // the minimum is one further from zero than the maximum, so the range check needs the sign
        let signed = |n: u64| i128::from(n) * i128::from(sign);
        match kind {
            TokenKind::Int(n) => Literal::Int(i32::try_from(signed(*n)).unwrap_or_else(|_| {
                self.report_out_of_range(span, i64::from(i32::MAX), &format!("write `{n}L`: a long"));
                0
            })),
            TokenKind::Long(n) => Literal::Long(i64::try_from(signed(*n)).unwrap_or_else(|_| {
                self.report_out_of_range(span, i64::MAX, "write it with a decimal point: `1.0` is a double");
                0
            })),
            TokenKind::Single(x) => Literal::Float(if negative { -*x } else { *x }),
            TokenKind::Float(x) => Literal::Double(if negative { -*x } else { *x }),
            _ => Literal::Int(0),
        }
    }

    fn report_out_of_range(&mut self, span: Span, max: i64, help: &str) {
        let message = format!("the number is larger than {max}");
        self.report(Diagnostic::error(diagnostic_codes::RANGE, span, message).help(help));
    }

    /// Parses an operand with an optional `is null` after it.
    fn null_check(&mut self) -> Parse<MeasuredExpr> {
        let value = match self.primary()? {
            PrimaryExpr::Value(value) => value,
            PrimaryExpr::Source(source) if self.is_word(0, "is") => {
                let span = source.span;
                self.is_null()?;
                let span = self.span_since(span);
                return Ok(MeasuredExpr::leaf(ExprKind::IsNull(NullOperand::Step(source)), span));
            }
            PrimaryExpr::Source(_) => {
                let help = "write `e[0].a` or `e[0] is null`".to_owned();
                return Err(self.report_unexpected_with(&["`.`"], "before the attribute's name", Some(help)));
            }
        };
        let bracketed = self.file.slice(value.expr.span).starts_with('(');
        let checkable = matches!(value.expr.kind, ExprKind::Attribute(_) | ExprKind::Call(_)) && !bracketed;
        if !self.is_word(0, "is") || !checkable {
            return self.refuse_null_check(value);
        }
        let start = value.expr.span;
        self.is_null()?;
        let span = self.span_since(start);
        let operand = NullOperand::Value(Box::new(value.expr));
        self.grow(ExprKind::IsNull(operand), span, value.depth)
    }

    /// Parses `is null`.
    fn is_null(&mut self) -> Parse<()> {
        let start = self.bump();
        if self.is_word(0, "not") {
            let span = start.to(self.span());
            self.report(
                Diagnostic::error(diagnostic_codes::FOREIGN, span, "SiddhiQL has no `is not null`")
                    .help("write `not (x is null)`"),
            );
            return Err(SyntaxError::Statement);
        }
        self.expect_word("null", "after `is`")?;
        Ok(())
    }

    fn refuse_null_check(&mut self, value: MeasuredExpr) -> Parse<MeasuredExpr> {
        if self.is_word(0, "is") {
            let message = "`is null` is only allowed after an attribute, a function or a step";
            let help = "let an earlier query compute the value under a name, and test that";
            self.report(Diagnostic::error(diagnostic_codes::NULL_CHECK, self.span(), message).help(help));
            return Err(SyntaxError::Statement);
        }
        Ok(value)
    }

    fn primary(&mut self) -> Parse<PrimaryExpr> {
        let token = self.token();
        let value = match &token.kind {
            kind if is_number(kind) && self.at_time() => {
                let literal = self.time_literal()?;
                let span = literal.span;
                MeasuredExpr::leaf(ExprKind::Time(literal), span)
            }
            kind if is_number(kind) => MeasuredExpr::leaf(ExprKind::Literal(self.number(false)), token.span),
            TokenKind::Str(text) => {
                MeasuredExpr::leaf(ExprKind::Literal(Literal::Text(text.clone())), self.bump())
            }
            TokenKind::Word if self.at_bool() => {
                let value = self.is_word(0, "true");
                MeasuredExpr::leaf(ExprKind::Literal(Literal::Bool(value)), self.bump())
            }
            TokenKind::Word | TokenKind::Quoted(_) if self.at_call() => self.call_value()?,
            TokenKind::Word | TokenKind::Quoted(_) | TokenKind::Punct("#" | "!") => {
                return Ok(match self.reference()? {
                    AttributeOrSource::Source(source) => PrimaryExpr::Source(source),
                    AttributeOrSource::Attribute(attribute) => {
                        let span = attribute.span;
                        PrimaryExpr::Value(MeasuredExpr::leaf(ExprKind::Attribute(attribute), span))
                    }
                });
            }
            TokenKind::Punct("(") => self.parenthesised()?,
            _ => return Err(self.report_missing_value()),
        };
        Ok(PrimaryExpr::Value(value))
    }

    /// Returns whether the current token is the literal `true` or `false` and not a name.
    fn at_bool(&self) -> bool {
        self.is_word_of(0, &["true", "false"]) && !self.at_call() && !self.is_punct_of(1, &[".", "["])
    }

    /// Returns whether `f(` or `ns:f(` begins at the current token.
    pub(super) fn at_call(&self) -> bool {
        self.is_name(0) && (self.is_punct(1, "(") || self.is_punct(1, ":") && self.is_name(2))
    }

    fn call_value(&mut self) -> Parse<MeasuredExpr> {
        let mut depth = 0;
        let call = self.call_with(&mut depth)?;
        let span = call.span;
        self.grow(ExprKind::Call(Box::new(call)), span, depth)
    }

    /// Parses `f(a, b)`, `ns:f(*)`.
    pub(super) fn call(&mut self) -> Parse<Call> {
        self.call_with(&mut 0)
    }

    /// Parses `f(a, b)`, `ns:f(*)`; raises `depth` to that of the deepest argument.
    fn call_with(&mut self, depth: &mut usize) -> Parse<Call> {
        let start = self.span();
        let mut name = self.name("a function's name")?;
        let namespace = match self.eat(":") {
            Some(_) => Some(std::mem::replace(&mut name, self.name("a function's name")?)),
            None => None,
        };
        let open = self.span();
        self.expect("(", "after the function's name")?;
        let args = if self.is_punct(0, "*") && self.is_punct(1, ")") {
            let star = self.bump();
            self.bump();
            Args::All(star)
        } else if self.eat(")").is_some() {
            Args::List(Vec::new())
        } else {
            let args = self.commas(|p| {
                let arg = p.ranked(Precedence::Or)?;
                *depth = arg.depth.max(*depth);
                Ok(arg.expr)
            })?;
            if self.eat(")").is_none() {
                return Err(self.report_broken_list(open));
            }
            Args::List(args)
        };
        Ok(Call { namespace, name, args, span: self.span_since(start) })
    }

    fn parenthesised(&mut self) -> Parse<MeasuredExpr> {
        let open = self.bump();
        let mut inner = self.ranked(Precedence::Or)?;
        if self.eat(")").is_none() {
            return Err(self.report_not_closed(open, &["an operator", "`)`"], None));
        }
        inner.expr.span = self.span_since(open);
        Ok(inner)
    }

    /// Reports that no value begins at the current token.
    fn report_missing_value(&mut self) -> SyntaxError {
        let help = match (&self.token().kind, &self.nth(1).kind) {
            (TokenKind::Punct("=" | "=="), _) if self.file.slice(self.previous()) == "=" => {
                Some("write `==` without a space")
            }
            (TokenKind::Punct(">" | "<" | "="), _)
                if ["<", ">", "="].contains(&self.file.slice(self.previous())) =>
            {
                Some("write one operator, such as `>=`, without a space")
            }
            (TokenKind::Punct("*"), _) => Some("`*` is only allowed alone: `select *`, `count()`"),
            (TokenKind::Punct(")"), _) if self.file.slice(self.previous()) == "," => Some("remove the comma"),
            (TokenKind::Punct("["), _) => Some("SiddhiQL has no arrays"),
            _ => None,
        };
        self.report_unexpected_with(&["a value"], "", help.map(str::to_owned))
    }
}

/// Result of parsing an operand.
enum PrimaryExpr {
    Value(MeasuredExpr),
    /// A stream or step, which is not a value.
    Source(Box<SourceRef>),
}

fn is_number(kind: &TokenKind) -> bool {
    matches!(kind, TokenKind::Int(_) | TokenKind::Long(_) | TokenKind::Float(_) | TokenKind::Single(_))
}
