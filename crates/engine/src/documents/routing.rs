//! The partitions that a document command goes to.

use bson::RawBsonRef;
use bson::raw::RawDocument;
use tidemill_docs::{
    Collation, CollectionSpec, CommandOutcome, DocBytes, DocumentCommand, FoundDocuments, Modification,
    PreparedDocument, Sequence, SortOrder, get_path, merge_found,
};
use tidemill_types::{PartitionId, Result, Timestamp, Value};

use crate::document_parts::bad_bson;
use crate::document_parts::part::WantedDocuments;
use crate::documents::snapshot::DocumentSnapshot;
use crate::documents::with_field;
use crate::node::Node;

/// Command for one partition.
pub struct RoutedCommand {
    /// The partition.
    pub partition: PartitionId,
    /// Command to execute there.
    pub command: DocumentCommand,
    /// For inserts: the position of each document in the request.
    pub request_indexes: Vec<usize>,
}

/// Routes a command to all partitions.
pub fn route_to_all(node: &Node, command: &DocumentCommand) -> Vec<RoutedCommand> {
    let to = |partition| RoutedCommand { partition, command: command.clone(), request_indexes: Vec::new() };
    node.host.partition_ids().map(to).collect()
}

/// Routes a command to its partitions.
///
/// `documents` are those in which a command on one document looks for it.
///
/// Errors: `NotFound` for an unknown collection, `Invalid` for malformed documents and filters.
pub fn route(
    node: &Node,
    documents: &DocumentSnapshot,
    command: DocumentCommand,
) -> Result<Vec<RoutedCommand>> {
    let collation = collation_of(documents, &command)?;
    route_by(node, documents, command, collation.as_ref())
}

/// Returns the collation of a command: its own, or that of its collection.
///
/// Errors: `Invalid` if it is malformed.
pub fn collation_of(documents: &DocumentSnapshot, command: &DocumentCommand) -> Result<Option<Collation>> {
    match command {
        DocumentCommand::Collated { collation, .. } => Ok(Collation::parse(collation.as_raw())?),
        DocumentCommand::Unvalidated(inner) => collation_of(documents, inner),
        other => Ok(documents.collation(other.collection()).ok().flatten().cloned()),
    }
}

fn route_by(
    node: &Node,
    documents: &DocumentSnapshot,
    command: DocumentCommand,
    collation: Option<&Collation>,
) -> Result<Vec<RoutedCommand>> {
    let Some(spec) = collection_spec_of(documents, &command)? else {
        return Ok(route_to_all(node, &command));
    };
    match command {
        DocumentCommand::Insert { collection, docs, ordered } => {
            route_insert(node, spec, &collection, &docs, ordered)
        }
        // documents that match may be in all partitions; without any, one partition inserts
        DocumentCommand::Update { multi: true, upsert: true, .. } if !spec.replicated => {
            match first_match(documents, spec, &command, collation)? {
                Some(_) => Ok(route_to_all(node, &without_upsert(command))),
                None => route_upsert(node, spec, command),
            }
        }
        DocumentCommand::Update { multi: false, .. }
        | DocumentCommand::Replace { .. }
        | DocumentCommand::Delete { multi: false, .. }
        | DocumentCommand::FindAndModify { .. } => route_single(node, documents, spec, command, collation),
        DocumentCommand::Unvalidated(inner) => {
            let mut routed = route_by(node, documents, *inner, collation)?;
            for one in &mut routed {
                one.command = one.command.clone().without_validation();
            }
            Ok(routed)
        }
        DocumentCommand::Sequenced { sequences, command } => {
            let mut routed = route_by(node, documents, *command, collation)?;
            for one in &mut routed {
                let own = one.request_indexes.iter().filter_map(|place| sequences.get(*place).copied());
                one.command = one.command.clone().with_sequences(own.collect());
            }
            Ok(routed)
        }
        DocumentCommand::Collated { collation: own, command } => {
            let mut routed = route_by(node, documents, *command, collation)?;
            for one in &mut routed {
                one.command = one.command.clone().with_collation(Some(own.clone()));
            }
            Ok(routed)
        }
        other => Ok(route_to_all(node, &other)),
    }
}

fn route_insert(
    node: &Node,
    spec: &CollectionSpec,
    collection: &str,
    docs: &[DocBytes],
    ordered: bool,
) -> Result<Vec<RoutedCommand>> {
    let mut by_partition: Vec<(Vec<DocBytes>, Vec<usize>)> = vec![Default::default(); node.host.partitions()];
    for (place, doc) in docs.iter().enumerate() {
        RawDocument::from_bytes(doc).map_err(bad_bson)?;
        let prepared = PreparedDocument::new(doc.clone(), node.entity_key(collection));
        let home = node.partition_of_prepared(spec, &prepared)?.map(|p| p.0 as usize);
        let doc = prepared.into_bytes();
        for (_, (docs, places)) in
            by_partition.iter_mut().enumerate().filter(|(p, _)| home.is_none_or(|h| h == *p))
        {
            docs.push(doc.clone());
            places.push(place);
        }
    }
    let routed = by_partition.into_iter().enumerate().filter(|(_, (docs, _))| !docs.is_empty());
    let routed = routed.map(|(p, (docs, places))| RoutedCommand {
        partition: PartitionId(p as u32),
        command: DocumentCommand::Insert { collection: collection.to_owned(), docs, ordered },
        request_indexes: places,
    });
    Ok(routed.collect())
}

/// Gives the documents of an insert into several partitions the order that they have in the request.
pub fn in_order_of_request(mut routed: Vec<RoutedCommand>, now: Timestamp) -> Vec<RoutedCommand> {
    for part in &mut routed {
        let sequences = part.request_indexes.iter().map(|place| Sequence::new(now, *place as u32)).collect();
        part.command = part.command.clone().with_sequences(sequences);
    }
    routed
}

/// Cuts the parts of an ordered insert so that they come in the order of its documents.
pub fn runs_in_order(routed: Vec<RoutedCommand>) -> Vec<RoutedCommand> {
    let mut order: Vec<(usize, usize, usize)> = Vec::new();
    for (part, routed) in routed.iter().enumerate() {
        order.extend(routed.request_indexes.iter().enumerate().map(|(at, place)| (*place, part, at)));
    }
    order.sort_unstable();
    let mut runs: Vec<RoutedCommand> = Vec::new();
    let mut next = 0;
    while let Some((_, part, first)) = order.get(next).copied() {
        let run = order[next..].iter().take_while(|(_, other, _)| *other == part);
        let request_indexes: Vec<usize> = run.map(|(place, ..)| *place).collect();
        next += request_indexes.len();
        let routed = &routed[part];
        let kept = first..first + request_indexes.len();
        let command = routed.command.clone().with_documents(kept);
        runs.push(RoutedCommand { partition: routed.partition, command, request_indexes });
    }
    runs
}

/// Routes a command on one document: to every partition of a replicated collection, else to the partition that the filter
/// determines, else to the one with the first match in the command's order, else to that of the document that it inserts.
fn route_single(
    node: &Node,
    documents: &DocumentSnapshot,
    spec: &CollectionSpec,
    command: DocumentCommand,
    collation: Option<&Collation>,
) -> Result<Vec<RoutedCommand>> {
    // a replacement gets its `_id` here, so that it is the same in every partition, and the key of its entity
    let mut needs_id = matches!(
        &command,
        DocumentCommand::Replace { upsert: true, .. }
            | DocumentCommand::FindAndModify { upsert: true, change: Modification::Replace(_), .. }
    );
    let mut command = command;
    if needs_id && has_id(&command)? {
        command = with_id_of_filter(node, command)?;
        needs_id = false;
    }
    if spec.replicated {
        return Ok(match needs_id && first_match(documents, spec, &command, collation)?.is_none() {
            true => route_to_all(node, &with_id_of_filter(node, command)?),
            false => route_to_all(node, &command),
        });
    }
    if !needs_id && let Some(partition) = determined_partition(node, documents, spec, &command, collation)? {
        return Ok(to_one(partition, command));
    }
    match first_match(documents, spec, &command, collation)? {
        // the document that it inserts may belong to another partition
        Some(partition) => Ok(to_one(partition, without_upsert(command))),
        None => route_upsert(node, spec, command),
    }
}

/// Routes a command that finds no document to the partition of the one that it inserts.
fn route_upsert(node: &Node, spec: &CollectionSpec, command: DocumentCommand) -> Result<Vec<RoutedCommand>> {
    let command = with_id_of_filter(node, command)?;
    // the partition that would insert the document reports what is wrong with it
    let key = node.entity_key(command.collection());
    let document = command.upserted(node.host.clock.now(), key).ok().flatten();
    let home = document.and_then(|doc| node.partition_of_document(spec, RawDocument::from_bytes(&doc).ok()?));
    Ok(to_one(home.unwrap_or(PartitionId(0)), command))
}

fn to_one(partition: PartitionId, command: DocumentCommand) -> Vec<RoutedCommand> {
    vec![RoutedCommand { partition, command, request_indexes: Vec::new() }]
}

/// Returns the command that changes what the other one finds, and inserts nothing.
fn without_upsert(mut command: DocumentCommand) -> DocumentCommand {
    if let DocumentCommand::Update { upsert, .. }
    | DocumentCommand::Replace { upsert, .. }
    | DocumentCommand::FindAndModify { upsert, .. } = &mut command
    {
        *upsert = false;
    }
    command
}

/// Returns the filter of a command on documents that match.
pub fn filter_of(command: &DocumentCommand) -> Option<&DocBytes> {
    match command {
        DocumentCommand::Update { filter, .. }
        | DocumentCommand::Replace { filter, .. }
        | DocumentCommand::Delete { filter, .. }
        | DocumentCommand::FindAndModify { filter, .. } => Some(filter),
        _ => None,
    }
}

/// Returns the order in which a command looks for a document.
///
/// Errors: `Invalid` if it is malformed.
pub fn sort_of(command: &DocumentCommand, collation: Option<Collation>) -> Result<SortOrder> {
    Ok(match command {
        DocumentCommand::FindAndModify { sort: Some(sort), .. } => {
            SortOrder::parse_query(RawDocument::from_bytes(sort).map_err(bad_bson)?)?
                .with_collation(collation)
        }
        _ => SortOrder::default(),
    })
}

/// Returns whether the filter of a command says which `_id` it wants.
fn has_id(command: &DocumentCommand) -> Result<bool> {
    let Some(filter) = filter_of(command) else { return Ok(false) };
    let id = RawDocument::from_bytes(filter).map_err(bad_bson)?.get("_id").ok().flatten();
    Ok(id.is_some_and(|id| !matches!(id, RawBsonRef::Document(_) | RawBsonRef::RegularExpression(_))))
}

/// Returns the partition that the filter of a command determines.
fn determined_partition(
    node: &Node,
    documents: &DocumentSnapshot,
    spec: &CollectionSpec,
    command: &DocumentCommand,
    collation: Option<&Collation>,
) -> Result<Option<PartitionId>> {
    if spec.gathered {
        // until it has all documents, the others may have one that matches
        let home = node.partition_of_collection(spec);
        for other in node.host.partition_ids().filter(|other| *other != home) {
            if !documents.is_empty_in(other.0 as usize, &spec.name)? {
                return Ok(None);
            }
        }
        return Ok(Some(home));
    }
    let Some(filter) = filter_of(command) else { return Ok(None) };
    let filter = RawDocument::from_bytes(filter).map_err(bad_bson)?;
    let value = filter.get(spec.shard_key.as_deref().unwrap_or("_id")).ok().flatten();
    let value = value.filter(|v| !matches!(v, RawBsonRef::Document(_) | RawBsonRef::RegularExpression(_)));
    // a string may equal others, which other partitions have
    let value = value.filter(|v| {
        collation.is_none()
            || !matches!(v, RawBsonRef::String(_) | RawBsonRef::Symbol(_) | RawBsonRef::Array(_))
    });
    Ok(value.map(|value| node.partition_of_value(&Value::from_bson(value))))
}

/// Returns the partition with the first document that a command finds: in its order, and of equal ones the one that was inserted
/// first.
fn first_match(
    documents: &DocumentSnapshot,
    spec: &CollectionSpec,
    command: &DocumentCommand,
    collation: Option<&Collation>,
) -> Result<Option<PartitionId>> {
    let Some(filter) = filter_of(command) else { return Ok(None) };
    let filter = documents.parsed_bytes(filter, collation)?;
    let sort = sort_of(command, collation.cloned())?;
    let wanted = WantedDocuments {
        filter: Some(&filter),
        sort: (!sort.is_empty()).then_some(&sort),
        limit: Some(1),
        for_write: true,
    };
    let parts = documents.parts(&spec.name, &wanted)?;
    let mut found = Vec::new();
    for (partition, part) in &parts {
        let Some(part) = part.get() else { continue };
        found.push((PartitionId(*partition as u32), part.find_for_write(&filter, &sort, Some(1))?));
    }
    let (partitions, parts): (Vec<_>, Vec<_>) = found.into_iter().unzip();
    let first = merge_found(&parts).next();
    let of_first = |part: &FoundDocuments<'_>| {
        first.is_some_and(|first| part.iter().next().is_some_and(|own| std::ptr::eq(own, first)))
    };
    Ok(parts.iter().position(of_first).map(|at| partitions[at]))
}

/// Returns the definition of the collection of a command; `None` if the command creates it.
pub fn collection_spec_of<'d>(
    documents: &'d DocumentSnapshot,
    command: &DocumentCommand,
) -> Result<Option<&'d CollectionSpec>> {
    match command {
        DocumentCommand::CreateCollection(_) | DocumentCommand::EndDatabase { .. } => Ok(None),
        other => documents.spec(other.collection()).map(Some),
    }
}

/// Returns the command with an `_id` in its replacement: its own, else that of the filter, else as [`Node::with_id`] adds one.
/// Other commands stay as they are.
fn with_id_of_filter(node: &Node, mut command: DocumentCommand) -> Result<DocumentCommand> {
    let (DocumentCommand::Replace { collection, filter, doc, upsert_id, .. }
    | DocumentCommand::FindAndModify {
        collection,
        filter,
        change: Modification::Replace(doc),
        upsert_id,
        ..
    }) = &mut command
    else {
        return Ok(command);
    };
    let filter = RawDocument::from_bytes(filter).map_err(bad_bson)?;
    let raw = RawDocument::from_bytes(doc).map_err(bad_bson)?;
    // update operators are not a replacement: they must stay first, so that the store rejects them
    if raw.into_iter().next().is_some_and(|e| e.is_ok_and(|(name, _)| name.as_str().starts_with('$'))) {
        return Ok(command);
    }
    let with_id = match (get_path(raw, "_id"), filter.get("_id").ok().flatten()) {
        // {_id: {$eq: 1}}: the store reads it
        (Value::Missing, Some(RawBsonRef::Document(_))) => return Ok(command),
        (Value::Missing, Some(id)) => node.with_id(collection, &with_field("_id", id, raw)?)?,
        // the store gives it this one if it inserts it; a document that another writer has inserted keeps its own
        (Value::Missing, None) if upsert_id.is_some() && node.entity_key(collection).is_none() => {
            return Ok(command);
        }
        (Value::Missing, None) => match node.entity_key(collection) {
            // the key that the filter asks for, if the replacement has none
            Some(key) if raw.get(key).ok().flatten().is_none() => match equality(filter, key) {
                Some(value) => node.with_id(collection, &with_field(key, value, raw)?)?,
                None => node.with_id(collection, raw)?,
            },
            _ => node.with_id(collection, raw)?,
        },
        _ => node.with_id(collection, raw)?,
    };
    *doc = with_id.into_bytes().into();
    Ok(command)
}

/// Returns the value that a filter demands of a field by `{ field: value }`.
fn equality<'f>(filter: &'f RawDocument, field: &str) -> Option<RawBsonRef<'f>> {
    let value = filter.get(field).ok().flatten()?;
    (!matches!(value, RawBsonRef::Document(_) | RawBsonRef::RegularExpression(_))).then_some(value)
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
