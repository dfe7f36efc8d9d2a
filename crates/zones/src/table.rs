//! A table: its committed files, its tail, and consistent snapshots of both.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_schema::SchemaRef;
use parking_lot::Mutex;
use tidemill_types::{Error, Offset, PartitionId, Result, StreamSchema};

use crate::delta::commit::{DeltaWriter, later_owner};
use crate::delta::maintenance;
use crate::owner_epochs::OwnerEpochs;
use crate::stores::location::Location;
use crate::tablets::encode::TabletEncoder;
use crate::tablets::tablet::Tablet;
use crate::tail::TableTail;
use crate::{Clock, ZonesOptions};

/// The table of one stream.
///
/// Rows are added through [`Table::push`] and are visible to [`Table::snapshot`] from then on.
/// [`Table::flush`] moves them from the tail to Parquet files and commits these to Delta together with the
/// offsets they reach, so that a restart knows which records of the log it need not push again.
///
/// Locks: `tails` may be locked one after the other while `committed_state` is held, never the other way
/// round. A flush changes files and tails while it holds `committed_state`, and a snapshot holds it, too: it
/// sees either all of a flush or nothing of it. A push locks one tail only.
pub struct Table {
    pub(crate) stream: Arc<StreamSchema>,
    pub(crate) schema: SchemaRef,
    /// `schema`, followed by the columns that are stored and no longer declared.
    pub(crate) stored_schema: SchemaRef,
    pub(crate) location: Location,
    pub(crate) options: Arc<ZonesOptions>,
    pub(crate) epochs: Arc<OwnerEpochs>,
    pub(crate) clock: Clock,
    pub(crate) encoder: Arc<TabletEncoder>,
    pub(crate) tails: Box<[Mutex<TableTail>]>,
    pub(crate) pending_rows: AtomicU64,
    pub(crate) pending_bytes: AtomicU64,
    pub(crate) committed_state: Mutex<CommittedState>,
    pub(crate) writer: tokio::sync::Mutex<DeltaWriter>,
    /// Held while tablets are replaced: two rewrites at once could choose the same tablets.
    pub(crate) rewriting: tokio::sync::Mutex<()>,
    /// Names of tablets that are damaged or not sorted, so that they cannot be merged.
    pub(crate) unmergeable: Mutex<HashSet<String>>,
    /// Time in microseconds before which rows have expired; `i64::MIN` if they never do.
    pub(crate) expired_before: AtomicI64,
    /// Version of the last Delta checkpoint; 0 without one.
    pub(crate) checkpoint: AtomicU64,
    pub(crate) missing: Box<[MissingFile]>,
    pub(crate) closed: AtomicBool,
}

/// The committed part of a table.
#[derive(Debug)]
pub(crate) struct CommittedState {
    pub version: u64,
    pub tablets: Arc<[Arc<Tablet>]>,
    /// Rows of all live files in the Delta log, including those of missing files.
    pub rows: u64,
    /// Rows that have left the table's files since it was created.
    pub removed_rows: u64,
}

/// A file that the Delta log names and that is missing in the store or differs from its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFile {
    /// Path below the table.
    pub name: String,
    /// Number of rows that the file contained.
    pub rows: u64,
    /// Description of the problem.
    pub problem: String,
}

/// Consistent view of a table: every row pushed before it, exactly once, either in a tablet or in the tail.
#[derive(Debug, Clone)]
pub struct TableSnapshot {
    /// All columns: the declared ones as in [`Table::schema`], then those of removed fields. Tablets and the
    /// tail may lack some of them; read nulls there.
    pub schema: SchemaRef,
    /// Index of the key column, by which tablets are sorted first.
    pub key: Option<usize>,
    /// Index of `_time`, by which tablets are sorted next.
    pub time: usize,
    /// Index of the declared time field. Where it has a value, `_time` was taken from it.
    pub time_field: Option<usize>,
    /// Indexes of the columns that make an event unique.
    pub id: Vec<usize>,
    /// Version of the Delta log.
    pub version: i64,
    /// Committed files, without missing ones.
    pub tablets: Arc<[Arc<Tablet>]>,
    /// Rows that are not in a file yet; in log order within each partition.
    pub tail: Vec<RecordBatch>,
}

/// A snapshot that lacks the rows of some partitions that are in no file.
#[derive(Debug, Clone)]
pub struct PartialSnapshot {
    /// The files, and the tails of other partitions.
    pub snapshot: TableSnapshot,
    /// The tails that are missing.
    pub missing: Vec<MissingTail>,
}

/// Rows of a partition that another process has: those after the record `after`, which are in no file, before `next` if it is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MissingTail {
    /// The partition.
    pub partition: PartitionId,
    /// Last offset whose rows are in the files.
    pub after: Option<Offset>,
    /// Offset of the first record that is not wanted.
    pub next: Option<Offset>,
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("name", &self.name())
            .field("url", &self.location.url.as_str())
            .finish_non_exhaustive()
    }
}

impl Table {
    /// Returns the name of the table and of its stream.
    pub fn name(&self) -> &str {
        &self.stream.name
    }

    /// Returns the stream whose events the table stores.
    pub fn stream(&self) -> &Arc<StreamSchema> {
        &self.stream
    }

    /// Returns the schema of pushed batches: [`StreamSchema::table_schema`]. [`TableSnapshot::schema`] has
    /// all stored columns.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Appends rows of record `offset` of partition `p` to the tail and returns their number: 0 when the
    /// record is already in the table's files, as after a restart.
    ///
    /// Shape: `batch` has [`Table::schema`]; its `_partition` and `_offset` are `p` and `offset`; its rows
    /// continue those pushed for the same record before. Offsets of a partition do not decrease.
    /// Bounds: `LimitReached` when the tail holds `tail_bytes_max` bytes: flush, then push again.
    /// Errors: `Invalid` for another schema or partition; `Conflict` when the table was closed or reopened;
    /// `Internal` when offsets decrease. Nothing is appended then.
    pub fn push(&self, p: PartitionId, offset: Offset, batch: RecordBatch) -> Result<usize> {
        let tail = self.tail(p)?;
        self.check(p, offset, &batch)?;
        let rows = batch.num_rows();
        let mut tail = tail.lock();
        self.check_open()?;
        if rows == 0 || tail.committed.is_some_and(|c| offset <= c) {
            return Ok(0);
        }
        let pending = self.pending_bytes();
        if pending >= self.options.tail_bytes_max {
            return Err(Error::limit(format!(
                "the tail of table `{}` holds {pending} bytes that are not in its files yet; zones.tail_bytes_max is {}",
                self.name(),
                self.options.tail_bytes_max
            )));
        }
        let before = tail.bytes();
        tail.push(offset, batch).map_err(|e| e.context(format!("table `{}`, partition {p}", self.name())))?;
        self.pending_rows.fetch_add(rows as u64, Ordering::Relaxed);
        // Merged chunks may be smaller than before: the wrapping sum is still correct.
        self.pending_bytes.fetch_add(tail.bytes().wrapping_sub(before), Ordering::Relaxed);
        Ok(rows)
    }

    /// Drops the rows of partition `p` from record `from` on that are not in a file: the record was not applied to its end, and
    /// pushes its rows again.
    ///
    /// Errors: `Invalid` for a partition that the table does not have.
    pub fn forget_from(&self, p: PartitionId, from: Offset) -> Result<()> {
        let mut tail = self.tail(p)?.lock();
        let (rows, bytes) = (tail.rows(), tail.bytes());
        tail.forget_from(from)?;
        self.pending_rows.fetch_sub(rows - tail.rows(), Ordering::Relaxed);
        self.pending_bytes.fetch_sub(bytes.wrapping_sub(tail.bytes()), Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn tail(&self, p: PartitionId) -> Result<&Mutex<TableTail>> {
        self.tails.get(p.0 as usize).ok_or_else(|| {
            Error::invalid(format!(
                "table `{}` has no partition {p}: it has {}",
                self.name(),
                self.tails.len()
            ))
        })
    }

    fn check(&self, p: PartitionId, offset: Offset, batch: &RecordBatch) -> Result<()> {
        let same = Arc::ptr_eq(batch.schema_ref(), &self.schema)
            || batch.schema_ref().fields() == self.schema.fields();
        if !same {
            return Err(Error::invalid(format!(
                "table `{}` was given a batch with the columns {:?}: expected {:?}",
                self.name(),
                names(batch.schema_ref()),
                names(&self.schema)
            )));
        }
        let Some(last) = batch.num_rows().checked_sub(1) else { return Ok(()) };
        // `_partition`, `_offset` and `_row` are the last three columns of every table schema
        let columns = batch.num_columns();
        let partitions = batch.column(columns - 3).as_primitive::<Int32Type>();
        let offsets = batch.column(columns - 2).as_primitive::<Int64Type>();
        let agrees = |row: usize| {
            u32::try_from(partitions.value(row)) == Ok(p.0)
                && u64::try_from(offsets.value(row)) == Ok(offset.0)
        };
        if agrees(0) && agrees(last) {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "table `{}` was given rows for partition {p}, offset {offset} whose _partition and _offset are {} and {}",
            self.name(),
            partitions.value(0),
            offsets.value(0)
        )))
    }

    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::conflict(format!(
                "table `{}` was closed or opened with another schema: ask for it again",
                self.name()
            )));
        }
        Ok(())
    }

    /// Returns the last offset of partition `p` whose rows are in the table's files.
    pub fn committed(&self, p: PartitionId) -> Option<Offset> {
        self.tails.get(p.0 as usize).and_then(|t| t.lock().committed)
    }

    /// Returns the lowest offset of partition `p` whose rows are in the tail only.
    pub fn first_pending(&self, p: PartitionId) -> Option<Offset> {
        self.tails.get(p.0 as usize).and_then(|t| t.lock().first())
    }

    /// Returns the number of rows in the tail.
    pub fn pending_rows(&self) -> u64 {
        self.pending_rows.load(Ordering::Relaxed)
    }

    /// Returns the number of rows of partition `p` in the tail.
    pub fn pending_rows_of(&self, p: PartitionId) -> u64 {
        self.tails.get(p.0 as usize).map_or(0, |tail| tail.lock().rows())
    }

    /// Returns the size of the tail in bytes.
    pub fn pending_bytes(&self) -> u64 {
        self.pending_bytes.load(Ordering::Relaxed)
    }

    /// Returns the number of rows of all live files in the Delta log.
    pub fn tablet_rows(&self) -> u64 {
        self.committed_state.lock().rows
    }

    /// Returns the committed files, without missing ones.
    pub fn tablets(&self) -> Arc<[Arc<Tablet>]> {
        self.committed_state.lock().tablets.clone()
    }

    /// Returns the files whose rows are missing from snapshots, found when the table was opened degraded.
    pub fn missing(&self) -> &[MissingFile] {
        &self.missing
    }

    /// Returns a snapshot of the table. Cheap: copies shared pointers, no rows.
    pub fn snapshot(&self) -> TableSnapshot {
        let shared = self.committed_state.lock();
        let mut tail = Vec::new();
        for partition in &self.tails {
            tail.extend(partition.lock().batches());
        }
        self.snapshot_of(&shared, tail)
    }

    /// Returns a snapshot with the rows of the records before `next`, one offset for each partition; `None` if the files
    /// already have rows of later records. Cheap, as [`Self::snapshot`].
    pub fn snapshot_before(&self, next: &[Offset]) -> Option<TableSnapshot> {
        let shared = self.committed_state.lock();
        let mut tail = Vec::new();
        for (partition, next) in self.tails.iter().zip(next) {
            let partition = partition.lock();
            if partition.committed.is_some_and(|committed| committed >= *next) {
                return None;
            }
            let last = next.0.checked_sub(1).map(Offset);
            tail.extend(last.and_then(|last| partition.upto(last)).into_iter().flat_map(|(_, rows)| rows));
        }
        Some(self.snapshot_of(&shared, tail))
    }

    /// Returns the files and the tails of the partitions that this process applies, for a snapshot to which another process adds the
    /// rest: for each other partition, the last offset whose rows are in the files. `next` bounds the rows of each partition as in
    /// [`Self::snapshot_before`].
    pub fn partial_snapshot(
        &self,
        next: Option<&[Offset]>,
        is_applied_here: impl Fn(PartitionId) -> bool,
    ) -> Option<PartialSnapshot> {
        let shared = self.committed_state.lock();
        let (mut tail, mut missing) = (Vec::new(), Vec::new());
        for (index, partition) in self.tails.iter().enumerate() {
            let id = PartitionId(index as u32);
            let next = next.and_then(|next| next.get(index).copied());
            let partition = partition.lock();
            if next.is_some_and(|next| partition.committed.is_some_and(|committed| committed >= next)) {
                return None;
            }
            match (is_applied_here(id), next) {
                (false, next) => {
                    missing.push(MissingTail { partition: id, after: partition.committed, next })
                }
                (true, None) => tail.extend(partition.batches()),
                (true, Some(next)) => tail.extend(partition.before(next)),
            }
        }
        Some(PartialSnapshot { snapshot: self.snapshot_of(&shared, tail), missing })
    }

    /// Returns the rows of a partition that are in no file, after the record `after` and before `next`, for a snapshot of another process
    /// whose files have those up to `after`. `None` if the files have rows behind `after` by now.
    ///
    /// Errors: `Invalid` for a partition that the table does not have.
    pub fn tail_rows(
        &self,
        p: PartitionId,
        after: Option<Offset>,
        next: Option<Offset>,
    ) -> Result<Option<Vec<RecordBatch>>> {
        let tail = self.tail(p)?.lock();
        if tail.committed > after {
            return Ok(None);
        }
        let from = after.map_or(Offset(0), Offset::next);
        Ok(Some(tail.between(from, next.unwrap_or(Offset(u64::MAX)))))
    }

    fn snapshot_of(&self, shared: &CommittedState, tail: Vec<RecordBatch>) -> TableSnapshot {
        // Delta versions count commits: they stay far below 2^63.
        TableSnapshot {
            schema: self.stored_schema.clone(),
            key: self.stream.key,
            // `_time` follows the declared fields in every table schema
            time: self.stream.fields.len(),
            time_field: self.stream.time,
            id: self.stream.id.clone(),
            version: shared.version as i64,
            tablets: shared.tablets.clone(),
            tail,
        }
    }

    /// Publishes the state of the writer to readers: files, version and, for each partition, the offset that
    /// the files reach.
    pub(crate) fn publish(&self, writer: &DeltaWriter) -> Result<()> {
        let live = || writer.files.values().filter(|t| !self.missing.iter().any(|m| m.name == t.name));
        let mut shared = self.committed_state.lock();
        if shared.version == writer.version {
            return Ok(());
        }
        for (index, tail) in self.tails.iter().enumerate() {
            let mut tail = tail.lock();
            let committed = crate::delta::commit::committed(&writer.txns, PartitionId(index as u32));
            let Some(committed) = committed.filter(|c| tail.committed != Some(*c)) else { continue };
            let (rows, bytes) = (tail.rows(), tail.bytes());
            tail.commit(committed)?;
            self.pending_rows.fetch_sub(rows - tail.rows(), Ordering::Relaxed);
            self.pending_bytes.fetch_sub(bytes.wrapping_sub(tail.bytes()), Ordering::Relaxed);
        }
        shared.tablets = live().cloned().collect();
        shared.rows = writer.files.values().map(|t| t.rows).sum();
        shared.removed_rows = writer.removed_rows();
        shared.version = writer.version;
        Ok(())
    }

    /// Returns the partitions of this process that another one owns by now, as the commits tell that are known here.
    pub async fn lost_partitions(&self) -> Vec<PartitionId> {
        let writer = self.writer.lock().await;
        let partitions = (0..self.tails.len() as u32).map(PartitionId);
        partitions.filter(|p| later_owner(&writer.txns, &self.epochs, *p).is_some()).collect()
    }

    /// Applies the commits of other writers since the table was opened or flushed.
    ///
    /// Errors: `Unavailable`; `Corrupt`; `Invalid` for entries that Tidemill does not support.
    pub async fn refresh(&self) -> Result<()> {
        let mut writer = self.writer.lock().await;
        let outcome = writer.refresh().await;
        self.publish(&writer)?;
        outcome
    }

    /// Removes files that no Delta version younger than `retention` refers to, and returns their paths; with
    /// `dry_run` only returns them. A reader of an older version loses its files, so `retention` must exceed
    /// the longest query.
    ///
    /// Errors: `Unavailable`.
    pub async fn vacuum(&self, retention: Duration, dry_run: bool) -> Result<Vec<String>> {
        let mut writer = self.writer.lock().await;
        let removed = maintenance::vacuum(&writer.location, self.name(), retention, dry_run).await;
        let refreshed = writer.refresh().await;
        self.publish(&writer)?;
        let removed = removed?;
        refreshed.map(|()| removed)
    }
}

fn names(schema: &SchemaRef) -> Vec<String> {
    schema.fields().iter().map(|f| format!("{} {}", f.name(), f.data_type())).collect()
}
