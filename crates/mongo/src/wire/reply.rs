//! Replies: documents with cursors.

use bson::cstr;
use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf};
use tidemill_docs::DocBytes;

use crate::cursors::{CursorSource, Cursors, Unread};
use crate::error::Result;
use crate::shared::Shared;
use crate::tail::TailPosition;

/// Documents of a first batch if the command does not say.
pub(crate) const FIRST_BATCH: usize = 101;
/// Bytes of documents after which a batch ends.
pub(crate) const BATCH_BYTES_MAX: usize = 16 << 20;
/// Changes of a batch, which is limited by number as a change is small.
const CHANGES_BATCH_MAX: usize = 1000;

/// Returns `{…, ok: 1}`.
pub(crate) fn ok(mut reply: RawDocumentBuf) -> RawDocumentBuf {
    reply.append(cstr!("ok"), 1.0);
    reply
}

/// Returns the reply with the first batch of `documents`, and opens a cursor on the others.
///
/// Errors: there are too many open cursors.
pub(crate) fn first_batch(
    cursors: &Cursors,
    namespace: String,
    documents: impl Into<Unread>,
    batch_size: Option<u64>,
    single_batch: bool,
) -> Result<RawDocumentBuf> {
    let size = batch_size.map_or(FIRST_BATCH, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let mut documents = documents.into();
    let batch = take_batch(&mut documents, size)?;
    let id = match documents.len() == 0 || single_batch {
        true => 0,
        false => cursors.open(namespace.clone(), documents)?,
    };
    Ok(cursor_reply("firstBatch", batch, id, &namespace))
}

/// Returns the reply with the first batch of a query, as [`first_batch`] does. A batch that is as large as the client asked for leaves the
/// cursor open although there may be no more, unless a `limit` is reached.
///
/// Errors: there are too many open cursors.
pub(crate) fn first_query_batch(
    cursors: &Cursors,
    namespace: String,
    documents: impl Into<Unread>,
    batch_size: Option<u64>,
    limit: Option<u64>,
) -> Result<RawDocumentBuf> {
    let size = batch_size.map_or(FIRST_BATCH, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let mut documents = documents.into();
    let limited = limit.is_some_and(|limit| documents.len() as u64 >= limit);
    let filled = documents.len() >= size;
    let batch = take_batch(&mut documents, size)?;
    let id = match (documents.len() == 0, limited) {
        (true, true) => 0,
        (true, false) if !filled => 0,
        (false, true) => cursors.open(namespace.clone(), documents)?,
        (_, false) => cursors.open_query(namespace.clone(), documents)?,
    };
    Ok(cursor_reply("firstBatch", batch, id, &namespace))
}

/// Returns the reply with the first batch of a tailable cursor, which stays open at the end of its documents if there is a
/// `tail`.
///
/// Errors: there are too many open cursors.
pub(crate) fn first_tailable_batch(
    cursors: &Cursors,
    namespace: String,
    documents: Vec<DocBytes>,
    tail: Option<TailPosition>,
    batch_size: Option<u64>,
) -> Result<RawDocumentBuf> {
    let size = batch_size.map_or(FIRST_BATCH, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let mut documents = Unread::from(documents);
    let batch = take_batch(&mut documents, size)?;
    let id = match tail {
        None => 0,
        Some(tail) => cursors.open_tailable(namespace.clone(), documents, tail)?,
    };
    Ok(cursor_reply("firstBatch", batch, id, &namespace))
}

/// Returns the reply with the next batch of a cursor.
///
/// Errors: the cursor does not exist.
pub(crate) fn next_batch(
    shared: &Shared,
    id: i64,
    namespace: &str,
    batch_size: Option<u64>,
) -> Result<RawDocumentBuf> {
    let cursors = &shared.cursors;
    let mut cursor = cursors.take(id, namespace)?;
    let size = batch_size.filter(|n| *n > 0).map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let documents = match &mut cursor.source {
        CursorSource::Documents(documents) => documents,
        CursorSource::Tail(documents, tail) => {
            if documents.len() == 0 {
                // a cursor whose position is gone is not put back
                *documents = tail.proceed(&shared.engine)?.into();
            }
            let batch = take_batch(documents, size)?;
            cursors.put_back(id, cursor);
            return Ok(cursor_reply("nextBatch", batch, id, namespace));
        }
        CursorSource::Changes(changes) => {
            let (batch, token) = changes.next(&shared.whole_engine, size.min(CHANGES_BATCH_MAX))?;
            let left = if changes.has_ended() { 0 } else { id };
            if left != 0 {
                cursors.put_back(id, cursor);
            }
            return change_batch("nextBatch", batch, left, namespace, token);
        }
    };
    let before = documents.len();
    let batch = take_batch(documents, size)?;
    let filled = cursor.end_unknown && before >= size;
    let left = if documents.len() == 0 && !filled { 0 } else { id };
    if left != 0 {
        cursors.put_back(id, cursor);
    }
    Ok(cursor_reply("nextBatch", batch, left, namespace))
}

fn take_batch(documents: &mut Unread, size: usize) -> Result<RawArrayBuf> {
    let mut batch = RawArrayBuf::new();
    let (mut count, mut bytes) = (0, 0);
    while count < size
        && let Some(document) = documents.next_if(|next| count == 0 || bytes + next <= BATCH_BYTES_MAX)?
    {
        (count, bytes) = (count + 1, bytes + document.len());
        batch.push(RawDocument::from_bytes(&document)?);
    }
    Ok(batch)
}

/// Returns the reply with a batch of changes, and the token with which to resume after it.
pub(crate) fn change_batch(
    batch_name: &str,
    batch: Vec<DocBytes>,
    id: i64,
    namespace: &str,
    token: RawDocumentBuf,
) -> Result<RawDocumentBuf> {
    let mut documents = RawArrayBuf::new();
    for document in &batch {
        documents.push(RawDocument::from_bytes(document)?);
    }
    let mut cursor = cursor_document(batch_name, documents, id, namespace);
    cursor.append(cstr!("postBatchResumeToken"), token);
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("cursor"), cursor);
    Ok(ok(reply))
}

fn cursor_reply(batch_name: &str, batch: RawArrayBuf, id: i64, namespace: &str) -> RawDocumentBuf {
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("cursor"), cursor_document(batch_name, batch, id, namespace));
    ok(reply)
}

fn cursor_document(batch_name: &str, batch: RawArrayBuf, id: i64, namespace: &str) -> RawDocumentBuf {
    let mut cursor = RawDocumentBuf::new();
    match batch_name {
        "firstBatch" => cursor.append(cstr!("firstBatch"), batch),
        _ => cursor.append(cstr!("nextBatch"), batch),
    }
    cursor.append(cstr!("id"), id);
    cursor.append(cstr!("ns"), namespace);
    cursor
}

/// Returns whether the reply to a `getMore` leaves the cursor open.
pub(crate) fn has_more_batches(reply: &RawDocument) -> bool {
    let Ok(cursor) = reply.get_document("cursor") else { return false };
    cursor.get("nextBatch").is_ok_and(|batch| batch.is_some()) && cursor.get_i64("id").is_ok_and(|id| id != 0)
}

/// Returns the number of the cursor that a reply leaves open; 0 for none.
pub(crate) fn cursor_of(reply: &RawDocument) -> i64 {
    reply.get_document("cursor").and_then(|cursor| cursor.get_i64("id")).unwrap_or(0)
}
