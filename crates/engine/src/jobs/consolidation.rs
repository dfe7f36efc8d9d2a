//! Consolidation: small tablets become large ones, and files that are no longer read are deleted.

use std::sync::atomic::Ordering;

use tidemill_types::Result;
use tidemill_zones::Table;

use crate::node::Node;

/// Area of the problems of consolidation.
const AREA: &str = "consolidation";

/// Merges the small tablets of a table, by its position in [`crate::tables::TableSet::writable`], until there are few.
pub fn run(node: &Node, table: usize) {
    let Some((stream, table)) = node.app.tables.writable().nth(table) else { return };
    match consolidate(node, table) {
        Ok(()) => match table.unmergeable().as_slice() {
            [] => node.host.health.clear_problem_of(AREA, &stream.name),
            [first, others @ ..] => {
                let problem = format!(
                    "table {}: {first} and {} other tablets are damaged or not sorted and are not merged; the rest is",
                    stream.name,
                    others.len()
                );
                node.host.health.report_problem_of(AREA, &stream.name, problem);
            }
        },
        Err(e) => {
            let problem =
                format!("the tablets of table {} are not merged: {e}; they stay as they are", stream.name);
            node.host.health.report_problem_of(AREA, &stream.name, problem);
        }
    }
}

/// Merges the small tablets of a table until there are few.
pub fn consolidate(node: &Node, table: &Table) -> Result<()> {
    while !node.host.is_stopping() {
        let Some(done) = node.host.runtime.block_on(node.host.unless_stopped(table.consolidate()))? else {
            tracing::info!(table = table.name(), "a merge is left for the next start");
            break;
        };
        let Some(done) = done else { break };
        node.app.counts.consolidations.fetch_add(1, Ordering::Relaxed);
        tracing::debug!(
            table = table.name(),
            tablets = done.merged,
            rows = done.rows,
            bytes_before = done.bytes_before,
            bytes = done.bytes,
            "merged tablets"
        );
    }
    Ok(())
}

/// Deletes files of all tables that were replaced long ago, unless a backup copies them.
pub fn remove_old_files(node: &Node) {
    let Some(_no_backup) = node.host.backups.removals.try_lock() else { return };
    let removed = for_each_table(node, |table| {
        let removed = node.host.unless_stopped(table.remove_old_files());
        node.host.runtime.block_on(removed).map(|_| ())
    });
    node.host.health.record_outcome("old files of tables", removed);
}

/// Deletes files of all tables that a crash left behind.
pub fn sweep_orphans(node: &Node) {
    let swept = for_each_table(node, |table| {
        let swept = node.host.unless_stopped(table.sweep_orphans());
        node.host.runtime.block_on(swept).map(|_| ())
    });
    node.host.health.record_outcome("orphans of tables", swept);
}

/// Runs a step for every table. A table that fails does not keep the others from it.
fn for_each_table(node: &Node, step: impl Fn(&Table) -> Result<()>) -> Result<()> {
    let all = node.app.tables.writable().chain(node.app.tables.former());
    let outcomes: Vec<Result<()>> =
        all.take_while(|_| !node.host.is_stopping()).map(|(_, table)| step(table)).collect();
    outcomes.into_iter().collect()
}
