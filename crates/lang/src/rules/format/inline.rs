//! Formatting on one line.

use std::fmt::{self, Write};

use super::super::ast::{
    Assign, BinaryOp, Expr, ExprKind, FieldDecl, GroupItem, Literal, ObjectField, Path, UnaryOp,
};
use super::super::parser::Precedence;
use super::{Printer, declared, member, reference};
use crate::lexer::text::quote;
use crate::lexer::{Token, TokenKind, is_word};
use crate::source::SourceFile;

/// Prints `expr` on one line, numbers in their shortest form.
pub(in super::super) fn write_expr(expr: &Expr, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut flat = InlinePrinter { source: None, out: String::new(), room: usize::MAX };
    flat.expr(expr, Precedence::Or)?;
    f.write_str(&flat.out)
}

/// Single-line formatter that fails when the remaining width is exceeded.
pub(super) struct InlinePrinter<'a> {
    /// Source file and tokens from which numbers are copied as written; `None` to print them in their
    /// shortest form.
    source: Option<(&'a SourceFile, &'a [Token])>,
    pub(super) out: String,
    /// Remaining width, in characters.
    room: usize,
}

impl Write for InlinePrinter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.room = self.room.checked_sub(text.chars().count()).ok_or(fmt::Error)?;
        self.out.push_str(text);
        Ok(())
    }
}

/// An element of a list.
pub(super) trait ListElement {
    /// Returns the offset of the first byte and one past the last byte.
    fn range(&self) -> (u32, u32);
    /// Prints the element on one line.
    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result;
    /// Prints the element on as many lines as it needs.
    fn print(&self, printer: &mut Printer<'_>);
}

impl<'a> Printer<'a> {
    /// Returns the output of `write` if it fits into `room` characters.
    pub(super) fn inline_within(
        &self,
        room: usize,
        write: impl FnOnce(&mut InlinePrinter<'a>) -> fmt::Result,
    ) -> Option<String> {
        let mut flat = InlinePrinter { source: Some((self.file, self.tokens)), out: String::new(), room };
        write(&mut flat).ok().map(|()| flat.out)
    }
}

impl InlinePrinter<'_> {
    /// Prints `expr`, in parentheses if it binds less tightly than `min`.
    pub(super) fn expr(&mut self, expr: &Expr, min: Precedence) -> fmt::Result {
        if precedence(expr) < min {
            self.write_str("(")?;
            self.without_parentheses(expr)?;
            return self.write_str(")");
        }
        self.without_parentheses(expr)
    }

    fn without_parentheses(&mut self, expr: &Expr) -> fmt::Result {
        match &expr.kind {
            ExprKind::Literal(literal) => self.literal(literal, expr.span.start),
            ExprKind::Span(span) => self.write_str(&span.text),
            ExprKind::Now => self.write_str("now"),
            ExprKind::Name(name) => self.write_str(&reference(&name.name)),
            ExprKind::Field { base, field } => {
                self.expr(base, Precedence::Primary)?;
                write!(self, ".{}", member(&field.name))
            }
            ExprKind::MethodCall { base, method } => {
                self.expr(base, Precedence::Primary)?;
                write!(self, ".{}()", member(&method.name))
            }
            ExprKind::Call { function, args } => {
                self.write_str(&reference(&function.name))?;
                self.list("(", ")", args)
            }
            ExprKind::Unary { op, operand } => self.unary(*op, operand),
            ExprKind::Binary { op, left, right } => {
                self.expr(left, left_min(*op))?;
                write!(self, " {} ", op.text())?;
                self.expr(right, Precedence::of(*op).tighter())
            }
            ExprKind::In { value, list } => self.membership(value, " in ", list),
            ExprKind::Object(fields) => self.list("{", "}", fields),
            ExprKind::Array(elements) => self.list("[", "]", elements),
        }
    }

    fn unary(&mut self, op: UnaryOp, operand: &Expr) -> fmt::Result {
        match (op, &operand.kind) {
            (UnaryOp::Not, ExprKind::In { value, list }) => self.membership(value, " not in ", list),
            _ => {
                self.write_str(unary_text(op))?;
                self.expr(operand, operand_min(op))
            }
        }
    }

    fn membership(&mut self, value: &Expr, operator: &str, list: &Expr) -> fmt::Result {
        self.expr(value, Precedence::Sum)?;
        self.write_str(operator)?;
        self.expr(list, Precedence::Sum)
    }

    fn literal(&mut self, literal: &Literal, at: u32) -> fmt::Result {
        match literal {
            Literal::Null => self.write_str("null"),
            Literal::Bool(value) => write!(self, "{value}"),
            Literal::Str(text) => self.write_str(&quote(text)),
            Literal::Int(value) => match self.number_as_written(at, literal) {
                Some(text) => self.write_str(&text),
                None => write!(self, "{value}"),
            },
            Literal::Float(value) => match self.number_as_written(at, literal) {
                Some(text) => self.write_str(&text),
                None => write!(self, "{value:?}"),
            },
        }
    }

    /// Returns the source text of the number at or after the byte `at`, if its value is that of `literal`.
    fn number_as_written(&self, at: u32, literal: &Literal) -> Option<String> {
        let (file, tokens) = self.source?;
        let tokens = &tokens[tokens.partition_point(|t| t.span.start < at)..];
        let number = tokens.iter().find(|t| matches!(t.kind, TokenKind::Int(_) | TokenKind::Float(_)))?;
        let same = match (&number.kind, literal) {
            (TokenKind::Int(n), Literal::Int(value)) => i64::try_from(*n) == Ok(*value),
            (TokenKind::Float(x), Literal::Float(value)) => x == value,
            _ => false,
        };
        same.then(|| file.slice(number.span).to_owned())
    }

    /// Prints elements in brackets; braces have spaces inside.
    pub(super) fn list<T: ListElement>(&mut self, opener: &str, closer: &str, elements: &[T]) -> fmt::Result {
        let space = if opener == "{" && !elements.is_empty() { " " } else { "" };
        write!(self, "{opener}{space}")?;
        for (i, element) in elements.iter().enumerate() {
            if i > 0 {
                self.write_str(", ")?;
            }
            element.write_inline(self)?;
        }
        write!(self, "{space}{closer}")
    }

    fn path(&mut self, path: &Path) -> fmt::Result {
        for (i, segment) in path.segments.iter().enumerate() {
            write!(self, "{}{}", if i > 0 { "." } else { "" }, member(&segment.name))?;
        }
        Ok(())
    }
}

/// Returns the precedence of the outermost operator of `expr`.
pub(super) fn precedence(expr: &Expr) -> Precedence {
    match &expr.kind {
        ExprKind::Binary { op, .. } => Precedence::of(*op),
        ExprKind::In { .. } => Precedence::Compare,
        ExprKind::Unary { op: UnaryOp::Not, operand } if matches!(operand.kind, ExprKind::In { .. }) => {
            Precedence::Compare
        }
        ExprKind::Unary { op: UnaryOp::Not, .. } => Precedence::Not,
        ExprKind::Unary { op: UnaryOp::Neg, .. } => Precedence::Sign,
        ExprKind::Literal(Literal::Int(n)) if *n < 0 => Precedence::Sign,
        ExprKind::Literal(Literal::Float(x)) if x.is_sign_negative() => Precedence::Sign,
        _ => Precedence::Primary,
    }
}

/// Returns the minimum precedence of the left operand of `op`: comparisons cannot be chained.
pub(super) fn left_min(op: BinaryOp) -> Precedence {
    match Precedence::of(op) {
        Precedence::Compare => Precedence::Sum,
        rank => rank,
    }
}

/// Returns the minimum precedence of the operand of `op`. A second sign gets parentheses, because `--` is
/// another token.
pub(super) fn operand_min(op: UnaryOp) -> Precedence {
    match op {
        UnaryOp::Not => Precedence::Not,
        UnaryOp::Neg => Precedence::Primary,
    }
}

/// Returns `op` as it is written before its operand.
pub(super) fn unary_text(op: UnaryOp) -> &'static str {
    match op {
        UnaryOp::Not => "not ",
        UnaryOp::Neg => "-",
    }
}

/// Returns `name` as it is written as a key in braces.
pub(super) fn key(name: &str) -> String {
    if is_word(name) { name.to_owned() } else { quote(name) }
}

impl ListElement for Expr {
    fn range(&self) -> (u32, u32) {
        (self.span.start, self.span.end)
    }

    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result {
        out.expr(self, Precedence::Or)
    }

    fn print(&self, printer: &mut Printer<'_>) {
        printer.expr(self, Precedence::Or);
    }
}

impl ListElement for ObjectField {
    fn range(&self) -> (u32, u32) {
        (self.span.start, self.span.end)
    }

    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result {
        write!(out, "{}: ", key(&self.name.name))?;
        out.expr(&self.value, Precedence::Or)
    }

    fn print(&self, printer: &mut Printer<'_>) {
        printer.write(&format!("{}: ", key(&self.name.name)));
        printer.expr(&self.value, Precedence::Or);
    }
}

impl ListElement for Assign {
    fn range(&self) -> (u32, u32) {
        (self.span.start, self.span.end)
    }

    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result {
        out.path(&self.path)?;
        write!(out, " {} ", self.op.text())?;
        out.expr(&self.value, Precedence::Or)
    }

    fn print(&self, printer: &mut Printer<'_>) {
        printer.write(&format!("{} {} ", path_text(&self.path), self.op.text()));
        printer.expr(&self.value, Precedence::Or);
    }
}

impl ListElement for GroupItem {
    fn range(&self) -> (u32, u32) {
        (self.span.start, self.span.end)
    }

    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result {
        if let Some(name) = &self.name {
            write!(out, "{}: ", declared(&name.name))?;
        }
        out.expr(&self.expr, Precedence::Or)
    }

    fn print(&self, printer: &mut Printer<'_>) {
        if let Some(name) = &self.name {
            printer.write(&format!("{}: ", declared(&name.name)));
        }
        printer.expr(&self.expr, Precedence::Or);
    }
}

impl ListElement for FieldDecl {
    fn range(&self) -> (u32, u32) {
        (self.span.start, self.span.end)
    }

    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result {
        write!(out, "{}: {}", reference(&self.name.name), self.ty)
    }

    fn print(&self, printer: &mut Printer<'_>) {
        printer.write(&format!("{}: {}", reference(&self.name.name), self.ty));
    }
}

/// Formats `a.b.c`.
pub(super) fn path_text(path: &Path) -> String {
    let names: Vec<String> = path.segments.iter().map(|s| member(&s.name)).collect();
    names.join(".")
}
