//! Flushing: each flush of a tail to files is one Delta commit.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow_array::RecordBatch;
use tidemill_types::{Offset, PartitionId, Result};

use crate::delta::builder::{CommitBuilder, RowChange};
use crate::delta::commit::{DeltaWriter, OffsetAdvance, PreparedCommit, committed};
use crate::delta::maintenance;
use crate::error::internal;
use crate::table::Table;
use crate::tablets::tablet::LEVEL_FLUSHED;

/// Result of a flush.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushResult {
    /// Delta version of its last commit; there are two if it first finished an earlier commit.
    pub version: i64,
    /// Number of rows moved from the tail to files.
    pub rows: u64,
    /// Size of these files in bytes.
    pub bytes: u64,
    /// Number of these files.
    pub files: usize,
    /// Highest committed offset of each flushed partition.
    pub offsets: Vec<(PartitionId, Offset)>,
}

/// Rows selected for a flush; they stay in the tail until the commit.
#[derive(Default)]
struct FlushRows {
    advances: Vec<OffsetAdvance>,
    batches: Vec<RecordBatch>,
}

impl Table {
    /// Moves every row at or below the given offset of each partition from the tail to sorted Parquet files,
    /// in one Delta commit; `None` if the tail has no such row. Pushes and snapshots proceed concurrently;
    /// flushes of one table are serialized.
    ///
    /// The caller guarantees for every given offset that the log is durable up to it and that all rows of the
    /// records up to it were pushed. Rows of such a record pushed afterwards would be dropped as replayed.
    ///
    /// Errors: `Unavailable` when the store does not answer: the rows stay in the tail, and the next flush
    /// first finishes the unfinished commit, so that nothing is lost or duplicated regardless of its outcome.
    /// `Conflict` when a later owner took over a partition (the engine must stop it) or another writer
    /// committed rows of it; the other partitions of this call are not flushed either and may be flushed
    /// again.
    pub async fn flush(&self, upto: &[(PartitionId, Offset)]) -> Result<Option<FlushResult>> {
        self.check_open()?;
        let mut writer = self.writer.lock().await;
        let mut done = None;
        self.finish(&mut writer, true, &mut done).await?;
        let taken = self.take_rows(&writer, upto)?;
        if !taken.advances.is_empty() {
            writer.prepared = Some(Arc::new(self.prepare(taken).await?));
            self.finish(&mut writer, false, &mut done).await?;
        }
        if done.is_some() {
            self.maintain(&writer).await;
        }
        Ok(done)
    }

    /// Returns the rows at or below `upto`, ordered by partition and offset.
    fn take_rows(&self, writer: &DeltaWriter, upto: &[(PartitionId, Offset)]) -> Result<FlushRows> {
        let mut highest = BTreeMap::new();
        for (p, offset) in upto {
            let entry = highest.entry(*p).or_insert(*offset);
            *entry = (*entry).max(*offset);
        }
        let mut taken = FlushRows::default();
        for (partition, upto) in highest {
            if let Some((last, batches)) = self.tail(partition)?.lock().upto(upto) {
                let before = committed(&writer.txns, partition);
                taken.advances.push(OffsetAdvance { partition, before, upto: last });
                taken.batches.extend(batches);
            }
        }
        Ok(taken)
    }

    /// Sorts and encodes the rows and builds the Delta log entry.
    async fn prepare(&self, taken: FlushRows) -> Result<PreparedCommit> {
        let encoder = self.encoder.clone();
        let FlushRows { advances, batches } = taken;
        let encoded = tokio::task::spawn_blocking(move || encoder.encode(&batches))
            .await
            .map_err(|e| internal("the task that writes tablets ended early", e))??;
        let mut commit = CommitBuilder::new("WRITE", self.now_ms());
        commit.advance(advances, &self.epochs)?;
        let mut rows = 0;
        for tablet in encoded {
            rows += tablet.rows;
            commit.add(tablet, LEVEL_FLUSHED, &self.location, RowChange::Changed)?;
        }
        commit.build(rows)
    }

    /// Returns the time of new commits, in milliseconds.
    pub(crate) fn now_ms(&self) -> i64 {
        (self.clock)().micros().div_euclid(1_000)
    }

    /// Finishes the prepared commit, if there is one, and publishes the resulting state. Reports what a flush moved in `done`.
    pub(crate) async fn finish(
        &self,
        writer: &mut DeltaWriter,
        resumed: bool,
        done: &mut Option<FlushResult>,
    ) -> Result<()> {
        let outcome = writer.finish(resumed).await;
        // Publish after a failure, too: commits of other writers may have been applied on the way.
        self.publish(writer)?;
        let Some((version, prepared)) = outcome? else { return Ok(()) };
        if prepared.advances.is_empty() {
            return Ok(());
        }
        let flushed =
            done.get_or_insert(FlushResult { version: 0, rows: 0, bytes: 0, files: 0, offsets: Vec::new() });
        flushed.version = version as i64;
        flushed.rows += prepared.rows;
        flushed.bytes += prepared.files.iter().map(|file| file.size).sum::<u64>();
        flushed.files += prepared.files.len();
        for mark in &prepared.advances {
            flushed.offsets.retain(|(p, _)| *p != mark.partition);
            flushed.offsets.push((mark.partition, mark.upto));
        }
        Ok(())
    }

    /// Writes a Delta checkpoint when it is due. A failure does not fail the flush: the next flush retries.
    pub(crate) async fn maintain(&self, writer: &DeltaWriter) {
        let last = self.checkpoint.load(Ordering::Relaxed);
        if writer.version < last + self.options.delta_checkpoint_commits {
            return;
        }
        match maintenance::checkpoint(&writer.location, self.name()).await {
            Ok(version) => self.checkpoint.store(version, Ordering::Relaxed),
            Err(error) => tracing::warn!(table = self.name(), %error, "no Delta checkpoint this time"),
        }
    }
}
