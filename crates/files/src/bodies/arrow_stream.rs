//! Arrow IPC streams.

use std::sync::Arc;

use arrow_buffer::Buffer;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::{Message, MessageHeader, root_as_message};
use bytes::Bytes;
use tidemill_types::{DecodedRows, Error, Result, StreamSchema, Timestamp};

use super::{BodyRows, check_types, damaged, guarded};

/// Marker in front of the length of a message.
const CONTINUATION: u32 = 0xffff_ffff;

/// Returns the rows of an Arrow IPC stream as events, as [`crate::events_from_columns`] does for each of its batches. Rows are numbered
/// from 0 over all batches.
///
/// Bounds: the decoded columns have at most `bytes_max` bytes. Compressed buffers are refused, because the size that they expand to is
/// known only afterwards; a body as a whole may be compressed.
///
/// Errors: `Invalid` for bytes that are not such a stream, with the batch, and for columns that do not fit the stream; `LimitReached`
/// for a larger body.
pub fn events_from_arrow_stream(
    body: Bytes,
    schema: &Arc<StreamSchema>,
    now: Timestamp,
    bytes_max: usize,
) -> Result<DecodedRows> {
    let context = |e: Error| e.context("the body is not an Arrow IPC stream");
    check_messages(&body).map_err(context)?;
    let mut rows = BodyRows::new(schema, now, bytes_max);
    let mut decoder = StreamDecoder::new();
    let mut rest = Buffer::from(body);
    let mut is_checked = false;
    for number in 1_u64.. {
        let batch = guarded(|| decoder.decode(&mut rest).map_err(|e| damaged("cannot be decoded", &e)));
        let batch = batch.map_err(|e| context(e.context(format!("batch {number}"))))?;
        if let Some(columns) = decoder.schema().filter(|_| !is_checked) {
            check_types(&columns)?;
            is_checked = true;
        }
        let Some(batch) = batch else { break };
        guarded(|| rows.push(&batch)).map_err(|e| e.context(format!("batch {number}")))?;
    }
    rows.finish()
}

/// Checks the frames of the messages of a stream.
///
/// Errors: one is not whole, or has compressed buffers; there is no schema.
fn check_messages(body: &[u8]) -> Result<()> {
    let mut at = 0_usize;
    let mut number = 0;
    loop {
        let cut = || Error::invalid(format!("message {number} at byte {at} is not whole"));
        let word =
            |at: usize| body.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map(u32::from_le_bytes);
        if at == body.len() {
            break;
        }
        let (length, head) = match word(at).ok_or_else(cut)? {
            CONTINUATION => (word(at + 4).ok_or_else(cut)?, at + 8),
            length => (length, at + 4),
        };
        if length == 0 {
            break;
        }
        let end = head.checked_add(length as usize).filter(|end| *end <= body.len()).ok_or_else(cut)?;
        let message = root_as_message(&body[head..end])
            .map_err(|e| Error::invalid(format!("message {number} at byte {at}: {e}")))?;
        if has_compressed_buffers(&message) {
            return Err(Error::invalid(format!(
                "message {number} has compressed buffers: write the stream without compression, and compress the whole body \
                 with `Content-Encoding: zstd` or `gzip`"
            )));
        }
        let data = usize::try_from(message.bodyLength()).map_err(|_| cut())?;
        at = end.checked_add(data).filter(|end| *end <= body.len()).ok_or_else(cut)?;
        number += 1;
    }
    match number {
        0 => Err(Error::invalid("there is no message: expected a schema, then batches")),
        _ => Ok(()),
    }
}

fn has_compressed_buffers(message: &Message<'_>) -> bool {
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|batch| batch.data()),
        _ => None,
    };
    batch.is_some_and(|batch| batch.compression().is_some())
}
