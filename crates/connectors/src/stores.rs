//! What stores of tables have in common: rows as values, and calls that wait for the other side.

use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use tidemill_connect::{Backoff, StoreMonitor, runtime};
use tidemill_types::decode::{BatchBuilder, FieldValue};
use tidemill_types::{ErrorKind, Result, StreamSchema, Timestamp, Value, row_value};

/// How often a call that waits looks whether it has to stop.
const STOP_POLL: Duration = Duration::from_millis(50);

/// Row of a table: a value for each column.
pub(crate) type StoredRow = Vec<Value<'static>>;

/// Calls of one table that wait for the other side.
pub(crate) struct StoreCalls {
    pub(crate) table: String,
    pub(crate) monitor: Arc<StoreMonitor>,
}

impl StoreCalls {
    /// Calls `work` until the other side answers.
    ///
    /// Errors: those of `work`; `Unavailable` only after a stop.
    pub(crate) fn until_reached<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut backoff = Backoff::default();
        let mut is_problem = false;
        loop {
            match work() {
                Err(e) if e.kind() == ErrorKind::Unavailable && !self.monitor.is_stopped() => {
                    is_problem = true;
                    self.monitor.report(&self.table, Some(e.to_string()));
                    self.pause(backoff.next_delay());
                }
                done => {
                    if is_problem && done.is_ok() {
                        self.monitor.report(&self.table, None);
                    }
                    return done;
                }
            }
        }
    }

    fn pause(&self, delay: Duration) {
        let mut rest = delay;
        while !rest.is_zero() && !self.monitor.is_stopped() {
            let part = rest.min(STOP_POLL);
            runtime().block_on(async { tokio::time::sleep(part).await });
            rest -= part;
        }
    }
}

/// Returns the values of a row.
pub(crate) fn values(batch: &RecordBatch, row: usize) -> StoredRow {
    let value = |column| row_value(batch, column, row).into_scalar().unwrap_or(Value::Missing);
    (0..batch.num_columns()).map(value).collect()
}

/// Returns the values of all rows.
pub(crate) fn all_values(batch: &RecordBatch) -> Vec<StoredRow> {
    (0..batch.num_rows()).map(|row| values(batch, row)).collect()
}

/// Returns rows as a batch with the columns of a table.
///
/// Errors: a value does not fit its column.
pub(crate) fn batch_of(schema: &Arc<StreamSchema>, rows: &[StoredRow]) -> Result<RecordBatch> {
    let mut batch = BatchBuilder::new(schema.clone());
    for row in rows {
        let cells: Vec<FieldValue> = row.iter().map(field_value).collect();
        batch.push_values(&cells, Timestamp(0))?;
    }
    Ok(batch.finish())
}

fn field_value(value: &Value<'_>) -> FieldValue {
    match value {
        Value::Bool(b) => FieldValue::Bool(*b),
        Value::Int(n) => FieldValue::Int(*n),
        Value::Float(x) => FieldValue::Float(*x),
        Value::Str(text) => FieldValue::Text(text.to_string()),
        Value::Time(time) => FieldValue::Time(*time),
        Value::Missing | Value::Null | Value::Bson(_) => FieldValue::Missing,
    }
}
