//! Error store: events that sinks with `on.error='STORE'` could not deliver, as documents.
//!
//! They are documents like others, so rules, SQL and drivers read them, and deleting one discards its event. A retry is a
//! record of the log that takes the document away and hands the event to its sink again: it happens once.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::raw::RawDocumentBuf;
use bson::{DateTime, Document};
use tidemill_connect::RefusedRow;
use tidemill_docs::{DocBytes, DocumentCommand, FindOptions};
use tidemill_types::{Error, ErrorKind, PartitionId, Result, Value, event_json};

use crate::document_parts::bad_bson;
use crate::documents::snapshot::DocumentSnapshot;
use crate::entry::Entry;
use crate::node::Node;
use crate::sinks::undelivered_event::{COLLECTION, UndeliveredEvent};
use crate::sinks::{DeliverySink, DueEvents};

/// Events of a record that retries.
const RETRIED_MAX: usize = 1000;

/// Selection of undelivered events.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UndeliveredSelection {
    /// Those of this sink; without it, of all sinks.
    pub sink: Option<String>,
    /// Only these; without any, all.
    pub ids: Vec<String>,
}

/// Outcome of a retry.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryOutcome {
    /// Events that went to their sinks again.
    pub retried: u64,
    /// Why others did not.
    pub errors: Vec<String>,
}

/// Stores events that a sink refused. Those that are stored already stay as they are.
///
/// Errors: the documents cannot be written; the caller tries again.
pub fn store(node: &Arc<Node>, sink: &DeliverySink, due: &DueEvents, refused: &[RefusedRow]) -> Result<()> {
    let now = DateTime::from_millis(node.host.clock.now().0 / 1000);
    let document = |refused: &RefusedRow| -> Result<DocBytes> {
        let id = &due.ids[refused.row];
        let event = event_json(sink.schema(), &due.rows, refused.row);
        let event = Document::try_from(event).map_err(bad_bson)?;
        let document = bson::doc! {
            "_id": format!("{}#{id}", sink.name()),
            "sink": sink.name(),
            "stream": &sink.schema().name,
            "event": event,
            "reason": &refused.reason,
            "time": now,
        };
        let raw = RawDocumentBuf::try_from(&document).map_err(bad_bson)?;
        Ok(raw.into_bytes().into())
    };
    let docs = refused.iter().map(document).collect::<Result<Vec<_>>>()?;
    let insert = DocumentCommand::Insert { collection: COLLECTION.to_owned(), docs, ordered: false };
    let outcome = node.write_documents(insert, None, None)?;
    let is_new = |error: &&tidemill_docs::DocumentError| error.error.kind() != ErrorKind::Conflict;
    match outcome.errors.iter().find(is_new) {
        None => Ok(()),
        Some(first) => Err(Error::unavailable(format!("the error store: {}", first.error))),
    }
}

/// Returns undelivered events, oldest first.
///
/// Errors: a document that is not an undelivered event.
pub fn find(
    node: &Node,
    selection: &UndeliveredSelection,
    limit: Option<u64>,
) -> Result<Vec<UndeliveredEvent>> {
    let mut filter = RawDocumentBuf::new();
    if let Some(sink) = &selection.sink {
        filter.append(bson::cstr!("sink"), sink.as_str());
    }
    if !selection.ids.is_empty() {
        let mut ids = bson::RawArrayBuf::new();
        selection.ids.iter().for_each(|id| ids.push(id.as_str()));
        filter.append(bson::cstr!("_id"), bson::rawdoc! { "$in": ids });
    }
    let sort = tidemill_docs::SortOrder::parse(&bson::rawdoc! { "time": 1, "_id": 1 })?;
    let options = FindOptions { sort, limit, ..FindOptions::default() };
    match DocumentSnapshot::now(node).and_then(|all| all.find(COLLECTION, &filter, &options)) {
        // no event was ever refused
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(vec![]),
        found => found?.iter().map(|document| UndeliveredEvent::read(document)).collect(),
    }
}

/// Hands events to their sinks again and forgets them here.
///
/// Errors: those of [`find`]; the log does not take the records.
pub fn retry(node: &Arc<Node>, selection: &UndeliveredSelection) -> Result<RetryOutcome> {
    let mut by_partition: BTreeMap<PartitionId, Vec<String>> = BTreeMap::new();
    for event in find(node, selection, None)? {
        let home = node.partition_of_value(&Value::str(&event.id));
        by_partition.entry(home).or_default().push(event.id);
    }
    let mut outcome = RetryOutcome::default();
    for (partition, ids) in by_partition {
        for ids in ids.chunks(RETRIED_MAX) {
            let entry = Entry::Redeliver { ids: ids.to_vec() };
            for reply in node.write_and_wait(vec![(partition, entry)], None)? {
                outcome.retried += reply.outcome.map_or(0, |outcome| outcome.deleted);
                outcome.errors.extend(reply.rule_errors);
            }
        }
    }
    Ok(outcome)
}

/// Forgets events. Returns how many there were.
///
/// Errors: those of [`find`]; the log does not take the records.
pub fn discard(node: &Arc<Node>, selection: &UndeliveredSelection) -> Result<u64> {
    let mut discarded = 0;
    for events in find(node, selection, None)?.chunks(RETRIED_MAX) {
        let mut ids = bson::RawArrayBuf::new();
        events.iter().for_each(|event| ids.push(event.id.as_str()));
        let filter = bson::rawdoc! { "_id": { "$in": ids } };
        let filter = filter.into_bytes().into();
        let delete = DocumentCommand::Delete { collection: COLLECTION.to_owned(), filter, multi: true };
        discarded += node.write_documents(delete, None, None)?.deleted;
    }
    Ok(discarded)
}
