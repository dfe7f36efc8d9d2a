//! Application of documents that a source loads.

use bytes::Bytes;
use tidemill_docs::{CommandOutcome, DocumentError};
use tidemill_types::{Error, Result};

use super::{ApplyReply, RecordApplier};
use crate::state::PartitionState;

impl RecordApplier<'_> {
    /// Inserts documents; each replaces the one with its `_id`.
    pub(super) fn load_documents(
        &mut self,
        state: &mut PartitionState,
        collection: &str,
        documents: &Bytes,
    ) -> Result<ApplyReply> {
        let _entered = super::document_budget().enter();
        let mut outcome = CommandOutcome::default();
        let target = state.store.require(collection)?;
        let (mut position, mut index) = (0, 0);
        while position < documents.len() {
            let doc = document_at(documents, position)?;
            position += doc.len();
            // memory shared with the record would keep all of it alive for as long as one of its documents lives
            let doc = Bytes::copy_from_slice(&doc);
            match target.load_or_replace(doc) {
                Ok(true) => outcome.inserted += 1,
                Ok(false) => outcome.modified += 1,
                Err(error) => outcome.errors.push(DocumentError { index, error }),
            }
            index += 1;
        }
        if let Some(first) = outcome.errors.first() {
            let error = Error::invalid(format!("document {}: {}", first.index, first.error));
            self.applied.document_error = Some((collection.to_owned(), error));
        }
        Ok(ApplyReply { outcome: Some(outcome), ..ApplyReply::default() })
    }
}

fn document_at(documents: &Bytes, at: usize) -> Result<Bytes> {
    let damaged = || Error::corrupt(format!("a document of the record is cut off at byte {at}"));
    let head: [u8; 4] = documents.get(at..at + 4).and_then(|b| b.try_into().ok()).ok_or_else(damaged)?;
    let len = u32::from_le_bytes(head) as usize;
    if len < 5 || at + len > documents.len() {
        return Err(damaged());
    }
    Ok(documents.slice(at..at + len))
}
