//! Files as a [`Sink`].

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_connect::{Sink, SinkPosition};
use tidemill_types::{Error, Result, StreamSchema};

use crate::error::unwritable;
use crate::fields::only_declared;
use crate::format::Format;
use crate::sink_encoder::{SinkEncoder, encoder};
use crate::writer::WriteOptions;

/// Size in bytes of the batches after which they are encoded, and of those of formats that want large ones.
const ENCODE_BYTES: usize = 1 << 20;
const ENCODE_BYTES_LARGE: usize = 16 << 20;

/// File that grows by the events of a stream and can be continued at an earlier position.
///
/// Its position is the length of the file and, for Parquet, the footer that belongs there. Opening a file at
/// a position cuts it there: what was written later is discarded.
///
/// Threads and crashes: bytes are written at explicit offsets, so a write that failed is repeated without a
/// gap or a repetition. Avro and text files are readable at any time; a Parquet file is complete after
/// [`Sink::sync`].
pub struct FileSink {
    name: String,
    path: PathBuf,
    file: File,
    encoder: Box<dyn SinkEncoder>,
    fields: usize,
    /// Length of the file without the trailer and without `encoded`.
    length: u64,
    /// Bytes that follow at `length`.
    encoded: Vec<u8>,
    /// Batches that are not encoded yet, and their size.
    batches: Vec<RecordBatch>,
    batch_bytes: usize,
    /// True if the directory is known to have the file.
    created: bool,
}

impl FileSink {
    /// Opens a file: at a position that [`Sink::sync`] returned, or without one as [`WriteOptions::append`]
    /// says, at its end or emptied.
    ///
    /// Errors: `NotFound` if there is a position but no file, `Conflict` if the file is shorter than the
    /// position, `Invalid` if the format does not support the stream, `Unavailable` if the file cannot be
    /// written.
    pub fn open(
        name: impl Into<String>,
        path: &Path,
        format: &Format,
        schema: &Arc<StreamSchema>,
        writing: &WriteOptions,
        position: Option<&SinkPosition>,
    ) -> Result<Self> {
        let named = |e: Error| e.context(path.display());
        let encoder = encoder(format, schema, writing).map_err(named)?;
        let append = writing.append && format.is_text();
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(position.is_none()).truncate(position.is_none() && !append);
        let file = options.open(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => Error::not_found("no such file").with_source(e),
            _ => unwritable(e),
        });
        let mut sink = Self {
            name: name.into(),
            path: path.to_owned(),
            file: file.map_err(named)?,
            encoder,
            fields: schema.fields.len(),
            length: 0,
            encoded: vec![],
            batches: vec![],
            batch_bytes: 0,
            created: position.is_some(),
        };
        match position {
            Some(position) => sink.resume(position),
            None => sink.begin(),
        }
        .map_err(named)?;
        Ok(sink)
    }

    /// Begins after the existing content, with a header if the file is empty.
    fn begin(&mut self) -> Result<()> {
        self.length = self.file.metadata().map_err(unwritable)?.len();
        if self.length == 0 {
            self.encoded = self.encoder.header()?;
        }
        Ok(())
    }

    /// Cuts the file at a position.
    fn resume(&mut self, position: &SinkPosition) -> Result<()> {
        let Some((length, trailer)) = position.0.split_first_chunk::<8>() else {
            return Err(Error::corrupt("the position of a file has fewer than 8 bytes"));
        };
        let length = u64::from_le_bytes(*length);
        let found = self.file.metadata().map_err(unwritable)?.len();
        if found < length {
            return Err(Error::conflict(format!(
                "the file has {found} bytes, but {length} were written: restore it, or move it away to begin a new one"
            )));
        }
        let mut header =
            vec![0; usize::try_from(length).unwrap_or(usize::MAX).min(self.encoder.header_bytes_max())];
        self.file.read_exact_at(&mut header, 0).map_err(unwritable)?;
        self.encoder.resume(&header, trailer)?;
        self.file.set_len(length).map_err(unwritable)?;
        self.file.write_all_at(trailer, length).map_err(unwritable)?;
        self.length = length;
        Ok(())
    }

    fn encode(&mut self) -> Result<()> {
        if !self.batches.is_empty() {
            let offset = self.length + self.encoded.len() as u64;
            self.encoder.encode(&self.batches, offset, &mut self.encoded)?;
            self.batches.clear();
            self.batch_bytes = 0;
        }
        Ok(())
    }

    fn write_encoded(&mut self) -> Result<()> {
        if !self.encoded.is_empty() {
            self.file.write_all_at(&self.encoded, self.length).map_err(unwritable)?;
            self.length += self.encoded.len() as u64;
            self.encoded.clear();
        }
        Ok(())
    }

    fn flush_file(&mut self) -> Result<()> {
        if !self.encoder.wants_large_batches() {
            self.encode()?;
        }
        self.write_encoded()
    }

    fn sync_file(&mut self) -> Result<SinkPosition> {
        self.encode()?;
        self.write_encoded()?;
        let trailer = self.encoder.trailer(self.length)?;
        self.file.write_all_at(&trailer, self.length).map_err(unwritable)?;
        self.file.set_len(self.length + trailer.len() as u64).map_err(unwritable)?;
        self.file.sync_data().map_err(unwritable)?;
        if !self.created {
            let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
            let dir = File::open(dir.unwrap_or(Path::new("."))).map_err(unwritable)?;
            dir.sync_all().map_err(unwritable)?;
            self.created = true;
        }
        Ok(SinkPosition([&self.length.to_le_bytes()[..], &trailer].concat()))
    }
}

impl Sink for FileSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = only_declared(batch, self.fields).map_err(|e| e.context(self.path.display()))?;
        if batch.num_rows() == 0 {
            return Ok(());
        }
        self.batch_bytes += batch.get_array_memory_size();
        self.batches.push(batch);
        let large = self.encoder.wants_large_batches();
        if self.batch_bytes >= if large { ENCODE_BYTES_LARGE } else { ENCODE_BYTES } {
            self.encode().map_err(|e| e.context(self.path.display()))?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.flush_file().map_err(|e| e.context(self.path.display()))
    }

    fn sync(&mut self) -> Result<SinkPosition> {
        self.sync_file().map_err(|e| e.context(self.path.display()))
    }

    fn close(mut self: Box<Self>) -> Result<SinkPosition> {
        self.sync()
    }

    fn buffered_bytes(&self) -> usize {
        self.batch_bytes + self.encoded.len()
    }
}
