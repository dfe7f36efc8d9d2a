//! Binary encoding of batches without their schema, which the reader must know.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::MetadataVersion;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_schema::{ArrowError, SchemaRef};
use bytes::Bytes;

use crate::{Error, Result};

/// Encoder of batches; reuses scratch space between calls.
#[derive(Default)]
pub struct BatchEncoder {
    context: IpcWriteContext,
}

/// A batch encoded as an Arrow IPC record batch message.
pub struct EncodedBatch {
    /// The message (a flatbuffer) with lengths and offsets of the buffers.
    pub message: Vec<u8>,
    /// The buffers, each aligned to 8 bytes.
    pub data: Vec<u8>,
}

impl BatchEncoder {
    /// Encodes a batch.
    ///
    /// Errors: `Internal` for a batch that Arrow IPC does not support.
    pub fn encode(&mut self, batch: &RecordBatch) -> Result<EncodedBatch> {
        let failed =
            |e: ArrowError| Error::internal("internal error: cannot encode the batch").with_source(e);
        let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5).map_err(failed)?;
        let mut dictionaries = DictionaryTracker::new(false);
        let (_, data) = IpcDataGenerator::default()
            .encode(batch, &mut dictionaries, &options, &mut self.context)
            .map_err(failed)?;
        Ok(EncodedBatch { message: data.ipc_message, data: data.arrow_data })
    }
}

/// Decodes a batch of `schema`. Its columns share the memory of `data` where that is aligned.
///
/// Errors: `Corrupt` when the bytes are not a batch of that schema.
pub fn decode_batch(message: &[u8], data: Bytes, schema: SchemaRef) -> Result<RecordBatch> {
    let damaged = |e: String| Error::corrupt(format!("damaged batch: {e}"));
    let message = arrow_ipc::root_as_message(message).map_err(|e| damaged(e.to_string()))?;
    let header = message.header_as_record_batch().ok_or_else(|| damaged("not a record batch".into()))?;
    let buffer = Buffer::from(data);
    let version = message.version();
    let read = || read_record_batch(&buffer, header, schema, &HashMap::new(), None, &version);
    // arrow-ipc panics on some wrong lengths and offsets of buffers. Unwinding is safe: it mutates no shared
    // state.
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)) {
        Ok(batch) => batch.map_err(|e| damaged(e.to_string())),
        Err(_) => Err(damaged("its buffers do not match its schema".into())),
    }
}
