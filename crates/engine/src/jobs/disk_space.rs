//! Watch on the disk of the data directory.

use std::time::Duration;

use parking_lot::Mutex;

use super::checkpoint;
use crate::node::Node;

/// While the disk stays nearly full, how often a checkpoint is taken to free space.
const RELIEF_INTERVAL: Duration = Duration::from_secs(2);

/// Returns the job: it measures the free space, keeps a reserve, and gives it to a checkpoint when the disk is nearly
/// full, because a checkpoint lets the log be truncated.
pub fn job() -> Box<dyn Fn(&Node) + Send + Sync> {
    let relieved: Mutex<Option<Duration>> = Mutex::new(None);
    Box::new(move |node: &Node| {
        node.host.measure_disk_space();
        match node.host.check_disk_space() {
            Ok(()) => {
                node.host.health.clear_problem("disk");
                node.host.disk_space.reserve();
            }
            Err(e) => {
                node.host.health.report_problem("disk", e.to_string());
                let now = node.host.clock.monotonic();
                let mut relieved = relieved.lock();
                if relieved.is_none_or(|last| now >= last + RELIEF_INTERVAL) {
                    node.host.disk_space.release();
                    checkpoint::run(node);
                    *relieved = Some(node.host.clock.monotonic());
                }
            }
        }
    })
}
