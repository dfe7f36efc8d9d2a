//! Parquet files as bodies.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{DataType as T, Field as ArrowField, FieldRef, Schema};
use bytes::Bytes;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder,
};
use parquet::errors::ParquetError;
use tidemill_types::{DecodedRows, Error, Result, StreamSchema, Timestamp};

use super::page_headers::{check_depth, decoded_bytes};
use super::{BodyRows, check_types, guarded, too_large};
use crate::formats::parquet::with_uuids;

/// Rows of one batch. Texts share the memory of their pages, so that a batch is small before it is measured.
const BATCH_ROWS: usize = 1024;

/// Returns the rows of a Parquet file as events, as [`crate::events_from_columns`] does. Rows are numbered from 0.
///
/// Bounds: the decoded columns have at most `bytes_max` bytes. Compressions and encodings whose result has no bound are refused.
///
/// Errors: `Invalid` for bytes that are not such a file, and for columns that do not fit the stream; `LimitReached` for a larger body.
pub fn events_from_parquet(
    body: Bytes,
    schema: &Arc<StreamSchema>,
    now: Timestamp,
    bytes_max: usize,
) -> Result<DecodedRows> {
    let context = |e: Error| e.context("the body is not a Parquet file");
    let reader = guarded(|| open(&body, bytes_max)).map_err(context)?;
    let mut rows = BodyRows::new(schema, now, bytes_max);
    let Some((columns, mut reader)) = reader else { return Err(too_large(bytes_max)) };
    check_types(&columns)?;
    loop {
        let at = rows.number;
        let context = |e: Error| e.context(format!("after row {at}"));
        let batch =
            guarded(|| reader.next().transpose().map_err(|e| super::damaged("cannot be decoded", &e)));
        let Some(batch) = batch.map_err(context)? else { break };
        let options = arrow_array::RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        let batch = RecordBatch::try_new_with_options(columns.clone(), batch.columns().to_vec(), &options)
            .map_err(|e| {
                Error::internal("a batch of Parquet has other columns than its file").with_source(e)
            })?;
        guarded(|| rows.push(&batch)).map_err(context)?;
    }
    rows.finish()
}

/// Opens a file; `None` if it expands to more than `bytes_max` bytes.
fn open(body: &Bytes, bytes_max: usize) -> Result<Option<(Arc<Schema>, ParquetRecordBatchReader)>> {
    let damaged = |e: ParquetError| Error::invalid(e.to_string());
    check_depth(body)?;
    let options = ArrowReaderOptions::new().with_skip_arrow_metadata(true);
    let found = ArrowReaderMetadata::load(body, options.clone()).map_err(damaged)?;
    if decoded_bytes(body, found.metadata())? > bytes_max as u64 {
        return Ok(None);
    }
    let views: Vec<FieldRef> = found.schema().fields().iter().map(with_views).collect();
    let options = options.with_schema(Arc::new(Schema::new(views.clone())));
    let metadata = ArrowReaderMetadata::try_new(found.metadata().clone(), options).map_err(damaged)?;
    let columns = with_uuids(&views, found.parquet_schema());
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(body.clone(), metadata);
    let reader = reader.with_batch_size(BATCH_ROWS).build().map_err(damaged)?;
    Ok(Some((Arc::new(Schema::new(columns)), reader)))
}

/// Returns a column whose texts and bytes are views, which share the memory of repeated values.
fn with_views(field: &FieldRef) -> FieldRef {
    let ty = match field.data_type() {
        T::Utf8 | T::LargeUtf8 => T::Utf8View,
        T::Binary | T::LargeBinary => T::BinaryView,
        T::List(item) => T::List(with_views(item)),
        T::LargeList(item) => T::LargeList(with_views(item)),
        T::Struct(fields) => T::Struct(fields.iter().map(with_views).collect()),
        T::Map(entries, sorted) => T::Map(with_views(entries), *sorted),
        _ => return field.clone(),
    };
    Arc::new(ArrowField::clone(field).with_data_type(ty))
}
