//! Actions of a rule: resolves, checks and combines them.

use std::sync::Arc;

use tidemill_docs::Update;
use tidemill_lang::diagnostic::DiagnosticSink;
use tidemill_lang::rules::ast::{self, AssignOp, EmitArgs, Ident, InsertAction, ObjectField};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::{FieldType, did_you_mean};

use super::names::{Binding, dotted};
use super::rule::{ConditionResolver, doc_path, report_unknown_entity};
use super::{codes, expr, locality};
use crate::catalog::{Entity, RuleCatalog};
use crate::expr::{Const, Expr, ExprNode, ExprType};
use crate::plan::{Action, Change, ChangeOp};

/// Resolves the actions of a rule. Returns `None` if there was an error, which has been reported.
pub(crate) fn actions(
    decls: &[ast::Action],
    conditions: &ConditionResolver<'_>,
    sink: &mut DiagnosticSink,
) -> Option<Vec<Action>> {
    let mut resolver = ActionResolver { conditions, resolved: Vec::new(), deleted: Vec::new() };
    let mut whole = true;
    for decl in decls {
        let ok = match decl {
            ast::Action::Update(a) => resolver.update(a, sink),
            ast::Action::Unset(a) => resolver.unset(a, sink),
            ast::Action::Insert(a) => resolver.insert(a, sink),
            ast::Action::Delete(a) => resolver.delete(a, sink),
            ast::Action::Emit(a) => resolver.emit(a, sink),
        };
        whole &= ok.is_some();
    }
    let mut done = resolver.resolved;
    done.iter_mut().for_each(precompute_update);
    whole.then_some(done)
}

/// Builds the update of an action once if all of its values are constant.
fn precompute_update(action: &mut Action) {
    let Action::Update { changes, precomputed: fixed, .. } = action else { return };
    let mut update = Update::new();
    for change in changes {
        let constant = change.value.as_ref().map(Expr::as_const);
        update = match (change.op, constant) {
            (ChangeOp::Unset, _) => update.unset(&change.path),
            (ChangeOp::Set, Some(Some(value))) => update.set_value(&change.path, &value.value().to_value()),
            _ => return,
        };
    }
    *fixed = Some(Arc::new(update));
}

struct ActionResolver<'r, 'c> {
    conditions: &'r ConditionResolver<'c>,
    resolved: Vec<Action>,
    /// Slots deleted so far, each with the span of its `delete`.
    deleted: Vec<(usize, Span)>,
}

impl ActionResolver<'_, '_> {
    fn catalog(&self) -> &RuleCatalog {
        self.conditions.names.catalog
    }

    /// Returns slot and entity of the document that an action changes.
    fn target(&self, name: &Ident, verb: &str, sink: &mut DiagnosticSink) -> Option<(usize, usize)> {
        let not_a_document = |message: String, help: &str| {
            Diagnostic::error(codes::NOT_A_DOCUMENT, name.span, message).help(help)
        };
        let (slot, entity) = match self.conditions.names.get(&name.name) {
            Some(Binding::Doc { slot, entity }) => (*slot, *entity),
            Some(Binding::Unknown) => return None,
            Some(Binding::Event(stream)) => {
                let message = format!("`{}` is an event: events cannot be changed", name.name);
                let help = format!(
                    "to record something new, write `emit {}(…)`",
                    self.catalog().streams[*stream].name
                );
                sink.push(not_a_document(message, &help));
                return None;
            }
            Some(Binding::Value(_)) => {
                let message = format!("`{}` is a value: only documents can be {verb}", name.name);
                sink.push(not_a_document(message, "use the name of a document bound in `when`"));
                return None;
            }
            None => {
                let documents: Vec<&str> = self
                    .conditions
                    .names
                    .bindings
                    .iter()
                    .filter(|(_, b)| matches!(b, Binding::Doc { .. }))
                    .map(|(n, _)| n.name.as_str())
                    .collect();
                let message =
                    format!("`{}` is not bound in `when`{}", name.name, did_you_mean(&name.name, documents));
                sink.push(Diagnostic::error(codes::UNKNOWN_NAME, name.span, message));
                return None;
            }
        };
        if let Some((_, at)) = self.deleted.iter().find(|(s, _)| *s == slot) {
            let message = format!("an earlier action deletes `{}`", name.name);
            sink.push(
                Diagnostic::error(codes::DELETED, name.span, message).note_at(*at, "it is deleted here"),
            );
            return None;
        }
        self.check_writable(entity, name.span, sink)?;
        Some((slot, entity))
    }

    /// Rejects changes of replicated entities: every partition must make them, but a rule runs in only one.
    fn check_writable(&self, entity: usize, span: Span, sink: &mut DiagnosticSink) -> Option<()> {
        let entity = &self.catalog().entities[entity];
        if !entity.replicated {
            return Some(());
        }
        let message = format!("{} is replicated: a rule on events cannot change it", entity.name);
        sink.push(
            Diagnostic::error(codes::REPLICATED, span, message)
                .help("only aggregates, document sources and the API change replicated documents; to change them by rules on events, remove `replicated`")
                .note_at(entity.span, format!("entity {} is declared here", entity.name)),
        );
        None
    }

    fn value(&self, e: &ast::Expr, sink: &mut DiagnosticSink) -> Option<Expr> {
        expr::value(e, &self.conditions.names, sink)
    }

    fn update(&mut self, a: &ast::UpdateAction, sink: &mut DiagnosticSink) -> Option<()> {
        let target = self.target(&a.target, "updated", sink);
        let mut whole = target.is_some();
        for assign in &a.assignments {
            let value = self.value(&assign.value, sink);
            let (Some((slot, entity)), Some(value)) = (target, value) else {
                whole = false;
                continue;
            };
            let op = match assign.op {
                AssignOp::Set => ChangeOp::Set,
                AssignOp::Add => ChangeOp::Add,
                AssignOp::Sub => ChangeOp::Sub,
                AssignOp::Mul => ChangeOp::Mul,
                AssignOp::Push => ChangeOp::Push,
            };
            whole &= self.change(slot, entity, &assign.path, op, Some(value), sink).is_some();
        }
        whole.then_some(())
    }

    fn unset(&mut self, a: &ast::UnsetAction, sink: &mut DiagnosticSink) -> Option<()> {
        let (slot, entity) = self.target(&a.target, "changed", sink)?;
        self.change(slot, entity, &a.path, ChangeOp::Unset, None, sink)
    }

    fn change(
        &mut self,
        slot: usize,
        entity: usize,
        path: &ast::Path,
        op: ChangeOp,
        value: Option<Expr>,
        sink: &mut DiagnosticSink,
    ) -> Option<()> {
        let names: Vec<&Ident> = path.segments.iter().collect();
        let text = dotted(&names, sink)?;
        let first = names.first().map_or("", |n| n.name.as_str());
        check_not_immutable(&self.catalog().entities[entity], first, path.span, sink)?;
        if let Some(value) = &value {
            check_operand(op, value, sink)?;
        }
        let change = Change { before: doc_path(slot, &text, path.span), path: text, op, value };
        // one update per document, unless one change is inside another
        let open = self.resolved.iter_mut().rev().find_map(|action| match action {
            Action::Update { slot: s, changes, .. } if *s == slot => Some(changes),
            _ => None,
        });
        match open {
            Some(changes) if !changes.iter().any(|c| overlap(&c.path, &change.path)) => changes.push(change),
            _ => self.resolved.push(Action::Update { slot, changes: vec![change], precomputed: None }),
        }
        Some(())
    }

    fn insert(&mut self, a: &InsertAction, sink: &mut DiagnosticSink) -> Option<()> {
        let catalog = self.conditions.names.catalog;
        let Some(entity) = catalog.entity(&a.entity.name) else {
            report_unknown_entity(&a.entity, catalog, sink);
            return None;
        };
        let fields = expr::object(&a.fields, &self.conditions.names, sink);
        self.check_writable(entity, a.entity.span, sink)?;
        let key = key_value(&a.fields, &catalog.entities[entity], a.span, sink);
        let fields = fields?;
        let key = fields.get(key?).map(|(_, x)| x.clone())?;
        self.check_owning_partition(entity, a, &fields, sink)?;
        self.resolved.push(Action::Insert { entity, key, fields, upsert: a.upsert });
        Some(())
    }

    /// Checks that a new document belongs to the partition in which the rule runs.
    fn check_owning_partition(
        &self,
        entity: usize,
        a: &InsertAction,
        fields: &[(Arc<str>, Expr)],
        sink: &mut DiagnosticSink,
    ) -> Option<()> {
        let catalog = self.catalog();
        let target = &catalog.entities[entity];
        let stream = self.conditions.stream?;
        let Some((_, value)) = fields.iter().find(|(n, _)| n.as_ref() == target.shard) else {
            let message =
                format!("a new {} needs `{}`, which determines its partition", target.name, target.shard);
            let key = catalog.key_name(stream).unwrap_or(&target.shard);
            sink.push(Diagnostic::error(codes::KEY_NEEDED, a.span, message).help(format!(
                "add `{}: {}.{key}`",
                target.shard,
                self.event_name()
            )));
            return None;
        };
        let is_home = match &value.kind {
            ExprNode::Event { column, path, .. } => {
                Some(*column) == catalog.streams[stream].key && path.is_empty()
            }
            ExprNode::Doc { slot, path: Some(path) } => {
                let owner = &catalog.entities[self.conditions.slots[*slot].entity];
                !owner.replicated && owner.shard == path.as_str()
            }
            _ => false,
        };
        if is_home {
            return Some(());
        }
        let place = a.fields.iter().find(|f| f.name.name == target.shard).map_or(a.span, |f| f.span);
        let name = &target.name;
        let shard = &target.shard;
        let Some(key) = catalog.key_name(stream) else {
            sink.push(locality::not_local_condition(entity, stream, catalog).diagnostic(place, catalog));
            return None;
        };
        let message = if shard == key {
            format!(
                "a rule can only insert {name} documents of its own partition: their `{shard}` must be the event's `{key}`"
            )
        } else {
            format!(
                "this {name} would be stored in the partition of the event's `{key}`, but {name} documents belong in the partition of their `{shard}`"
            )
        };
        let help = if shard == key {
            format!("write `{shard}: {}.{key}`", self.event_name())
        } else {
            format!("add `shard {key}` to entity {name} and set `{key}: {}.{key}`", self.event_name())
        };
        sink.push(
            Diagnostic::error(codes::NOT_LOCAL, place, message)
                .help(help)
                .note_at(target.span, format!("entity {name} is declared here")),
        );
        None
    }

    fn event_name(&self) -> &str {
        let event = self.conditions.names.bindings.iter().find(|(_, b)| matches!(b, Binding::Event(_)));
        event.map_or("e", |(n, _)| n.name.as_str())
    }

    fn delete(&mut self, a: &ast::DeleteAction, sink: &mut DiagnosticSink) -> Option<()> {
        let (slot, _) = self.target(&a.target, "deleted", sink)?;
        self.deleted.push((slot, a.span));
        self.resolved.push(Action::Delete { slot });
        Some(())
    }

    fn emit(&mut self, a: &ast::EmitAction, sink: &mut DiagnosticSink) -> Option<()> {
        let catalog = self.conditions.names.catalog;
        let Some(stream) = catalog.stream(&a.stream.name) else {
            let hint = did_you_mean(&a.stream.name, catalog.stream_names());
            let message = format!("there is no event `{}`{hint}", a.stream.name);
            sink.push(Diagnostic::error(codes::UNKNOWN_STREAM, a.stream.span, message));
            return None;
        };
        let schema = &catalog.streams[stream];
        let mut cells: Vec<Option<Expr>> = vec![None; schema.fields.len()];
        let mut whole = true;
        match &a.args {
            EmitArgs::Positional(values) => {
                if values.len() != schema.fields.len() {
                    let declared: Vec<String> =
                        schema.fields.iter().map(|f| format!("{}: {}", f.name, f.ty)).collect();
                    let values = if values.len() == 1 {
                        "1 value".to_owned()
                    } else {
                        format!("{} values", values.len())
                    };
                    let message =
                        format!("{} has {} fields, found {values}", schema.name, schema.fields.len());
                    sink.push(
                        Diagnostic::error(codes::EMIT, a.span, message).expected(declared.clone()).help(
                            format!(
                                "its fields are {}; to set only some of them, write `emit {} {{ field: … }}`",
                                declared.join(", "),
                                schema.name
                            ),
                        ),
                    );
                    whole = false;
                }
                for (position, value) in values.iter().enumerate() {
                    let resolved = self.value(value, sink);
                    whole &= resolved.is_some();
                    if position < cells.len() {
                        cells[position] = resolved;
                    }
                }
            }
            EmitArgs::Named(fields) => {
                for field in fields {
                    let resolved = self.value(&field.value, sink);
                    whole &= resolved.is_some();
                    match schema.field_index(&field.name.name) {
                        Some(position) => cells[position] = resolved,
                        None => {
                            let known: Vec<&str> = schema.fields.iter().map(|f| f.name.as_str()).collect();
                            let hint = did_you_mean(&field.name.name, known);
                            let message = format!("{} has no field `{}`{hint}", schema.name, field.name.name);
                            sink.push(Diagnostic::error(codes::UNKNOWN_FIELD, field.name.span, message));
                            whole = false;
                        }
                    }
                }
            }
        }
        for (field, cell) in schema.fields.iter().zip(&cells) {
            if let Some(cell) = cell
                && !is_assignable_to_field(field.ty, cell)
            {
                let mut expected = format!(
                    "{} for the field `{}` of {}",
                    ExprType::of_field(field.ty),
                    field.name,
                    schema.name
                );
                if cell.ty == ExprType::Span {
                    expected.push_str("; divide by a unit, for example `/ 1 min`");
                }
                expr::report_mismatch(cell, &expected, sink);
                whole = false;
            }
        }
        whole.then(|| self.resolved.push(Action::Emit { stream, cells }))
    }
}

/// Returns whether a value of this type may be assigned to the field.
fn is_assignable_to_field(field: FieldType, value: &Expr) -> bool {
    match (field, value.ty) {
        (FieldType::Object, _) | (_, ExprType::Any | ExprType::Null) => true,
        (FieldType::Long, ExprType::Span) => true,
        (FieldType::Int | FieldType::Long, ExprType::Float) => {
            // a constant can be checked now; other values may be whole at run time
            !matches!(value.as_const(), Some(Const::Float(x)) if x.fract() != 0.0)
        }
        (field, ty) => ExprType::of_field(field).may_be(ty),
    }
}

/// Returns whether the paths are equal or one is inside the other.
fn overlap(a: &str, b: &str) -> bool {
    let inside = |long: &str, short: &str| {
        long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    inside(a, b) || inside(b, a)
}

/// Rejects changes of the key and shard fields: they identify the document and its partition.
fn check_not_immutable(entity: &Entity, field: &str, span: Span, sink: &mut DiagnosticSink) -> Option<()> {
    let why = if field == entity.key || field == "_id" {
        format!("`{field}` is the key of {}: it cannot be changed", entity.name)
    } else if field == entity.shard {
        format!("`{field}` determines the partition of {}: it cannot be changed", entity.name)
    } else {
        return Some(());
    };
    sink.push(
        Diagnostic::error(codes::KEY_FIXED, span, why).help("delete the document and insert a new one"),
    );
    None
}

/// Checks the type of the operand of `+=`, `-=` and `*=`.
fn check_operand(op: ChangeOp, value: &Expr, sink: &mut DiagnosticSink) -> Option<()> {
    let ok = match op {
        ChangeOp::Add | ChangeOp::Sub => {
            value.ty.is_number() || matches!(value.ty, ExprType::Any | ExprType::Span)
        }
        ChangeOp::Mul => value.ty.is_number() || value.ty == ExprType::Any,
        _ => true,
    };
    if ok {
        return Some(());
    }
    let expected = if op == ChangeOp::Mul { "a number" } else { "a number or a span of time" };
    expr::report_mismatch(value, expected, sink);
    None
}

/// Returns the index of the key among the fields of a new document.
pub(crate) fn key_value(
    fields: &[ObjectField],
    entity: &Entity,
    span: Span,
    sink: &mut DiagnosticSink,
) -> Option<usize> {
    let position = fields.iter().position(|f| f.name.name == entity.key);
    let Some(position) = position else {
        let message = format!("a new {} needs its key `{}`", entity.name, entity.key);
        sink.push(
            Diagnostic::error(codes::KEY_NEEDED, span, message).help(format!("add `{}: …`", entity.key)),
        );
        return None;
    };
    if let Some(id) = fields.iter().find(|f| f.name.name == "_id" && entity.key != "_id") {
        let message = format!("`_id` is set from the key `{}`: it cannot be given here", entity.key);
        sink.push(Diagnostic::error(codes::KEY_FIXED, id.name.span, message).help("remove it"));
        return None;
    }
    Some(position)
}
