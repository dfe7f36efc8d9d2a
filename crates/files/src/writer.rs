//! Writing files of events.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_avro::compression::CompressionCodec;
use arrow_avro::writer::AvroWriter;
use arrow_schema::{Field as ArrowField, Schema};
use tidemill_types::{Error, Result, StreamSchema};

use crate::error::unwritable;
use crate::event_writer::{EventWriter, FileOutput, WRITE_BYTES};
#[cfg(feature = "parquet")]
use crate::fields::declared;
use crate::fields::row_bytes;
use crate::format::{Codec, Format};
use crate::formats::text::{CsvWriter, JsonWriter};

/// Size of an uncompressed Avro block in bytes, similar to that of Avro's own libraries.
const BLOCK_BYTES: usize = 64_000;
/// Metadata key of the name of an Avro record.
const RECORD_NAME: &str = "avro.name";

/// Settings for writing files.
#[derive(Debug, Clone, Default)]
pub struct WriteOptions {
    /// True if lines are appended to an existing file; otherwise it is overwritten. Containers are always
    /// overwritten.
    pub append: bool,
    /// Key of an object around each event, in JSON.
    pub envelope: Option<String>,
    /// True if no field is ever null; an Avro container then declares its fields as required.
    pub complete: bool,
}

/// A file that is written batch by batch. It is complete only after [`EventFileWriter::finish`] has succeeded.
pub struct EventFileWriter {
    rows: Box<dyn EventWriter>,
    columns: usize,
    /// File name for errors; `None` for other outputs.
    path: Option<String>,
}

impl EventFileWriter {
    /// Creates a file, or opens it for appending.
    ///
    /// Errors: `Unavailable` if the file cannot be opened, `Invalid` if the format does not support the
    /// stream.
    pub fn create(
        path: &Path,
        format: &Format,
        schema: &Arc<StreamSchema>,
        writing: &WriteOptions,
    ) -> Result<Self> {
        let named = |e: Error| e.context(path.display());
        let append = writing.append && format.is_text();
        let mut options = OpenOptions::new();
        options.create(true).write(true).append(append).truncate(!append);
        let file = options.open(path).map_err(|e| named(unwritable(e)))?;
        // A header appears only at the top of a file.
        let begun = append && file.metadata().is_ok_and(|m| m.len() > 0);
        let format = match format {
            Format::Csv { delimiter, .. } if begun => Format::Csv { header: false, delimiter: *delimiter },
            other => other.clone(),
        };
        let mut writer = Self::new(file, &format, schema, writing).map_err(named)?;
        writer.path = Some(path.display().to_string());
        Ok(writer)
    }

    /// Writes to any output.
    ///
    /// Errors: those of [`EventFileWriter::create`].
    pub fn new(
        output: impl Write + Send + 'static,
        format: &Format,
        schema: &Arc<StreamSchema>,
        writing: &WriteOptions,
    ) -> Result<Self> {
        let out: FileOutput = BufWriter::with_capacity(WRITE_BYTES, Box::new(output));
        let rows: Box<dyn EventWriter> = match format {
            Format::Avro(codec) => Box::new(AvroEventWriter::new(out, schema, *codec, writing.complete)?),
            Format::Json => Box::new(JsonWriter::new(out, schema, writing.envelope.clone())),
            Format::Csv { header, delimiter } => Box::new(CsvWriter::new(out, schema, *header, *delimiter)?),
            Format::Parquet => parquet(out, schema)?,
        };
        Ok(Self { rows, columns: schema.fields.len(), path: None })
    }

    /// Writes a batch whose first columns are the fields of the stream; ignores further columns.
    ///
    /// Errors: `Unavailable` if the output fails, `Invalid` if the batch has other columns.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let fields: Vec<usize> = (0..self.columns.min(batch.num_columns())).collect();
        let batch = batch.project(&fields).map_err(|e| Error::internal("no columns").with_source(e))?;
        self.rows.write(&batch).map_err(|e| with_file_name(e, self.path.as_deref()))
    }

    /// Writes buffered data and the end of a container.
    ///
    /// Errors: `Unavailable` if the output fails.
    pub fn finish(self) -> Result<()> {
        self.rows.finish().map_err(|e| with_file_name(e, self.path.as_deref()))
    }
}

fn with_file_name(e: Error, path: Option<&str>) -> Error {
    match path {
        Some(path) => e.context(path),
        None => e,
    }
}

impl fmt::Debug for EventFileWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer").finish_non_exhaustive()
    }
}

struct AvroEventWriter {
    out: AvroWriter<FileOutput>,
    schema: Arc<Schema>,
}

impl AvroEventWriter {
    fn new(out: FileOutput, schema: &StreamSchema, codec: Codec, complete: bool) -> Result<Self> {
        let codec = match codec {
            Codec::Null => None,
            Codec::Deflate => Some(CompressionCodec::Deflate),
            Codec::Snappy => Some(CompressionCodec::Snappy),
        };
        let named = [(RECORD_NAME.to_owned(), schema.name.clone())].into_iter().collect();
        let fields = schema.fields.iter().map(|f| ArrowField::new(&f.name, f.ty.arrow(), !complete));
        let arrow = Schema::new(fields.collect::<Vec<_>>()).with_metadata(named);
        let builder = arrow_avro::writer::WriterBuilder::new(arrow.clone()).with_compression(codec);
        let wrong = |e| Error::invalid("the stream cannot be written as Avro").with_source(e);
        // Space for a block, so that the buffer does not grow.
        let out = builder.with_capacity(2 * BLOCK_BYTES).build(out).map_err(wrong)?;
        Ok(Self { out, schema: arrow.into() })
    }
}

impl EventWriter for AvroEventWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = RecordBatch::try_new(self.schema.clone(), batch.columns().to_vec())
            .map_err(|e| Error::invalid("the batch has other columns than the stream").with_source(e))?;
        let step = (BLOCK_BYTES / row_bytes(&batch).max(1)).max(1);
        for start in (0..batch.num_rows()).step_by(step) {
            let block = batch.slice(start, step.min(batch.num_rows() - start));
            self.out.write(&block).map_err(|e| unwritable(std::io::Error::other(e)))?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.out.finish().map_err(|e| unwritable(std::io::Error::other(e)))
    }
}

#[cfg(feature = "parquet")]
fn parquet(out: FileOutput, schema: &StreamSchema) -> Result<Box<dyn EventWriter>> {
    use parquet::arrow::ArrowWriter;
    use parquet::basic::Compression;
    use parquet::errors::ParquetError;
    use parquet::file::properties::WriterProperties;

    struct ParquetEventWriter(ArrowWriter<FileOutput>);

    fn failed(e: ParquetError) -> Error {
        unwritable(std::io::Error::other(e))
    }

    impl EventWriter for ParquetEventWriter {
        fn write(&mut self, batch: &RecordBatch) -> Result<()> {
            self.0.write(batch).map_err(failed)
        }

        fn finish(self: Box<Self>) -> Result<()> {
            let mut out = self.0.into_inner().map_err(failed)?;
            out.flush().map_err(unwritable)
        }
    }

    let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
    let wrong = |e| Error::invalid("the stream cannot be written as Parquet").with_source(e);
    let writer = ArrowWriter::try_new(out, declared(schema), Some(properties)).map_err(wrong)?;
    Ok(Box::new(ParquetEventWriter(writer)))
}

#[cfg(not(feature = "parquet"))]
fn parquet(_: FileOutput, _: &StreamSchema) -> Result<Box<dyn EventWriter>> {
    Err(Error::invalid("Parquet was left out of this build: it needs the feature `parquet`"))
}
