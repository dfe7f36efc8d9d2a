//! Ordered inserts, which end at the first document that is refused.

use super::DocumentCommand;
use crate::error::{DocsError, Result};
use crate::store::Store;

impl Store {
    /// Returns the place of the first document that an insert would refuse, `None` if it would insert all. Nothing is changed.
    ///
    /// Errors: the command itself is invalid, or is not an insert.
    pub fn first_refused(&mut self, command: &DocumentCommand) -> Result<Option<usize>> {
        self.refuse_view(command)?;
        match command {
            DocumentCommand::Insert { collection, docs, .. } => {
                Ok(self.require(collection)?.first_refused(docs))
            }
            DocumentCommand::Unvalidated(inner) => {
                self.bypassing(inner.collection(), |c| &mut c.bypass_validation, |s| s.first_refused(inner))
            }
            DocumentCommand::Collated { command, .. } => self.first_refused(command),
            _ => Err(DocsError::bad_value("only an insert has documents that may be refused")),
        }
    }
}

impl DocumentCommand {
    /// Returns whether the command inserts documents up to the first that is refused.
    pub fn is_ordered_insert(&self) -> bool {
        matches!(self.plain(), Self::Insert { ordered: true, .. })
    }

    /// Returns the command with these of the documents that it inserts.
    pub fn with_documents(mut self, kept: std::ops::Range<usize>) -> Self {
        self.keep_documents(kept);
        self
    }

    fn keep_documents(&mut self, kept: std::ops::Range<usize>) {
        match self {
            Self::Unvalidated(inner)
            | Self::BeforeIdentity(inner)
            | Self::Collated { command: inner, .. } => inner.keep_documents(kept),
            Self::First { command, .. } => command.keep_documents(kept),
            Self::Sequenced { sequences, command } => {
                sequences.truncate(kept.end);
                sequences.drain(..kept.start.min(sequences.len()));
                command.keep_documents(kept);
            }
            Self::Insert { docs, .. } => {
                docs.truncate(kept.end);
                docs.drain(..kept.start.min(docs.len()));
            }
            _ => {}
        }
    }
}
