//! All collections of one partition.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill_types::did_you_mean;

use crate::collection::{Collection, MemoryUsage};
use crate::error::{DocsError, ErrorCode, Result};
use crate::limits::Limits;
use crate::spec::CollectionSpec;

/// The documents of one partition. It has one writer and does no I/O; its owner wraps it in the lock it
/// needs.
#[derive(Debug)]
pub struct Store {
    pub(crate) collections: BTreeMap<String, Collection>,
    pub(crate) limits: Arc<Limits>,
    pub(crate) usage: Arc<MemoryUsage>,
}

impl Store {
    /// Creates an empty store.
    pub fn new(limits: Limits) -> Self {
        Self {
            collections: BTreeMap::new(),
            limits: Arc::new(limits),
            usage: Arc::new(MemoryUsage { bytes: AtomicU64::new(0) }),
        }
    }

    /// Creates a collection. Does nothing if there is one with an equal definition.
    ///
    /// Errors: `NamespaceExists` when it exists with another definition, a bad name or index, limits.
    pub fn create_collection(&mut self, spec: &CollectionSpec) -> Result<()> {
        spec.check()?;
        if let Some(old) = self.collections.get(&spec.name) {
            if old.spec == *spec {
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
        let mut collection = Collection::new(bare, self.limits.clone(), self.usage.clone());
        for index in &spec.indexes {
            collection.create_index(index.clone())?;
        }
        self.collections.insert(spec.name.clone(), collection);
        Ok(())
    }

    /// Makes a collection match its declaration: creates it if there is none, creates and drops indexes, and
    /// changes shard key or replication if it has no documents.
    ///
    /// Errors: `NamespaceExists` when there are documents placed by another shard key or replication; those
    /// of [`Collection::create_index`].
    pub fn declare_collection(&mut self, spec: &CollectionSpec) -> Result<()> {
        spec.check()?;
        match self.collections.get_mut(&spec.name) {
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
        let Some(gone) = self.collections.remove(name) else {
            return false;
        };
        self.usage.bytes.fetch_sub(gone.charged_bytes(), Ordering::Relaxed);
        true
    }

    /// Returns the collection `name`.
    pub fn collection(&self, name: &str) -> Option<&Collection> {
        self.collections.get(name)
    }

    /// Returns the collection `name` mutably.
    pub fn collection_mut(&mut self, name: &str) -> Option<&mut Collection> {
        self.collections.get_mut(name)
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
        Ok(self.collections.get_mut(name).expect("looked up just before"))
    }

    /// Returns the names of all collections, sorted.
    pub fn collection_names(&self) -> impl Iterator<Item = &str> + Clone {
        self.collections.keys().map(String::as_str)
    }

    /// Returns the bytes that count against `store_bytes_max`: documents, their rows and index entries.
    pub fn bytes(&self) -> u64 {
        self.usage.bytes.load(Ordering::Relaxed)
    }

    /// Returns the limits of the store.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }
}
