//! Reader of Parquet.

use std::fs::File;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::{FieldRef, SchemaRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use tidemill_connect::SourceBatch;
use tidemill_types::{Error, ErrorKind, Result, StreamSchema, Timestamp};

use crate::event_reader::{EventReader, of_batch};
use crate::fields::{check, convert, declared, field_columns, with_system_columns};
use crate::options::ReadOptions;

/// Positions are numbers of rows.
pub(crate) struct ParquetReader {
    schema: Arc<StreamSchema>,
    declared: SchemaRef,
    reader: ParquetRecordBatchReader,
    /// For each declared field its index among the projected columns.
    field_columns: Vec<usize>,
    /// Number of the next row.
    number: u64,
}

impl ParquetReader {
    /// Opens a file. Errors: it is not a Parquet file, lacks a field, or has a field of an incompatible type.
    pub(crate) fn new(file: File, schema: &Arc<StreamSchema>, reading: ReadOptions) -> Result<Self> {
        let broken = |e| Error::invalid("not a Parquet file").with_source(e);
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(broken)?;
        let found = builder.schema().fields().clone();
        let in_file = field_columns(found.iter().map(|f| f.name().as_str()), schema)?;
        let fields: Vec<FieldRef> = in_file.iter().map(|place| found[*place].clone()).collect();
        check(&fields, schema)?;
        let mask = ProjectionMask::roots(builder.parquet_schema(), in_file.iter().copied());
        let reader = builder.with_projection(mask).with_batch_size(reading.batch_rows.max(1));
        let skipped = usize::try_from(reading.start).unwrap_or(usize::MAX);
        let reader = reader.with_offset(skipped).build().map_err(broken)?;
        // Projected columns keep the order of the file.
        let mut read = in_file.clone();
        read.sort_unstable();
        read.dedup();
        let places = in_file.iter().filter_map(|place| read.binary_search(place).ok()).collect();
        Ok(Self {
            schema: schema.clone(),
            declared: declared(schema),
            reader,
            field_columns: places,
            number: reading.start,
        })
    }
}

impl EventReader for ParquetReader {
    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>> {
        let Some(batch) = self.reader.next() else { return Ok(None) };
        let batch = batch.map_err(|e| {
            let message = format!("cannot be decoded after row {}", self.number);
            Error::new(ErrorKind::Corrupt, message).with_source(e)
        })?;
        let columns: Vec<ArrayRef> =
            self.field_columns.iter().map(|place| batch.column(*place).clone()).collect();
        let batch = convert(&columns, batch.num_rows(), &self.schema, &self.declared)?;
        let batch = with_system_columns(&batch, &self.schema, now)?;
        let begin = self.number;
        self.number += batch.num_rows() as u64;
        let numbers = (begin..self.number).collect();
        Ok(Some(of_batch((self.schema.clone(), batch), numbers, &mut vec![], self.number)))
    }
}
