//! Names in expressions: bindings, and the fields of the event or document being filtered.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use tidemill_lang::diagnostic::DiagnosticSink;
use tidemill_lang::rules::ast::{self, ExprKind, Ident};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::{column, did_you_mean};

use super::codes;
use crate::catalog::{RelationOwner, RuleCatalog};
use crate::expr::{DocPath, Expr, ExprNode, ExprType, JsonPath};

/// The names that an expression may use.
#[derive(Clone)]
pub(crate) struct NameScope<'c> {
    /// Declarations of the app.
    pub catalog: &'c RuleCatalog,
    /// Names bound by the conditions so far, with their spans.
    pub bindings: Vec<(Ident, Binding)>,
    /// The event or document whose fields can be used by their bare names.
    pub filter_target: Option<Binding>,
    /// True if aggregate functions may be called.
    pub aggregates: bool,
    /// Nodes inserted for uses of `let`s so far; shared by all scopes of the rule.
    pub inlined_nodes: Rc<Cell<usize>>,
}

/// Limit on the nodes inserted for all uses of the `let`s of one rule.
const INLINED_NODES_MAX: usize = 200_000;

/// The meaning of a bound name.
#[derive(Debug, Clone)]
pub(crate) enum Binding {
    /// The event of the rule, with the index of its stream.
    Event(usize),
    /// A document.
    Doc {
        /// Index among the documents of the rule.
        slot: usize,
        /// Index of the entity.
        entity: usize,
    },
    /// The value of a `let` or of a `groupby` expression.
    Value(Expr),
    /// A binding with an error that has been reported; its uses are not reported again.
    Unknown,
}

impl<'c> NameScope<'c> {
    /// Creates a scope without names.
    pub(crate) fn new(catalog: &'c RuleCatalog) -> Self {
        Self {
            catalog,
            bindings: Vec::new(),
            filter_target: None,
            aggregates: false,
            inlined_nodes: Rc::default(),
        }
    }

    /// Returns the binding of `name`.
    pub(crate) fn get(&self, name: &str) -> Option<&Binding> {
        self.bindings.iter().find(|(n, _)| n.name == name).map(|(_, b)| b)
    }

    /// Binds a name; reports it if it is bound already.
    pub(crate) fn bind(&mut self, name: &Ident, bound: Binding, sink: &mut DiagnosticSink) {
        if let Some((first, _)) = self.bindings.iter().find(|(n, _)| n.name == name.name) {
            sink.push(
                Diagnostic::error(codes::DUPLICATE, name.span, format!("`{}` is already bound", name.name))
                    .help("choose another name")
                    .note_at(first.span, "the first one is here"),
            );
            return;
        }
        self.bindings.push((name.clone(), bound));
    }

    /// Returns this scope with the fields of `filtered` added under their bare names.
    pub(crate) fn with_filter_target(&self, filtered: Binding) -> Self {
        Self { filter_target: Some(filtered), ..self.clone() }
    }

    /// Resolves a name followed by fields. A field may be written as a call.
    pub(crate) fn path(
        &self,
        root: &Ident,
        fields: &[&Ident],
        span: Span,
        sink: &mut DiagnosticSink,
    ) -> Option<Expr> {
        let is_field = match &self.filter_target {
            // an event's fields are known, so they win over bindings; a document's are not, so there bindings
            // win
            Some(Binding::Event(stream)) => self.catalog.streams[*stream].field_index(&root.name).is_some(),
            _ => false,
        };
        match self.get(&root.name) {
            Some(Binding::Unknown) if !is_field => return None,
            Some(Binding::Value(value)) if !is_field => {
                return self.inside_value(value, root, fields, span, sink);
            }
            Some(Binding::Event(stream)) if !fields.is_empty() && !is_field => {
                return self.event_field(*stream, fields, span, sink);
            }
            Some(Binding::Doc { slot, .. }) if !fields.is_empty() && !is_field => {
                return doc_field(*slot, fields, span, sink);
            }
            _ => {}
        }
        let whole: Vec<&Ident> = std::iter::once(root).chain(fields.iter().copied()).collect();
        match (&self.filter_target, self.get(&root.name)) {
            (Some(Binding::Event(stream)), _) => self.event_field(*stream, &whole, span, sink),
            (Some(Binding::Doc { slot, .. }), _) => doc_field(*slot, &whole, span, sink),
            (_, Some(Binding::Doc { slot, .. })) => {
                Some(Expr { kind: ExprNode::Doc { slot: *slot, path: None }, ty: ExprType::Object, span })
            }
            (_, Some(Binding::Event(stream))) => {
                let name = &self.catalog.streams[*stream].name;
                sink.push(
                    Diagnostic::error(
                        codes::NOT_A_VALUE,
                        span,
                        format!("`{}` is an event, not a value", root.name),
                    )
                    .help(format!("use one of its fields: `{}.{}`", root.name, self.first_field(*stream)))
                    .note(format!("its fields are those of {name}")),
                );
                None
            }
            _ => {
                self.report_unknown(root, sink);
                None
            }
        }
    }

    fn first_field(&self, stream: usize) -> &str {
        self.catalog.streams[stream].fields.first().map_or(column::TIME, |f| f.name.as_str())
    }

    fn report_unknown(&self, name: &Ident, sink: &mut DiagnosticSink) {
        let known: Vec<&str> = self.bindings.iter().map(|(n, _)| n.name.as_str()).collect();
        let hint = did_you_mean(&name.name, known);
        let owners: Vec<String> = self
            .bindings
            .iter()
            .filter_map(|(n, bound)| match bound {
                Binding::Event(s) if self.catalog.streams[*s].field_index(&name.name).is_some() => {
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

    /// Resolves a field of the event: declared, `_time` or `_extra`; further names lead into JSON.
    fn event_field(
        &self,
        stream: usize,
        fields: &[&Ident],
        span: Span,
        sink: &mut DiagnosticSink,
    ) -> Option<Expr> {
        let schema = &self.catalog.streams[stream];
        let (first, rest) = fields.split_first()?;
        let (position, ty, json) = match schema.field_index(&first.name) {
            Some(i) => {
                let ty = ExprType::of_field(schema.fields[i].ty);
                (i, ty, ty == ExprType::Any)
            }
            None if first.name == column::TIME => (schema.fields.len(), ExprType::Time, false),
            None if first.name == column::EXTRA => (schema.fields.len() + 1, ExprType::Any, true),
            None => {
                self.report_unknown_field(stream, first, sink);
                return None;
            }
        };
        if !json && let Some(inner) = rest.first() {
            let message = format!("`{}` is {ty}: it has no field `{}`", first.name, inner.name);
            sink.push(Diagnostic::error(codes::UNKNOWN_FIELD, inner.span, message));
            return None;
        }
        let path: JsonPath = rest.iter().map(|f| Arc::from(f.name.as_str())).collect();
        Some(Expr { kind: ExprNode::Event { column: position, json, path }, ty, span })
    }

    fn report_unknown_field(&self, stream: usize, name: &Ident, sink: &mut DiagnosticSink) {
        let schema = &self.catalog.streams[stream];
        if self.catalog.relation(RelationOwner::Stream(stream), &name.name).is_some() {
            let binding = self.bindings.iter().find(|(_, b)| matches!(b, Binding::Event(s) if *s == stream));
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

    /// Resolves a `let` value, or fields of one that is a document, a document field or a JSON field.
    fn inside_value(
        &self,
        value: &Expr,
        root: &Ident,
        fields: &[&Ident],
        span: Span,
        sink: &mut DiagnosticSink,
    ) -> Option<Expr> {
        if fields.is_empty() {
            self.inlined_nodes.set(self.inlined_nodes.get() + value.size().0);
            if self.inlined_nodes.get() > INLINED_NODES_MAX {
                let message =
                    format!("the `let`s of this rule expand to more than {INLINED_NODES_MAX} parts");
                sink.push(
                    Diagnostic::error(codes::TOO_LARGE, span, message)
                        .help("use fewer `let`s, or split the rule"),
                );
                return None;
            }
            return Some(Expr { span, ..value.clone() });
        }
        match &value.kind {
            ExprNode::Doc { slot, path } => {
                let mut text = path.as_ref().map_or(String::new(), |p| format!("{}.", p.as_str()));
                text.push_str(&dotted(fields, sink)?);
                Some(Expr {
                    kind: ExprNode::Doc { slot: *slot, path: Some(DocPath::new(&text)) },
                    ty: ExprType::Any,
                    span,
                })
            }
            ExprNode::Event { column, json: true, path } => {
                let more = fields.iter().map(|f| Arc::from(f.name.as_str()));
                let path: JsonPath = path.iter().cloned().chain(more).collect();
                Some(Expr {
                    kind: ExprNode::Event { column: *column, json: true, path },
                    ty: ExprType::Any,
                    span,
                })
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

fn doc_field(slot: usize, fields: &[&Ident], span: Span, sink: &mut DiagnosticSink) -> Option<Expr> {
    let path = DocPath::new(&dotted(fields, sink)?);
    Some(Expr { kind: ExprNode::Doc { slot, path: Some(path) }, ty: ExprType::Any, span })
}

/// Joins names with dots to a path of the document store. Reports names that a path cannot contain.
pub(crate) fn dotted(fields: &[&Ident], sink: &mut DiagnosticSink) -> Option<String> {
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

/// Returns whether documents may have a field of that name that a path can reach.
pub(crate) fn is_field_name(name: &str) -> bool {
    !name.is_empty() && !name.contains(['.', '\0']) && !name.starts_with('$')
}

/// Splits a name from the fields that follow it: `a.b.c()` is `a` and `[b, c]`.
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
