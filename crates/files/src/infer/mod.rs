//! Fields and types of files whose stream is not declared yet, from their first rows.

mod declaration;
mod field_names;

#[cfg(feature = "parquet")]
use std::fs::File;
use std::io::{BufReader, Read};

use arrow_schema::{FieldRef, Schema};
use influxdb_line_protocol::{FieldValue, parse_lines};
#[cfg(feature = "parquet")]
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use serde_json::{Map, Value};
use tidemill_types::{Error, Field, Result, check_repeated};

use crate::fit::Column;
use crate::formats::csv_records::{CsvLayout, CsvRecords};
use crate::formats::json_array::{ArrayElements, begins_array};
use crate::formats::lines::LineReader;
use crate::guess::Guess;
use crate::options::{ColumnOptions, READ_BYTES};
use field_names::FieldNames;

/// Longest line that is looked at, in bytes.
const LINE_BYTES_MAX: usize = 16 << 20;

/// A stream that would hold the rows of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InferredStream {
    /// Its name, where the rows have one.
    pub name: Option<String>,
    /// Its fields, in the order of their first appearance.
    pub fields: Vec<Field>,
    /// Names in the rows that no field can have, each with the name of its field.
    pub renames: Vec<(String, String)>,
    /// Names of the fields that are tags of line protocol.
    pub tags: Vec<String>,
}

/// Columns in the order of their first appearance, each with what its values have in common.
#[derive(Default)]
struct Columns(Vec<(String, Guess)>);

impl Columns {
    fn add(&mut self, name: &str, guess: Guess) {
        match self.0.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = known.join(guess),
            None => self.0.push((name.to_owned(), guess)),
        }
    }

    /// Names that no field can have get one that it can. Columns without a name, and those whose names begin with `_`, are left
    /// out: their values are kept as undeclared fields.
    fn stream(self, name: Option<String>) -> InferredStream {
        let mut names = FieldNames::default();
        let (mut fields, mut renames) = (Vec::new(), Vec::new());
        let all: Vec<(String, Guess)> =
            self.0.into_iter().filter(|(name, _)| !name.is_empty() && !name.starts_with('_')).collect();
        // names that can stay as they are have precedence
        let taken: Vec<bool> = all.iter().map(|(name, _)| names.take(name)).collect();
        for ((name, guess), is_taken) in all.into_iter().zip(taken) {
            let field = if is_taken { name.clone() } else { names.name_for(&name) };
            fields.push(Field::new(field.as_str(), guess.field_type()));
            if field != name {
                renames.push((name, field));
            }
        }
        InferredStream { name, fields, renames, tags: vec![] }
    }
}

/// Returns the stream for a CSV file with a header line, from its first `rows` rows.
///
/// Errors: the file cannot be read, has no header or a column twice, its rows have other numbers of cells, or a quote has no end.
pub fn infer_csv(
    input: Box<dyn Read + Send>,
    rows: usize,
    layout: CsvLayout,
    options: &ColumnOptions,
) -> Result<InferredStream> {
    let mut records = CsvRecords::new(input, true, layout, READ_BYTES);
    let header = records.header()?;
    let names: Vec<&str> = header.iter().map(str::trim).collect();
    if names.is_empty() {
        return Err(Error::invalid("expected a header line with the names of the columns, found nothing"));
    }
    check_repeated(&names).map_err(|e| e.context("CSV header"))?;
    let mut columns = Columns::default();
    names.iter().for_each(|name| columns.add(name, Guess::Nothing));
    let mut record = csv::ByteRecord::new();
    for _ in 0..rows {
        if !records.read(&mut record)? {
            break;
        }
        let line = records.begin().0;
        if record.len() != names.len() {
            let (expected, found) = (names.len(), record.len());
            let message = format!("line {line}: expected {expected} cells as in the header, found {found}");
            return Err(Error::invalid(message));
        }
        for (name, cell) in names.iter().zip(record.iter()) {
            let cell = std::str::from_utf8(cell)
                .map_err(|_| Error::invalid(format!("line {line}: the cell of `{name}` is not UTF-8")))?;
            if options.nulls.iter().all(|null| null != cell) {
                columns.add(name, Guess::of_cell(cell));
            }
        }
    }
    // cells of several types are text
    columns
        .0
        .iter_mut()
        .filter(|(_, guess)| *guess == Guess::Any)
        .for_each(|(_, guess)| *guess = Guess::Cells);
    Ok(columns.stream(None))
}

/// Returns the stream for lines of JSON objects, or for an array of them, from the first `rows` ones.
///
/// Errors: a line is not a JSON object; with its number.
pub fn infer_json_lines(input: Box<dyn Read + Send>, rows: usize) -> Result<InferredStream> {
    let mut columns = Columns::default();
    for_each_object(input, rows, |number, line| {
        let object: Map<String, Value> = serde_json::from_slice(line)
            .map_err(|e| Error::invalid(format!("line {number}: expected a JSON object: {e}")))?;
        object.iter().for_each(|(name, value)| columns.add(name, Guess::of_json(value)));
        Ok(())
    })?;
    Ok(columns.stream(None))
}

/// Returns the streams for line protocol, one for each measurement, from the first `rows` lines. Their times are fields called
/// `time`.
///
/// Errors: a line is not line protocol; with its number.
pub fn infer_line_protocol(input: Box<dyn Read + Send>, rows: usize) -> Result<Vec<InferredStream>> {
    let mut streams: Vec<(String, Columns, Vec<String>)> = Vec::new();
    for_each_line(input, rows, |number, line| {
        let wrong = |what: String| Error::invalid(format!("line {number}: {what}"));
        let text = std::str::from_utf8(line).map_err(|e| wrong(e.to_string()))?;
        let Some(parsed) = parse_lines(text).next() else { return Ok(()) };
        let parsed = parsed.map_err(|e| wrong(e.to_string()))?;
        let name = parsed.series.measurement.as_str();
        let at = streams.iter().position(|(known, ..)| known == name).unwrap_or_else(|| {
            streams.push((name.to_owned(), Columns::default(), vec![]));
            streams.len() - 1
        });
        let (_, columns, tags) = &mut streams[at];
        columns.add("time", Guess::Time);
        for (key, _) in parsed.series.tag_set.iter().flatten() {
            columns.add(key, Guess::Text);
            if !tags.iter().any(|known| known == key.as_str()) {
                tags.push(key.to_string());
            }
        }
        for (key, value) in &parsed.field_set {
            columns.add(key, of_field(value));
        }
        Ok(())
    })?;
    let stream =
        |(name, columns, tags): (String, Columns, _)| InferredStream { tags, ..columns.stream(Some(name)) };
    Ok(streams.into_iter().map(stream).collect())
}

fn of_field(value: &FieldValue<'_>) -> Guess {
    match value {
        FieldValue::I64(_) | FieldValue::U64(_) => Guess::Long,
        FieldValue::F64(_) => Guess::Double,
        FieldValue::String(_) => Guess::Text,
        FieldValue::Boolean(_) => Guess::Bool,
    }
}

/// Returns the stream for a Parquet file, from its schema.
///
/// Errors: it is not a Parquet file.
#[cfg(feature = "parquet")]
pub fn infer_parquet(file: File) -> Result<InferredStream> {
    let reader = ParquetRecordBatchReaderBuilder::try_new(file)
        .map_err(|e| Error::invalid("not a Parquet file").with_source(e))?;
    let fields = crate::formats::parquet::with_uuids(reader.schema().fields(), reader.parquet_schema());
    Ok(infer_columns(&Schema::new(fields)))
}

/// Returns the stream for an Avro container, from its schema.
///
/// Errors: it is not an Avro container, or has a schema that cannot be read.
pub fn infer_avro(input: Box<dyn Read + Send>) -> Result<InferredStream> {
    let reader = arrow_avro::reader::ReaderBuilder::new()
        .build(BufReader::new(input))
        .map_err(|e| Error::invalid("not an Avro object container").with_source(e))?;
    Ok(infer_columns(&reader.schema()))
}

/// Returns the stream for rows with an Arrow schema.
fn infer_columns(schema: &Schema) -> InferredStream {
    let guess = |field: &FieldRef| match Column::of(field).is_uuid() {
        true => Guess::Text,
        false => Guess::of_type(field.data_type()),
    };
    let fields = schema.fields().iter().map(|field| (field.name().clone(), guess(field)));
    Columns(fields.collect()).stream(None)
}

/// Calls `each` for the first `rows` JSON values, each on a line or all in an array, with their lines from 1.
fn for_each_object(
    input: Box<dyn Read + Send>,
    rows: usize,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let (is_array, input) = begins_array(input)?;
    if !is_array {
        return for_each_line(input, rows, each);
    }
    let mut elements = ArrayElements::new(input, LINE_BYTES_MAX);
    for _ in 0..rows {
        let Some((origin, is_too_long)) = elements.read()? else { break };
        let line = origin.line.unwrap_or(1);
        if is_too_long {
            return Err(Error::invalid(format!(
                "line {line}: an element is longer than {LINE_BYTES_MAX} bytes"
            )));
        }
        each(line, elements.element())?;
    }
    Ok(())
}

/// Calls `each` for the first `rows` lines that are not empty, with their numbers from 1.
fn for_each_line(
    input: Box<dyn Read + Send>,
    rows: usize,
    mut each: impl FnMut(u64, &[u8]) -> Result<()>,
) -> Result<()> {
    let mut lines = LineReader::new(input, LINE_BYTES_MAX);
    let mut left = rows;
    while left > 0
        && let Some(line) = lines.next_line()?
    {
        let number = line.origin.number + 1;
        if line.too_long {
            return Err(Error::invalid(format!("line {number} is longer than {LINE_BYTES_MAX} bytes")));
        }
        if !line.bytes.is_empty() {
            each(number, line.bytes)?;
            left -= 1;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
