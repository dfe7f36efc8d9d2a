//! Digest of what a record writes to documents, by which two replicas of a store are compared.
//!
//! Each write counts with its kind, collection, `_id` and the whole new version, in the order in which a record makes them. What a
//! store keeps besides, such as indexes and its history of changes, does not.

use xxhash_rust::xxh3::Xxh3;

use crate::writing::changes::ChangeKind;

/// Digest of the writes of the present record.
#[derive(Clone, Default)]
pub(crate) struct WriteDigest {
    hasher: Xxh3,
    writes: u64,
}

impl WriteDigest {
    /// Begins the next record.
    pub fn begin(&mut self) {
        if self.writes > 0 {
            self.hasher.reset();
            self.writes = 0;
        }
    }

    /// Adds a write. `key` is empty for one of a whole collection, and `after` is missing where something is gone.
    pub fn add(&mut self, kind: ChangeKind, collection: &str, key: &[u8], after: Option<&[u8]>) {
        self.writes += 1;
        self.hasher.update(&[kind_code(kind), u8::from(after.is_some())]);
        for part in [collection.as_bytes(), key, after.unwrap_or_default()] {
            self.hasher.update(&(part.len() as u64).to_le_bytes());
            self.hasher.update(part);
        }
    }

    /// Adds when the document of the last write counts as inserted.
    pub fn add_sequence(&mut self, sequence: u64) {
        self.hasher.update(&sequence.to_le_bytes());
    }

    /// Returns the digest; `None` if nothing was written.
    pub fn value(&self) -> Option<u128> {
        (self.writes > 0).then(|| self.hasher.digest128())
    }
}

impl std::fmt::Debug for WriteDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteDigest").field("writes", &self.writes).finish_non_exhaustive()
    }
}

/// Returns the number of a kind. Builds compare their digests, so it must stay as it is.
fn kind_code(kind: ChangeKind) -> u8 {
    match kind {
        ChangeKind::Insert => 1,
        ChangeKind::Update => 2,
        ChangeKind::Replace => 3,
        ChangeKind::Delete => 4,
        ChangeKind::Drop => 5,
        ChangeKind::Create => 6,
        ChangeKind::CreateIndex => 7,
        ChangeKind::DropIndex => 8,
        ChangeKind::Modify => 9,
        ChangeKind::Rename => 10,
    }
}
