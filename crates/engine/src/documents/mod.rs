//! Documents as writes need them: ids, the partitions that they belong to, waiting for outcomes.

pub mod change_stream;
pub mod routing;
pub mod snapshot;
pub mod transaction;
pub mod writes;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bytes::Bytes;
use tidemill_docs::{Collection, CollectionSpec, DocumentCommand, PreparedDocument, get_path, identified};
use tidemill_log::{Durability, Ticket};
use tidemill_types::{Error, Offset, PartitionId, Result, Value, did_you_mean, partition_of_key};

use crate::apply::ApplyReply;
use crate::document_parts::bad_bson;
use crate::document_tables::gathering_partition;
use crate::entry::Entry;
use crate::ingest::key_text;
use crate::node::Node;
use crate::partition::PendingReply;

impl Node {
    /// Appends entries and waits until they are durable and applied.
    pub fn write_and_wait(
        &self,
        entries: Vec<(PartitionId, Entry)>,
        durability: Option<Durability>,
    ) -> Result<Vec<ApplyReply>> {
        self.append_all(entries, durability)?.wait()
    }

    /// Appends entries. Their order in a partition is that of the calls of one thread.
    pub fn append_all(
        &self,
        entries: Vec<(PartitionId, Entry)>,
        durability: Option<Durability>,
    ) -> Result<PendingReplies> {
        let durability = durability.unwrap_or(self.app.deployment.settings.durability);
        self.host.check_disk_space()?;
        let mut replies = Vec::with_capacity(entries.len());
        for (p, entry) in entries {
            replies.push(self.append_for_reply(p, entry, durability)?);
        }
        Ok(PendingReplies::new(replies))
    }

    /// Appends an entry whose reply its owner sends, in this process or in another one.
    ///
    /// Errors: those of [`Self::client`] and of the log.
    pub fn append_for_reply(
        &self,
        partition: PartitionId,
        entry: Entry,
        durability: Durability,
    ) -> Result<(Ticket, PendingReply)> {
        self.client(partition)?.append(entry, durability)
    }

    /// Makes all partitions keep the changes of documents from now on.
    ///
    /// Errors: `Unavailable` when the change log cannot be opened.
    pub fn enable_changes(&self) -> Result<()> {
        if self.host.changes.is_enabled() {
            return Ok(());
        }
        // in a cluster, each replica opens its own when it comes to the record
        if self.cluster.get().is_none() {
            for warning in self.host.changes.open()? {
                tracing::warn!("{warning}");
            }
        }
        let entries = self.host.partition_ids().map(|p| (p, Entry::CollectChanges)).collect();
        self.write_and_wait(entries, Some(Durability::Fsync))?;
        self.catch_up_replicas()?;
        self.host.changes.set_enabled();
        Ok(())
    }

    /// Returns the definition of a collection.
    pub fn collection_spec(&self, name: &str) -> Result<CollectionSpec> {
        self.catch_up_replicas()?;
        let documents = self.definitions()?;
        documents.collection(name).map(|collection| collection.spec().clone()).ok_or_else(|| {
            let hint = did_you_mean(name, documents.collection_names());
            Error::not_found(format!("no collection `{name}`")).with_hint(hint)
        })
    }

    /// Returns the partition of a document, or `None` if every partition has it.
    pub fn partition_of_document(&self, spec: &CollectionSpec, doc: &RawDocument) -> Option<PartitionId> {
        if spec.replicated {
            return None;
        }
        if spec.gathered {
            return Some(self.partition_of_collection(spec));
        }
        let value = get_path(doc, spec.shard_key.as_deref().unwrap_or("_id"));
        Some(self.partition_of_value(&value))
    }

    /// Returns [`Self::partition_of_document`] of a document whose `_id` is known.
    pub fn partition_of_prepared(
        &self,
        spec: &CollectionSpec,
        doc: &PreparedDocument,
    ) -> Result<Option<PartitionId>> {
        if spec.shard_key.is_some() || spec.gathered || spec.replicated {
            let raw = RawDocument::from_bytes(doc.bytes()).map_err(bad_bson)?;
            return Ok(self.partition_of_document(spec, raw));
        }
        Ok(Some(self.partition_of_value(&doc.id())))
    }

    /// Returns the partition of a collection whose documents are all in one.
    pub fn partition_of_collection(&self, spec: &CollectionSpec) -> PartitionId {
        gathering_partition(spec, self.app.deployment.partitions())
    }

    /// Returns the definition of a collection that a write creates.
    pub fn new_collection(&self, name: &str) -> CollectionSpec {
        if let Some(entity) = self.entity_spec(name) {
            return entity.clone();
        }
        let tables = &self.app.deployment.queries.document_tables;
        tables.new_collection(name).unwrap_or_else(|| CollectionSpec::new(name))
    }

    /// Returns the definition of the collection of an entity.
    pub fn entity_spec(&self, name: &str) -> Option<&CollectionSpec> {
        self.app.deployment.program.collections().iter().find(|spec| spec.name == name)
    }

    /// Returns a command as it may change the collections of entities: one that is created again has the place and the indexes that
    /// rules need.
    ///
    /// Errors: `Invalid` if an entity would get another name or another place.
    pub fn with_entity_definition(&self, command: DocumentCommand) -> Result<DocumentCommand> {
        let refused = |name: &str, what: &str| {
            Err(Error::invalid(format!(
                "`{name}` is an entity of the app: {what}; change its declaration in the rules instead"
            )))
        };
        match command {
            DocumentCommand::CreateCollection(spec) => match self.entity_spec(&spec.name) {
                Some(_) if spec.gathered || spec.options.view.is_some() => {
                    refused(&spec.name, "it cannot be a capped collection or a view")
                }
                Some(entity) => Ok(DocumentCommand::CreateCollection(CollectionSpec {
                    shard_key: entity.shard_key.clone(),
                    replicated: entity.replicated,
                    indexes: entity.indexes.clone(),
                    ..spec
                })),
                None => Ok(DocumentCommand::CreateCollection(spec)),
            },
            DocumentCommand::Rename { ref collection, .. } if self.entity_spec(collection).is_some() => {
                refused(collection, "it cannot be renamed")
            }
            DocumentCommand::Rename { ref to, .. } if self.entity_spec(to).is_some() => {
                refused(to, "another collection cannot take its name")
            }
            DocumentCommand::Modify { ref collection, ref change }
                if change.capped.is_some() && self.entity_spec(collection).is_some() =>
            {
                refused(collection, "it cannot be a capped collection")
            }
            other => Ok(other),
        }
    }

    /// Returns the partition of a shard key's value.
    pub fn partition_of_value(&self, value: &Value<'_>) -> PartitionId {
        partition_of_key(key_text(value).as_bytes(), self.app.deployment.partitions())
    }

    /// Returns the document with an `_id`: its own, the entity's key, or a new ObjectId. A document of an entity gets its key
    /// from its `_id` if it has none.
    pub fn with_id(&self, collection: &str, doc: &RawDocument) -> Result<RawDocumentBuf> {
        let bytes = Bytes::copy_from_slice(doc.as_bytes());
        let prepared = PreparedDocument::new(bytes, self.entity_key(collection));
        RawDocumentBuf::from_bytes(prepared.into_bytes().into()).map_err(bad_bson)
    }

    /// Returns the field whose value is the `_id` of the documents of a collection; `None` if it is not an
    /// entity, or `_id` itself is the key.
    pub fn entity_key(&self, collection: &str) -> Option<&str> {
        self.app.deployment.program.entity_key(collection).filter(|key| *key != "_id")
    }

    /// Returns for each entity with documents whose `_id` is not their key how many there are in own partitions, and what to do. They were stored by
    /// a version that allowed it, or before the collection was declared as an entity.
    pub fn contradicting_documents(&self) -> Vec<String> {
        let views: Vec<_> = self.owned.all().iter().map(|partition| partition.view()).collect();
        let of_entity = |entity: &CollectionSpec| {
            let key = self.entity_key(&entity.name)?;
            let parts = views.iter().filter_map(|view| view.documents.collection(&entity.name));
            let places = if entity.replicated { 1 } else { views.len() };
            let count: u64 = parts.take(places).map(Collection::contradictions).sum();
            (count > 0).then(|| {
                format!(
                    "documents: entity {name} has {count} with an _id that is not the key `{key}`, which rules do not find by \
                     their key: list them with db.getCollection('{name}').find({{$expr: {{$ne: ['$_id', '${key}']}}}}), \
                     insert each again with its key as _id, and delete the old one",
                    name = entity.name
                )
            })
        };
        self.app.deployment.program.collections().iter().filter_map(of_entity).collect()
    }

    /// Returns a document that is to be loaded, with `_id` and key.
    ///
    /// Errors: `Invalid` if they contradict each other.
    pub fn with_checked_id(&self, collection: &str, doc: &RawDocument) -> Result<RawDocumentBuf> {
        if let Some(key) = self.entity_key(collection) {
            identified(doc.as_bytes(), key, collection)?;
        }
        self.with_id(collection, doc)
    }
}

/// Returns the document with another field in front.
pub fn with_field(name: &str, value: RawBsonRef<'_>, doc: &RawDocument) -> Result<RawDocumentBuf> {
    let mut out = RawDocumentBuf::new();
    out.append(bson::raw::CString::try_from(name.to_owned()).map_err(bad_bson)?, value);
    for element in doc {
        let (name, value) = element.map_err(bad_bson)?;
        out.append(name, value);
    }
    Ok(out)
}

/// Replies to appended entries, which come when the entries are durable and applied.
pub struct PendingReplies(Vec<(Option<Ticket>, PendingReply)>);

impl PendingReplies {
    /// Creates the replies to entries, each with the ticket of its append.
    pub fn new(entries: Vec<(Ticket, PendingReply)>) -> Self {
        Self(entries.into_iter().map(|(ticket, reply)| (Some(ticket), reply)).collect())
    }

    /// Creates the replies to parts of a transaction, which a partition appends.
    pub fn of_parts(replies: Vec<PendingReply>) -> Self {
        Self(replies.into_iter().map(|reply| (None, reply)).collect())
    }

    /// Waits for the replies, in the order of the entries.
    ///
    /// Errors: that of the first entry that could not be appended or applied; `Unavailable` when the engine stops.
    pub fn wait(self) -> Result<Vec<ApplyReply>> {
        let reply = |(ticket, reply): (Option<Ticket>, PendingReply)| {
            // a failed append has a better reason to give than the missing answer
            let receipt = ticket.map(Ticket::wait_assigned).transpose()?;
            reply.wait(receipt.map_or(Offset(0), |receipt| receipt.offset))
        };
        self.0.into_iter().map(reply).collect()
    }
}
