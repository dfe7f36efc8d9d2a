//! One collection of documents, for callers in the same process.

use std::sync::Arc;

use bson::raw::RawDocument;
use tidemill_docs::{CommandOutcome, DocBytes, DocumentCommand, FindOptions};
use tidemill_log::Durability;
use tidemill_types::{PartitionId, Result, Value};

use super::Engine;
use crate::document_parts::place::{PlaceOfId, find_by_id, id_filter};
use crate::node::Node;

/// A collection of documents. Reads run on the caller's thread, copy nothing and never wait for others;
/// writes go through the log as all others do.
pub struct DocumentCollection<'e> {
    engine: &'e Engine,
    node: &'e Arc<Node>,
    name: Arc<str>,
}

impl<'e> DocumentCollection<'e> {
    pub(super) fn new(engine: &'e Engine, node: &'e Arc<Node>, name: &str) -> Self {
        Self { engine, node, name: name.into() }
    }

    /// Returns the name of the collection.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the document with that `_id`; `None` also if the collection does not exist.
    ///
    /// Errors: `Unavailable` while a partition that may have it cannot be asked.
    pub fn find_one(&self, id: &Value<'_>) -> Result<Option<DocBytes>> {
        let ends = self.node.catch_up_replicas()?;
        let in_partition = |at: PartitionId| {
            let here = self
                .node
                .with_view(at, |view| view.documents.collection(&self.name).map(|part| find_by_id(part, id)));
            match here {
                Some(found) => Ok(found),
                None => {
                    let end = ends.get(at.0 as usize).copied().unwrap_or_default();
                    self.node.client(at)?.find_document(&self.name, id, end)
                }
            }
        };
        let home = match self.node.host.partitions() {
            1 => PartitionId::FIRST,
            _ => self.node.partition_of_value(id),
        };
        match in_partition(home)? {
            None => Ok(None),
            Some((Some(found), _)) => Ok(Some(found)),
            Some((None, PlaceOfId::Home)) => Ok(None),
            Some((None, PlaceOfId::Any)) => {
                let first = FindOptions { limit: Some(1), ..FindOptions::default() };
                let snapshot = self.engine.document_snapshot()?;
                let filter = id_filter(id, snapshot.collation(&self.name)?)?;
                Ok(snapshot.find_parsed(&self.name, &filter, &first)?.into_iter().next())
            }
            Some((None, PlaceOfId::Unknown)) => {
                for other in self.node.host.partition_ids().filter(|at| *at != home) {
                    if let Some((Some(found), _)) = in_partition(other)? {
                        return Ok(Some(found));
                    }
                }
                Ok(None)
            }
        }
    }

    /// Returns the documents that match a filter.
    ///
    /// Errors: `NotFound` if the collection does not exist, `Invalid` for a wrong filter.
    pub fn find(&self, filter: &RawDocument, options: &FindOptions) -> Result<Vec<DocBytes>> {
        self.engine.find_documents(&self.name, filter, options)
    }

    /// Returns the number of documents that match a filter.
    ///
    /// Errors: as [`Self::find`].
    pub fn count(&self, filter: &RawDocument) -> Result<u64> {
        self.engine.count_documents(&self.name, filter)
    }

    /// Inserts documents, in their order up to the first bad one. A document without `_id` gets one.
    ///
    /// Errors: those of [`Engine::write_documents`]; errors of single documents are in the outcome.
    pub fn insert(&self, docs: Vec<DocBytes>, durability: Option<Durability>) -> Result<CommandOutcome> {
        let command = DocumentCommand::Insert { collection: self.name.to_string(), docs, ordered: true };
        self.engine.write_documents(command, durability)
    }

    /// Updates the first document that matches a filter.
    ///
    /// Errors: those of [`Engine::write_documents`]; an error of the document is in the outcome.
    pub fn update_one(
        &self,
        filter: DocBytes,
        update: DocBytes,
        durability: Option<Durability>,
    ) -> Result<CommandOutcome> {
        let command = DocumentCommand::Update {
            collection: self.name.to_string(),
            filter,
            update,
            multi: false,
            upsert: false,
            upsert_id: None,
        };
        self.engine.write_documents(command, durability)
    }

    /// Deletes the first document that matches a filter.
    ///
    /// Errors: those of [`Engine::write_documents`].
    pub fn delete_one(&self, filter: DocBytes, durability: Option<Durability>) -> Result<CommandOutcome> {
        let command = DocumentCommand::Delete { collection: self.name.to_string(), filter, multi: false };
        self.engine.write_documents(command, durability)
    }
}
