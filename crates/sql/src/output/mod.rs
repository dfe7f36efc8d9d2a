//! Formats of results: a table for people; JSON, NDJSON, CSV, Arrow and Parquet for programs. Batches are written
//! incrementally.

mod cells;
mod encoder;
mod table;

pub use tidemill_database::Format;

pub(crate) use cells::json_text;
pub(crate) use encoder::{Encoder, batch_bytes, pieces};

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::csv;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::ipc::writer::StreamWriter;
use arrow::json;
use arrow::json::writer::{JsonArray, LineDelimited};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use tidemill_types::{Error, Result};

/// Encoded bytes of a row group of Parquet, from which on it is written.
const ROW_GROUP_BYTES: usize = 8 << 20;

/// Writer of batches of one schema.
///
/// In text, integers are JSON numbers, and times are RFC 3339 in UTC with `Z`. NaN and infinities are null in JSON. Lists and
/// structs are JSON, also in tables and CSV. Times without a zone are taken as UTC in every format. Where names must differ, in
/// JSON, Arrow and Parquet, repeated column names become `name_2`, `name_3` …. Arrow and Parquet have the types of the result; texts and
/// bytes in views, which not every reader knows, are plain ones.
///
/// Bounds: a row group of Parquet is kept until it has 8 MiB.
pub struct Writer<W: Write + Send> {
    schema: SchemaRef,
    inner: Inner<W>,
}

enum Inner<W: Write + Send> {
    Table(table::Writer<W>),
    Json(json::Writer<W, JsonArray>),
    Ndjson(json::Writer<W, LineDelimited>),
    Csv(Box<csv::Writer<W>>),
    Arrow(Box<StreamWriter<W>>),
    Parquet(Box<ArrowWriter<W>>),
}

impl<W: Write + Send> Writer<W> {
    /// Creates a writer for batches of `schema`.
    ///
    /// Errors: `Unavailable` when `out` fails; `Invalid` for a column that the format does not have.
    pub fn new(format: Format, schema: &SchemaRef, out: W) -> Result<Self> {
        let objects = json::WriterBuilder::new().with_explicit_nulls(true);
        let named = named_columns(format, schema);
        let inner = match format {
            Format::Table => Inner::Table(table::Writer::new(schema, out)),
            Format::Json => Inner::Json(objects.build(out)),
            Format::Ndjson => Inner::Ndjson(objects.build(out)),
            Format::Csv => Inner::Csv(Box::new(csv::WriterBuilder::new().with_header(true).build(out))),
            Format::Arrow => {
                let columns = cells::columnar(&RecordBatch::new_empty(schema.clone()), &named)?.schema();
                Inner::Arrow(Box::new(StreamWriter::try_new(out, &columns).map_err(failed)?))
            }
            Format::Parquet => {
                let columns = cells::columnar(&RecordBatch::new_empty(schema.clone()), &named)?.schema();
                let properties = WriterProperties::builder()
                    .set_compression(Compression::ZSTD(ZstdLevel::default()))
                    .set_max_row_group_bytes(Some(ROW_GROUP_BYTES))
                    .build();
                let writer =
                    ArrowWriter::try_new(out, columns, Some(properties)).map_err(failed_in_parquet)?;
                Inner::Parquet(Box::new(writer))
            }
        };
        Ok(Self { schema: named, inner })
    }

    /// Writes the rows of `batch`.
    ///
    /// Errors: `Unavailable` when `out` fails; `Invalid` for a type that the format does not have.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        match &mut self.inner {
            Inner::Arrow(w) => return w.write(&cells::columnar(batch, &self.schema)?).map_err(failed),
            Inner::Parquet(w) => {
                return w.write(&cells::columnar(batch, &self.schema)?).map_err(failed_in_parquet);
            }
            _ => {}
        }
        let batch = cells::with_utc(batch, &self.schema)?;
        match &mut self.inner {
            Inner::Table(w) => w.write(&cells::nested_to_json(&batch)?),
            Inner::Json(w) => w.write(&batch).map_err(failed),
            Inner::Ndjson(w) => w.write(&batch).map_err(failed),
            Inner::Csv(w) => w.write(&cells::nested_to_json(&batch)?).map_err(failed),
            // written above, with their own types
            Inner::Arrow(_) | Inner::Parquet(_) => Ok(()),
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
            Inner::Arrow(mut w) => {
                w.finish().map_err(failed)?;
                w.into_inner().map_err(failed)
            }
            Inner::Parquet(w) => w.into_inner().map_err(failed_in_parquet),
        }
    }
}

fn failed(error: ArrowError) -> Error {
    match error {
        ArrowError::IoError(_, inner) => broken(inner),
        // the CSV writer only fails when its output does
        ArrowError::CsvError(message) => broken(std::io::Error::other(message)),
        other => Error::invalid(format!("the result cannot be written in this format: {other}")),
    }
}

fn failed_in_parquet(error: ParquetError) -> Error {
    match error {
        ParquetError::External(inner) => match inner.downcast::<std::io::Error>() {
            Ok(inner) => broken(*inner),
            Err(inner) => Error::invalid(format!("the result cannot be written as Parquet: {inner}")),
        },
        other => Error::invalid(format!("the result cannot be written as Parquet: {other}")),
    }
}

fn broken(error: std::io::Error) -> Error {
    Error::unavailable("the result could not be written").with_source(error)
}

/// Returns the columns of a schema with the names that they have in a format.
pub(crate) fn named_columns(format: Format, schema: &SchemaRef) -> SchemaRef {
    match format {
        Format::Table | Format::Csv => schema.clone(),
        Format::Json | Format::Ndjson | Format::Arrow | Format::Parquet => unique_names(schema),
    }
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
