//! From the batches of a source to the logs of the partitions.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemill_connect::{Source, SourceBatch};
use tidemill_log::Ticket;
use tidemill_types::{PartitionId, Result};

use crate::core::Core;
use crate::entry::{Entry, Events, RejectedRow};
use crate::ingest::PartitionedRows;
use crate::queries::Partitioner;

/// Position of a source in every partition. The source resumes at the minimum; each partition skips the rows
/// it has.
pub(super) struct SourcePositions {
    pub name: String,
    pub by_partition: Vec<u64>,
}

impl SourcePositions {
    pub fn read(core: &Core, name: &str) -> Self {
        let of = core.partitions().iter().map(|p| p.view().sources.get(name).copied().unwrap_or(0)).collect();
        Self { name: name.to_owned(), by_partition: of }
    }

    pub fn start(&self) -> u64 {
        self.by_partition.iter().copied().min().unwrap_or(0)
    }
}

/// Sends everything that `source` returns, up to its end or until sources stop. `stream` is the stream of
/// rejected rows that name none.
pub(super) fn append_source(
    core: &Arc<Core>,
    source: &mut dyn Source,
    positions: &SourcePositions,
    stream: &str,
) -> Result<()> {
    let mut appender = SourceAppender { core, positions, stream, appended: positions.by_partition.clone() };
    let mut end = positions.start();
    while let Some(batch) = source.next(core.clock.now())? {
        end = batch.position;
        appender.append(batch)?;
        if core.sources_stopping() {
            return Ok(());
        }
    }
    appender.end(end)
}

/// Appends the rows of one source. Each record has the source's name and position, so that a partition never
/// takes a row twice and none is skipped after a crash.
struct SourceAppender<'a> {
    core: &'a Arc<Core>,
    positions: &'a SourcePositions,
    stream: &'a str,
    /// Position in the last record of each partition.
    appended: Vec<u64>,
}

impl SourceAppender<'_> {
    fn append(&mut self, batch: SourceBatch) -> Result<()> {
        let core = self.core;
        let mut rejected = self.rejected_rows(&batch, &core.deployment.partitioner);
        rejected.values().flatten().for_each(|row| core.source_rejections.add(&self.positions.name, row));
        let mut split = batch.rows.split_from(
            &batch.row_numbers,
            &self.positions.by_partition,
            &core.deployment.partitioner,
        )?;
        for (p, rows) in split.drain(..).enumerate() {
            let rejected = rejected.remove(&p).unwrap_or_default();
            if rows.is_none() && rejected.is_empty() {
                continue;
            }
            let rows = rows.unwrap_or_default();
            core.counts.accepted.fetch_add(rows.len() as u64, Ordering::Relaxed);
            let events = Events { parts: rows.parts, order: rows.order, rejected, ..Events::default() };
            self.append_record(p, batch.position, events)?;
        }
        Ok(())
    }

    /// Stores the final position in every partition.
    fn end(&mut self, position: u64) -> Result<()> {
        for p in 0..self.appended.len() {
            if self.appended[p] < position {
                self.append_record(p, position, Events::default())?;
            }
        }
        Ok(())
    }

    fn append_record(&mut self, p: usize, position: u64, events: Events) -> Result<()> {
        let events = Events { source: Some((self.positions.name.clone(), position)), ..events };
        append_with_retry(self.core, p, || Entry::Events(events.clone()))?;
        self.appended[p] = position;
        Ok(())
    }

    /// Groups bad rows by the partition whose ledger counts them.
    fn rejected_rows(&self, batch: &SourceBatch, homes: &Partitioner) -> HashMap<usize, Vec<RejectedRow>> {
        let mut rejected: HashMap<usize, Vec<RejectedRow>> = HashMap::new();
        for bad in &batch.rejected {
            let stream = bad.stream.as_deref().unwrap_or(self.stream);
            let p = homes.for_stream(stream).0 as usize;
            if bad.origin.number >= self.positions.by_partition[p] {
                rejected.entry(p).or_default().push(RejectedRow {
                    stream: stream.to_owned(),
                    kind: "malformed".into(),
                    reason: bad.message.clone(),
                    raw: bad.text.clone(),
                    origin: format!("{}:{}", self.positions.name, bad.origin.number + 1),
                });
            }
        }
        rejected
    }
}

/// Retries until the log accepts the entry: a file source can wait for a full disk or a busy partition.
pub(super) fn append_with_retry(core: &Arc<Core>, p: usize, entry: impl Fn() -> Entry) -> Result<()> {
    let partition = &core.partitions()[p];
    debug_assert_eq!(partition.id, PartitionId(p as u32));
    loop {
        let result = partition
            .backlog
            .wait_for_room(&*core.clock, Duration::from_secs(1))
            .and_then(|()| core.check_disk_space())
            .and_then(|()| partition.append(core, entry(), core.deployment.settings.durability, None))
            // the next entry has a later position in the source: it must not be in the log without this one
            .and_then(Ticket::wait_assigned);
        match result {
            Ok(_) => return Ok(()),
            Err(e) if !e.kind().is_retryable() || core.sources_stopping() => return Err(e),
            Err(e) => {
                tracing::debug!(partition = p, error = %e, "a source waits");
                core.clock.sleep(Duration::from_millis(20));
            }
        }
    }
}
