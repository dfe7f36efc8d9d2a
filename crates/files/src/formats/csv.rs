//! Reader of CSV.

use std::io::Read;
use std::sync::Arc;

use csv::{ByteRecord, StringRecord};
use tidemill_connect::SourceBatch;
use tidemill_types::decode::CellTarget;
use tidemill_types::{
    Error, Result, RowDecoder, RowOrigin, StreamSchema, Timestamp, did_you_mean, header_targets,
};

use crate::event_reader::{EventReader, of_rows};
use crate::formats::csv_records::{CsvLayout, CsvRecords};
use crate::options::{ColumnOptions, Dialect, READ_BYTES, ReadOptions};

/// Positions are numbers of records, without the header.
pub(crate) struct CsvReader {
    input: CsvRecords<Box<dyn Read + Send>>,
    decoder: RowDecoder,
    /// Destination of each column of the file.
    columns: Vec<CellTarget>,
    /// Cells that stand for a missing value, as an empty one does.
    nulls: Vec<String>,
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
        layout: CsvLayout,
        schema: &Arc<StreamSchema>,
        options: ReadOptions,
        names_and_nulls: &ColumnOptions,
    ) -> Result<Self> {
        let mut input = CsvRecords::new(input, header, layout, READ_BYTES);
        let columns = if header {
            let names = input.header()?;
            let renamed = names.iter().map(|name| names_and_nulls.renamed(name.trim()));
            let columns = header_targets(schema, renamed)?;
            match options.dialect {
                Dialect::Plain => columns,
                Dialect::Siddhi => all_fields(schema, &names, columns)?,
            }
        } else {
            (0..schema.fields.len()).map(CellTarget::Field).collect()
        };
        Ok(Self {
            input,
            decoder: RowDecoder::new(std::slice::from_ref(schema), None),
            columns,
            nulls: names_and_nulls.nulls.clone(),
            options,
            record: ByteRecord::new(),
            number: 0,
            failed: None,
            returned: options.start,
        })
    }

    /// Decodes a record and returns it for the next one.
    fn push(&mut self, record: ByteRecord, now: Timestamp) -> ByteRecord {
        let (line, offset) = self.input.begin();
        let origin = RowOrigin { number: self.number, line: Some(line), offset: Some(offset) };
        match StringRecord::from_byte_record(record) {
            Ok(text) => {
                let is_null = |cell: &str| self.nulls.iter().any(|null| null == cell);
                let cells = text.iter().map(|cell| if is_null(cell) { "" } else { cell });
                self.decoder.push_text(origin, &self.columns, text.len(), cells, now);
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
        let begins = self.input.bytes_read();
        let mut record = std::mem::take(&mut self.record);
        loop {
            match self.input.read(&mut record) {
                Ok(true) => {
                    if self.number >= self.options.start {
                        record = self.push(record, now);
                    }
                    self.number += 1;
                }
                Ok(false) if self.number > self.returned => break,
                Ok(false) => return Ok(None),
                Err(e) if self.decoder.rows_read() > 0 => {
                    self.failed = Some(e);
                    break;
                }
                Err(e) => return Err(e),
            }
            let bytes = self.input.bytes_read() - begins;
            let rows = self.decoder.rows_read();
            if rows >= self.options.batch_rows || (rows > 0 && bytes >= self.options.batch_bytes as u64) {
                break;
            }
        }
        self.record = record;
        Ok(Some(self.finish()))
    }
}

/// Returns the columns of a header that has to name all fields; other columns are ignored. Errors: a field is
/// missing.
fn all_fields(
    schema: &StreamSchema,
    names: &StringRecord,
    columns: Vec<CellTarget>,
) -> Result<Vec<CellTarget>> {
    let is_named = |index: &usize| columns.contains(&CellTarget::Field(*index));
    if let Some(missing) = (0..schema.fields.len()).find(|index| !is_named(index)) {
        let name = &schema.fields[missing].name;
        let hint = did_you_mean(name, names);
        return Err(Error::invalid(format!("there is no column `{name}`{hint}")));
    }
    let used = |target| if matches!(target, CellTarget::Extra(_)) { CellTarget::Ignored } else { target };
    Ok(columns.into_iter().map(used).collect())
}
