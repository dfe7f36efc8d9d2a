//! Writers of JSON lines and CSV.

use std::io::Write;
use std::sync::Arc;

use arrow_array::RecordBatch;
use serde_json::Value as Json;
use tidemill_types::{Error, Result, StreamSchema, Value, event_json, row_value};

use crate::error::unwritable;
use crate::event_writer::{EventWriter, FileOutput};

pub(crate) struct JsonWriter {
    out: FileOutput,
    schema: Arc<StreamSchema>,
    envelope: Option<String>,
}

impl JsonWriter {
    pub(crate) fn new(out: FileOutput, schema: &Arc<StreamSchema>, enclosing: Option<String>) -> Self {
        Self { out, schema: schema.clone(), envelope: enclosing }
    }
}

impl EventWriter for JsonWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        for row in 0..batch.num_rows() {
            let mut event = Json::Object(event_json(&self.schema, batch, row));
            if let Some(key) = &self.envelope {
                event = Json::Object([(key.clone(), event)].into_iter().collect());
            }
            serde_json::to_writer(&mut self.out, &event).map_err(|e| unwritable(e.into()))?;
            self.out.write_all(b"\n").map_err(unwritable)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.out.flush().map_err(unwritable)
    }
}

pub(crate) struct CsvWriter {
    out: csv::Writer<FileOutput>,
    cell: String,
}

impl CsvWriter {
    /// Writes the header, if any. Errors: writing it fails.
    pub(crate) fn new(out: FileOutput, schema: &StreamSchema, header: bool, delimiter: u8) -> Result<Self> {
        let mut out = csv::WriterBuilder::new().delimiter(delimiter).from_writer(out);
        if header {
            out.write_record(schema.fields.iter().map(|f| &f.name)).map_err(failed)?;
        }
        Ok(Self { out, cell: String::new() })
    }
}

impl EventWriter for CsvWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        use std::fmt::Write as _;
        for row in 0..batch.num_rows() {
            for column in 0..batch.num_columns() {
                self.cell.clear();
                let written = match row_value(batch, column, row) {
                    Value::Missing | Value::Null => Ok(()),
                    Value::Str(text) => self.cell.write_str(&text),
                    value => write!(self.cell, "{value}"),
                };
                debug_assert!(written.is_ok(), "texts take what is written to them");
                self.out.write_field(&self.cell).map_err(failed)?;
            }
            self.out.write_record(None::<&[u8]>).map_err(failed)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.out.flush().map_err(unwritable)
    }
}

fn failed(e: csv::Error) -> Error {
    let message = e.to_string();
    match e.into_kind() {
        csv::ErrorKind::Io(e) => unwritable(e),
        _ => Error::internal(message),
    }
}
