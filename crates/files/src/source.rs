//! Files as a [`Source`].

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use tidemill_connect::{Source, SourceBatch};
use tidemill_types::{Result, StreamSchema, Timestamp};

use crate::event_reader::EventReader;
use crate::fields::set_event_time;
use crate::formats::line_protocol::LineProtocolReader;
use crate::open::{FileInput, open_reader, text_reader};
use crate::options::{ColumnOptions, ReadOptions};

/// File that is read once, from a position to its end.
///
/// Its positions count lines of JSON and of line protocol, records of CSV, and rows of Avro and Parquet; of Avro, a damaged block
/// counts as one row.
pub struct FileSource {
    name: String,
    path: String,
    reader: Box<dyn EventReader>,
    event_time: Option<usize>,
}

impl FileSource {
    /// Opens a file at the position of the input's options.
    ///
    /// Errors: the file cannot be opened, has another format, lacks a field, or has a field of an
    /// incompatible type.
    pub fn open(name: impl Into<String>, path: &Path, input: &FileInput) -> Result<Self> {
        Ok(Self {
            name: name.into(),
            path: path.display().to_string(),
            reader: open_reader(path, input)?,
            event_time: input.options.event_time,
        })
    }

    /// Reads what `reader` returns at the position of the input's options; `path` names it in messages.
    ///
    /// Errors: those of [`Self::open`]; the format is Parquet, which needs a file.
    pub fn from_reader(
        name: impl Into<String>,
        path: impl Into<String>,
        reader: Box<dyn Read + Send>,
        input: &FileInput,
    ) -> Result<Self> {
        let path = path.into();
        let reader = text_reader(reader, input).map_err(|e| e.context(&path))?;
        Ok(Self { name: name.into(), path, reader, event_time: input.options.event_time })
    }

    /// Reads line protocol from `reader`. Each line is an event of the stream with the name of its measurement.
    ///
    /// Errors: a stream has no time field.
    pub fn line_protocol(
        name: impl Into<String>,
        path: impl Into<String>,
        reader: Box<dyn Read + Send>,
        streams: &[Arc<StreamSchema>],
        options: ReadOptions,
        columns: &ColumnOptions,
    ) -> Result<Self> {
        let reader = Box::new(LineProtocolReader::new(reader, streams, options, columns)?);
        Ok(Self { name: name.into(), path: path.into(), reader, event_time: None })
    }
}

impl Source for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>> {
        let Some(mut batch) = self.reader.next(now).map_err(|e| e.context(&self.path))? else {
            return Ok(None);
        };
        if let Some(field) = self.event_time {
            for (stream, rows) in &mut batch.rows.parts {
                *rows = set_event_time(rows, stream, field, now)?;
            }
        }
        Ok(Some(batch))
    }
}
