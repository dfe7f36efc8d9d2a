//! Declarations of an app: streams, entities, relations.

use std::sync::Arc;

use tidemill_docs::{CollectionSpec, Direction, IndexSpec};
use tidemill_lang::Span;
use tidemill_types::StreamSchema;

/// All declarations of an app, with names resolved.
#[derive(Debug, Clone, Default)]
pub struct RuleCatalog {
    /// Streams in order of declaration; rules refer to them by index.
    pub streams: Vec<Arc<StreamSchema>>,
    /// Span of each stream's declaration; `None` for a stream that the app's rule files do not declare.
    pub stream_spans: Vec<Option<Span>>,
    /// Entities in order of declaration; rules refer to them by index.
    pub entities: Vec<Entity>,
    /// Relations; one that belongs to several streams is listed once for each.
    pub relations: Vec<Relation>,
}

/// An entity: a collection of documents as an app declares it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entity {
    /// Name of the entity and of its collection.
    pub name: String,
    /// Field whose value is the document's `_id`.
    pub key: String,
    /// Field whose value decides which partition a document belongs to.
    pub shard: String,
    /// True if every partition has a copy of all documents.
    pub replicated: bool,
    /// Declared indexes.
    pub indexes: Vec<Index>,
    /// Span of the declaration.
    pub span: Span,
}

/// An index of an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Index {
    /// Indexed dotted paths, in order.
    pub fields: Vec<String>,
    /// True if two documents must not have equal values in `fields`.
    pub unique: bool,
}

impl Index {
    /// Returns the name that MongoDB would give the index, for example `origin_1_hour_1`.
    pub fn name(&self) -> String {
        let parts: Vec<String> = self.fields.iter().map(|f| format!("{f}_1")).collect();
        parts.join("_")
    }
}

impl Entity {
    /// Returns the collection definition for the document store.
    pub fn spec(&self) -> CollectionSpec {
        let indexes = self.indexes.iter().map(|index| IndexSpec {
            name: index.name(),
            fields: index.fields.iter().map(|f| (f.clone(), Direction::Ascending)).collect(),
            unique: index.unique,
            ..IndexSpec::default()
        });
        CollectionSpec {
            shard_key: (self.shard != self.key).then(|| self.shard.clone()),
            replicated: self.replicated,
            indexes: indexes.collect(),
            ..CollectionSpec::new(self.name.clone())
        }
    }

    /// Returns the first index whose leading field is `field`.
    pub fn index_on(&self, field: &str) -> Option<&Index> {
        self.indexes.iter().find(|i| i.fields.first().is_some_and(|f| f == field))
    }
}

/// The owner of a relation: the events or documents that it starts from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelationOwner {
    /// Events of the stream with this index.
    Stream(usize),
    /// Documents of the entity with this index.
    Entity(usize),
}

/// A relation from an event or a document to the documents of an entity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Relation {
    /// The events or documents that have the relation.
    pub owner: RelationOwner,
    /// Name, unique per owner.
    pub name: String,
    /// Index of the entity that the relation leads to.
    pub target: usize,
    /// Field of the owner.
    pub by: String,
    /// Field of the target whose value equals that of `by`.
    pub on: String,
    /// True if the declaration names its owner. Otherwise the relation belongs to every event with the field
    /// `by`, and some of those events may be in another partition than the target.
    pub explicit: bool,
    /// Span of the declaration.
    pub span: Span,
}

impl RuleCatalog {
    /// Returns the index of the stream `name`.
    pub fn stream(&self, name: &str) -> Option<usize> {
        self.streams.iter().position(|s| s.name == name)
    }

    /// Returns the index of the entity `name`.
    pub fn entity(&self, name: &str) -> Option<usize> {
        self.entities.iter().position(|e| e.name == name)
    }

    /// Returns the relation `name` of `owner`.
    pub fn relation(&self, owner: RelationOwner, name: &str) -> Option<&Relation> {
        self.relations.iter().find(|r| r.owner == owner && r.name == name)
    }

    /// Returns the names of all streams.
    pub fn stream_names(&self) -> Vec<&str> {
        self.streams.iter().map(|s| s.name.as_str()).collect()
    }

    /// Returns the names of all entities.
    pub fn entity_names(&self) -> Vec<&str> {
        self.entities.iter().map(|e| e.name.as_str()).collect()
    }

    /// Returns the names of the relations of `owner`.
    pub fn relation_names(&self, owner: RelationOwner) -> Vec<&str> {
        self.relations.iter().filter(|r| r.owner == owner).map(|r| r.name.as_str()).collect()
    }

    /// Returns the name of the key field of a stream, if it has a key.
    pub fn key_name(&self, stream: usize) -> Option<&str> {
        let schema = &self.streams[stream];
        schema.key.map(|k| schema.fields[k].name.as_str())
    }
}
