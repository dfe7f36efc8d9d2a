//! Document reads and writes of callers: ids, routing to partitions, and merging of replies.

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Bson, RawBsonRef};
use bytes::Bytes;
use tidemill_docs::{
    Collection, CollectionSpec, Command, CommandOutcome, DocBytes, Filter, FindOptions, Key, SortOrder,
    get_path,
};
use tidemill_log::Durability;
use tidemill_types::{Error, PartitionId, Result, Value};

use super::Engine;
use crate::CollectionInfo;
use crate::core::Core;
use crate::documents::bad_bson;
use crate::entry::Entry;

impl Engine {
    /// Returns the collections over all partitions, by name.
    pub fn collections(&self) -> Vec<CollectionInfo> {
        let core = &self.core;
        let mut all: std::collections::BTreeMap<String, CollectionInfo> = std::collections::BTreeMap::new();
        for partition in core.partitions() {
            for collection in partition.view().documents.collections() {
                let name = &collection.spec().name;
                let info = all.entry(name.clone()).or_insert_with(|| CollectionInfo {
                    name: name.clone(),
                    documents: 0,
                    bytes: 0,
                    replicated: collection.spec().replicated,
                    key: core.deployment.program.entity_key(name).map(str::to_owned),
                });
                if info.replicated {
                    info.documents = info.documents.max(collection.len() as u64);
                    info.bytes = info.bytes.max(collection.bytes());
                } else {
                    info.documents += collection.len() as u64;
                    info.bytes += collection.bytes();
                }
            }
        }
        all.into_values().collect()
    }

    /// Returns the number of partitions of the data directory, over which documents are spread.
    pub fn partitions(&self) -> usize {
        self.core.partitions().len()
    }

    /// Returns the definition of a collection, with its indexes.
    ///
    /// Errors: `NotFound` for an unknown collection.
    pub fn collection_spec(&self, name: &str) -> Result<CollectionSpec> {
        self.core.collection_spec(name)
    }

    /// Returns whether there is a view of that name.
    pub fn is_view(&self, name: &str) -> bool {
        let view = self.core.partitions()[0].view();
        view.documents.collection(name).is_some_and(|collection| collection.spec().options.view.is_some())
    }

    /// Calls `read` with the documents of a collection in each partition; once if every partition has all of them. They are
    /// those of one moment in each.
    ///
    /// Errors: `NotFound` for an unknown collection, and those of `read`.
    pub fn read_collection<T>(
        &self,
        name: &str,
        mut read: impl FnMut(&Collection) -> Result<T>,
    ) -> Result<Vec<T>> {
        let spec = self.core.collection_spec(name)?;
        let take = if spec.replicated { 1 } else { self.core.partitions().len() };
        let mut results = Vec::new();
        for partition in self.core.partitions().iter().take(take) {
            if let Some(collection) = partition.view().documents.collection(name) {
                results.push(read(collection)?);
            }
        }
        Ok(results)
    }

    /// Returns all documents of a collection, or `None` if it does not exist. Returns handles; nothing is
    /// copied.
    pub fn collection_documents(&self, name: &str) -> Option<Vec<DocBytes>> {
        let mut all: Option<Vec<DocBytes>> = None;
        for partition in self.core.partitions() {
            let view = partition.view();
            let Some(collection) = view.documents.collection(name) else { continue };
            let documents = collection.documents();
            if collection.spec().replicated {
                return Some(documents);
            }
            all.get_or_insert_default().extend(documents);
        }
        all
    }

    /// Returns the document with that `_id`.
    ///
    /// Errors: `NotFound` for an unknown collection.
    pub fn get_document(&self, collection: &str, id: &Bson) -> Result<Option<DocBytes>> {
        self.core.collection_spec(collection)?;
        let wrapped = bson::rawdoc! { "_id": bson::RawBson::try_from(id.clone()).map_err(bad_bson)? };
        let id = get_path(&wrapped, "_id");
        let found = self.core.partitions().iter().find_map(|partition| {
            partition.view().documents.collection(collection).and_then(|c| c.get(&id).cloned())
        });
        Ok(found)
    }

    /// Returns the position of the first document whose `_id` is stored already, or is that of an earlier one. Documents
    /// without `_id`, and a collection that does not exist, have none.
    ///
    /// Errors: `Invalid` for bytes that are no document.
    pub fn first_duplicate(&self, collection: &str, documents: &[DocBytes]) -> Result<Option<usize>> {
        let views: Vec<_> = self.core.partitions().iter().map(|partition| partition.view()).collect();
        let stored: Vec<_> = views.iter().filter_map(|view| view.documents.collection(collection)).collect();
        let mut seen = std::collections::HashSet::new();
        for (at, document) in documents.iter().enumerate() {
            let id = get_path(RawDocument::from_bytes(document).map_err(bad_bson)?, "_id");
            if id.is_absent() {
                continue;
            }
            if stored.iter().any(|stored| stored.get(&id).is_some()) || !seen.insert(Key::of(&id)) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Returns the documents that match `filter`, over all partitions.
    ///
    /// Errors: `NotFound` for an unknown collection, `Invalid` for a wrong filter, sort or projection.
    pub fn find_documents(
        &self,
        collection: &str,
        filter: &RawDocument,
        options: &FindOptions,
    ) -> Result<Vec<DocBytes>> {
        let spec = self.core.collection_spec(collection)?;
        let filter = Filter::parse(filter)?;
        let take = if spec.replicated { 1 } else { self.core.partitions().len() };
        if take == 1 {
            let view = self.core.partitions()[0].view();
            return Ok(view
                .documents
                .collection(collection)
                .map_or(Ok(Vec::new()), |c| c.find(&filter, options))?);
        }
        // every partition returns its first skip + limit documents; the merged result is sorted and cut again
        let wide = FindOptions {
            sort: options.sort.clone(),
            projection: None,
            skip: 0,
            limit: options.limit.map(|l| l.saturating_add(options.skip)),
        };
        let mut documents = Vec::new();
        for partition in self.core.partitions() {
            let view = partition.view();
            if let Some(collection) = view.documents.collection(collection) {
                documents.extend(collection.find(&filter, &wide)?);
            }
        }
        merge(documents, options)
    }

    /// Returns the number of documents that match `filter`, over all partitions. Without conditions it is kept, not found.
    ///
    /// Errors: `NotFound` for an unknown collection, `Invalid` for a wrong filter.
    pub fn count_documents(&self, collection: &str, filter: &RawDocument) -> Result<u64> {
        let spec = self.core.collection_spec(collection)?;
        let filter = Filter::parse(filter)?;
        let take = if spec.replicated { 1 } else { self.core.partitions().len() };
        let counts = self.core.partitions().iter().take(take).map(|partition| {
            partition
                .view()
                .documents
                .collection(collection)
                .map_or(0, |collection| collection.count(&filter))
        });
        Ok(counts.sum())
    }

    /// Runs a document command and waits for its outcome.
    ///
    /// A command whose filter does not determine a partition goes to all of them (`multi`), or to the first
    /// that has a match. An update of several partitions is atomic in each, not over all; an `ordered` insert
    /// stops at the first bad document of each.
    /// Errors: `NotFound` for an unknown collection; `Invalid` and `Conflict` as the command defines.
    pub fn write_documents(
        &self,
        command: Command,
        durability: Option<Durability>,
    ) -> Result<CommandOutcome> {
        let core = &self.core;
        if is_insert(&command) && core.collection_spec(command.collection()).is_err() {
            let spec = CollectionSpec::new(command.collection());
            self.run_commands(route_to_all(core, &Command::CreateCollection(spec)), true, durability)?;
        }
        let replicated = collection_spec_of(core, &command)?.is_some_and(|s| s.replicated);
        let Some(filter) = searched_filter(&command).cloned() else {
            return self.run_commands(route(core, command)?, replicated, durability);
        };
        for _ in 0..SEARCH_ATTEMPTS_MAX {
            let outcome = self.run_commands(route(core, command.clone())?, replicated, durability)?;
            // the document that was found may have been changed by another writer before this command
            if outcome.matched > 0 || !outcome.errors.is_empty() {
                return Ok(outcome);
            }
            let filter = RawDocument::from_bytes(&filter).map_err(bad_bson)?;
            let first = FindOptions { limit: Some(1), ..FindOptions::default() };
            if self.find_documents(command.collection(), filter, &first)?.is_empty() {
                return Ok(outcome);
            }
        }
        Err(Error::conflict(format!(
            "other writers changed every document that was found, {SEARCH_ATTEMPTS_MAX} times: try again"
        )))
    }

    /// Runs routed commands and merges their outcomes. With `same`, every partition does the same work, so
    /// only the first outcome counts.
    fn run_commands(
        &self,
        commands: Vec<RoutedCommand>,
        same: bool,
        durability: Option<Durability>,
    ) -> Result<CommandOutcome> {
        let entries: Vec<_> = commands
            .iter()
            .map(|r| Ok((r.partition, Entry::Command(r.command.to_bytes()?))))
            .collect::<Result<_>>()?;
        let replies = self.core.write_and_wait(entries, durability)?;
        let mut total = CommandOutcome::default();
        for (i, (routed, reply)) in commands.iter().zip(replies).enumerate() {
            let Some(mut outcome) = reply.outcome else { continue };
            for error in &mut outcome.errors {
                error.index = routed.request_indexes.get(error.index).copied().unwrap_or(error.index);
            }
            if !same || i == 0 {
                total.inserted += outcome.inserted;
                total.matched += outcome.matched;
                total.modified += outcome.modified;
                total.deleted += outcome.deleted;
                total.upserted_id = total.upserted_id.or(outcome.upserted_id);
                total.before = total.before.or(outcome.before);
                total.after = total.after.or(outcome.after);
                total.errors.extend(outcome.errors);
            }
        }
        total.errors.sort_by_key(|e| e.index);
        Ok(total)
    }
}

/// How often a command on one document looks for another one when it comes too late for the one that it found.
const SEARCH_ATTEMPTS_MAX: usize = 100;

/// Returns whether a command inserts documents, which creates the collection.
fn is_insert(command: &Command) -> bool {
    match command {
        Command::Unvalidated(inner) => is_insert(inner),
        other => matches!(other, Command::Insert { .. }),
    }
}

/// Returns the filter of a command on one document that inserts none.
fn searched_filter(command: &Command) -> Option<&DocBytes> {
    match command {
        Command::Update { filter, multi: false, upsert: false, .. }
        | Command::Delete { filter, multi: false, .. }
        | Command::Replace { filter, upsert: false, .. }
        | Command::FindAndModify { filter, upsert: false, .. } => Some(filter),
        Command::Unvalidated(inner) => searched_filter(inner),
        _ => None,
    }
}

/// Command for one partition.
struct RoutedCommand {
    partition: PartitionId,
    command: Command,
    /// For inserts: the position of each document in the request.
    request_indexes: Vec<usize>,
}

/// Sorts, cuts and projects the documents found in several partitions.
fn merge(mut documents: Vec<DocBytes>, options: &FindOptions) -> Result<Vec<DocBytes>> {
    if !options.sort.is_empty() {
        documents.sort_by_cached_key(|doc| options.sort.key(doc));
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

fn route_to_all(core: &Core, command: &Command) -> Vec<RoutedCommand> {
    let to = |partition| RoutedCommand { partition, command: command.clone(), request_indexes: Vec::new() };
    core.partitions().iter().map(|p| to(p.id)).collect()
}

/// Routes a command to its partitions.
fn route(core: &Core, command: Command) -> Result<Vec<RoutedCommand>> {
    let Some(spec) = collection_spec_of(core, &command)? else { return Ok(route_to_all(core, &command)) };
    match command {
        Command::Insert { collection, docs, ordered } => {
            route_insert(core, &spec, &collection, &docs, ordered)
        }
        Command::Replace { collection, filter, doc, upsert, upsert_id } => {
            let doc = if upsert { with_id_of_filter(core, &collection, &filter, &doc)? } else { doc };
            let home = RawDocument::from_bytes(&doc).ok().and_then(|d| core.partition_of_document(&spec, d));
            let command = Command::Replace { collection, filter, doc, upsert, upsert_id };
            route_single(core, &spec, command, home)
        }
        Command::Update { multi: false, .. }
        | Command::Delete { multi: false, .. }
        | Command::FindAndModify { .. } => route_single(core, &spec, command, None),
        Command::Unvalidated(inner) => {
            let mut routed = route(core, *inner)?;
            for one in &mut routed {
                one.command = one.command.clone().without_validation();
            }
            Ok(routed)
        }
        other => Ok(route_to_all(core, &other)),
    }
}

fn route_insert(
    core: &Core,
    spec: &CollectionSpec,
    collection: &str,
    docs: &[DocBytes],
    ordered: bool,
) -> Result<Vec<RoutedCommand>> {
    let mut by_partition: Vec<(Vec<DocBytes>, Vec<usize>)> =
        vec![Default::default(); core.partitions().len()];
    for (place, doc) in docs.iter().enumerate() {
        let raw = RawDocument::from_bytes(doc).map_err(bad_bson)?;
        let doc: Bytes = core.with_id(collection, raw)?.into_bytes().into();
        let raw = RawDocument::from_bytes(&doc).map_err(bad_bson)?;
        let home = core.partition_of_document(spec, raw).map(|p| p.0 as usize);
        for (_, (docs, places)) in
            by_partition.iter_mut().enumerate().filter(|(p, _)| home.is_none_or(|h| h == *p))
        {
            docs.push(doc.clone());
            places.push(place);
        }
    }
    let routed = by_partition.into_iter().enumerate().filter(|(_, (docs, _))| !docs.is_empty());
    Ok(routed
        .map(|(p, (docs, places))| RoutedCommand {
            partition: PartitionId(p as u32),
            command: Command::Insert { collection: collection.to_owned(), docs, ordered },
            request_indexes: places,
        })
        .collect())
}

/// Routes a command on one document: to every partition of a replicated collection, else to the partition
/// that the filter determines, else to the one with the first match in the command's order, else to `home`, else to the first.
fn route_single(
    core: &Core,
    spec: &CollectionSpec,
    command: Command,
    home: Option<PartitionId>,
) -> Result<Vec<RoutedCommand>> {
    let to = |partition, command| Ok(vec![RoutedCommand { partition, command, request_indexes: Vec::new() }]);
    if spec.replicated {
        return Ok(route_to_all(core, &command));
    }
    let (filter, sort) = match &command {
        Command::Update { filter, .. } | Command::Replace { filter, .. } | Command::Delete { filter, .. } => {
            (filter, None)
        }
        Command::FindAndModify { filter, sort, .. } => (filter, sort.as_ref()),
        _ => return Ok(route_to_all(core, &command)),
    };
    let raw = RawDocument::from_bytes(filter).map_err(bad_bson)?;
    let shard_value = raw.get(spec.shard_key.as_deref().unwrap_or("_id")).ok().flatten();
    if let Some(value) =
        shard_value.filter(|v| !matches!(v, RawBsonRef::Document(_) | RawBsonRef::RegularExpression(_)))
    {
        return to(core.partition_of_value(&Value::from_bson(value)), command);
    }
    let parsed = Filter::parse(raw)?;
    let sort = match sort {
        Some(sort) => SortOrder::parse(RawDocument::from_bytes(sort).map_err(bad_bson)?)?,
        None => SortOrder::default(),
    };
    let options = FindOptions { sort, limit: Some(1), ..FindOptions::default() };
    let mut first = None;
    for partition in core.partitions() {
        let view = partition.view();
        let Some(collection) = view.documents.collection(&spec.name) else { continue };
        let Some(found) = collection.find(&parsed, &options)?.into_iter().next() else { continue };
        if options.sort.is_empty() {
            return to(partition.id, command);
        }
        let key = options.sort.key(&found);
        if first.as_ref().is_none_or(|(least, _)| key < *least) {
            first = Some((key, partition.id));
        }
    }
    to(first.map(|(_, id)| id).or(home).unwrap_or(PartitionId(0)), command)
}

/// Returns the definition of the collection of a command; `None` if the command creates it.
fn collection_spec_of(core: &Core, command: &Command) -> Result<Option<CollectionSpec>> {
    match command {
        Command::CreateCollection(_) => Ok(None),
        other => core.collection_spec(other.collection()).map(Some),
    }
}

/// Returns the replacement with its own `_id`, else that of the filter, else as [`Core::with_id`] adds
/// one.
fn with_id_of_filter(core: &Core, collection: &str, filter: &DocBytes, doc: &DocBytes) -> Result<DocBytes> {
    let filter = RawDocument::from_bytes(filter).map_err(bad_bson)?;
    let doc = RawDocument::from_bytes(doc).map_err(bad_bson)?;
    // update operators are not a replacement: they must stay first, so that the store rejects them
    if doc.into_iter().next().is_some_and(|e| e.is_ok_and(|(name, _)| name.as_str().starts_with('$'))) {
        return Ok(Bytes::copy_from_slice(doc.as_bytes()));
    }
    let id = filter.get("_id").ok().flatten().filter(|v| !matches!(v, RawBsonRef::Document(_)));
    match (get_path(doc, "_id"), id) {
        (Value::Missing, Some(id)) => {
            let mut with_id = RawDocumentBuf::new();
            with_id.append(bson::cstr!("_id"), id);
            for element in doc {
                let (name, value) = element.map_err(bad_bson)?;
                with_id.append(name, value);
            }
            Ok(with_id.into_bytes().into())
        }
        _ => Ok(core.with_id(collection, doc)?.into_bytes().into()),
    }
}
