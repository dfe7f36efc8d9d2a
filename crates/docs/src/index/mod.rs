//! Secondary indexes: ordered, hashed and wildcard; of all documents, or of some.

mod keys;
mod partial;
mod text;
mod wildcard;

use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdSet;
use smallvec::SmallVec;
use tidemill_types::budget::Budget;

use crate::collation::Collation;
use crate::error::{DocsError, DuplicateKey, ErrorCode, Result};
use crate::filter::Filter;
use crate::geo::GeoIndex;
use crate::limits::INDEX_KEYS_PER_DOCUMENT_MAX;
use crate::rows::RowIndex;
use crate::spec::{BsonDocument, Direction, IndexSpec};
use crate::values::key::{Key, KeyBuf, put_by, put_descending};
use crate::values::path::Path;
use crate::values::path_values::{array_on, key_values, present_key_values};
use crate::values::raw::{RawValue, close_document, put_element};
use keys::CompoundKeys;
pub(crate) use partial::implies;
pub(crate) use text::{TextIndex, with_term};
pub(crate) use wildcard::WildcardFields;
use wildcard::WildcardKeys;

/// The keys of one document in one index.
pub(crate) type IndexKeys = SmallVec<[Key; 1]>;

/// An ordered index: entries of key and row, so that equal keys are in order of insertion. Clones share the
/// entries; a change copies the nodes of the tree that it touches.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    pub spec: Arc<IndexSpec>,
    pub fields: Arc<[(Path, Direction)]>,
    /// Number of the field that the index hashes.
    pub hashed: Option<usize>,
    /// The fields of a wildcard index.
    pub wildcard: Option<Arc<WildcardFields>>,
    /// The geometries of a `2dsphere` or `2d` index.
    pub geo: Option<Arc<GeoIndex>>,
    /// The terms of a text index.
    pub text: Option<Arc<TextIndex>>,
    /// Order of strings; that of their bytes if `None`.
    pub collation: Option<Collation>,
    /// The filter of a partial index.
    pub partial: Option<Arc<Filter>>,
    pub entries: OrdSet<(Key, RowIndex)>,
    /// Number of documents with several keys.
    multikey_docs: usize,
    /// Bytes charged for the entries.
    pub bytes: u64,
}

/// An index of a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IndexId {
    /// That of `_id` in order.
    OfId,
    /// The one with this number.
    Secondary(usize),
}

/// Bytes charged for an entry, besides a key that is not inline.
pub(crate) const ENTRY_BYTES: u64 = 48;

impl Index {
    /// Creates an index without entries. Errors: as [`IndexSpec::check`].
    pub fn new(spec: IndexSpec) -> Result<Self> {
        spec.check()?;
        let wildcard = spec.is_wildcard().then(|| WildcardFields::new(&spec)).transpose()?;
        let collation = spec.parsed_collation()?;
        let partial = spec
            .partial_filter
            .as_ref()
            .map(|filter| Filter::parse_by(filter.as_raw(), collation.as_ref()))
            .transpose()?;
        let geo = spec.geo.as_ref().map(GeoIndex::new).transpose().map_err(|why| spec.refused(why))?;
        Ok(Self {
            text: TextIndex::new(&spec)?.map(Arc::new),
            geo: geo.map(Arc::new),
            fields: spec.fields.iter().map(|(p, d)| (Path::new(p), *d)).collect(),
            hashed: spec.fields.iter().position(|(path, _)| spec.is_hashed(path)),
            wildcard: wildcard.map(Arc::new),
            collation,
            partial: partial.map(Arc::new),
            spec: Arc::new(spec),
            entries: OrdSet::new(),
            multikey_docs: 0,
            bytes: 0,
        })
    }

    /// Creates the index of a collection's `_id`s in order, without entries.
    pub fn of_id(collation: Option<Collation>) -> Self {
        let spec = IndexSpec {
            name: "_id_".to_owned(),
            unique: true,
            collation: collation.as_ref().map(|collation| BsonDocument::new(collation.document())),
            ..IndexSpec::ascending("_id")
        };
        Self {
            fields: spec.fields.iter().map(|(p, d)| (Path::new(p), *d)).collect(),
            hashed: None,
            wildcard: None,
            geo: None,
            text: None,
            collation,
            partial: None,
            spec: Arc::new(spec),
            entries: OrdSet::new(),
            multikey_docs: 0,
            bytes: 0,
        }
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

    /// Returns the keys of a document: one, one for each element if a field is an array, or none if the document is not in the
    /// index.
    ///
    /// Errors: parallel arrays, an array in a hashed field, too many keys.
    pub fn keys(&self, doc: &[u8]) -> Result<IndexKeys> {
        if self.partial.as_ref().is_some_and(|filter| !filter.matches_bytes(doc)) {
            return Ok(IndexKeys::new());
        }
        if let Some(wildcard) = &self.wildcard {
            return WildcardKeys::of(self, wildcard, doc);
        }
        if let Some(geo) = &self.geo {
            return geo.keys(doc);
        }
        if let Some(text) = &self.text {
            return text.keys(&self.spec.name, doc);
        }
        match &*self.fields {
            [(path, direction)] => self.single_keys(doc, path, *direction),
            _ => CompoundKeys::of(self, doc),
        }
    }

    /// Returns the keys of a document that is in the index, or is to be while the index is built. They take no steps: what is stored can
    /// be removed, and be indexed, however much it is.
    pub fn stored_keys(&self, doc: &[u8]) -> Result<IndexKeys> {
        let _entered = Budget::unlimited().enter();
        self.keys(doc)
    }

    fn single_keys(&self, doc: &[u8], path: &Path, direction: Direction) -> Result<IndexKeys> {
        if self.hashed.is_some() && array_on(doc, path) {
            self.refuse_hashed_array(0)?;
        }
        let values = if self.spec.sparse { present_key_values(doc, path) } else { key_values(doc, path) };
        if values.len() > INDEX_KEYS_PER_DOCUMENT_MAX {
            return Err(self.too_many_keys());
        }
        let mut keys: IndexKeys = values
            .iter()
            .map(|value| {
                let mut key = KeyBuf::new();
                match self.hashed {
                    None => put_field(&mut key, *value, direction, self.collation.as_ref()),
                    Some(_) => put_hash(&mut key, *value, self.collation.as_ref()),
                }
                Key(key)
            })
            .collect();
        if keys.len() > 1 {
            keys.sort_unstable();
            keys.dedup();
        }
        Ok(keys)
    }

    /// Refuses an array in the field with this number if the index has hashes of it.
    fn refuse_hashed_array(&self, at: usize) -> Result<()> {
        if self.hashed != Some(at) {
            return Ok(());
        }
        let path = self.fields.get(at).map_or("", |(path, _)| path.as_str());
        Err(DocsError::new(
            ErrorCode::HashedArray,
            format!(
                "index `{}`: hashed indexes do not support array values, found one at '{path}'",
                self.spec.name
            ),
        ))
    }

    fn too_many_keys(&self) -> DocsError {
        DocsError::new(
            ErrorCode::StoreFull,
            format!(
                "index `{}`: limit of {INDEX_KEYS_PER_DOCUMENT_MAX} entries for one document reached",
                self.spec.name
            ),
        )
    }

    /// Returns whether the index has, under its first field, every document with a value at `path`.
    pub fn answers_equality(&self, path: &str) -> bool {
        self.partial.is_none()
            && self.spec.has_values()
            && self.wildcard.is_none()
            && self.hashed != Some(0)
            && self.collation.is_none()
            && self.fields.first().is_some_and(|(first, _)| first.as_str() == path)
    }

    /// Returns whether a change of top-level fields for which `touches` is true may change the keys.
    pub fn depends_on(&self, touches: &impl Fn(&[u8]) -> bool) -> bool {
        self.partial.is_some()
            || self.text.as_ref().is_some_and(|text| text.fields.depends_on(touches))
            || self.wildcard.is_some()
            || self.fields.iter().any(|(path, _)| touches(path.top()))
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
            self.add_key(key, slot);
        }
    }

    /// Adds an entry of a document that has no other.
    pub fn add_key(&mut self, key: Key, slot: RowIndex) {
        self.bytes += entry_bytes(&key);
        self.entries.insert((key, slot));
    }

    pub fn remove(&mut self, keys: IndexKeys, slot: RowIndex) {
        self.multikey_docs -= usize::from(keys.len() > 1);
        for key in keys {
            self.remove_key(key, slot);
        }
    }

    /// Removes an entry of a document that has no other.
    pub fn remove_key(&mut self, key: Key, slot: RowIndex) {
        let bytes = entry_bytes(&key);
        if self.entries.remove(&(key, slot)).is_some() {
            self.bytes -= bytes;
        }
    }

    /// Returns the bytes that `keys` would add.
    pub fn cost(keys: &IndexKeys) -> u64 {
        keys.iter().map(entry_bytes).sum()
    }

    /// Creates the error that another document has `key`, which is a key of `doc`.
    pub fn duplicate(&self, collection: &str, doc: &[u8], key: &Key) -> DocsError {
        let mut rest = key.as_bytes();
        let mut found = vec![0; 4];
        for (path, direction) in self.fields.iter() {
            // of several elements, the one that this key was built from
            let values = key_values(doc, path);
            for value in values.iter().copied().chain([RawValue::NULL]) {
                let mut part = KeyBuf::new();
                put_field(&mut part, value, *direction, self.collation.as_ref());
                if let Some(behind) = rest.strip_prefix(part.as_slice()) {
                    rest = behind;
                    put_element(&mut found, path.as_str().as_bytes(), value);
                    break;
                }
            }
        }
        close_document(&mut found, 0);
        DocsError::duplicate_key(DuplicateKey {
            collection: collection.to_owned(),
            index: self.spec.name.clone(),
            key_pattern: self.spec.key_pattern(),
            key_value: found.into(),
        })
    }

    /// Renumbers the rows; the new indexes have the order of the old ones.
    pub fn renumber(&mut self, new: &[RowIndex]) {
        self.entries = self.entries.iter().map(|(key, slot)| (key.clone(), new[*slot as usize])).collect();
    }
}

fn entry_bytes(key: &Key) -> u64 {
    ENTRY_BYTES + key.heap_bytes() as u64
}

pub(crate) fn put_field(
    buf: &mut KeyBuf,
    value: RawValue<'_>,
    direction: Direction,
    collation: Option<&Collation>,
) {
    match direction {
        Direction::Ascending => put_by(buf, value, collation),
        Direction::Descending => put_descending(buf, value, collation),
    }
}

/// Appends the hash of a value, the same for equal numbers of different types.
pub(crate) fn put_hash(buf: &mut KeyBuf, value: RawValue<'_>, collation: Option<&Collation>) {
    // FNV-1a: the same on every machine and in every version, and entries are compared with the document anyway
    let hash =
        Key::of_raw_by(value, collation).as_bytes().iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
    buf.extend_from_slice(&hash.to_be_bytes());
}
