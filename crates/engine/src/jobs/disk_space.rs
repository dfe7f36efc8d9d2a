//! Watch on the disk of the data directory.

use std::time::Duration;

use parking_lot::Mutex;

use super::checkpoint;
use crate::core::Core;

/// While the disk stays nearly full, how often a checkpoint is taken to free space.
const RELIEF_INTERVAL: Duration = Duration::from_secs(2);

/// Returns the job: it measures the free space, keeps a reserve, and gives it to a checkpoint when the disk is nearly
/// full, because a checkpoint lets the log be truncated.
pub fn job() -> Box<dyn Fn(&Core) + Send + Sync> {
    let relieved: Mutex<Option<Duration>> = Mutex::new(None);
    Box::new(move |core: &Core| {
        core.measure_disk_space();
        match core.check_disk_space() {
            Ok(()) => {
                core.health.clear_problem("disk");
                core.disk_space.reserve();
            }
            Err(e) => {
                core.health.report_problem("disk", e.to_string());
                let now = core.clock.monotonic();
                let mut relieved = relieved.lock();
                if relieved.is_none_or(|last| now >= last + RELIEF_INTERVAL) {
                    core.disk_space.release();
                    checkpoint::run(core);
                    *relieved = Some(core.clock.monotonic());
                }
            }
        }
    })
}
