//! Formatting on one line.

use std::fmt::{self, Write};

use super::super::ast::{
    Annotation, AnnotationArg, AnnotationEntry as AnnotationElement, Args, Attribute, AttributeRef, Call,
    EventIndex, Expr, ExprKind, Handler, HandlerKind, Ident, IndexKind, Literal, NullOperand, OrderItem,
    PartitionKey, PartitionKeyKind, SelectItem, SourceRef, StreamRef,
};
use super::super::keywords::{QUOTED, is_one_of};
use super::super::parser::Precedence;
use super::Printer;
use crate::lexer::{Token, TokenKind, is_word};
use crate::source::SourceFile;

/// Formats `expr` on one line, numbers in their shortest form.
pub(in super::super) fn expr_text(expr: &Expr) -> String {
    let mut flat = InlinePrinter { source: None, out: String::new(), room: usize::MAX };
    // formatting cannot fail with an unlimited width
    let _ = flat.expr(expr, Precedence::Or);
    flat.out
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

    /// Returns the output of `write`, regardless of its width.
    pub(super) fn inline_unbounded(
        &self,
        write: impl FnOnce(&mut InlinePrinter<'a>) -> fmt::Result,
    ) -> String {
        self.inline_within(usize::MAX, write).unwrap_or_default()
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
            ExprKind::Time(time) => self.write_str(&time.text),
            ExprKind::Attribute(attribute) => self.attribute(attribute),
            ExprKind::Call(call) => self.call(call),
            ExprKind::IsNull(NullOperand::Value(value)) => {
                self.expr(value, Precedence::Primary)?;
                self.write_str(" is null")
            }
            ExprKind::IsNull(NullOperand::Step(step)) => {
                self.source_ref(step)?;
                self.write_str(" is null")
            }
            ExprKind::Not(operand) => {
                self.write_str("not ")?;
                self.expr(operand, Precedence::Not)
            }
            ExprKind::Binary { op, left, right } => {
                self.expr(left, Precedence::of(*op))?;
                write!(self, " {} ", op.text())?;
                self.expr(right, Precedence::of(*op).tighter())
            }
            ExprKind::In { condition, table } => {
                self.expr(condition, Precedence::Primary)?;
                write!(self, " in {}", name(&table.name))
            }
        }
    }

    fn literal(&mut self, literal: &Literal, at: u32) -> fmt::Result {
        match literal {
            Literal::Bool(value) => write!(self, "{value}"),
            Literal::Text(text) => self.write_str(&quoted(text)),
            _ => match self.number_as_written(at, literal) {
                Some(text) => self.write_str(&text),
                None => self.write_str(&number(literal)),
            },
        }
    }

    /// Returns the source text of the number at or after the byte `at`, with its sign, if its value is that
    /// of `literal`.
    fn number_as_written(&self, at: u32, literal: &Literal) -> Option<String> {
        let (file, tokens) = self.source?;
        let tokens = &tokens[tokens.partition_point(|t| t.span.start < at)..];
        let token = tokens.iter().find(|t| !matches!(t.kind, TokenKind::Punct(_)))?;
        let (same, negative) = match (&token.kind, literal) {
            (TokenKind::Int(n), Literal::Int(x)) => (*n == u64::from(x.unsigned_abs()), *x < 0),
            (TokenKind::Long(n), Literal::Long(x)) => (*n == x.unsigned_abs(), *x < 0),
            (TokenKind::Single(n), Literal::Float(x)) => (*n == x.abs(), x.is_sign_negative()),
            (TokenKind::Float(n), Literal::Double(x)) => (*n == x.abs(), x.is_sign_negative()),
            _ => (false, false),
        };
        let sign = if negative { "-" } else { "" };
        same.then(|| format!("{sign}{}", file.slice(token.span)))
    }

    pub(super) fn attribute(&mut self, attribute: &AttributeRef) -> fmt::Result {
        if let Some(source) = &attribute.source {
            self.source_ref(source)?;
            self.write_str(".")?;
        }
        self.name(&attribute.name)
    }

    fn source_ref(&mut self, source: &SourceRef) -> fmt::Result {
        self.stream_ref(&source.stream)?;
        self.index(source.index)?;
        if let Some(inner) = &source.inner {
            self.write_str("#")?;
            self.name(&inner.name)?;
            self.index(inner.index)?;
        }
        Ok(())
    }

    fn index(&mut self, index: Option<EventIndex>) -> fmt::Result {
        match index.map(|i| i.kind) {
            None => Ok(()),
            Some(IndexKind::First(n)) => write!(self, "[{n}]"),
            Some(IndexKind::Last(0)) => self.write_str("[last]"),
            Some(IndexKind::Last(n)) => write!(self, "[last - {n}]"),
        }
    }

    pub(super) fn call(&mut self, call: &Call) -> fmt::Result {
        self.write_str(&callee(call))?;
        self.write_str("(")?;
        match &call.args {
            Args::All(_) => self.write_str("*")?,
            Args::List(args) => self.commas(args, |flat, arg| flat.expr(arg, Precedence::Or))?,
        }
        self.write_str(")")
    }

    /// Prints elements separated by commas.
    pub(super) fn commas<T>(
        &mut self,
        elements: &[T],
        mut write: impl FnMut(&mut Self, &T) -> fmt::Result,
    ) -> fmt::Result {
        for (i, element) in elements.iter().enumerate() {
            if i > 0 {
                self.write_str(", ")?;
            }
            write(self, element)?;
        }
        Ok(())
    }

    pub(super) fn name(&mut self, ident: &Ident) -> fmt::Result {
        self.write_str(&name(&ident.name))
    }

    pub(super) fn stream_ref(&mut self, stream: &StreamRef) -> fmt::Result {
        write!(self, "{}{}", stream.scope.mark(), name(&stream.name.name))
    }

    pub(super) fn handler(&mut self, handler: &Handler) -> fmt::Result {
        match &handler.kind {
            HandlerKind::Filter(condition) => {
                self.write_str("[")?;
                self.expr(condition, Precedence::Or)?;
                self.write_str("]")
            }
            HandlerKind::Function(call) => {
                self.write_str("#")?;
                self.call(call)
            }
        }
    }

    pub(super) fn attribute_definition(&mut self, attribute: &Attribute) -> fmt::Result {
        self.name(&attribute.name)?;
        write!(self, " {}", attribute.ty.ty)
    }

    pub(super) fn annotation(&mut self, annotation: &Annotation) -> fmt::Result {
        write!(self, "@{}", name(&annotation.name.name))?;
        if annotation.args.is_empty() {
            return Ok(());
        }
        self.write_str("(")?;
        self.commas(&annotation.args, Self::annotation_arg)?;
        self.write_str(")")
    }

    pub(super) fn annotation_arg(&mut self, arg: &AnnotationArg) -> fmt::Result {
        match arg {
            AnnotationArg::Element(element) => self.element(element),
            AnnotationArg::Annotation(annotation) => self.annotation(annotation),
        }
    }

    pub(super) fn element(&mut self, element: &AnnotationElement) -> fmt::Result {
        if let Some(key) = &element.key {
            let bare = key.value.split(['.', '-', ':']).all(is_word);
            let key = if bare { key.value.clone() } else { quoted(&key.value) };
            write!(self, "{key}=")?;
        }
        self.write_str(&quoted(&element.value.value))
    }

    pub(super) fn select_item(&mut self, item: &SelectItem) -> fmt::Result {
        self.expr(&item.expr, Precedence::Or)?;
        match &item.alias {
            Some(alias) => write!(self, " as {}", name(&alias.name)),
            None => Ok(()),
        }
    }

    pub(super) fn order_item(&mut self, item: &OrderItem) -> fmt::Result {
        self.attribute(&item.attribute)?;
        match item.direction {
            Some(direction) => write!(self, " {}", direction.text()),
            None => Ok(()),
        }
    }

    pub(super) fn partition_key(&mut self, key: &PartitionKey) -> fmt::Result {
        match &key.kind {
            PartitionKeyKind::Value(value) => self.expr(value, Precedence::Or)?,
            PartitionKeyKind::Ranges(ranges) => {
                for (i, range) in ranges.iter().enumerate() {
                    self.write_str(if i > 0 { " or " } else { "" })?;
                    self.expr(&range.condition, Precedence::Or)?;
                    write!(self, " as {}", quoted(&range.name.value))?;
                }
            }
        }
        write!(self, " of {}", name(&key.stream.name))
    }
}

/// Formats a number in its shortest form.
fn number(literal: &Literal) -> String {
    let sign = |negative| if negative { "-" } else { "" };
    match literal {
        Literal::Int(n) => n.to_string(),
        Literal::Long(n) => format!("{n}L"),
        // a number beyond the range is read as infinite
        Literal::Float(x) if x.is_infinite() => format!("{}1e99f", sign(*x < 0.0)),
        Literal::Float(x) => format!("{x:?}f"),
        Literal::Double(x) if x.is_infinite() => format!("{}1e999", sign(*x < 0.0)),
        Literal::Double(x) => format!("{x:?}"),
        Literal::Bool(_) | Literal::Text(_) => String::new(),
    }
}

/// Returns the precedence of the outermost operator of `expr`.
pub(super) fn precedence(expr: &Expr) -> Precedence {
    match &expr.kind {
        ExprKind::Binary { op, .. } => Precedence::of(*op),
        ExprKind::In { .. } => Precedence::In,
        ExprKind::Not(_) => Precedence::Not,
        _ => Precedence::Primary,
    }
}

/// Returns the name of the called function with its namespace.
pub(super) fn callee(call: &Call) -> String {
    match &call.namespace {
        Some(namespace) => format!("{}:{}", name(&namespace.name), name(&call.name.name)),
        None => name(&call.name.name),
    }
}

/// Returns `name`, in backticks if it needs them.
pub(super) fn name(name: &str) -> String {
    let bare = is_word(name) && !is_one_of(name, &QUOTED);
    if bare { name.to_owned() } else { format!("`{name}`") }
}

/// Returns `text` as a string literal, in quotes that allow its characters.
pub(super) fn quoted(text: &str) -> String {
    let control = text.chars().any(|c| u32::from(c) < 0x20);
    if control || text.contains('"') {
        format!("\"\"\"{text}\"\"\"")
    } else if text.contains('\'') {
        format!("\"{text}\"")
    } else {
        format!("'{text}'")
    }
}
