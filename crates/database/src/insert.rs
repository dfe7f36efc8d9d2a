//! `INSERT`: its rows are checked first, and then appended or kept for later.

use std::sync::Arc;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use tidemill_types::{BadRow, Error, EventId, Result, StreamSchema};

use crate::ColumnOrigin;
use crate::events::{AppendReceipt, CheckedEvents};

/// An `INSERT` whose rows were checked and are not sent yet.
#[derive(Clone)]
pub struct StagedInsert {
    /// Stream of the events.
    pub stream: Arc<StreamSchema>,
    /// Rows that fit, with the columns of [`StreamSchema::batch_schema`].
    pub rows: RecordBatch,
    /// Rows that do not fit, if they are to be kept.
    pub rejected: Vec<BadRow>,
    /// True for `ON CONFLICT DO NOTHING`: events whose id was seen before do not count.
    pub skips_duplicates: bool,
    /// `RETURNING`.
    pub returning: Option<Arc<dyn Returning>>,
}

/// Rows that `RETURNING` makes of events.
pub trait Returning: Send + Sync {
    /// Returns the columns.
    fn schema(&self) -> SchemaRef;

    /// Returns the origin of each column, if the request asked for them; else none.
    fn origins(&self) -> Vec<Option<ColumnOrigin>> {
        Vec::new()
    }

    /// Returns whether the rows have the addresses of the events, which they get when they are appended.
    fn uses_addresses(&self) -> bool;

    /// Returns a row for each event; `rows` have the columns of [`StreamSchema::batch_schema`].
    ///
    /// Errors: an expression fails.
    fn rows(&self, rows: &RecordBatch, addresses: &[EventId]) -> Result<RecordBatch>;
}

/// Outcome of an `INSERT`.
#[derive(Debug, Clone)]
pub struct InsertOutcome {
    /// Number of events.
    pub count: u64,
    /// Rows of `RETURNING`.
    pub rows: Option<RecordBatch>,
}

impl StagedInsert {
    /// Returns whether it has to be known which events were stored.
    pub fn reports_stored(&self) -> bool {
        self.skips_duplicates || self.returning.is_some()
    }

    /// Returns the events to be appended.
    pub fn events(&self) -> CheckedEvents {
        let mut events = CheckedEvents::default();
        events.push(self.stream.clone(), self.rows.clone());
        events.reject(self.rejected.clone());
        events
    }

    /// Returns the outcome of a statement whose events are appended.
    ///
    /// Errors: an expression of `RETURNING` fails.
    pub fn outcome(&self, receipt: &AppendReceipt) -> Result<InsertOutcome> {
        let Some(stored) = receipt.stored.as_ref().filter(|_| self.reports_stored()) else {
            return Ok(InsertOutcome { count: receipt.accepted, rows: None });
        };
        let addresses: Vec<EventId> = stored.iter().flatten().copied().collect();
        let count = addresses.len() as u64;
        let Some(returning) = &self.returning else { return Ok(InsertOutcome { count, rows: None }) };
        let kept: BooleanArray = stored.iter().map(|address| Some(address.is_some())).collect();
        let rows = filter_record_batch(&self.rows, &kept)
            .map_err(|e| Error::internal("the addresses of events do not fit their rows").with_source(e))?;
        Ok(InsertOutcome { count, rows: Some(returning.rows(&rows, &addresses)?) })
    }
}
