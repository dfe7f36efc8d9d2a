//! An input as a source of the engine.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use tempfile::NamedTempFile;
use tidemill::{Result, StreamSchema, Timestamp};
use tidemill_connect::{Acknowledgement, Source, SourceBatch};
use tidemill_files::{Codec, Dialect, FileInput, FileSource, Format, ReadOptions, decompressed};

use super::LoadFormat;
use super::columns::ColumnArgs;
use super::inputs::{Input, Place};
use super::positions::Plan;
use super::progress::LoadProgress;

/// Rows of a batch: as many as the engine writes into one record.
const BATCH_ROWS: usize = 16_384;
/// Maximum length of a line, in bytes.
const LINE_BYTES_MAX: usize = 16 << 20;

/// A source that shows its progress.
pub struct LoadSource<'a> {
    name: String,
    source: FileSource,
    /// True if its position is stored.
    is_positioned: bool,
    progress: &'a mut LoadProgress,
    /// A Parquet file that was fetched; removed with this.
    _fetched: Option<NamedTempFile>,
}

impl<'a> LoadSource<'a> {
    /// Opens an input.
    ///
    /// Errors: those of [`FileSource::open`].
    pub fn open(
        input: &Input,
        plan: &Plan,
        streams: &[Arc<StreamSchema>],
        columns: &ColumnArgs,
        progress: &'a mut LoadProgress,
    ) -> anyhow::Result<Self> {
        let options = ReadOptions {
            batch_rows: BATCH_ROWS,
            line_bytes_max: LINE_BYTES_MAX,
            dialect: Dialect::Plain,
            start: plan.start.unwrap_or_default(),
            ..ReadOptions::default()
        };
        progress.begin_input(input, options.start);
        let format = match input.format {
            LoadFormat::Csv => Some(Format::Csv { header: true, delimiter: columns.layout().delimiter }),
            LoadFormat::Ndjson => Some(Format::Json),
            LoadFormat::Parquet => Some(Format::Parquet),
            LoadFormat::Avro => Some(Format::Avro(Codec::Null)),
            LoadFormat::LineProtocol => None,
        };
        let mut fetched = None;
        let (name, shown) = (&plan.name, input.to_string());
        let source = match format {
            Some(format) => {
                let columns = columns.options();
                let file =
                    FileInput { format, streams: streams.to_vec(), stream_field: None, options, columns };
                match (&file.format, &input.place) {
                    (Format::Parquet, Place::File(path)) => FileSource::open(name, path, &file)?,
                    (Format::Parquet, _) => {
                        let copy = fetched.insert(fetch(reader(input, progress.bytes())?, &shown)?);
                        FileSource::open(name, copy.path(), &file)?
                    }
                    _ => FileSource::from_reader(name, shown, reader(input, progress.bytes())?, &file)?,
                }
            }
            None => {
                let lines = reader(input, progress.bytes())?;
                FileSource::line_protocol(name, shown, lines, streams, options, &columns.options())?
            }
        };
        let is_positioned = plan.start.is_some();
        Ok(Self { name: plan.name.clone(), source, is_positioned, progress, _fetched: fetched })
    }
}

impl Source for LoadSource<'_> {
    fn name(&self) -> &str {
        &self.name
    }

    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>> {
        let Some(mut batch) = self.source.next(now)? else { return Ok(None) };
        self.progress.add(batch.rows.len() as u64, &batch.rejected);
        if !self.is_positioned {
            // a batch with an acknowledgement and without a split is stored without a position
            batch.acknowledge = Some(Acknowledgement::new(|_| {}));
        }
        Ok(Some(batch))
    }
}

/// Returns a reader of an input, decompressed, that counts the bytes before that.
pub fn reader(input: &Input, bytes: Arc<AtomicU64>) -> anyhow::Result<Box<dyn Read + Send>> {
    let shown = || input.to_string();
    let inner: Box<dyn Read + Send> = match &input.place {
        Place::Stdin => Box::new(io::stdin()),
        Place::File(path) => Box::new(File::open(path).with_context(shown)?),
        Place::Object(object) => Box::new(object.reader()),
    };
    decompressed(Box::new(CountingReader { inner, bytes })).with_context(shown)
}

/// Copies an input into a file: the footer of Parquet is at its end.
pub fn fetch(mut input: Box<dyn Read + Send>, shown: &str) -> anyhow::Result<NamedTempFile> {
    let mut copy = NamedTempFile::new().context("a file for a copy")?;
    io::copy(&mut input, &mut copy)
        .with_context(|| format!("{shown}: copied to {}", copy.path().display()))?;
    Ok(copy)
}

struct CountingReader {
    inner: Box<dyn Read + Send>,
    bytes: Arc<AtomicU64>,
}

impl Read for CountingReader {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(out)?;
        self.bytes.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
