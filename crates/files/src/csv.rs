//! Reader of CSV.

use std::io::Read;
use std::sync::Arc;

use csv::{ByteRecord, StringRecord};
use tidemill_connect::SourceBatch;
use tidemill_types::decode::CellTarget;
use tidemill_types::{
    Error, Result, RowDecoder, RowOrigin, StreamSchema, Timestamp, did_you_mean, header_targets,
};

use crate::error::unreadable;
use crate::event_reader::{EventReader, of_rows};
use crate::options::{Dialect, READ_BYTES, ReadOptions};

/// Positions are numbers of records, without the header.
pub(crate) struct CsvReader {
    input: csv::Reader<Box<dyn Read + Send>>,
    decoder: RowDecoder,
    /// What becomes of each column of the file.
    columns: Vec<CellTarget>,
    options: ReadOptions,
    record: ByteRecord,
    /// Number of the next record.
    number: u64,
    /// Error that ended reading while rows were decoded that are returned before it.
    failed: Option<Error>,
    /// Position after the rows returned so far.
    returned: u64,
}

impl CsvReader {
    /// Reads the header, if any. Errors: it cannot be read or lacks fields.
    pub(crate) fn new(
        input: Box<dyn Read + Send>,
        header: bool,
        delimiter: u8,
        schema: &Arc<StreamSchema>,
        options: ReadOptions,
    ) -> Result<Self> {
        let mut builder = csv::ReaderBuilder::new();
        builder.flexible(true).has_headers(header).delimiter(delimiter).buffer_capacity(READ_BYTES);
        let mut input = builder.from_reader(input);
        let columns = if header {
            let names = input.headers().map_err(csv_error)?;
            match options.dialect {
                Dialect::Plain => header_targets(schema, names.iter())?,
                Dialect::Siddhi => all_fields(schema, names)?,
            }
        } else {
            (0..schema.fields.len()).map(CellTarget::Field).collect()
        };
        Ok(Self {
            input,
            decoder: RowDecoder::new(std::slice::from_ref(schema), None),
            columns,
            options,
            record: ByteRecord::new(),
            number: 0,
            failed: None,
            returned: options.start,
        })
    }

    /// Decodes a record and returns it for the next one.
    fn push(&mut self, record: ByteRecord, now: Timestamp) -> ByteRecord {
        let (line, offset) = record.position().map_or((None, None), |p| (Some(p.line()), Some(p.byte())));
        let origin = RowOrigin { number: self.number, line, offset };
        match StringRecord::from_byte_record(record) {
            Ok(text) => {
                self.decoder.push_text(origin, &self.columns, text.len(), text.iter(), now);
                text.into_byte_record()
            }
            Err(e) => {
                let message = format!("column {} is not UTF-8", e.utf8_error().field() + 1);
                let record = e.into_byte_record();
                let text: Vec<&[u8]> = record.iter().collect();
                self.decoder.reject(origin, message, &text.join(&b","[..]));
                record
            }
        }
    }

    fn finish(&mut self) -> SourceBatch {
        self.returned = self.number;
        of_rows(self.decoder.finish(), self.number)
    }
}

impl EventReader for CsvReader {
    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>> {
        if let Some(e) = self.failed.take() {
            return Err(e);
        }
        let begins = self.input.position().byte();
        let mut record = std::mem::take(&mut self.record);
        loop {
            match self.input.read_byte_record(&mut record) {
                Ok(true) => {
                    if self.number >= self.options.start {
                        record = self.push(record, now);
                    }
                    self.number += 1;
                }
                Ok(false) if self.number > self.returned => break,
                Ok(false) => return Ok(None),
                Err(e) if self.decoder.rows_read() > 0 => {
                    self.failed = Some(csv_error(e));
                    break;
                }
                Err(e) => return Err(csv_error(e)),
            }
            let bytes = self.input.position().byte() - begins;
            let rows = self.decoder.rows_read();
            if rows >= self.options.batch_rows || (rows > 0 && bytes >= self.options.batch_bytes as u64) {
                break;
            }
        }
        self.record = record;
        Ok(Some(self.finish()))
    }
}

/// Maps the columns of a header that has to name all fields. Errors: it lacks one.
fn all_fields(schema: &StreamSchema, names: &StringRecord) -> Result<Vec<CellTarget>> {
    if let Some(missing) = schema.fields.iter().find(|f| names.iter().all(|name| name != f.name)) {
        let hint = did_you_mean(&missing.name, names);
        return Err(Error::invalid(format!("there is no column `{}`{hint}", missing.name)));
    }
    let target = |name: &str| schema.field_index(name).map_or(CellTarget::Ignored, CellTarget::Field);
    Ok(names.iter().map(target).collect())
}

fn csv_error(e: csv::Error) -> Error {
    let message = e.to_string();
    match e.into_kind() {
        csv::ErrorKind::Io(e) => unreadable(e),
        _ => Error::invalid(message),
    }
}
