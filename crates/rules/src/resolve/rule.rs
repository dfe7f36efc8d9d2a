//! Rules: resolves conditions to checks and lookups.

use std::sync::Arc;

use tidemill_lang::diagnostic::DiagnosticSink;
use tidemill_lang::rules::ast::{self, Condition, EntityCondition, RelationCondition, RuleDecl};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::did_you_mean;

use super::names::{Binding, NameScope};
use super::{action, codes, declare, expr, locality};
use crate::catalog::{Entity, RelationOwner, RuleCatalog};
use crate::expr::row::SLOTS_MAX;
use crate::expr::{CompareOp, DocPath, Expr, ExprNode, ExprType, JsonPath};
use crate::plan::{Check, DocumentLookup, DocumentSlot, DocumentSource, RulePlan, Step};

/// Resolves the conditions of a rule or an aggregate, one after the other.
pub(crate) struct ConditionResolver<'c> {
    pub names: NameScope<'c>,
    /// Index of the event's stream; `None` where the source of an aggregate is an entity.
    pub stream: Option<usize>,
    pub checks: Vec<Check>,
    pub steps: Vec<Step>,
    pub slots: Vec<DocumentSlot>,
    /// True if documents must be in the event's partition. False for aggregates, which run over all
    /// partitions.
    pub local: bool,
}

/// Compiles a rule. Returns `None` if there was an error, which has been reported.
pub(crate) fn rule(decl: &RuleDecl, catalog: &RuleCatalog, sink: &mut DiagnosticSink) -> Option<RulePlan> {
    let Some((Condition::Event(first), rest)) = decl.conditions.split_first() else {
        let span = decl.conditions.first().map_or(decl.name.span, Condition::span);
        sink.push(
            Diagnostic::error(codes::FIRST_CONDITION, span, "the first condition must be an event")
                .help("begin with `e: SomeEvent();`"),
        );
        return None;
    };
    let Some(stream) = catalog.stream(&first.stream.name) else {
        report_unknown_stream(&first.stream, catalog, sink);
        return None;
    };
    let mut conditions = ConditionResolver {
        names: NameScope::new(catalog),
        stream: Some(stream),
        checks: Vec::new(),
        steps: Vec::new(),
        slots: Vec::new(),
        local: true,
    };
    conditions.names.bind(&first.binding, Binding::Event(stream), sink);
    let mut whole = conditions.event_filters(&first.filters, Binding::Event(stream), sink);
    for (i, condition) in rest.iter().enumerate() {
        whole &= conditions.condition(condition, i + 1, sink).is_some();
    }
    let actions = action::actions(&decl.actions, &conditions, sink);
    // resolve actions even after an error in a condition, so that one run reports more errors
    let actions = actions?;
    whole.then(|| RulePlan {
        name: Arc::from(decl.name.name.as_str()),
        stream,
        priority: decl.priority,
        span: decl.span,
        event: Arc::from(first.binding.name.as_str()),
        checks: conditions.checks,
        steps: conditions.steps,
        slots: conditions.slots,
        actions,
        action_spans: decl.actions.iter().map(ast::Action::span).collect(),
    })
}

pub(crate) fn report_unknown_stream(name: &ast::Ident, catalog: &RuleCatalog, sink: &mut DiagnosticSink) {
    let (message, help) = if catalog.entity(&name.name).is_some() {
        (
            format!("`{}` is an entity, not an event", name.name),
            Some("a rule runs when an event arrives; match documents in a later condition".to_owned()),
        )
    } else {
        (
            format!("there is no event `{}`{}", name.name, did_you_mean(&name.name, catalog.stream_names())),
            None,
        )
    };
    let mut diagnostic = Diagnostic::error(codes::UNKNOWN_STREAM, name.span, message);
    diagnostic.help = help;
    sink.push(diagnostic);
}

pub(crate) fn report_unknown_entity(name: &ast::Ident, catalog: &RuleCatalog, sink: &mut DiagnosticSink) {
    let message = if catalog.stream(&name.name).is_some() {
        format!("`{}` is an event, not an entity", name.name)
    } else {
        format!("there is no entity `{}`{}", name.name, did_you_mean(&name.name, catalog.entity_names()))
    };
    sink.push(Diagnostic::error(codes::UNKNOWN_ENTITY, name.span, message));
}

impl<'c> ConditionResolver<'c> {
    /// Resolves the filters of the first condition. Returns whether all are valid.
    pub(crate) fn event_filters(
        &mut self,
        filters: &[ast::Expr],
        bound: Binding,
        sink: &mut DiagnosticSink,
    ) -> bool {
        let names = self.names.with_filter_target(bound);
        let mut whole = true;
        for filter in filters {
            match expr::condition(filter, &names, sink) {
                Some(x) => self.check(x, 0),
                None => whole = false,
            }
        }
        whole
    }

    /// Splits a condition: conjuncts on the event alone become checks, which run first; others become steps
    /// in order.
    fn check(&mut self, holds: Expr, condition: usize) {
        let mut parts = Vec::new();
        holds.into_conjuncts(&mut parts);
        for part in parts {
            let event_only = part.is_event_only() && self.stream.is_some();
            let check = Check { expr: part, condition };
            if event_only { self.checks.push(check) } else { self.steps.push(Step::Filter(check)) }
        }
    }

    /// Resolves a condition after the first.
    pub(crate) fn condition(
        &mut self,
        condition: &Condition,
        index: usize,
        sink: &mut DiagnosticSink,
    ) -> Option<()> {
        match condition {
            Condition::Event(c) => {
                // the parser accepts an event only as the first condition
                sink.push(Diagnostic::error(
                    codes::FIRST_CONDITION,
                    c.span,
                    "only the first condition can be an event",
                ));
                None
            }
            Condition::Relation(c) => {
                if c.negated
                    && !self.is_relation(c)
                    && let Some(as_expr) = condition.as_expr()
                {
                    return self.expression(&as_expr, index, sink);
                }
                self.relation(c, index, sink)
            }
            Condition::Entity(c) => {
                if c.negated
                    && self.names.catalog.entity(&c.entity.name).is_none()
                    && crate::expr::Func::names().any(|f| f == c.entity.name)
                    && let Some(as_expr) = condition.as_expr()
                {
                    return self.expression(&as_expr, index, sink);
                }
                self.entity(c, index, sink)
            }
            Condition::Let(c) => {
                let value = expr::value(&c.expr, &self.names, sink);
                // bound even if wrong, so that its uses are not reported as well
                let whole = value.is_some();
                self.names.bind(&c.name, value.map_or(Binding::Unknown, Binding::Value), sink);
                whole.then_some(())
            }
            Condition::Expr(e) => self.expression(e, index, sink),
        }
    }

    fn expression(&mut self, e: &ast::Expr, index: usize, sink: &mut DiagnosticSink) -> Option<()> {
        let holds = expr::condition(e, &self.names, sink)?;
        self.check(holds, index);
        Some(())
    }

    fn is_relation(&self, c: &RelationCondition) -> bool {
        let owner = match self.names.get(&c.base.name) {
            Some(Binding::Event(s)) => RelationOwner::Stream(*s),
            Some(Binding::Doc { entity, .. }) => RelationOwner::Entity(*entity),
            _ => return true,
        };
        self.names.catalog.relation(owner, &c.relation.name).is_some()
    }

    fn relation(&mut self, c: &RelationCondition, index: usize, sink: &mut DiagnosticSink) -> Option<()> {
        let catalog = self.names.catalog;
        let owner = match self.names.get(&c.base.name).cloned() {
            Some(Binding::Event(stream)) => (RelationOwner::Stream(stream), None),
            Some(Binding::Doc { slot, entity }) => (RelationOwner::Entity(entity), Some(slot)),
            Some(Binding::Unknown) => return self.bind_placeholder(c.binding.as_ref(), sink),
            Some(Binding::Value(_)) => {
                let message =
                    format!("`{}` is a value: only events and documents have relations", c.base.name);
                sink.push(Diagnostic::error(codes::UNKNOWN_RELATION, c.base.span, message));
                return self.bind_placeholder(c.binding.as_ref(), sink);
            }
            None => {
                let known: Vec<&str> = self.names.bindings.iter().map(|(n, _)| n.name.as_str()).collect();
                let message =
                    format!("`{}` is not bound here{}", c.base.name, did_you_mean(&c.base.name, known));
                sink.push(Diagnostic::error(codes::UNKNOWN_NAME, c.base.span, message));
                return self.bind_placeholder(c.binding.as_ref(), sink);
            }
        };
        let Some(relation) = catalog.relation(owner.0, &c.relation.name) else {
            let name = declare::owner_name(catalog, owner.0);
            let hint = did_you_mean(&c.relation.name, catalog.relation_names(owner.0));
            let message = format!("{name} has no relation `{}`{hint}", c.relation.name);
            sink.push(
                Diagnostic::error(codes::UNKNOWN_RELATION, c.relation.span, message)
                    .help(format!("declare it: `relation {name}.{}(): ENTITY by FIELD;`", c.relation.name)),
            );
            return self.bind_placeholder(c.binding.as_ref(), sink);
        };
        let reported = relation.explicit && matches!(owner.0, RelationOwner::Stream(_));
        if let (true, Some(stream), false) = (self.local, self.stream, reported)
            && let Err(why) = locality::relation(catalog, relation, stream)
        {
            sink.push(why.diagnostic(c.span, catalog));
        }
        let by = match owner {
            // a relation is only declared for streams that have the field
            (RelationOwner::Stream(stream), _) => event_column(catalog, stream, &relation.by, c.span)?,
            (_, slot) => doc_path(slot?, &relation.by, c.span),
        };
        let slot = self.slot(relation.target, c.binding.as_ref(), c.span, sink)?;
        let source = if relation.on == catalog.entities[relation.target].key {
            DocumentSource::Key(by)
        } else {
            DocumentSource::Field(relation.on.clone(), by)
        };
        let filters = self.filters(c.filters.as_deref().unwrap_or(&[]), slot, relation.target, index, sink);
        let filters = self.hoist(filters?, c.negated);
        self.steps.push(Step::Lookup(DocumentLookup {
            slot,
            source,
            filters,
            negated: c.negated,
            condition: index,
            span: c.span,
        }));
        self.bind_doc(c.binding.as_ref(), slot, relation.target, sink);
        Some(())
    }

    fn entity(&mut self, c: &EntityCondition, index: usize, sink: &mut DiagnosticSink) -> Option<()> {
        let catalog = self.names.catalog;
        let Some(entity) = catalog.entity(&c.entity.name) else {
            report_unknown_entity(&c.entity, catalog, sink);
            return self.bind_placeholder(c.binding.as_ref(), sink);
        };
        let slot = self.slot(entity, c.binding.as_ref(), c.span, sink)?;
        let filters = self.filters(&c.filters, slot, entity, index, sink);
        let Some(filters) = filters else {
            self.bind_doc(c.binding.as_ref(), slot, entity, sink);
            return None;
        };
        let filters = self.hoist(filters, c.negated);
        if let (true, Some(stream)) = (self.local, self.stream) {
            self.check_local(entity, stream, slot, &filters, c.span, sink);
        }
        let source = find_source(&catalog.entities[entity], slot, &filters);
        if let (true, Some(warning)) =
            (self.local, scan_warning(&source, &catalog.entities[entity], slot, &filters, c.span))
        {
            sink.push(warning);
        }
        self.steps.push(Step::Lookup(DocumentLookup {
            slot,
            source,
            filters,
            negated: c.negated,
            condition: index,
            span: c.span,
        }));
        self.bind_doc(c.binding.as_ref(), slot, entity, sink);
        Some(())
    }

    /// Binds the name of an erroneous condition, so that its uses are not reported as well.
    fn bind_placeholder(&mut self, binding: Option<&ast::Ident>, sink: &mut DiagnosticSink) -> Option<()> {
        if let Some(name) = binding {
            self.names.bind(name, Binding::Unknown, sink);
        }
        None
    }

    fn slot(
        &mut self,
        entity: usize,
        name: Option<&ast::Ident>,
        span: Span,
        sink: &mut DiagnosticSink,
    ) -> Option<usize> {
        if self.slots.len() == SLOTS_MAX {
            let message = format!("a rule can match at most {SLOTS_MAX} documents");
            sink.push(Diagnostic::error(codes::TOO_LARGE, span, message).help("split the rule"));
            return None;
        }
        self.slots.push(DocumentSlot { name: name.map(|n| Arc::from(n.name.as_str())), entity });
        Some(self.slots.len() - 1)
    }

    fn bind_doc(&mut self, name: Option<&ast::Ident>, slot: usize, entity: usize, sink: &mut DiagnosticSink) {
        if let Some(name) = name {
            self.names.bind(name, Binding::Doc { slot, entity }, sink);
        }
    }

    /// Resolves the filters of a document, split into conjuncts.
    fn filters(
        &self,
        filters: &[ast::Expr],
        slot: usize,
        entity: usize,
        index: usize,
        sink: &mut DiagnosticSink,
    ) -> Option<Vec<Check>> {
        let names = self.names.with_filter_target(Binding::Doc { slot, entity });
        let mut parts = Vec::new();
        let mut whole = true;
        for filter in filters {
            match expr::condition(filter, &names, sink) {
                Some(x) => x.into_conjuncts(&mut parts),
                None => whole = false,
            }
        }
        whole.then(|| parts.into_iter().map(|expr| Check { expr, condition: index }).collect())
    }

    /// Moves filters on the event alone to the checks, which run first. Filters of a negated condition must
    /// stay inside it.
    fn hoist(&mut self, filters: Vec<Check>, negated: bool) -> Vec<Check> {
        if negated || self.stream.is_none() {
            return filters;
        }
        let (event_only, rest) = filters.into_iter().partition(|f| f.expr.is_event_only());
        let event_only: Vec<Check> = event_only;
        self.checks.extend(event_only);
        rest
    }

    fn check_local(
        &self,
        entity: usize,
        stream: usize,
        slot: usize,
        filters: &[Check],
        span: Span,
        sink: &mut DiagnosticSink,
    ) {
        let catalog = self.names.catalog;
        let target = &catalog.entities[entity];
        if target.replicated || locality::key_is_shard(catalog, stream, target) {
            return;
        }
        let key = catalog.streams[stream].key;
        let pinned = equalities(slot, filters).any(|(path, value)| {
            let is_key = matches!(&value.kind, ExprNode::Event { column, path, .. } if Some(*column) == key && path.is_empty());
            path == target.shard && is_key
        });
        if !pinned {
            sink.push(locality::not_local_condition(entity, stream, catalog).diagnostic(span, catalog));
        }
    }
}

/// Returns the expression for the event's field `name`.
pub(crate) fn event_column(catalog: &RuleCatalog, stream: usize, name: &str, span: Span) -> Option<Expr> {
    let schema = &catalog.streams[stream];
    let column = schema.field_index(name)?;
    let ty = ExprType::of_field(schema.fields[column].ty);
    Some(Expr {
        kind: ExprNode::Event { column, json: ty == ExprType::Any, path: JsonPath::from([]) },
        ty,
        span,
    })
}

pub(crate) fn doc_path(slot: usize, path: &str, span: Span) -> Expr {
    Expr { kind: ExprNode::Doc { slot, path: Some(DocPath::new(path)) }, ty: ExprType::Any, span }
}

/// Returns the filters of the form `path == value` whose value is known before the document is.
fn equalities(slot: usize, filters: &[Check]) -> impl Iterator<Item = (&str, &Expr)> {
    filters.iter().filter_map(move |filter| {
        let ExprNode::Compare(CompareOp::Eq, a, b) = &filter.expr.kind else { return None };
        let side = |field: &Expr, value| match &field.kind {
            ExprNode::Doc { slot: s, path: Some(_) } if *s == slot && !reads_slot(value, slot) => Some(()),
            _ => None,
        };
        let (field, value) = if side(a, b).is_some() {
            (a, b)
        } else if side(b, a).is_some() {
            (b, a)
        } else {
            return None;
        };
        match &field.kind {
            ExprNode::Doc { path: Some(path), .. } => Some((path.as_str(), value.as_ref())),
            _ => None,
        }
    })
}

fn reads_slot(value: &Expr, slot: usize) -> bool {
    value.reads_slot(slot)
}

/// Chooses the source of candidates: by key, else by the index with most of its leading fields given, else a
/// scan.
fn find_source(entity: &Entity, slot: usize, filters: &[Check]) -> DocumentSource {
    let given: Vec<(&str, &Expr)> = equalities(slot, filters).collect();
    let value_of = |path: &str| given.iter().find(|(p, _)| *p == path).map(|(_, v)| (*v).clone());
    if let Some(value) = value_of(&entity.key).or_else(|| value_of("_id")) {
        return DocumentSource::Key(value);
    }
    let prefix = |fields: &[String]| -> Vec<(String, Expr)> {
        fields.iter().map_while(|f| value_of(f).map(|v| (f.clone(), v))).collect()
    };
    let best = entity.indexes.iter().map(|i| prefix(&i.fields)).max_by_key(Vec::len).unwrap_or_default();
    let mut best = best.into_iter();
    match (best.next(), best.len()) {
        (Some((path, value)), 0) => DocumentSource::Field(path, value),
        (Some(first), _) => DocumentSource::Fields(std::iter::once(first).chain(best).collect()),
        (None, _) => DocumentSource::Scan,
    }
}

/// Returns a warning if the lookup scans all documents of an entity.
fn scan_warning(
    source: &DocumentSource,
    entity: &Entity,
    slot: usize,
    filters: &[Check],
    span: Span,
) -> Option<Diagnostic> {
    if !matches!(source, DocumentSource::Scan) {
        return None;
    }
    Some(match equalities(slot, filters).next() {
        Some((path, _)) => locality::unindexed_warning(span, entity, path),
        None => Diagnostic::warning(
            codes::NO_INDEX,
            span,
            format!("this reads every {} document for each event", entity.name),
        )
        .help(format!("select documents by `{} == …` or by another field with an index", entity.key)),
    })
}
