//! Questions to a partition of any owner.
//!
//! ```text
//! let partition = node.client(PartitionId(3))?;     // this process, or a peer
//! partition.wait_applied(end)?;
//! let stored = partition.progress()?.ledger.get("Order").map(|counts| counts.stored);
//! ```
//!
//! Callers of documents, rules and queries, sources, and system tables ask through [`PartitionClient`]. Jobs, recovery and the loops of
//! owners work on [`Partition`] itself, because only the owner may.

use std::sync::Arc;

use arrow_array::RecordBatch;
use crossbeam_channel::Receiver;
use tidemill_connect::without_waiting;
use tidemill_docs::{CommandOutcome, DocBytes, StoreSnapshot};
use tidemill_flow::Column;
use tidemill_flow::explain::QueryReport;
use tidemill_log::{Durability, Ticket};
use tidemill_rules::why::Selector;
use tidemill_rules::{Counters, Explanation};
use tidemill_types::{Error, ErrorKind, Offset, PartitionId, Result, Timestamp, Value};
use tidemill_zones::MissingTail;

use super::{Partition, PartitionProgress};
use crate::apply::ApplyReply;
use crate::changes::{ChangeCursor, ChangesPart, READ_BYTES, not_kept};
use crate::commit::{SessionWrite, TransactionId};
use crate::document_parts::part::DocumentsPart;
use crate::document_parts::place::{PlaceOfId, find_by_id};
use crate::entry::Entry;
use crate::queries::UnitName;
use crate::queries::runtime::QueryCountsByFile;

/// Questions that anyone may ask a partition. [`Partition`] answers them in a process that has a replica.
///
/// Errors of all of them: `Unavailable` when the owner cannot be asked.
pub trait PartitionClient: Send + Sync {
    /// Appends an entry, whose reply comes when it is durable and applied.
    ///
    /// Errors: those of [`tidemill_log::Log::append`]; the entry is then not in the log.
    fn append(&self, entry: Entry, durability: Durability) -> Result<(Ticket, PendingReply)>;

    /// Returns the reply to a part of a transaction, which the partition that orders transactions is going to append.
    fn part_outcome(&self, id: TransactionId) -> Result<PendingReply>;

    /// Waits until all records below `end` are applied.
    ///
    /// Errors: `Unavailable` when the partition does not get there.
    fn wait_applied(&self, end: Offset) -> Result<()>;

    /// Waits until all records that are in the log now are applied.
    ///
    /// Errors: as [`Self::wait_applied`]; at once if the owner waits for a store of the app.
    fn catch_up(&self) -> Result<()>;

    /// Returns which store of the app the owner waits for, as a sentence; `None` while it waits for none.
    fn waits_for_store(&self) -> Result<Option<String>>;

    /// Returns positions of sources and counts after the last applied batch.
    fn progress(&self) -> Result<PartitionProgress>;

    /// Returns the collections without their documents, or with them.
    fn definitions(&self) -> Result<StoreSnapshot>;

    /// Returns the documents of one moment, with what the records below `end` have made.
    ///
    /// Errors: as [`Self::wait_applied`].
    fn documents(&self, end: Offset) -> Result<DocumentsPart>;

    /// Returns the document with an `_id`, with what the records below `end` have made, and where it may be if it is not here; `None` if
    /// the collection does not exist.
    ///
    /// Errors: as [`Self::wait_applied`].
    fn find_document(
        &self,
        collection: &str,
        id: &Value<'_>,
        end: Offset,
    ) -> Result<Option<(Option<DocBytes>, PlaceOfId)>>;

    /// Returns the outcome of a statement of a client session, if the partition has executed it.
    ///
    /// Errors: `Conflict` if the session has gone on to a later write.
    fn session_outcome(&self, session: &SessionWrite) -> Result<Option<CommandOutcome>>;

    /// Returns changes of documents after a place: a record, and the number of its changes before. `cursor` is that of the last answer.
    ///
    /// Errors: `NotFound` if they are not kept.
    fn changes(&self, after: (Offset, u32), cursor: Option<ChangeCursor>) -> Result<ChangesPart>;

    /// Returns the place in the log of a change of the data directory that the cluster was made from: its record in the change log, and its number
    /// in that.
    ///
    /// Errors: `NotFound` if it is not kept; `Invalid` for another place.
    fn change_place(&self, change: (Offset, u32)) -> Result<(Offset, u32)>;

    /// Returns the place of the first change that was made at `time` or later.
    ///
    /// Errors: `NotFound` if it is not kept.
    fn changes_at(&self, time: Timestamp) -> Result<(Offset, u32)>;

    /// Returns the rows of a table that are in no file; `None` if files of the table have some of them by now.
    ///
    /// Errors: `NotFound` for an unknown table.
    fn tail_rows(&self, table: &TableName, missing: MissingTail) -> Result<Option<Vec<RecordBatch>>>;

    /// Returns the counters of rules and queries after the last applied batch.
    fn counters(&self) -> Result<(Counters, QueryCountsByFile)>;

    /// Returns the columns of the rows that an on-demand query finds in the tables, windows and aggregations of a unit.
    ///
    /// Errors: `Invalid` for a query that cannot be run there; `Unavailable` at once if the owner waits for a store of the app.
    fn find_in_unit(&self, unit: &UnitName, query: &str) -> Result<Vec<Column>>;

    /// Returns the explanation of a kept event, for one rule or for all; `None` if the event is not among those that are kept.
    ///
    /// Errors: `Invalid` for a rule that does not see the event.
    fn explain_event(&self, selector: &Selector, rule: Option<&str>) -> Result<Option<Explanation>>;

    /// Returns why a query emits nothing; `None` if its unit does not run in the partition.
    ///
    /// Errors: `NotFound` for a key that `partition with` does not have here.
    fn explain_query(&self, unit: &UnitName, query: &str, key: Option<&str>) -> Result<Option<QueryReport>>;
}

/// The processes that own the partitions which this one does not own.
pub trait PartitionPeers: Send + Sync {
    /// Returns the partition as its present owner has it.
    ///
    /// Errors: `Unavailable` when no process is known to own it.
    fn client(&self, id: PartitionId) -> Result<Arc<dyn PartitionClient>>;

    /// Returns the documents of partitions, see [`PartitionClient::documents`], in the same order.
    ///
    /// Errors: those of [`Self::client`] and of [`PartitionClient::documents`].
    fn documents(&self, wanted: &[(PartitionId, Offset)]) -> Result<Vec<DocumentsPart>> {
        wanted.iter().map(|(id, end)| self.client(*id)?.documents(*end)).collect()
    }
}

/// A table of events.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TableName {
    /// The table of a stream.
    Stream(String),
    /// The table of rejected rows.
    Rejected,
}

/// The reply to an entry that is in a log, or on its way there.
#[must_use = "the reply is given once"]
pub enum PendingReply {
    /// A replica in this process gives it.
    Here(Receiver<Result<ApplyReply>>),
    /// The owner in another process has it. Called with the offset of the record.
    There(Box<dyn FnOnce(Offset) -> Result<ApplyReply> + Send>),
}

impl PendingReply {
    /// Waits for the reply to the record at `offset`.
    ///
    /// Errors: the entry could not be applied; `Unavailable` when the partition stops before.
    pub fn wait(self, offset: Offset) -> Result<ApplyReply> {
        match self {
            Self::Here(receiver) => receiver
                .recv()
                .unwrap_or_else(|_| Err(Error::unavailable("the engine stopped before it answered"))),
            Self::There(ask) => ask(offset),
        }
    }
}

impl PartitionClient for Partition {
    fn append(&self, entry: Entry, durability: Durability) -> Result<(Ticket, PendingReply)> {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        let ticket = self.host.append(self.id, entry, durability, Some(sender))?;
        Ok((ticket, PendingReply::Here(receiver)))
    }

    fn part_outcome(&self, id: TransactionId) -> Result<PendingReply> {
        let mut replies = self.host.part_replies.expect(id, &[self.id]);
        let reply = replies.pop().ok_or_else(|| Error::internal("a part has no reply"))?;
        Ok(PendingReply::Here(reply))
    }

    fn wait_applied(&self, end: Offset) -> Result<()> {
        Self::wait_applied(self, end)
    }

    fn catch_up(&self) -> Result<()> {
        Self::catch_up(self)
    }

    fn waits_for_store(&self) -> Result<Option<String>> {
        Ok(Self::waits_for_store(self))
    }

    fn progress(&self) -> Result<PartitionProgress> {
        Ok(Self::progress(self))
    }

    fn definitions(&self) -> Result<StoreSnapshot> {
        Ok(self.with_view(|view| view.documents.clone()))
    }

    fn documents(&self, end: Offset) -> Result<DocumentsPart> {
        Self::wait_applied(self, end)?;
        Ok(self.with_view(DocumentsPart::of))
    }

    fn find_document(
        &self,
        collection: &str,
        id: &Value<'_>,
        end: Offset,
    ) -> Result<Option<(Option<DocBytes>, PlaceOfId)>> {
        Self::wait_applied(self, end)?;
        Ok(self.with_view(|view| {
            let collection = view.documents.collection(collection)?;
            Some(find_by_id(collection, id))
        }))
    }

    fn session_outcome(&self, session: &SessionWrite) -> Result<Option<CommandOutcome>> {
        Ok(self.with_view(|view| view.sessions.outcome(session).map(Option::<&_>::cloned))?)
    }

    fn changes(&self, after: (Offset, u32), cursor: Option<ChangeCursor>) -> Result<ChangesPart> {
        let (next, end) = self.with_view(|view| (view.next, view.changes_end));
        let changes = self.host.changes.of(self.id).ok_or_else(not_kept)?;
        let cursor = match cursor.filter(|cursor| changes.has_made(cursor)) {
            Some(cursor) => cursor,
            None => changes.cursor_after(after)?,
        };
        Ok(ChangesPart { next, read: changes.read_from(cursor, end, READ_BYTES)? })
    }

    fn change_place(&self, (offset, at): (Offset, u32)) -> Result<(Offset, u32)> {
        self.host.changes.of(self.id).ok_or_else(not_kept)?.place_of_change(offset, at)
    }

    fn changes_at(&self, time: Timestamp) -> Result<(Offset, u32)> {
        let next = self.with_view(|view| view.next);
        let changes = self.host.changes.of(self.id).ok_or_else(not_kept)?;
        Ok(changes.place_of(changes.first_at(time)?)?.unwrap_or((next, 0)))
    }

    fn tail_rows(&self, table: &TableName, missing: MissingTail) -> Result<Option<Vec<RecordBatch>>> {
        let tables = &self.app.tables;
        let table = match table {
            TableName::Rejected => tables.rejected(),
            TableName::Stream(name) => {
                tables.by_name(name).ok_or_else(|| Error::not_found(format!("no table `{name}`")))?
            }
        };
        table.tail_rows(self.id, missing.after, missing.next)
    }

    fn counters(&self) -> Result<(Counters, QueryCountsByFile)> {
        Ok(self.counters.copy())
    }

    fn find_in_unit(&self, unit: &UnitName, query: &str) -> Result<Vec<Column>> {
        let unit = self.app.deployment.queries.unit(unit)?;
        let state = self.read_state()?;
        Ok(without_waiting(|| state.read_queries(|flow| flow.on_demand(unit, query)))?.columns)
    }

    fn explain_event(&self, selector: &Selector, rule: Option<&str>) -> Result<Option<Explanation>> {
        match self.read_state()?.trace.explain(&self.app.deployment.program, selector, rule) {
            Ok(explanation) => Ok(Some(explanation)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    fn explain_query(&self, unit: &UnitName, query: &str, key: Option<&str>) -> Result<Option<QueryReport>> {
        let unit = self.app.deployment.queries.unit(unit)?;
        self.read_state()?.read_queries(|flow| flow.why(unit, query, key)).transpose()
    }
}
