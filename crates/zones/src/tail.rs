//! The tail of one partition: rows that are in the log and not yet in the table's files.

use std::collections::VecDeque;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_select::concat::concat_batches;
use tidemill_types::{Error, Offset, Result};

use crate::error::internal;

/// Number of chunks of one size class at which they are merged. Single events would otherwise make a tail of
/// thousands of one-row batches, each with its own arrays: slow to query and heavy in memory. With classes
/// each row is copied at most [`SIZE_CLASSES`] times.
const MERGE_CHUNKS: usize = 16;

/// Number of size classes that are merged: up to 16, 256 and 4,096 rows. Larger chunks are not merged again.
const SIZE_CLASSES: u32 = 3;

/// Rows in offset order, in chunks.
#[derive(Debug, Default)]
pub(crate) struct TableTail {
    /// Rows at or below this offset are in the table's files.
    pub committed: Option<Offset>,
    chunks: VecDeque<Chunk>,
    rows: u64,
    bytes: u64,
}

/// Rows of the records `first..=last`.
#[derive(Debug)]
struct Chunk {
    first: Offset,
    last: Offset,
    batch: RecordBatch,
    bytes: u64,
}

impl TableTail {
    /// Creates an empty tail of a partition whose rows up to `committed` are in the table's files.
    pub fn after(committed: Option<Offset>) -> Self {
        Self { committed, ..Self::default() }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Returns the size of the rows in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the offset of the first row.
    pub fn first(&self) -> Option<Offset> {
        self.chunks.front().map(|c| c.first)
    }

    /// Appends the rows of record `offset`. Amortised cost: a few copies per row.
    ///
    /// Errors: `Internal` when `offset` is below that of an earlier push, which violates the order of the
    /// log.
    pub fn push(&mut self, offset: Offset, batch: RecordBatch) -> Result<()> {
        if let Some(last) = self.chunks.back().map(|c| c.last)
            && offset < last
        {
            return Err(Error::internal(format!("offset {offset} was pushed after offset {last}")));
        }
        let chunk = Chunk { first: offset, last: offset, bytes: batch_bytes(&batch)?, batch };
        self.rows += chunk.batch.num_rows() as u64;
        self.bytes += chunk.bytes;
        self.chunks.push_back(chunk);
        while self.merge()? {}
        Ok(())
    }

    /// Merges the chunks at the end that are not above the size class of the last one, if there are enough of
    /// them. Returns whether it did.
    fn merge(&mut self) -> Result<bool> {
        let Some(class) = self.chunks.back().map(Chunk::class).filter(|c| *c < SIZE_CLASSES) else {
            return Ok(false);
        };
        let count = self.chunks.iter().rev().take_while(|c| c.class() <= class).count();
        if count < MERGE_CHUNKS {
            return Ok(false);
        }
        let kept = self.chunks.len() - count;
        let run = &self.chunks.make_contiguous()[kept..];
        let (first, last) = (run[0].first, run[count - 1].last);
        let schema = run[0].batch.schema();
        let batch = concat_batches(&schema, run.iter().map(|c| &c.batch))
            .map_err(|e| internal("chunks of one tail do not fit together", e))?;
        let before: u64 = run.iter().map(|c| c.bytes).sum();
        let merged = Chunk { first, last, bytes: batch_bytes(&batch)?, batch };
        self.bytes = self.bytes - before + merged.bytes;
        self.chunks.truncate(kept);
        self.chunks.push_back(merged);
        Ok(true)
    }

    /// Returns all rows, as batches that share memory with the tail.
    pub fn batches(&self) -> impl Iterator<Item = RecordBatch> + '_ {
        self.chunks.iter().map(|c| c.batch.clone())
    }

    /// Returns the rows at or below `upto` and the offset of the last of them, or `None` if the tail has no
    /// such rows.
    pub fn upto(&self, upto: Offset) -> Option<(Offset, Vec<RecordBatch>)> {
        let mut last = None;
        let mut batches = Vec::new();
        for chunk in self.chunks.iter().take_while(|c| c.first <= upto) {
            let rows = chunk.rows_upto(upto);
            last = Some(chunk.offset_of(rows - 1));
            batches.push(chunk.batch.slice(0, rows));
        }
        last.map(|last| (last, batches))
    }

    /// Returns the rows before `next`.
    pub fn before(&self, next: Offset) -> Vec<RecordBatch> {
        self.between(Offset(0), next)
    }

    /// Returns the rows from `from` on and before `next`.
    pub fn between(&self, from: Offset, next: Offset) -> Vec<RecordBatch> {
        let Some(last) = next.0.checked_sub(1).map(Offset).filter(|last| *last >= from) else {
            return Vec::new();
        };
        let chunks = self.chunks.iter().skip_while(|c| c.last < from).take_while(|c| c.first <= last);
        let rows = chunks.map(|chunk| {
            let skipped = from.0.checked_sub(1).map_or(0, |before| chunk.rows_before(Offset(before)));
            chunk.batch.slice(skipped, chunk.rows_upto(last) - skipped)
        });
        rows.filter(|rows| rows.num_rows() > 0).collect()
    }

    /// Drops the rows at or above `from`, which their record is going to make again.
    pub fn forget_from(&mut self, from: Offset) -> Result<()> {
        let Some(before) = from.0.checked_sub(1).map(Offset) else {
            *self = Self::after(self.committed);
            return Ok(());
        };
        while let Some(chunk) = self.chunks.back_mut().filter(|c| c.last >= from) {
            self.rows -= chunk.batch.num_rows() as u64;
            self.bytes -= chunk.bytes;
            if chunk.first >= from {
                self.chunks.pop_back();
                continue;
            }
            let rest = chunk.batch.slice(0, chunk.rows_upto(before));
            let bytes = batch_bytes(&rest)?;
            self.rows += rest.num_rows() as u64;
            self.bytes += bytes;
            *chunk = Chunk { last: offset_at(&rest, rest.num_rows() - 1), bytes, batch: rest, ..*chunk };
        }
        Ok(())
    }

    /// Drops the rows at or below `upto`, which are now in the table's files.
    pub fn commit(&mut self, upto: Offset) -> Result<()> {
        self.committed = self.committed.max(Some(upto));
        while let Some(chunk) = self.chunks.front_mut().filter(|c| c.first <= upto) {
            let rows = chunk.rows_upto(upto);
            if rows == chunk.batch.num_rows() {
                self.rows -= rows as u64;
                self.bytes -= chunk.bytes;
                self.chunks.pop_front();
                continue;
            }
            let rest = chunk.batch.slice(rows, chunk.batch.num_rows() - rows);
            let bytes = batch_bytes(&rest)?;
            self.rows -= rows as u64;
            self.bytes = self.bytes - chunk.bytes + bytes;
            *chunk = Chunk { first: offset_at(&rest, 0), last: chunk.last, bytes, batch: rest };
        }
        Ok(())
    }
}

impl Chunk {
    fn class(&self) -> u32 {
        (self.batch.num_rows().max(1).ilog2() / 4).min(SIZE_CLASSES)
    }

    /// Returns the number of rows at or below `upto`; at least one, because callers select chunks with `first
    /// <= upto`.
    fn rows_upto(&self, upto: Offset) -> usize {
        if self.last <= upto {
            return self.batch.num_rows();
        }
        let offsets = offsets(&self.batch);
        offsets.partition_point(|o| *o as u64 <= upto.0)
    }

    /// Returns the number of rows at or below `upto`; 0 if all are above it.
    fn rows_before(&self, upto: Offset) -> usize {
        if self.first > upto { 0 } else { self.rows_upto(upto) }
    }

    fn offset_of(&self, row: usize) -> Offset {
        offset_at(&self.batch, row)
    }
}

/// Returns the `_offset` column, the second to last of a table's batch. `Table::push` has checked the schema.
fn offsets(batch: &RecordBatch) -> &[i64] {
    batch.column(batch.num_columns() - 2).as_primitive::<Int64Type>().values()
}

/// Returns the offset of a row. Offsets are never negative: `Table::push` has compared them with the
/// record's.
fn offset_at(batch: &RecordBatch, row: usize) -> Offset {
    Offset(offsets(batch)[row] as u64)
}

/// Returns the size of the rows of `batch` alone, even if its arrays are slices of larger ones.
fn batch_bytes(batch: &RecordBatch) -> Result<u64> {
    let mut bytes = 0;
    for column in batch.columns() {
        let size = column.to_data().get_slice_memory_size();
        bytes += size.map_err(|e| internal("the size of a column cannot be computed", e))?;
    }
    Ok(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    use arrow_array::{Int32Array, Int64Array};
    use arrow_schema::{DataType, Field, Schema};

    fn batch(offset: u64, rows: usize) -> RecordBatch {
        let schema = Schema::new(vec![
            Field::new("_offset", DataType::Int64, false),
            Field::new("_row", DataType::Int32, false),
        ]);
        let offsets = Int64Array::from(vec![offset as i64; rows]);
        let numbers = Int32Array::from_iter_values(0..rows as i32);
        RecordBatch::try_new(Arc::new(schema), vec![Arc::new(offsets), Arc::new(numbers)]).unwrap()
    }

    fn seen(tail: &TableTail) -> Vec<u64> {
        tail.batches().flat_map(|b| offsets(&b).iter().map(|o| *o as u64).collect::<Vec<_>>()).collect()
    }

    #[test]
    fn single_rows_become_few_chunks() {
        let mut tail = TableTail::default();
        for offset in 0..10_000 {
            tail.push(Offset(offset), batch(offset, 1 + (offset % 3 == 0) as usize)).unwrap();
        }
        assert!(tail.chunks.len() < 64, "{} chunks", tail.chunks.len());
        assert_eq!((tail.rows(), tail.bytes()), (13_334, 13_334 * 12));
        assert!(seen(&tail).is_sorted());
        assert!(tail.push(Offset(5), batch(5, 1)).is_err());
    }

    #[test]
    fn rows_are_forgotten_from_any_offset_on() {
        for cut in 0..41_u64 {
            let mut tail = TableTail::default();
            for offset in 0..40 {
                tail.push(Offset(offset), batch(offset, 2)).unwrap();
            }
            tail.forget_from(Offset(cut)).unwrap();
            assert_eq!(seen(&tail), (0..cut.min(40)).flat_map(|o| [o, o]).collect::<Vec<_>>());
            assert_eq!((tail.rows(), tail.bytes()), (2 * cut.min(40), 24 * cut.min(40)));
            tail.push(Offset(cut), batch(cut, 1)).unwrap();
            assert_eq!(seen(&tail).last(), Some(&cut));
        }
    }

    #[test]
    fn rows_between_any_two_offsets() {
        let mut tail = TableTail::default();
        for offset in 10..40 {
            tail.push(Offset(offset), batch(offset, 2)).unwrap();
        }
        for from in 0..45 {
            for next in 0..45 {
                let rows = tail.between(Offset(from), Offset(next));
                let found: Vec<u64> = rows
                    .iter()
                    .flat_map(|b| offsets(b).iter().map(|o| *o as u64).collect::<Vec<_>>())
                    .collect();
                let expected: Vec<u64> = (from.max(10)..next.min(40)).flat_map(|o| [o, o]).collect();
                assert_eq!(found, expected, "from {from} to {next}");
            }
        }
    }

    #[test]
    fn commits_cut_at_any_offset() {
        for cut in 0..40_u64 {
            let mut tail = TableTail::default();
            for offset in 0..40 {
                tail.push(Offset(offset), batch(offset, 2)).unwrap();
            }
            let (last, batches) = tail.upto(Offset(cut)).unwrap();
            assert_eq!(last, Offset(cut));
            assert_eq!(batches.iter().map(RecordBatch::num_rows).sum::<usize>() as u64, 2 * (cut + 1));
            tail.commit(last).unwrap();
            assert_eq!(seen(&tail), (cut + 1..40).flat_map(|o| [o, o]).collect::<Vec<_>>());
            assert_eq!((tail.rows(), tail.bytes()), (2 * (39 - cut), 24 * (39 - cut)));
            assert_eq!(tail.first(), (cut < 39).then_some(Offset(cut + 1)));
            assert!(tail.upto(Offset(cut)).is_none());
        }
    }
}
