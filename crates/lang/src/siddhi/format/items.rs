//! Formatting of apps, annotations and partitions.

use super::super::ast::{Annotation, App, AppAnnotation, Definition, ExecutionElement, Partition};
use super::Printer;
use super::inline::name;
use crate::printer::LINE_CHARS_MAX;
use crate::source::Span;

/// A top-level item of an app.
enum AppItem<'t> {
    Annotation(&'t AppAnnotation),
    Definition(&'t Definition),
    Element(&'t ExecutionElement),
}

impl AppItem<'_> {
    fn span(&self) -> Span {
        match self {
            Self::Annotation(annotation) => annotation.span,
            Self::Definition(definition) => definition.span(),
            Self::Element(element) => element.span(),
        }
    }
}

impl Printer<'_> {
    pub(super) fn app(&mut self, app: &App) {
        let annotations = app.annotations.iter().map(AppItem::Annotation);
        let definitions = app.definitions.iter().map(AppItem::Definition);
        let elements = app.elements.iter().map(AppItem::Element);
        let items: Vec<AppItem<'_>> = annotations.chain(definitions).chain(elements).collect();
        let mut previous_tall = false;
        for (i, item) in items.iter().enumerate() {
            let span = item.span();
            let tall = self.is_tall(item);
            self.force_blank = i > 0 && (tall || previous_tall);
            previous_tall = tall;
            self.leading(span.start);
            self.separate(span.start);
            self.item(item);
            let limit = items.get(i + 1).map_or(u32::MAX, |next| next.span().start);
            self.trailing(span.end, limit);
            self.newline();
        }
        self.leading(u32::MAX);
    }

    /// Returns whether `item` takes several lines, not counting comments after it.
    fn is_tall(&self, item: &AppItem<'_>) -> bool {
        match item {
            AppItem::Annotation(annotation) => {
                let open = self.bracket_from(annotation.name.span.end, "(");
                let head = "@app:".len() + annotation.name.name.chars().count();
                let room = LINE_CHARS_MAX.saturating_sub(head + 2);
                !annotation.elements.is_empty() && self.short_list(open, &annotation.elements, room).is_none()
            }
            AppItem::Definition(definition) => self.short_definition(definition).is_none(),
            AppItem::Element(_) => true,
        }
    }

    fn item(&mut self, item: &AppItem<'_>) {
        match item {
            AppItem::Annotation(annotation) => self.app_annotation(annotation),
            AppItem::Definition(definition) => {
                self.definition(definition);
                self.write(";");
            }
            AppItem::Element(ExecutionElement::Query(query)) => {
                self.query(query);
                self.write(";");
            }
            AppItem::Element(ExecutionElement::Partition(partition)) => {
                self.partition(partition);
                self.write(";");
            }
        }
    }

    /// Prints `@app:name(…)`.
    fn app_annotation(&mut self, annotation: &AppAnnotation) {
        self.write(&format!("@app:{}", name(&annotation.name.name)));
        if !annotation.elements.is_empty() {
            self.list(self.bracket_from(annotation.name.span.end, "("), &annotation.elements);
        }
    }

    /// Prints `@name(…)`.
    pub(super) fn annotation(&mut self, annotation: &Annotation) {
        self.write(&format!("@{}", name(&annotation.name.name)));
        if !annotation.args.is_empty() {
            self.list(self.bracket_from(annotation.name.span.end, "("), &annotation.args);
        }
    }

    /// Prints annotations, each on its own line, and starts a new line for the statement after them, which
    /// begins at the byte `start`.
    pub(super) fn annotations(&mut self, annotations: &[Annotation], start: u32) {
        for (i, annotation) in annotations.iter().enumerate() {
            self.annotation(annotation);
            let next = annotations.get(i + 1).map_or(start, |next| next.span.start);
            self.next_clause(annotation.span.end, next);
        }
    }

    fn partition(&mut self, partition: &Partition) {
        let keys_start = partition.keys.first().map_or(partition.span.start, |key| key.span.start);
        // the bracket is the token before the first key, `begin` the one before the first query
        let open = self.tokens[self.token_from(keys_start).saturating_sub(1)].span.start;
        self.annotations(&partition.annotations, open);
        self.write("partition with ");
        self.list(open, &partition.keys);
        let queries_start = partition.queries.first().map_or(partition.span.end, |query| query.span.start);
        let begin = self.tokens[self.token_from(queries_start).saturating_sub(1)].span;
        self.next_clause(self.closer(open) + 1, begin.start);
        self.write("begin");
        self.indent += 1;
        self.block_start = true;
        let mut end = begin.end;
        for (i, query) in partition.queries.iter().enumerate() {
            self.trailing(end, query.span.start);
            self.newline();
            self.force_blank = i > 0;
            self.leading(query.span.start);
            self.separate(query.span.start);
            self.query(query);
            self.write(";");
            end = query.span.end;
        }
        let close = partition.span.end - "end".len() as u32;
        self.trailing(end, close);
        self.newline();
        self.leading(close);
        self.indent -= 1;
        self.write("end");
        self.block_start = false;
    }
}
