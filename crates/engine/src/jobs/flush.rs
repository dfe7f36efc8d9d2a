//! Flushes: rows of tails become tablets.

use std::num::NonZero;
use std::sync::atomic::Ordering;

use futures::StreamExt;
use tidemill_log::Durability;
use tidemill_types::{Error, Offset, PartitionId, Result};
use tidemill_zones::Table;
use tokio::runtime::RuntimeFlavor;

use crate::core::Core;
use crate::partition::Partition;
use crate::planted_bugs::{PlantedBug, is_planted};

/// Returns whether the tail of a table, by its position in [`crate::tables::TableSet::writable`], is large
/// enough to be flushed before its interval has passed.
pub fn is_large(core: &Core, table: usize) -> bool {
    let mut tables = core.tables.writable();
    tables.nth(table).is_some_and(|(_, t)| t.pending_bytes() >= core.deployment.settings.flush_bytes())
}

/// Flushes a table; see [`is_large`].
pub fn run(core: &Core, table: usize) {
    let Some((stream, table)) = core.tables.writable().nth(table) else { return };
    let mut result = Ok(());
    if table.pending_rows() > 0 {
        let (durable, failed) = sync_log(core, shown);
        result = core.tables.runtime.block_on(flush_table(core, table, &durable));
        result = result.and(failed.map_or(Ok(()), Err));
    }
    match result {
        Ok(()) => core.health.clear_problem_of("tables", &stream.name),
        Err(e) => core.health.report_problem_of("tables", &stream.name, e.to_string()),
    }
    if !core.tails_full() {
        core.health.clear_problem("tables");
    }
}

/// Commits the tail of every table up to the records that are shown and durable now, as many tables at once as there
/// are cores. A table that fails keeps its tail; the others go on.
pub fn flush(core: &Core) -> Result<()> {
    flush_tables(core, shown)
}

fn flush_tables(core: &Core, next: fn(&Partition) -> Offset) -> Result<()> {
    let (durable, failed) = sync_log(core, next);
    // A simulation has one thread and must repeat exactly, so its tables are flushed one after the other.
    let at_once = match core.tables.runtime.handle().runtime_flavor() {
        RuntimeFlavor::CurrentThread => 1,
        _ => std::thread::available_parallelism().map_or(1, NonZero::get),
    };
    let flushes =
        futures::stream::iter(core.tables.writable()).map(|(_, table)| flush_table(core, table, &durable));
    let results: Vec<Result<()>> = core.tables.runtime.block_on(flushes.buffered(at_once).collect());
    results.into_iter().filter_map(Result::err).chain(failed).next().map_or(Ok(()), Err)
}

/// Flushes when a tail is full, for a replay, during which no jobs run.
pub fn flush_full_tails(core: &Core) -> Result<()> {
    if core.tails_full() { flush_tables(core, Partition::applied) } else { Ok(()) }
}

/// Returns the offset after the last record whose effects readers see. A file never has rows of a later one, so that
/// [`crate::engine::Engine::moment`] waits for no owner: the applied part of a transaction of several partitions is shown once all
/// of them have come as far.
fn shown(partition: &Partition) -> Offset {
    partition.with_view(|view| view.next).min(partition.applied())
}

async fn flush_table(core: &Core, table: &Table, durable: &[(PartitionId, Offset)]) -> Result<()> {
    let start = core.clock.monotonic();
    if let Some(flushed) = core.until_stop(table.flush(durable)).await? {
        let took = core.clock.monotonic() - start;
        core.counts.tablets.fetch_add(flushed.files as u64, Ordering::Relaxed);
        core.counts.flush_us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Makes the log durable up to the offset `next` of each partition and returns the last record before it: rows up to it may
/// be flushed. For a partition whose log cannot be synced it returns the last durable record, and the error.
fn sync_log(core: &Core, next: fn(&Partition) -> Offset) -> (Vec<(PartitionId, Offset)>, Option<Error>) {
    let (mut durable, mut failed) = (Vec::new(), None);
    for partition in core.partitions() {
        let mut next = next(partition);
        let last = next.0.checked_sub(1).map(Offset);
        let last = last.filter(|_| !is_planted(PlantedBug::FlushBeforeDurable));
        if let Some(e) = last.and_then(|last| core.log.sync(partition.id, last, Durability::Fsync).err()) {
            next = next.min(core.log.durable(partition.id));
            failed = Some(e);
        }
        durable.extend(next.0.checked_sub(1).map(|last| (partition.id, Offset(last))));
    }
    (durable, failed)
}
