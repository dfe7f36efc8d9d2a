//! Encoding of log records.
//!
//! Format (all integers little-endian): one byte for the kind, then its fields; strings and blobs are a `u32`
//! length and the bytes. Batches are Arrow IPC record batch messages without their schema, which the deployed
//! app has. Described in `docs/formats/entries.md`.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_buffer::BooleanBuffer;
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use bson::oid::ObjectId;
use bytes::Bytes;
use tidemill_types::ipc::{BatchEncoder, decode_batch};
use tidemill_types::{Error, Offset, PartitionId, Result, StreamSchema};

use crate::commit::{SessionWrite, TransactionPart};

const EVENTS: u8 = 1;
const COMMAND: u8 = 2;
const PUT: u8 = 3;
const TICK: u8 = 4;
const FORWARDED: u8 = 5;
const ON_DEMAND: u8 = 6;
const TRANSACTION: u8 = 7;
const SESSION_COMMAND: u8 = 8;
const COLLECT_CHANGES: u8 = 9;
const REDELIVER: u8 = 10;
const ORDERED_INSERT: u8 = 11;
const RERUN: u8 = 12;
const CLAIM_SOURCES: u8 = 13;
const DELIVERED: u8 = 14;
const ORDER_TRANSACTION: u8 = 15;
const ORDERED_TRANSACTION: u8 = 16;

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
    /// True if the events are already stored in that partition and arrive only for the queries of this one.
    pub forwarded: bool,
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

/// Encoder of entries; reuses scratch space between calls.
#[derive(Default)]
pub struct Encoder {
    batches: BatchEncoder,
}

impl Encoder {
    /// Encodes the entry.
    pub fn encode(&mut self, entry: &Entry) -> Result<Vec<u8>> {
        let mut out = Vec::with_capacity(256);
        match entry {
            Entry::Events(events) => self.events(events, &mut out)?,
            Entry::Rerun(events) => {
                out.push(RERUN);
                self.events(events, &mut out)?;
            }
            Entry::Command(command) => {
                out.push(COMMAND);
                write_bytes(&mut out, command);
            }
            Entry::LoadDocuments { source, collection, documents } => {
                out.push(PUT);
                write_source(&mut out, source.as_ref());
                write_bytes(&mut out, collection.as_bytes());
                write_bytes(&mut out, documents);
            }
            Entry::Tick { jumps } => {
                out.push(TICK);
                write_u32(&mut out, jumps.len());
                for (file, to) in jumps {
                    write_bytes(&mut out, file.as_bytes());
                    out.extend(to.to_le_bytes());
                }
            }
            Entry::OnDemand { file, text } => {
                out.push(ON_DEMAND);
                write_bytes(&mut out, file.as_bytes());
                write_bytes(&mut out, text.as_bytes());
            }
            Entry::SessionCommand { session, command } => {
                out.push(SESSION_COMMAND);
                write_session(&mut out, session);
                write_bytes(&mut out, command);
            }
            Entry::CollectChanges => out.push(COLLECT_CHANGES),
            Entry::Transaction(part) => {
                if let Some((partition, offset)) = part.cause {
                    out.push(ORDERED_TRANSACTION);
                    out.extend(partition.0.to_le_bytes());
                    out.extend(offset.0.to_le_bytes());
                }
                write_part(&mut out, part);
            }
            Entry::OrderTransaction(parts) => {
                out.push(ORDER_TRANSACTION);
                write_u32(&mut out, parts.len());
                parts.iter().for_each(|part| write_part(&mut out, part));
            }
            Entry::Redeliver { ids } => {
                out.push(REDELIVER);
                write_u32(&mut out, ids.len());
                ids.iter().for_each(|id| write_bytes(&mut out, id.as_bytes()));
            }
            Entry::ClaimSources { epoch } => {
                out.push(CLAIM_SOURCES);
                out.extend(epoch.to_le_bytes());
            }
            Entry::Delivered { sink, last: (offset, row) } => {
                out.push(DELIVERED);
                write_bytes(&mut out, sink.as_bytes());
                out.extend(offset.0.to_le_bytes());
                out.extend(row.to_le_bytes());
            }
        }
        Ok(out)
    }

    fn events(&mut self, events: &Events, out: &mut Vec<u8>) -> Result<()> {
        out.push(if events.forwarded { FORWARDED } else { EVENTS });
        write_source(out, events.source.as_ref());
        match events.provenance {
            Some((partition, offset)) => {
                out.push(1);
                out.extend(partition.0.to_le_bytes());
                out.extend(offset.0.to_le_bytes());
            }
            None => out.push(0),
        }
        write_u32(out, events.parts.len());
        for (stream, batch) in &events.parts {
            write_bytes(out, stream.name.as_bytes());
            self.batch(batch, out)?;
        }
        match &events.order {
            Some(order) => {
                write_u32(out, order.len());
                out.extend(order.iter().flat_map(|part| part.to_le_bytes()));
            }
            None => write_u32(out, 0),
        }
        write_u32(out, events.rejected.len());
        for row in &events.rejected {
            for text in [&row.stream, &row.kind, &row.reason, &row.raw, &row.origin] {
                write_bytes(out, text.as_bytes());
            }
        }
        Ok(())
    }

    fn batch(&mut self, batch: &RecordBatch, out: &mut Vec<u8>) -> Result<()> {
        let encoded = self.batches.encode(batch)?;
        write_bytes(out, &encoded.message);
        write_bytes(out, &encoded.data);
        Ok(())
    }
}

/// Returns the provenance of an entry without decoding its batches: partition, offset of the record that
/// emitted it, and its kind. `None` for entries that no partition emitted.
///
/// Errors: `Corrupt` when the bytes are not an entry.
pub fn provenance(payload: &Bytes) -> Result<Option<(PartitionId, Offset, ArrivalKind)>> {
    let mut input = EntryReader { bytes: payload, at: 0 };
    let kind = match input.u8()? {
        EVENTS => ArrivalKind::Stored,
        FORWARDED => ArrivalKind::Forwarded,
        ORDERED_TRANSACTION => {
            return Ok(Some((PartitionId(input.u32()?), Offset(input.u64()?), ArrivalKind::Transaction)));
        }
        _ => return Ok(None),
    };
    input.source()?;
    Ok(input.provenance()?.map(|(part, offset)| (part, offset, kind)))
}

/// Decodes an entry. `streams` are the streams of the deployed app.
///
/// Errors: `Corrupt` when the bytes are not an entry; `Invalid` when a stream is not declared.
pub fn decode(payload: &Bytes, streams: &Streams) -> Result<Entry> {
    let mut input = EntryReader { bytes: payload, at: 0 };
    let entry = match input.u8()? {
        EVENTS => Entry::Events(input.events(streams)?),
        FORWARDED => Entry::Events(Events { forwarded: true, ..input.events(streams)? }),
        RERUN => {
            let forwarded = input.u8()? == FORWARDED;
            Entry::Rerun(Events { forwarded, ..input.events(streams)? })
        }
        TICK => Entry::Tick { jumps: input.jumps()? },
        ON_DEMAND => Entry::OnDemand { file: input.text()?, text: input.text()? },
        COMMAND => Entry::Command(input.blob()?),
        SESSION_COMMAND => Entry::SessionCommand { session: input.session()?, command: input.blob()? },
        COLLECT_CHANGES => Entry::CollectChanges,
        kind @ (TRANSACTION | ORDERED_INSERT) => Entry::Transaction(input.part(kind)?),
        ORDERED_TRANSACTION => {
            let cause = Some((PartitionId(input.u32()?), Offset(input.u64()?)));
            let kind = input.u8()?;
            Entry::Transaction(TransactionPart { cause, ..input.part(kind)? })
        }
        ORDER_TRANSACTION => {
            let count = input.count()?;
            let mut part = || {
                let kind = input.u8()?;
                input.part(kind)
            };
            let parts = (0..count).map(|_| part()).collect::<Result<Vec<_>>>()?;
            if parts.iter().any(|part| part.participants.len() != parts.len()) {
                return Err(Error::corrupt(
                    "log entry of a transaction that has not a part for each participant",
                ));
            }
            Entry::OrderTransaction(parts)
        }
        REDELIVER => Entry::Redeliver { ids: input.texts()? },
        PUT => Entry::LoadDocuments {
            source: input.source()?,
            collection: input.text()?,
            documents: input.blob()?,
        },
        CLAIM_SOURCES => Entry::ClaimSources { epoch: input.u64()? },
        DELIVERED => Entry::Delivered { sink: input.text()?, last: (Offset(input.u64()?), input.u32()?) },
        kind => return Err(Error::corrupt(format!("log entry of unknown kind {kind}"))),
    };
    if input.at != payload.len() {
        return Err(Error::corrupt(format!("log entry has {} bytes too many", payload.len() - input.at)));
    }
    Ok(entry)
}

fn write_source(out: &mut Vec<u8>, source: Option<&SourcePosition>) {
    match source {
        Some(SourcePosition { name, position, epoch }) => {
            out.push(if epoch.is_some() { 2 } else { 1 });
            write_bytes(out, name.as_bytes());
            out.extend(position.to_le_bytes());
            out.extend(epoch.iter().flat_map(|epoch| epoch.to_le_bytes()));
        }
        None => out.push(0),
    }
}

fn write_part(out: &mut Vec<u8>, part: &TransactionPart) {
    match &part.places {
        None => {
            out.push(TRANSACTION);
            write_transaction(out, part);
        }
        Some(places) => {
            out.push(ORDERED_INSERT);
            write_transaction(out, part);
            write_u32(out, places.len());
            places.iter().for_each(|place| out.extend(place.to_le_bytes()));
        }
    }
}

fn write_session(out: &mut Vec<u8>, session: &SessionWrite) {
    write_bytes(out, &session.session);
    out.extend(session.number.to_le_bytes());
    out.extend(session.statement.to_le_bytes());
}

fn write_transaction(out: &mut Vec<u8>, part: &TransactionPart) {
    out.extend(part.id.bytes());
    out.extend(part.order.to_le_bytes());
    write_u32(out, part.participants.len());
    part.participants.iter().for_each(|p| out.extend(p.0.to_le_bytes()));
    out.extend(part.since.0.to_le_bytes());
    match &part.session {
        Some(session) => {
            out.push(1);
            write_session(out, session);
        }
        None => out.push(0),
    }
    write_bytes(out, &part.writes);
}

fn write_u32(out: &mut Vec<u8>, n: usize) {
    out.extend(u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes());
}

fn write_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    write_u32(out, bytes.len());
    out.extend(bytes);
}

struct EntryReader<'a> {
    bytes: &'a Bytes,
    at: usize,
}

impl EntryReader<'_> {
    fn take(&mut self, n: usize) -> Result<std::ops::Range<usize>> {
        let end = self.at.checked_add(n).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(Error::corrupt(format!(
                "log entry ends at byte {} in the middle of a field",
                self.bytes.len()
            )));
        };
        let range = self.at..end;
        self.at = end;
        Ok(range)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let range = self.take(N)?;
        let mut array = [0; N];
        array.copy_from_slice(&self.bytes[range]);
        Ok(array)
    }

    fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// Reads a count of items that take at least a byte each, so that a damaged count cannot cause a large
    /// allocation.
    fn count(&mut self) -> Result<usize> {
        let n = self.u32()? as usize;
        if n > self.bytes.len() {
            return Err(Error::corrupt(format!("log entry counts {n} parts in {} bytes", self.bytes.len())));
        }
        Ok(n)
    }

    fn blob(&mut self) -> Result<Bytes> {
        let n = self.u32()? as usize;
        let range = self.take(n)?;
        Ok(self.bytes.slice(range))
    }

    fn text(&mut self) -> Result<String> {
        String::from_utf8(self.blob()?.to_vec())
            .map_err(|e| Error::corrupt("log entry text is not UTF-8").with_source(e))
    }

    fn texts(&mut self) -> Result<Vec<String>> {
        let n = self.count()?;
        (0..n).map(|_| self.text()).collect()
    }

    fn rejected(&mut self) -> Result<RejectedRow> {
        Ok(RejectedRow {
            stream: self.text()?,
            kind: self.text()?,
            reason: self.text()?,
            raw: self.text()?,
            origin: self.text()?,
        })
    }

    fn source(&mut self) -> Result<Option<SourcePosition>> {
        let has_epoch = match self.u8()? {
            0 => return Ok(None),
            1 => false,
            2 => true,
            other => return Err(Error::corrupt(format!("log entry with a source of unknown kind {other}"))),
        };
        let (name, position) = (self.text()?, self.u64()?);
        let epoch = if has_epoch { Some(self.u64()?) } else { None };
        Ok(Some(SourcePosition { name, position, epoch }))
    }

    fn provenance(&mut self) -> Result<Option<(PartitionId, Offset)>> {
        Ok(if self.u8()? == 1 { Some((PartitionId(self.u32()?), Offset(self.u64()?))) } else { None })
    }

    fn session(&mut self) -> Result<SessionWrite> {
        Ok(SessionWrite {
            session: self.blob()?,
            number: i64::from_le_bytes(self.array()?),
            statement: i32::from_le_bytes(self.array()?),
        })
    }

    fn part(&mut self, kind: u8) -> Result<TransactionPart> {
        let part = self.transaction()?;
        match kind {
            TRANSACTION => Ok(part),
            ORDERED_INSERT => {
                let count = self.count()?;
                let places = (0..count).map(|_| self.u32()).collect::<Result<_>>()?;
                Ok(TransactionPart { places: Some(places), ..part })
            }
            kind => {
                Err(Error::corrupt(format!("log entry with a part of a transaction of unknown kind {kind}")))
            }
        }
    }

    fn transaction(&mut self) -> Result<TransactionPart> {
        let id = ObjectId::from_bytes(self.array()?);
        let order = i64::from_le_bytes(self.array()?);
        let n = self.count()?;
        let participants = (0..n).map(|_| Ok(PartitionId(self.u32()?))).collect::<Result<_>>()?;
        let since = Offset(self.u64()?);
        let session = if self.u8()? == 1 { Some(self.session()?) } else { None };
        Ok(TransactionPart {
            id,
            order,
            participants,
            since,
            session,
            writes: self.blob()?,
            places: None,
            cause: None,
        })
    }

    fn jumps(&mut self) -> Result<Vec<(String, i64)>> {
        let n = self.count()?;
        (0..n).map(|_| Ok((self.text()?, self.array().map(i64::from_le_bytes)?))).collect()
    }

    fn events(&mut self, streams: &Streams) -> Result<Events> {
        let source = self.source()?;
        let provenance = self.provenance()?;
        let n = self.count()?;
        let mut parts = Vec::with_capacity(n);
        for _ in 0..n {
            let name = self.text()?;
            let (schema, arrow) = streams.get(&name).ok_or_else(|| {
                Error::invalid(format!(
                    "the log holds events of stream `{name}`, which the app does not declare"
                ))
            })?;
            parts.push((schema.clone(), self.batch(arrow.clone())?));
        }
        let n = self.count()?;
        let order = if n == 0 {
            None
        } else {
            Some((0..n).map(|_| self.array().map(u16::from_le_bytes)).collect::<Result<_>>()?)
        };
        let n = self.count()?;
        let rejected = (0..n).map(|_| self.rejected()).collect::<Result<_>>()?;
        let events = Events { source, provenance, forwarded: false, parts, order, rejected };
        events.check_order()?;
        Ok(events)
    }

    fn batch(&mut self, schema: SchemaRef) -> Result<RecordBatch> {
        let message = self.blob()?;
        decode_batch(&message, self.blob()?, schema).map_err(|e| e.context("log entry"))
    }
}

impl Events {
    /// Checks that the order refers to every part exactly as often as the part has rows.
    fn check_order(&self) -> Result<()> {
        let Some(order) = &self.order else { return Ok(()) };
        let mut left: Vec<usize> = self.parts.iter().map(|(_, b)| b.num_rows()).collect();
        for part in order {
            match left.get_mut(usize::from(*part)) {
                Some(n) if *n > 0 => *n -= 1,
                _ => {
                    return Err(Error::corrupt(format!(
                        "log entry orders a row that part {part} does not have"
                    )));
                }
            }
        }
        if left.iter().any(|n| *n > 0) {
            return Err(Error::corrupt("log entry has rows without a place in its order"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidemill_types::decode::BatchBuilder;
    use tidemill_types::{Field, FieldType, Timestamp};

    fn stream() -> Arc<StreamSchema> {
        let field = |name: &str, ty| Field::new(name, ty);
        Arc::new(StreamSchema {
            name: "S".into(),
            fields: vec![field("id", FieldType::String), field("n", FieldType::Long)],
            key: Some(0),
            id: vec![],
            time: None,
        })
    }

    fn events() -> Entry {
        let mut builder = BatchBuilder::new(stream());
        for i in 0..3 {
            builder
                .push_json(format!(r#"{{"id":"k{i}","n":{i},"x":true}}"#).as_bytes(), Timestamp(7))
                .unwrap();
        }
        Entry::Events(Events {
            source: Some(SourcePosition { name: "file".into(), position: 3, epoch: Some(7) }),
            provenance: Some((PartitionId(1), Offset(9))),
            forwarded: true,
            parts: vec![(stream(), builder.finish())],
            order: Some(vec![0, 0, 0]),
            rejected: vec![RejectedRow {
                stream: "S".into(),
                kind: "malformed".into(),
                reason: "r".into(),
                raw: "{".into(),
                origin: "http".into(),
            }],
        })
    }

    fn streams() -> Streams {
        HashMap::from([("S".to_owned(), (stream(), stream().batch_schema()))])
    }

    #[test]
    fn entries_round_trip() {
        let bytes = Bytes::from(Encoder::default().encode(&events()).unwrap());
        let (Entry::Events(a), Entry::Events(b)) = (events(), decode(&bytes, &streams()).unwrap()) else {
            panic!()
        };
        assert_eq!(
            (a.source, a.provenance, a.forwarded, a.order, a.rejected),
            (b.source, b.provenance, b.forwarded, b.order, b.rejected)
        );
        assert_eq!(a.parts[0].1, b.parts[0].1);
    }

    #[test]
    fn ticks_and_on_demand_queries_round_trip() {
        let round = |entry: Entry| {
            let bytes = Bytes::from(Encoder::default().encode(&entry).unwrap());
            decode(&bytes, &streams()).unwrap()
        };
        let jumps = vec![("a.siddhi".to_owned(), -5), ("b.siddhi".to_owned(), 1 << 40)];
        let Entry::Tick { jumps: back } = round(Entry::Tick { jumps: jumps.clone() }) else { panic!() };
        assert_eq!(jumps, back);
        let query = Entry::OnDemand { file: "a.siddhi".into(), text: "delete T on true".into() };
        let Entry::OnDemand { file, text } = round(query) else { panic!() };
        assert_eq!((file.as_str(), text.as_str()), ("a.siddhi", "delete T on true"));
        let again = vec!["a: S to x#0-7-0".to_owned(), String::new()];
        let Entry::Redeliver { ids } = round(Entry::Redeliver { ids: again.clone() }) else { panic!() };
        assert_eq!(again, ids);
        let Entry::ClaimSources { epoch } = round(Entry::ClaimSources { epoch: 9 }) else { panic!() };
        assert_eq!(epoch, 9);
        let last = (Offset(12), 3);
        let Entry::Delivered { sink, last: back } =
            round(Entry::Delivered { sink: "a: S to x".into(), last })
        else {
            panic!()
        };
        assert_eq!((sink.as_str(), back), ("a: S to x", last));
    }

    #[test]
    fn positions_of_sources_round_trip_with_and_without_an_epoch() {
        for epoch in [None, Some(0), Some(u64::MAX)] {
            let source = Some(SourcePosition { name: "a#0".into(), position: 5, epoch });
            let load = Entry::LoadDocuments { source, collection: "C".into(), documents: Bytes::new() };
            let bytes = Bytes::from(Encoder::default().encode(&load).unwrap());
            assert_eq!(decode(&bytes, &streams()).unwrap().source(), load.source());
        }
    }

    #[test]
    fn events_of_a_rerun_round_trip_without_duplicates() {
        let Entry::Events(mut events) = events() else { panic!() };
        for forwarded in [false, true] {
            events.forwarded = forwarded;
            let keep = vec![Some(BooleanBuffer::from(vec![true, false, true]))];
            let kept = events.kept(&keep).unwrap();
            let bytes = Bytes::from(Encoder::default().encode(&Entry::Rerun(kept)).unwrap());
            let Entry::Rerun(back) = decode(&bytes, &streams()).unwrap() else { panic!() };
            let rows = back.rows();
            assert_eq!((back.forwarded, back.provenance, back.source, rows), (forwarded, None, None, 2));
            assert_eq!((back.order, back.rejected.len()), (Some(vec![0, 0]), 0));
            assert_eq!(provenance(&bytes).unwrap(), None);
        }
    }

    #[test]
    fn transactions_round_trip() {
        let part = |places: Option<Vec<u32>>, cause| TransactionPart {
            id: ObjectId::from_bytes([7; 12]),
            order: -3,
            participants: vec![PartitionId(0), PartitionId(2)],
            since: Offset(4),
            writes: Bytes::from_static(b"w"),
            session: None,
            places,
            cause,
        };
        let cause = Some((PartitionId(0), Offset(9)));
        for entry in
            [part(None, None), part(Some(vec![1, 3]), None), part(None, cause), part(Some(vec![]), cause)]
        {
            let bytes = Bytes::from(Encoder::default().encode(&Entry::Transaction(entry.clone())).unwrap());
            let Entry::Transaction(back) = decode(&bytes, &streams()).unwrap() else { panic!() };
            assert_eq!(back, entry);
            let arrival = entry.cause.map(|(from, offset)| (from, offset, ArrivalKind::Transaction));
            assert_eq!(provenance(&bytes).unwrap(), arrival);
        }
        let parts = vec![part(None, None), part(Some(vec![5]), None)];
        let bytes = Encoder::default().encode(&Entry::OrderTransaction(parts.clone())).unwrap();
        let Entry::OrderTransaction(back) = decode(&Bytes::from(bytes.clone()), &streams()).unwrap() else {
            panic!()
        };
        assert_eq!(back, parts);
        for end in 0..bytes.len() {
            assert!(decode(&Bytes::copy_from_slice(&bytes[..end]), &streams()).is_err(), "{end} bytes");
        }
    }

    #[test]
    fn no_prefix_and_no_flipped_byte_panics() {
        let bytes = Encoder::default().encode(&events()).unwrap();
        for end in 0..bytes.len() {
            assert!(decode(&Bytes::copy_from_slice(&bytes[..end]), &streams()).is_err());
        }
        for i in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[i] ^= 0x55;
            // may still decode if only a value changed; the log's checksum detects damage
            let _ = decode(&Bytes::from(damaged), &streams());
        }
    }
}
