//! What a store notes of each change of a document: which record made it, and, if asked to, both versions.
//!
//! Transactions of several clients compare the first, change streams and transactions of one client read the second.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::DocBytes;
use crate::sequence::Sequence;
use crate::values::key::Key;
use crate::writing::write_digest::WriteDigest;

/// Buckets of [`WriteTimes`]. Two documents share a bucket with a probability of one in this many, and then a transaction
/// sees a conflict that there is not.
const BUCKETS: usize = 1 << 16;

/// Kind of a change of a document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Insert,
    /// Some of its fields were changed.
    Update,
    /// It was replaced by a new version.
    Replace,
    /// It is gone.
    Delete,
    /// Its whole collection is gone: the change has no key and no versions.
    Drop,
    /// A collection was created. This kind and those below are about a whole collection: they have no key, and the version after is a
    /// description of the change.
    Create,
    /// An index was created.
    CreateIndex,
    /// An index was dropped.
    DropIndex,
    /// The options of the collection or of an index were changed.
    Modify,
    /// The collection has another name.
    Rename,
}

impl ChangeKind {
    /// Returns whether the change is one of a whole collection, and so is made by every partition.
    pub fn is_of_collection(self) -> bool {
        !matches!(self, Self::Insert | Self::Update | Self::Replace | Self::Delete)
    }
}

/// A change of one document.
#[derive(Debug, Clone)]
pub struct DocumentChange {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Name of the collection.
    pub collection: Arc<str>,
    /// Key of its `_id`.
    pub key: Key,
    /// The document before; `None` if it was inserted.
    pub before: Option<DocBytes>,
    /// The document after; `None` if it was deleted.
    pub after: Option<DocBytes>,
    /// Place among the changes of its transaction, over all partitions; 0 for others.
    pub place: u32,
    /// The sequence that an inserted document keeps, as it has moved from another partition.
    pub moved: Option<Sequence>,
}

/// For each bucket of documents, the last record that changed one of them. Part of a checkpoint, because whether a
/// transaction conflicts must not depend on when the engine was restarted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteTimes {
    /// Buckets that are not 0: their number, and 1 + the number of the record.
    pub buckets: Vec<(u16, u64)>,
    /// 1 + the number of the last record that deleted all documents of a collection at once.
    pub all: u64,
}

/// Notes of the changes of one store. It has one writer.
#[derive(Debug)]
pub(crate) struct ChangeRecorder {
    /// 1 + the number of the record whose changes are noted.
    record: AtomicU64,
    /// As in [`WriteTimes`]; empty for a store whose changes are never compared.
    buckets: Box<[AtomicU64]>,
    all: AtomicU64,
    collecting: AtomicBool,
    collected: Mutex<Vec<DocumentChange>>,
    /// Place that the next changes get.
    place: AtomicU32,
    /// Number of the sequence that the next inserted document gets, unless a later one is there.
    sequence: AtomicU64,
    /// True if it gets that one in any case.
    moving: AtomicBool,
    digesting: AtomicBool,
    /// Digest of the changes of the present record, while [`Self::is_digesting`].
    digest: Mutex<WriteDigest>,
}

impl ChangeRecorder {
    /// Creates the recorder of a store that applies the records of a log.
    pub fn new() -> Self {
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), ..Self::collecting() }
    }

    /// Creates the recorder of a store of one transaction, which collects its changes.
    pub fn collecting() -> Self {
        Self {
            record: AtomicU64::new(0),
            buckets: Box::default(),
            all: AtomicU64::new(0),
            collecting: AtomicBool::new(true),
            collected: Mutex::default(),
            place: AtomicU32::new(0),
            sequence: AtomicU64::new(0),
            moving: AtomicBool::new(false),
            digesting: AtomicBool::new(false),
            digest: Mutex::default(),
        }
    }

    pub fn set_collecting(&self, on: bool) {
        self.collecting.store(on, Ordering::Relaxed);
    }

    /// Returns whether both versions of a changed document are wanted.
    #[inline]
    pub fn is_collecting(&self) -> bool {
        self.collecting.load(Ordering::Relaxed)
    }

    /// Returns whether the changes are those of one transaction.
    pub fn is_of_transaction(&self) -> bool {
        self.buckets.is_empty()
    }

    pub fn set_record(&self, record: u64) {
        self.record.store(record + 1, Ordering::Relaxed);
        if self.is_digesting() {
            self.digest().begin();
        }
    }

    pub fn set_digesting(&self, on: bool) {
        self.digesting.store(on, Ordering::Relaxed);
        *self.digest() = WriteDigest::default();
    }

    /// Returns whether changes are added to a digest.
    #[inline]
    pub fn is_digesting(&self) -> bool {
        self.digesting.load(Ordering::Relaxed)
    }

    /// Returns the digest of the changes of the present record.
    pub fn digest(&self) -> MutexGuard<'_, WriteDigest> {
        self.digest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a change to the digest, if there is one. `key` is empty for a whole collection.
    #[inline]
    pub fn add_to_digest(&self, kind: ChangeKind, collection: &str, key: &Key, after: Option<&[u8]>) {
        if self.is_digesting() {
            self.digest().add(kind, collection, key.as_bytes(), after);
        }
    }

    /// Says which sequence the next inserted document gets.
    pub fn set_sequence(&self, sequence: Sequence) {
        self.sequence.store(sequence.number(), Ordering::Relaxed);
        self.moving.store(false, Ordering::Relaxed);
    }

    /// Says which sequence the next inserted document keeps, as it comes from another partition.
    pub fn set_moved(&self, sequence: Sequence) {
        self.sequence.store(sequence.number(), Ordering::Relaxed);
        self.moving.store(true, Ordering::Relaxed);
    }

    /// Returns the sequence of the next inserted document; `newest` is the latest of its collection.
    #[inline]
    pub fn sequence(&self, newest: Sequence) -> Sequence {
        let wanted = Sequence::from_number(self.sequence.load(Ordering::Relaxed));
        if self.moving.load(Ordering::Relaxed) { wanted } else { wanted.max(newest) }
    }

    fn moved(&self, kind: ChangeKind) -> Option<Sequence> {
        let moves = kind == ChangeKind::Insert && self.moving.load(Ordering::Relaxed);
        moves.then(|| Sequence::from_number(self.sequence.load(Ordering::Relaxed)))
    }

    /// Notes that a document was changed by the present record.
    #[inline]
    pub fn note(&self, collection: &str, key: &Key) {
        if let Some(bucket) = self.buckets.get(bucket(collection, key)) {
            bucket.store(self.record.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Notes that the present record deleted all documents of a collection.
    pub fn note_all(&self) {
        self.all.store(self.record.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Returns 1 + the number of the last record that may have changed a document.
    pub fn last(&self, collection: &str, key: &Key) -> u64 {
        let own = self.buckets.get(bucket(collection, key)).map_or(0, |b| b.load(Ordering::Relaxed));
        own.max(self.all.load(Ordering::Relaxed))
    }

    /// Takes back what was noted for a document, given what [`Self::last`] was before.
    pub fn set_last(&self, collection: &str, key: &Key, last: u64) {
        if let Some(bucket) = self.buckets.get(bucket(collection, key)) {
            bucket.store(last, Ordering::Relaxed);
        }
    }

    /// Says which place the changes that follow have in their transaction.
    pub fn set_place(&self, place: u32) {
        self.place.store(place, Ordering::Relaxed);
    }

    pub fn collect(&self, change: DocumentChange) {
        let moved = self.moved(change.kind);
        let change = DocumentChange { place: self.place.load(Ordering::Relaxed), moved, ..change };
        self.collected.lock().unwrap_or_else(PoisonError::into_inner).push(change);
    }

    /// Collects that a collection is gone.
    pub fn collect_drop(&self, collection: &str) {
        self.add_to_digest(ChangeKind::Drop, collection, &Key::default(), None);
        if self.is_collecting() {
            let kind = ChangeKind::Drop;
            let collection = collection.into();
            self.collect(DocumentChange {
                kind,
                collection,
                key: Key::default(),
                before: None,
                after: None,
                place: 0,
                moved: None,
            });
        }
    }

    /// Collects that the definition of a collection was changed, which `description` tells.
    pub fn collect_definition(
        &self,
        kind: ChangeKind,
        collection: &str,
        description: impl FnOnce() -> bson::RawDocumentBuf,
    ) {
        if !self.is_collecting() && !self.is_digesting() {
            return;
        }
        let (key, after) = (Key::default(), description().into_bytes());
        self.add_to_digest(kind, collection, &key, Some(&after));
        if self.is_collecting() {
            self.collect(DocumentChange {
                kind,
                collection: collection.into(),
                key,
                before: None,
                after: Some(after.into()),
                place: 0,
                moved: None,
            });
        }
    }

    /// Takes the changes collected so far.
    pub fn take(&self) -> Vec<DocumentChange> {
        std::mem::take(&mut self.collected.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the number of changes collected so far.
    pub fn collected(&self) -> usize {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Forgets the changes collected after the first `count`.
    pub fn truncate(&self, count: usize) {
        self.collected.lock().unwrap_or_else(PoisonError::into_inner).truncate(count);
    }

    pub fn write_times(&self) -> WriteTimes {
        let buckets = self.buckets.iter().enumerate();
        let used = buckets.map(|(at, bucket)| (at as u16, bucket.load(Ordering::Relaxed)));
        WriteTimes {
            buckets: used.filter(|(_, last)| *last > 0).collect(),
            all: self.all.load(Ordering::Relaxed),
        }
    }

    pub fn restore(&self, times: &WriteTimes) {
        for (at, last) in &times.buckets {
            if let Some(bucket) = self.buckets.get(usize::from(*at)) {
                bucket.store(*last, Ordering::Relaxed);
            }
        }
        self.all.store(times.all, Ordering::Relaxed);
    }
}

/// Returns the bucket of a document. Checkpoints contain buckets, so this must stay as it is.
fn bucket(collection: &str, key: &Key) -> usize {
    crc32c::crc32c_append(crc32c::crc32c(collection.as_bytes()), key.as_bytes()) as usize % BUCKETS
}
