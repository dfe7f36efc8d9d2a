//! Where events come from.

use std::fmt;
use std::sync::Arc;

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
#[derive(Debug, Default)]
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
    /// Part of the input to which numbers and position belong, such as a partition of a topic. `None` in a source
    /// that counts its whole input, or nothing (then `position` is 0 and acknowledgements take its place).
    pub split: Option<Arc<str>>,
    /// Called when the rows are durable in the log.
    pub acknowledge: Option<Acknowledgement>,
}

/// Outcome of the messages that a source took.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Receipt {
    /// Number of their events in the log.
    pub accepted: usize,
    /// Reasons of what was rejected and is in `system.rejected`.
    pub rejected: Vec<String>,
}

type OnDurable = Box<dyn FnOnce(Result<()>) + Send>;

/// Tells a source that the rows of a batch are durable in the log, or why they are not known to be. Dropping it
/// tells nothing.
pub struct Acknowledgement(OnDurable);

impl Acknowledgement {
    /// Creates an acknowledgement that calls `tell`.
    pub fn new(tell: impl FnOnce(Result<()>) + Send + 'static) -> Self {
        Self(Box::new(tell))
    }

    /// Tells the source.
    pub fn complete(self, result: Result<()>) {
        (self.0)(result);
    }
}

impl fmt::Debug for Acknowledgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Acknowledgement")
    }
}
