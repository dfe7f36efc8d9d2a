//! Formatting of lists over several lines.

use std::fmt::{self, Write as _};

use super::super::ast::{
    AnnotationArg, AnnotationEntry as AnnotationElement, Attribute, AttributeRef, OrderItem, PartitionKey,
    SelectItem,
};
use super::super::parser::Precedence;
use super::Printer;
use super::inline::{InlinePrinter, name};
use crate::source::Span;

/// An element of a list.
pub(super) trait ListElement {
    /// Returns the source range.
    fn span(&self) -> Span;
    /// Prints the element on one line.
    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result;
    /// Prints the element on as many lines as it needs.
    fn print(&self, printer: &mut Printer<'_>) {
        let text = printer.inline_unbounded(|flat| self.write_inline(flat));
        printer.write(&text);
    }
}

impl Printer<'_> {
    /// Prints elements in brackets; `open` is the byte of the opening one in the source. On one line if the
    /// list fits and has no comment in it, otherwise one element per line.
    pub(super) fn list<T: ListElement>(&mut self, open: u32, elements: &[T]) {
        if let Some(text) = self.short_list(open, elements, self.room()) {
            return self.write(&text);
        }
        let close = self.closer(open);
        self.write("(");
        self.indent += 1;
        self.elements(open + 1, elements);
        if let Some(last) = elements.last() {
            self.trailing(last.span().end, close);
        }
        self.newline();
        self.leading(close);
        self.indent -= 1;
        self.write(")");
        self.block_start = false;
    }

    /// Formats elements in brackets on one line. Returns `None` if they exceed `room` characters or have a
    /// comment among them.
    pub(super) fn short_list<T: ListElement>(
        &self,
        open: u32,
        elements: &[T],
        room: usize,
    ) -> Option<String> {
        if self.has_comment(open, self.closer(open)) {
            return None;
        }
        self.inline_within(room, |flat| {
            flat.write_str("(")?;
            flat.commas(elements, |flat, element| element.write_inline(flat))?;
            flat.write_str(")")
        })
    }

    /// Prints `keyword a, b` on one line if it fits and no comment is between the byte `start`, at the
    /// keyword, and the last element; otherwise one element per line.
    pub(super) fn clause_list<T: ListElement>(&mut self, keyword: &str, start: u32, elements: &[T]) {
        let last = elements.last().map_or(start, |e| e.span().start);
        if !self.has_comment(start, last)
            && let Some(text) = self.inline_within(self.room(), |flat| {
                write!(flat, "{keyword} ")?;
                flat.commas(elements, |flat, element| element.write_inline(flat))
            })
        {
            return self.write(&text);
        }
        self.write(keyword);
        self.indent += 1;
        self.elements(start, elements);
        self.indent -= 1;
    }

    /// Prints each element on its own line, after a construct that ended at the byte `end`. Does not print
    /// comments after the last element.
    fn elements<T: ListElement>(&mut self, end: u32, elements: &[T]) {
        self.block_start = true;
        let mut end = end;
        for (i, element) in elements.iter().enumerate() {
            let span = element.span();
            self.trailing(end, span.start);
            self.newline();
            self.leading(span.start);
            self.separate(span.start);
            element.print(self);
            if i + 1 < elements.len() {
                self.write(",");
            }
            end = span.end;
        }
        self.block_start = false;
    }
}

impl ListElement for Attribute {
    fn span(&self) -> Span {
        self.span
    }

    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result {
        out.attribute_definition(self)
    }
}

impl ListElement for AnnotationElement {
    fn span(&self) -> Span {
        self.span
    }

    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result {
        out.element(self)
    }
}

impl ListElement for AnnotationArg {
    fn span(&self) -> Span {
        self.span()
    }

    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result {
        out.annotation_arg(self)
    }

    fn print(&self, printer: &mut Printer<'_>) {
        match self {
            Self::Element(element) => element.print(printer),
            Self::Annotation(annotation) => printer.annotation(annotation),
        }
    }
}

impl ListElement for SelectItem {
    fn span(&self) -> Span {
        self.span
    }

    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result {
        out.select_item(self)
    }

    fn print(&self, printer: &mut Printer<'_>) {
        printer.expr(&self.expr, Precedence::Or);
        if let Some(alias) = &self.alias {
            printer.write(&format!(" as {}", name(&alias.name)));
        }
    }
}

impl ListElement for AttributeRef {
    fn span(&self) -> Span {
        self.span
    }

    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result {
        out.attribute(self)
    }
}

impl ListElement for OrderItem {
    fn span(&self) -> Span {
        self.span
    }

    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result {
        out.order_item(self)
    }
}

impl ListElement for PartitionKey {
    fn span(&self) -> Span {
        self.span
    }

    fn write_inline(&self, out: &mut InlinePrinter<'_>) -> fmt::Result {
        out.partition_key(self)
    }
}
