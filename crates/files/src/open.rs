//! Opening files: which reader reads which format.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use tidemill_types::{Error, Result, RowDecoder, StreamSchema};

use crate::compression::open_text;
use crate::error::unreadable;
use crate::event_reader::EventReader;
use crate::format::Format;
use crate::formats::avro::AvroReader;
use crate::formats::csv::CsvReader;
use crate::formats::csv_records::CsvLayout;
use crate::formats::json_array::{JsonArrayReader, begins_array};
use crate::formats::json_lines::JsonReader;
use crate::formats::lines::LineReader;
use crate::options::{ColumnOptions, Dialect, ReadOptions};

/// Description of a file to read.
#[derive(Debug, Clone)]
pub struct FileInput {
    /// Format of the file.
    pub format: Format,
    /// Streams of the rows; several only with `stream_field`.
    pub streams: Vec<Arc<StreamSchema>>,
    /// Field of each JSON object that names its stream.
    pub stream_field: Option<String>,
    /// Settings.
    pub options: ReadOptions,
    /// Format and names of the columns.
    pub columns: ColumnOptions,
}

impl FileInput {
    /// Creates the input for a file of one stream.
    pub fn of_stream(format: Format, stream: Arc<StreamSchema>, options: ReadOptions) -> Self {
        Self { format, streams: vec![stream], stream_field: None, options, columns: ColumnOptions::default() }
    }
}

/// Opens a file. Text files ending in `.gz` or `.zst` are decompressed.
///
/// Errors: the file cannot be opened, has another format, lacks a field, or has a field of an incompatible
/// type.
pub(crate) fn open_reader(path: &Path, input: &FileInput) -> Result<Box<dyn EventReader>> {
    let opened = match &input.format {
        Format::Parquet => {
            let file = File::open(path).map_err(|e| unreadable(e).context(path.display()))?;
            single_stream(input).and_then(|stream| parquet(file, stream, input))
        }
        format if format.is_text() => open_text(path).and_then(|file| text_reader(file, input)),
        _ => File::open(path).map_err(unreadable).and_then(|file| text_reader(Box::new(file), input)),
    };
    opened.map_err(|e| e.context(path.display()))
}

/// Creates a reader of any input. Errors: those of [`open_reader`], and the format is Parquet.
pub(crate) fn text_reader(from: Box<dyn Read + Send>, input: &FileInput) -> Result<Box<dyn EventReader>> {
    let options = ReadOptions { batch_rows: input.options.batch_rows.max(1), ..input.options };
    Ok(match &input.format {
        Format::Avro(_) => Box::new(AvroReader::new(from, single_stream(input)?, options, &input.columns)?),
        Format::Csv { header, delimiter } => {
            let layout = CsvLayout { delimiter: *delimiter, quote: input.columns.quote };
            Box::new(CsvReader::new(from, *header, layout, single_stream(input)?, options, &input.columns)?)
        }
        Format::Json => {
            let has_field = input.streams.iter().any(|stream| JsonReader::has_envelope_field(stream));
            let decoder = RowDecoder::new(&input.streams, input.stream_field.as_deref())
                .with_renames(&input.columns.renames);
            let (is_array, from) = match options.dialect {
                // a line may be an array
                Dialect::Siddhi => (false, from),
                Dialect::Plain => begins_array(from)?,
            };
            if is_array {
                return Ok(Box::new(JsonArrayReader::new(from, decoder, options)));
            }
            let lines = LineReader::new(from, options.line_bytes_max);
            Box::new(JsonReader::new(lines, decoder, has_field, options))
        }
        Format::Parquet => return Err(Error::invalid("Parquet is read from files only")),
    })
}

fn single_stream(input: &FileInput) -> Result<&Arc<StreamSchema>> {
    match (input.streams.as_slice(), &input.stream_field) {
        ([stream], None) => Ok(stream),
        _ => Err(Error::invalid("only JSON can hold events of several streams; expected a single stream")),
    }
}

#[cfg(feature = "parquet")]
fn parquet(file: File, schema: &Arc<StreamSchema>, input: &FileInput) -> Result<Box<dyn EventReader>> {
    Ok(Box::new(crate::formats::parquet::ParquetReader::new(file, schema, input.options, &input.columns)?))
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: File, _: &Arc<StreamSchema>, _: &FileInput) -> Result<Box<dyn EventReader>> {
    Err(Error::invalid("Parquet was left out of this build: it needs the feature `parquet`"))
}
