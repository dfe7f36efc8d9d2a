//! Collections whose documents are all in one partition.

use bson::raw::RawDocument;
use bson::rawdoc;
use tidemill_docs::{Collection, CollectionChange, DocBytes, DocumentCommand, FindOptions, get_path};
use tidemill_log::Durability;
use tidemill_types::{Error, ErrorKind, PartitionId, Result};

use super::Engine;
use crate::document_parts::bad_bson;
use crate::document_parts::part::WantedDocuments;

/// Documents that move in one transaction, and their bytes.
const MOVED_MAX: usize = 500;
const MOVED_BYTES_MAX: usize = 4 << 20;
/// Maximum number of attempts of a move that meets other writers.
const ATTEMPTS_MAX: usize = 1000;

impl Engine {
    /// Puts all documents of a collection into one partition, so that an index can be unique over them and
    /// their order is that of all inserts. Readers and writers continue meanwhile. A collection that one
    /// partition has already stays as it is.
    ///
    /// Errors: `NotFound` for an unknown collection; `Invalid` for an entity of the app, as its rules need it where it is;
    /// `Conflict` if other writers change the same documents all the time. What has moved by then stays.
    pub fn gather_collection(&self, name: &str, durability: Option<Durability>) -> Result<()> {
        let spec = self.node.collection_spec(name)?;
        if self.partitions() == 1 || spec.replicated {
            return Ok(());
        }
        if self.node.app.deployment.program.entity_key(name).is_some() {
            return Err(Error::invalid(format!(
                "`{name}` is an entity of the app, whose rules need its documents {}: declare it `replicated`, or its index there",
                spec.placement()
            )));
        }
        if !spec.gathered {
            let change = CollectionChange { gathered: true, ..CollectionChange::default() };
            self.write_documents(
                DocumentCommand::Modify { collection: name.to_owned(), change },
                durability,
            )?;
        }
        let home = self.node.partition_of_collection(&spec);
        let mut conflicts = 0;
        loop {
            match self.move_some(name, home, durability) {
                Ok(0) => return self.put_in_order(name, durability),
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Conflict && conflicts < ATTEMPTS_MAX => {
                    conflicts += 1
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Puts the documents that have come from other partitions between those that were there, in the order of insertion.
    fn put_in_order(&self, name: &str, durability: Option<Durability>) -> Result<()> {
        let documents = self.document_snapshot()?;
        let parts = documents.parts(name, &WantedDocuments::default())?;
        if parts.iter().all(|(_, part)| part.get().is_none_or(Collection::is_in_order)) {
            return Ok(());
        }
        let change = CollectionChange { put_in_order: true, ..CollectionChange::default() };
        let command = DocumentCommand::Modify { collection: name.to_owned(), change };
        self.write_documents(command, durability).map(drop)
    }

    /// Moves some documents of other partitions, in one transaction. Returns their number.
    fn move_some(&self, name: &str, home: PartitionId, durability: Option<Durability>) -> Result<usize> {
        let mut transaction = self.begin_transaction()?;
        let options = FindOptions { limit: Some(MOVED_MAX as u64), ..FindOptions::default() };
        let mut moved: Vec<DocBytes> = Vec::new();
        let mut sequences = Vec::new();
        let parts = transaction.documents().parts(name, &WantedDocuments::default())?;
        let elsewhere = parts.iter().filter(|(partition, _)| *partition != home.0 as usize);
        for part in elsewhere.filter_map(|(_, part)| part.get()) {
            if !part.is_empty() {
                let mut bytes = 0;
                moved = part.find(&tidemill_docs::Filter::all(), &options)?;
                moved.retain(|document| {
                    bytes += document.len();
                    bytes <= MOVED_BYTES_MAX || bytes == document.len()
                });
                let ids = moved.iter().map(|document| RawDocument::from_bytes(document).map_err(bad_bson));
                let found =
                    ids.map(|document| Ok(part.sequence(&get_path(document?, "_id")).unwrap_or_default()));
                sequences = found.collect::<Result<_>>()?;
                break;
            }
        }
        drop(parts);
        if moved.is_empty() {
            return Ok(0);
        }
        for document in &moved {
            let document = RawDocument::from_bytes(document).map_err(bad_bson)?;
            let id = document.get("_id").map_err(bad_bson)?;
            let id = id.ok_or_else(|| Error::internal(format!("a document of `{name}` without _id")))?;
            let filter = rawdoc! { "_id": { "$eq": bson::RawBson::from(id) } }.into_bytes().into();
            let command = DocumentCommand::Delete { collection: name.to_owned(), filter, multi: false };
            transaction.write(command)?;
        }
        let count = moved.len();
        let insert = DocumentCommand::Insert { collection: name.to_owned(), docs: moved, ordered: true };
        let outcome = transaction.write(insert.with_sequences(sequences).without_validation())?;
        if let Some(failed) = outcome.errors.into_iter().next() {
            return Err(failed.error.into());
        }
        transaction.commit(durability, None)?;
        Ok(count)
    }
}
