//! Documents as writes need them: ids, the partitions that they belong to, waiting for outcomes.

use bson::raw::{RawDocument, RawDocumentBuf};
use crossbeam_channel::Receiver;
use tidemill_docs::{CollectionSpec, get_path};
use tidemill_log::{Durability, Ticket};
use tidemill_types::{Error, PartitionId, Result, Value, partition_of_key};

use crate::apply::ApplyReply;
use crate::core::Core;
use crate::document_snapshot::DocumentSnapshot;
use crate::document_tables::gathering_partition;
use crate::entry::Entry;
use crate::ingest::key_text;

impl Core {
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
        let durability = durability.unwrap_or(self.deployment.settings.durability);
        self.check_disk_space()?;
        let mut replies = Vec::with_capacity(entries.len());
        for (p, entry) in entries {
            let (sender, receiver) = crossbeam_channel::bounded(1);
            let ticket = self.partitions()[p.0 as usize].append(self, entry, durability, Some(sender))?;
            replies.push((ticket, receiver));
        }
        Ok(PendingReplies(replies))
    }

    /// Makes all partitions keep the changes of documents from now on.
    ///
    /// Errors: `Unavailable` when the change log cannot be opened.
    pub fn enable_changes(&self) -> Result<()> {
        if self.changes.is_enabled() {
            return Ok(());
        }
        for warning in self.changes.open()? {
            tracing::warn!("{warning}");
        }
        let entries = self.partitions().iter().map(|p| (p.id, Entry::CollectChanges));
        self.write_and_wait(entries.collect(), Some(Durability::Fsync))?;
        self.changes.set_enabled();
        Ok(())
    }

    /// Returns the definition of a collection.
    pub fn collection_spec(&self, name: &str) -> Result<CollectionSpec> {
        DocumentSnapshot::now(self).spec(name).cloned()
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

    /// Returns the partition of a collection whose documents are all in one.
    pub fn partition_of_collection(&self, spec: &CollectionSpec) -> PartitionId {
        gathering_partition(spec, self.deployment.partitions())
    }

    /// Returns the definition of a collection that a write creates.
    pub fn new_collection(&self, name: &str) -> CollectionSpec {
        let tables = &self.deployment.queries.document_tables;
        tables.new_collection(name).unwrap_or_else(|| CollectionSpec::new(name))
    }

    /// Returns the partition of a shard key's value.
    pub fn partition_of_value(&self, value: &Value<'_>) -> PartitionId {
        partition_of_key(key_text(value).as_bytes(), self.deployment.partitions())
    }

    /// Returns the document with an `_id`: its own, the entity's key, or a new ObjectId.
    pub fn with_id(&self, collection: &str, doc: &RawDocument) -> Result<RawDocumentBuf> {
        if !matches!(get_path(doc, "_id"), Value::Missing) {
            return Ok(doc.to_owned());
        }
        let key = self.deployment.program.entity_key(collection).and_then(|key| doc.get(key).ok().flatten());
        let mut with_id = RawDocumentBuf::new();
        match key {
            Some(value) => with_id.append(bson::cstr!("_id"), value),
            None => with_id.append(bson::cstr!("_id"), bson::oid::ObjectId::new()),
        }
        for element in doc {
            let (name, value) = element.map_err(bad_bson)?;
            with_id.append(name, value);
        }
        Ok(with_id)
    }
}

/// Replies to appended entries, which come when the entries are durable and applied.
pub struct PendingReplies(Vec<(Ticket, Receiver<Result<ApplyReply>>)>);

impl PendingReplies {
    /// Waits for the replies, in the order of the entries.
    ///
    /// Errors: that of the first entry that could not be appended or applied; `Unavailable` when the engine stops.
    pub fn wait(self) -> Result<Vec<ApplyReply>> {
        let reply = |(ticket, receiver): (Ticket, Receiver<Result<ApplyReply>>)| {
            // a failed append has a better reason to give than the missing answer
            ticket.wait_assigned()?;
            receiver
                .recv()
                .unwrap_or_else(|_| Err(Error::unavailable("the engine stopped before it answered")))
        };
        self.0.into_iter().map(reply).collect()
    }
}

/// Returns the error of bytes that are no BSON document.
pub fn bad_bson(e: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::invalid("not a BSON document").with_source(e)
}
