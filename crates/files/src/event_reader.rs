//! What the readers of all formats have in common.

use arrow_array::RecordBatch;
use tidemill_connect::SourceBatch;
use tidemill_types::{BadRow, DecodedRows, InterleavedBatches, Result, Timestamp};

/// Reader of one format.
pub(crate) trait EventReader: Send {
    /// Returns the next rows; `None` at the end. `now` is the event time of rows that have none.
    ///
    /// Errors: the reason why reading cannot continue.
    fn next(&mut self, now: Timestamp) -> Result<Option<SourceBatch>>;
}

/// Creates a batch of decoded rows.
pub(crate) fn of_rows(decoded: DecodedRows, position: u64) -> SourceBatch {
    let DecodedRows { rows, row_numbers, rejected } = decoded;
    SourceBatch { rows, row_numbers, rejected, position, ..SourceBatch::default() }
}

/// Creates a batch of rows of one stream. Bad rows at or after `position` stay in `rejected` for a later
/// batch.
pub(crate) fn of_batch(
    part: (std::sync::Arc<tidemill_types::StreamSchema>, RecordBatch),
    row_numbers: Vec<u64>,
    rejected: &mut Vec<BadRow>,
    position: u64,
) -> SourceBatch {
    let before = rejected.partition_point(|bad| bad.origin.number < position);
    let rejected = rejected.drain(..before).collect();
    SourceBatch {
        rows: InterleavedBatches { parts: vec![part], order: None },
        row_numbers,
        rejected,
        position,
        ..SourceBatch::default()
    }
}
