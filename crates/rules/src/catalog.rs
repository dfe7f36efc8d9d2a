//! What an app declares: streams, entities, relations.

use std::sync::Arc;

use tidemill_docs::{CollectionSpec, Direction, IndexSpec};
use tidemill_lang::Span;
use tidemill_types::StreamSchema;

/// All declarations of an app, names resolved.
#[derive(Debug, Clone, Default)]
pub struct Catalog {
    /// Streams in order of declaration; rules know them by position.
    pub streams: Vec<Arc<StreamSchema>>,
    /// Where each stream is declared; none for one that the rules of an app do not declare themselves.
    pub stream_spans: Vec<Option<Span>>,
    /// Entities in order of declaration; rules know them by position.
    pub entities: Vec<Entity>,
    /// Relations; one that belongs to several events is here for each of them.
    pub relations: Vec<Relation>,
}

/// An entity: a collection of documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    /// Its name, also that of the collection.
    pub name: String,
    /// The field whose value is the document's `_id`.
    pub key: String,
    /// The field whose value picks the partition.
    pub shard: String,
    /// Whether every partition holds all documents.
    pub replicated: bool,
    /// Indexed paths of each index.
    pub indexes: Vec<Index>,
    /// Where it is declared.
    pub span: Span,
}

/// An index of an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Dotted paths in order.
    pub fields: Vec<String>,
    /// Whether two documents must not have the same values.
    pub unique: bool,
}

impl Index {
    /// Its name, made as MongoDB makes it: `origin_1_hour_1`.
    pub fn name(&self) -> String {
        let parts: Vec<String> = self.fields.iter().map(|f| format!("{f}_1")).collect();
        parts.join("_")
    }
}

impl Entity {
    /// The definition for the document store.
    pub fn spec(&self) -> CollectionSpec {
        let indexes = self.indexes.iter().map(|index| IndexSpec {
            name: index.name(),
            fields: index.fields.iter().map(|f| (f.clone(), Direction::Ascending)).collect(),
            unique: index.unique,
        });
        CollectionSpec {
            shard_key: (self.shard != self.key).then(|| self.shard.clone()),
            replicated: self.replicated,
            indexes: indexes.collect(),
            ..CollectionSpec::new(self.name.clone())
        }
    }

    /// The first index that begins with `field`.
    pub fn index_on(&self, field: &str) -> Option<&Index> {
        self.indexes.iter().find(|i| i.fields.first().is_some_and(|f| f == field))
    }
}

/// Who has a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelationOwner {
    /// Events of this stream.
    Stream(usize),
    /// Documents of this entity.
    Entity(usize),
}

/// A relation from an event or a document to the documents of an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// Who has it.
    pub owner: RelationOwner,
    /// Its name.
    pub name: String,
    /// The entity it leads to.
    pub target: usize,
    /// The owner's field.
    pub by: String,
    /// The target's field.
    pub on: String,
    /// Whether the declaration names its owner. Otherwise it belongs to every event with the field `by`, and some of
    /// those may lie elsewhere than the target.
    pub explicit: bool,
    /// Where it is declared.
    pub span: Span,
}

impl Catalog {
    /// Position of the stream `name`.
    pub fn stream(&self, name: &str) -> Option<usize> {
        self.streams.iter().position(|s| s.name == name)
    }

    /// Position of the entity `name`.
    pub fn entity(&self, name: &str) -> Option<usize> {
        self.entities.iter().position(|e| e.name == name)
    }

    /// The relation `name` of `owner`.
    pub fn relation(&self, owner: RelationOwner, name: &str) -> Option<&Relation> {
        self.relations.iter().find(|r| r.owner == owner && r.name == name)
    }

    /// Names of the streams.
    pub fn stream_names(&self) -> Vec<&str> {
        self.streams.iter().map(|s| s.name.as_str()).collect()
    }

    /// Names of the entities.
    pub fn entity_names(&self) -> Vec<&str> {
        self.entities.iter().map(|e| e.name.as_str()).collect()
    }

    /// Names of the relations of `owner`.
    pub fn relation_names(&self, owner: RelationOwner) -> Vec<&str> {
        self.relations.iter().filter(|r| r.owner == owner).map(|r| r.name.as_str()).collect()
    }

    /// The name of the key field of a stream.
    pub fn key_name(&self, stream: usize) -> Option<&str> {
        let schema = &self.streams[stream];
        schema.key.map(|k| schema.fields[k].name.as_str())
    }
}
