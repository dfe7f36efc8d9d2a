//! Calls between nodes about partitions, and their payloads: a head in JSON, and a body of bytes.
//!
//! ```text
//! u32 length of the head, little-endian │ head │ body
//! ```

use std::collections::BTreeMap;

use arrow_array::RecordBatch;
use arrow_schema::{Field, Schema, SchemaRef};
use bytes::Bytes;
use num_enum::TryFromPrimitive;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use tidemill_docs::{CommandOutcome, DocBytes, Sequence};
use tidemill_flow::{Column, FieldType, arrow};
use tidemill_rules::why::Selector;
use tidemill_types::ipc::{BatchEncoder, decode_batch};
use tidemill_types::{Error, EventId, Offset, PartitionId, Result};
use tidemill_zones::MissingTail;

use crate::apply::ApplyReply;
use crate::changes::{ChangeCursor, ChangePayload, ChangesPart, ReadChanges};
use crate::commit::{SessionWrite, SharedCommits};
use crate::deployment::Deployment;
use crate::document_parts::place::PlaceOfId;
use crate::partition::TableName;
use crate::queries::UnitName;

/// Bytes of documents, or of rows, that are sent at once.
pub const CHUNK_BYTES: usize = 256 << 10;

/// Kind of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, TryFromPrimitive)]
#[repr(u16)]
pub enum CallKind {
    /// Waits until records are applied.
    WaitApplied = 1,
    /// Waits until all records of the log are applied.
    CatchUp = 2,
    /// Asks for the store that the owner waits for.
    WaitsForStore = 3,
    /// Asks for counts and positions.
    Progress = 4,
    /// Asks for the collections.
    Definitions = 5,
    /// Keeps a moment of the documents.
    Keep = 6,
    /// Streams documents of a kept moment.
    Fetch = 7,
    /// Counts documents of a kept moment.
    Count = 8,
    /// Asks for the document with an `_id`.
    FindDocument = 9,
    /// Asks for the outcome of a statement of a session.
    Session = 10,
    /// Asks for the outcome of a record.
    Outcome = 11,
    /// Asks for the vote on a transaction.
    Vote = 12,
    /// Asks which emissions of another partition have arrived.
    Arrived = 13,
    /// Streams rows that are in no file.
    TailRows = 14,
    /// Asks for the counters of rules and queries.
    Counters = 15,
    /// Runs an on-demand query.
    FindInUnit = 16,
    /// Explains an event.
    ExplainEvent = 17,
    /// Explains a query.
    ExplainQuery = 18,
    /// Asks for changes of documents.
    Changes = 19,
    /// Asks where the changes of a time begin.
    ChangesAt = 20,
    /// Asks where a change of the data directory is that the cluster was made from.
    ChangePlace = 21,
    /// Has the node execute a part of a statement, and streams its rows.
    Fragment = 22,
}

/// Encodes a payload.
///
/// Errors: `Internal` for a head that JSON does not have.
pub fn encode(head: &impl Serialize, body: &[u8]) -> Result<Bytes> {
    let head =
        serde_json::to_vec(head).map_err(|e| Error::internal("a call cannot be encoded").with_source(e))?;
    let mut out = Vec::with_capacity(4 + head.len() + body.len());
    out.extend((head.len() as u32).to_le_bytes());
    out.extend(head);
    out.extend(body);
    Ok(out.into())
}

/// Decodes a payload. The body is cut out of it without a copy.
///
/// Errors: `Invalid` for other bytes, as of another version.
pub fn decode<H: DeserializeOwned>(payload: &Bytes) -> Result<(H, Bytes)> {
    let other = |reason: String| Error::invalid(format!("a payload of another version: {reason}"));
    let length = payload.first_chunk().map(|length| u32::from_le_bytes(*length) as usize);
    let length = length.ok_or_else(|| other("it has no length".into()))?;
    let end = length.checked_add(4).filter(|end| *end <= payload.len());
    let end = end.ok_or_else(|| other(format!("its head of {length} bytes is cut off")))?;
    let head = serde_json::from_slice(&payload[4..end]).map_err(|e| other(e.to_string()))?;
    Ok((head, payload.slice(end..)))
}

/// Documents that are asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FetchHead {
    /// Number of the kept moment.
    pub moment: u64,
    /// Collection.
    pub collection: String,
    /// At most as many; all if `None`.
    pub limit: Option<u64>,
    /// True if they are found as a write finds them.
    pub for_write: bool,
    /// Lengths of the documents in the body: filter, its collation, sort, its collation; 0 for those that are missing.
    pub lengths: [usize; 4],
}

/// A kept moment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct KeptHead {
    /// Its number.
    pub moment: u64,
    /// Offset after the last record that made the documents.
    pub next: Offset,
    /// The last transactions that the partition has committed together with others.
    pub shared_commits: SharedCommits,
}

/// A document that was looked up: where it may be, if it is not in the body.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct FoundHead {
    /// True if it is in the body.
    pub found: bool,
    /// Place of the documents of the collection.
    pub place: PlaceOfId,
}

/// Rows that are asked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TailHead {
    /// The table.
    pub table: TableName,
    /// Last offset whose rows are in the files.
    pub after: Option<Offset>,
    /// Offset of the first record that is not wanted.
    pub next: Option<Offset>,
}

impl TailHead {
    /// Returns the rows of `partition` that are asked for.
    pub fn missing(&self, partition: PartitionId) -> MissingTail {
        MissingTail { partition, after: self.after, next: self.next }
    }
}

/// An event to explain, see [`Selector`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExplainEventHead {
    id: Option<String>,
    stream: Option<String>,
    fields: Vec<(String, Json)>,
    /// Name of the rule; all if `None`.
    pub rule: Option<String>,
}

impl ExplainEventHead {
    /// Returns the head for a selector.
    pub fn new(selector: &Selector, rule: Option<&str>) -> Self {
        let rule = rule.map(str::to_owned);
        match selector.clone() {
            Selector::Id(id) => Self { id: Some(id.to_string()), stream: None, fields: Vec::new(), rule },
            Selector::Fields { stream, fields } => Self { id: None, stream, fields, rule },
        }
    }

    /// Returns the selector.
    ///
    /// Errors: `Invalid` for a malformed id.
    pub fn selector(&self) -> Result<Selector> {
        Ok(match &self.id {
            Some(id) => Selector::Id(id.parse()?),
            None => Selector::Fields { stream: self.stream.clone(), fields: self.fields.clone() },
        })
    }
}

/// A query of a unit.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct QueryHead {
    /// The unit.
    pub unit: UnitName,
    /// Name or text of the query.
    pub query: String,
    /// Key of `partition with`.
    pub key: Option<String>,
}

impl QueryHead {
    /// Returns the head for a query of a unit.
    pub fn new(unit: &UnitName, query: &str, key: Option<&str>) -> Self {
        Self { unit: unit.clone(), query: query.to_owned(), key: key.map(str::to_owned) }
    }
}

/// A statement of a session; its id is the body.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct SessionHead {
    number: i64,
    statement: i32,
}

impl SessionHead {
    /// Returns the payload for a statement.
    ///
    /// Errors: those of [`encode`].
    pub fn encode(session: &SessionWrite) -> Result<Bytes> {
        encode(&Self { number: session.number, statement: session.statement }, &session.session)
    }

    /// Decodes what [`Self::encode`] encoded.
    ///
    /// Errors: those of [`decode`].
    pub fn decode(payload: &Bytes) -> Result<SessionWrite> {
        let (Self { number, statement }, session) = decode(payload)?;
        Ok(SessionWrite { session, number, statement })
    }
}

/// Effects of a record. Its outcome and the events that were emitted are the body.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ReplyHead {
    stored: Vec<String>,
    duplicates: u64,
    rule_errors: Vec<String>,
    /// Bytes of the outcome; 0 without one.
    outcome: usize,
    /// Streams of emitted events, with the bytes of message and data of each batch.
    emitted: Vec<(String, usize, usize)>,
}

/// Encodes the reply to a record.
///
/// Errors: `Internal` for events that Arrow cannot encode.
pub fn encode_reply(reply: &ApplyReply) -> Result<Bytes> {
    let outcome = reply.outcome.as_ref().map(CommandOutcome::to_bytes).unwrap_or_default();
    let mut head = ReplyHead {
        stored: reply.stored.iter().map(EventId::to_string).collect(),
        duplicates: reply.duplicates,
        rule_errors: reply.rule_errors.clone(),
        outcome: outcome.len(),
        emitted: Vec::new(),
    };
    let mut body = outcome;
    let mut encoder = BatchEncoder::default();
    for (stream, batch) in &reply.emitted {
        let encoded = encoder.encode(batch)?;
        head.emitted.push((stream.name.clone(), encoded.message.len(), encoded.data.len()));
        body.extend(encoded.message);
        body.extend(encoded.data);
    }
    encode(&head, &body)
}

/// Decodes what [`encode_reply`] encoded. `deployment` has the streams of emitted events.
///
/// Errors: `Invalid` for other bytes.
pub fn decode_reply(payload: &Bytes, deployment: &Deployment) -> Result<ApplyReply> {
    let (head, mut body) = decode::<ReplyHead>(payload)?;
    let stored = head.stored.iter().map(|id| id.parse()).collect::<Result<_>>()?;
    let outcome = take(&mut body, head.outcome)?;
    let outcome = match outcome.is_empty() {
        true => None,
        false => Some(
            CommandOutcome::from_bytes(&outcome)
                .ok_or_else(|| Error::invalid("an outcome cannot be read"))?,
        ),
    };
    let mut emitted = Vec::with_capacity(head.emitted.len());
    for (stream, message, data) in head.emitted {
        let stream = deployment.stream(&stream)?.clone();
        let (message, data) = (take(&mut body, message)?, take(&mut body, data)?);
        let batch = decode_batch(&message, data, stream.batch_schema())?;
        emitted.push((stream, batch));
    }
    let ReplyHead { duplicates, rule_errors, .. } = head;
    Ok(ApplyReply { stored, duplicates, emitted, rule_errors, outcome })
}

/// Cuts bytes off the front of a body.
///
/// Errors: `Invalid` for a body that has fewer.
pub fn take(body: &mut Bytes, length: usize) -> Result<Bytes> {
    match length <= body.len() {
        true => Ok(body.split_to(length)),
        false => Err(Error::invalid(format!("a payload lacks {} bytes", length - body.len()))),
    }
}

/// Appends a document to a chunk.
pub fn put_document(chunk: &mut Vec<u8>, sequence: Sequence, document: &[u8]) {
    chunk.extend(sequence.number().to_le_bytes());
    chunk.extend(document);
}

/// Reads the documents of a chunk.
///
/// Errors: `Invalid` for other bytes.
pub fn read_documents(mut chunk: Bytes, documents: &mut Vec<(Sequence, DocBytes)>) -> Result<()> {
    while !chunk.is_empty() {
        let number = take(&mut chunk, 8)?;
        let number = number.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let length = chunk.first_chunk().map_or(0, |length| u32::from_le_bytes(*length) as usize);
        // a document begins with its length
        documents.push((Sequence::from_number(number), take(&mut chunk, length.max(5))?));
    }
    Ok(())
}

/// Encodes a batch of rows whose schema the caller knows.
///
/// Errors: `Internal` for rows that Arrow cannot encode.
pub fn encode_rows(encoder: &mut BatchEncoder, batch: &RecordBatch) -> Result<Bytes> {
    let encoded = encoder.encode(batch)?;
    encode(&encoded.message.len(), &[&encoded.message[..], &encoded.data[..]].concat())
}

/// Decodes what [`encode_rows`] encoded.
///
/// Errors: `Invalid` or `Corrupt` for other bytes.
pub fn decode_rows(payload: &Bytes, schema: SchemaRef) -> Result<RecordBatch> {
    let (length, mut body) = decode::<usize>(payload)?;
    let message = take(&mut body, length)?;
    decode_batch(&message, body, schema)
}

/// Encodes columns of queries.
///
/// Errors: `LimitReached` if the strings of a column exceed 2 GiB.
pub fn encode_columns(columns: Vec<Column>) -> Result<Bytes> {
    let types: Vec<FieldType> = columns.iter().map(Column::ty).collect();
    if columns.is_empty() {
        return encode(&(types, 0), &[]);
    }
    let arrays = columns.into_iter().zip(&types).map(|(column, ty)| arrow::array(column, *ty));
    let arrays = arrays.collect::<Result<Vec<_>>>()?;
    let batch = RecordBatch::try_new(schema_of(&types), arrays)
        .map_err(|e| Error::internal("columns of a query have several lengths").with_source(e))?;
    let encoded = BatchEncoder::default().encode(&batch)?;
    encode(&(types, encoded.message.len()), &[&encoded.message[..], &encoded.data[..]].concat())
}

/// Decodes what [`encode_columns`] encoded.
///
/// Errors: `Invalid` or `Corrupt` for other bytes.
pub fn decode_columns(payload: &Bytes) -> Result<Vec<Column>> {
    let (head, mut body) = decode::<(Vec<FieldType>, usize)>(payload)?;
    let (types, length) = head;
    if types.is_empty() {
        return Ok(Vec::new());
    }
    let message = take(&mut body, length)?;
    let batch = decode_batch(&message, body, schema_of(&types))?;
    batch.columns().iter().zip(&types).map(|(array, ty)| arrow::column(array.clone(), *ty)).collect()
}

fn schema_of(types: &[FieldType]) -> SchemaRef {
    let field = |(at, ty): (usize, &FieldType)| Field::new(format!("c{at}"), ty.arrow(), true);
    Schema::new(types.iter().enumerate().map(field).collect::<Vec<_>>()).into()
}

/// Changes of documents: what [`ChangesPart`] has, with the payloads as offset, number of the first change, and bytes in the body.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ChangesHead {
    next: Offset,
    cursor: ChangeCursor,
    is_all: bool,
    payloads: Vec<(Offset, u32, usize)>,
}

/// Encodes changes of documents.
///
/// Errors: those of [`encode`].
pub fn encode_changes(part: &ChangesPart) -> Result<Bytes> {
    let ChangesPart { next, read } = part;
    let lengths = read.payloads.iter().map(|one| (one.offset, one.first, one.payload.len()));
    let head =
        ChangesHead { next: *next, cursor: read.cursor, is_all: read.is_all, payloads: lengths.collect() };
    let body: Vec<&[u8]> = read.payloads.iter().map(|one| &*one.payload).collect();
    encode(&head, &body.concat())
}

/// Decodes what [`encode_changes`] encoded.
///
/// Errors: `Invalid` for other bytes.
pub fn decode_changes(payload: &Bytes) -> Result<ChangesPart> {
    let (ChangesHead { next, cursor, is_all, payloads }, mut body) = decode(payload)?;
    let payloads = payloads.into_iter().map(|(offset, first, length)| {
        Ok(ChangePayload { offset, first, payload: take(&mut body, length)? })
    });
    Ok(ChangesPart { next, read: ReadChanges { payloads: payloads.collect::<Result<_>>()?, cursor, is_all } })
}

/// For each kind of arrival and each partition, the last of its records whose emissions have arrived.
pub type ArrivedHead = BTreeMap<u8, BTreeMap<u32, Offset>>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payloads_round_trip_and_others_are_refused() {
        let payload = encode(&("a", 7), b"body").unwrap();
        assert_eq!(decode::<(String, u8)>(&payload).unwrap(), (("a".to_owned(), 7), Bytes::from("body")));
        for cut in 0..payload.len() - 4 {
            assert!(decode::<(String, u8)>(&payload.slice(..cut)).is_err(), "{cut}");
        }
        assert!(decode::<u8>(&payload).is_err());
    }

    #[test]
    fn chunks_of_documents_round_trip() {
        let document = |n: i32| DocBytes::from(bson::rawdoc! { "_id": n }.into_bytes());
        let documents: Vec<_> = (0..9).map(|n| (Sequence::from_number(n as u64), document(n))).collect();
        let mut chunk = Vec::new();
        documents.iter().for_each(|(sequence, document)| put_document(&mut chunk, *sequence, document));
        let chunk = Bytes::from(chunk);
        let mut read = Vec::new();
        read_documents(chunk.clone(), &mut read).unwrap();
        assert_eq!(read, documents);
        assert!(read_documents(chunk.slice(..chunk.len() - 1), &mut read).is_err());
    }

    #[test]
    fn kinds_have_numbers_of_their_own() {
        for number in 1..=CallKind::ChangePlace as u16 {
            assert_eq!(CallKind::try_from(number).map(|kind| kind as u16), Ok(number));
        }
        assert!(CallKind::try_from(0).is_err() && CallKind::try_from(99).is_err());
    }
}
