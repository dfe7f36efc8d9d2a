//! Declarations: events, entities, relations.

use std::collections::HashMap;
use std::sync::Arc;

use tidemill_lang::diagnostic::DiagnosticSink;
use tidemill_lang::rules::ast::{EntityDecl, EventDecl, Ident, Item, Module, RelationDecl};
use tidemill_lang::{Diagnostic, Span};
use tidemill_types::{Field, FieldType, StreamSchema, did_you_mean};

use super::codes;
use super::locality;
use crate::catalog::{Entity, Index, Relation, RelationOwner, RuleCatalog};

/// Collects the declarations of all files, and the streams of `given` that the files do not declare.
/// Erroneous declarations are reported and left out.
pub(crate) fn declare(
    modules: &[Module],
    given: &[Arc<StreamSchema>],
    sink: &mut DiagnosticSink,
) -> RuleCatalog {
    let mut catalog = RuleCatalog::default();
    unique_names(modules, sink);
    let items = || modules.iter().flat_map(|m| &m.items);
    for item in items() {
        match item {
            Item::Event(decl) if catalog.stream(&decl.name.name).is_none() => event(decl, &mut catalog, sink),
            Item::Entity(decl) if catalog.entity(&decl.name.name).is_none() => {
                entity(decl, &mut catalog, sink)
            }
            _ => {}
        }
    }
    for stream in given {
        if let Some(entity) = catalog.entity(&stream.name) {
            let message =
                format!("the name `{}` is already taken by a stream that a query defines", stream.name);
            let span = catalog.entities[entity].span;
            sink.push(Diagnostic::error(codes::DUPLICATE, span, message).help("choose another name"));
        }
        if catalog.stream(&stream.name).is_none() {
            catalog.streams.push(stream.clone());
            catalog.stream_spans.push(None);
        }
    }
    for item in items() {
        match item {
            Item::Event(decl) => {
                let Some(stream) = catalog.stream(&decl.name.name) else { continue };
                for inner in &decl.relations {
                    relation(inner, Some(RelationOwner::Stream(stream)), &mut catalog, sink);
                }
            }
            Item::Relation(decl) => relation(decl, None, &mut catalog, sink),
            _ => {}
        }
    }
    catalog
}

/// Reports duplicate names. Streams and entities share one namespace, because both are tables; rules have
/// their own.
fn unique_names(modules: &[Module], sink: &mut DiagnosticSink) {
    let mut seen: HashMap<(bool, &str), Span> = HashMap::new();
    for item in modules.iter().flat_map(|m| &m.items) {
        let is_rule = match item {
            Item::Event(_) | Item::Entity(_) => false,
            Item::Rule(_) | Item::Aggregate(_) => true,
            Item::Relation(_) => continue,
        };
        let name = item.name();
        if let Some(first) = seen.get(&(is_rule, name.name.as_str())) {
            let what = if is_rule { "rule" } else { "event or entity" };
            sink.push(
                Diagnostic::error(codes::DUPLICATE, name.span, format!("duplicate {what} `{}`", name.name))
                    .help("choose another name")
                    .note_at(*first, "the first one is here"),
            );
        } else {
            seen.insert((is_rule, &name.name), name.span);
        }
        if !is_rule && name.name.starts_with("system.") {
            let message = format!("`{}` is reserved: names must not begin with `system.`", name.name);
            sink.push(Diagnostic::error(codes::RESERVED, name.span, message).help("choose another name"));
        }
    }
}

fn event(decl: &EventDecl, catalog: &mut RuleCatalog, sink: &mut DiagnosticSink) {
    let mut fields: Vec<Field> = Vec::with_capacity(decl.fields.len());
    for field in &decl.fields {
        if field.name.name.starts_with('_') {
            let message = format!("`{}` is reserved: field names must not begin with `_`", field.name.name);
            sink.push(
                Diagnostic::error(codes::RESERVED, field.name.span, message).help("choose another name"),
            );
        }
        if !fields.iter().any(|f| f.name == field.name.name) {
            fields.push(Field { unit: field.ty.unit, ..Field::new(field.name.name.clone(), field.ty.ty) });
        }
    }
    let find = |name: &Ident, clause: &str, sink: &mut DiagnosticSink| {
        let found = fields.iter().position(|f| f.name == name.name);
        if found.is_none() {
            let known: Vec<&str> = fields.iter().map(|f| f.name.as_str()).collect();
            let hint = did_you_mean(&name.name, known);
            let message = format!(
                "`{clause}` names the field `{}`, which {} does not declare{hint}",
                name.name, decl.name.name
            );
            sink.push(Diagnostic::error(codes::UNKNOWN_FIELD, name.span, message));
        }
        found
    };
    let key = decl.key.as_ref().and_then(|k| find(k, "key", sink));
    let time = decl.time.as_ref().and_then(|t| find(t, "time", sink));
    let mut id = Vec::new();
    for name in &decl.id {
        match find(name, "id", sink) {
            Some(position) if id.contains(&position) => {
                let message = format!("duplicate field `{}` in `id`", name.name);
                sink.push(Diagnostic::error(codes::DUPLICATE, name.span, message));
            }
            Some(position) => id.push(position),
            None => {}
        }
    }
    if let (Some(position), Some(name)) = (time, &decl.time)
        && fields[position].ty != FieldType::Time
    {
        let message =
            format!("`time` needs a field of type `time`; `{}` is `{}`", name.name, fields[position].ty);
        sink.push(
            Diagnostic::error(codes::TYPE, name.span, message).help(format!("declare `{}: time`", name.name)),
        );
    }
    if let (Some(position), Some(name)) = (key, &decl.key)
        && fields[position].ty == FieldType::Object
    {
        let message = format!("a key must be a single value; `{}` is `object`", name.name);
        sink.push(Diagnostic::error(codes::TYPE, name.span, message));
    }
    if let (Some(position), Some(first)) = (key, decl.id.first())
        && !id.contains(&position)
    {
        sink.push(unique_by_key(decl, &fields[position].name, first.span));
    }
    let schema = StreamSchema { name: decl.name.name.clone(), fields, key, id, time };
    catalog.streams.push(Arc::new(schema));
    catalog.stream_spans.push(Some(decl.name.span));
}

/// Warns about an `id` without the key: ids are compared within a partition, so events with different keys
/// are both kept.
fn unique_by_key(decl: &EventDecl, key: &str, span: Span) -> Diagnostic {
    let id: Vec<&str> = decl.id.iter().map(|name| name.name.as_str()).collect();
    let id = id.join(", ");
    let message = format!(
        "two {} events with the same `{id}` and different `{key}` are in different partitions, so both are kept",
        decl.name.name
    );
    let both = format!("if events are unique by both, write `id {key}, {id}`");
    let help = match decl.id.len() {
        1 => format!("{both}; if they are unique by `{id}` alone, write `key {id}`"),
        _ => both,
    };
    Diagnostic::warning(codes::UNIQUE_BY_KEY, span, message).help(help)
}

fn entity(decl: &EntityDecl, catalog: &mut RuleCatalog, sink: &mut DiagnosticSink) {
    let mut indexes: Vec<Index> = Vec::new();
    for index in &decl.indexes {
        let index_decl =
            Index { fields: index.fields.iter().map(|p| p.dotted()).collect(), unique: index.unique };
        if indexes.iter().any(|i| i.fields == index_decl.fields) {
            let message = format!("duplicate index on ({})", index_decl.fields.join(", "));
            sink.push(Diagnostic::error(codes::DUPLICATE, index.span, message));
        } else {
            indexes.push(index_decl);
        }
    }
    for name in [Some(&decl.key), decl.shard.as_ref()].into_iter().flatten() {
        if name.name.contains(['.', '\0']) || name.name.starts_with('$') {
            let message = format!(
                "`{}` cannot be the name of a key: expected a field without `.`, `$` and NUL",
                name.name
            );
            sink.push(Diagnostic::error(codes::RESERVED, name.span, message));
        }
    }
    if let (Some(shard), Some(_)) = (&decl.shard, decl.replicated) {
        let message = format!(
            "`{}` is replicated: every partition has a copy, so it cannot have a `shard`",
            decl.name.name
        );
        sink.push(
            Diagnostic::error(codes::REPLICATED, shard.span, message).help("remove `shard` or `replicated`"),
        );
    }
    catalog.entities.push(Entity {
        name: decl.name.name.clone(),
        key: decl.key.name.clone(),
        shard: decl.shard.as_ref().unwrap_or(&decl.key).name.clone(),
        replicated: decl.replicated.is_some(),
        indexes,
        span: decl.name.span,
    });
}

fn relation(
    decl: &RelationDecl,
    body: Option<RelationOwner>,
    catalog: &mut RuleCatalog,
    sink: &mut DiagnosticSink,
) {
    let Some(target) = catalog.entity(&decl.target.name) else {
        let hint = did_you_mean(&decl.target.name, catalog.entity_names());
        let message = format!(
            "relation `{}` leads to `{}`, which is not an entity{hint}",
            decl.name.name, decl.target.name
        );
        sink.push(Diagnostic::error(codes::UNKNOWN_ENTITY, decl.target.span, message));
        return;
    };
    let on = decl.on.as_ref().map_or_else(|| catalog.entities[target].key.clone(), |f| f.name.clone());
    let explicit = decl.owner.is_some() || body.is_some();
    let mut elsewhere = Vec::new();
    let mut declared = 0;
    for owner in owners(decl, body, catalog, sink) {
        if let Some(first) = catalog.relation(owner, &decl.name.name) {
            let message =
                format!("duplicate relation `{}` of `{}`", decl.name.name, owner_name(catalog, owner));
            let first = first.span;
            sink.push(
                Diagnostic::error(codes::DUPLICATE, decl.name.span, message)
                    .note_at(first, "the first one is here"),
            );
            continue;
        }
        let relation = Relation {
            owner,
            name: decl.name.name.clone(),
            target,
            by: decl.by.name.clone(),
            on: on.clone(),
            explicit,
            span: decl.name.span,
        };
        if let RelationOwner::Stream(stream) = owner
            && let Err(why) = locality::relation(catalog, &relation, stream)
        {
            elsewhere.push(why);
        }
        catalog.relations.push(relation);
        declared += 1;
    }
    // without an explicit owner the relation must be local for one stream; its use in rules of another is an
    // error there
    if elsewhere.len() == declared
        && let Some(why) = elsewhere.first()
    {
        sink.push(why.diagnostic(decl.span, catalog));
    }
    let entity = &catalog.entities[target];
    if on != entity.key && entity.index_on(&on).is_none() {
        sink.push(locality::unindexed_warning(decl.span, entity, &on));
    }
}

pub(crate) fn owner_name(catalog: &RuleCatalog, owner: RelationOwner) -> &str {
    match owner {
        RelationOwner::Stream(s) => &catalog.streams[s].name,
        RelationOwner::Entity(e) => &catalog.entities[e].name,
    }
}

/// Returns the streams or the entity that a relation belongs to. Reports an error and returns none if nothing
/// can have it.
fn owners(
    decl: &RelationDecl,
    body: Option<RelationOwner>,
    catalog: &RuleCatalog,
    sink: &mut DiagnosticSink,
) -> Vec<RelationOwner> {
    let by = decl.by.name.as_str();
    let explicit = match (&decl.owner, body) {
        (_, Some(owner)) => Some(owner),
        (Some(name), None) => {
            let found = catalog.stream(&name.name).map(RelationOwner::Stream);
            let found = found.or_else(|| catalog.entity(&name.name).map(RelationOwner::Entity));
            if found.is_none() {
                let mut known = catalog.stream_names();
                known.extend(catalog.entity_names());
                let message = format!(
                    "`{}` is neither an event nor an entity{}",
                    name.name,
                    did_you_mean(&name.name, known)
                );
                sink.push(Diagnostic::error(codes::UNKNOWN_NAME, name.span, message));
                return vec![];
            }
            found
        }
        (None, None) => None,
    };
    match explicit {
        Some(RelationOwner::Stream(stream)) => match catalog.streams[stream].require_field(by) {
            Ok(_) => vec![RelationOwner::Stream(stream)],
            Err(error) => {
                sink.push(Diagnostic::error(codes::UNKNOWN_FIELD, decl.by.span, error.message().to_owned()));
                vec![]
            }
        },
        Some(owner) => vec![owner],
        None => {
            let having: Vec<RelationOwner> = (0..catalog.streams.len())
                .filter(|s| catalog.streams[*s].field_index(by).is_some())
                .map(RelationOwner::Stream)
                .collect();
            if having.is_empty() {
                let mut known: Vec<&str> =
                    catalog.streams.iter().flat_map(|s| &s.fields).map(|f| f.name.as_str()).collect();
                known.sort_unstable();
                known.dedup();
                let message = format!("no event has the field `{by}`{}", did_you_mean(by, known));
                sink.push(Diagnostic::error(codes::UNKNOWN_FIELD, decl.by.span, message).help(
                    "for a relation of an entity, write its name before the relation: `relation Flight.plane(): …`",
                ));
            }
            having
        }
    }
}
