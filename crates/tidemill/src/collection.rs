//! In-process access to the documents of one collection.

use bson::{Bson, Document, RawDocumentBuf};
use tidemill_docs::{CommandOutcome, DocBytes, DocumentCommand, FindOptions};
use tidemill_engine::Engine;
use tidemill_types::{Error, Result};

/// Handle of a collection. Cheap; it owns no documents.
pub struct Collection<'e> {
    engine: &'e Engine,
    name: String,
}

impl<'e> Collection<'e> {
    pub(crate) fn new(engine: &'e Engine, name: &str) -> Self {
        Self { engine, name: name.to_owned() }
    }

    /// Returns the document with that `_id`.
    pub fn get(&self, id: impl Into<Bson>) -> Result<Option<Document>> {
        self.engine.get_document(&self.name, &id.into())?.map(decode).transpose()
    }

    /// Returns the documents that match a MongoDB filter.
    pub fn find(&self, filter: &Document) -> Result<Vec<Document>> {
        let filter = encode(filter)?;
        let found = self.engine.find_documents(&self.name, &filter, &FindOptions::default())?;
        found.into_iter().map(decode).collect()
    }

    /// Inserts a document. Without an `_id` it gets the entity's key or a new ObjectId.
    ///
    /// Errors: `Conflict` when its `_id` or another unique key is taken.
    pub fn insert(&self, document: &Document) -> Result<()> {
        let docs = vec![encode(document)?.into_bytes().into()];
        let outcome =
            self.write(DocumentCommand::Insert { collection: self.name.clone(), docs, ordered: true })?;
        check_outcome(outcome).map(|_| ())
    }

    /// Updates all matching documents by MongoDB's update operators. Returns how many changed.
    pub fn update(&self, filter: &Document, update: &Document) -> Result<u64> {
        let (filter, update) = (encode(filter)?.into_bytes().into(), encode(update)?.into_bytes().into());
        let collection = self.name.clone();
        let command = DocumentCommand::Update {
            collection,
            filter,
            update,
            multi: true,
            upsert: false,
            upsert_id: None,
        };
        check_outcome(self.write(command)?).map(|o| o.modified)
    }

    /// Deletes all matching documents. Returns how many.
    pub fn delete(&self, filter: &Document) -> Result<u64> {
        let filter = encode(filter)?.into_bytes().into();
        check_outcome(self.write(DocumentCommand::Delete {
            collection: self.name.clone(),
            filter,
            multi: true,
        })?)
        .map(|o| o.deleted)
    }

    fn write(&self, command: DocumentCommand) -> Result<CommandOutcome> {
        self.engine.write_documents(command, None)
    }
}

fn check_outcome(outcome: CommandOutcome) -> Result<CommandOutcome> {
    match outcome.errors.first() {
        Some(first) => Err(first.error.clone().into()),
        None => Ok(outcome),
    }
}

fn encode(document: &Document) -> Result<RawDocumentBuf> {
    RawDocumentBuf::try_from(document).map_err(|e| Error::invalid("not a document").with_source(e))
}

fn decode(document: DocBytes) -> Result<Document> {
    Document::from_reader(document.as_ref())
        .map_err(|e| Error::internal("a stored document is not BSON").with_source(e))
}
