//! Facts about stored data that a changed app has to fit.

use std::collections::{BTreeMap, BTreeSet};

use bson::raw::RawDocument;
use tidemill_docs::{Collection, CollectionSpec, DocBytes, IndexSpec, Key, get_path};
use tidemill_rules::catalog::Entity;
use tidemill_types::{Result, Value};
use tidemill_zones::StoredTable;

use super::{DeployedApp, NewApp};
use crate::ingest::key_text;
use crate::node::Node;

/// Facts about stored data, by the names that the old app and the new one use.
#[derive(Debug, Default)]
pub struct StoredData {
    /// Tables of streams.
    pub tables: BTreeMap<String, StoredTable>,
    /// Collections of entities.
    pub collections: BTreeMap<String, StoredCollection>,
}

/// Facts about the stored documents of an entity.
#[derive(Debug, Clone)]
pub struct StoredCollection {
    /// Stored definition of the collection.
    pub spec: CollectionSpec,
    /// Number of documents over all partitions; of one partition if replicated.
    pub documents: u64,
    /// Description of a document whose `_id` is not the value of the entity's key, if there is one.
    pub key_mismatch: Option<String>,
    /// Indexes of the entity that the documents violate: their fields and a reason.
    pub violations: Vec<(Vec<String>, String)>,
}

impl StoredData {
    /// Gathers the facts. `node` must be recovered, drained and flushed.
    ///
    /// Errors: `Corrupt` or `Unavailable` when a table cannot be read.
    pub fn gather(node: &Node, before: &DeployedApp<'_>, after: &NewApp<'_>) -> Result<Self> {
        let streams = |compiled: &crate::queries::compile::CompiledApp| {
            compiled.program.streams().iter().map(|s| s.name.clone()).collect::<BTreeSet<_>>()
        };
        let mut facts = Self::default();
        for name in streams(before.compiled).union(&streams(after.compiled)) {
            if let Some(table) = node.host.runtime.block_on(node.host.zones.stored_table(name))? {
                facts.tables.insert(name.clone(), table);
            }
        }
        let kept = |name: &str| after.compiled.program.entity_key(name).is_some();
        for entity in before.compiled.program.entities().iter().filter(|e| !kept(&e.name)) {
            facts.collect(node, entity, false);
        }
        for entity in after.compiled.program.entities() {
            facts.collect(node, entity, before.compiled.program.entity_key(&entity.name).is_none());
        }
        Ok(facts)
    }

    /// Gathers the facts of `entity`. With `by_hand`, no app has declared the key yet, so the `_id` of all
    /// documents is checked against it.
    fn collect(&mut self, node: &Node, entity: &Entity, by_hand: bool) {
        let wanted = entity.spec();
        let mut found: Option<StoredCollection> = None;
        for partition in node.owned.all() {
            let state = partition.state.read();
            let Some(collection) = state.store.collection(&entity.name) else { continue };
            let facts = found.get_or_insert_with(|| StoredCollection {
                spec: collection.spec().clone(),
                documents: 0,
                key_mismatch: None,
                violations: Vec::new(),
            });
            let replicated = facts.spec.replicated;
            facts.documents += if replicated && facts.documents > 0 { 0 } else { collection.len() as u64 };
            if by_hand && facts.key_mismatch.is_none() {
                facts.key_mismatch = find_key_mismatch(collection, &entity.key);
            }
            for index in wanted.indexes.iter().filter(|i| !facts.spec.indexes.contains(i)) {
                let fields: Vec<String> = index.fields.iter().map(|(field, _)| field.clone()).collect();
                if facts.violations.iter().all(|(known, _)| *known != fields)
                    && let Some(why) = find_index_violation(collection, index)
                {
                    facts.violations.push((fields, why));
                }
            }
        }
        if let Some(found) = found {
            self.collections.insert(entity.name.clone(), found);
        }
    }
}

fn find_key_mismatch(collection: &Collection, key: &str) -> Option<String> {
    collection.iter().find_map(|doc| {
        let raw = RawDocument::from_bytes(doc).ok()?;
        let (id, value) = (get_path(raw, "_id"), get_path(raw, key));
        let differs = !matches!(value, Value::Missing) && Key::of(&id) != Key::of(&value);
        differs.then(|| format!("the document `{}` has the {key} `{}`", key_text(&id), key_text(&value)))
    })
}

fn find_index_violation(collection: &Collection, index: &IndexSpec) -> Option<String> {
    match collection.violation(index) {
        Ok(None) => None,
        Ok(Some((first, second))) => {
            Some(format!("the documents `{}` and `{}` have the same values", id_of(&first), id_of(&second)))
        }
        Err(e) => Some(e.to_string()),
    }
}

fn id_of(doc: &DocBytes) -> String {
    RawDocument::from_bytes(doc)
        .map_or_else(|_| String::new(), |raw| key_text(&get_path(raw, "_id")).into_owned())
}
