//! Where events come from.

use tidemill_types::{BadRow, InterleavedBatches, Result, Timestamp};

use crate::ConnectorHealth;

/// Connection that brings events in.
///
/// Threads: used by one thread at a time. Blocking is allowed; a call should return within a second even if
/// nothing arrives, with an empty batch, so that the caller can stop.
pub trait Source: Send {
    /// Returns its name. Positions are stored under it.
    fn name(&self) -> &str;

    /// Returns the next rows; `None` at the end of the input, which a source without an end never reaches.
    /// `now` becomes the event time of rows that have none.
    ///
    /// Errors: why reading cannot continue. A retryable error ([`tidemill_types::ErrorKind::is_retryable`])
    /// means that the same call may succeed later; no row is skipped by it.
    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>>;

    /// Returns its health.
    fn health(&self) -> ConnectorHealth {
        ConnectorHealth::Working
    }
}

/// Rows that a source returned together.
///
/// Row numbers and positions are in the unit in which the source counts: lines, records, offsets. All rows of
/// a batch, rejected ones included, have numbers below its `position` and not below that of the batch before.
#[derive(Debug, Clone, Default)]
pub struct SourceBatch {
    /// Valid rows of one or several streams, with the columns of
    /// [`tidemill_types::StreamSchema::batch_schema`].
    pub rows: InterleavedBatches,
    /// Row number of each valid row, in order of arrival; never decreases.
    pub row_numbers: Vec<u64>,
    /// Rows that could not be read, with reasons.
    pub rejected: Vec<BadRow>,
    /// Position from which the source continues after these rows.
    pub position: u64,
}
