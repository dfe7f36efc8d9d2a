//! Merges sorted tablets into one.
//!
//! Tablets are read batch by batch and merged by runs: the tablet whose next row comes first gives all rows up to
//! the next row of the others at once. Rows of one key and of consecutive times come from one tablet mostly, so a
//! run has many rows and a row costs little more than its copy.

use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{ArrayRef, BooleanArray, RecordBatch, new_null_array};
use arrow_row::{RowConverter, Rows, SortField};
use arrow_schema::{Schema, SchemaRef};
use arrow_select::concat::concat_batches;
use arrow_select::filter::filter_record_batch;
use arrow_select::interleave::interleave_record_batch;
use bytes::Bytes;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use tidemill_types::{Error, Result, StreamSchema, Timestamp, column};

use crate::ZonesOptions;
use crate::error::internal;
use crate::tablets::encryption::{TabletKeys, reader_options};
use crate::tablets::tablet::EncodedFile;
use crate::tablets::tablet_layout::{ORDER, TabletLayout};
use crate::tablets::tablet_writer::TabletWriter;

/// Rows that are decoded of a tablet at a time.
const READ_ROWS: usize = 8_192;
/// Rows that are written at a time.
const WRITE_ROWS: usize = 16_384;
/// Rows by which encodings are chosen.
const SAMPLE_ROWS: usize = 65_536;
/// Bytes of decoded rows after which the sample ends before it has as many rows.
const SAMPLE_BYTES: usize = 32 << 20;

/// A tablet to merge: its name, for messages, and its content.
pub(crate) struct MergeInput {
    pub name: String,
    pub bytes: Bytes,
    /// Keys, if it may be encrypted.
    pub keys: Option<TabletKeys>,
}

/// A tablet merged from several, and the number of rows that were too old for it.
pub(crate) struct Merged {
    pub file: EncodedFile,
    pub expired: u64,
}

/// Merges tablets of the table of `stream`, without the rows before `keep_from`. `stored` has all columns of the
/// table; the result has those that one of the tablets has, with nulls where a tablet lacks them.
///
/// Bounds: in addition to input and output, memory for [`READ_ROWS`] decoded rows of each tablet and a sample of
/// [`SAMPLE_ROWS`] rows.
/// Errors: `Corrupt` naming a tablet that cannot be decoded or is not sorted.
pub(crate) fn merge_tablets(
    stream: &StreamSchema,
    stored: &Schema,
    options: &ZonesOptions,
    inputs: Vec<MergeInput>,
    keep_from: Option<Timestamp>,
) -> Result<Merged> {
    let readers = inputs.into_iter().map(open).collect::<Result<Vec<_>>>()?;
    let has_column = |name: &str| readers.iter().any(|(_, schema, _)| schema.index_of(name).is_ok());
    let fields = stored.fields().iter().filter(|field| has_column(field.name()));
    let schema = Arc::new(Schema::new(fields.cloned().collect::<Vec<_>>()));
    let mut merge = Merge::new(stream, schema.clone(), readers, keep_from)?;
    let sample = merge.sample()?;
    let layout = TabletLayout::merged(stream, schema.clone(), options)?
        .with_encodings_for(&concat_batches(&schema, &sample).map_err(cannot_gather)?)?;
    let mut writer = TabletWriter::new(&layout)?;
    for batch in sample {
        writer.write(&batch)?;
    }
    while let Some(batch) = merge.next_batch()? {
        writer.write(&batch)?;
    }
    Ok(Merged { file: writer.finish()?, expired: merge.expired })
}

/// Returns the rows of a batch whose time is at or after `from`.
fn rows_since(batch: &RecordBatch, from: Timestamp) -> Result<BooleanArray> {
    let times = batch.column_by_name(column::TIME);
    let times = times.and_then(|times| times.as_primitive_opt::<TimestampMicrosecondType>());
    let times = times.ok_or_else(|| Error::internal("a tablet has no times"))?;
    Ok(times.values().iter().map(|time| Some(*time >= from.micros())).collect())
}

fn cannot_gather(e: arrow_schema::ArrowError) -> Error {
    internal("rows of merged tablets cannot be gathered", e)
}

fn open(input: MergeInput) -> Result<(String, SchemaRef, ParquetRecordBatchReader)> {
    let damaged = |e| Error::corrupt(format!("{} cannot be read", input.name)).with_source(e);
    let options = reader_options(input.keys.as_ref())?;
    let builder =
        ParquetRecordBatchReaderBuilder::try_new_with_options(input.bytes, options).map_err(damaged)?;
    let schema = builder.schema().clone();
    let reader = builder.with_batch_size(READ_ROWS).build().map_err(damaged)?;
    Ok((input.name, schema, reader))
}

/// A merge in progress.
struct Merge {
    order: SortOrder,
    cursors: Vec<TabletCursor>,
    /// Positions of the cursors that have rows, as a heap: the one whose next row comes first is at the top.
    heap: Vec<usize>,
    keep_from: Option<Timestamp>,
    /// Number of rows before `keep_from` so far.
    expired: u64,
}

/// The order of the rows, as comparable bytes.
struct SortOrder {
    schema: SchemaRef,
    columns: Vec<usize>,
    converter: RowConverter,
}

impl SortOrder {
    fn new(stream: &StreamSchema, schema: SchemaRef) -> Result<Self> {
        let key = stream.key.map(|key| stream.fields[key].name.as_str());
        let missing = |e| internal("a tablet lacks a column by which it is sorted", e);
        // A key that no row has is a column of nulls, which order nothing.
        let key = key.and_then(|name| schema.index_of(name).ok());
        let rest = ORDER.into_iter().map(|name| schema.index_of(name).map_err(missing));
        let columns = key.into_iter().map(Ok).chain(rest).collect::<Result<Vec<_>>>()?;
        let fields = columns.iter().map(|i| SortField::new(schema.field(*i).data_type().clone())).collect();
        let converter = RowConverter::new(fields).map_err(|e| internal("rows cannot be ordered", e))?;
        Ok(Self { schema, columns, converter })
    }

    /// Gives a decoded batch the columns of the result.
    fn conform(&self, name: &str, batch: &RecordBatch) -> Result<RecordBatch> {
        if batch.schema_ref().fields() == self.schema.fields() {
            return Ok(batch.clone());
        }
        let columns = self.schema.fields().iter().map(|field| -> ArrayRef {
            match batch.column_by_name(field.name()) {
                Some(column) => column.clone(),
                None => new_null_array(field.data_type(), batch.num_rows()),
            }
        });
        RecordBatch::try_new(self.schema.clone(), columns.collect())
            .map_err(|e| Error::corrupt(format!("{name} has other columns than its table")).with_source(e))
    }

    fn rows(&self, batch: &RecordBatch) -> Result<Rows> {
        let columns: Vec<ArrayRef> = self.columns.iter().map(|i| batch.column(*i).clone()).collect();
        self.converter.convert_columns(&columns).map_err(|e| internal("rows cannot be ordered", e))
    }
}

/// The place in one tablet.
struct TabletCursor {
    name: String,
    reader: ParquetRecordBatchReader,
    batch: RecordBatch,
    rows: Rows,
    next: usize,
}

impl TabletCursor {
    /// Opens a tablet at its first row; `None` if it has none.
    fn open(order: &SortOrder, name: String, mut reader: ParquetRecordBatchReader) -> Result<Option<Self>> {
        let Some(batch) = read(order, &name, &mut reader)? else { return Ok(None) };
        let rows = order.rows(&batch)?;
        check_sorted(&name, &rows)?;
        Ok(Some(Self { name, reader, batch, rows, next: 0 }))
    }

    /// Decodes the next batch; false at the end of the tablet.
    fn advance(&mut self, order: &SortOrder) -> Result<bool> {
        let Some(batch) = read(order, &self.name, &mut self.reader)? else { return Ok(false) };
        let rows = order.rows(&batch)?;
        check_sorted(&self.name, &rows)?;
        if self.rows.row(self.rows.num_rows() - 1) > rows.row(0) {
            return Err(unsorted(&self.name));
        }
        (self.batch, self.rows, self.next) = (batch, rows, 0);
        Ok(true)
    }

    /// Returns the end of the rows that come before the next row of `other`, at least one.
    fn run_before(&self, other: &Self) -> usize {
        let bound = other.rows.row(other.next);
        let end = self.rows.num_rows();
        // Runs are often short: the first steps are small.
        let (mut low, mut step) = (self.next + 1, 1);
        while low + step <= end && self.rows.row(low + step - 1) <= bound {
            low += step;
            step *= 2;
        }
        let mut high = (low + step).min(end);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.rows.row(middle) <= bound {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

fn check_sorted(name: &str, rows: &Rows) -> Result<()> {
    let mut pairs = (1..rows.num_rows()).map(|row| (rows.row(row - 1), rows.row(row)));
    if pairs.all(|(before, row)| before <= row) { Ok(()) } else { Err(unsorted(name)) }
}

fn unsorted(name: &str) -> Error {
    Error::corrupt(format!("{name} is not sorted by the key and the time of its table"))
}

fn read(order: &SortOrder, name: &str, reader: &mut ParquetRecordBatchReader) -> Result<Option<RecordBatch>> {
    for batch in reader {
        let batch = batch.map_err(|e| Error::corrupt(format!("{name} cannot be decoded")).with_source(e))?;
        if batch.num_rows() > 0 {
            return order.conform(name, &batch).map(Some);
        }
    }
    Ok(None)
}

/// Rows of several batches that make one batch of the result.
#[derive(Default)]
struct Gathered {
    batches: Vec<RecordBatch>,
    /// For each cursor, the position of its current batch in `batches`.
    positions: Vec<Option<usize>>,
    rows: Vec<(usize, usize)>,
}

impl Gathered {
    fn push(&mut self, cursor: usize, batch: &RecordBatch, rows: std::ops::Range<usize>) {
        let position = *self.positions[cursor].get_or_insert_with(|| {
            self.batches.push(batch.clone());
            self.batches.len() - 1
        });
        self.rows.extend(rows.map(|row| (position, row)));
    }

    fn batch(self) -> Result<Option<RecordBatch>> {
        if self.rows.is_empty() {
            return Ok(None);
        }
        let batches: Vec<&RecordBatch> = self.batches.iter().collect();
        interleave_record_batch(&batches, &self.rows).map(Some).map_err(cannot_gather)
    }
}

impl Merge {
    fn new(
        stream: &StreamSchema,
        schema: SchemaRef,
        readers: Vec<(String, SchemaRef, ParquetRecordBatchReader)>,
        keep_from: Option<Timestamp>,
    ) -> Result<Self> {
        let order = SortOrder::new(stream, schema)?;
        let opened = readers.into_iter().map(|(name, _, reader)| TabletCursor::open(&order, name, reader));
        let cursors: Vec<TabletCursor> = opened.filter_map(Result::transpose).collect::<Result<_>>()?;
        let heap = (0..cursors.len()).collect();
        let mut merge = Self { order, cursors, heap, keep_from, expired: 0 };
        for place in (0..merge.heap.len() / 2).rev() {
            merge.sift_down(place);
        }
        Ok(merge)
    }

    /// Returns the first rows, up to [`SAMPLE_ROWS`].
    fn sample(&mut self) -> Result<Vec<RecordBatch>> {
        let mut sample = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        while rows < SAMPLE_ROWS
            && bytes < SAMPLE_BYTES
            && let Some(batch) = self.next_batch()?
        {
            rows += batch.num_rows();
            bytes += batch.get_array_memory_size();
            sample.push(batch);
        }
        Ok(sample)
    }

    /// Returns the next rows that are kept, about [`WRITE_ROWS`]; `None` at the end.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let Some(batch) = self.next_in_order()? else { return Ok(None) };
            let Some(from) = self.keep_from else { return Ok(Some(batch)) };
            let kept = filter_record_batch(&batch, &rows_since(&batch, from)?).map_err(cannot_gather)?;
            self.expired += (batch.num_rows() - kept.num_rows()) as u64;
            if kept.num_rows() > 0 {
                return Ok(Some(kept));
            }
        }
    }

    fn next_in_order(&mut self) -> Result<Option<RecordBatch>> {
        let mut gathered = Gathered { positions: vec![None; self.cursors.len()], ..Gathered::default() };
        while let Some(first) = self.heap.first().copied() {
            let second = [1, 2].into_iter().filter_map(|place| self.heap.get(place).copied());
            let second = second.min_by(|a, b| self.compare(*a, *b));
            let cursor = &self.cursors[first];
            let end = second.map_or(cursor.rows.num_rows(), |other| cursor.run_before(&self.cursors[other]));
            gathered.push(first, &cursor.batch, cursor.next..end);
            self.cursors[first].next = end;
            if end == self.cursors[first].rows.num_rows() {
                gathered.positions[first] = None;
                if !self.cursors[first].advance(&self.order)? {
                    self.heap.swap_remove(0);
                }
            }
            self.sift_down(0);
            if gathered.rows.len() >= WRITE_ROWS {
                break;
            }
        }
        gathered.batch()
    }

    fn compare(&self, a: usize, b: usize) -> std::cmp::Ordering {
        let row = |cursor: usize| {
            let cursor = &self.cursors[cursor];
            cursor.rows.row(cursor.next)
        };
        row(a).cmp(&row(b))
    }

    /// Restores the heap after the cursor at `place` has moved.
    fn sift_down(&mut self, mut place: usize) {
        loop {
            let mut least = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.heap.len() && self.compare(self.heap[child], self.heap[least]).is_lt() {
                    least = child;
                }
            }
            if least == place {
                return;
            }
            self.heap.swap(place, least);
            place = least;
        }
    }
}

#[cfg(test)]
mod tests;
