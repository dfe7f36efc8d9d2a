//! Batches as bytes and back, without their schema: whoever reads them has it.

use std::collections::HashMap;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::MetadataVersion;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::writer::{DictionaryTracker, IpcDataGenerator, IpcWriteContext, IpcWriteOptions};
use arrow_schema::{ArrowError, SchemaRef};
use bytes::Bytes;

use crate::{Error, Result};

/// Encodes batches; keeps scratch space between calls.
#[derive(Default)]
pub struct BatchEncoder {
    context: IpcWriteContext,
}

/// A batch as an Arrow IPC record batch message.
pub struct EncodedBatch {
    /// The message (a flatbuffer): lengths and places of the buffers.
    pub message: Vec<u8>,
    /// The buffers, each aligned to 8 bytes.
    pub data: Vec<u8>,
}

impl BatchEncoder {
    /// The batch's bytes.
    ///
    /// Errors: `Internal` for a batch that Arrow IPC does not take.
    pub fn encode(&mut self, batch: &RecordBatch) -> Result<EncodedBatch> {
        let failed = |e: ArrowError| Error::internal("a batch could not be encoded").with_source(e);
        let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5).map_err(failed)?;
        let mut dictionaries = DictionaryTracker::new(false);
        let (_, data) = IpcDataGenerator::default()
            .encode(batch, &mut dictionaries, &options, &mut self.context)
            .map_err(failed)?;
        Ok(EncodedBatch { message: data.ipc_message, data: data.arrow_data })
    }
}

/// Reads a batch of `schema`. Its columns share the memory of `data` where that is aligned.
///
/// Errors: `Corrupt` when the bytes are no such batch.
pub fn decode_batch(message: &[u8], data: Bytes, schema: SchemaRef) -> Result<RecordBatch> {
    let damaged = |e: String| Error::corrupt(format!("damaged batch: {e}"));
    let message = arrow_ipc::root_as_message(message).map_err(|e| damaged(e.to_string()))?;
    let header = message.header_as_record_batch().ok_or_else(|| damaged("not a record batch".into()))?;
    let buffer = Buffer::from(data);
    let version = message.version();
    let read = || read_record_batch(&buffer, header, schema, &HashMap::new(), None, &version);
    // arrow-ipc panics on some wrong lengths and places of buffers; nothing is shared with it but what it reads
    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(read)) {
        Ok(batch) => batch.map_err(|e| damaged(e.to_string())),
        Err(_) => Err(damaged("its buffers do not fit it".into())),
    }
}
