//! Parsing of expressions, by precedence climbing.

use super::super::ast::{BinaryOp, Expr, ExprKind, Ident, Literal, UnaryOp};
use super::super::{EXPR_DEPTH_MAX, diagnostic_codes};
use super::operator::{InfixOperator, Precedence};
use super::{Parse, Parser};
use crate::diagnostic::Diagnostic;
use crate::lexer::TokenKind;
use crate::source::Span;

/// Magnitude of `-9223372036854775808`, which does not fit in a positive `i64`.
const MIN_MAGNITUDE: u64 = i64::MIN.unsigned_abs();

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
    /// Parses an expression.
    pub(super) fn expr(&mut self) -> Parse<Expr> {
        Ok(self.ranked(Precedence::Or)?.expr)
    }

    /// Parses an expression whose operators bind at least as tightly as `min`.
    fn ranked(&mut self, min: Precedence) -> Parse<MeasuredExpr> {
        self.nested(|p| {
            let mut left = p.prefix(min)?;
            while let Some((infix, foreign)) = p.infix() {
                if infix.precedence() < min {
                    break;
                }
                if foreign {
                    p.foreign_infix(infix);
                }
                let operator = p.span();
                for _ in 0..infix.tokens() {
                    p.bump();
                }
                let right = p.ranked(infix.precedence().tighter())?;
                left = p.combine(infix, left, right)?;
                if infix.precedence() == Precedence::Compare {
                    p.refuse_chain(operator)?;
                }
            }
            Ok(left)
        })
    }

    fn combine(
        &mut self,
        infix: InfixOperator,
        left: MeasuredExpr,
        right: MeasuredExpr,
    ) -> Parse<MeasuredExpr> {
        let span = left.expr.span.to(right.expr.span);
        let depth = left.depth.max(right.depth);
        let (left, right) = (Box::new(left.expr), Box::new(right.expr));
        match infix {
            InfixOperator::Binary(op) => self.grow(ExprKind::Binary { op, left, right }, span, depth),
            InfixOperator::In { negated: false } => {
                self.grow(ExprKind::In { value: left, list: right }, span, depth)
            }
            InfixOperator::In { negated: true } => {
                let operand = Box::new(Expr { kind: ExprKind::In { value: left, list: right }, span });
                self.grow(ExprKind::Unary { op: UnaryOp::Not, operand }, span, depth + 1)
            }
        }
    }

    /// Creates a node above children of the depth `below`; reports an error at [`EXPR_DEPTH_MAX`].
    fn grow(&mut self, kind: ExprKind, span: Span, below: usize) -> Parse<MeasuredExpr> {
        if below >= EXPR_DEPTH_MAX {
            return Err(self.report_too_deep(span.at_end()));
        }
        Ok(MeasuredExpr { expr: Expr { kind, span }, depth: below + 1 })
    }

    /// Reports `a < b < c` after `a < b`, whose operator is at `first`.
    fn refuse_chain(&mut self, first: Span) -> Parse<()> {
        let Some((second, _)) = self.infix().filter(|(i, _)| i.precedence() == Precedence::Compare) else {
            return Ok(());
        };
        let text = |infix| match infix {
            InfixOperator::Binary(op) => BinaryOp::text(op),
            InfixOperator::In { .. } => "in",
        };
        let (a, b) = (self.file.slice(first).to_owned(), text(second));
        self.report(
            Diagnostic::error(
                diagnostic_codes::COMPARISON_CHAIN,
                self.span(),
                "comparisons cannot be chained",
            )
            .help(format!("write `a {a} b and b {b} c`")),
        );
        Err(super::SyntaxError::Statement)
    }

    /// Parses `not x`, or an operand that binds more tightly.
    fn prefix(&mut self, min: Precedence) -> Parse<MeasuredExpr> {
        let foreign = self.word(0) == Some("NOT") && !self.is_punct(1, ".");
        if self.word(0) != Some("not") && !foreign {
            return self.sign();
        }
        if foreign {
            self.foreign_word("not");
        }
        if min > Precedence::Not {
            let message = "`not` needs brackets after this operator";
            self.report(
                Diagnostic::error(diagnostic_codes::UNEXPECTED, self.span(), message)
                    .expected(["a value"])
                    .help("write brackets around it: `(not x)`"),
            );
        }
        let start = self.bump();
        let operand = self.ranked(Precedence::Not)?;
        self.unary(UnaryOp::Not, start, operand)
    }

    fn unary(&mut self, op: UnaryOp, start: Span, operand: MeasuredExpr) -> Parse<MeasuredExpr> {
        let span = start.to(operand.expr.span);
        self.grow(ExprKind::Unary { op, operand: Box::new(operand.expr) }, span, operand.depth)
    }

    /// Parses `-x`, `!x`, or an operand that binds more tightly.
    fn sign(&mut self) -> Parse<MeasuredExpr> {
        if self.is_punct(0, "-") {
            let start = self.bump();
            if self.token().kind == TokenKind::Int(MIN_MAGNITUDE) && !self.at_span() {
                let span = start.to(self.bump());
                return Ok(MeasuredExpr::leaf(ExprKind::Literal(Literal::Int(i64::MIN)), span));
            }
            let operand = self.nested(Self::sign)?;
            return self.unary(UnaryOp::Neg, start, operand);
        }
        if self.is_punct(0, "!") {
            let start = self.bump();
            let operand = self.nested(Self::sign)?;
            return self.unary(UnaryOp::Not, start, operand);
        }
        if self.is_punct(0, "+") {
            let help = "remove `+`: a number without a sign is positive".to_owned();
            return Err(self.report_unexpected_with(&["a value"], "", Some(help)));
        }
        self.postfix()
    }

    /// Parses a value and the field accesses after it.
    fn postfix(&mut self) -> Parse<MeasuredExpr> {
        let mut value = self.primary()?;
        loop {
            if self.is_punct(0, "[") && !self.token().first_on_line {
                let help = "write an element of an array like a field: x.items.`0`".to_owned();
                return Err(self.report_unexpected_with(&["an operator"], "", Some(help)));
            }
            if !self.is_punct(0, ".") {
                return Ok(value);
            }
            if matches!(value.expr.kind, ExprKind::Literal(_) | ExprKind::Span(_) | ExprKind::Now) {
                let help = "only bindings, documents and objects have fields".to_owned();
                return Err(self.report_unexpected_with(&["an operator"], "after a constant", Some(help)));
            }
            value = self.field(value)?;
        }
    }

    /// Parses `.field` or `.field()`.
    fn field(&mut self, base: MeasuredExpr) -> Parse<MeasuredExpr> {
        self.bump();
        let name = self.any_name("a field's name")?;
        let depth = base.depth;
        let start = base.expr.span;
        let base = Box::new(base.expr);
        if !self.is_punct(0, "(") {
            return self.grow(ExprKind::Field { base, field: name }, self.span_since(start), depth);
        }
        self.bump();
        if !self.is_punct(0, ")") {
            let help =
                format!("write conditions on a relation in a second pair of brackets: `{}()(…)`", name.name);
            return Err(self.report_unexpected_with(&["`)`"], "after a field's `(`", Some(help)));
        }
        self.bump();
        self.grow(ExprKind::MethodCall { base, method: name }, self.span_since(start), depth)
    }

    fn primary(&mut self) -> Parse<MeasuredExpr> {
        let token = self.token();
        let kind = match &token.kind {
            TokenKind::Int(_) | TokenKind::Float(_) if self.at_span() => {
                let literal = self.span_literal()?;
                let span = literal.span;
                return Ok(MeasuredExpr::leaf(ExprKind::Span(literal), span));
            }
            TokenKind::Int(number) => ExprKind::Literal(Literal::Int(self.integer(*number))),
            TokenKind::Float(number) => ExprKind::Literal(Literal::Float(*number)),
            TokenKind::Str(text) => ExprKind::Literal(Literal::Str(text.clone())),
            TokenKind::Word | TokenKind::Quoted(_) => return self.word_value(),
            TokenKind::Punct("(") => return self.parenthesised(),
            TokenKind::Punct("[") => return self.array(),
            TokenKind::Punct("{") => return self.object_value(),
            _ => return Err(self.no_value()),
        };
        Ok(MeasuredExpr::leaf(kind, self.bump()))
    }

    /// Converts the integer at the current token; reports one that is out of range and returns zero instead.
    fn integer(&mut self, number: u64) -> i64 {
        i64::try_from(number).unwrap_or_else(|_| {
            let message = format!("the number is larger than {}", i64::MAX);
            self.report(
                Diagnostic::error(diagnostic_codes::RANGE, self.span(), message)
                    .help("write it with a decimal point: `1.0` is a float"),
            );
            0
        })
    }

    /// Parses a literal keyword, a call, or a name.
    fn word_value(&mut self) -> Parse<MeasuredExpr> {
        let kind = match self.word(0) {
            Some("true") => ExprKind::Literal(Literal::Bool(true)),
            Some("false") => ExprKind::Literal(Literal::Bool(false)),
            Some("null") => ExprKind::Literal(Literal::Null),
            Some("now") => return self.now(),
            Some("and" | "or" | "in" | "not" | "let") => return Err(self.no_value()),
            Some(word @ ("TRUE" | "FALSE" | "NULL" | "True" | "False" | "Null")) => {
                self.foreign_word(&word.to_ascii_lowercase());
                ExprKind::Literal(Literal::Null)
            }
            _ if self.is_punct(1, "(") => return self.call(),
            _ => {
                let name = self.any_name("a value")?;
                let span = name.span;
                return Ok(MeasuredExpr::leaf(ExprKind::Name(name), span));
            }
        };
        Ok(MeasuredExpr::leaf(kind, self.bump()))
    }

    /// Parses `now`; reports `now()`, the spelling of other languages.
    fn now(&mut self) -> Parse<MeasuredExpr> {
        let start = self.bump();
        if self.is_punct(0, "(") {
            return Err(self.report_unexpected_with(
                &["an operator"],
                "after `now`",
                Some("write `now` alone".to_owned()),
            ));
        }
        Ok(MeasuredExpr::leaf(ExprKind::Now, start))
    }

    fn call(&mut self) -> Parse<MeasuredExpr> {
        let function: Ident = self.any_name("a function's name")?;
        let start = function.span;
        let mut depth = 0;
        let args = self.list("(", ")", "", |p| p.element(&mut depth))?;
        self.grow(ExprKind::Call { function, args }, self.span_since(start), depth)
    }

    fn array(&mut self) -> Parse<MeasuredExpr> {
        let start = self.span();
        let mut depth = 0;
        let elements = self.list("[", "]", "", |p| p.element(&mut depth))?;
        self.grow(ExprKind::Array(elements), self.span_since(start), depth)
    }

    /// Parses an element of a list; raises `depth` to its depth.
    fn element(&mut self, depth: &mut usize) -> Parse<Expr> {
        let element = self.ranked(Precedence::Or)?;
        *depth = element.depth.max(*depth);
        Ok(element.expr)
    }

    fn object_value(&mut self) -> Parse<MeasuredExpr> {
        let start = self.span();
        let fields = self.object("")?;
        // fields are parsed by `expr`, which does not return depths
        let depth = fields.iter().map(|f| depth(&f.value)).max().unwrap_or(0);
        self.grow(ExprKind::Object(fields), self.span_since(start), depth)
    }

    fn parenthesised(&mut self) -> Parse<MeasuredExpr> {
        let open = self.bump();
        let mut inner = self.ranked(Precedence::Or)?;
        if self.is_punct(0, ",") {
            let help = "write a list in square brackets: `[a, b]`".to_owned();
            return Err(self.report_unexpected_with(&["`)`"], "", Some(help)));
        }
        if !self.is_punct(0, ")") {
            let broken =
                self.at_end() || [";", "}", "]", "{"].iter().any(|p| self.is_punct(0, p)) || self.at_item();
            if broken {
                return Err(self.report_unclosed(open));
            }
            return Err(self
                .report_foreign_continuation()
                .unwrap_or_else(|| self.report_unexpected(&["an operator", "`)`"], "")));
        }
        self.bump();
        inner.expr.span = self.span_since(open);
        Ok(inner)
    }

    /// Reports that no value begins at the current token.
    fn no_value(&mut self) -> super::SyntaxError {
        let adjacent = self.nth(1).span.start == self.span().end;
        let help = match (&self.token().kind, &self.nth(1).kind) {
            (TokenKind::Punct("."), TokenKind::Int(_)) if adjacent => {
                Some(format!("write `0.{}`", self.text(self.nth(1))))
            }
            (TokenKind::Punct("=" | "=="), _) if self.file.slice(self.previous()) == "=" => {
                Some("write `==` without a space".to_owned())
            }
            (TokenKind::Punct("--" | "++"), _) => Some("put a space between two signs".to_owned()),
            (TokenKind::Punct("@" | "#"), _) => Some("write the name without a sign before it".to_owned()),
            (TokenKind::Word, _) => {
                self.word(0).map(|w| format!("write a field of this name in backticks: `` `{w}` ``"))
            }
            _ => None,
        };
        self.report_unexpected_with(&["a value"], "", help)
    }

    /// Reports that the word at the current token must be written `ours`.
    fn foreign_word(&mut self, ours: &str) {
        let message = format!("`{}` is not a keyword of this language", self.text(self.token()));
        self.report(
            Diagnostic::error(diagnostic_codes::FOREIGN, self.span(), message)
                .expected([format!("`{ours}`")])
                .help(format!("write `{ours}`")),
        );
    }
}

/// Returns the depth of a tree, at most [`EXPR_DEPTH_MAX`].
fn depth(expr: &Expr) -> usize {
    let deepest = |exprs: &[Expr]| exprs.iter().map(depth).max().unwrap_or(0);
    1 + match &expr.kind {
        ExprKind::Literal(_) | ExprKind::Span(_) | ExprKind::Now | ExprKind::Name(_) => 0,
        ExprKind::Field { base, .. } | ExprKind::MethodCall { base, .. } => depth(base),
        ExprKind::Call { args, .. } => deepest(args),
        ExprKind::Unary { operand, .. } => depth(operand),
        ExprKind::Binary { left, right, .. } => depth(left).max(depth(right)),
        ExprKind::In { value, list } => depth(value).max(depth(list)),
        ExprKind::Object(fields) => fields.iter().map(|f| depth(&f.value)).max().unwrap_or(0),
        ExprKind::Array(elements) => deepest(elements),
    }
}
