//! Batches of clients, put together as an Arrow IPC stream: the form in which the database takes events, and in which values of parameters are
//! decoded.

use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_flight::FlightData;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::{Message, MessageHeader, root_as_message};
use bytes::Bytes;
use tidemill_types::{Error, Result};

/// Marker in front of the length of a message.
const CONTINUATION: [u8; 4] = [0xff; 4];
/// Messages begin at multiples of it.
const ALIGNMENT: usize = 8;
/// Maximum bytes of the schema and the dictionaries that are in force.
const HEAD_BYTES_MAX: usize = 16 << 20;

/// Messages of a client since the last [`Self::take`], after the schema and the dictionaries that they need.
#[derive(Default)]
pub(super) struct Frames {
    schema: Vec<u8>,
    /// Dictionaries by number: one that replaces another takes its place, one that adds to it comes behind.
    dictionaries: Vec<(i64, Vec<u8>)>,
    batches: Vec<u8>,
    /// Number of the next message.
    number: u64,
}

impl Frames {
    /// Adds a message. One without a header, which has a descriptor only, adds nothing.
    ///
    /// Errors: `Invalid` for a message that is not one of Arrow IPC or does not fit its place, and for compressed buffers.
    pub fn push(&mut self, data: &FlightData) -> Result<()> {
        let number = self.number;
        self.number += 1;
        if data.data_header.is_empty() {
            return match data.data_body.is_empty() {
                true => Ok(()),
                false => Err(Error::invalid(format!("message {number} has a body without a header"))),
            };
        }
        let wrong = |why: String| Error::invalid(format!("message {number} is not one of Arrow IPC: {why}"));
        let message = root_as_message(&data.data_header).map_err(|e| wrong(e.to_string()))?;
        if is_compressed(&message) {
            return Err(Error::invalid(format!(
                "message {number} has compressed buffers: send batches without compression, which is the default of clients"
            )));
        }
        let body =
            usize::try_from(message.bodyLength()).map_err(|_| wrong("its length is negative".to_owned()))?;
        if data.data_body.len().abs_diff(body) >= ALIGNMENT {
            return Err(wrong(format!(
                "its body has {} bytes, and its header says {body}",
                data.data_body.len()
            )));
        }
        let frame = frame(&data.data_header, &data.data_body, body);
        match message.header_type() {
            MessageHeader::Schema if self.schema.is_empty() => self.schema = frame,
            MessageHeader::Schema => {
                return Err(Error::invalid(format!(
                    "message {number} is a second schema: send batches of one schema"
                )));
            }
            _ if self.schema.is_empty() => {
                return Err(Error::invalid(format!(
                    "message {number} comes before the schema: send the schema first"
                )));
            }
            MessageHeader::DictionaryBatch => {
                let dictionary = message
                    .header_as_dictionary_batch()
                    .ok_or_else(|| wrong("it has no dictionary".to_owned()))?;
                if !dictionary.isDelta() {
                    self.dictionaries.retain(|(id, _)| *id != dictionary.id());
                }
                self.dictionaries.push((dictionary.id(), frame));
                // batches before it need the former ones
                if !self.batches.is_empty() {
                    return Err(Error::invalid(format!(
                        "message {number} changes a dictionary between batches that are sent at once: send columns without dictionaries"
                    )));
                }
            }
            MessageHeader::RecordBatch => self.batches.extend(frame),
            other => {
                let name = other.variant_name().unwrap_or("message of another kind");
                return Err(wrong(format!("it is a {name}, and expected were a schema and batches")));
            }
        }
        let head = self.schema.len() + self.dictionaries.iter().map(|(_, frame)| frame.len()).sum::<usize>();
        match head <= HEAD_BYTES_MAX {
            true => Ok(()),
            false => Err(Error::limit(format!(
                "the schema and the dictionaries have more than {HEAD_BYTES_MAX} bytes: send columns without dictionaries"
            ))),
        }
    }

    /// Returns whether a message changes a dictionary, so that the batches before it have to be taken first.
    pub fn is_dictionary(data: &FlightData) -> bool {
        root_as_message(&data.data_header)
            .is_ok_and(|message| message.header_type() == MessageHeader::DictionaryBatch)
    }

    /// Returns the bytes of the batches that have not been taken.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    pub fn has_schema(&self) -> bool {
        !self.schema.is_empty()
    }

    /// Returns the batches as a stream of their own; `None` if there are none.
    pub fn take(&mut self) -> Option<Bytes> {
        (!self.batches.is_empty()).then(|| {
            let batches = std::mem::take(&mut self.batches);
            let dictionaries = self.dictionaries.iter().map(|(_, frame)| frame.as_slice());
            let parts: Vec<&[u8]> =
                [self.schema.as_slice()].into_iter().chain(dictionaries).chain([&*batches]).collect();
            Bytes::from(parts.concat())
        })
    }
}

/// Decodes a stream whose frames were checked.
///
/// Errors: `Invalid` for batches that cannot be decoded.
pub(super) fn decode(stream: Bytes) -> Result<Vec<RecordBatch>> {
    let decode = || {
        let (mut decoder, mut rest, mut batches) = (StreamDecoder::new(), Buffer::from(stream), vec![]);
        while let Some(batch) = decoder.decode(&mut rest)? {
            batches.push(batch);
        }
        Ok::<_, arrow_schema::ArrowError>(batches)
    };
    // The decoder checks most lengths and offsets, and panics on the others. Unwinding is safe: it is not used again.
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(batches) => batches.map_err(|e| Error::invalid(format!("the batches cannot be decoded: {e}"))),
        Err(_) => Err(Error::invalid(
            "the batches cannot be decoded: their lengths and offsets contradict each other",
        )),
    }
}

/// Returns a message with its length in front. Its body is cut or filled to `body_bytes`, as some clients pad it in another way.
fn frame(header: &[u8], body: &[u8], body_bytes: usize) -> Vec<u8> {
    let padded = header.len().next_multiple_of(ALIGNMENT);
    let mut frame = Vec::with_capacity(ALIGNMENT + padded + body_bytes + ALIGNMENT);
    frame.extend(CONTINUATION);
    frame.extend((padded as u32).to_le_bytes());
    frame.extend(header);
    frame.resize(ALIGNMENT + padded, 0);
    frame.extend(&body[..body.len().min(body_bytes)]);
    frame.resize(ALIGNMENT + padded + body_bytes, 0);
    frame
}

fn is_compressed(message: &Message<'_>) -> bool {
    let batch = match message.header_type() {
        MessageHeader::RecordBatch => message.header_as_record_batch(),
        MessageHeader::DictionaryBatch => message.header_as_dictionary_batch().and_then(|batch| batch.data()),
        _ => None,
    };
    batch.is_some_and(|batch| batch.compression().is_some())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, DictionaryArray, Int64Array, StringArray};
    use arrow_flight::encode::{DictionaryHandling, FlightDataEncoderBuilder};
    use arrow_flight::error::FlightError;
    use futures::{StreamExt, TryStreamExt, stream};
    use proptest::prelude::*;

    use super::*;

    fn batch(texts: &[&str]) -> RecordBatch {
        let kinds: DictionaryArray<Int32Type> = texts.iter().copied().collect();
        let columns: [(&str, ArrayRef); 3] = [
            ("n", Arc::new(Int64Array::from_iter_values(0..texts.len() as i64))),
            ("t", Arc::new(StringArray::from(texts.to_vec()))),
            ("k", Arc::new(kinds)),
        ];
        RecordBatch::try_from_iter(columns).unwrap()
    }

    fn messages(batches: &[RecordBatch]) -> Vec<FlightData> {
        let batches: Vec<Result<RecordBatch, FlightError>> = batches.iter().cloned().map(Ok).collect();
        let encoder = FlightDataEncoderBuilder::new()
            .with_dictionary_handling(DictionaryHandling::Resend)
            .build(stream::iter(batches));
        futures::executor::block_on(encoder.boxed().try_collect()).unwrap()
    }

    #[test]
    fn batches_are_taken_with_the_dictionaries_that_they_need() {
        let sent = [batch(&["a", "b", "a"]), batch(&["c"])];
        let (mut frames, mut found) = (Frames::default(), vec![]);
        for message in messages(&sent) {
            if Frames::is_dictionary(&message) {
                found.extend(frames.take());
            }
            frames.push(&message).unwrap();
        }
        found.extend(frames.take());
        assert!(frames.take().is_none() && frames.has_schema());
        let found: Vec<RecordBatch> = found.into_iter().flat_map(|stream| decode(stream).unwrap()).collect();
        assert_eq!(found, sent);
    }

    #[test]
    fn messages_in_another_order_are_refused() {
        let sent = messages(&[batch(&["a"]), batch(&["b"])]);
        let refused = |order: &[usize]| {
            let mut frames = Frames::default();
            let refused = order.iter().find_map(|at| frames.push(&sent[*at]).err());
            refused.map(|error| error.to_string()).unwrap_or_default()
        };
        assert!(refused(&[1]).contains("before the schema"));
        assert!(refused(&[0, 0]).contains("second schema"));
        assert!(refused(&[0, 1, 2, 3]).contains("changes a dictionary"));
        let without_header = FlightData { data_body: Bytes::from_static(b"x"), ..FlightData::default() };
        assert!(
            Frames::default().push(&without_header).unwrap_err().to_string().contains("without a header")
        );
        let mut short = sent[2].clone();
        short.data_body = short.data_body.slice(..short.data_body.len() - 8);
        let mut frames = Frames::default();
        frames.push(&sent[0]).unwrap();
        assert!(frames.push(&short).unwrap_err().to_string().contains("its header says"));
    }

    proptest! {
        #[test]
        fn damaged_messages_are_errors(which in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), value in any::<u8>(), in_body in any::<bool>()) {
            let mut sent = messages(&[batch(&["a", "b"])]);
            let which = which.index(sent.len());
            let part = if in_body { &mut sent[which].data_body } else { &mut sent[which].data_header };
            let mut bytes = part.to_vec();
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = value;
            }
            *part = bytes.into();
            let mut frames = Frames::default();
            if sent.iter().all(|message| frames.push(message).is_ok()) && let Some(stream) = frames.take() {
                let _ = decode(stream);
            }
        }
    }
}
