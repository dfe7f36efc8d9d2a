//! Merge of two sorted inputs: each left row meets the last right row that comes before it.
//!
//! Rows are compared as bytes: those of keys and time in the order of both inputs, where "towards the match" is ascending.
//! The right rows up to a left row are its candidates, and the last of them is the match if it has the left row's key.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions, UInt32Array, new_null_array,
};
use arrow::buffer::NullBuffer;
use arrow::compute::{SortOptions, filter_record_batch, interleave, take};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, Rows as EncodedRows, SortField};
use datafusion::common::{Result, internal_err};
use datafusion::execution::memory_pool::MemoryReservation;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::SendableRecordBatchStream;
use futures::StreamExt;

use crate::execution::deadline;

/// Right batches from which one result batch takes its rows.
const SOURCES_MAX: usize = 32;
/// Rows between two looks at the budget.
const ROWS_PER_LOOK: usize = 4_096;

/// Batches of one input with their keys and times as bytes.
pub(super) struct Rows {
    stream: SendableRecordBatchStream,
    exprs: Vec<Arc<dyn PhysicalExpr>>,
    keys: Option<RowConverter>,
    /// Keys and time.
    all: RowConverter,
}

/// A batch, and what it is compared by.
struct Encoded {
    batch: RecordBatch,
    /// `None` where all rows have one key.
    keys: Option<EncodedRows>,
    all: EncodedRows,
    /// Rows that have keys and a time.
    valid: Option<NullBuffer>,
}

impl Encoded {
    fn key(&self, row: usize) -> &[u8] {
        self.keys.as_ref().map_or(&[], |keys| keys.row(row).data())
    }

    fn bytes(&self) -> usize {
        self.batch.get_array_memory_size() + self.all.size() + self.keys.as_ref().map_or(0, EncodedRows::size)
    }
}

impl Rows {
    pub fn new(
        stream: SendableRecordBatchStream,
        exprs: Vec<Arc<dyn PhysicalExpr>>,
        options: impl Iterator<Item = SortOptions>,
    ) -> Result<Self> {
        let schema = stream.schema();
        let fields = exprs
            .iter()
            .zip(options)
            .map(|(expr, options)| Ok(SortField::new_with_options(expr.data_type(&schema)?, options)));
        let fields = fields.collect::<Result<Vec<_>>>()?;
        let of_keys = fields.len().saturating_sub(1);
        let keys = (of_keys > 0).then(|| RowConverter::new(fields[..of_keys].to_vec())).transpose()?;
        Ok(Self { stream, exprs, keys, all: RowConverter::new(fields)? })
    }

    /// Returns the next batch that has rows. `complete` leaves out rows without key or time.
    async fn next(&mut self, complete: bool) -> Result<Option<Encoded>> {
        while let Some(batch) = self.stream.next().await {
            let mut batch = batch?;
            let mut columns = self.columns(&batch)?;
            let mut valid = NullBuffer::union_many(
                columns
                    .iter()
                    .map(|column| column.logical_nulls())
                    .collect::<Vec<_>>()
                    .iter()
                    .map(Option::as_ref),
            );
            if let Some(nulls) = valid.take_if(|nulls| complete && nulls.null_count() > 0) {
                batch = filter_record_batch(&batch, &BooleanArray::new(nulls.into_inner(), None))?;
                columns = self.columns(&batch)?;
            }
            if batch.num_rows() == 0 {
                continue;
            }
            let all = self.all.convert_columns(&columns)?;
            let keys = match &self.keys {
                Some(keys) => Some(keys.convert_columns(&columns[..columns.len() - 1])?),
                None => None,
            };
            return Ok(Some(Encoded { batch, keys, all, valid }));
        }
        Ok(None)
    }

    fn columns(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>> {
        self.exprs.iter().map(|expr| expr.evaluate(batch)?.into_array(batch.num_rows())).collect()
    }
}

/// A right row.
#[derive(Clone)]
struct Candidate {
    source: Arc<Encoded>,
    row: usize,
}

/// The merge.
pub(super) struct Merge {
    left: Rows,
    right: Rows,
    may_equal: bool,
    is_outer: bool,
    schema: SchemaRef,
    reservation: MemoryReservation,
    /// The left batch and its first row that is not joined.
    current: Option<(Encoded, usize)>,
    /// The right batch and its first row that is not a candidate yet; `None` after the last.
    ahead: Option<(Arc<Encoded>, usize)>,
    began: bool,
    candidate: Option<Candidate>,
}

/// Rows of the next result batch.
#[derive(Default)]
struct JoinedRows {
    left: Vec<u32>,
    /// Source, from 1 on, and row in it; (0, 0) for no match.
    right: Vec<(usize, usize)>,
    sources: Vec<Arc<Encoded>>,
}

impl JoinedRows {
    fn push(&mut self, left: usize, matched: Option<&Candidate>) -> Result<()> {
        let Ok(left) = u32::try_from(left) else { return internal_err!("a batch has more than 2^32 rows") };
        self.left.push(left);
        let Some(Candidate { source, row }) = matched else {
            self.right.push((0, 0));
            return Ok(());
        };
        if !self.sources.last().is_some_and(|last| Arc::ptr_eq(last, source)) {
            self.sources.push(source.clone());
        }
        self.right.push((self.sources.len(), *row));
        Ok(())
    }
}

impl Merge {
    pub fn new(
        left: Rows,
        right: Rows,
        may_equal: bool,
        is_outer: bool,
        schema: SchemaRef,
        reservation: MemoryReservation,
    ) -> Self {
        let (current, ahead, candidate) = (None, None, None);
        Self {
            left,
            right,
            may_equal,
            is_outer,
            schema,
            reservation,
            current,
            ahead,
            began: false,
            candidate,
        }
    }

    /// Returns the next batch of the result.
    pub async fn next(&mut self) -> Result<Option<RecordBatch>> {
        if !self.began {
            self.began = true;
            self.read_right().await?;
        }
        loop {
            let (left, from) = match self.current.take() {
                Some(current) => current,
                None => match self.left.next(false).await? {
                    Some(left) => (left, 0),
                    None => return Ok(None),
                },
            };
            let mut output = JoinedRows::default();
            let mut row = from;
            while row < left.batch.num_rows() && output.sources.len() < SOURCES_MAX {
                if row.is_multiple_of(ROWS_PER_LOOK) {
                    deadline::check()?;
                }
                let is_valid = left.valid.as_ref().is_none_or(|valid| valid.is_valid(row));
                if is_valid {
                    self.advance(&left, row).await?;
                }
                let matched =
                    self.candidate.as_ref().filter(|c| is_valid && c.source.key(c.row) == left.key(row));
                if matched.is_some() || self.is_outer {
                    output.push(row, matched)?;
                }
                row += 1;
            }
            let held =
                output.sources.iter().map(|source| source.bytes()).fold(left.bytes(), usize::saturating_add);
            self.reservation.try_resize(held)?;
            let batch = self.batch(&left.batch, &output)?;
            if row < left.batch.num_rows() {
                self.current = Some((left, row));
            }
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
    }

    /// Makes all right rows up to a left row candidates, and keeps the last.
    async fn advance(&mut self, left: &Encoded, row: usize) -> Result<()> {
        let until = left.all.row(row);
        loop {
            let Some((right, next)) = &mut self.ahead else { return Ok(()) };
            let before = *next;
            while *next < right.batch.num_rows() {
                let order = right.all.row(*next).cmp(&until);
                if !(order.is_lt() || self.may_equal && order.is_eq()) {
                    break;
                }
                *next += 1;
            }
            if *next > before {
                self.candidate = Some(Candidate { source: right.clone(), row: *next - 1 });
            }
            if *next < right.batch.num_rows() {
                return Ok(());
            }
            self.read_right().await?;
        }
    }

    async fn read_right(&mut self) -> Result<()> {
        deadline::check()?;
        self.ahead = self.right.next(true).await?.map(|batch| (Arc::new(batch), 0));
        Ok(())
    }

    fn batch(&self, left: &RecordBatch, output: &JoinedRows) -> Result<RecordBatch> {
        let rows = UInt32Array::from(output.left.clone());
        let mut columns = Vec::with_capacity(self.schema.fields().len());
        for column in left.columns() {
            columns.push(take(column, &rows, None)?);
        }
        let of_right = self.schema.fields().iter().skip(left.num_columns());
        for (index, field) in of_right.enumerate() {
            let none = new_null_array(field.data_type(), 1);
            let sources = output.sources.iter().map(|source| source.batch.column(index).as_ref());
            let sources: Vec<&dyn Array> = std::iter::once(none.as_ref()).chain(sources).collect();
            columns.push(interleave(&sources, &output.right)?);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(output.left.len()));
        Ok(RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?)
    }
}
