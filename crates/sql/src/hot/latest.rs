//! The latest row of each key.

use arrow::array::Array;
use arrow::compute::interleave;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};
use datafusion::common::Result;

use super::address::Address;
use super::scan::HotScan;
use super::store::BoundScan;

/// Returns for each key the needed columns of its latest row that is not before the time range; of several rows with one
/// time the last one in the log. Shape: in the order of the keys.
pub(super) fn latest_rows(scan: &HotScan, bound: &BoundScan) -> Result<RecordBatch> {
    let from = scan.selection.times.from;
    let mut rows: Vec<(usize, usize)> = Vec::with_capacity(bound.keys.len());
    for key in 0..bound.keys.len() {
        let mut latest: Option<((i64, Option<Address>), usize, usize)> = None;
        for (block, key) in bound.selected_places(key) {
            let layout = &bound.blocks[block].layout;
            let Some(row) = layout.rows_of(key).next_back() else { continue };
            let place = (layout.times[row], layout.last_address(key));
            if place.0 >= from && latest.is_none_or(|(other, ..)| place >= other) {
                latest = Some((place, block, row));
            }
        }
        rows.extend(latest.map(|(_, block, row)| (block, row)));
    }
    let columns = (0..scan.columns.len()).map(|column| {
        let values: Vec<&dyn Array> =
            bound.blocks.iter().map(|b| b.columns[column].values.as_ref()).collect();
        match values.is_empty() {
            true => Ok(arrow::array::new_empty_array(scan.schema.field(column).data_type())),
            false => Ok(interleave(&values, &rows)?),
        }
    });
    let columns = columns.collect::<Result<Vec<_>>>()?;
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(scan.schema.clone(), columns, &options)?)
}
