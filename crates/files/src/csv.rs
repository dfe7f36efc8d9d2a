//! Reader of CSV.

use std::io::{BufReader, Read};
use std::sync::Arc;

use arrow_array::RecordBatch;
use csv::ByteRecord;
use tidemill_types::decode::BatchBuilder;
use tidemill_types::{Error, Result, StreamSchema, Timestamp, did_you_mean};

use crate::fields::only_declared;
use crate::reader::{BadRow, EventReader, READ_BYTES, ReadOptions, unreadable};

pub(crate) struct CsvReader {
    input: csv::Reader<BufReader<Box<dyn Read + Send>>>,
    builder: BatchBuilder,
    /// Declared field of each column of the file; `None` for columns to ignore.
    columns: Vec<Option<usize>>,
    fields: usize,
    options: ReadOptions,
    rejected: Vec<BadRow>,
    record: ByteRecord,
}

impl CsvReader {
    /// Reads the header, if any. Errors: it cannot be read or lacks a field.
    pub(crate) fn new(
        input: Box<dyn Read + Send>,
        header: bool,
        delimiter: u8,
        schema: &Arc<StreamSchema>,
        reading: ReadOptions,
    ) -> Result<Self> {
        let input = BufReader::with_capacity(READ_BYTES, input);
        let mut options = csv::ReaderBuilder::new();
        let mut input = options.flexible(true).has_headers(header).delimiter(delimiter).from_reader(input);
        let columns = if header {
            let names = input.headers().map_err(csv_error)?;
            let known: Vec<&str> = names.iter().collect();
            if let Some(missing) = schema.fields.iter().find(|f| !known.contains(&f.name.as_str())) {
                let hint = did_you_mean(&missing.name, known);
                return Err(Error::invalid(format!("there is no column `{}`{hint}", missing.name)));
            }
            known.iter().map(|name| schema.field_index(name)).collect()
        } else {
            (0..schema.fields.len()).map(Some).collect()
        };
        let (builder, fields) = (BatchBuilder::new(schema.clone()), schema.fields.len());
        Ok(Self {
            input,
            builder,
            columns,
            fields,
            options: reading,
            rejected: vec![],
            record: ByteRecord::new(),
        })
    }

    /// Adds the record that was read last to the batch. Errors: the reason why it is rejected.
    fn push(&mut self) -> Result<()> {
        let (found, wanted) = (self.record.len(), self.columns.len());
        if found != wanted {
            return Err(Error::invalid(format!("expected {wanted} columns, found {found}")));
        }
        let mut cells = Vec::with_capacity(found);
        for (number, (cell, field)) in self.record.iter().zip(&self.columns).enumerate() {
            let Some(field) = field else { continue };
            let text = std::str::from_utf8(cell)
                .map_err(|_| Error::invalid(format!("column {} is not UTF-8", number + 1)))?;
            cells.push((Ok(*field), text));
        }
        // The time column is dropped from the output.
        self.builder.push_text(cells.iter().map(|(field, text)| (field, *text)), Timestamp(0))
    }
}

impl EventReader for CsvReader {
    fn next(&mut self) -> Result<Option<RecordBatch>> {
        let begins = self.input.position().byte();
        loop {
            let more = self.input.read_byte_record(&mut self.record).map_err(csv_error)?;
            if more && let Err(e) = self.push() {
                let (line, offset) = self.record.position().map_or((0, 0), |p| (p.line(), p.byte()));
                let text: Vec<&[u8]> = self.record.iter().collect();
                self.rejected.push(BadRow::of_line(line, offset, e, &text.join(&b","[..])));
            }
            let bytes = self.input.position().byte() - begins;
            let full =
                self.builder.len() >= self.options.batch_rows || bytes >= self.options.batch_bytes as u64;
            if !self.builder.is_empty() && (!more || full) {
                return only_declared(&self.builder.finish(), self.fields).map(Some);
            }
            if !more {
                return Ok(None);
            }
        }
    }

    fn take_rejected(&mut self) -> Vec<BadRow> {
        std::mem::take(&mut self.rejected)
    }
}

fn csv_error(e: csv::Error) -> Error {
    let message = e.to_string();
    match e.into_kind() {
        csv::ErrorKind::Io(e) => unreadable(e),
        _ => Error::invalid(message),
    }
}
