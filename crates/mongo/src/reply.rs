//! Replies: documents with cursors.

use bson::cstr;
use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf};
use tidemill_docs::DocBytes;

use crate::cursors::Cursors;
use crate::error::Result;
use crate::tail::Tail;

/// Documents of a first batch if the command does not say.
const FIRST_BATCH: usize = 101;
/// Bytes of documents after which a batch ends.
const BATCH_BYTES_MAX: usize = 16 << 20;

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
    documents: Vec<DocBytes>,
    batch_size: Option<u64>,
    single_batch: bool,
) -> Result<RawDocumentBuf> {
    let size = batch_size.map_or(FIRST_BATCH, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let mut documents = documents.into_iter();
    let batch = take_batch(&mut documents, size)?;
    let id = match documents.len() == 0 || single_batch {
        true => 0,
        false => cursors.open(namespace.clone(), documents)?,
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
    tail: Option<Tail>,
    batch_size: Option<u64>,
) -> Result<RawDocumentBuf> {
    let size = batch_size.map_or(FIRST_BATCH, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let mut documents = documents.into_iter();
    let batch = take_batch(&mut documents, size)?;
    let id = match tail {
        None => 0,
        tail => cursors.open_tailable(namespace.clone(), documents, tail)?,
    };
    Ok(cursor_reply("firstBatch", batch, id, &namespace))
}

/// Returns the reply with the next batch of a cursor.
///
/// Errors: there is no such cursor.
pub(crate) fn next_batch(
    cursors: &Cursors,
    id: i64,
    namespace: &str,
    batch_size: Option<u64>,
) -> Result<RawDocumentBuf> {
    let mut cursor = cursors.take(id, namespace)?;
    let size = batch_size.filter(|n| *n > 0).map_or(usize::MAX, |n| usize::try_from(n).unwrap_or(usize::MAX));
    let batch = take_batch(&mut cursor.documents, size)?;
    let left = if cursor.documents.len() == 0 && cursor.tail.is_none() { 0 } else { id };
    if left != 0 {
        cursors.put_back(id, cursor);
    }
    Ok(cursor_reply("nextBatch", batch, left, namespace))
}

fn take_batch(documents: &mut std::vec::IntoIter<DocBytes>, size: usize) -> Result<RawArrayBuf> {
    let mut batch = RawArrayBuf::new();
    let (mut count, mut bytes) = (0, 0);
    while count < size
        && let Some(next) = documents.as_slice().first()
        && (count == 0 || bytes + next.len() <= BATCH_BYTES_MAX)
        && let Some(document) = documents.next()
    {
        (count, bytes) = (count + 1, bytes + document.len());
        batch.push(RawDocument::from_bytes(&document)?);
    }
    Ok(batch)
}

fn cursor_reply(batch_name: &str, batch: RawArrayBuf, id: i64, namespace: &str) -> RawDocumentBuf {
    let mut cursor = RawDocumentBuf::new();
    match batch_name {
        "firstBatch" => cursor.append(cstr!("firstBatch"), batch),
        _ => cursor.append(cstr!("nextBatch"), batch),
    }
    cursor.append(cstr!("id"), id);
    cursor.append(cstr!("ns"), namespace);
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("cursor"), cursor);
    ok(reply)
}
