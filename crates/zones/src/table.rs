//! A table: what is in its files, what is in its tail, and both at one instant.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_schema::SchemaRef;
use parking_lot::Mutex;
use tidemill_types::{Error, Offset, PartitionId, Result, StreamSchema};

use crate::delta::commit::DeltaWriter;
use crate::delta::maintenance;
use crate::encode::Encoder;
use crate::location::Location;
use crate::tablet::Tablet;
use crate::tail::Tail;
use crate::{Clock, ZonesOptions};

/// The table of one stream.
///
/// Rows come in through [`Table::push`] and are visible to [`Table::snapshot`] from then on. [`Table::flush`]
/// moves them from the tail to Parquet files and commits these to Delta together with the offsets they reach,
/// so that a restart knows which records of the log it need not push again.
///
/// Locks: `shared` may be held while `tails` are taken one after the other, never the other way round. A
/// flush changes files and tails while it holds `shared`; a snapshot holds it too: it sees a flush as a whole
/// or not at all. A push takes one tail only.
pub struct Table {
    pub(crate) stream: Arc<StreamSchema>,
    pub(crate) schema: SchemaRef,
    /// `schema`, then the columns that are stored and no longer declared.
    pub(crate) stored_schema: SchemaRef,
    pub(crate) location: Location,
    pub(crate) options: Arc<ZonesOptions>,
    pub(crate) epoch: u64,
    pub(crate) clock: Clock,
    pub(crate) encoder: Arc<Encoder>,
    pub(crate) tails: Box<[Mutex<Tail>]>,
    pub(crate) pending_rows: AtomicU64,
    pub(crate) pending_bytes: AtomicU64,
    pub(crate) committed_state: Mutex<CommittedState>,
    pub(crate) writer: tokio::sync::Mutex<DeltaWriter>,
    /// Version of the last Delta checkpoint.
    pub(crate) checkpoint: AtomicU64,
    pub(crate) missing: Box<[MissingFile]>,
    pub(crate) closed: AtomicBool,
}

/// The committed side of a table.
#[derive(Debug)]
pub(crate) struct CommittedState {
    pub version: u64,
    pub tablets: Arc<[Arc<Tablet>]>,
    /// Rows of all live files in the Delta log, those of missing files included.
    pub rows: u64,
}

/// A file that the Delta log names and the store does not have as the log describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissingFile {
    /// Its path below the table.
    pub name: String,
    /// The rows it held.
    pub rows: u64,
    /// What is wrong with it.
    pub problem: String,
}

/// A table at one instant: every row pushed before it, exactly once, either in a tablet or in the tail.
#[derive(Debug, Clone)]
pub struct TableSnapshot {
    /// All columns: the declared ones as [`Table::schema`] has them, then those of removed fields. Tablets and the tail
    /// may lack some of them: they are null there.
    pub schema: SchemaRef,
    /// Version of the Delta log.
    pub version: i64,
    /// The files.
    pub tablets: Arc<[Arc<Tablet>]>,
    /// The rows that are in no file yet; in each partition in the order of the log.
    pub tail: Vec<RecordBatch>,
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
    /// The name of the table and of its stream.
    pub fn name(&self) -> &str {
        &self.stream.name
    }

    /// The stream whose events it keeps.
    pub fn stream(&self) -> &Arc<StreamSchema> {
        &self.stream
    }

    /// The schema of what is pushed: [`StreamSchema::table_schema`]. [`TableSnapshot::schema`] has all that is stored.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Joins the rows of record `offset` of partition `p` to the tail and returns how many they were: 0 when
    /// the record is already in the table's files, as after a restart.
    ///
    /// Shape: `batch` has [`Table::schema`]; its `_partition` and `_offset` are `p` and `offset`; its rows go
    /// on after those pushed for the same record before. Offsets of a partition do not decrease.
    /// Bounds: `LimitReached` when the tail holds `tail_bytes_max` bytes: flush, then push again.
    /// Errors: `Invalid` for another schema or partition; `Conflict` when the table was closed or opened
    /// again; `Internal` when the order of the log was broken. Nothing is joined then.
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
        // merged chunks may have fewer bytes than before: the sum wraps to the right value
        self.pending_bytes.fetch_add(tail.bytes().wrapping_sub(before), Ordering::Relaxed);
        Ok(rows)
    }

    pub(crate) fn tail(&self, p: PartitionId) -> Result<&Mutex<Tail>> {
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
        // _partition, _offset and _row are the last three columns of every table schema
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

    /// The last offset of partition `p` whose rows are in the table's files.
    pub fn committed(&self, p: PartitionId) -> Option<Offset> {
        self.tails.get(p.0 as usize).and_then(|t| t.lock().committed)
    }

    /// The lowest offset of partition `p` whose rows are in the tail only.
    pub fn first_pending(&self, p: PartitionId) -> Option<Offset> {
        self.tails.get(p.0 as usize).and_then(|t| t.lock().first())
    }

    /// Rows in the tail.
    pub fn pending_rows(&self) -> u64 {
        self.pending_rows.load(Ordering::Relaxed)
    }

    /// Bytes in the tail.
    pub fn pending_bytes(&self) -> u64 {
        self.pending_bytes.load(Ordering::Relaxed)
    }

    /// Rows of all files that the Delta log counts as live.
    pub fn tablet_rows(&self) -> u64 {
        self.committed_state.lock().rows
    }

    /// Files whose rows are left out of snapshots, found when the table was opened degraded.
    pub fn missing(&self) -> &[MissingFile] {
        &self.missing
    }

    /// The table at this instant. Cheap: shared pointers are copied, no rows.
    pub fn snapshot(&self) -> TableSnapshot {
        let shared = self.committed_state.lock();
        let mut tail = Vec::new();
        for partition in &self.tails {
            tail.extend(partition.lock().batches());
        }
        // Delta versions are counted by commits: they stay far below 2^63
        TableSnapshot {
            schema: self.stored_schema.clone(),
            version: shared.version as i64,
            tablets: shared.tablets.clone(),
            tail,
        }
    }

    /// Takes over what the writer knows: files, version and, for each partition, the offset that the files
    /// reach.
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
        shared.version = writer.version;
        Ok(())
    }

    /// Takes over what other writers have committed to the table since it was opened or flushed.
    ///
    /// Errors: `Unavailable`; `Corrupt`; `Invalid` for entries that Tidemill does not read.
    pub async fn refresh(&self) -> Result<()> {
        let mut writer = self.writer.lock().await;
        let outcome = writer.refresh().await;
        self.publish(&writer)?;
        outcome
    }

    /// Removes files that no Delta version younger than `retention` refers to, and returns their paths; with
    /// `dry_run` only says which. A reader that is at work on an older version loses its files, so
    /// `retention` must exceed the longest query.
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
