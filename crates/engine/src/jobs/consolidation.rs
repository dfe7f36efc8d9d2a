//! Consolidation: small tablets become large ones, and files that nobody reads any more are deleted.

use std::sync::atomic::Ordering;

use tidemill_types::Result;
use tidemill_zones::Table;

use crate::core::Core;

/// Area of the problems of consolidation.
const AREA: &str = "consolidation";

/// Merges the small tablets of a table, by its position in [`crate::tables::TableSet::writable`], until there are few.
pub fn run(core: &Core, table: usize) {
    let Some((stream, table)) = core.tables.writable().nth(table) else { return };
    match consolidate(core, table) {
        Ok(()) => match table.unmergeable().as_slice() {
            [] => core.health.clear_problem_of(AREA, &stream.name),
            [first, others @ ..] => {
                let problem = format!(
                    "table {}: {first} and {} other tablets are damaged or not sorted and are not merged; the rest is",
                    stream.name,
                    others.len()
                );
                core.health.report_problem_of(AREA, &stream.name, problem);
            }
        },
        Err(e) => {
            let problem =
                format!("the tablets of table {} are not merged: {e}; they stay as they are", stream.name);
            core.health.report_problem_of(AREA, &stream.name, problem);
        }
    }
}

/// Merges the small tablets of a table until there are few.
pub fn consolidate(core: &Core, table: &Table) -> Result<()> {
    while !core.is_stopping() {
        let Some(done) = core.tables.runtime.block_on(core.unless_stopped(table.consolidate()))? else {
            tracing::info!(table = table.name(), "a merge is left for the next start");
            break;
        };
        let Some(done) = done else { break };
        core.counts.consolidations.fetch_add(1, Ordering::Relaxed);
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
pub fn remove_old_files(core: &Core) {
    let Some(_no_backup) = core.backups.removals.try_lock() else { return };
    let removed = for_each_table(core, |table| {
        let removed = core.unless_stopped(table.remove_old_files());
        core.tables.runtime.block_on(removed).map(|_| ())
    });
    core.health.record_outcome("old files of tables", removed);
}

/// Deletes files of all tables that a crash left behind.
pub fn sweep_orphans(core: &Core) {
    let swept = for_each_table(core, |table| {
        let swept = core.unless_stopped(table.sweep_orphans());
        core.tables.runtime.block_on(swept).map(|_| ())
    });
    core.health.record_outcome("orphans of tables", swept);
}

/// Runs a step for every table. A table that fails does not keep the others from it.
fn for_each_table(core: &Core, step: impl Fn(&Table) -> Result<()>) -> Result<()> {
    let all = core.tables.writable().chain(core.tables.former());
    let outcomes: Vec<Result<()>> =
        all.take_while(|_| !core.is_stopping()).map(|(_, table)| step(table)).collect();
    outcomes.into_iter().collect()
}
