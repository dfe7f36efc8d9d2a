//! Encoding of the parts of a file that grows.

use std::io::{self, Cursor, Write};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_avro::reader::read_header_info;
use parking_lot::Mutex;
use tidemill_types::{Error, Result, StreamSchema};

use crate::format::Format;
use crate::formats::blocks::SyncMarker;
use crate::writer::{EventFileWriter, WriteOptions};

/// Maximum size of the header of an Avro container that is read, in bytes.
const AVRO_HEADER_BYTES_MAX: usize = 1 << 20;

/// Encoder of one format.
pub(crate) trait SinkEncoder: Send {
    /// Returns the bytes at the beginning of an empty file.
    fn header(&mut self) -> Result<Vec<u8>>;

    /// Returns how much of the beginning of a file [`Self::resume`] needs, in bytes.
    fn header_bytes_max(&self) -> usize {
        0
    }

    /// Continues a file with this beginning and trailer.
    fn resume(&mut self, _header: &[u8], _trailer: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Appends to `out` the bytes of these batches, which will be at `offset` in the file.
    fn encode(&mut self, batches: &[RecordBatch], offset: u64, out: &mut Vec<u8>) -> Result<()>;

    /// Returns the bytes at the end of a complete file of `length` bytes. Later batches take their place.
    fn trailer(&self, _length: u64) -> Result<Vec<u8>> {
        Ok(vec![])
    }

    /// Returns whether small batches make a poor file, so that batches should wait until the file is synced.
    fn wants_large_batches(&self) -> bool {
        false
    }
}

/// Creates an encoder. Errors: the format does not support the stream, or is left out of this build.
pub(crate) fn encoder(
    format: &Format,
    schema: &Arc<StreamSchema>,
    writing: &WriteOptions,
) -> Result<Box<dyn SinkEncoder>> {
    let alone = FileEncoder { format: format.clone(), schema: schema.clone(), writing: writing.clone() };
    match format {
        Format::Json | Format::Csv { .. } => Ok(Box::new(TextEncoder(alone))),
        Format::Avro(_) => Ok(Box::new(AvroEncoder { alone, sync: None })),
        Format::Parquet => parquet(alone),
    }
}

#[cfg(feature = "parquet")]
fn parquet(alone: FileEncoder) -> Result<Box<dyn SinkEncoder>> {
    Ok(Box::new(crate::formats::parquet_sink::ParquetEncoder::new(alone)?))
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: FileEncoder) -> Result<Box<dyn SinkEncoder>> {
    Err(Error::invalid("Parquet was left out of this build: it needs the feature `parquet`"))
}

/// Encoder of whole files in memory.
pub(crate) struct FileEncoder {
    format: Format,
    schema: Arc<StreamSchema>,
    writing: WriteOptions,
}

/// Output that stays reachable while a writer owns it.
#[derive(Clone, Default)]
struct SharedBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for SharedBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl FileEncoder {
    /// Returns the bytes of a file of these batches.
    pub(crate) fn file(&self, batches: &[RecordBatch]) -> Result<Vec<u8>> {
        self.file_as(&self.format, batches)
    }

    fn file_as(&self, format: &Format, batches: &[RecordBatch]) -> Result<Vec<u8>> {
        let buffer = SharedBuffer::default();
        let mut writer = EventFileWriter::new(buffer.clone(), format, &self.schema, &self.writing)?;
        batches.iter().try_for_each(|batch| writer.write(batch))?;
        writer.finish()?;
        let bytes = std::mem::take(&mut *buffer.0.lock());
        Ok(bytes)
    }
}

/// Lines of text; the header of CSV is at the beginning of the file only.
struct TextEncoder(FileEncoder);

impl SinkEncoder for TextEncoder {
    fn header(&mut self) -> Result<Vec<u8>> {
        self.0.file(&[])
    }

    fn encode(&mut self, batches: &[RecordBatch], _offset: u64, out: &mut Vec<u8>) -> Result<()> {
        let without_header = match &self.0.format {
            Format::Csv { delimiter, .. } => Format::Csv { header: false, delimiter: *delimiter },
            other => other.clone(),
        };
        out.append(&mut self.0.file_as(&without_header, batches)?);
        Ok(())
    }
}

/// Blocks of a container with one sync marker.
struct AvroEncoder {
    alone: FileEncoder,
    /// Marker of the file; `None` before its header.
    sync: Option<SyncMarker>,
}

impl SinkEncoder for AvroEncoder {
    fn header(&mut self) -> Result<Vec<u8>> {
        let header = self.alone.file(&[])?;
        let (sync, length) = header_of(&header)?;
        self.sync = Some(sync);
        Ok(header[..length].to_vec())
    }

    fn header_bytes_max(&self) -> usize {
        AVRO_HEADER_BYTES_MAX
    }

    fn resume(&mut self, header: &[u8], _trailer: &[u8]) -> Result<()> {
        if !header.is_empty() {
            self.sync = Some(header_of(header)?.0);
        }
        Ok(())
    }

    fn encode(&mut self, batches: &[RecordBatch], _offset: u64, out: &mut Vec<u8>) -> Result<()> {
        let Some(sync) = self.sync else { return Err(Error::internal("an Avro container without a header")) };
        let mut file = self.alone.file(batches)?;
        let mut at = header_of(&file)?.1;
        let begin = at;
        let cut = || Error::internal("an Avro block that was written ends too early");
        while at < file.len() {
            let (_rows, after_rows) = number(&file, at).ok_or_else(cut)?;
            let (size, content) = number(&file, after_rows).ok_or_else(cut)?;
            let end = content + usize::try_from(size).map_err(|_| cut())?;
            file.get_mut(end..end + sync.len()).ok_or_else(cut)?.copy_from_slice(&sync);
            at = end + sync.len();
        }
        out.extend_from_slice(&file[begin..]);
        Ok(())
    }
}

/// Returns the sync marker of a container, and the length of its header.
fn header_of(file: &[u8]) -> Result<(SyncMarker, usize)> {
    let info = read_header_info(Cursor::new(file))
        .map_err(|e| Error::invalid(format!("not an Avro object container: {e}")))?;
    Ok((info.sync(), info.header_len() as usize))
}

/// Reads an Avro long; returns it and the index after it.
fn number(bytes: &[u8], begin: usize) -> Option<(i64, usize)> {
    let mut value = 0_u64;
    for (i, byte) in bytes.get(begin..)?.iter().take(10).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * i);
        if *byte < 0x80 {
            return Some(((value >> 1) as i64 ^ -((value & 1) as i64), begin + i + 1));
        }
    }
    None
}
