//! Log records: their content, and its encoding.
//!
//! Format (all integers little-endian): one byte for the kind, then its fields; strings and blobs are a `u32`
//! length and the bytes. Batches are Arrow IPC record batch messages without their schema, which the deployed
//! app has. Described in `docs/formats/entries.md`.

mod decode;
mod encode;
mod kind;

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use tidemill_types::{Error, Offset, PartitionId, Result, StreamSchema, Timestamp};

use crate::commit::{SessionWrite, TransactionPart};

pub use decode::{decode, orders_transaction, provenance};
pub use encode::EntryEncoder;

/// Position of a source after the rows of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourcePosition {
    /// Name of the source.
    pub name: String,
    /// Position from which it continues.
    pub position: u64,
    /// Epoch of the node that reads the sources, if nodes of a cluster take turns. The record counts only if no later one has claimed them
    /// before, see [`Entry::ClaimSources`].
    pub epoch: Option<u64>,
}

/// Streams of an app by name, each with the Arrow schema of its batches.
pub type Streams = HashMap<String, (Arc<StreamSchema>, SchemaRef)>;

/// Decoded log record.
#[derive(Debug, Clone)]
pub enum Entry {
    /// Events to apply.
    Events(Events),
    /// A document command, encoded by `docs::Command`.
    Command(Bytes),
    /// Documents to insert; each replaces the one with its `_id`.
    LoadDocuments {
        /// Source of the documents, and the position from which it continues after them.
        source: Option<SourcePosition>,
        /// Name of the collection.
        collection: String,
        /// Concatenated BSON documents; each begins with its length.
        documents: Bytes,
    },
    /// A timer of the queries is due although no event arrived. Apps on the machine's clock advance to the
    /// record's time.
    Tick {
        /// Files with `@app:playback`, and the times to which their clocks jump, in milliseconds.
        jumps: Vec<(String, i64)>,
    },
    /// An on-demand query that changes a table.
    OnDemand {
        /// File in which the query runs.
        file: String,
        /// Text of the query.
        text: String,
    },
    /// A document command of a client session, which is executed once although it may be sent again.
    SessionCommand {
        /// The session.
        session: SessionWrite,
        /// The command, as [`Entry::Command`] has it.
        command: Bytes,
    },
    /// From here on the changes of documents are kept for those who follow them.
    CollectChanges,
    /// The writes of a transaction to the documents of this partition, or its part of an ordered insert.
    Transaction(TransactionPart),
    /// The parts of a transaction of several partitions, which this partition emits into their logs in the order of its own.
    OrderTransaction(Vec<TransactionPart>),
    /// Events that sinks could not deliver go to their sinks again.
    Redeliver {
        /// Ids of their documents in this partition, see [`crate::sinks::undelivered_event::UndeliveredEvent`].
        ids: Vec<String>,
    },
    /// Events of a record that was set aside: rules and queries run on them. They are stored already.
    Rerun(Events),
    /// A node reads the sources from now on. Later records of former readers do not count: this node reads their rows again.
    ClaimSources {
        /// Epoch of the node, above those of former readers.
        epoch: u64,
    },
    /// The other side of a sink has the events of this partition up to one, so that standbys need not keep them.
    Delivered {
        /// Name of the sink.
        sink: String,
        /// Offset and row of the event.
        last: (Offset, u32),
    },
}

impl Entry {
    /// Returns the source of the entry, and its position.
    pub fn source(&self) -> Option<&SourcePosition> {
        match self {
            Self::Events(events) => events.source.as_ref(),
            Self::LoadDocuments { source, .. } => source.as_ref(),
            _ => None,
        }
    }

    /// Returns whether a node that has appended the entry may ask the owner of the partition for its outcome.
    pub fn has_outcome(&self) -> bool {
        match self {
            Self::Events(events) => events.answered,
            Self::Command(_)
            | Self::SessionCommand { .. }
            | Self::Transaction(_)
            | Self::OnDemand { .. }
            | Self::CollectChanges
            | Self::Redeliver { .. }
            | Self::Rerun(_)
            | Self::ClaimSources { .. } => true,
            Self::LoadDocuments { .. }
            | Self::Tick { .. }
            | Self::OrderTransaction(_)
            | Self::Delivered { .. } => false,
        }
    }

    /// Returns the kind, as reports name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Events(Events { forwarded: true, .. }) => "forwarded events",
            Self::Events(Events { provenance: Some(_), .. }) => "events of another partition",
            Self::Events(_) => "events",
            Self::Command(_) => "command",
            Self::LoadDocuments { .. } => "documents of a source",
            Self::Tick { .. } => "tick",
            Self::OnDemand { .. } => "on-demand query",
            Self::SessionCommand { .. } => "command of a session",
            Self::CollectChanges => "begin of the history of changes",
            Self::Transaction(_) => "transaction",
            Self::OrderTransaction(_) => "transaction to be ordered",
            Self::Redeliver { .. } => "redelivery",
            Self::Rerun(_) => "rerun",
            Self::ClaimSources { .. } => "claim of the sources",
            Self::Delivered { .. } => "progress of a sink",
        }
    }
}

/// Events of one or several streams, in order of arrival.
#[derive(Debug, Clone, Default)]
pub struct Events {
    /// Source of the events, and the position from which it continues after them.
    pub source: Option<SourcePosition>,
    /// For events emitted in another partition: that partition and the offset of the record that caused them.
    pub provenance: Option<(PartitionId, Offset)>,
    /// True if the node that has appended them asks the owner of the partition for the outcome.
    pub answered: bool,
    /// True if the events are already stored in that partition and arrive only for the queries of this one.
    pub forwarded: bool,
    /// Number of events that led to each other and to these in the partition that forwards them, at most; 0 for those that came from
    /// outside, and in directories whose files have no homes.
    pub depth: u8,
    /// Stream and rows of each part.
    pub parts: Vec<(Arc<StreamSchema>, RecordBatch)>,
    /// For each event in order of arrival, the index of its part; `None` if the parts follow one another.
    pub order: Option<Vec<u16>>,
    /// Rows rejected during decoding.
    pub rejected: Vec<RejectedRow>,
}

impl Events {
    /// Returns the rows that `keep` has, by part, without where they came from.
    ///
    /// Errors: `Internal` when `keep` does not fit.
    pub fn kept(&self, keep: &[Option<BooleanBuffer>]) -> Result<Self> {
        let mut parts = Vec::with_capacity(self.parts.len());
        for (part, (stream, batch)) in self.parts.iter().enumerate() {
            let batch = match keep.get(part).and_then(Option::as_ref) {
                Some(keep) => filter_record_batch(batch, &BooleanArray::new(keep.clone(), None))
                    .map_err(|e| Error::internal("events cannot be filtered").with_source(e))?,
                None => batch.clone(),
            };
            parts.push((stream.clone(), batch));
        }
        let mut next = vec![0; self.parts.len()];
        let is_kept = |part: &u16| {
            let part = usize::from(*part);
            next[part] += 1;
            keep.get(part).and_then(Option::as_ref).is_none_or(|keep| keep.value(next[part] - 1))
        };
        let order = self.order.as_ref().map(|order| order.iter().copied().filter(is_kept).collect());
        Ok(Self { forwarded: self.forwarded, parts, order, ..Self::default() })
    }

    /// Returns the number of rows of all parts.
    pub fn rows(&self) -> usize {
        self.parts.iter().map(|(_, batch)| batch.num_rows()).sum()
    }
}

/// Kinds of what comes from other partitions. Of each, a partition takes what follows from one record of another partition once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArrivalKind {
    /// Events that are stored in this partition.
    Stored,
    /// Events that are stored in the other partition, for queries of this one.
    Forwarded,
    /// Parts of transactions.
    Transaction,
}

impl ArrivalKind {
    /// All kinds.
    pub const ALL: [Self; 3] = [Self::Stored, Self::Forwarded, Self::Transaction];
}

/// An entry for the log of another partition: events, or a part of a transaction. It names the record that it follows from.
#[derive(Debug, Clone)]
pub struct Emission {
    /// Partition that the entry belongs to.
    pub target: PartitionId,
    /// The entry.
    pub entry: Entry,
}

impl Emission {
    /// Returns the offset of the record that emitted the entry.
    pub fn cause(&self) -> Offset {
        let cause = match &self.entry {
            Entry::Events(events) => events.provenance,
            Entry::Transaction(part) => part.cause,
            _ => None,
        };
        cause.map_or(Offset(0), |(_, offset)| offset)
    }

    /// Returns the kind, as the target counts it.
    pub fn kind(&self) -> ArrivalKind {
        match &self.entry {
            Entry::Transaction(_) => ArrivalKind::Transaction,
            Entry::Events(Events { forwarded: true, .. }) => ArrivalKind::Forwarded,
            _ => ArrivalKind::Stored,
        }
    }

    /// Returns the memory that the entry occupies, in bytes.
    pub fn bytes(&self) -> usize {
        match &self.entry {
            Entry::Events(events) => {
                events.parts.iter().map(|(_, batch)| batch.get_array_memory_size()).sum()
            }
            Entry::Transaction(part) => part.writes.len(),
            _ => 0,
        }
    }

    /// Returns the number of events.
    pub fn rows(&self) -> usize {
        match &self.entry {
            Entry::Events(events) => events.rows(),
            _ => 0,
        }
    }
}

/// Returns the parts of a transaction as the partition emits them that orders it by the record `cause`.
pub fn ordered_parts(parts: Vec<TransactionPart>, order: i64, cause: (PartitionId, Offset)) -> Vec<Emission> {
    let participants = parts.first().map(|part| part.participants.clone()).unwrap_or_default();
    let emission = |(part, target)| {
        let part = TransactionPart { order, cause: Some(cause), ..part };
        Emission { target, entry: Entry::Transaction(part) }
    };
    parts.into_iter().zip(participants).map(emission).collect()
}

/// Returns the order of a transaction whose record has this time, behind one with the order `last`.
pub fn next_order(last: i64, time: Timestamp) -> i64 {
    time.0.max(last.saturating_add(1))
}

/// Kind of events that a sink could not deliver because the other side refused them.
pub const UNDELIVERED: &str = "undelivered";

/// Rejected row, with everything needed to send it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RejectedRow {
    /// Stream to which the row was sent.
    pub stream: String,
    /// Category of the reason: `malformed`, `duplicate`, [`UNDELIVERED`].
    pub kind: String,
    /// Reason, for people.
    pub reason: String,
    /// Row as received (cut at 64 KiB).
    pub raw: String,
    /// Origin: `http`, or the source's name and position.
    pub origin: String,
}

#[cfg(test)]
mod tests;
