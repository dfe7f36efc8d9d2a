//! Document reads and writes of callers: ids, routing to partitions, and merging of replies.

use bson::Bson;
use bson::raw::RawDocument;
use tidemill_docs::{
    Collation, Collection, CollectionSpec, CommandOutcome, DocBytes, DocumentCommand, FindOptions, ViewSpec,
    get_path,
};
use tidemill_log::Durability;
use tidemill_types::{Result, Timestamp};

use super::{DocumentCollection, Engine};
use crate::api::CollectionInfo;
use crate::commit::SessionWrite;
use crate::document_parts::bad_bson;
use crate::documents::change_stream::{ChangeScope, ChangeStart, ChangeStream};
use crate::documents::snapshot::DocumentSnapshot;
use crate::documents::transaction::Transaction;
use crate::documents::writes::DocumentWrite;
use crate::partition::CollectionSize;
use crate::state::view::PartitionView;

impl Engine {
    /// Returns the names of the collections, in order.
    ///
    /// Errors: `Unavailable` while no partition can be asked.
    pub fn collection_names(&self) -> Result<Vec<String>> {
        Ok(self.node.definitions()?.collection_names().map(str::to_owned).collect())
    }

    /// Returns the collections over all partitions, by name.
    ///
    /// Errors: `Unavailable` while a partition cannot be asked.
    pub fn collections(&self) -> Result<Vec<CollectionInfo>> {
        let node = &self.node;
        let mut all: std::collections::BTreeMap<String, CollectionInfo> = std::collections::BTreeMap::new();
        for partition in node.progress()? {
            for CollectionSize { name, replicated, documents, bytes } in partition.collections {
                let info = all.entry(name.clone()).or_insert_with(|| CollectionInfo {
                    documents: 0,
                    bytes: 0,
                    replicated,
                    key: node.app.deployment.program.entity_key(&name).map(str::to_owned),
                    name,
                });
                if replicated {
                    info.documents = info.documents.max(documents);
                    info.bytes = info.bytes.max(bytes);
                } else {
                    info.documents += documents;
                    info.bytes += bytes;
                }
            }
        }
        Ok(all.into_values().collect())
    }

    /// Returns the number of partitions of the data directory, over which documents are spread.
    pub fn partitions(&self) -> usize {
        self.node.host.partitions()
    }

    /// Returns the field whose value is the `_id` of the documents of an entity; `None` for other collections, and if `_id` is the key.
    pub fn entity_key(&self, collection: &str) -> Option<&str> {
        self.node.entity_key(collection)
    }

    /// Returns the definition of a collection, with its indexes.
    ///
    /// Errors: `NotFound` for an unknown collection.
    pub fn collection_spec(&self, name: &str) -> Result<CollectionSpec> {
        self.node.collection_spec(name)
    }

    /// Returns the definition of the view of that name; `None` for a collection or an unknown name.
    ///
    /// Errors: `Unavailable` while no partition can be asked.
    pub fn view(&self, name: &str) -> Result<Option<ViewSpec>> {
        let documents = self.node.definitions()?;
        Ok(documents.collection(name).and_then(|collection| collection.spec().options.view.clone()))
    }

    /// Returns the collation of a collection; `None` for the order of bytes, or if the collection does not
    /// exist.
    ///
    /// Errors: `Unavailable` while no partition can be asked.
    pub fn collation(&self, name: &str) -> Result<Option<Collation>> {
        Ok(self.node.definitions()?.collection(name).and_then(Collection::collation).cloned())
    }

    /// Returns all documents of a collection, or `None` if it does not exist. Returns handles; nothing is
    /// copied.
    ///
    /// Errors: `Unavailable` while a partition cannot be asked.
    pub fn collection_documents(&self, name: &str) -> Result<Option<Vec<DocBytes>>> {
        self.document_snapshot()?.documents(name)
    }

    /// Returns the document with that `_id`.
    ///
    /// Errors: `NotFound` for an unknown collection.
    pub fn get_document(&self, collection: &str, id: &Bson) -> Result<Option<DocBytes>> {
        self.node.collection_spec(collection)?;
        let wrapped = bson::rawdoc! { "_id": bson::RawBson::try_from(id.clone()).map_err(bad_bson)? };
        let id = get_path(&wrapped, "_id");
        let find = |view: &PartitionView| view.documents.collection(collection)?.get(&id).cloned();
        let here = |partition| self.node.with_view(partition, find).flatten();
        if let Some(found) = self.node.host.partition_ids().find_map(here) {
            return Ok(Some(found));
        }
        match self.node.has_all() {
            true => Ok(None),
            false => self.document_snapshot()?.get(collection, &id),
        }
    }

    /// Returns the present time of the engine's clock, which records of the log get.
    pub fn now(&self) -> Timestamp {
        self.node.host.clock.now()
    }

    /// Returns a collection of documents; it need not exist.
    pub fn collection(&self, name: &str) -> DocumentCollection<'_> {
        DocumentCollection::new(self, &self.node, name)
    }

    /// Returns the documents of all collections at this moment, for several reads.
    ///
    /// Errors: `Unavailable` while a partition cannot be asked.
    pub fn document_snapshot(&self) -> Result<DocumentSnapshot> {
        DocumentSnapshot::now(&self.node)
    }

    /// Follows the changes of documents. The first call makes the engine keep changes from then on, as many bytes as the setting
    /// `change_stream_bytes` says.
    ///
    /// Errors: `NotFound` if changes after `start` are not kept; `Invalid` for a position of another data directory.
    pub fn watch(&self, scope: ChangeScope, start: ChangeStart) -> Result<ChangeStream> {
        ChangeStream::new(self.node.clone(), scope, start)
    }

    /// Returns a receiver that hears when there may be new changes for those who follow them.
    pub fn changes_published(&self) -> tokio::sync::watch::Receiver<()> {
        self.node.host.changes.subscribe()
    }

    /// Begins a transaction on documents.
    ///
    /// Errors: `Unavailable` while a partition cannot be asked.
    pub fn begin_transaction(&self) -> Result<Transaction> {
        Transaction::new(self.node.clone())
    }

    /// Returns the documents that match `filter`, over all partitions.
    ///
    /// Errors: `NotFound` for an unknown collection, `Invalid` for a wrong filter, sort or projection.
    pub fn find_documents(
        &self,
        collection: &str,
        filter: &RawDocument,
        options: &FindOptions,
    ) -> Result<Vec<DocBytes>> {
        self.document_snapshot()?.find(collection, filter, options)
    }

    /// Returns the number of documents that match `filter`, over all partitions. Without conditions it is kept, not found.
    ///
    /// Errors: `NotFound` for an unknown collection, `Invalid` for a wrong filter.
    pub fn count_documents(&self, collection: &str, filter: &RawDocument) -> Result<u64> {
        self.document_snapshot()?.count(collection, filter)
    }

    /// Runs a document command and waits for its outcome.
    ///
    /// A command whose filter does not determine a partition goes to all of them (`multi`), or to the first
    /// that has a match. An update of several partitions is atomic in each, not over all; an `ordered` insert
    /// stops at the first document that one of them refuses.
    /// Errors: `NotFound` for an unknown collection; `Invalid` and `Conflict` as the command defines.
    pub fn write_documents(
        &self,
        command: DocumentCommand,
        durability: Option<Durability>,
    ) -> Result<CommandOutcome> {
        self.write_session_documents(command, durability, None)
    }

    /// Submits a document command without waiting for it, so that one thread can have many on their way: one sync of the disk
    /// serves all of them.
    ///
    /// Errors: as [`Self::write_documents`], those of the documents themselves excepted; `LimitReached` while more bytes
    /// than the log takes wait for the disk.
    pub fn submit_documents(
        &self,
        command: DocumentCommand,
        durability: Option<Durability>,
    ) -> Result<DocumentWrite> {
        self.node.submit_documents(command, durability, None)
    }

    /// Returns the outcome of a statement of a client session, if it was executed before, in all partitions or in some.
    ///
    /// Errors: `Conflict` if the session has gone on to a later write.
    pub fn session_outcome(&self, session: &SessionWrite) -> Result<Option<CommandOutcome>> {
        self.node.session_outcome(session)
    }

    /// Runs a document command as [`Self::write_documents`] does, but only once although it may be sent again: a repetition has
    /// the outcome of the first execution, also after a restart. Each partition remembers the last write of 10,000
    /// sessions.
    ///
    /// Errors: as [`Self::write_documents`]; `Conflict` if the session has gone on to a later write.
    pub fn write_session_documents(
        &self,
        command: DocumentCommand,
        durability: Option<Durability>,
        session: Option<&SessionWrite>,
    ) -> Result<CommandOutcome> {
        self.node.write_documents(command, durability, session)
    }
}
