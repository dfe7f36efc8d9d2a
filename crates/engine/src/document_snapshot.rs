//! Documents of all partitions at one moment.

use bson::raw::RawDocument;
use tidemill_docs::{
    Collation, Collection, CollectionSpec, DocBytes, Filter, FindOptions, Key, StoreSnapshot, cmp_ids,
};
use tidemill_types::{Error, Offset, Result, Value, did_you_mean};

use crate::core::Core;
use crate::documents::bad_bson;

/// The documents of all partitions at one moment: with every write that was answered before, and with all or nothing of a
/// transaction. Taking one takes constant time and copies nothing; writers go on meanwhile.
#[derive(Clone)]
pub struct DocumentSnapshot {
    /// Documents by partition, and the offset after the last record that made them.
    partitions: Vec<(StoreSnapshot, Offset)>,
}

impl DocumentSnapshot {
    /// Returns the present moment.
    pub(crate) fn now(core: &Core) -> Self {
        // one partition shows whole records anyway
        let _one_moment = (core.partitions().len() > 1).then(|| core.commits.lock_views());
        let views = core.partitions().iter().map(|partition| partition.view());
        Self { partitions: views.map(|view| (view.documents.clone(), view.next)).collect() }
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

    /// Returns handles of all documents of a collection, or `None` if it does not exist.
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
            Error::not_found(format!(
                "no collection `{name}`{}",
                did_you_mean(name, documents.collection_names())
            ))
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
        let places = self.places(self.spec(collection)?);
        if places == 1 {
            return Ok(self
                .store(0)
                .collection(collection)
                .map_or(Ok(Vec::new()), |c| c.find(filter, options))?);
        }
        // every partition returns its first skip + limit documents in order; these runs are merged and cut
        let wide = FindOptions {
            sort: options.sort.clone(),
            projection: None,
            skip: 0,
            limit: options.limit.map(|l| l.saturating_add(options.skip)),
            bounds: options.bounds.clone(),
        };
        let parts = self.parts(collection).map(|(_, part)| part.find(filter, &wide));
        let parts = parts.collect::<tidemill_docs::Result<Vec<_>>>()?;
        // a sort recognizes the sorted runs of the partitions
        let documents = if options.sort.is_empty() { interleave(parts) } else { parts.concat() };
        merge(documents, options)
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

/// Merges the documents of several partitions, each in the order in which they were inserted there, to one list. The least `_id` of those
/// that are next goes first: ids that grow with time, as object ids and counters do, give the order of insertion over all partitions.
fn interleave(parts: Vec<Vec<DocBytes>>) -> Vec<DocBytes> {
    let mut parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).map(Vec::into_iter).collect();
    let mut merged = Vec::with_capacity(parts.iter().map(ExactSizeIterator::len).sum());
    while parts.len() > 1 {
        let least = (1..parts.len()).fold(0, |least, at| {
            let (a, b) = (parts[at].as_slice(), parts[least].as_slice());
            if a.first().zip(b.first()).is_some_and(|(a, b)| cmp_ids(a, b).is_lt()) { at } else { least }
        });
        merged.extend(parts[least].next());
        if parts[least].len() == 0 {
            parts.remove(least);
        }
    }
    merged.extend(parts.into_iter().flatten());
    merged
}

/// Merges, cuts and projects the documents found in several partitions.
fn merge(mut documents: Vec<DocBytes>, options: &FindOptions) -> Result<Vec<DocBytes>> {
    if !options.sort.is_empty() {
        let mut keyed: Vec<_> = documents.into_iter().map(|doc| (options.sort.key(&doc), doc)).collect();
        // a stable sort recognizes the sorted runs of the partitions and merges them
        keyed.sort_by(|(a, _), (b, _)| a.cmp(b));
        documents = keyed.into_iter().map(|(_, doc)| doc).collect();
    }
    let skip = usize::try_from(options.skip).unwrap_or(usize::MAX);
    let limit = options.limit.and_then(|l| usize::try_from(l).ok()).unwrap_or(usize::MAX);
    let page = documents.into_iter().skip(skip).take(limit);
    match &options.projection {
        None => Ok(page.collect()),
        Some(projection) => page
            .map(|doc| {
                let raw = RawDocument::from_bytes(&doc).map_err(bad_bson)?;
                Ok(projection.apply(raw)?.into_bytes().into())
            })
            .collect(),
    }
}
