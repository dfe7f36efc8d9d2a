//! All collections of one partition.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use imbl::OrdMap;
use tidemill_types::{Timestamp, did_you_mean};

use crate::collection::{Collection, MemoryUsage};
use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::StoreLimits;
use crate::sequence::Sequence;
use crate::spec::CollectionSpec;
use crate::writing::changes::{ChangeRecorder, DocumentChange, WriteTimes};

/// Collections by name. A clone shares all of them.
pub(crate) type Collections = OrdMap<Arc<str>, Arc<Collection>>;

/// For each entity the field whose value is the `_id` of its documents.
type EntityKeys = BTreeMap<String, Arc<str>>;

/// The documents of one partition. It has one writer and does no I/O. Other threads read its
/// [`StoreSnapshot`]s.
#[derive(Debug)]
pub struct Store {
    pub(crate) collections: Collections,
    limits: Arc<StoreLimits>,
    keys: Arc<EntityKeys>,
    usage: Arc<MemoryUsage>,
    pub(crate) changes: Arc<ChangeRecorder>,
    /// True for the store of a transaction.
    is_fork: bool,
    /// When the documents of the insert that is applied count as inserted; empty if its record says it.
    pub(crate) sequences: Vec<Sequence>,
    /// Maximum number of documents that the update being applied changes.
    pub(crate) documents_max: Option<u64>,
}

/// The documents of a store at one point in time, for readers of any thread. The store continues to change
/// meanwhile.
///
/// Taking or cloning one takes constant time. As long as it is held, documents that the store replaces or
/// deletes stay in memory; [`Self::superseded_bytes`] tells how much that can be.
#[derive(Debug, Clone)]
pub struct StoreSnapshot {
    collections: Collections,
    limits: Arc<StoreLimits>,
    keys: Arc<EntityKeys>,
    bytes: u64,
    usage: Arc<MemoryUsage>,
    /// [`MemoryUsage::superseded`] when the snapshot was taken.
    superseded: u64,
}

impl StoreSnapshot {
    /// Returns the collection `name`.
    pub fn collection(&self, name: &str) -> Option<&Collection> {
        self.collections.get(name).map(|c| &**c)
    }

    /// Iterates over the collections, by name.
    pub fn collections(&self) -> impl Iterator<Item = &Collection> {
        self.collections.values().map(|c| &**c)
    }

    /// Returns the names of all collections, sorted.
    pub fn collection_names(&self) -> impl Iterator<Item = &str> + Clone {
        self.collections.iter().map(|(name, _)| &**name)
    }

    /// Returns the number of documents.
    pub fn len(&self) -> usize {
        self.collections().map(Collection::len).sum()
    }

    /// Returns whether the snapshot has no documents.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes charged for the documents of the snapshot; see [`Store::bytes`].
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of what the store has built for queries; see [`Store::derived_bytes`].
    pub fn derived_bytes(&self) -> u64 {
        self.usage.derived_total()
    }

    /// Returns how many bytes of documents, with their rows, the store has replaced or deleted since. The
    /// snapshot alone keeps at most these, and its own pages: rows (72 bytes for each of its documents), the
    /// hash table (16) and index entries, as far as they have changed.
    pub fn superseded_bytes(&self) -> u64 {
        self.usage.superseded.load(Ordering::Relaxed) - self.superseded
    }
}

impl Store {
    /// Creates an empty store.
    pub fn new(limits: StoreLimits) -> Self {
        let changes = ChangeRecorder::new();
        changes.set_collecting(false);
        Self {
            collections: OrdMap::new(),
            limits: Arc::new(limits),
            keys: Arc::default(),
            usage: Arc::default(),
            changes: Arc::new(changes),
            is_fork: false,
            sequences: Vec::new(),
            documents_max: None,
        }
    }

    /// Creates a store for one transaction: it begins with the documents of a snapshot, and what it changes is its own. It
    /// collects its changes.
    pub fn fork(snapshot: &StoreSnapshot) -> Self {
        let usage = MemoryUsage::default();
        usage.bytes.store(snapshot.bytes, Ordering::Relaxed);
        Self {
            collections: snapshot.collections.clone(),
            limits: snapshot.limits.clone(),
            keys: snapshot.keys.clone(),
            usage: Arc::new(usage),
            changes: Arc::new(ChangeRecorder::collecting()),
            is_fork: true,
            sequences: Vec::new(),
            documents_max: None,
        }
    }

    /// Says which collections are entities, with the field whose value is the `_id` of their documents. What is stored
    /// stays; [`Collection::contradictions`] tells how many documents have another `_id`.
    pub fn set_entity_keys<'k>(&mut self, keys: impl IntoIterator<Item = (&'k str, &'k str)>) {
        let keys = keys.into_iter().filter(|(_, key)| *key != "_id");
        self.keys = Arc::new(keys.map(|(name, key)| (name.to_owned(), key.into())).collect());
        let keys = self.keys.clone();
        let names: Vec<Arc<str>> = self.collections.keys().cloned().collect();
        for name in names {
            if let Some(collection) = self.collections.get_mut(&name)
                && collection.key_field() != keys.get(&*name).map(|key| &**key)
            {
                Arc::make_mut(collection).set_key_field(keys.get(&*name));
            }
        }
    }

    /// Says which record of the log makes the changes that follow, and its time, by which inserted documents are ordered.
    pub fn set_record(&mut self, record: u64, time: Timestamp) {
        self.changes.set_record(record);
        self.changes.set_sequence(Sequence::new(time, 0));
    }

    /// Says when the documents that follow are inserted.
    pub fn set_sequence(&mut self, sequence: Sequence) {
        self.changes.set_sequence(sequence);
    }

    /// Sets whether changes are collected for [`Self::take_changes`].
    pub fn collect_changes(&mut self, on: bool) {
        self.changes.set_collecting(on);
    }

    /// Returns whether changes are collected.
    pub fn collects_changes(&self) -> bool {
        self.changes.is_collecting()
    }

    /// Sets whether [`Self::write_digest`] is computed.
    pub fn digest_writes(&mut self, on: bool) {
        self.changes.set_digesting(on);
    }

    /// Returns the digest of what the present record has written so far; `None` if it has written nothing, or if digests are not
    /// computed.
    pub fn write_digest(&self) -> Option<u128> {
        if self.changes.is_digesting() { self.changes.digest().value() } else { None }
    }

    /// Takes the changes collected so far, in the order in which they were made.
    pub fn take_changes(&mut self) -> Vec<DocumentChange> {
        self.changes.take()
    }

    /// Returns which records changed documents last, for a checkpoint.
    pub fn write_times(&self) -> WriteTimes {
        self.changes.write_times()
    }

    /// Restores what [`Self::write_times`] returned.
    pub fn restore_write_times(&mut self, times: &WriteTimes) {
        self.changes.restore(times);
    }

    pub(crate) fn superseded(&self) -> u64 {
        self.usage.superseded.load(Ordering::Relaxed)
    }

    pub(crate) fn derived(&self) -> u64 {
        self.usage.derived.load(Ordering::Relaxed)
    }

    pub(crate) fn set_usage(&mut self, bytes: u64, superseded: u64, derived: u64) {
        self.usage.derived.store(derived, Ordering::Relaxed);
        self.usage.bytes.store(bytes, Ordering::Relaxed);
        self.usage.superseded.store(superseded, Ordering::Relaxed);
    }

    /// Returns the current state for readers, in constant time.
    pub fn snapshot(&self) -> StoreSnapshot {
        StoreSnapshot {
            collections: self.collections.clone(),
            limits: self.limits.clone(),
            keys: self.keys.clone(),
            bytes: self.bytes(),
            usage: self.usage.clone(),
            superseded: self.usage.superseded.load(Ordering::Relaxed),
        }
    }

    /// Creates a collection. Does nothing if there is one with an equal definition.
    ///
    /// Errors: `NamespaceExists` when it exists with another definition, a bad name or index, limits.
    pub fn create_collection(&mut self, spec: &CollectionSpec) -> Result<()> {
        spec.check()?;
        if let Some(old) = self.collection(&spec.name) {
            if old.spec.is_same(spec) {
                return Ok(());
            }
            return Err(DocsError::new(
                ErrorCode::NamespaceExists,
                format!(
                    "collection `{}` exists with other options: drop it first or choose another name",
                    spec.name
                ),
            ));
        }
        if self.collections.len() >= self.limits.collections_max {
            return Err(DocsError::new(
                ErrorCode::StoreFull,
                format!("limit of {} collections reached (collections_max)", self.collections.len()),
            ));
        }
        let bare = CollectionSpec { indexes: Vec::new(), ..spec.clone() };
        let mut collection =
            Collection::new(bare, self.limits.clone(), self.usage.clone(), self.changes.clone())?;
        for index in &spec.indexes {
            collection.create_index(index.clone())?;
        }
        collection.set_key_field(self.keys.get(&spec.name));
        self.collections.insert(spec.name.as_str().into(), Arc::new(collection));
        Ok(())
    }

    /// Makes a collection match its declaration: creates it if it does not exist, creates and drops indexes,
    /// and changes shard key or replication if it has no documents.
    ///
    /// Errors: `NamespaceExists` when there are documents placed by another shard key or replication; those
    /// of [`Collection::create_index`].
    pub fn declare_collection(&mut self, spec: &CollectionSpec) -> Result<()> {
        spec.check()?;
        match self.collection_mut(&spec.name) {
            Some(old) if old.spec.has_same_placement(spec) => old.set_indexes(&spec.indexes),
            Some(old) if old.is_empty() => {
                self.drop_collection(&spec.name);
                self.create_collection(spec)
            }
            Some(old) => Err(DocsError::new(
                ErrorCode::NamespaceExists,
                format!(
                    "collection `{}` has {} documents that are {}, but is declared as {}: delete the documents first",
                    spec.name,
                    old.len(),
                    old.spec.placement(),
                    spec.placement()
                ),
            )),
            None => self.create_collection(spec),
        }
    }

    /// Drops a collection with its documents. Returns whether there was one.
    pub fn drop_collection(&mut self, name: &str) -> bool {
        // as a change of this store, if it is a fork
        self.collection_mut(name);
        let Some(gone) = self.collections.remove(name) else {
            return false;
        };
        gone.note_dropped();
        gone.release_all();
        gone.release_id_order();
        true
    }

    /// Gives a collection another name; its documents and indexes stay. With `drop_target`, a collection that has the new name
    /// is dropped.
    ///
    /// Errors: `NamespaceNotFound` without such a collection, `NamespaceExists` when the new name is taken, a bad name.
    pub fn rename_collection(&mut self, name: &str, to: &str, drop_target: bool) -> Result<()> {
        let spec = CollectionSpec { name: to.to_owned(), ..self.require(name)?.spec().clone() };
        spec.check()?;
        if name == to {
            return Err(DocsError::new(
                ErrorCode::IllegalOperation,
                format!("collection `{name}` cannot be renamed to itself"),
            ));
        }
        if self.collections.contains_key(to) && !drop_target {
            return Err(DocsError::new(
                ErrorCode::NamespaceExists,
                format!("collection `{name}` cannot be renamed: `{to}` exists"),
            ));
        }
        self.drop_collection(to);
        if let Some(mut collection) = self.collections.remove(name) {
            collection.note_renamed(to, drop_target);
            let renamed = Arc::make_mut(&mut collection);
            renamed.spec = Arc::new(spec);
            renamed.set_key_field(self.keys.get(to));
            self.collections.insert(to.into(), collection);
        }
        Ok(())
    }

    /// Returns the collection `name`.
    pub fn collection(&self, name: &str) -> Option<&Collection> {
        self.collections.get(name).map(|c| &**c)
    }

    /// Returns the collection `name` mutably.
    pub fn collection_mut(&mut self, name: &str) -> Option<&mut Collection> {
        if self.usage.total() > self.limits.store_bytes_max {
            self.give_up_id_orders();
        }
        let collection = self.collections.get_mut(name).map(Arc::make_mut)?;
        // the collection of a fork still belongs to the store of the snapshot
        if !Arc::ptr_eq(&collection.changes, &self.changes) {
            collection.adopt(&self.changes, &self.usage);
        } else if !self.is_fork {
            collection.prepare_id_order();
        }
        Some(collection)
    }

    /// Makes room for documents.
    fn give_up_id_orders(&mut self) {
        let names: Vec<Arc<str>> = self
            .collections
            .iter()
            .filter(|(_, c)| c.id_order.index().is_some())
            .map(|(name, _)| name.clone())
            .collect();
        for name in names {
            if let Some(collection) = self.collections.get_mut(&name).map(Arc::make_mut)
                && Arc::ptr_eq(&collection.changes, &self.changes)
            {
                collection.give_up_id_order();
            }
        }
    }

    /// Returns the collection `name` mutably. Errors: `NamespaceNotFound`, with the name that may have been
    /// meant.
    pub fn require(&mut self, name: &str) -> Result<&mut Collection> {
        if !self.collections.contains_key(name) {
            let hint = did_you_mean(name, self.collection_names());
            return Err(DocsError::new(
                ErrorCode::NamespaceNotFound,
                format!("no collection `{name}`{hint}"),
            ));
        }
        Ok(self.collection_mut(name).expect("looked up just before"))
    }

    /// Returns the names of all collections, sorted.
    pub fn collection_names(&self) -> impl Iterator<Item = &str> + Clone {
        self.collections.iter().map(|(name, _)| &**name)
    }

    /// Returns the bytes that count against `store_bytes_max`: documents, their rows and index entries.
    pub fn bytes(&self) -> u64 {
        self.usage.bytes.load(Ordering::Relaxed)
    }

    /// Returns the bytes of what the store has built for queries: the order of `_id`s. It has them only as far as
    /// `store_bytes_max` leaves room.
    pub fn derived_bytes(&self) -> u64 {
        self.usage.derived_total()
    }

    /// Returns the limits of the store.
    pub fn limits(&self) -> &StoreLimits {
        &self.limits
    }
}
