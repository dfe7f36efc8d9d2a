//! Reader of Parquet.

use std::fs::File;
use std::sync::Arc;

use arrow_array::ArrayRef;
use arrow_schema::extension::EXTENSION_TYPE_NAME_KEY;
use arrow_schema::{Field as ArrowField, FieldRef};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::basic::LogicalType;
use parquet::schema::types::SchemaDescriptor;
use tidemill_connect::SourceBatch;
use tidemill_types::{Error, ErrorKind, Result, StreamSchema, Timestamp};

use crate::conversion::Conversion;
use crate::event_reader::{EventReader, of_converted};
use crate::fields::field_columns;
use crate::fit::UUID;
use crate::options::{ColumnOptions, ReadOptions};

/// Positions are numbers of rows.
pub(crate) struct ParquetReader {
    conversion: Conversion,
    reader: ParquetRecordBatchReader,
    /// For each declared field its index among the projected columns.
    field_columns: Vec<usize>,
    /// Number of the next row.
    number: u64,
}

impl ParquetReader {
    /// Opens a file. Errors: it is not a Parquet file, lacks a field, or has a field of an incompatible type.
    pub(crate) fn new(
        file: File,
        schema: &Arc<StreamSchema>,
        reading: ReadOptions,
        columns: &ColumnOptions,
    ) -> Result<Self> {
        let broken = |e| Error::invalid("not a Parquet file").with_source(e);
        let builder = ParquetRecordBatchReaderBuilder::try_new(file).map_err(broken)?;
        let found = with_uuids(builder.schema().fields(), builder.parquet_schema());
        let in_file = field_columns(found.iter().map(|f| f.name().as_str()), schema, columns)?;
        let fields: Vec<FieldRef> = in_file.iter().map(|place| found[*place].clone()).collect();
        let conversion = Conversion::new(&fields, schema)?;
        let mask = ProjectionMask::roots(builder.parquet_schema(), in_file.iter().copied());
        let reader = builder.with_projection(mask).with_batch_size(reading.batch_rows.max(1));
        let skipped = usize::try_from(reading.start).unwrap_or(usize::MAX);
        let reader = reader.with_offset(skipped).build().map_err(broken)?;
        // Projected columns keep the order of the file.
        let mut read = in_file.clone();
        read.sort_unstable();
        read.dedup();
        let places = in_file.iter().filter_map(|place| read.binary_search(place).ok()).collect();
        Ok(Self { conversion, reader, field_columns: places, number: reading.start })
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
        let converted = self.conversion.convert(&columns, batch.num_rows(), now)?;
        let begin = self.number;
        self.number += batch.num_rows() as u64;
        let numbers = (begin..self.number).collect();
        Ok(Some(of_converted(converted, self.conversion.schema(), numbers, &mut vec![], self.number)))
    }
}

/// Marks columns that are UUIDs in Parquet as such.
pub(crate) fn with_uuids(fields: &[FieldRef], file: &SchemaDescriptor) -> Vec<FieldRef> {
    let roots = file.root_schema().get_fields();
    let mark = |(index, field): (usize, &FieldRef)| {
        let is_uuid = roots
            .get(index)
            .is_some_and(|root| root.get_basic_info().logical_type_ref() == Some(&LogicalType::Uuid));
        match is_uuid {
            true => {
                let mut metadata = field.metadata().clone();
                metadata.insert(EXTENSION_TYPE_NAME_KEY.into(), UUID.into());
                Arc::new(ArrowField::clone(field).with_metadata(metadata))
            }
            false => field.clone(),
        }
    };
    fields.iter().enumerate().map(mark).collect()
}
