//! Rows from events.

use std::sync::Arc;

use arrow_array::RecordBatch;
use bytes::Bytes;
use tidemill_connect::{
    NamedText, OptionError, OptionSpec, Options, Payload, RefusedRow, SinkMapper, SinkMapperType,
};
use tidemill_types::{StreamSchema, did_you_mean};

use super::rows::write;
use super::{DELIMITER, delimiter};
use crate::write::{GROUPING, messages, payload_error, value_text};

/// Type of the mapper of rows that leave.
pub(crate) struct CsvSinkType;

const OPTIONS: &[OptionSpec] = &[
    DELIMITER,
    OptionSpec::flag("header", "false", "Whether each message begins with a row of the names."),
    GROUPING,
];

impl SinkMapperType for CsvSinkType {
    fn name(&self) -> &'static str {
        "csv"
    }

    fn summary(&self) -> &'static str {
        "Rows such as `WSO2,55.6,100`, in the order of the attributes or by column numbers."
    }

    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn create(
        &self,
        options: &Options,
        payload: &[NamedText],
        schema: &Arc<StreamSchema>,
    ) -> Result<Box<dyn SinkMapper>, OptionError> {
        let columns = match payload.is_empty() {
            true => (0..schema.fields.len()).collect(),
            false => columns(payload, schema)?,
        };
        let delimiter = delimiter(options)?;
        let mut header = String::new();
        if options.flag("header") {
            let names = columns.iter().map(|column| Some(schema.fields[*column].name.clone()));
            write(names, &delimiter, &mut header);
        }
        Ok(Box::new(CsvSink { delimiter, header, columns, grouped: options.flag("event.grouping.enabled") }))
    }
}

/// Returns the attributes in the order that `@payload(a='1', b='0')` says.
fn columns(payload: &[NamedText], schema: &StreamSchema) -> Result<Vec<usize>, OptionError> {
    let mut columns = vec![None; payload.len()];
    for NamedText { name, text } in payload {
        let Some(name) = name else {
            let error = payload_error("the mapper `csv` takes column numbers, the mapper `text` templates");
            return Err(error.expected(["@payload(a='0', b='1')"]));
        };
        let known = schema.fields.iter().map(|field| field.name.as_str());
        let field = schema.field_index(name).ok_or_else(|| {
            payload_error(format!("the stream has no attribute `{name}`{}", did_you_mean(name, known)))
        })?;
        let column = text.trim().parse().ok().filter(|column| *column < payload.len());
        let column: usize = column.ok_or_else(|| {
            let last = payload.len() - 1;
            payload_error(format!("expected a column from 0 to {last} for `{name}`, found `{text}`"))
        })?;
        if columns[column].replace(field).is_some() {
            return Err(payload_error(format!("the column {column} is written twice")));
        }
    }
    // each column is written once, so every column has an attribute
    Ok(columns.into_iter().flatten().collect())
}

struct CsvSink {
    delimiter: String,
    header: String,
    /// Attribute of each column.
    columns: Vec<usize>,
    grouped: bool,
}

impl SinkMapper for CsvSink {
    fn map(&mut self, rows: &RecordBatch, refused: &mut Vec<RefusedRow>) -> Vec<Payload> {
        let event = |row| {
            let mut text = String::new();
            let cells = self.columns.iter().map(|column| value_text(rows, *column, row));
            write(cells, &self.delimiter, &mut text);
            Ok(text)
        };
        let message = |texts: Vec<String>| Ok(Bytes::from(format!("{}{}", self.header, texts.concat())));
        messages(rows, refused, self.grouped, event, message)
    }
}
