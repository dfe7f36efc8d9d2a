//! Portals: statements with their values, of whose rows a client takes some at a time. Cursors are portals that SQL has named.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::{BufMut, BytesMut};
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt};
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use tidemill_database::Parameter;

use crate::error::{PgError, Result};
use crate::messages::input::Format;
use crate::messages::output::{self, format_at};
use crate::statement::Prepared;
use crate::values::column::Column;
use crate::values::encode::{ColumnEncoder, Style};

/// A statement with its values, and how far its rows were taken.
pub(crate) struct Portal {
    pub statement: Arc<Prepared>,
    /// Values of the parameters.
    pub values: Vec<Parameter>,
    /// Formats of the columns.
    pub formats: Vec<Format>,
    pub rows: PortalRows,
    /// True for a cursor that stays after its transaction.
    pub is_held: bool,
    /// Tag of an `INSERT`, whose events are checked before its rows are taken.
    pub tag: Option<String>,
}

/// Progress of a portal.
pub(crate) enum PortalRows {
    NotStarted,
    Open(Box<OpenRows>),
    /// All rows were taken, or the statement has failed.
    Ended,
}

/// Rows of a statement that runs. Dropping it cancels the statement.
pub(crate) struct OpenRows {
    pub columns: Arc<[Column]>,
    formats: Vec<Format>,
    zone: TimeZone,
    /// Never locked: it makes the rows shareable, as connections are while they wait.
    batches: Mutex<BoxStream<'static, tidemill_types::Result<RecordBatch>>>,
    current: Option<EncodedBatch>,
    /// True if rows come without an end, so that a client waits for those that are there.
    pub is_endless: bool,
    /// Text of the statement, in which errors have their places.
    text: Arc<str>,
}

/// A batch whose rows are written one after the other.
struct EncodedBatch {
    arrays: RecordBatch,
    columns: Vec<ColumnEncoder>,
    next: usize,
    rows: usize,
}

impl Portal {
    pub fn new(statement: Arc<Prepared>, values: Vec<Parameter>, formats: Vec<Format>) -> Self {
        Self { statement, values, formats, rows: PortalRows::NotStarted, is_held: false, tag: None }
    }

    /// Returns the bytes of its values, with which it is counted.
    pub fn bytes(&self) -> usize {
        size_of_val(self.values.as_slice()) + self.values.iter().map(Parameter::bytes).sum::<usize>()
    }
}

impl OpenRows {
    /// Creates rows that the client knows as `columns`.
    pub fn new(
        columns: Arc<[Column]>,
        formats: Vec<Format>,
        zone: TimeZone,
        batches: BoxStream<'static, tidemill_types::Result<RecordBatch>>,
        text: &str,
    ) -> Self {
        Self {
            columns,
            formats,
            zone,
            batches: Mutex::new(batches),
            current: None,
            is_endless: false,
            text: text.into(),
        }
    }

    /// Waits until there is a row to take. Returns false after the last one. May be dropped at any time.
    ///
    /// Errors: the statement fails; a value cannot be written.
    pub async fn fill(&mut self) -> Result<bool> {
        loop {
            if self.has_row() {
                return Ok(true);
            }
            self.current = None;
            match self.batches.get_mut().next().await {
                None => return Ok(false),
                Some(Err(error)) => return Err(PgError::of_database(&error, &self.text)),
                Some(Ok(batch)) => self.current = Some(self.encoded(&batch)?),
            }
        }
    }

    /// Takes the rows that the statement has made, without waiting. Returns whether there is a row to take.
    ///
    /// Errors: as [`Self::fill`].
    pub fn fill_now(&mut self) -> Result<bool> {
        // nothing is lost: it may be dropped at any time
        self.fill().now_or_never().unwrap_or(Ok(false))
    }

    fn encoded(&self, batch: &RecordBatch) -> Result<EncodedBatch> {
        let columns =
            batch.columns().iter().zip(self.columns.iter()).enumerate().map(|(at, (array, column))| {
                let style = Style { format: format_at(&self.formats, at), zone: self.zone.clone() };
                let encoder = ColumnEncoder::new(array, column.ty, style);
                encoder.map_err(|error| PgError {
                    message: format!("column \"{}\": {}", column.name, error.message),
                    ..error
                })
            });
        let columns = columns.collect::<Result<_>>()?;
        Ok(EncodedBatch { arrays: batch.clone(), columns, next: 0, rows: batch.num_rows() })
    }

    /// Writes the batches that follow, and the present one, in these formats.
    ///
    /// Errors: a value cannot be written.
    pub fn set_formats(&mut self, formats: &[Format]) -> Result<()> {
        if self.formats != formats {
            self.formats = formats.to_vec();
            if let Some(batch) = self.current.take() {
                let EncodedBatch { arrays, next, .. } = batch;
                self.current = Some(EncodedBatch { next, ..self.encoded(&arrays)? });
            }
        }
        Ok(())
    }

    /// Returns whether there is a row that can be taken at once.
    pub fn has_row(&self) -> bool {
        self.current.as_ref().is_some_and(|batch| batch.next < batch.rows)
    }

    /// Takes the next row, if there is one at once, and has `write` write it.
    fn take<T>(&mut self, write: impl FnOnce(&[ColumnEncoder], usize) -> T) -> Option<T> {
        let batch = self.current.as_mut().filter(|batch| batch.next < batch.rows)?;
        batch.next += 1;
        Some(write(&batch.columns, batch.next - 1))
    }

    /// Skips the next row.
    pub fn skip_row(&mut self) {
        self.take(|_, _| ());
    }

    /// Appends the next row as `DataRow`.
    ///
    /// Errors: it cannot be written; nothing is appended then.
    pub fn put_row(&mut self, out: &mut BytesMut) -> Result<()> {
        let written = self.take(|columns, row| {
            let before = out.len();
            let start = output::begin(out, b'D');
            // there are at most 32,767 columns
            out.put_u16(columns.len() as u16);
            let written = columns.iter().try_for_each(|column| column.encode(row, out));
            if written.is_err() {
                out.truncate(before);
            }
            written.and_then(|()| output::end(out, start))
        });
        written.unwrap_or(Ok(()))
    }

    /// Writes the next row by `write`, which gets the columns and the number of the row in its batch.
    ///
    /// Errors: those of `write`.
    pub fn write_row(&mut self, write: impl FnOnce(&[ColumnEncoder], usize) -> Result<()>) -> Result<()> {
        self.take(write).unwrap_or(Ok(()))
    }
}
