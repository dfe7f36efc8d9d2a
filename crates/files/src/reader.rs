//! Reading: batches of the declared fields of the valid rows, and separately the rejected rows.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use tidemill_types::{BadRow, Result, StreamSchema, Timestamp};

use crate::event_reader::EventReader;
use crate::fields::only_declared;
use crate::format::Format;
use crate::open::{FileInput, open_reader, text_reader};
use crate::options::ReadOptions;

/// Batches of a file. Their columns are the fields of the stream, in order, with the types of
/// [`tidemill_types::FieldType::arrow`].
///
/// Rejected rows are omitted and available from [`Reader::take_rejected`]; an error ends reading.
pub struct Reader {
    batches: Box<dyn EventReader>,
    fields: usize,
    rejected: Vec<BadRow>,
    /// File name for errors; `None` for other inputs.
    path: Option<String>,
    done: bool,
}

impl Reader {
    /// Returns the rows rejected since the last call, in file order.
    pub fn take_rejected(&mut self) -> Vec<BadRow> {
        std::mem::take(&mut self.rejected)
    }

    /// Returns the next batch with rows.
    fn read(&mut self) -> Result<Option<RecordBatch>> {
        // The time column is dropped from the output.
        while let Some(batch) = self.batches.next(Timestamp(0))? {
            self.rejected.extend(batch.rejected);
            if let Some((_, batch)) = batch.rows.parts.first() {
                return only_declared(batch, self.fields).map(Some);
            }
        }
        Ok(None)
    }
}

impl Iterator for Reader {
    type Item = Result<RecordBatch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.read().map_err(|e| match &self.path {
            Some(path) => e.context(path),
            None => e,
        });
        let next = next.transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("done", &self.done).finish_non_exhaustive()
    }
}

/// Opens a file of one stream. Text files ending in `.gz` are decompressed.
///
/// Errors: the file cannot be opened, has another format, lacks a field, or has a field of an incompatible
/// type.
pub fn open(
    path: &Path,
    format: &Format,
    schema: &Arc<StreamSchema>,
    reading: ReadOptions,
) -> Result<Reader> {
    let input = FileInput::of_stream(format.clone(), schema.clone(), reading);
    let batches = open_reader(path, &input)?;
    let path = Some(path.display().to_string());
    Ok(Reader { batches, fields: schema.fields.len(), rejected: vec![], path, done: false })
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
    let spec = FileInput::of_stream(format.clone(), schema.clone(), reading);
    let batches = text_reader(Box::new(input), &spec)?;
    Ok(Reader { batches, fields: schema.fields.len(), rejected: vec![], path: None, done: false })
}
