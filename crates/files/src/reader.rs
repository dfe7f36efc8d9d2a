//! Reading: batches of the valid rows, and separately the rejected ones.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use flate2::read::MultiGzDecoder;
use tidemill_types::{Error, ErrorKind, Result, StreamSchema};

use crate::avro::AvroReader;
use crate::csv::CsvReader;
use crate::format::Format;
use crate::json_lines::JsonReader;

/// Read size in bytes.
pub(crate) const READ_BYTES: usize = 256 << 10;
/// Maximum number of bytes stored of a rejected row.
const BAD_TEXT_BYTES_MAX: usize = 1024;

/// Settings for reading files.
#[derive(Debug, Clone, Copy)]
pub struct ReadOptions {
    /// Maximum number of rows of a batch.
    pub batch_rows: usize,
    /// Size in bytes after which a batch of JSON or CSV ends even if it has fewer rows.
    pub batch_bytes: usize,
    /// Whether a JSON object that lacks a field is rejected; otherwise the field is null.
    pub complete: bool,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self { batch_rows: 4096, batch_bytes: 4 << 20, complete: false }
    }
}

/// A rejected row, or block of rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadRow {
    /// Line number, from 1; `None` in formats without lines.
    pub line: Option<u64>,
    /// Position in bytes from the start of the file (of the decompressed content, if the file is compressed).
    pub offset: u64,
    /// Description of the fault.
    pub message: String,
    /// Beginning of the row in text formats, otherwise empty.
    pub text: String,
}

impl BadRow {
    pub(crate) fn of_line(line: u64, offset: u64, message: impl fmt::Display, text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(&text[..text.len().min(BAD_TEXT_BYTES_MAX)]).into_owned();
        Self { line: Some(line), offset, message: message.to_string(), text }
    }
}

impl fmt::Display for BadRow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(line) = self.line {
            write!(f, "line {line}, ")?;
        }
        write!(f, "byte {}: {}", self.offset, self.message)
    }
}

/// Reader of one format.
pub(crate) trait EventReader: Send {
    /// Returns the next batch; `None` at the end. Errors: the reason why reading cannot continue.
    fn next(&mut self) -> Result<Option<RecordBatch>>;
    /// Returns the rows rejected since the last call.
    fn take_rejected(&mut self) -> Vec<BadRow>;
}

/// Batches of a file. Their columns are the fields of the stream, in order, with the types of
/// [`tidemill_types::FieldType::arrow`].
///
/// Rejected rows are omitted and available from [`Reader::take_rejected`]; an error ends reading.
pub struct Reader {
    batches: Box<dyn EventReader>,
    done: bool,
}

impl Reader {
    /// Returns the rows rejected since the last call, in file order.
    pub fn take_rejected(&mut self) -> Vec<BadRow> {
        self.batches.take_rejected()
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.batches.next().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("done", &self.done).finish_non_exhaustive()
    }
}

/// Opens a file. Text files ending in `.gz` are decompressed.
///
/// Errors: the file cannot be opened, has another format, lacks a field, or has a field of an incompatible
/// type.
pub fn open(
    path: &Path,
    format: &Format,
    schema: &Arc<StreamSchema>,
    reading: ReadOptions,
) -> Result<Reader> {
    let named = |e: Error| e.context(path.display());
    let file = File::open(path).map_err(|e| named(unreadable(e)))?;
    if *format == Format::Parquet {
        return parquet(file, schema, reading).map_err(named);
    }
    let gz = format.is_text() && path.extension().is_some_and(|e| e == "gz");
    let input: Box<dyn Read + Send> = if gz {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(READ_BYTES, file)))
    } else {
        Box::new(file)
    };
    let batches = batches(input, format, schema, reading).map_err(named)?;
    Ok(Reader { batches: Box::new(WithFileName { path: path.display().to_string(), batches }), done: false })
}

/// Reads events from any input except Parquet, which needs a file: [`open`].
///
/// Errors: those of [`open`].
pub fn read(
    input: impl Read + Send + 'static,
    format: &Format,
    schema: &Arc<StreamSchema>,
    reading: ReadOptions,
) -> Result<Reader> {
    Ok(Reader { batches: batches(Box::new(input), format, schema, reading)?, done: false })
}

fn batches(
    input: Box<dyn Read + Send>,
    format: &Format,
    schema: &Arc<StreamSchema>,
    reading: ReadOptions,
) -> Result<Box<dyn EventReader>> {
    let reading = ReadOptions { batch_rows: reading.batch_rows.max(1), ..reading };
    Ok(match format {
        Format::Avro(_) => Box::new(AvroReader::new(input, schema, reading)?),
        Format::Json => Box::new(JsonReader::new(input, schema, reading)),
        Format::Csv { header, delimiter } => {
            Box::new(CsvReader::new(input, *header, *delimiter, schema, reading)?)
        }
        Format::Parquet => return Err(Error::invalid("Parquet is read from files only")),
    })
}

#[cfg(feature = "parquet")]
fn parquet(file: File, schema: &Arc<StreamSchema>, reading: ReadOptions) -> Result<Reader> {
    let batches = crate::parquet::ParquetReader::new(file, schema, reading)?;
    Ok(Reader { batches: Box::new(batches), done: false })
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: File, _: &Arc<StreamSchema>, _: ReadOptions) -> Result<Reader> {
    Err(Error::invalid("Parquet was left out of this build: it needs the feature `parquet`"))
}

/// Prepends the file name to errors.
struct WithFileName {
    path: String,
    batches: Box<dyn EventReader>,
}

impl EventReader for WithFileName {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        self.batches.next().map_err(|e| e.context(&self.path))
    }

    fn take_rejected(&mut self) -> Vec<BadRow> {
        self.batches.take_rejected()
    }
}

pub(crate) fn unreadable(e: std::io::Error) -> Error {
    let kind = match e.kind() {
        std::io::ErrorKind::NotFound => ErrorKind::NotFound,
        // Decompressors report damage with these kinds.
        std::io::ErrorKind::InvalidInput | std::io::ErrorKind::InvalidData => ErrorKind::Corrupt,
        std::io::ErrorKind::UnexpectedEof => ErrorKind::Corrupt,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, "cannot be read").with_source(e)
}
