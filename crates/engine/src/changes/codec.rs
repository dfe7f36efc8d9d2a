//! Encoding of changes (`docs/formats/changes.md`).

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::cstr;
use bson::raw::{RawArray, RawArrayBuf, RawDocument, RawDocumentBuf};
use bytes::Bytes;
use tidemill_docs::{ChangeKind, DocBytes, DocumentChange, UpdateDescription};
use tidemill_types::{Error, Offset, Result, Timestamp};

/// Bytes before the changes of a record: offset and time of the record that made them.
const HEAD_BYTES: usize = 16;

/// A change of a document as followers see it.
#[derive(Debug, Clone)]
pub struct ChangeEvent {
    /// Kind of the change.
    pub kind: ChangeKind,
    /// Name of the collection in the store.
    pub collection: String,
    /// `{ _id: … }` of the document; `None` for a change of the whole collection.
    pub id: Option<DocBytes>,
    /// The new version of an inserted or replaced document, and of an updated one if the collection keeps images; the description of a
    /// change of the whole collection.
    pub document: Option<DocBytes>,
    /// Description of an update, as [`UpdateDescription::to_document`] returns it.
    pub update: Option<DocBytes>,
    /// The version before, if the collection keeps images.
    pub before: Option<DocBytes>,
    /// Time of the record that made the change.
    pub time: Timestamp,
    /// Offset of that record in the log of its partition.
    pub source: Offset,
    /// The records of other partitions that made changes together with this one.
    pub group: Option<Arc<ChangeGroup>>,
    /// Place among the changes of the group.
    pub place: u32,
}

/// Records of several partitions that made changes together: a transaction, or an ordered insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeGroup {
    /// Offset of the record of each partition, by its number.
    pub offsets: BTreeMap<u32, Offset>,
}

impl ChangeEvent {
    /// Returns the bytes of its documents.
    pub fn bytes(&self) -> usize {
        [&self.document, &self.update, &self.before]
            .into_iter()
            .flatten()
            .map(|document| document.len())
            .sum()
    }
}

/// Encodes changes into payloads of about `bytes_max`. `images` says whether to keep both versions of an updated document.
pub fn encode(
    (offset, time): (Offset, Timestamp),
    group: Option<&ChangeGroup>,
    changes: &[DocumentChange],
    images: impl Fn(&DocumentChange) -> bool,
    bytes_max: usize,
) -> Result<Vec<Bytes>> {
    let mut payloads = Vec::new();
    let head = || {
        let mut head = head(offset, time);
        head.extend(group.map(encode_group).iter().flat_map(|group| group.as_bytes()));
        head
    };
    let mut payload = head();
    for change in changes {
        if payload.len() > bytes_max {
            payloads.push(std::mem::replace(&mut payload, head()).into());
        }
        let place = group.map(|_| change.place);
        payload.extend_from_slice(encode_change(change, images(change), place)?.as_bytes());
    }
    payloads.push(payload.into());
    Ok(payloads)
}

/// Returns a payload without changes.
pub fn mark(offset: Offset, time: Timestamp) -> Bytes {
    head(offset, time).into()
}

fn head(offset: Offset, time: Timestamp) -> Vec<u8> {
    let mut head = Vec::with_capacity(256);
    head.extend(offset.0.to_le_bytes());
    head.extend(time.0.to_le_bytes());
    head
}

/// Encodes a group as `{ group: [PARTITION, OFFSET, …] }`.
fn encode_group(group: &ChangeGroup) -> RawDocumentBuf {
    let mut parts = RawArrayBuf::new();
    for (partition, offset) in &group.offsets {
        parts.push(i64::from(*partition));
        parts.push(offset.0.cast_signed());
    }
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("group"), parts);
    out
}

fn decode_group(parts: &RawArray) -> Result<ChangeGroup> {
    let numbers = parts.into_iter().map(|number| number.ok()?.as_i64().map(i64::cast_unsigned));
    let numbers: Option<Vec<u64>> = numbers.collect();
    let numbers = numbers.ok_or_else(|| damaged("a group has something else than numbers"))?;
    let pairs = numbers.chunks_exact(2).map(|pair| (pair[0] as u32, Offset(pair[1])));
    Ok(ChangeGroup { offsets: pairs.collect() })
}

fn encode_change(change: &DocumentChange, images: bool, place: Option<u32>) -> Result<RawDocumentBuf> {
    let mut out = RawDocumentBuf::new();
    out.append(cstr!("kind"), kind_name(change.kind));
    out.append(cstr!("c"), &*change.collection);
    if let Some(place) = place {
        out.append(cstr!("n"), i64::from(place));
    }
    let (before, after) = (change.before.as_deref(), change.after.as_deref());
    if let Some(document) = after.or(before).filter(|_| !change.kind.is_of_collection()) {
        let id = raw(document)?.get("_id").map_err(|e| damaged(&e.to_string()))?;
        let mut key = RawDocumentBuf::new();
        if let Some(id) = id {
            key.append(cstr!("_id"), id);
        }
        out.append(cstr!("id"), key);
    }
    if let (ChangeKind::Update, Some(before), Some(after)) = (change.kind, before, after) {
        out.append(cstr!("update"), UpdateDescription::between(before, after)?.to_document());
    }
    if let Some(after) = after.filter(|_| images || change.kind != ChangeKind::Update) {
        out.append(cstr!("after"), raw(after)?);
    }
    if let Some(before) = before.filter(|_| images) {
        out.append(cstr!("before"), raw(before)?);
    }
    Ok(out)
}

fn raw(document: &[u8]) -> Result<&RawDocument> {
    RawDocument::from_bytes(document).map_err(|e| damaged(&e.to_string()))
}

const KINDS: [ChangeKind; 10] = [
    ChangeKind::Insert,
    ChangeKind::Update,
    ChangeKind::Replace,
    ChangeKind::Delete,
    ChangeKind::Drop,
    ChangeKind::Create,
    ChangeKind::CreateIndex,
    ChangeKind::DropIndex,
    ChangeKind::Modify,
    ChangeKind::Rename,
];

fn kind_name(kind: ChangeKind) -> &'static str {
    match kind {
        ChangeKind::Insert => "insert",
        ChangeKind::Update => "update",
        ChangeKind::Replace => "replace",
        ChangeKind::Delete => "delete",
        ChangeKind::Drop => "drop",
        ChangeKind::Create => "create",
        ChangeKind::CreateIndex => "createIndex",
        ChangeKind::DropIndex => "dropIndex",
        ChangeKind::Modify => "modify",
        ChangeKind::Rename => "rename",
    }
}

/// Returns offset and time of the record that made the changes of a payload.
///
/// Errors: `Corrupt` for bytes that are not a payload of changes.
pub fn source(payload: &[u8]) -> Result<(Offset, Timestamp)> {
    let head = payload.first_chunk::<HEAD_BYTES>().ok_or_else(|| damaged("a record without a head"))?;
    let [offset, time] =
        [&head[..8], &head[8..]].map(|half| u64::from_le_bytes(half.try_into().unwrap_or([0; 8])));
    Ok((Offset(offset), Timestamp(time.cast_signed())))
}

/// Returns the number of changes of a payload, without decoding them.
///
/// Errors: as [`decode`].
pub fn count(payload: &[u8]) -> Result<u32> {
    let mut at = HEAD_BYTES;
    let mut count = 0;
    while at < payload.len() {
        let end = at + document_bytes(payload, at);
        let change = payload.get(at..end).ok_or_else(|| damaged("a change is cut off"))?;
        let is_group = at == HEAD_BYTES && raw(change)?.get_array("group").is_ok();
        count += u32::from(!is_group);
        at = end;
    }
    Ok(count)
}

fn document_bytes(payload: &[u8], at: usize) -> usize {
    let length = payload.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
    (length as usize).max(5)
}

/// Decodes the changes of a payload; documents share its memory.
///
/// Errors: `Corrupt` for bytes that are not a payload of changes.
pub fn decode(payload: &Bytes) -> Result<Vec<ChangeEvent>> {
    let source = source(payload)?;
    let mut group = None;
    let mut changes = Vec::new();
    let mut at = HEAD_BYTES;
    while at < payload.len() {
        let end = at + document_bytes(payload, at);
        let change = payload.get(at..end).ok_or_else(|| damaged("a change is cut off"))?;
        let change = raw(change)?;
        match change.get_array("group") {
            Ok(parts) => group = Some(Arc::new(decode_group(parts)?)),
            Err(_) => changes.push(decode_change(payload, change, source, group.clone())?),
        }
        at = end;
    }
    Ok(changes)
}

fn decode_change(
    payload: &Bytes,
    change: &RawDocument,
    (source, time): (Offset, Timestamp),
    group: Option<Arc<ChangeGroup>>,
) -> Result<ChangeEvent> {
    let text = |field: &str| change.get_str(field).map_err(|e| damaged(&e.to_string()));
    let document =
        |field: &str| change.get_document(field).ok().map(|document| payload.slice_ref(document.as_bytes()));
    let kind = text("kind")?;
    let kind = KINDS.into_iter().find(|known| kind_name(*known) == kind);
    Ok(ChangeEvent {
        kind: kind.ok_or_else(|| damaged("a change of unknown kind"))?,
        collection: text("c")?.to_owned(),
        id: document("id"),
        document: document("after"),
        update: document("update"),
        before: document("before"),
        time,
        source,
        group,
        place: change.get_i64("n").map_or(0, |place| place as u32),
    })
}

fn damaged(why: &str) -> Error {
    Error::corrupt(format!("change log: {why}"))
}
