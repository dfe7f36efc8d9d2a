//! One collection of one partition: documents by `_id`, in order of insertion, and their indexes.
//!
//! Documents are in rows that grow only at the end, so a scan returns them in order of insertion, also after
//! loading a checkpoint. A hash table maps an `_id` to its row. Rows of deleted documents stay empty until
//! they are at least half of all rows, and not few; then the rows are compacted, in order. Queries that need the
//! order of the `_id`s make the collection build an index of it.
//!
//! Rows, hash table and indexes are persistent: a clone of a collection shares them, and a change copies only
//! the pages that it touches. So a [`crate::StoreSnapshot`] stays as it is while the owner continues
//! (`docs/rfcs/0008-document-snapshots.md`).

mod change;
mod definition;
mod id_order;
mod identity;
mod indexes;
mod trial;
mod validation;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use tidemill_types::Value;

use crate::DocBytes;
use crate::collation::Collation;
use crate::error::{DocsError, DuplicateKey, ErrorCode, Result};
use crate::index::{Index, IndexKeys};
use crate::limits::StoreLimits;
use crate::rows::{RowIndex, Rows};
use crate::sequence::Sequence;
use crate::spec::CollectionSpec;
use crate::values::key::Key;
use crate::values::path::Path;
use crate::values::raw::{RawValue, field, tag};
use crate::values::validate::check;
use crate::writing::changes::{ChangeKind, ChangeRecorder, DocumentChange};
pub(crate) use change::{with_id_first, with_some_id};
use id_order::IdOrder;
pub use identity::{identified, with_identity};
use validation::Validator;

/// Bytes charged for a document besides its own: its row, with the key of its `_id`, and its entry in the hash
/// table.
pub(crate) const ROW_BYTES: u64 = 88;
/// Below this number of empty rows, compaction does not pay off.
const EMPTY_ROWS_MIN: usize = 1024;

/// Memory of all collections of a store.
#[derive(Debug, Default)]
pub(crate) struct MemoryUsage {
    /// Bytes charged for the documents that are there.
    pub bytes: AtomicU64,
    /// Bytes of all documents that were ever replaced or deleted, with their rows. A snapshot keeps those that
    /// were so after it was taken.
    pub superseded: AtomicU64,
    /// Bytes charged for what queries have made the store build; given up before a write is refused.
    pub derived: AtomicU64,
    /// The same for what readers have built in their snapshots, and the store has not taken over.
    pub derived_by_readers: AtomicU64,
}

/// The documents of one collection in one partition.
#[derive(Debug, Clone)]
pub struct Collection {
    pub(crate) spec: Arc<CollectionSpec>,
    shard_key: Option<Arc<Path>>,
    pub(crate) rows: Rows,
    pub(crate) indexes: Vec<Index>,
    pub(crate) id_order: IdOrder,
    /// Bytes of the documents, without rows and indexes.
    bytes: u64,
    pub(crate) limits: Arc<StoreLimits>,
    pub(crate) usage: Arc<MemoryUsage>,
    pub(crate) changes: Arc<ChangeRecorder>,
    pub(crate) validator: Option<Arc<Validator>>,
    collation: Option<Collation>,
    /// Set while a command that asked for no validation is applied.
    pub(crate) bypass_validation: bool,
    /// The field whose value is the `_id`, if the collection is an entity.
    key_field: Option<Arc<str>>,
    /// Documents whose `_id` is not the value of that field.
    contradictions: u64,
    /// Set while a command is applied that was written before `_id` and key were compared.
    pub(crate) bypass_identity: bool,
}

impl Collection {
    /// Creates a collection without documents. `spec` must have no indexes: they are created afterwards.
    /// Errors: a validator that is not a filter.
    pub(crate) fn new(
        spec: CollectionSpec,
        limits: Arc<StoreLimits>,
        usage: Arc<MemoryUsage>,
        changes: Arc<ChangeRecorder>,
    ) -> Result<Self> {
        let shard_key = spec.shard_key.as_deref().filter(|k| *k != "_id").map(|k| Arc::new(Path::new(k)));
        Ok(Self {
            validator: Validator::new(&spec.options)?,
            collation: spec.options.parsed_collation()?,
            spec: Arc::new(spec),
            shard_key,
            rows: Rows::new(),
            indexes: Vec::new(),
            id_order: IdOrder::default(),
            bytes: 0,
            limits,
            usage,
            changes,
            bypass_validation: false,
            key_field: None,
            contradictions: 0,
            bypass_identity: false,
        })
    }

    /// Returns the definition, including indexes.
    pub fn spec(&self) -> &CollectionSpec {
        &self.spec
    }

    /// Returns the collation of operations that name none; `None` for the order of bytes.
    pub fn collation(&self) -> Option<&Collation> {
        self.collation.as_ref()
    }

    /// Returns the number of documents.
    pub fn len(&self) -> usize {
        self.rows.documents()
    }

    /// Returns whether there are no documents.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the documents, without rows and indexes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the document with this `_id`. Ids whose key is inline are looked up without an allocation.
    #[inline]
    pub fn get(&self, id: &Value<'_>) -> Option<&DocBytes> {
        self.get_key(&Key::of(id))
    }

    /// Returns the document whose `_id` has this key.
    #[inline]
    pub fn get_key(&self, key: &Key) -> Option<&DocBytes> {
        self.rows.find_document(key)
    }

    /// Returns when a document was inserted.
    pub fn sequence(&self, id: &Value<'_>) -> Option<Sequence> {
        self.rows.find(&Key::of(id)).and_then(|row| self.rows.get(row)).map(|row| row.sequence)
    }

    /// Returns when the last document was inserted, also if it is gone.
    pub fn newest(&self) -> Sequence {
        self.rows.newest()
    }

    /// Returns whether the documents are stored in the order of insertion. That is so unless some have come from other partitions.
    pub fn is_in_order(&self) -> bool {
        self.rows.is_in_order()
    }

    /// Puts the documents into the order of insertion.
    pub(crate) fn put_in_order(&mut self) {
        if self.rows.is_in_order() {
            return;
        }
        let new = self.rows.put_in_order();
        self.indexes.iter_mut().for_each(|index| index.renumber(&new));
        self.renumber_id_order(&new);
    }

    /// Iterates over the documents in order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = &DocBytes> {
        self.rows.iter().map(|(_, row)| &row.doc)
    }

    /// Iterates over the documents that were inserted after the one whose `_id` has the key `last`, or over all without one.
    /// Returns `None` if that document is gone.
    pub fn documents_after(&self, last: Option<&Key>) -> Option<impl Iterator<Item = &DocBytes>> {
        let from = match last {
            None => 0,
            Some(last) => self.rows.find(last)?.saturating_add(1),
        };
        Some(self.rows.iter_from(from).map(|(_, row)| &row.doc))
    }

    /// Returns handles of all documents in order of insertion; contents are shared, not copied. Takes time for
    /// each document: [`Self::iter`] needs no memory, and a [`crate::StoreSnapshot`] takes no time.
    pub fn documents(&self) -> Vec<DocBytes> {
        self.iter().cloned().collect()
    }

    /// Inserts a document. It is copied, so that it does not keep the buffer of its request alive.
    ///
    /// Errors: bytes that are not BSON; an `_id` that is missing, an array, undefined or a regular
    /// expression; a document that is not valid; `Conflict` when its `_id` or unique values exist already; limits. Nothing
    /// is changed then. The oldest documents of a capped collection go.
    pub fn insert(&mut self, doc: DocBytes) -> Result<Key> {
        self.load(&doc)
    }

    /// Inserts as [`Self::insert`], for a document inside a larger buffer.
    pub(crate) fn load(&mut self, doc: &[u8]) -> Result<Key> {
        check(doc, &self.limits)?;
        self.insert_checked(doc)
    }

    fn insert_checked(&mut self, doc: &[u8]) -> Result<Key> {
        let doc = &*self.identified(doc)?;
        id_of(doc)?;
        self.validate(doc, None)?;
        self.check_capped(doc.len())?;
        let key = self.insert_row(doc, self.changes.sequence(self.rows.newest()))?;
        self.delete_oldest()?;
        Ok(key)
    }

    /// Inserts a document of a checkpoint, which was valid when it was written.
    pub(crate) fn restore(&mut self, doc: &[u8], sequence: Sequence) -> Result<Key> {
        check(doc, &self.limits)?;
        self.insert_row(doc, sequence)
    }

    fn insert_row(&mut self, doc: &[u8], sequence: Sequence) -> Result<Key> {
        let id = id_of(doc)?;
        let key = Key::of_raw(id);
        if self.rows.find(&key).is_some() {
            return Err(self.duplicate_id(id));
        }
        let Some(slot) = self.rows.next() else {
            return Err(self.store_full("limit of 4294967294 documents in one partition".into()));
        };
        let keys = self.new_keys(doc, None)?;
        let added = doc.len() as u64 + ROW_BYTES + keys.iter().map(Index::cost).sum::<u64>();
        self.reserve(added)?;
        for (index, keys) in self.indexes.iter_mut().zip(keys) {
            index.add(keys, slot);
        }
        let doc = Bytes::copy_from_slice(doc);
        self.bytes += doc.len() as u64;
        self.note(ChangeKind::Insert, &key, None, Some(&doc));
        if self.changes.is_digesting() {
            self.changes.digest().add_sequence(sequence.number());
        }
        self.count_contradictions(None, Some(&doc));
        self.rows.push(key.clone(), doc, sequence);
        self.add_to_id_order(slot);
        Ok(key)
    }

    /// Deletes the document with this `_id` and returns it.
    pub fn delete_by_id(&mut self, id: &Value<'_>) -> Result<Option<DocBytes>> {
        match self.slot(&Key::of(id)) {
            Some(slot) => self.delete_slot(slot),
            None => Ok(None),
        }
    }

    /// Deletes the document whose `_id` has this key, if there is one.
    pub(crate) fn delete_by_key(&mut self, key: &Key) -> Result<()> {
        match self.slot(key) {
            Some(slot) => self.delete_slot(slot).map(|_| ()),
            None => Ok(()),
        }
    }

    /// Notes the change of a document.
    #[inline]
    fn note(&self, kind: ChangeKind, key: &Key, before: Option<&DocBytes>, after: Option<&DocBytes>) {
        self.changes.note(&self.spec.name, key);
        self.changes.add_to_digest(kind, &self.spec.name, key, after.map(|after| &**after));
        if self.changes.is_collecting() {
            self.collect(kind, key, before, after);
        }
    }

    fn collect(&self, kind: ChangeKind, key: &Key, before: Option<&DocBytes>, after: Option<&DocBytes>) {
        self.changes.collect(DocumentChange {
            kind,
            collection: self.spec.name.as_str().into(),
            key: key.clone(),
            before: before.cloned(),
            after: after.cloned(),
            place: 0,
            moved: None,
        });
    }

    /// Notes that all documents are deleted.
    fn note_cleared(&self) {
        self.changes.note_all();
        self.changes.add_to_digest(ChangeKind::Delete, &self.spec.name, &Key::default(), None);
        if self.changes.is_collecting() {
            for (_, row) in self.rows.iter() {
                self.collect(ChangeKind::Delete, &row.key, Some(&row.doc), None);
            }
        }
    }

    /// Notes that the collection is dropped.
    pub(crate) fn note_dropped(&self) {
        self.changes.note_all();
        self.changes.collect_drop(&self.spec.name);
    }

    /// Notes that the collection gets another name; those who follow its changes see no more of it.
    pub(crate) fn note_renamed(&self, to: &str, drop_target: bool) {
        self.changes.note_all();
        self.changes.collect_definition(ChangeKind::Rename, &self.spec.name, || {
            bson::rawdoc! { "to": to, "dropTarget": drop_target }
        });
    }

    /// Deletes all documents and returns their number.
    pub(crate) fn clear(&mut self) -> u64 {
        let gone = self.len() as u64;
        self.note_cleared();
        self.release_all();
        self.drop_id_order();
        self.rows = self.rows.emptied();
        self.bytes = 0;
        self.contradictions = 0;
        self.indexes.iter_mut().for_each(|index| *index = index.emptied());
        gone
    }

    /// Deletes the documents in these rows and returns their number.
    pub(crate) fn delete_slots(&mut self, slots: &[RowIndex]) -> Result<u64> {
        let mut gone = 0;
        for slot in slots {
            gone += u64::from(self.take_slot(*slot)?.is_some());
        }
        self.compact_if_sparse();
        Ok(gone)
    }

    fn delete_slot(&mut self, slot: RowIndex) -> Result<Option<DocBytes>> {
        let doc = self.take_slot(slot)?;
        self.compact_if_sparse();
        Ok(doc)
    }

    /// Empties a row; other rows keep their index.
    fn take_slot(&mut self, slot: RowIndex) -> Result<Option<DocBytes>> {
        let Some(row) = self.rows.get(slot) else {
            return Ok(None);
        };
        let keys: Vec<IndexKeys> =
            self.indexes.iter().map(|i| i.stored_keys(&row.doc)).collect::<Result<_>>()?;
        let freed = row.doc.len() as u64 + ROW_BYTES + keys.iter().map(Index::cost).sum::<u64>();
        for (index, keys) in self.indexes.iter_mut().zip(keys) {
            index.remove(keys, slot);
        }
        let key = row.key.clone();
        self.remove_from_id_order(slot);
        let doc = self.rows.take(slot);
        self.note(ChangeKind::Delete, &key, doc.as_ref(), None);
        self.count_contradictions(doc.as_deref(), None);
        let bytes = doc.as_ref().map_or(0, |d| d.len() as u64);
        self.bytes -= bytes;
        self.release(freed);
        self.supersede(bytes);
        Ok(doc)
    }

    /// Compacts the rows if at least half of them are empty. Its cost is amortized over the deletes before
    /// it.
    fn compact_if_sparse(&mut self) {
        let empty = self.rows.empty();
        if empty < EMPTY_ROWS_MIN || empty < self.len() {
            return;
        }
        let new = self.rows.compact();
        self.indexes.iter_mut().for_each(|index| index.renumber(&new));
        self.renumber_id_order(&new);
    }

    #[inline]
    pub(crate) fn slot(&self, key: &Key) -> Option<RowIndex> {
        self.rows.find(key)
    }

    #[inline]
    pub(crate) fn doc_at(&self, slot: RowIndex) -> Option<&DocBytes> {
        self.rows.get(slot).map(|row| &row.doc)
    }

    /// Returns the bytes that the store is charged for this collection.
    fn charged_bytes(&self) -> u64 {
        self.bytes + ROW_BYTES * self.len() as u64 + self.indexes.iter().map(|i| i.bytes).sum::<u64>()
    }

    fn reserve(&self, bytes: u64) -> Result<()> {
        let used = self.usage.bytes.load(Ordering::Relaxed);
        if used + bytes > self.limits.store_bytes_max {
            return Err(self.store_full(format!(
                "{used} of {} bytes (store_bytes_max) are used, {bytes} more are needed",
                self.limits.store_bytes_max
            )));
        }
        // a store has one writer, so no other thread changes it between load and store
        self.usage.bytes.store(used + bytes, Ordering::Relaxed);
        Ok(())
    }

    fn release(&self, bytes: u64) {
        self.usage.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Makes the collection one of another store, which is charged for it from now on and notes its changes.
    pub(crate) fn adopt(&mut self, changes: &Arc<ChangeRecorder>, usage: &Arc<MemoryUsage>) {
        self.changes = changes.clone();
        self.usage = usage.clone();
        self.charge_id_order();
    }

    /// Counts a document of `bytes` that snapshots may still hold.
    fn supersede(&self, bytes: u64) {
        self.usage.superseded.fetch_add(bytes + ROW_BYTES, Ordering::Relaxed);
    }

    /// Stops charging for the collection, as all its documents go.
    pub(crate) fn release_all(&self) {
        self.release(self.charged_bytes());
        self.usage.superseded.fetch_add(self.charged_bytes(), Ordering::Relaxed);
    }

    fn store_full(&self, why: String) -> DocsError {
        DocsError::new(
            ErrorCode::StoreFull,
            format!(
                "collection `{}`: the document store is full: {why}; delete documents or raise the limit",
                self.spec.name
            ),
        )
    }

    fn duplicate_id(&self, id: RawValue<'_>) -> DocsError {
        DocsError::duplicate_key(DuplicateKey {
            collection: self.spec.name.clone(),
            index: "_id_".to_owned(),
            key_pattern: RawValue { tag: tag::INT32, bytes: &[1, 0, 0, 0] }.in_document("_id").into(),
            key_value: id.in_document("_id").into(),
        })
    }
}

/// Returns the `_id` of a document. Errors: it is missing, or it has a type that MongoDB does not accept.
fn id_of(doc: &[u8]) -> Result<RawValue<'_>> {
    let Some(id) = field(doc, b"_id") else {
        return Err(DocsError::bad_value("the document has no _id: give it one, for example a new ObjectId"));
    };
    match id.value.tag {
        tag::ARRAY | tag::REGEX | tag::UNDEFINED => {
            Err(DocsError::bad_value(format!("The '_id' value cannot be of type {}", id.value.type_name())))
        }
        _ => Ok(id.value),
    }
}
