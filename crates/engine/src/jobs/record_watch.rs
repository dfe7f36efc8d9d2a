//! The watch on records that do not end.

use std::time::Duration;

use tidemill_types::{Offset, Result};

use crate::core::Core;
use crate::partition::Partition;

/// How often the watch looks.
pub const WATCH_INTERVAL: Duration = Duration::from_millis(100);

/// Looks until the engine stops.
pub fn run(core: &Core) {
    let mut signals = 0;
    while !core.is_stopping() {
        core.notifier.wait_until(&mut signals, &*core.clock, core.clock.monotonic() + WATCH_INTERVAL);
        for partition in core.partitions() {
            if let Some(Err(error)) = look(core, partition) {
                core.health.report_problem("records", error.to_string());
            }
        }
    }
}

/// Notes the record of a partition that has not ended within the setting `record_timeout`, and stops the partition. Returns the
/// offset of such a record.
pub fn look(core: &Core, partition: &Partition) -> Option<Result<Offset>> {
    let limit = core.deployment.settings.record_timeout.to_std();
    if limit.is_zero() {
        return None;
    }
    let reason = format!("it was not applied within {} s (setting record_timeout)", limit.as_secs_f64());
    let noted = partition.current.stop_overdue(core.clock.monotonic(), limit, |offset| {
        core.set_aside.note((partition.id, offset), &reason, core.clock.now()).map(|_| offset)
    })?;
    if let Ok(offset) = noted {
        partition.stop_applying(core, offset, &reason);
    }
    Some(noted)
}
