//! A partition of another node.

use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_docs::{CommandOutcome, DocBytes, Store, StoreSnapshot};
use tidemill_flow::Column;
use tidemill_flow::explain::QueryReport;
use tidemill_log::{Durability, Ticket};
use tidemill_rules::why::Selector;
use tidemill_rules::{Counters, Explanation};
use tidemill_types::{Error, Offset, PartitionId, Result, Timestamp, Value};
use tidemill_zones::MissingTail;

use super::answer::decode_definitions;
use super::message::{
    self, CallKind, ExplainEventHead, FoundHead, QueryHead, SessionHead, TailHead, decode, encode,
};
use super::{PeerNodes, documents};
use crate::apply::ApplyReply;
use crate::changes::{ChangeCursor, ChangesPart};
use crate::commit::{OutcomeKey, SessionWrite, TransactionId};
use crate::document_parts::part::DocumentsPart;
use crate::document_parts::place::{PlaceOfId, raw_id};
use crate::entry::Entry;
use crate::partition::{PartitionClient, PartitionProgress, PendingReply, TableName};
use crate::queries::UnitName;
use crate::queries::runtime::QueryCountsByFile;
use crate::state::store_limits;

/// A partition that another node owns, as far as this one knows.
pub struct PeerPartition {
    peers: Arc<PeerNodes>,
    id: PartitionId,
}

impl PeerPartition {
    /// Creates a client.
    pub fn new(peers: Arc<PeerNodes>, id: PartitionId) -> Self {
        Self { peers, id }
    }

    fn ask<T: serde::de::DeserializeOwned>(&self, kind: CallKind, head: &impl serde::Serialize) -> Result<T> {
        Ok(decode(&self.peers.ask(self.id, kind, encode(head, &[])?)?)?.0)
    }

    /// Returns the reply to a record, for which the owner is asked.
    fn outcome(&self, key: impl FnOnce(Offset) -> OutcomeKey + Send + 'static) -> PendingReply {
        let (peers, id) = (self.peers.clone(), self.id);
        PendingReply::There(Box::new(move |offset| wait_for_outcome(&peers, id, key(offset))))
    }
}

/// Asks for the outcome of a record until it is there, as long as senders wait.
fn wait_for_outcome(peers: &PeerNodes, id: PartitionId, key: OutcomeKey) -> Result<ApplyReply> {
    let node = peers.node()?;
    let deadline = node.host.clock.monotonic() + node.app.deployment.settings.send_timeout.to_std();
    let question = encode(&key, &[])?;
    loop {
        let (is_there, outcome) = decode::<bool>(&peers.ask(id, CallKind::Outcome, question.clone())?)?;
        if is_there {
            return message::decode_reply(&outcome, &node.app.deployment);
        }
        if node.host.is_stopping() || node.host.clock.monotonic() >= deadline {
            return Err(Error::unavailable(format!(
                "the change is in the log of partition {id} and has not been applied in time: look whether it is there"
            )));
        }
    }
}

impl PartitionClient for PeerPartition {
    fn append(&self, entry: Entry, durability: Durability) -> Result<(Ticket, PendingReply)> {
        let ticket = self.peers.node()?.host.append(self.id, entry, durability, None)?;
        Ok((ticket, self.outcome(OutcomeKey::Record)))
    }

    fn part_outcome(&self, id: TransactionId) -> Result<PendingReply> {
        Ok(self.outcome(move |_| OutcomeKey::Part(id)))
    }

    fn wait_applied(&self, end: Offset) -> Result<()> {
        self.ask(CallKind::WaitApplied, &end)
    }

    fn catch_up(&self) -> Result<()> {
        self.ask(CallKind::CatchUp, &())
    }

    fn waits_for_store(&self) -> Result<Option<String>> {
        self.ask(CallKind::WaitsForStore, &())
    }

    fn progress(&self) -> Result<PartitionProgress> {
        self.ask(CallKind::Progress, &())
    }

    fn definitions(&self) -> Result<StoreSnapshot> {
        let reply = self.peers.ask(self.id, CallKind::Definitions, encode(&(), &[])?)?;
        let mut store = Store::new(store_limits(&self.peers.node()?.app.deployment.settings));
        for spec in decode_definitions(&reply)? {
            store.create_collection(&spec)?;
        }
        Ok(store.snapshot())
    }

    fn documents(&self, end: Offset) -> Result<DocumentsPart> {
        let kept = documents::begin_keep(&self.peers, self.id, end)?;
        documents::end_keep(&self.peers, self.id, kept)
    }

    fn find_document(
        &self,
        collection: &str,
        id: &Value<'_>,
        end: Offset,
    ) -> Result<Option<(Option<DocBytes>, PlaceOfId)>> {
        let wrapped = bson::rawdoc! { "_id": raw_id(id) };
        let payload = encode(&(collection, end), wrapped.as_bytes())?;
        let reply = self.peers.ask(self.id, CallKind::FindDocument, payload)?;
        let (head, document) = decode::<Option<FoundHead>>(&reply)?;
        Ok(head.map(|head| (head.found.then_some(document), head.place)))
    }

    fn session_outcome(&self, session: &SessionWrite) -> Result<Option<CommandOutcome>> {
        let reply = self.peers.ask(self.id, CallKind::Session, SessionHead::encode(session)?)?;
        let (is_there, outcome) = decode::<bool>(&reply)?;
        let outcome = is_there.then(|| CommandOutcome::from_bytes(&outcome));
        outcome.map(|outcome| outcome.ok_or_else(|| Error::invalid("an outcome cannot be read"))).transpose()
    }

    fn changes(&self, after: (Offset, u32), cursor: Option<ChangeCursor>) -> Result<ChangesPart> {
        let question = encode(&(after, cursor), &[])?;
        message::decode_changes(&self.peers.ask(self.id, CallKind::Changes, question)?)
    }

    fn change_place(&self, change: (Offset, u32)) -> Result<(Offset, u32)> {
        self.ask(CallKind::ChangePlace, &change)
    }

    fn changes_at(&self, time: Timestamp) -> Result<(Offset, u32)> {
        self.ask(CallKind::ChangesAt, &time)
    }

    fn tail_rows(&self, table: &TableName, missing: MissingTail) -> Result<Option<Vec<RecordBatch>>> {
        let head = TailHead { table: table.clone(), after: missing.after, next: missing.next };
        let replies = self.peers.read_of_owner(self.id, CallKind::TailRows, &encode(&head, &[])?)?;
        let Some((first, rows)) = replies.split_first() else {
            return Err(Error::internal("a node has answered with nothing"));
        };
        if !decode::<bool>(first)?.0 {
            return Ok(None);
        }
        let tables = &self.peers.node()?.app.tables;
        let table = match table {
            TableName::Rejected => Some(tables.rejected()),
            TableName::Stream(name) => tables.by_name(name),
        };
        let schema = table.ok_or_else(|| Error::not_found("no such table"))?.schema();
        rows.iter().map(|rows| message::decode_rows(rows, schema.clone())).collect::<Result<_>>().map(Some)
    }

    fn counters(&self) -> Result<(Counters, QueryCountsByFile)> {
        self.ask(CallKind::Counters, &())
    }

    fn find_in_unit(&self, unit: &UnitName, query: &str) -> Result<Vec<Column>> {
        let head = QueryHead::new(unit, query, None);
        message::decode_columns(&self.peers.ask(self.id, CallKind::FindInUnit, encode(&head, &[])?)?)
    }

    fn explain_event(&self, selector: &Selector, rule: Option<&str>) -> Result<Option<Explanation>> {
        self.ask(CallKind::ExplainEvent, &ExplainEventHead::new(selector, rule))
    }

    fn explain_query(&self, unit: &UnitName, query: &str, key: Option<&str>) -> Result<Option<QueryReport>> {
        self.ask(CallKind::ExplainQuery, &QueryHead::new(unit, query, key))
    }
}
