//! Retention: events whose time to live has passed leave their table.

use std::sync::atomic::Ordering;

use tidemill_types::{Duration, Result, Timestamp};
use tidemill_zones::Table;

use crate::core::Core;

/// Area of the problems of retention.
const AREA: &str = "retention";

/// Removes what has expired in a table, by its position in [`crate::tables::TableSet::writable`].
pub fn run(core: &Core, table: usize, ttl: Duration) {
    let Some((stream, table)) = core.tables.writable().nth(table) else { return };
    match expire(core, table, ttl) {
        Ok(()) => core.health.clear_problem_of(AREA, &stream.name),
        Err(e) => {
            let problem = format!("expired events stay in table {}: {e}", stream.name);
            core.health.report_problem_of(AREA, &stream.name, problem);
        }
    }
}

fn expire(core: &Core, table: &Table, ttl: Duration) -> Result<()> {
    let before = Timestamp(core.clock.now().micros().saturating_sub(ttl.0));
    let rows = core.tables.runtime.block_on(core.until_stop(table.expire(before)))?;
    core.counts.expired.fetch_add(rows, Ordering::Relaxed);
    Ok(())
}
