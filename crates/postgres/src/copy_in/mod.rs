//! Rows of `COPY … FROM STDIN`: text, CSV and the binary format, whose records may begin and end anywhere in messages.
//!
//! ```text
//! messages ── bytes ──▶ records (lines, tuples) ──▶ values by the type of their field ──▶ rows that are checked ──▶ batches
//! ```

mod binary;
mod fields;
mod lines;
mod value;

use bytes::BytesMut;
use jiff::tz::TimeZone;
use tidemill_database::{BadRows, OpenStream};
use tidemill_types::decode::CellValue;
use tidemill_types::{BadRow, DecodedRows, Field, RowDecoder, RowOrigin};

use crate::command::{CopyFormat, CopyOptions};
use crate::error::{PgError, Result, code};
use binary::Tuples;
use fields::Fields;
use lines::Lines;

/// Rows and bytes from which on a batch is taken.
const BATCH_ROWS: usize = 16_384;
const BATCH_BYTES: usize = 8 << 20;

/// Decoder of the data of a copy.
pub(crate) struct CopyDecoder {
    options: CopyOptions,
    stream: OpenStream,
    /// Fields of the columns, by index.
    columns: Vec<usize>,
    zone: TimeZone,
    bad_rows: BadRows,
    /// Bytes that are no record yet.
    input: BytesMut,
    /// Maximum bytes of a record.
    record_bytes_max: usize,
    records: CopyRecords,
    fields: Fields,
    rows: RowDecoder,
    /// Records so far, the header not counted.
    count: u64,
    batch_bytes: usize,
    has_header: bool,
}

enum CopyRecords {
    Lines(Lines),
    Tuples(Tuples),
}

/// Column that does not fit, if it is one column, and the reason.
type RecordError = (Option<String>, PgError);

impl CopyDecoder {
    pub fn new(
        options: CopyOptions,
        stream: OpenStream,
        columns: Vec<usize>,
        zone: TimeZone,
        bad_rows: BadRows,
        record_bytes_max: usize,
    ) -> Self {
        let records = match options.format {
            CopyFormat::Binary => CopyRecords::Tuples(Tuples::default()),
            CopyFormat::Text => CopyRecords::Lines(Lines::default()),
            CopyFormat::Csv => CopyRecords::Lines(Lines::of_csv(options.quote, options.escape)),
        };
        let rows = RowDecoder::new(std::slice::from_ref(&stream.schema), None);
        let has_header = options.has_header;
        let (input, fields) = (BytesMut::new(), Fields::default());
        let (count, batch_bytes) = (0, 0);
        Self {
            options,
            stream,
            columns,
            zone,
            bad_rows,
            input,
            record_bytes_max,
            records,
            fields,
            rows,
            count,
            batch_bytes,
            has_header,
        }
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.columns.len()
    }

    /// Decodes more data.
    ///
    /// Errors: it is not in the format; a row does not fit, unless bad rows are kept.
    pub fn feed(&mut self, data: &[u8]) -> Result<()> {
        self.input.extend_from_slice(data);
        self.decode(false)?;
        match self.input.len() > self.record_bytes_max {
            true => Err(self.located(PgError::new(
                code::TOO_LARGE,
                format!("a row of more than {} bytes", self.record_bytes_max),
            ))),
            false => Ok(()),
        }
    }

    /// Decodes the rest.
    ///
    /// Errors: as [`Self::feed`]; the data ends inside of a record.
    pub fn finish(&mut self) -> Result<()> {
        self.decode(true)
    }

    /// Returns whether the rows should be taken.
    pub fn is_full(&self) -> bool {
        self.rows.rows_read() >= BATCH_ROWS || self.batch_bytes >= BATCH_BYTES
    }

    /// Takes the rows that were decoded.
    ///
    /// Errors: the first that does not fit, unless bad rows are kept.
    pub fn take(&mut self) -> Result<DecodedRows> {
        self.batch_bytes = 0;
        let rows = self.rows.finish();
        match rows.rejected.first().filter(|_| self.bad_rows == BadRows::Refuse) {
            None => Ok(rows),
            Some(bad) => Err(self.refusal(bad)),
        }
    }

    fn decode(&mut self, is_end: bool) -> Result<()> {
        loop {
            let record = match &mut self.records {
                CopyRecords::Lines(lines) => lines.next(&mut self.input, is_end),
                CopyRecords::Tuples(tuples) => tuples.next(&mut self.input, is_end),
            };
            let Some(record) = record.map_err(|error| self.located(error))? else { return Ok(()) };
            self.batch_bytes += record.len();
            if std::mem::take(&mut self.has_header) {
                self.check_header(&record).map_err(|error| self.located(error))?;
                continue;
            }
            let line = self.line();
            let pushed = self.push(&record, line);
            let number = self.count;
            self.count += 1;
            let Err(failed) = pushed else { continue };
            let (column, error) = *failed;
            if self.bad_rows == BadRows::Keep {
                let text: &[u8] = if self.is_binary() { b"" } else { &record };
                let origin = RowOrigin { number, line: Some(line), offset: None };
                self.rows.reject(origin, reason(column.as_deref(), &error), text);
                continue;
            }
            // a row before it may not have fitted
            self.take()?;
            return Err(self.placed(error, column.as_deref(), line));
        }
    }

    fn is_binary(&self) -> bool {
        self.options.format == CopyFormat::Binary
    }

    /// Returns the number of the present line, from 1; of a tuple in the binary format.
    fn line(&self) -> u64 {
        match &self.records {
            CopyRecords::Lines(lines) => lines.number(),
            CopyRecords::Tuples(_) => self.count + 1,
        }
    }

    /// Adds a record to the rows.
    ///
    /// Errors: the first column that does not fit, and why.
    fn push(&mut self, record: &[u8], line: u64) -> Result<(), Box<RecordError>> {
        let (format, columns) = (self.options.format, &self.columns);
        let schema = &self.stream.schema;
        let name = |column: usize| columns.get(column).map(|at| schema.fields[*at].name.clone());
        self.fields.split(record, &self.options).map_err(|error| Box::new((None, error)))?;
        let found = self.fields.len();
        if found != columns.len() {
            return Err(Box::new(match format {
                CopyFormat::Binary => (
                    None,
                    PgError::new(
                        code::BAD_COPY,
                        format!("row field count is {found}, expected {}", columns.len()),
                    ),
                ),
                _ if found > columns.len() => {
                    (None, PgError::new(code::BAD_COPY, "extra data after last expected column"))
                }
                _ => {
                    let missing = name(found).unwrap_or_default();
                    (None, PgError::new(code::BAD_COPY, format!("missing data for column \"{missing}\"")))
                }
            }));
        }
        let mut cells: Vec<(&str, CellValue<'_>)> = Vec::with_capacity(found);
        for (column, at) in columns.iter().enumerate() {
            let field: &Field = &schema.fields[*at];
            let Some(bytes) = self.fields.get(record, column) else { continue };
            let value = match format {
                CopyFormat::Binary => value::of_binary(bytes, field),
                CopyFormat::Text | CopyFormat::Csv => value::of_text(bytes, field, &self.zone),
            };
            cells.push((&field.name, value.map_err(|error| Box::new((name(column), error)))?));
        }
        let text: &[u8] = if format == CopyFormat::Binary { b"" } else { record };
        let origin = RowOrigin { number: self.count, line: Some(line), offset: None };
        self.rows.push_cells(origin, 0, cells, (self.stream.clock)(), text);
        Ok(())
    }

    /// Checks the names of a header, if they have to be those of the columns.
    fn check_header(&mut self, record: &[u8]) -> Result<()> {
        if !self.options.matches_header {
            return Ok(());
        }
        self.fields.split(record, &self.options)?;
        if self.fields.len() != self.columns.len() {
            return Err(PgError::new(
                code::BAD_COPY,
                format!(
                    "wrong number of fields in header line: got {}, expected {}",
                    self.fields.len(),
                    self.columns.len()
                ),
            ));
        }
        for (column, at) in self.columns.iter().enumerate() {
            let (found, expected) = (self.fields.get(record, column), &self.stream.schema.fields[*at].name);
            if found != Some(expected.as_bytes()) {
                let found = String::from_utf8_lossy(found.unwrap_or_default()).into_owned();
                return Err(PgError::new(
                    code::BAD_COPY,
                    format!(
                        "column name mismatch in header line field {}: got \"{found}\", expected \"{expected}\"",
                        column + 1
                    ),
                ));
            }
        }
        Ok(())
    }

    fn located(&self, error: PgError) -> PgError {
        self.placed(error, None, self.line())
    }

    /// Returns the error with the line and the column, as PostgreSQL tells them.
    fn placed(&self, error: PgError, column: Option<&str>, line: u64) -> PgError {
        let column = column.map_or(String::new(), |column| format!(", column {column}"));
        error.with_context(format!("COPY {}, line {line}{column}", self.stream.schema.name))
    }

    fn refusal(&self, bad: &BadRow) -> PgError {
        // the message begins with the field
        let column = bad.message.strip_prefix("field `").and_then(|rest| rest.split(['`', '.', '[']).next());
        let error =
            PgError::of_database(&tidemill_types::Error::invalid(format!("row 1: {}", bad.message)), "");
        let error = PgError { message: bad.message.clone(), ..error };
        self.placed(error, column, bad.origin.line.unwrap_or(bad.origin.number + 1))
    }
}

fn reason(column: Option<&str>, error: &PgError) -> String {
    match column {
        Some(column) => format!("field `{column}`: {}", error.message),
        None => error.message.clone(),
    }
}

#[cfg(test)]
mod tests;
