//! Rows that are written.

use arrow_array::RecordBatch;
use tidemill_types::{Value, row_value};

/// Rows of values, in memory of any layout.
pub trait RowValues: Sync {
    /// Returns the number of rows.
    fn row_count(&self) -> usize;
    /// Returns a value.
    fn value(&self, row: usize, column: usize) -> Value<'_>;
}

impl RowValues for RecordBatch {
    fn row_count(&self) -> usize {
        self.num_rows()
    }

    fn value(&self, row: usize, column: usize) -> Value<'_> {
        row_value(self, column, row)
    }
}

impl RowValues for [Vec<Value<'static>>] {
    fn row_count(&self) -> usize {
        self.len()
    }

    fn value(&self, row: usize, column: usize) -> Value<'_> {
        self[row].get(column).cloned().unwrap_or(Value::Missing)
    }
}
