//! Files as a [`Source`].

use std::path::Path;

use tidemill_connect::{Source, SourceBatch};
use tidemill_types::{Result, Timestamp};

use crate::event_reader::EventReader;
use crate::fields::set_event_time;
use crate::open::{FileInput, open_reader};

/// File that is read once, from a position to its end.
///
/// Its positions count lines of JSON, records of CSV, and rows of Avro and Parquet; of Avro, a damaged block
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
