//! The partitions that a document command goes to.

use bson::RawBsonRef;
use bson::raw::{RawDocument, RawDocumentBuf};
use bytes::Bytes;
use tidemill_docs::{
    CollectionSpec, Command, CommandOutcome, DocBytes, Filter, FindOptions, SortOrder, get_path,
};
use tidemill_types::{PartitionId, Result, Value};

use crate::core::Core;
use crate::document_snapshot::DocumentSnapshot;
use crate::documents::bad_bson;

/// Command for one partition.
pub struct RoutedCommand {
    /// The partition.
    pub partition: PartitionId,
    /// What it is to do.
    pub command: Command,
    /// For inserts: the position of each document in the request.
    pub request_indexes: Vec<usize>,
}

/// Routes a command to all partitions.
pub fn route_to_all(core: &Core, command: &Command) -> Vec<RoutedCommand> {
    let to = |partition| RoutedCommand { partition, command: command.clone(), request_indexes: Vec::new() };
    core.partitions().iter().map(|p| to(p.id)).collect()
}

/// Routes a command to its partitions.
///
/// `documents` are those in which a command on one document looks for it.
///
/// Errors: `NotFound` for an unknown collection, `Invalid` for documents and filters that are none.
pub fn route(core: &Core, documents: &DocumentSnapshot, command: Command) -> Result<Vec<RoutedCommand>> {
    let Some(spec) = collection_spec_of(documents, &command)? else {
        return Ok(route_to_all(core, &command));
    };
    match command {
        Command::Insert { collection, docs, ordered } => {
            route_insert(core, spec, &collection, &docs, ordered)
        }
        Command::Replace { collection, filter, doc, upsert, upsert_id } => {
            let doc = if upsert { with_id_of_filter(core, &collection, &filter, &doc)? } else { doc };
            let home = RawDocument::from_bytes(&doc).ok().and_then(|d| core.partition_of_document(spec, d));
            let command = Command::Replace { collection, filter, doc, upsert, upsert_id };
            route_single(core, documents, spec, command, home)
        }
        Command::Update { multi: false, .. }
        | Command::Delete { multi: false, .. }
        | Command::FindAndModify { .. } => route_single(core, documents, spec, command, None),
        Command::Unvalidated(inner) => {
            let mut routed = route(core, documents, *inner)?;
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
    documents: &DocumentSnapshot,
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
    for (partition, part) in documents.parts(&spec.name) {
        let partition = PartitionId(partition as u32);
        let Some(found) = part.find(&parsed, &options)?.into_iter().next() else { continue };
        if options.sort.is_empty() {
            return to(partition, command);
        }
        let key = options.sort.key(&found);
        if first.as_ref().is_none_or(|(least, _)| key < *least) {
            first = Some((key, partition));
        }
    }
    to(first.map(|(_, id)| id).or(home).unwrap_or(PartitionId(0)), command)
}

/// Returns the definition of the collection of a command; `None` if the command creates it.
pub fn collection_spec_of<'d>(
    documents: &'d DocumentSnapshot,
    command: &Command,
) -> Result<Option<&'d CollectionSpec>> {
    match command {
        Command::CreateCollection(_) => Ok(None),
        other => documents.spec(other.collection()).map(Some),
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

/// Returns what the commands of several partitions did together. With `same`, every partition has done the same work, so only the
/// first outcome counts.
pub fn merge_outcomes(
    routed: &[RoutedCommand],
    outcomes: impl IntoIterator<Item = CommandOutcome>,
    same: bool,
) -> CommandOutcome {
    let mut total = CommandOutcome::default();
    for (i, (routed, mut outcome)) in routed.iter().zip(outcomes).enumerate() {
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
    total
}
