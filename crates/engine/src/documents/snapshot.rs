//! Documents of all partitions at one moment.

use std::borrow::Cow;
use std::ops::ControlFlow;

use bson::raw::RawDocument;
use tidemill_docs::{
    Collation, Collection, CollectionSpec, Direction, DocBytes, Filter, FindOptions, FoundDocuments,
    HeldMemory, Key, SortOrder, StoreSnapshot, merge_found,
};
use tidemill_types::{Error, Offset, Result, Value, budget, did_you_mean};

use crate::node::Node;

/// The documents of all partitions at one moment: with every write that was answered before, and with all or
/// nothing of a transaction. Taking one takes constant time and copies nothing; writers continue meanwhile.
#[derive(Clone)]
pub struct DocumentSnapshot {
    /// Documents by partition, and the offset after the last record that made them.
    partitions: Vec<(StoreSnapshot, Offset)>,
}

impl DocumentSnapshot {
    /// Returns the present moment.
    ///
    /// Errors: `Unavailable` while a partition cannot be asked.
    pub(crate) fn now(node: &Node) -> Result<Self> {
        node.catch_up_replicas()?;
        Self::applied(node)
    }

    /// Returns the moment that the replicas of this process have come to. In a cluster, others may have answered later writes.
    ///
    /// Errors: as [`Self::now`].
    pub(crate) fn applied(node: &Node) -> Result<Self> {
        // one partition shows whole records anyway
        let _one_moment = (node.host.partitions() > 1).then(|| node.host.commits.lock_views());
        let part = |id| node.with_view(id, |view| (view.documents.clone(), view.next));
        Ok(Self { partitions: node.host.partition_ids().map(part).collect::<Result<_>>()? })
    }

    pub(crate) fn store(&self, partition: usize) -> &StoreSnapshot {
        &self.partitions[partition].0
    }

    /// Returns the offset after the last record of a partition that is in the snapshot.
    pub(crate) fn next(&self, partition: usize) -> Offset {
        self.partitions[partition].1
    }

    /// Replaces the documents of a partition, for the own writes of a transaction.
    pub(crate) fn set_store(&mut self, partition: usize, documents: StoreSnapshot) {
        self.partitions[partition].0 = documents;
    }

    /// Returns the parts of a collection by partition.
    pub(crate) fn parts(&self, collection: &str) -> impl Iterator<Item = (usize, &Collection)> {
        self.partitions
            .iter()
            .enumerate()
            .filter_map(move |(at, (store, _))| store.collection(collection).map(|part| (at, part)))
    }

    /// Returns handles of all documents of a collection, partition by partition, or `None` if it does not exist.
    pub fn documents(&self, collection: &str) -> Option<Vec<DocBytes>> {
        let mut all: Option<Vec<DocBytes>> = None;
        for (_, part) in self.parts(collection) {
            let documents = part.documents();
            if part.spec().replicated {
                return Some(documents);
            }
            all.get_or_insert_default().extend(documents);
        }
        all
    }

    /// Returns the definition of a collection.
    ///
    /// Errors: `NotFound` for an unknown collection.
    pub fn spec(&self, name: &str) -> Result<&CollectionSpec> {
        let documents = self.store(0);
        documents.collection(name).map(Collection::spec).ok_or_else(|| {
            let hint = did_you_mean(name, documents.collection_names());
            Error::not_found(format!("no collection `{name}`")).with_hint(hint)
        })
    }

    /// Returns how many partitions have documents of their own of a collection.
    fn places(&self, spec: &CollectionSpec) -> usize {
        if spec.replicated { 1 } else { self.partitions.len() }
    }

    /// Calls `read` with the documents of a collection in each partition; once if every partition has all of them.
    ///
    /// Errors: `NotFound` for an unknown collection, and those of `read`.
    pub fn read_collection<T>(
        &self,
        name: &str,
        read: impl FnMut(&Collection) -> Result<T>,
    ) -> Result<Vec<T>> {
        let places = self.places(self.spec(name)?);
        self.parts(name).take(places).map(|(_, part)| part).map(read).collect()
    }

    /// Returns the document with that `_id`.
    pub fn get(&self, collection: &str, id: &Value<'_>) -> Option<&DocBytes> {
        let key = Key::of(id);
        self.parts(collection).find_map(|(_, part)| part.get_key(&key))
    }

    /// Calls `each` for the documents that match, over all partitions, until it breaks; whole ones, in the order of
    /// [`Self::find_parsed`].
    ///
    /// Errors: as [`Self::find_parsed`].
    pub fn find_each(
        &self,
        collection: &str,
        filter: &Filter,
        options: &FindOptions,
        each: &mut dyn FnMut(&DocBytes) -> ControlFlow<()>,
    ) -> Result<()> {
        let options = &*self.ordered(collection, filter, options)?;
        if self.places(self.spec(collection)?) == 1 {
            let part = self.store(0).collection(collection);
            return Ok(part.map_or(Ok(()), |part| part.find_each(filter, options, each))?);
        }
        let parts = self.find_places(collection, filter, options)?;
        let _ = page(&parts, options).try_for_each(each);
        Ok(())
    }

    /// Returns the options with the order of the result if the query asks for none: that of the filter, see
    /// [`Collection::prepared`], or that of a clustered collection, in which its documents are stored in MongoDB.
    fn ordered<'o>(
        &self,
        collection: &str,
        filter: &Filter,
        options: &'o FindOptions,
    ) -> Result<Cow<'o, FindOptions>> {
        let options = match self.store(0).collection(collection) {
            Some(part) => part.prepared(filter, options)?,
            None => Cow::Borrowed(options),
        };
        if self.spec(collection)?.options.clustered.is_none() || !options.sort.is_empty() {
            return Ok(options);
        }
        let direction = options.natural.unwrap_or(Direction::Ascending);
        let sort = SortOrder::default().then("_id", direction);
        let sort = sort.with_collation(self.collation(collection)?.cloned());
        Ok(Cow::Owned(FindOptions { sort, ..options.into_owned() }))
    }

    /// Finds in each partition what may be among the results of all of them, in the order of the query.
    fn find_places(
        &self,
        collection: &str,
        filter: &Filter,
        options: &FindOptions,
    ) -> Result<Vec<FoundDocuments<'_>>> {
        let wide = FindOptions {
            projection: None,
            skip: 0,
            limit: options.limit.map(|limit| limit.saturating_add(options.skip)),
            ..options.clone()
        };
        let parts = self.parts(collection).map(|(_, part)| part.find_places(filter, &wide));
        Ok(parts.collect::<tidemill_docs::Result<_>>()?)
    }

    /// Returns the number of documents of a collection; `None` if it does not exist.
    pub fn len(&self, collection: &str) -> Option<u64> {
        let spec = self.spec(collection).ok()?;
        Some(self.parts(collection).take(self.places(spec)).map(|(_, part)| part.len() as u64).sum())
    }

    /// Returns the collation of a collection.
    ///
    /// Errors: `NotFound` for an unknown collection.
    pub fn collation(&self, name: &str) -> Result<Option<&Collation>> {
        self.spec(name)?;
        Ok(self.store(0).collection(name).and_then(Collection::collation))
    }

    /// Returns the documents that match `filter`, over all partitions, with strings compared by the collation of the collection.
    ///
    /// Errors: `NotFound` for an unknown collection, `Invalid` for a wrong filter, sort or projection.
    pub fn find(
        &self,
        collection: &str,
        filter: &RawDocument,
        options: &FindOptions,
    ) -> Result<Vec<DocBytes>> {
        let collation = self.collation(collection)?;
        let mut options = options.clone();
        if options.sort.collation().is_none() {
            options.sort = options.sort.with_collation(collation.cloned());
        }
        self.find_parsed(collection, &Filter::parse_by(filter, collation)?, &options)
    }

    /// Returns the documents that match, over all partitions.
    ///
    /// Errors: `NotFound` for an unknown collection; those of expressions in filter and projection.
    pub fn find_parsed(
        &self,
        collection: &str,
        filter: &Filter,
        options: &FindOptions,
    ) -> Result<Vec<DocBytes>> {
        let options = &*self.ordered(collection, filter, options)?;
        let places = self.places(self.spec(collection)?);
        if places == 1 {
            return Ok(self
                .store(0)
                .collection(collection)
                .map_or(Ok(Vec::new()), |c| c.find(filter, options))?);
        }
        let parts = self.find_places(collection, filter, options)?;
        let mut held = HeldMemory::default();
        let found = page(&parts, options).map(|document| {
            held.add(size_of::<DocBytes>())?;
            match &options.projection {
                None => Ok(document.clone()),
                Some(projection) => {
                    budget::step()?;
                    let projected = projection.apply_bytes(document)?;
                    held.add(projected.len())?;
                    Ok(projected)
                }
            }
        });
        found.collect()
    }

    /// Returns the number of documents that match `filter`, over all partitions. Without conditions it is kept, not found.
    ///
    /// Errors: `NotFound` for an unknown collection, `Invalid` for a wrong filter.
    pub fn count(&self, collection: &str, filter: &RawDocument) -> Result<u64> {
        let filter = Filter::parse_by(filter, self.collation(collection)?)?;
        self.count_parsed(collection, &filter)
    }

    /// Returns the number of documents that match, over all partitions.
    ///
    /// Errors: `NotFound` for an unknown collection; those of expressions in the filter.
    pub fn count_parsed(&self, collection: &str, filter: &Filter) -> Result<u64> {
        let places = self.places(self.spec(collection)?);
        let counts = self.parts(collection).take(places).map(|(_, part)| part.count(filter));
        Ok(counts.sum::<tidemill_docs::Result<u64>>()?)
    }
}

/// Merges what the partitions have found, and cuts it.
fn page<'f, 'c>(
    parts: &'f [FoundDocuments<'c>],
    options: &FindOptions,
) -> impl Iterator<Item = &'c DocBytes> + use<'f, 'c> {
    let skip = usize::try_from(options.skip).unwrap_or(usize::MAX);
    let limit = options.limit.and_then(|l| usize::try_from(l).ok()).unwrap_or(usize::MAX);
    merge_found(parts).skip(skip).take(limit)
}
