//! Rows that leave a table: those that have expired, and those that a caller deletes or changes.
//!
//! The number of rows that ever left a table is a `txn` of the commits that remove them, so that the ledger can account
//! for them: rows stored = rows in the table + rows removed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::{BooleanArray, RecordBatch};
use arrow_schema::SchemaRef;
use arrow_select::filter::filter_record_batch;
use bytes::Bytes;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tidemill_types::{Error, Result, Timestamp, Value, column};

use crate::delta::builder::{CommitBuilder, RowChange};
use crate::delta::commit::ROWS_REMOVED;
use crate::error::internal;
use crate::merge::MergeInput;
use crate::table::Table;
use crate::tablets::encryption::reader_options;
use crate::tablets::tablet::{EncodedFile, Tablet};
use crate::tablets::tablet_layout::TabletLayout;
use crate::tablets::tablet_name::tablet_id;
use crate::tablets::tablet_writer::TabletWriter;

/// Rows that are decoded at a time.
const READ_ROWS: usize = 8_192;

/// Outcome of a rewrite for a batch of a table.
#[derive(Debug, Clone, PartialEq)]
pub enum RowRewrite {
    /// All rows, as they are.
    Keep,
    /// The rows for which this is true; the others are deleted. Null counts as false.
    Retain(BooleanArray),
    /// All rows with other values, and how many of them differ. Schema, order, key, times and `_` columns are those
    /// of the batch.
    Replace(RecordBatch, u64),
}

/// Result of a rewrite.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rewritten {
    /// Rows that were deleted.
    pub deleted: u64,
    /// Rows that were changed.
    pub changed: u64,
    /// Tablets that were replaced or removed.
    pub tablets: usize,
}

/// Decides what remains of the rows of a batch, which has the columns of its tablet.
pub type RowRewriter = Arc<dyn Fn(&RecordBatch) -> Result<RowRewrite> + Send + Sync>;

impl Tablet {
    /// Returns an upper bound of the times of its rows; `None` if it is unknown.
    fn last_time(&self, time: usize) -> Option<Timestamp> {
        match self.columns.get(time)?.max {
            Some(Value::Time(time)) => Some(time),
            _ => None,
        }
    }
}

impl Table {
    /// Returns the number of rows that have left the table's files since it was created.
    pub fn removed_rows(&self) -> u64 {
        self.committed_state.lock().removed_rows
    }

    /// Returns the time before which rows have expired.
    pub(crate) fn expired_before(&self) -> Option<Timestamp> {
        let micros = self.expired_before.load(Ordering::Relaxed);
        (micros > i64::MIN).then_some(Timestamp(micros))
    }

    /// Removes the tablets all of whose rows are older than `before`, in one Delta commit that touches no data. Rows
    /// of other tablets that are older leave the table when these are merged. Returns the rows that left.
    ///
    /// Errors: `Unavailable`; `Conflict` when another writer has replaced one of the tablets.
    pub async fn expire(&self, before: Timestamp) -> Result<u64> {
        self.check_open()?;
        self.expired_before.store(before.micros(), Ordering::Relaxed);
        let _alone = self.rewriting.lock().await;
        self.settle().await?;
        let time = self.stored_schema.index_of(column::TIME);
        let time = time.map_err(|e| internal("a table has no times", e))?;
        let tablets = self.tablets();
        let is_expired = |tablet: &&Arc<Tablet>| tablet.last_time(time).is_some_and(|last| last < before);
        let expired: Vec<&Arc<Tablet>> =
            tablets.iter().filter(is_expired).filter(|tablet| tablet_id(&tablet.name).is_some()).collect();
        if expired.is_empty() {
            return Ok(0);
        }
        let rows = expired.iter().map(|tablet| tablet.rows).sum();
        let mut commit = CommitBuilder::new("DELETE", self.now_ms());
        expired.iter().for_each(|tablet| commit.remove(tablet, RowChange::Changed));
        commit.txn(ROWS_REMOVED.to_owned(), self.removed_rows() + rows)?;
        self.replace(commit).await?;
        Ok(rows)
    }

    /// Rewrites the tablets in which `rewriter` changes or deletes rows and replaces them in one Delta commit. Rows in
    /// the tail are not touched: flush first.
    ///
    /// Bounds: memory for one tablet before and after; the new files are uploaded one by one.
    /// Errors: those of `rewriter`; `Invalid` when a file of another program would have to be rewritten;
    /// `Conflict` as in [`Table::consolidate`]. The table stays as it is then. `Unavailable`: as well, unless the error
    /// says that the outcome is not known.
    pub async fn rewrite(&self, rewriter: RowRewriter) -> Result<Rewritten> {
        self.check_open()?;
        let _alone = self.rewriting.lock().await;
        self.settle().await?;
        let mut commit = CommitBuilder::new("UPDATE", self.now_ms());
        let total = match self.rewrite_all(&mut commit, &rewriter).await {
            Ok(total) => total,
            Err(error) => {
                self.discard_uploads(&commit).await;
                return Err(error);
            }
        };
        if total.tablets > 0 {
            commit.txn(ROWS_REMOVED.to_owned(), self.removed_rows() + total.deleted)?;
            self.replace(commit).await?;
        }
        Ok(total)
    }

    /// Rewrites tablets one after the other and adds what changed to `commit`.
    async fn rewrite_all(&self, commit: &mut CommitBuilder, rewriter: &RowRewriter) -> Result<Rewritten> {
        let mut total = Rewritten::default();
        for tablet in self.tablets().iter() {
            let Some((kept, done)) = self.rewrite_tablet(tablet, rewriter.clone()).await? else { continue };
            if tablet_id(&tablet.name).is_none() {
                return Err(Error::invalid(format!(
                    "table `{}`: {} was written by another program, which has to change its rows",
                    self.name(),
                    tablet.name
                )));
            }
            commit.remove(tablet, RowChange::Changed);
            if kept.rows > 0 {
                commit.add(kept, tablet.level, &self.location, RowChange::Changed)?;
                self.upload(commit).await?;
            }
            total.deleted += done.deleted;
            total.changed += done.changed;
            total.tablets += 1;
        }
        Ok(total)
    }

    /// Rewrites the rows of one tablet in memory; `None` when all of them stay as they are.
    async fn rewrite_tablet(
        &self,
        tablet: &Arc<Tablet>,
        rewriter: RowRewriter,
    ) -> Result<Option<(EncodedFile, Rewritten)>> {
        let Some(input) = self.fetch(std::slice::from_ref(tablet)).await?.pop() else { return Ok(None) };
        let (stream, options) = (self.stream.clone(), self.options.clone());
        let rewritten = tokio::task::spawn_blocking(move || {
            let layout = |schema| TabletLayout::merged(&stream, schema, &options);
            rewrite_rows(&input, &rewriter, layout)
        });
        let rewritten =
            rewritten.await.map_err(|e| internal("the task that rewrites a tablet ended early", e))?;
        rewritten.map_err(|e| e.context(format!("table `{}`", self.name())))
    }
}

fn rewrite_rows(
    input: &MergeInput,
    rewriter: &RowRewriter,
    layout: impl Fn(SchemaRef) -> Result<TabletLayout>,
) -> Result<Option<(EncodedFile, Rewritten)>> {
    // Most tablets have no such row: they are decoded once, up to the end. The others are decoded again, so that their
    // rows are in memory batch by batch.
    let mut probe = Rewritten::default();
    let mut batches = read(input)?;
    while probe == Rewritten::default() {
        let Some(batch) = batches.next() else { return Ok(None) };
        rewrite_batch(batch?, rewriter, &mut probe)?;
    }
    let mut done = Rewritten::default();
    let mut kept = read(input)?
        .map(|batch| rewrite_batch(batch?, rewriter, &mut done))
        .filter(|batch| batch.as_ref().map_or(true, |batch| batch.num_rows() > 0))
        .peekable();
    let layout = match kept.peek() {
        Some(Ok(sample)) => layout(sample.schema())?.with_encodings_for(sample)?,
        _ => layout(read_schema(input)?)?,
    };
    let mut writer = TabletWriter::new(&layout)?;
    for batch in kept {
        writer.write(&batch?)?;
    }
    Ok(Some((writer.finish()?, done)))
}

fn rewrite_batch(batch: RecordBatch, rewriter: &RowRewriter, done: &mut Rewritten) -> Result<RecordBatch> {
    match rewriter(&batch)? {
        RowRewrite::Keep => Ok(batch),
        RowRewrite::Retain(retained) => {
            let retained =
                filter_record_batch(&batch, &retained).map_err(|e| internal("rows cannot be filtered", e))?;
            done.deleted += (batch.num_rows() - retained.num_rows()) as u64;
            Ok(retained)
        }
        RowRewrite::Replace(replaced, rows) => {
            done.changed += rows;
            Ok(replaced)
        }
    }
}

fn open(input: &MergeInput) -> Result<ParquetRecordBatchReaderBuilder<Bytes>> {
    let options = reader_options(input.keys.as_ref())?;
    ParquetRecordBatchReaderBuilder::try_new_with_options(input.bytes.clone(), options)
        .map_err(|e| Error::corrupt(format!("{} cannot be read", input.name)).with_source(e))
}

fn read_schema(input: &MergeInput) -> Result<SchemaRef> {
    Ok(open(input)?.schema().clone())
}

fn read(input: &MergeInput) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
    let damaged = |e| Error::corrupt(format!("{} cannot be read", input.name)).with_source(e);
    let batches = open(input)?.with_batch_size(READ_ROWS).build().map_err(damaged)?;
    let name = input.name.clone();
    Ok(batches.map(move |batch| {
        batch.map_err(|e| Error::corrupt(format!("{name} cannot be decoded")).with_source(e))
    }))
}
