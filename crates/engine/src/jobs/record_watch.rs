//! The watch on records that do not end.

use std::time::Duration;

use tidemill_types::{Offset, Result};

use crate::node::Node;
use crate::partition::Partition;

/// Interval between two checks of the watch.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Looks until the engine stops.
pub fn run(node: &Node) {
    let mut signals = 0;
    while !node.host.is_stopping() {
        node.host.notifier.wait_until(
            &mut signals,
            &*node.host.clock,
            node.host.clock.monotonic() + WATCH_INTERVAL,
        );
        for partition in node.owned.all() {
            if let Some(Err(error)) = look(node, &partition) {
                node.host.health.report_problem("records", error.to_string());
            }
        }
    }
}

/// Notes the record of a partition that has not ended within the setting `record_timeout`, and stops the partition. Returns the
/// offset of such a record.
pub fn look(node: &Node, partition: &Partition) -> Option<Result<Offset>> {
    let limit = node.app.deployment.settings.record_timeout.to_std();
    if limit.is_zero() {
        return None;
    }
    let reason = format!("it was not applied within {} s (setting record_timeout)", limit.as_secs_f64());
    let noted = partition.current.stop_overdue(node.host.clock.monotonic(), limit, |offset| {
        node.host.set_aside.note((partition.id, offset), &reason, node.host.clock.now()).map(|_| offset)
    })?;
    if let Ok(offset) = noted {
        partition.stop_applying(offset, &reason);
    }
    Some(noted)
}
