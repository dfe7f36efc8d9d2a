//! Retention: events whose time to live has passed leave their table.

use std::sync::atomic::Ordering;

use tidemill_types::{Duration, Result, Timestamp};
use tidemill_zones::Table;

use crate::node::Node;

/// Area of the problems of retention.
const AREA: &str = "retention";

/// Removes what has expired in a table, by its position in [`crate::tables::TableSet::writable`].
pub fn run(node: &Node, table: usize, ttl: Duration) {
    let Some((stream, table)) = node.app.tables.writable().nth(table) else { return };
    match expire(node, table, ttl) {
        Ok(()) => node.host.health.clear_problem_of(AREA, &stream.name),
        Err(e) => {
            let problem = format!("expired events stay in table {}: {e}", stream.name);
            node.host.health.report_problem_of(AREA, &stream.name, problem);
        }
    }
}

fn expire(node: &Node, table: &Table, ttl: Duration) -> Result<()> {
    let before = Timestamp(node.host.clock.now().micros().saturating_sub(ttl.0));
    let rows = node.host.runtime.block_on(node.host.until_stop(table.expire(before)))?;
    node.app.counts.expired.fetch_add(rows, Ordering::Relaxed);
    Ok(())
}
