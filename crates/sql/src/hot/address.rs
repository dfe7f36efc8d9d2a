//! Addresses of rows: their places in the log, which decide between rows with one time.

use arrow::array::{ArrayRef, AsArray};
use arrow::datatypes::{Int32Type, Int64Type, Schema};
use datafusion::common::Result;
use datafusion::error::DataFusionError;
use tidemill_types::column;

/// Partition, offset and row of an event.
pub(crate) type Address = (i32, i64, i32);

/// Returns the columns that address a row; `None` for a table without them.
pub(super) fn columns(schema: &Schema) -> Option<[usize; 3]> {
    let index = |name: &str| schema.index_of(name).ok();
    Some([index(column::PARTITION)?, index(column::OFFSET)?, index(column::ROW)?])
}

/// Addresses of the rows of a block's source.
pub(crate) struct Addresses<'a> {
    partitions: &'a [i32],
    offsets: &'a [i64],
    rows: &'a [i32],
}

impl<'a> Addresses<'a> {
    /// Errors: `Internal` for columns of other types.
    pub fn new([partitions, offsets, rows]: [&'a ArrayRef; 3]) -> Result<Self> {
        let unfit = || DataFusionError::Internal("the addresses of rows have other types".to_owned());
        Ok(Self {
            partitions: partitions.as_primitive_opt::<Int32Type>().ok_or_else(unfit)?.values(),
            offsets: offsets.as_primitive_opt::<Int64Type>().ok_or_else(unfit)?.values(),
            rows: rows.as_primitive_opt::<Int32Type>().ok_or_else(unfit)?.values(),
        })
    }

    pub fn at(&self, row: usize) -> Address {
        (self.partitions[row], self.offsets[row], self.rows[row])
    }
}
