//! Aggregate rules: checked here, translated to SQL in [`crate::sql`].

use std::sync::Arc;

use tidemill_lang::diagnostic::DiagnosticSink;
use tidemill_lang::rules::ast::{self, AggregateDecl, Condition, Ident};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::{Duration, did_you_mean};

use super::expr::{report_argument_count, report_mismatch};
use super::names::{Binding, NameScope};
use super::rule::{ConditionResolver, report_unknown_entity};
use super::{action, codes, expr};
use crate::aggregate::Aggregate;
use crate::catalog::RuleCatalog;
use crate::expr::{AggFunc, Const, Expr, ExprNode, ExprType};
use crate::plan::{Check, DocumentSlot, Step};
use crate::sql::{self, AggregateSource, SqlQuery};

/// Compiles an aggregate rule. Returns `None` if there was an error, which has been reported.
pub(crate) fn aggregate(
    decl: &AggregateDecl,
    catalog: &RuleCatalog,
    sink: &mut DiagnosticSink,
) -> Option<Aggregate> {
    let (mut conditions, root) = source(decl, catalog, sink)?;
    let mut whole = true;
    if let Some(Condition::Event(first)) = decl.conditions.first() {
        let bound = match root {
            AggregateSource::Stream(stream) => Binding::Event(stream),
            AggregateSource::Entity(entity) => Binding::Doc { slot: 0, entity },
        };
        whole &= conditions.event_filters(&first.filters, bound, sink);
    }
    for (i, condition) in decl.conditions.iter().enumerate().skip(1) {
        whole &= conditions.condition(condition, i, sink).is_some();
    }
    if let (AggregateSource::Entity(_), Some(over)) = (root, &decl.over) {
        let message = "`over` limits how far back a stream is read: documents have no time";
        sink.push(Diagnostic::error(codes::AGGREGATE, over.span, message).help("remove `over`"));
        whole = false;
    }
    let groups = groups(decl, &mut conditions.names, sink);
    conditions.names.aggregates = true;
    let mut inserts = Vec::new();
    for insert in &decl.inserts {
        let Some(groups) = &groups else {
            whole = false;
            continue;
        };
        match new_documents(insert, &conditions, groups, sink) {
            Some(made) => inserts.push(made),
            None => whole = false,
        }
    }
    whole &= check_no_json(&conditions, groups.as_deref().unwrap_or(&[]), &inserts, sink);
    if !whole {
        return None;
    }
    let query = SqlQuery {
        catalog,
        root,
        event: decl.conditions.first().and_then(Condition::binding).map_or("e", |n| n.name.as_str()),
        checks: &conditions.checks,
        steps: &conditions.steps,
        slots: &conditions.slots,
        groups: groups.as_deref().unwrap_or(&[]),
        over: decl.over.as_ref().map(|s| Duration(s.micros)),
    };
    let mut streams = Vec::new();
    let mut collections: Vec<String> = Vec::new();
    let source = match root {
        AggregateSource::Stream(stream) => {
            streams.push(catalog.streams[stream].name.clone());
            streams[0].clone()
        }
        AggregateSource::Entity(entity) => catalog.entities[entity].name.clone(),
    };
    for slot in &conditions.slots {
        let name = &catalog.entities[slot.entity].name;
        if !collections.contains(name) {
            collections.push(name.clone());
        }
    }
    Some(Aggregate {
        name: decl.name.name.clone(),
        every: decl.every.as_ref().map(|s| Duration(s.micros)),
        over: query.over,
        source,
        streams,
        collections,
        inserts: inserts
            .iter()
            .map(|(entity, fields)| sql::insert(&query, &catalog.entities[*entity], fields))
            .collect(),
        span: decl.span,
    })
}

/// Resolves the first condition: the stream or entity that the aggregate reads.
fn source<'c>(
    decl: &AggregateDecl,
    catalog: &'c RuleCatalog,
    sink: &mut DiagnosticSink,
) -> Option<(ConditionResolver<'c>, AggregateSource)> {
    let Some(Condition::Event(first)) = decl.conditions.first() else {
        let span = decl.conditions.first().map_or(decl.name.span, Condition::span);
        sink.push(
            Diagnostic::error(
                codes::FIRST_CONDITION,
                span,
                "the first condition must be an event or an entity",
            )
            .help("begin with `e: SomeEvent();`"),
        );
        return None;
    };
    let mut conditions = ConditionResolver {
        names: NameScope::new(catalog),
        stream: None,
        checks: Vec::new(),
        steps: Vec::new(),
        slots: Vec::new(),
        local: false,
    };
    let name = &first.stream.name;
    let root = match (catalog.stream(name), catalog.entity(name)) {
        (Some(stream), _) => {
            conditions.names.bind(&first.binding, Binding::Event(stream), sink);
            AggregateSource::Stream(stream)
        }
        (None, Some(entity)) => {
            conditions
                .slots
                .push(DocumentSlot { name: Some(Arc::from(first.binding.name.as_str())), entity });
            conditions.names.bind(&first.binding, Binding::Doc { slot: 0, entity }, sink);
            AggregateSource::Entity(entity)
        }
        (None, None) => {
            let mut known = catalog.stream_names();
            known.extend(catalog.entity_names());
            let message = format!("there is no event or entity `{name}`{}", did_you_mean(name, known));
            sink.push(Diagnostic::error(codes::UNKNOWN_STREAM, first.stream.span, message));
            return None;
        }
    };
    Some((conditions, root))
}

fn groups(decl: &AggregateDecl, names: &mut NameScope<'_>, sink: &mut DiagnosticSink) -> Option<Vec<Expr>> {
    let mut groups = Vec::new();
    let mut named = Vec::new();
    let mut whole = true;
    for item in &decl.group_by {
        match expr::value(&item.expr, names, sink) {
            Some(x) if matches!(x.ty, ExprType::Object | ExprType::Array) => {
                report_mismatch(&x, "a single value to group by", sink);
                whole = false;
            }
            Some(x) => {
                if let Some(name) = &item.name {
                    named.push((name, x.clone()));
                }
                groups.push(x);
            }
            None => whole = false,
        }
    }
    for (name, x) in named {
        names.bind(name, Binding::Value(x), sink);
    }
    whole.then_some(groups)
}

/// Documents that the aggregate inserts: index of the entity, and the fields.
type NewDocuments = (usize, Vec<(Arc<str>, Expr)>);

fn new_documents(
    insert: &ast::InsertAction,
    conditions: &ConditionResolver<'_>,
    groups: &[Expr],
    sink: &mut DiagnosticSink,
) -> Option<NewDocuments> {
    let catalog = conditions.names.catalog;
    let Some(entity) = catalog.entity(&insert.entity.name) else {
        report_unknown_entity(&insert.entity, catalog, sink);
        return None;
    };
    let target = &catalog.entities[entity];
    let fields = expr::object(&insert.fields, &conditions.names, sink);
    let key = action::key_value(&insert.fields, target, insert.span, sink);
    if !target.replicated && !insert.fields.iter().any(|f| f.name.name == target.shard) {
        let message = format!(
            "an aggregate runs over all partitions, so a new {} needs `{}`, which determines its partition",
            target.name, target.shard
        );
        sink.push(Diagnostic::error(codes::NOT_LOCAL, insert.span, message).help(format!(
            "add `{}: …`, or `replicated` to entity {} if rules of every partition read it",
            target.shard, target.name
        )));
        return None;
    }
    let fields = fields?;
    key?;
    let mut whole = true;
    for (_, value) in &fields {
        whole &= check_grouped(value, groups, sink);
    }
    whole.then_some((entity, fields))
}

/// Returns whether a value is constant within a group; reports each part that is not.
fn check_grouped(value: &Expr, groups: &[Expr], sink: &mut DiagnosticSink) -> bool {
    if groups.contains(value) || matches!(value.kind, ExprNode::Const(_) | ExprNode::Aggregate(..)) {
        return true;
    }
    let children = value.children();
    if children.is_empty() && !matches!(value.kind, ExprNode::Object(_) | ExprNode::Array(_)) {
        let message = "this value differs within a group: it is neither in `groupby` nor aggregated";
        sink.push(
            Diagnostic::error(codes::NOT_GROUPED, value.span, message)
                .help("add it to `groupby`, or aggregate it, for example by `min(…)` or `max(…)`"),
        );
        return false;
    }
    // visit all children, so that each error is reported
    children.into_iter().filter(|child| !check_grouped(child, groups, sink)).count() == 0
}

/// Rejects fields that hold JSON text, because SQL cannot look into them.
fn check_no_json(
    conditions: &ConditionResolver<'_>,
    groups: &[Expr],
    inserts: &[NewDocuments],
    sink: &mut DiagnosticSink,
) -> bool {
    let in_steps = conditions.steps.iter().flat_map(|step| match step {
        Step::Filter(check) => vec![&check.expr],
        Step::Lookup(lookup) => {
            lookup.source.values().into_iter().chain(lookup.filters.iter().map(|c: &Check| &c.expr)).collect()
        }
    });
    let all = conditions.checks.iter().map(|c| &c.expr).chain(in_steps).chain(groups);
    let all = all.chain(inserts.iter().flat_map(|(_, fields)| fields.iter().map(|(_, x)| x)));
    let mut whole = true;
    for expr in all {
        expr.walk(&mut |e| {
            if matches!(e.kind, ExprNode::Event { json: true, .. }) {
                let message = "fields of type `object` cannot be used in an aggregate";
                sink.push(
                    Diagnostic::error(codes::AGGREGATE, e.span, message)
                        .help("declare the values that you need as fields of the event"),
                );
                whole = false;
            }
        });
    }
    whole
}

/// Resolves a call of an aggregate function.
pub(crate) fn call(
    func: AggFunc,
    function: &Ident,
    args: &[ast::Expr],
    span: Span,
    names: &NameScope<'_>,
    sink: &mut DiagnosticSink,
) -> Option<Expr> {
    if !names.aggregates {
        let message = format!(
            "`{}` aggregates the rows of a group: it is only allowed in the values of `do`",
            function.name
        );
        sink.push(Diagnostic::error(codes::AGGREGATE, function.span, message));
        return None;
    }
    let inner = NameScope { aggregates: false, ..names.clone() };
    let args: Option<Vec<Expr>> = args.iter().map(|a| expr::value(a, &inner, sink)).collect();
    let args = args?;
    let usage = match func {
        AggFunc::Count => "count() or count(x)",
        AggFunc::Percentile => "percentile(x, 0.95)",
        _ => "",
    };
    let fits = match func {
        AggFunc::Count => args.len() <= 1,
        AggFunc::Percentile => args.len() == 2,
        _ => args.len() == 1,
    };
    if !fits {
        let one = format!("{}(x)", function.name);
        report_argument_count(if usage.is_empty() { &one } else { usage }, args.len(), span, sink);
        return None;
    }
    let ty = match args.first() {
        Some(x) => result_type(func, x, sink)?,
        None => ExprType::Int,
    };
    if let (AggFunc::Percentile, Some(p)) = (func, args.get(1)) {
        let share = match p.as_const() {
            Some(Const::Float(p)) => Some(*p),
            Some(Const::Int(n)) => Some(*n as f64),
            _ => None,
        };
        if share.is_none_or(|p| !(0.0..=1.0).contains(&p)) {
            let message = "expected a number from 0 to 1, for example 0.95";
            sink.push(Diagnostic::error(codes::CONSTANT, p.span, message));
            return None;
        }
    }
    Some(Expr { kind: ExprNode::Aggregate(func, args), ty, span })
}

fn result_type(func: AggFunc, x: &Expr, sink: &mut DiagnosticSink) -> Option<ExprType> {
    let measure = x.ty.is_number() || matches!(x.ty, ExprType::Span | ExprType::Any);
    let ty = match func {
        AggFunc::Count | AggFunc::CountDistinct => Some(ExprType::Int),
        AggFunc::Sum => measure.then_some(if x.ty == ExprType::Any { ExprType::Float } else { x.ty }),
        AggFunc::Avg | AggFunc::Median | AggFunc::Percentile => match x.ty {
            ExprType::Time => Some(ExprType::Time),
            ExprType::Span => Some(ExprType::Span),
            _ => measure.then_some(ExprType::Float),
        },
        AggFunc::Stddev => match x.ty {
            ExprType::Span => Some(ExprType::Span),
            _ => measure.then_some(ExprType::Float),
        },
        AggFunc::Min | AggFunc::Max => {
            (!matches!(x.ty, ExprType::Object | ExprType::Array | ExprType::Null)).then_some(x.ty)
        }
    };
    if ty.is_none() {
        report_mismatch(x, "a number or a span of time", sink);
    }
    ty
}
