//! What names mean in an expression: bindings, and the fields of what is being filtered.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use tidemill_lang::diagnostic::Sink;
use tidemill_lang::rules::ast::{self, ExprKind, Ident};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::{column, did_you_mean};

use super::codes;
use crate::catalog::{Catalog, Owner};
use crate::expr::{DocPath, Expr, Kind, Path, Ty};

/// The names that an expression may use.
#[derive(Clone)]
pub(crate) struct Names<'c> {
    /// The declarations of the app.
    pub catalog: &'c Catalog,
    /// Names bound by conditions so far, with their places.
    pub bindings: Vec<(Ident, Bound)>,
    /// Whose fields bare names are.
    pub filtered: Option<Bound>,
    /// Whether aggregates may be called.
    pub aggregates: bool,
    /// Nodes that `let`s were put in as, so far in this rule.
    pub copied: Rc<Cell<usize>>,
}

/// Most nodes that the `let`s of one rule may be put in as, all uses together.
const COPIED_MAX: usize = 200_000;

/// What a name is bound to.
#[derive(Debug, Clone)]
pub(crate) enum Bound {
    /// The event of the rule.
    Event(usize),
    /// A document.
    Doc {
        /// Counted from 0 among the documents of the rule.
        slot: usize,
        /// Its entity.
        entity: usize,
    },
    /// The value of a `let` or of a group.
    Value(Expr),
    /// Something that was wrong and has been reported; what uses it is not.
    Unknown,
}

impl<'c> Names<'c> {
    /// No names yet.
    pub(crate) fn new(catalog: &'c Catalog) -> Self {
        Self { catalog, bindings: Vec::new(), filtered: None, aggregates: false, copied: Rc::default() }
    }

    /// What `name` is bound to.
    pub(crate) fn get(&self, name: &str) -> Option<&Bound> {
        self.bindings.iter().find(|(n, _)| n.name == name).map(|(_, b)| b)
    }

    /// Binds a name; a second one of the same name is reported.
    pub(crate) fn bind(&mut self, name: &Ident, bound: Bound, sink: &mut Sink) {
        if let Some((first, _)) = self.bindings.iter().find(|(n, _)| n.name == name.name) {
            sink.push(
                Diagnostic::error(codes::DUPLICATE, name.span, format!("`{}` is bound already", name.name))
                    .help("choose another name")
                    .note_at(first.span, "the first one is here"),
            );
            return;
        }
        self.bindings.push((name.clone(), bound));
    }

    /// The same names, and the fields of `filtered` by their bare names.
    pub(crate) fn filtering(&self, filtered: Bound) -> Self {
        Self { filtered: Some(filtered), ..self.clone() }
    }

    /// The value of a name followed by fields, each of which may have been written as a call.
    pub(crate) fn path(&self, root: &Ident, fields: &[&Ident], span: Span, sink: &mut Sink) -> Option<Expr> {
        let is_field = match &self.filtered {
            // the fields of an event are known, those of a document are not: there a binding comes first
            Some(Bound::Event(stream)) => self.catalog.streams[*stream].field_index(&root.name).is_some(),
            _ => false,
        };
        match self.get(&root.name) {
            Some(Bound::Unknown) if !is_field => return None,
            Some(Bound::Value(value)) if !is_field => {
                return self.inside_value(value, root, fields, span, sink);
            }
            Some(Bound::Event(stream)) if !fields.is_empty() && !is_field => {
                return self.event_field(*stream, fields, span, sink);
            }
            Some(Bound::Doc { slot, .. }) if !fields.is_empty() && !is_field => {
                return doc_field(*slot, fields, span, sink);
            }
            _ => {}
        }
        let whole: Vec<&Ident> = std::iter::once(root).chain(fields.iter().copied()).collect();
        match (&self.filtered, self.get(&root.name)) {
            (Some(Bound::Event(stream)), _) => self.event_field(*stream, &whole, span, sink),
            (Some(Bound::Doc { slot, .. }), _) => doc_field(*slot, &whole, span, sink),
            (_, Some(Bound::Doc { slot, .. })) => {
                Some(Expr { kind: Kind::Doc { slot: *slot, path: None }, ty: Ty::Object, span })
            }
            (_, Some(Bound::Event(stream))) => {
                let name = &self.catalog.streams[*stream].name;
                sink.push(
                    Diagnostic::error(
                        codes::NOT_A_VALUE,
                        span,
                        format!("`{}` is an event, not a value", root.name),
                    )
                    .help(format!("name one of its fields: `{}.{}`", root.name, self.first_field(*stream)))
                    .note(format!("its fields are those of {name}")),
                );
                None
            }
            _ => {
                self.unknown(root, sink);
                None
            }
        }
    }

    fn first_field(&self, stream: usize) -> &str {
        self.catalog.streams[stream].fields.first().map_or(column::TIME, |f| f.name.as_str())
    }

    fn unknown(&self, name: &Ident, sink: &mut Sink) {
        let known: Vec<&str> = self.bindings.iter().map(|(n, _)| n.name.as_str()).collect();
        let hint = did_you_mean(&name.name, known);
        let owners: Vec<String> = self
            .bindings
            .iter()
            .filter_map(|(n, bound)| match bound {
                Bound::Event(s) if self.catalog.streams[*s].field_index(&name.name).is_some() => {
                    Some(format!("`{}.{}`", n.name, name.name))
                }
                _ => None,
            })
            .collect();
        let mut diagnostic = Diagnostic::error(
            codes::UNKNOWN_NAME,
            name.span,
            format!("`{}` is not bound here{hint}", name.name),
        );
        if let Some(field) = owners.first() {
            diagnostic = diagnostic.help(format!("write {field}"));
        }
        sink.push(diagnostic);
    }

    /// A field of the event: declared, `_time` or `_extra`; more names lead into JSON.
    fn event_field(&self, stream: usize, fields: &[&Ident], span: Span, sink: &mut Sink) -> Option<Expr> {
        let schema = &self.catalog.streams[stream];
        let (first, rest) = fields.split_first()?;
        let (position, ty, json) = match schema.field_index(&first.name) {
            Some(i) => {
                let ty = Ty::of_field(schema.fields[i].ty);
                (i, ty, ty == Ty::Any)
            }
            None if first.name == column::TIME => (schema.fields.len(), Ty::Time, false),
            None if first.name == column::EXTRA => (schema.fields.len() + 1, Ty::Any, true),
            None => {
                self.no_such_field(stream, first, sink);
                return None;
            }
        };
        if !json && let Some(inner) = rest.first() {
            let message = format!("`{}` is {ty}: it has no field `{}`", first.name, inner.name);
            sink.push(Diagnostic::error(codes::UNKNOWN_FIELD, inner.span, message));
            return None;
        }
        let path: Path = rest.iter().map(|f| Arc::from(f.name.as_str())).collect();
        Some(Expr { kind: Kind::Event { column: position, json, path }, ty, span })
    }

    fn no_such_field(&self, stream: usize, name: &Ident, sink: &mut Sink) {
        let schema = &self.catalog.streams[stream];
        if self.catalog.relation(Owner::Stream(stream), &name.name).is_some() {
            let binding = self.bindings.iter().find(|(_, b)| matches!(b, Bound::Event(s) if *s == stream));
            let event = binding.map_or("e", |(n, _)| n.name.as_str());
            sink.push(
                Diagnostic::error(
                    codes::NOT_A_VALUE,
                    name.span,
                    format!("`{}` is a relation of {}, not a field", name.name, schema.name),
                )
                .help(format!("bind the document in a condition of its own: `d: {event}.{}();`", name.name)),
            );
            return;
        }
        let known: Vec<&str> = schema.fields.iter().map(|f| f.name.as_str()).collect();
        let hint = did_you_mean(&name.name, known);
        let message = format!("{} has no field `{}`{hint}", schema.name, name.name);
        let diagnostic = Diagnostic::error(codes::UNKNOWN_FIELD, name.span, message);
        sink.push(match self.catalog.stream_spans[stream] {
            Some(span) => diagnostic.note_at(span, "it is declared here"),
            None => diagnostic,
        });
    }

    /// Fields of a `let`: of a document's or a JSON field.
    fn inside_value(
        &self,
        value: &Expr,
        root: &Ident,
        fields: &[&Ident],
        span: Span,
        sink: &mut Sink,
    ) -> Option<Expr> {
        if fields.is_empty() {
            self.copied.set(self.copied.get() + value.size().0);
            if self.copied.get() > COPIED_MAX {
                let message =
                    format!("the `let`s of this rule have more than {COPIED_MAX} parts where they are used");
                sink.push(
                    Diagnostic::error(codes::TOO_LARGE, span, message).help("use fewer, or split the rule"),
                );
                return None;
            }
            return Some(Expr { span, ..value.clone() });
        }
        match &value.kind {
            Kind::Doc { slot, path } => {
                let mut text = path.as_ref().map_or(String::new(), |p| format!("{}.", p.as_str()));
                text.push_str(&dotted(fields, sink)?);
                Some(Expr {
                    kind: Kind::Doc { slot: *slot, path: Some(DocPath::new(&text)) },
                    ty: Ty::Any,
                    span,
                })
            }
            Kind::Event { column, json: true, path } => {
                let more = fields.iter().map(|f| Arc::from(f.name.as_str()));
                let path: Path = path.iter().cloned().chain(more).collect();
                Some(Expr { kind: Kind::Event { column: *column, json: true, path }, ty: Ty::Any, span })
            }
            _ => {
                let message =
                    format!("`{}` is {}: it has no field `{}`", root.name, value.ty, fields[0].name);
                sink.push(Diagnostic::error(codes::UNKNOWN_FIELD, fields[0].span, message));
                None
            }
        }
    }
}

fn doc_field(slot: usize, fields: &[&Ident], span: Span, sink: &mut Sink) -> Option<Expr> {
    let path = DocPath::new(&dotted(fields, sink)?);
    Some(Expr { kind: Kind::Doc { slot, path: Some(path) }, ty: Ty::Any, span })
}

/// Names with dots between them, as the document store takes paths.
pub(crate) fn dotted(fields: &[&Ident], sink: &mut Sink) -> Option<String> {
    for field in fields {
        if !is_field_name(&field.name) {
            let message = format!(
                "{:?} cannot be the name of a field: expected no `.`, NUL or leading `$`",
                field.name
            );
            sink.push(Diagnostic::error(codes::RESERVED, field.span, message));
            return None;
        }
    }
    let names: Vec<&str> = fields.iter().map(|f| f.name.as_str()).collect();
    Some(names.join("."))
}

/// Whether documents may have a field of that name that a path can reach.
pub(crate) fn is_field_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['.', '\0']) && !name.starts_with('$')
}

/// A name with the fields that follow it: `a.b.c()` is `a` and `[b, c]`.
pub(crate) fn chain(expr: &ast::Expr) -> Option<(&Ident, Vec<&Ident>)> {
    match &expr.kind {
        ExprKind::Name(name) => Some((name, vec![])),
        ExprKind::Field { base, field: last } | ExprKind::MethodCall { base, method: last } => {
            let (root, mut fields) = chain(base)?;
            fields.push(last);
            Some((root, fields))
        }
        _ => None,
    }
}
