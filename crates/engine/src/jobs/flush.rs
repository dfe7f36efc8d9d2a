//! Flushes: rows of tails become tablets.

use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures::StreamExt;
use tidemill_log::Durability;
use tidemill_types::{Error, Offset, PartitionId, Result};
use tidemill_zones::Table;
use tokio::runtime::RuntimeFlavor;

use crate::node::Node;
use crate::partition::Partition;
use crate::planted_bugs::{PlantedBug, is_planted};

/// Returns whether the tail of a table, by its position in [`crate::tables::TableSet::writable`], is large
/// enough to be flushed before its interval has passed.
pub fn is_large(node: &Node, table: usize) -> bool {
    let mut tables = node.app.tables.writable();
    tables.nth(table).is_some_and(|(_, t)| t.pending_bytes() >= node.app.deployment.settings.flush_bytes())
}

/// Flushes a table; see [`is_large`].
pub fn run(node: &Node, table: usize) {
    let Some((stream, table)) = node.app.tables.writable().nth(table) else { return };
    let mut result = Ok(());
    if !node.owned.following().is_empty() {
        // what other owners have committed leaves the tail
        result = node.host.runtime.block_on(node.host.until_stop(table.refresh()));
    }
    if table.pending_rows() > 0 {
        let (durable, failed) = sync_log(node, shown);
        result = result.and(node.host.runtime.block_on(flush_table(node, table, &durable)));
        result = result.and(failed.map_or(Ok(()), Err));
    }
    match result {
        Ok(()) => node.host.health.clear_problem_of("tables", &stream.name),
        Err(e) => node.host.health.report_problem_of("tables", &stream.name, e.to_string()),
    }
    if !node.app.tails_full() {
        node.host.health.clear_problem("tables");
    }
}

/// Commits the tail of every table up to the records that are shown and durable now, as many tables at once as there
/// are cores. A table that fails keeps its tail; the others go on.
pub fn flush(node: &Node) -> Result<()> {
    flush_tables(node, shown)
}

/// Commits the rows of one partition up to the last record that is applied.
#[cfg(feature = "sim")]
pub fn flush_partition(node: &Node, partition: &Arc<Partition>) -> Result<()> {
    let (durable, failed) = sync_logs(node, std::slice::from_ref(partition), Partition::applied);
    for (_, table) in node.app.tables.writable() {
        node.host.runtime.block_on(flush_table(node, table, &durable))?;
    }
    failed.map_or(Ok(()), Err)
}

fn flush_tables(node: &Node, next: fn(&Partition) -> Offset) -> Result<()> {
    let (durable, failed) = sync_log(node, next);
    // A simulation has one thread and must repeat exactly, so its tables are flushed one after the other.
    let at_once = match node.host.runtime.handle().runtime_flavor() {
        RuntimeFlavor::CurrentThread => 1,
        _ => std::thread::available_parallelism().map_or(1, NonZero::get),
    };
    let flushes = futures::stream::iter(node.app.tables.writable())
        .map(|(_, table)| flush_table(node, table, &durable));
    let results: Vec<Result<()>> = node.host.runtime.block_on(flushes.buffered(at_once).collect());
    results.into_iter().filter_map(Result::err).chain(failed).next().map_or(Ok(()), Err)
}

/// Flushes when a tail is full, for a replay, during which no jobs run.
pub fn flush_full_tails(node: &Node) -> Result<()> {
    if node.app.tails_full() { flush_tables(node, Partition::applied) } else { Ok(()) }
}

/// Returns the offset after the last record whose effects readers see. A file never has rows of a later one, so that
/// [`crate::engine::Engine::moment`] waits for no owner: the applied part of a transaction of several partitions is shown once all
/// of them have come as far.
fn shown(partition: &Partition) -> Offset {
    partition.with_view(|view| view.next).min(partition.applied())
}

async fn flush_table(node: &Node, table: &Table, durable: &[(PartitionId, Offset)]) -> Result<()> {
    let start = node.host.clock.monotonic();
    if let Some(flushed) = node.host.until_stop(table.flush(durable)).await? {
        let took = node.host.clock.monotonic() - start;
        node.app.counts.tablets.fetch_add(flushed.files as u64, Ordering::Relaxed);
        node.app.counts.flush_us.fetch_add(took.as_micros() as u64, Ordering::Relaxed);
    }
    Ok(())
}

/// Makes the log durable up to the offset `next` of each partition and returns the last record before it: rows up to it may
/// be flushed. For a partition whose log cannot be synced it returns the last durable record, and the error.
fn sync_log(node: &Node, next: fn(&Partition) -> Offset) -> (Vec<(PartitionId, Offset)>, Option<Error>) {
    // those that are opened fill tails as well
    let partitions = [node.owned.all(), node.owned.opening()].concat();
    sync_logs(node, &partitions, next)
}

fn sync_logs(
    node: &Node,
    partitions: &[Arc<Partition>],
    next: fn(&Partition) -> Offset,
) -> (Vec<(PartitionId, Offset)>, Option<Error>) {
    let (mut durable, mut failed) = (Vec::new(), None);
    for partition in partitions {
        let mut next = next(partition);
        let last = next.0.checked_sub(1).map(Offset);
        let last = last.filter(|_| !is_planted(PlantedBug::FlushBeforeDurable));
        if let Some(e) = last.and_then(|last| node.host.log.sync(partition.id, last, Durability::Fsync).err())
        {
            next = next.min(node.host.log.durable(partition.id));
            failed = Some(e);
        }
        durable.extend(next.0.checked_sub(1).map(|last| (partition.id, Offset(last))));
    }
    (durable, failed)
}
