//! Encodes rows of a tail as sorted tablets.

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use arrow_select::interleave::interleave_record_batch;
use tidemill_types::{Result, StreamSchema, column};

use crate::ZonesOptions;
use crate::error::internal;
use crate::tablets::row_order::row_order;
use crate::tablets::tablet::EncodedFile;
use crate::tablets::tablet_layout::TabletLayout;
use crate::tablets::tablet_writer::TabletWriter;

/// Rows of a block of the [`RowLocator`].
const LOCATOR_BLOCK: usize = 256;

/// Encodes tablets of one table.
#[derive(Debug)]
pub(crate) struct TabletEncoder {
    layout: TabletLayout,
    /// The key's column, if the stream has a key.
    key: Option<usize>,
    /// The column `_time`.
    time: usize,
    tablet_rows_max: usize,
    row_group_rows: usize,
}

impl TabletEncoder {
    /// Creates an encoder for the table of `stream`.
    pub fn new(stream: &StreamSchema, options: &ZonesOptions) -> Result<Self> {
        let schema: SchemaRef = stream.table_schema();
        let time = schema.index_of(column::TIME).map_err(|e| internal("a table column is missing", e))?;
        Ok(Self {
            layout: TabletLayout::flushed(stream, schema, options)?,
            key: stream.key,
            time,
            tablet_rows_max: options.tablet_rows_max,
            row_group_rows: options.row_group_rows,
        })
    }

    /// Sorts the rows of `batches` by (key, `_time`, `_partition`, `_offset`, `_row`) and encodes them as
    /// tablets of nearly equal size, none above the limit.
    ///
    /// Shape: the batches are ordered by (`_partition`, `_offset`, `_row`), so that rows with equal key and
    /// time only have to keep their order.
    /// Bounds: in addition to input and output, memory for the sort keys and one row group.
    pub fn encode(&self, batches: &[RecordBatch]) -> Result<Vec<EncodedFile>> {
        let locator = RowLocator::new(batches);
        let order = row_order(batches, self.key, self.time)?;
        let tablets = order.len().div_ceil(self.tablet_rows_max).max(1);
        let rows = order.len().div_ceil(tablets).max(1);
        order.chunks(rows).map(|part| self.tablet(batches, &locator, part)).collect()
    }

    fn tablet(&self, batches: &[RecordBatch], locator: &RowLocator, order: &[u32]) -> Result<EncodedFile> {
        let mut writer = TabletWriter::new(&self.layout)?;
        for rows in order.chunks(self.row_group_rows) {
            for group in locator.rows(batches, rows)? {
                writer.write(&group)?;
            }
        }
        writer.finish()
    }
}

/// Finds the batch of a row by its number, counted through all batches.
struct RowLocator {
    /// Row number of the first row of each batch.
    starts: Vec<usize>,
    /// For each block of [`LOCATOR_BLOCK`] rows, the batch of its first row.
    blocks: Vec<u32>,
}

impl RowLocator {
    fn new(batches: &[RecordBatch]) -> Self {
        let next = |start: &mut usize, batch: &RecordBatch| {
            Some(std::mem::replace(start, *start + batch.num_rows()))
        };
        let starts: Vec<usize> = batches.iter().scan(0, next).collect();
        let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
        let first = (0..rows).step_by(LOCATOR_BLOCK);
        let blocks = first.map(|row| starts.partition_point(|start| *start <= row) as u32 - 1).collect();
        Self { starts, blocks }
    }

    /// Returns the batch that contains the row, and the row's index in it. Skips empty batches.
    fn locate(&self, row: u32) -> (usize, usize) {
        let row = row as usize;
        let mut batch = self.blocks[row / LOCATOR_BLOCK] as usize;
        while self.starts.get(batch + 1).is_some_and(|start| *start <= row) {
            batch += 1;
        }
        (batch, row - self.starts[batch])
    }

    /// Returns the rows with these numbers, as slices of the batches if the numbers are consecutive.
    fn rows(&self, batches: &[RecordBatch], rows: &[u32]) -> Result<Vec<RecordBatch>> {
        if !rows.windows(2).all(|pair| pair[0] + 1 == pair[1]) {
            let sources: Vec<&RecordBatch> = batches.iter().collect();
            let places: Vec<(usize, usize)> = rows.iter().map(|row| self.locate(*row)).collect();
            let gathered = interleave_record_batch(&sources, &places);
            return Ok(vec![gathered.map_err(|e| internal("rows cannot be gathered", e))?]);
        }
        let mut slices = Vec::new();
        let mut taken = 0;
        while let Some(row) = rows.get(taken) {
            let (batch, row) = self.locate(*row);
            let len = (batches[batch].num_rows() - row).min(rows.len() - taken);
            slices.push(batches[batch].slice(row, len));
            taken += len;
        }
        Ok(slices)
    }
}

#[cfg(test)]
mod tests;
