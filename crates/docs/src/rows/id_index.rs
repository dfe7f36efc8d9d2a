//! Rows by the hash of their `_id`: linear hashing over shared pages.
//!
//! The table grows by one bucket at a time, so no insert has to move more than one bucket, and a clone shares
//! all buckets but those that change after it.

use std::hash::{BuildHasher, Hasher};

use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;

use super::RowIndex;
use crate::key::Key;
use crate::page_tree::PageTree;

/// Average number of entries of a bucket. Before its bucket is split, a bucket holds up to twice as many.
const BUCKET_LOAD: usize = 6;

/// Entries that a bucket holds inline.
const BUCKET_INLINE: usize = 14;

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u32,
    row: RowIndex,
}

type Bucket = SmallVec<[Entry; BUCKET_INLINE]>;

/// Hash table from `_id` to row. It stores no keys: a lookup asks whether a row has the wanted one.
#[derive(Debug, Clone)]
pub(super) struct IdIndex {
    buckets: PageTree<Bucket>,
    len: usize,
    hasher: DefaultHashBuilder,
}

impl IdIndex {
    pub fn new() -> Self {
        Self::with_hasher(DefaultHashBuilder::default())
    }

    /// Returns an empty index that hashes as this one.
    pub fn emptied(&self) -> Self {
        Self::with_hasher(self.hasher.clone())
    }

    fn with_hasher(hasher: DefaultHashBuilder) -> Self {
        let mut buckets = PageTree::new();
        buckets.push(Bucket::new());
        Self { buckets, len: 0, hasher }
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the row for which `is_wanted` holds among those whose `_id` hashes as `key`.
    #[inline]
    pub fn find(&self, key: &Key, mut is_wanted: impl FnMut(RowIndex) -> bool) -> Option<RowIndex> {
        let hash = self.hash(key);
        let bucket = self.buckets.get(self.bucket_of(hash))?;
        bucket.iter().find(|entry| entry.hash == hash && is_wanted(entry.row)).map(|entry| entry.row)
    }

    /// Adds an entry for a key that has none.
    pub fn insert(&mut self, key: &Key, row: RowIndex) {
        if self.len >= self.buckets.len() * BUCKET_LOAD {
            self.split();
        }
        let hash = self.hash(key);
        let at = self.bucket_of(hash);
        if let Some(bucket) = self.buckets.get_mut(at) {
            bucket.push(Entry { hash, row });
            self.len += 1;
        }
    }

    pub fn remove(&mut self, key: &Key, row: RowIndex) {
        let at = self.bucket_of(self.hash(key));
        let Some(bucket) = self.buckets.get_mut(at) else { return };
        if let Some(entry) = bucket.iter().position(|entry| entry.row == row) {
            bucket.swap_remove(entry);
            self.len -= 1;
        }
    }

    /// Returns the bucket of a hash: its low bits, one bit fewer where that bucket is not split off yet.
    #[inline]
    fn bucket_of(&self, hash: u32) -> usize {
        let mask = self.buckets.len().next_power_of_two() - 1;
        let at = hash as usize & mask;
        if at < self.buckets.len() { at } else { at & (mask >> 1) }
    }

    /// Adds a bucket, and moves into it what the bucket that it splits holds for it.
    fn split(&mut self) {
        let new = self.buckets.len();
        let mask = (new + 1).next_power_of_two() - 1;
        let mut moved = Bucket::new();
        if let Some(old) = self.buckets.get_mut(new & (mask >> 1)) {
            let goes = |entry: &Entry| entry.hash as usize & mask == new;
            moved.extend(old.iter().copied().filter(goes));
            old.retain(|entry| !goes(entry));
            old.shrink_to_fit();
        }
        self.buckets.push(moved);
    }

    #[inline]
    fn hash(&self, key: &Key) -> u32 {
        let mut state = self.hasher.build_hasher();
        state.write(key.as_bytes());
        // the upper half, as every bit of it depends on the whole key
        (state.finish() >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use tidemill_types::Value;

    use super::*;

    #[test]
    fn finds_what_was_inserted_and_not_removed() {
        let keys: Vec<Key> = (0..20_000).map(|n| Key::of(&Value::Int(n))).collect();
        let mut index = IdIndex::new();
        for (row, key) in (0..).zip(&keys) {
            index.insert(key, row);
        }
        let all = index.clone();
        for (row, key) in (0..).zip(&keys).step_by(3) {
            index.remove(key, row);
        }
        for (row, key) in (0..).zip(&keys) {
            let found = |index: &IdIndex| index.find(key, |r| r == row);
            assert_eq!(found(&all), Some(row));
            assert_eq!(found(&index), (row % 3 != 0).then_some(row));
        }
        let longest = all.buckets.iter().map(SmallVec::len).max();
        assert!(longest < Some(40), "a bucket of {longest:?} entries");
    }
}
