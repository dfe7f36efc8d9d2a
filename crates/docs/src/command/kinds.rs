//! Kinds of commands, and the commands that others become.

use super::{DocumentCommand, Modification};
use crate::DocBytes;
use crate::sequence::Sequence;
use crate::spec::BsonDocument;

impl DocumentCommand {
    /// Returns the name of the collection that the command addresses.
    pub fn collection(&self) -> &str {
        match self {
            Self::Insert { collection, .. }
            | Self::Update { collection, .. }
            | Self::Replace { collection, .. }
            | Self::Delete { collection, .. }
            | Self::FindAndModify { collection, .. }
            | Self::CreateIndex { collection, .. }
            | Self::DropIndex { collection, .. }
            | Self::Drop { collection }
            | Self::Rename { collection, .. }
            | Self::Modify { collection, .. }
            | Self::Expire { collection } => collection,
            Self::CreateCollection(spec) => &spec.name,
            Self::EndDatabase { prefix } => prefix,
            Self::Unvalidated(inner)
            | Self::BeforeIdentity(inner)
            | Self::Collated { command: inner, .. }
            | Self::Sequenced { command: inner, .. }
            | Self::First { command: inner, .. } => inner.collection(),
        }
    }

    /// Returns the command without what says how it is applied.
    pub fn plain(&self) -> &Self {
        match self {
            Self::Unvalidated(inner)
            | Self::BeforeIdentity(inner)
            | Self::Collated { command: inner, .. }
            | Self::Sequenced { command: inner, .. }
            | Self::First { command: inner, .. } => inner.plain(),
            plain => plain,
        }
    }

    /// Returns whether the command inserts documents.
    pub fn inserts(&self) -> bool {
        matches!(self.plain(), Self::Insert { .. })
    }

    /// Returns whether the command updates all documents that match.
    pub fn updates_many(&self) -> bool {
        matches!(self.plain(), Self::Update { multi: true, .. })
    }

    /// Returns the bytes of the documents that the command brings with it.
    pub fn document_bytes(&self) -> usize {
        match self.plain() {
            Self::Insert { docs, .. } => docs.iter().map(DocBytes::len).sum(),
            Self::Update { update, .. } => update.len(),
            Self::Replace { doc, .. } => doc.len(),
            Self::FindAndModify {
                change: Modification::Update(given) | Modification::Replace(given),
                ..
            } => given.len(),
            _ => 0,
        }
    }

    /// Returns whether the command may add a document to the collection.
    pub fn may_insert(&self) -> bool {
        match self.plain() {
            Self::Insert { .. } => true,
            Self::Update { upsert, .. }
            | Self::Replace { upsert, .. }
            | Self::FindAndModify { upsert, .. } => *upsert,
            _ => false,
        }
    }

    /// Returns whether the command writes documents that its caller names, and leaves the collection as it is defined.
    pub fn writes_documents(&self) -> bool {
        matches!(
            self.plain(),
            Self::Insert { .. }
                | Self::Update { .. }
                | Self::Replace { .. }
                | Self::Delete { .. }
                | Self::FindAndModify { .. }
        )
    }

    /// Returns the command that writes the same without validation.
    pub fn without_validation(self) -> Self {
        match self {
            Self::Unvalidated(_) => self,
            validated => Self::Unvalidated(Box::new(validated)),
        }
    }
}

impl DocumentCommand {
    /// Returns the insert whose documents count as inserted at these moments.
    pub fn with_sequences(self, sequences: Vec<Sequence>) -> Self {
        match self {
            Self::Unvalidated(inner) => inner.with_sequences(sequences).without_validation(),
            command => Self::Sequenced { sequences, command: Box::new(command) },
        }
    }

    /// Returns the command with this collation instead of that of its collection.
    pub fn with_collation(self, collation: Option<BsonDocument>) -> Self {
        match (self, collation) {
            (command, None) => command,
            // so that a command has one form
            (Self::Unvalidated(inner), collation) => inner.with_collation(collation).without_validation(),
            (command, Some(collation)) => Self::Collated { collation, command: Box::new(command) },
        }
    }
}
