//! Locality: checks that the documents a rule looks up are in the partition in which it runs.
//!
//! A rule runs in the partition that its event's key decides. It sees the documents of that partition and
//! replicated ones. A relation of an event is therefore local when
//!
//! - its entity is `replicated`; or
//! - it leads from the event's key (`by`) to the entity's shard field (`on`); or
//! - the event's key and the entity's shard field have equal names. With that the app promises that an event
//!   and its related documents have equal values in this field.
//!
//! For a relation of a document, the shard field of its entity takes the role of the event's key. Documents
//! that a condition finds by their fields are also local when it requires that the shard field equals the
//! event's key.

use tidemill_lang::{Diagnostic, Span};

use super::codes;
use crate::catalog::{Entity, Relation, RelationOwner, RuleCatalog};

/// A lookup of documents that may be in another partition.
pub(crate) struct LocalityError {
    /// Subject of the message: the relation or condition.
    what: String,
    entity: usize,
    stream: usize,
}

/// Checks that `relation` is local in rules on events of `stream`.
pub(crate) fn relation(
    catalog: &RuleCatalog,
    relation: &Relation,
    stream: usize,
) -> Result<(), LocalityError> {
    let target = &catalog.entities[relation.target];
    if target.replicated || key_is_shard(catalog, stream, target) {
        return Ok(());
    }
    let key = match relation.owner {
        RelationOwner::Stream(s) => catalog.key_name(s),
        RelationOwner::Entity(e) if catalog.entities[e].replicated => None,
        RelationOwner::Entity(e) => Some(catalog.entities[e].shard.as_str()),
    };
    let direct = key.is_some_and(|k| (k == relation.by && relation.on == target.shard) || k == target.shard);
    if direct {
        return Ok(());
    }
    Err(LocalityError { what: format!("relation `{}`", relation.name), entity: relation.target, stream })
}

/// Returns whether the key of `stream` and the shard field of `entity` have equal names.
pub(crate) fn key_is_shard(catalog: &RuleCatalog, stream: usize, entity: &Entity) -> bool {
    catalog.key_name(stream) == Some(entity.shard.as_str())
}

/// Creates the error for a condition on documents of `entity`, which may be in any partition.
pub(crate) fn not_local_condition(entity: usize, stream: usize, catalog: &RuleCatalog) -> LocalityError {
    LocalityError { what: format!("a condition on `{}`", catalog.entities[entity].name), entity, stream }
}

impl LocalityError {
    /// Builds the report, with a proposal for the declaration.
    pub(crate) fn diagnostic(&self, span: Span, catalog: &RuleCatalog) -> Diagnostic {
        let entity = &catalog.entities[self.entity];
        let stream = &catalog.streams[self.stream];
        let (name, shard) = (&entity.name, &entity.shard);
        let Some(key) = catalog.key_name(self.stream) else {
            let message = format!(
                "{} cannot be local: {} has no key, so its events may be in another partition than the {name} documents",
                self.what, stream.name
            );
            let help = format!("add `key FIELD` to event {}, or `replicated` to entity {name}", stream.name);
            return Diagnostic::error(codes::NOT_LOCAL, span, message).help(help);
        };
        let message = format!(
            "{} cannot be local: {} events are in the partition of their `{key}`, {name} documents in the partition of their `{shard}`",
            self.what, stream.name
        );
        Diagnostic::error(codes::NOT_LOCAL, span, message)
            .help(format!(
                "add `shard {key}` to entity {name} if its documents have that field, or `replicated` if they are needed everywhere"
            ))
            .note_at(entity.span, format!("entity {name} is declared here"))
    }
}

/// Builds the warning that a lookup scans all documents.
pub(crate) fn unindexed_warning(span: Span, entity: &Entity, field: &str) -> Diagnostic {
    let message = format!("this reads every {} document: there is no index on `{field}`", entity.name);
    Diagnostic::warning(codes::NO_INDEX, span, message)
        .help(format!("add `index {field}` to entity {}", entity.name))
}
