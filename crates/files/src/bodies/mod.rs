//! Whole bodies of columns from callers that are not trusted: Arrow IPC streams and Parquet files as events of a stream.
//!
//! ```text
//! body ── checks of its frame ── batches ── size of the decoded values ── columns of the stream
//! ```
//!
//! Both formats can name much more data than they hold: by dictionaries, runs, compression, or lengths that are not true. What is
//! decoded may have at most as many bytes as a body may have, and each part is measured before it is expanded.

mod arrow_stream;
#[cfg(feature = "parquet")]
mod page_headers;
#[cfg(feature = "parquet")]
mod parquet_file;
mod size;
#[cfg(feature = "parquet")]
mod thrift;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, SchemaRef};
use arrow_select::concat::concat_batches;
use tidemill_types::{DecodedRows, Error, InterleavedBatches, Result, StreamSchema, Timestamp};

pub use arrow_stream::events_from_arrow_stream;
#[cfg(feature = "parquet")]
pub use parquet_file::events_from_parquet;

use crate::columns::events_from_columns;
use size::decoded_bytes;

/// Rows of the batches of one body.
struct BodyRows {
    schema: Arc<StreamSchema>,
    now: Timestamp,
    /// Bytes that the decoded values may still have.
    bytes_left: u64,
    bytes_max: usize,
    batches: Vec<RecordBatch>,
    rows: DecodedRows,
    /// Number of the next row.
    number: u64,
}

impl BodyRows {
    fn new(schema: &Arc<StreamSchema>, now: Timestamp, bytes_max: usize) -> Self {
        Self {
            schema: schema.clone(),
            now,
            bytes_left: bytes_max as u64,
            bytes_max,
            batches: vec![],
            rows: DecodedRows::default(),
            number: 0,
        }
    }

    /// Adds the rows of a batch; those with values that do not fit are rejected.
    ///
    /// Errors: `LimitReached` when the values of all batches are too large; `Invalid` for columns that do not fit.
    fn push(&mut self, batch: &RecordBatch) -> Result<()> {
        self.bytes_left =
            self.bytes_left.checked_sub(decoded_bytes(batch)?).ok_or_else(|| too_large(self.bytes_max))?;
        let decoded = events_from_columns(batch, &self.schema, self.now)?;
        self.rows.row_numbers.extend(decoded.row_numbers.iter().map(|number| number + self.number));
        self.rows.rejected.extend(decoded.rejected.into_iter().map(|mut bad| {
            bad.origin.number += self.number;
            bad
        }));
        self.batches.extend(decoded.rows.parts.into_iter().map(|(_, batch)| batch));
        self.number += batch.num_rows() as u64;
        Ok(())
    }

    fn finish(mut self) -> Result<DecodedRows> {
        let events = concat_batches(&self.schema.batch_schema(), &self.batches)
            .map_err(|e| Error::internal("batches of a body could not be joined").with_source(e))?;
        if events.num_rows() > 0 {
            self.rows.rows = InterleavedBatches { parts: vec![(self.schema, events)], order: None };
        }
        Ok(self.rows)
    }
}

fn too_large(bytes_max: usize) -> Error {
    Error::limit(format!(
        "the decoded columns are larger than {bytes_max} bytes (`server.body_bytes_max`): send them in parts"
    ))
}

/// Calls a decoder of bytes that are not trusted. The decoders check most lengths and offsets, and panic on the others. Unwinding is
/// safe: a decoder that has failed is not used again.
fn guarded<T>(decode: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err(Error::invalid("its lengths and offsets contradict each other")))
}

/// Refuses columns whose values may share memory without a bound.
fn check_types(schema: &SchemaRef) -> Result<()> {
    schema.fields().iter().try_for_each(|field| {
        size::check_type(field.data_type()).map_err(|found| {
            Error::invalid(format!(
                "column `{}`: {found} is not read from a body: send plain or dictionary-encoded columns",
                field.name()
            ))
        })
    })
}

fn damaged(what: &str, error: &ArrowError) -> Error {
    Error::invalid(format!("{what}: {error}"))
}

#[cfg(test)]
mod tests;
