//! Documents of all partitions at one moment.
//!
//! Partitions of this process show a transaction of several of them at once. Those of several processes do not, so a reader compares what
//! it has got of each: one that has committed a transaction together with another one says where the record of it is in the
//! other log, and the other one must have come as far. Otherwise it is asked again.

use std::borrow::Cow;
use std::ops::ControlFlow;
use std::time::Duration;

use bson::raw::RawDocument;
use tidemill_docs::{
    Collation, Collection, CollectionSpec, Direction, DocBytes, DocumentChange, DocumentCommand, Filter,
    FindOptions, FoundDocuments, HeldMemory, Key, SortOrder, Store, StoreSnapshot, merge_found,
};
use tidemill_types::{Error, Offset, PartitionId, Result, Value, budget, did_you_mean, partition_of_key};

use crate::document_parts::bad_bson;
use crate::document_parts::part::{CollectionPart, DocumentsPart, PlaceOfDocuments, WantedDocuments};
use crate::document_parts::place::{PlaceOfId, id_filter};
use crate::ingest::key_text;
use crate::node::Node;

/// Attempts after which a reader waits for partitions that are about to show a transaction.
const ATTEMPTS_AT_ONCE: usize = 5;
/// Pause between further ones.
const RETRY_INTERVAL: Duration = Duration::from_millis(2);

/// The documents of all partitions at one moment: with every write that was answered before, and with all or
/// nothing of a transaction. Taking one takes constant time and copies nothing; writers continue meanwhile.
#[derive(Clone)]
pub struct DocumentSnapshot {
    /// Documents by partition.
    partitions: Vec<DocumentsPart>,
    /// The collections, if no partition is in this process.
    definitions: Option<StoreSnapshot>,
}

impl DocumentSnapshot {
    /// Returns the present moment.
    ///
    /// Errors: `Unavailable` while a partition cannot be asked.
    pub(crate) fn now(node: &Node) -> Result<Self> {
        let ends = node.catch_up_replicas()?;
        Self::with_records_below(node, |id| ends.get(id.0 as usize).copied().unwrap_or_default())
    }

    /// Returns the moment that the replicas of this process have come to, and owners in others. In a cluster, others may have answered
    /// later writes.
    ///
    /// Errors: as [`Self::now`].
    pub(crate) fn applied(node: &Node) -> Result<Self> {
        Self::with_records_below(node, |_| Offset(0))
    }

    fn with_records_below(node: &Node, end: impl Fn(PartitionId) -> Offset) -> Result<Self> {
        let mut partitions = {
            // one partition shows whole records anyway
            let _one_moment = (node.host.partitions() > 1).then(|| node.host.commits.lock_views());
            let here = |id| node.with_view(id, DocumentsPart::of);
            node.host.partition_ids().map(here).collect::<Vec<_>>()
        };
        let missing: Vec<PartitionId> =
            node.host.partition_ids().filter(|id| partitions[id.0 as usize].is_none()).collect();
        // the replicas of a node that takes part in a cluster come and go, and do not wait for each other then
        if missing.is_empty() && node.cluster.get().is_none() {
            return Ok(Self { partitions: partitions.into_iter().flatten().collect(), definitions: None });
        }
        let wanted: Vec<_> = missing.iter().map(|id| (*id, end(*id))).collect();
        for (id, part) in missing.iter().zip(node.documents_of(&wanted)?) {
            partitions[id.0 as usize] = Some(part);
        }
        let mut partitions: Vec<DocumentsPart> = partitions.into_iter().flatten().collect();
        let began = node.host.clock.monotonic();
        let patience = node.app.deployment.settings.send_timeout.to_std();
        let mut attempts = 0;
        loop {
            let behind = behind(&partitions);
            if behind.is_empty() {
                let is_any_here = partitions.iter().any(|part| part.here().is_some());
                let definitions = (!is_any_here).then(|| node.definitions()).transpose()?;
                return Ok(Self { partitions, definitions });
            }
            attempts += 1;
            if attempts > ATTEMPTS_AT_ONCE {
                if node.host.clock.monotonic().saturating_sub(began) >= patience {
                    return Err(not_together(&behind));
                }
                node.host.clock.sleep(RETRY_INTERVAL);
            }
            for ((id, _), part) in behind.iter().zip(node.documents_of(&behind)?) {
                partitions[id.0 as usize] = part;
            }
        }
    }

    /// Returns the documents of a partition that is in this process.
    pub(crate) fn here(&self, partition: usize) -> Option<&StoreSnapshot> {
        self.partitions[partition].here()
    }

    /// Returns the offset after the last record of a partition that is in the snapshot.
    pub(crate) fn next(&self, partition: usize) -> Offset {
        self.partitions[partition].next
    }

    /// Replaces the documents of a partition, for the own writes of a transaction.
    pub(crate) fn set_store(&mut self, partition: usize, documents: StoreSnapshot) {
        self.partitions[partition].place = PlaceOfDocuments::Here(documents);
    }

    /// Replaces the collections of a snapshot whose partitions are all elsewhere, for those that a transaction creates.
    pub(crate) fn set_definitions(&mut self, definitions: StoreSnapshot) {
        self.definitions = Some(definitions);
    }

    /// Returns a store for a command of a transaction in a partition that is in another process.
    ///
    /// Errors: `NotFound` for an unknown collection; those of [`crate::document_parts::part::KeptDocuments::fetch`].
    pub(crate) fn fetch_for_write(
        &self,
        partition: usize,
        command: &DocumentCommand,
        (filter, sort): (Option<&Filter>, &SortOrder),
        entity_key: Option<&str>,
    ) -> Result<Store> {
        let spec = self.spec(command.collection())?;
        match &self.partitions[partition].place {
            PlaceOfDocuments::Here(documents) => Ok(Store::fork(documents)),
            PlaceOfDocuments::There(elsewhere) => {
                elsewhere.fetch_for_write(spec, command, (filter, sort), entity_key)
            }
        }
    }

    /// Takes over what a command of a transaction has changed in a store of [`Self::fetch_for_write`].
    pub(crate) fn note_changes(&mut self, partition: usize, changes: &[DocumentChange], store: &Store) {
        if let PlaceOfDocuments::There(elsewhere) = &mut self.partitions[partition].place {
            elsewhere.note_changes(changes, store);
        }
    }

    /// Returns the collections, maybe with documents of one partition.
    pub(crate) fn definitions(&self) -> Result<&StoreSnapshot> {
        let here = self.partitions.iter().find_map(DocumentsPart::here);
        here.or(self.definitions.as_ref()).ok_or_else(|| Error::unavailable("no partition has been asked"))
    }

    /// Returns the wanted documents of a collection by partition: as parts of it, which may have others, too.
    ///
    /// Errors: those of [`crate::document_parts::part::KeptDocuments::fetch`].
    pub(crate) fn parts<'s>(
        &'s self,
        collection: &'s str,
        wanted: &WantedDocuments<'_>,
    ) -> Result<Vec<(usize, CollectionPart<'s>)>> {
        let Ok(spec) = self.spec(collection) else { return Ok(Vec::new()) };
        let part = |(at, part): (usize, &'s DocumentsPart)| match &part.place {
            PlaceOfDocuments::Here(documents) => {
                Ok(documents.collection(collection).map(|part| (at, CollectionPart::Here(part))))
            }
            PlaceOfDocuments::There(elsewhere) => {
                let store = elsewhere.fetch(spec, wanted)?;
                Ok(Some((at, CollectionPart::Fetched { store, name: collection })))
            }
        };
        let all = self.partitions.iter().enumerate();
        if spec.replicated {
            // each has all of them
            let one = all.min_by_key(|(_, part)| part.here().is_none());
            return one.map(part).into_iter().filter_map(Result::transpose).collect();
        }
        let elsewhere = all.clone().filter(|(_, part)| part.here().is_none()).count();
        if elsewhere < 2 {
            return all.map(part).filter_map(Result::transpose).collect();
        }
        // owners work at the same time
        std::thread::scope(|scope| {
            let fetching: Vec<_> = all.map(|one| scope.spawn(move || part(one))).collect();
            let fetched = fetching.into_iter().map(|thread| {
                thread
                    .join()
                    .unwrap_or_else(|_| Err(Error::internal("a thread that fetches documents panicked")))
            });
            fetched.filter_map(Result::transpose).collect()
        })
    }

    /// Returns handles of all documents of a collection, partition by partition, or `None` if it does not exist.
    ///
    /// Errors: those of [`Self::parts`].
    pub fn documents(&self, collection: &str) -> Result<Option<Vec<DocBytes>>> {
        let mut all: Option<Vec<DocBytes>> = None;
        for (_, part) in self.parts(collection, &WantedDocuments::default())? {
            all.get_or_insert_default().extend(part.get().map(Collection::documents).unwrap_or_default());
        }
        Ok(all)
    }

    /// Returns the definition of a collection.
    ///
    /// Errors: `NotFound` for an unknown collection.
    pub fn spec(&self, name: &str) -> Result<&CollectionSpec> {
        let documents = self.definitions()?;
        documents.collection(name).map(Collection::spec).ok_or_else(|| {
            let hint = did_you_mean(name, documents.collection_names());
            Error::not_found(format!("no collection `{name}`")).with_hint(hint)
        })
    }

    /// Returns the only part of a collection that matters, if that is in this process.
    fn only_part(&self, spec: &CollectionSpec) -> Option<Option<&Collection>> {
        let only = match self.partitions.as_slice() {
            [only] => only.here(),
            all if spec.replicated => all.iter().find_map(DocumentsPart::here),
            _ => None,
        };
        only.map(|documents| documents.collection(&spec.name))
    }

    /// Calls `read` with the documents of a collection in each partition; once if every partition has all of them.
    ///
    /// Errors: `NotFound` for an unknown collection, those of [`Self::parts`], and those of `read`.
    pub fn read_collection<T>(
        &self,
        name: &str,
        mut read: impl FnMut(&Collection) -> Result<T>,
    ) -> Result<Vec<T>> {
        self.spec(name)?;
        let parts = self.parts(name, &WantedDocuments::default())?;
        parts.iter().filter_map(|(_, part)| part.get().map(&mut read)).collect()
    }

    /// Returns the document with that `_id`.
    ///
    /// Errors: those of [`Self::parts`].
    pub fn get(&self, collection: &str, id: &Value<'_>) -> Result<Option<DocBytes>> {
        let Ok(spec) = self.spec(collection) else { return Ok(None) };
        let key = Key::of(id);
        let here = self.partitions.iter().filter_map(DocumentsPart::here);
        let mut here = here.filter_map(|documents| documents.collection(collection));
        if let Some(found) = here.find_map(|part| part.get_key(&key)) {
            return Ok(Some(found.clone()));
        }
        let home = partition_of_key(key_text(id).as_bytes(), self.partitions.len() as u32).0 as usize;
        let place = self.definitions()?.collection(collection).map(|part| PlaceOfId::of(part, id));
        let may_have = |at: &usize| place != Some(PlaceOfId::Home) || *at == home;
        let filter = id_filter(id, None)?;
        for (_, part) in self.partitions.iter().enumerate().filter(|(at, _)| may_have(at)) {
            let PlaceOfDocuments::There(elsewhere) = &part.place else { continue };
            let found = elsewhere.fetch(spec, &WantedDocuments::matching(&filter))?;
            if let Some(found) = found.collection(collection).and_then(|part| part.get_key(&key)) {
                return Ok(Some(found.clone()));
            }
        }
        Ok(None)
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
        if let Some(part) = self.only_part(self.spec(collection)?) {
            return Ok(part.map_or(Ok(()), |part| part.find_each(filter, options, each))?);
        }
        let parts = self.parts(collection, &WantedDocuments::of_query(filter, options))?;
        let found = find_places(&parts, filter, options)?;
        let _ = page(&found, options).try_for_each(each);
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
        let options = match self.definitions()?.collection(collection) {
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

    /// Returns the number of documents of a collection; `None` if it does not exist.
    ///
    /// Errors: those of [`Self::count_parsed`].
    pub fn len(&self, collection: &str) -> Result<Option<u64>> {
        match self.spec(collection) {
            Err(_) => Ok(None),
            Ok(_) => self.count_parsed(collection, &Filter::all()).map(Some),
        }
    }

    /// Returns the collation of a collection.
    ///
    /// Errors: `NotFound` for an unknown collection.
    pub fn collation(&self, name: &str) -> Result<Option<&Collation>> {
        self.spec(name)?;
        Ok(self.definitions()?.collection(name).and_then(Collection::collation))
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
        self.find_parsed(collection, &self.parsed(filter, collation)?, &options)
    }

    /// Parses a filter for this snapshot. One of partitions elsewhere is sent to their owners.
    ///
    /// Errors: `Invalid` for a wrong filter.
    pub(crate) fn parsed_bytes(&self, filter: &DocBytes, collation: Option<&Collation>) -> Result<Filter> {
        self.parsed(RawDocument::from_bytes(filter).map_err(bad_bson)?, collation)
    }

    /// Does as [`Self::parsed_bytes`].
    ///
    /// Errors: `Invalid` for a wrong filter.
    pub(crate) fn parsed(&self, filter: &RawDocument, collation: Option<&Collation>) -> Result<Filter> {
        let parsed = Filter::parse_by(filter, collation)?;
        Ok(match self.partitions.iter().all(|part| part.here().is_some()) {
            true => parsed,
            false => parsed.with_source(filter, collation),
        })
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
        if let Some(part) = self.only_part(self.spec(collection)?) {
            return Ok(part.map_or(Ok(Vec::new()), |part| part.find(filter, options))?);
        }
        let parts = self.parts(collection, &WantedDocuments::of_query(filter, options))?;
        let found = find_places(&parts, filter, options)?;
        let mut held = HeldMemory::default();
        let found = page(&found, options).map(|document| {
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
        let filter = self.parsed(filter, self.collation(collection)?)?;
        self.count_parsed(collection, &filter)
    }

    /// Returns the number of documents that match, over all partitions.
    ///
    /// Errors: `NotFound` for an unknown collection; those of expressions in the filter.
    pub fn count_parsed(&self, collection: &str, filter: &Filter) -> Result<u64> {
        let spec = self.spec(collection)?;
        if let Some(part) = self.only_part(spec) {
            return Ok(part.map_or(Ok(0), |part| part.count(filter))?);
        }
        let count = |part: &DocumentsPart| match &part.place {
            PlaceOfDocuments::Here(documents) => {
                Ok(documents.collection(collection).map_or(Ok(0), |part| part.count(filter))?)
            }
            PlaceOfDocuments::There(elsewhere) => elsewhere.count(spec, filter),
        };
        let places = if spec.replicated { 1 } else { self.partitions.len() };
        self.partitions.iter().take(places).map(count).sum()
    }

    /// Returns whether a partition has no document of a collection.
    ///
    /// Errors: as [`Self::count_parsed`].
    pub(crate) fn is_empty_in(&self, partition: usize, collection: &str) -> Result<bool> {
        match &self.partitions[partition].place {
            PlaceOfDocuments::Here(documents) => {
                Ok(documents.collection(collection).is_none_or(Collection::is_empty))
            }
            PlaceOfDocuments::There(elsewhere) => {
                Ok(elsewhere.count(self.spec(collection)?, &Filter::all())? == 0)
            }
        }
    }
}

/// Returns the partitions that have not come to a transaction which another one shows, and the end that they have to come to.
fn behind(partitions: &[DocumentsPart]) -> Vec<(PartitionId, Offset)> {
    let mut ends = vec![Offset(0); partitions.len()];
    for (other, end) in partitions.iter().flat_map(|part| part.shared_commits.needs()) {
        if let Some(needed) = ends.get_mut(other.0 as usize) {
            *needed = (*needed).max(end);
        }
    }
    let is_behind =
        |(at, end): (usize, Offset)| (partitions[at].next < end).then_some((PartitionId(at as u32), end));
    ends.into_iter().enumerate().filter_map(is_behind).collect()
}

/// Returns the error of a reader that has not seen partitions together for too long.
fn not_together(behind: &[(PartitionId, Offset)]) -> Error {
    let behind: Vec<String> = behind.iter().map(|(id, end)| format!("{id} (records below {end})")).collect();
    Error::unavailable(format!(
        "some partitions show a transaction that others do not show yet: {}. Read again",
        behind.join(", ")
    ))
}

/// Finds documents in parts of a collection.
fn find_places<'p>(
    parts: &'p [(usize, CollectionPart<'_>)],
    filter: &Filter,
    options: &FindOptions,
) -> Result<Vec<FoundDocuments<'p>>> {
    let wide = FindOptions {
        projection: None,
        skip: 0,
        limit: options.limit.map(|limit| limit.saturating_add(options.skip)),
        ..options.clone()
    };
    let parts = parts.iter().filter_map(|(_, part)| part.get());
    Ok(parts.map(|part| part.find_places(filter, &wide)).collect::<tidemill_docs::Result<_>>()?)
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
