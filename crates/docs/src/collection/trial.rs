//! Which of several documents an insert would refuse first.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{Collection, MemoryUsage, ROW_BYTES, id_of};
use crate::DocBytes;
use crate::error::{DocsError, ErrorCode, Result};
use crate::index::Index;
use crate::values::key::Key;
use crate::values::validate::check;
use crate::writing::changes::ChangeRecorder;

impl Collection {
    /// Returns the place of the first document that an insert of them, one after the other, refuses; `None` if it inserts all.
    /// Nothing is changed.
    pub(crate) fn first_refused(&self, docs: &[DocBytes]) -> Option<usize> {
        // their unique values may meet each other's
        if self.indexes.iter().any(|index| index.spec.unique) || self.spec.options.capped.is_some() {
            let mut trial = self.trial();
            return docs.iter().position(|doc| trial.load(doc).is_err());
        }
        let mut earlier = EarlierDocuments { keys: HashSet::new(), bytes: 0 };
        docs.iter().position(|doc| self.check_insert(doc, &mut earlier).is_err())
    }

    /// Returns a copy whose changes are neither charged nor published.
    fn trial(&self) -> Self {
        let mut trial = self.clone();
        let usage = MemoryUsage::default();
        usage.bytes.store(self.usage.bytes.load(Ordering::Relaxed), Ordering::Relaxed);
        let changes = ChangeRecorder::collecting();
        changes.set_collecting(false);
        trial.adopt(&Arc::new(changes), &Arc::new(usage));
        trial
    }

    /// Does what an insert does, but for the insert. `earlier` are the documents of the same command before it.
    fn check_insert(&self, doc: &[u8], earlier: &mut EarlierDocuments) -> Result<()> {
        check(doc, &self.limits)?;
        let doc = &*self.identified(doc)?;
        let id = id_of(doc)?;
        self.validate(doc, None)?;
        let key = Key::of_raw(id);
        if self.rows.find(&key).is_some() || !earlier.keys.insert(key) {
            return Err(self.duplicate_id(id));
        }
        let keys = self.new_keys(doc, None)?;
        earlier.bytes += doc.len() as u64 + ROW_BYTES + keys.iter().map(Index::cost).sum::<u64>();
        let used = self.usage.bytes.load(Ordering::Relaxed);
        let rows = self.rows.next().map(|next| u64::from(next) + earlier.keys.len() as u64);
        if used + earlier.bytes > self.limits.store_bytes_max
            || rows.is_none_or(|rows| rows > u64::from(u32::MAX - 1))
        {
            return Err(DocsError::new(ErrorCode::StoreFull, "the document store is full"));
        }
        Ok(())
    }
}

/// Keys and size of the documents before one.
struct EarlierDocuments {
    keys: HashSet<Key>,
    bytes: u64,
}
