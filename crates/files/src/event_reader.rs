//! What the readers of all formats have in common.

use std::sync::Arc;

use tidemill_connect::SourceBatch;
use tidemill_types::{BadRow, DecodedRows, InterleavedBatches, Result, StreamSchema, Timestamp};

use crate::conversion::Converted;

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

/// Creates a batch of the converted rows of one stream. `numbers` are those of all rows, also of refused ones. Bad rows at or
/// after `position` stay in `rejected` for a later batch.
pub(crate) fn of_converted(
    converted: Converted,
    schema: &Arc<StreamSchema>,
    mut numbers: Vec<u64>,
    rejected: &mut Vec<BadRow>,
    position: u64,
) -> SourceBatch {
    let refused = converted.rejected(schema, &mut numbers);
    if !refused.is_empty() {
        rejected.extend(refused);
        rejected.sort_by_key(|bad| bad.origin.number);
    }
    let before = rejected.partition_point(|bad| bad.origin.number < position);
    let rejected = rejected.drain(..before).collect();
    let mut rows = InterleavedBatches::default();
    if converted.batch.num_rows() > 0 {
        rows.parts.push((schema.clone(), converted.batch));
    }
    SourceBatch { rows, row_numbers: numbers, rejected, position, ..SourceBatch::default() }
}
