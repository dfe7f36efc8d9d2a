//! Ordered secondary indexes.

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;
use smallvec::SmallVec;

use crate::display::display;
use crate::error::{DocsError, ErrorCode, Result};
use crate::key::{Key, KeyBuf, put, put_descending};
use crate::limits::INDEX_KEYS_PER_DOCUMENT_MAX;
use crate::path::Path;
use crate::path_values::key_values;
use crate::raw::RawValue;
use crate::rows::RowIndex;
use crate::spec::{Direction, IndexSpec};

/// The keys of one document in one index.
pub(crate) type IndexKeys = SmallVec<[Key; 1]>;

/// An ordered index: entries of key and row, so that equal keys are in order of insertion. Clones share the
/// entries; a change copies the nodes of the tree that it touches.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    pub spec: Arc<IndexSpec>,
    pub fields: Arc<[(Path, Direction)]>,
    pub entries: OrdSet<(Key, RowIndex)>,
    /// Number of documents with several keys.
    multikey_docs: usize,
    /// Bytes charged for the entries.
    pub bytes: u64,
}

/// Bytes charged for an entry, besides a key that is not inline.
const ENTRY_BYTES: u64 = 48;

impl Index {
    pub fn new(spec: IndexSpec) -> Self {
        let fields = spec.fields.iter().map(|(p, d)| (Path::new(p), *d)).collect();
        Self { spec: Arc::new(spec), fields, entries: OrdSet::new(), multikey_docs: 0, bytes: 0 }
    }

    /// Returns an index with the same definition and no entries.
    pub fn emptied(&self) -> Self {
        Self { entries: OrdSet::new(), multikey_docs: 0, bytes: 0, ..self.clone() }
    }

    /// Returns whether some document has several keys, so that it may be found twice. Depends on the current
    /// documents only, not on earlier ones, so a store loaded from a checkpoint plans like the saved one.
    pub fn multikey(&self) -> bool {
        self.multikey_docs > 0
    }

    /// Returns the keys of a document: one, or one for each element if a field is an array.
    ///
    /// Errors: parallel arrays, and in a unique index also two paths into one array; too many keys.
    pub fn keys(&self, doc: &[u8]) -> Result<IndexKeys> {
        let mut keys: IndexKeys = SmallVec::from_elem(Key::default(), 1);
        let mut array: Option<&Path> = None;
        for (path, direction) in self.fields.iter() {
            let values = key_values(doc, path);
            if values.len() > 1 {
                // two paths into one array yield combinations that no element has; a filter discards those
                // matches, but a unique index would reject values that no document contains
                if let Some(first) = array.filter(|first| self.spec.unique || first.top() != path.top()) {
                    return Err(DocsError::new(
                        ErrorCode::CannotIndexParallelArrays,
                        format!(
                            "index `{}`: cannot index parallel arrays [{first}] [{path}]",
                            self.spec.name
                        ),
                    ));
                }
                let count = values.len().saturating_mul(keys.len());
                if count > INDEX_KEYS_PER_DOCUMENT_MAX {
                    return Err(DocsError::new(
                        ErrorCode::StoreFull,
                        format!(
                            "index `{}`: {count} entries for one document at '{path}': limit of {INDEX_KEYS_PER_DOCUMENT_MAX}",
                            self.spec.name
                        ),
                    ));
                }
                array = Some(path);
                keys = keys.iter().flat_map(|key| values.iter().map(move |_| key.clone())).collect();
            }
            for (i, key) in keys.iter_mut().enumerate() {
                // every key is combined with every value; a single value goes to all keys
                put_field(&mut key.0, values[i % values.len()], *direction);
            }
        }
        if array.is_some() {
            keys.sort_unstable();
            keys.dedup();
        }
        Ok(keys)
    }

    /// Returns the one of `keys` that another document has, if the index is unique.
    pub fn conflict<'k>(&self, keys: &'k IndexKeys, own: Option<RowIndex>) -> Option<&'k Key> {
        if !self.spec.unique {
            return None;
        }
        keys.iter().find(|key| self.equal(key).any(|slot| Some(slot) != own))
    }

    pub fn equal(&self, key: &Key) -> impl Iterator<Item = RowIndex> {
        let range = (Bound::Included((key.clone(), 0)), Bound::Included((key.clone(), RowIndex::MAX)));
        self.entries.range(range).map(|(_, slot)| *slot)
    }

    pub fn add(&mut self, keys: IndexKeys, slot: RowIndex) {
        self.multikey_docs += usize::from(keys.len() > 1);
        for key in keys {
            self.bytes += entry_bytes(&key);
            self.entries.insert((key, slot));
        }
    }

    pub fn remove(&mut self, keys: IndexKeys, slot: RowIndex) {
        self.multikey_docs -= usize::from(keys.len() > 1);
        for key in keys {
            let bytes = entry_bytes(&key);
            if self.entries.remove(&(key, slot)).is_some() {
                self.bytes -= bytes;
            }
        }
    }

    /// Returns the bytes that `keys` would add.
    pub fn cost(keys: &IndexKeys) -> u64 {
        keys.iter().map(entry_bytes).sum()
    }

    /// Creates the error that another document has `key`, which is a key of `doc`.
    pub fn duplicate(&self, collection: &str, doc: &[u8], key: &Key) -> DocsError {
        let mut rest = key.as_bytes();
        let mut values = Vec::new();
        for (path, direction) in self.fields.iter() {
            // of several elements, the one that this key was built from
            for value in key_values(doc, path) {
                let mut part = KeyBuf::new();
                put_field(&mut part, value, *direction);
                if let Some(behind) = rest.strip_prefix(part.as_slice()) {
                    rest = behind;
                    values.push(format!("{path}: {}", display(value)));
                    break;
                }
            }
        }
        duplicate_key(
            collection,
            &self.spec.name,
            &self.spec.pattern(),
            &format!("{{ {} }}", values.join(", ")),
        )
    }

    /// Renumbers the rows; the new indexes have the order of the old ones.
    pub fn renumber(&mut self, new: &[RowIndex]) {
        self.entries = self.entries.iter().map(|(key, slot)| (key.clone(), new[*slot as usize])).collect();
    }
}

fn entry_bytes(key: &Key) -> u64 {
    ENTRY_BYTES + key.heap_bytes() as u64
}

pub(crate) fn put_field(buf: &mut KeyBuf, value: RawValue<'_>, direction: Direction) {
    match direction {
        Direction::Ascending => put(buf, value),
        Direction::Descending => put_descending(buf, value),
    }
}

pub(crate) fn duplicate_key(collection: &str, index: &str, pattern: &str, value: &str) -> DocsError {
    DocsError::new(
        ErrorCode::DuplicateKey,
        format!(
            "E11000 duplicate key error collection: {collection} index: {index} key pattern: {pattern} dup key: {value}"
        ),
    )
}
