//! Documents that open transactions have written.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_docs::Key;

use super::TransactionId;

/// Documents that open transactions of this process have written, so that the second one of two learns at its write, and not at its
/// commit, that it must be run again. Writes outside of transactions do not look here: they go first.
#[derive(Default)]
pub struct WriteLocks(Mutex<HashMap<(Arc<str>, Key), TransactionId>>);

impl WriteLocks {
    /// Locks a document for a transaction. Returns whether it has the lock now.
    pub fn lock(&self, collection: &Arc<str>, key: &Key, id: TransactionId) -> bool {
        *self.0.lock().entry((collection.clone(), key.clone())).or_insert(id) == id
    }

    /// Releases the documents of a transaction.
    pub fn release<'k>(&self, id: TransactionId, documents: impl IntoIterator<Item = &'k (Arc<str>, Key)>) {
        let mut locked = self.0.lock();
        for document in documents {
            if locked.get(document) == Some(&id) {
                locked.remove(document);
            }
        }
    }
}
