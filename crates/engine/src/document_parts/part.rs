//! Documents of one partition at a moment, in this process or in another one.
//!
//! A process without a replica of a partition asks its owner to keep the moment, and fetches the documents that it needs:
//!
//! ```text
//! find { city: "Bonn" } sorted by age, 10    owner: those 10 of its documents        here: a store with these, searched as any other
//! ```
//!
//! Filters are evaluated at the owner first, so that few documents travel, and here again, together with those of other partitions. So a
//! query need not know where documents are. A transaction keeps its own versions of documents here, which take the place of
//! those that are fetched.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::raw::RawDocument;
use imbl::HashMap;
use tidemill_docs::{
    Collection, CollectionSpec, DocBytes, DocumentChange, DocumentCommand, Filter, FindOptions, Key,
    Sequence, SortOrder, Store, StoreLimits, StoreSnapshot, get_path,
};
use tidemill_types::{Error, Offset, Result, Timestamp};

use crate::commit::SharedCommits;
use crate::document_parts::bad_bson;
use crate::state::view::PartitionView;

/// Documents of one partition at a moment.
#[derive(Clone)]
pub struct DocumentsPart {
    /// Offset after the last record that made them.
    pub next: Offset,
    /// The last transactions that it has committed together with other partitions.
    pub shared_commits: SharedCommits,
    /// The documents.
    pub place: PlaceOfDocuments,
}

/// Documents in this process, or in another one.
#[derive(Clone)]
pub enum PlaceOfDocuments {
    /// In this process.
    Here(StoreSnapshot),
    /// In another process, which keeps the moment.
    There(DocumentsElsewhere),
}

impl DocumentsPart {
    /// Returns the documents of a view.
    pub fn of(view: &PartitionView) -> Self {
        Self {
            next: view.next,
            shared_commits: view.shared_commits.clone(),
            place: PlaceOfDocuments::Here(view.documents.clone()),
        }
    }

    /// Returns the documents if they are in this process.
    pub fn here(&self) -> Option<&StoreSnapshot> {
        match &self.place {
            PlaceOfDocuments::Here(documents) => Some(documents),
            PlaceOfDocuments::There(_) => None,
        }
    }
}

/// Documents that a reader wants of a partition.
#[derive(Clone, Copy, Default)]
pub struct WantedDocuments<'w> {
    /// Those that match; all if `None`.
    pub filter: Option<&'w Filter>,
    /// The first ones in this order; in that of insertion if `None`.
    pub sort: Option<&'w SortOrder>,
    /// At most as many; all if `None`.
    pub limit: Option<u64>,
    /// True if they are found as a write finds them.
    pub for_write: bool,
}

impl<'w> WantedDocuments<'w> {
    /// Returns those that match.
    pub fn matching(filter: &'w Filter) -> Self {
        Self { filter: Some(filter), ..Self::default() }
    }

    /// Returns those that a query reads.
    pub fn of_query(filter: &'w Filter, options: &'w FindOptions) -> Self {
        // the first documents of another order than these are those of all
        let is_ordered = options.bounds.is_none() && options.natural.is_none();
        let limit = options.limit.filter(|_| is_ordered);
        Self {
            filter: Some(filter),
            sort: (!options.sort.is_empty()).then_some(&options.sort),
            limit: limit.map(|limit| limit.saturating_add(options.skip)),
            for_write: false,
        }
    }
}

/// Documents of a moment that another process keeps.
pub trait KeptDocuments: Send + Sync {
    /// Returns documents of a collection with the time at which each was inserted: at least those that are wanted, maybe more.
    ///
    /// Errors: `Unavailable` if the other process does not answer, or does not keep the moment any more; `LimitReached` for too many.
    fn fetch(&self, collection: &str, wanted: &WantedDocuments<'_>) -> Result<Vec<(Sequence, DocBytes)>>;

    /// Returns the number of documents that match; `None` if the other process cannot evaluate the filter.
    ///
    /// Errors: `Unavailable` as for [`Self::fetch`].
    fn count(&self, collection: &str, filter: &Filter) -> Result<Option<u64>>;
}

/// Versions of documents by collection and `_id`; `None` for those that are deleted.
type OwnVersions = HashMap<(Arc<str>, Key), Option<(Sequence, DocBytes)>>;

/// Documents in another process, with the versions that a transaction has here.
#[derive(Clone)]
pub struct DocumentsElsewhere {
    kept: Arc<dyn KeptDocuments>,
    own: OwnVersions,
}

impl DocumentsElsewhere {
    /// Creates them without own versions.
    pub fn new(kept: Arc<dyn KeptDocuments>) -> Self {
        Self { kept, own: OwnVersions::default() }
    }

    /// Returns a store with the wanted documents of a collection, and maybe others of it.
    ///
    /// Errors: those of [`KeptDocuments::fetch`].
    pub fn fetch(&self, spec: &CollectionSpec, wanted: &WantedDocuments<'_>) -> Result<StoreSnapshot> {
        Ok(self.store_of(spec, self.fetched(spec, wanted)?)?.snapshot())
    }

    /// Returns the number of documents of a collection that match.
    ///
    /// Errors: as [`Self::fetch`], and those of expressions in the filter.
    pub fn count(&self, spec: &CollectionSpec, filter: &Filter) -> Result<u64> {
        if self.own_of(&spec.name).next().is_none()
            && let Some(count) = self.kept.count(&spec.name, filter)?
        {
            return Ok(count);
        }
        let found = self.fetch(spec, &WantedDocuments::matching(filter))?;
        Ok(found.collection(&spec.name).map_or(Ok(0), |part| part.count(filter))?)
    }

    /// Returns a store for a command of a transaction, with the documents that the command may find or contradict.
    ///
    /// Errors: as [`Self::fetch`]; `Invalid` for a malformed command.
    pub fn fetch_for_write(
        &self,
        spec: &CollectionSpec,
        command: &DocumentCommand,
        (filter, sort): (Option<&Filter>, &SortOrder),
        entity_key: Option<&str>,
    ) -> Result<Store> {
        let plain = command.plain();
        let documents = match is_any_unique(spec) {
            // the value of any document may be the one that exists already
            true => self.fetched(spec, &WantedDocuments::default())?,
            false => {
                let mut documents = BTreeMap::new();
                if let Some(filter) = filter {
                    // one of several that match may have an own version, which does not match
                    let is_first = finds_one(plain) && self.own_of(&spec.name).next().is_none();
                    let sort = (!sort.is_empty()).then_some(sort);
                    let limit = is_first.then_some(1);
                    let wanted = WantedDocuments { filter: Some(filter), sort, limit, for_write: true };
                    documents.extend(self.fetched(spec, &wanted)?);
                }
                if let Some(ids) = new_ids(plain)? {
                    documents.extend(self.fetched(spec, &WantedDocuments::matching(&ids))?);
                }
                documents
            }
        };
        let mut store = self.store_of(spec, documents)?;
        store.set_entity_keys(entity_key.map(|key| (spec.name.as_str(), key)));
        Ok(Store::fork(&store.snapshot()))
    }

    /// Takes over what a command of the transaction has changed in `store`, a store of [`Self::fetch_for_write`].
    pub fn note_changes(&mut self, changes: &[DocumentChange], store: &Store) {
        for change in changes {
            let version = change.after.as_ref().and_then(|document| {
                let raw = RawDocument::from_bytes(document).ok()?;
                let sequence = store.collection(&change.collection)?.sequence(&get_path(raw, "_id"))?;
                Some((sequence, document.clone()))
            });
            self.own.insert((change.collection.clone(), change.key.clone()), version);
        }
    }

    /// Returns own versions of documents of a collection.
    fn own_of<'s>(
        &'s self,
        collection: &'s str,
    ) -> impl Iterator<Item = (&'s Key, &'s Option<(Sequence, DocBytes)>)> {
        let of = self.own.iter().filter(move |((name, _), _)| **name == *collection);
        of.map(|((_, key), version)| (key, version))
    }

    /// Returns the wanted documents by `_id`, own versions in place of those that are kept.
    fn fetched(
        &self,
        spec: &CollectionSpec,
        wanted: &WantedDocuments<'_>,
    ) -> Result<BTreeMap<Key, (Sequence, DocBytes)>> {
        // the first ones may have own versions, behind which others come
        let has_own = self.own_of(&spec.name).next().is_some();
        let wanted = WantedDocuments { limit: wanted.limit.filter(|_| !has_own), ..*wanted };
        let mut documents = BTreeMap::new();
        for (sequence, document) in self.kept.fetch(&spec.name, &wanted)? {
            let raw = RawDocument::from_bytes(&document).map_err(bad_bson)?;
            documents.insert(Key::of(&get_path(raw, "_id")), (sequence, document));
        }
        for (key, version) in self.own_of(&spec.name) {
            match version {
                Some(version) => _ = documents.insert(key.clone(), version.clone()),
                None => _ = documents.remove(key),
            }
        }
        Ok(documents)
    }

    /// Returns a store with these documents, in the order of their insertion.
    fn store_of(
        &self,
        spec: &CollectionSpec,
        documents: BTreeMap<Key, (Sequence, DocBytes)>,
    ) -> Result<Store> {
        let mut documents: Vec<(Sequence, DocBytes)> = documents.into_values().collect();
        documents.sort_by_key(|(sequence, _)| *sequence);
        let mut spec = spec.clone();
        // it has been applied where the documents were written
        spec.options.capped = None;
        let name = spec.name.clone();
        let mut store = Store::new(StoreLimits::default());
        store.create_collection(&spec)?;
        let (sequences, docs): (Vec<_>, Vec<_>) = documents.into_iter().unzip();
        if docs.is_empty() {
            return Ok(store);
        }
        let insert = DocumentCommand::Insert { collection: name, docs, ordered: true };
        let insert = insert.with_sequences(sequences).without_validation();
        let outcome = store.apply(&insert, Timestamp(0))?;
        match outcome.errors.into_iter().next() {
            None => Ok(store),
            Some(failed) => {
                Err(Error::from(failed.error)
                    .context(format!("documents of `{}` of another process", spec.name)))
            }
        }
    }
}

/// Returns whether an index besides that of `_id` is unique.
fn is_any_unique(spec: &CollectionSpec) -> bool {
    spec.indexes.iter().any(|index| index.unique)
}

/// Returns whether a command changes one of the documents that it finds.
fn finds_one(command: &DocumentCommand) -> bool {
    match command {
        DocumentCommand::Update { multi, .. } | DocumentCommand::Delete { multi, .. } => !multi,
        _ => true,
    }
}

/// Returns a filter for the documents with the `_id`s that a command may insert; `None` if it inserts none.
///
/// Errors: `Invalid` for malformed documents.
fn new_ids(command: &DocumentCommand) -> Result<Option<Filter>> {
    let mut ids = bson::raw::RawArrayBuf::new();
    let mut add = |bytes: &DocBytes| {
        let raw = RawDocument::from_bytes(bytes).map_err(bad_bson)?;
        if let Some(id) = raw.get("_id").map_err(bad_bson)? {
            ids.push(id);
        }
        Ok::<_, Error>(())
    };
    match command {
        DocumentCommand::Insert { docs, .. } => docs.iter().try_for_each(&mut add)?,
        DocumentCommand::Update { filter, upsert: true, .. } => add(filter)?,
        DocumentCommand::Replace { filter, doc, upsert: true, .. } => {
            [filter, doc].into_iter().try_for_each(&mut add)?
        }
        DocumentCommand::FindAndModify { filter, change, upsert: true, .. } => {
            add(filter)?;
            if let tidemill_docs::Modification::Replace(doc) = change {
                add(doc)?;
            }
        }
        _ => return Ok(None),
    }
    let filter = bson::rawdoc! { "_id": { "$in": ids } };
    Ok(Some(Filter::parse(&filter)?.with_source(&filter, None)))
}

/// A collection of a part, as a reader uses it.
pub enum CollectionPart<'s> {
    /// Of a partition in this process.
    Here(&'s Collection),
    /// With the documents that were fetched from another one.
    Fetched {
        /// The store that has it.
        store: StoreSnapshot,
        /// Its name.
        name: &'s str,
    },
}

impl CollectionPart<'_> {
    /// Returns the collection.
    pub fn get(&self) -> Option<&Collection> {
        match self {
            Self::Here(collection) => Some(collection),
            Self::Fetched { store, name } => store.collection(name),
        }
    }
}
