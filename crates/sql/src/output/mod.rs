//! Text formats of results: a table for people; JSON, NDJSON and CSV for programs. Batches are written
//! incrementally.

mod cells;
mod encoder;
mod table;

pub use tidemill_database::Format;

pub(crate) use encoder::{Encoder, batch_bytes, pieces};

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::csv;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::json;
use arrow::json::writer::{JsonArray, LineDelimited};
use tidemill_types::{Error, Result};

/// Writer of batches of one schema.
///
/// Integers are JSON numbers. Times are RFC 3339 in UTC with `Z`; times without a zone are taken as UTC. NaN
/// and infinities are null in JSON. Lists and structs are JSON, also in tables and CSV. In JSON, where names
/// must differ, repeated column names become `name_2`, `name_3` ….
pub struct Writer<W: Write> {
    schema: SchemaRef,
    inner: Inner<W>,
}

enum Inner<W: Write> {
    Table(table::Writer<W>),
    Json(json::Writer<W, JsonArray>),
    Ndjson(json::Writer<W, LineDelimited>),
    Csv(Box<csv::Writer<W>>),
}

impl<W: Write> Writer<W> {
    /// Creates a writer for batches of `schema`.
    pub fn new(format: Format, schema: &SchemaRef, out: W) -> Self {
        let objects = json::WriterBuilder::new().with_explicit_nulls(true);
        match format {
            Format::Table => {
                Self { schema: schema.clone(), inner: Inner::Table(table::Writer::new(schema, out)) }
            }
            Format::Json => Self { schema: unique_names(schema), inner: Inner::Json(objects.build(out)) },
            Format::Ndjson => Self { schema: unique_names(schema), inner: Inner::Ndjson(objects.build(out)) },
            Format::Csv => {
                let builder = csv::WriterBuilder::new().with_header(true);
                Self { schema: schema.clone(), inner: Inner::Csv(Box::new(builder.build(out))) }
            }
        }
    }

    /// Writes the rows of `batch`.
    ///
    /// Errors: `Unavailable` when `out` fails; `Invalid` for a type that has no text form.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let batch = cells::with_utc(batch, &self.schema)?;
        match &mut self.inner {
            Inner::Table(w) => w.write(&cells::nested_to_json(&batch)?),
            Inner::Json(w) => w.write(&batch).map_err(failed),
            Inner::Ndjson(w) => w.write(&batch).map_err(failed),
            Inner::Csv(w) => w.write(&cells::nested_to_json(&batch)?).map_err(failed),
        }
    }

    /// Writes the end of the output and returns `out`.
    pub fn finish(mut self) -> Result<W> {
        let empty = RecordBatch::new_empty(self.schema.clone());
        if matches!(self.inner, Inner::Csv(_)) {
            // the header, if there was no row
            self.write(&empty)?;
        }
        match self.inner {
            Inner::Table(w) => w.finish(),
            Inner::Json(mut w) => {
                w.finish().map_err(failed)?;
                let mut out = w.into_inner();
                out.write_all(b"\n").map_err(broken)?;
                Ok(out)
            }
            Inner::Ndjson(mut w) => {
                w.finish().map_err(failed)?;
                Ok(w.into_inner())
            }
            Inner::Csv(w) => Ok(w.into_inner()),
        }
    }
}

fn failed(error: arrow::error::ArrowError) -> Error {
    match error {
        arrow::error::ArrowError::IoError(_, inner) => broken(inner),
        // the CSV writer only fails when its output does
        arrow::error::ArrowError::CsvError(message) => broken(std::io::Error::other(message)),
        other => Error::invalid(format!("the result cannot be written as text: {other}")),
    }
}

fn broken(error: std::io::Error) -> Error {
    Error::unavailable("the result could not be written").with_source(error)
}

fn unique_names(schema: &SchemaRef) -> SchemaRef {
    let mut taken: HashSet<String> = schema.fields().iter().map(|f| f.name().clone()).collect();
    if taken.len() == schema.fields().len() {
        return schema.clone();
    }
    let mut seen = HashSet::new();
    let fields = schema.fields().iter().map(|field| {
        if seen.insert(field.name().clone()) {
            return field.as_ref().clone();
        }
        let free = (2_usize..).map(|n| format!("{}_{n}", field.name())).find(|name| !taken.contains(name));
        // one of the names is free, because there are finitely many columns
        let name = free.unwrap_or_default();
        taken.insert(name.clone());
        field.as_ref().clone().with_name(name)
    });
    let fields: Vec<Field> = fields.collect();
    Arc::new(Schema::new(fields))
}
