//! Opening a partition again that has stopped applying its log, while the others run.
//!
//! Partition 1 stops at record 7, as a function in a query panics:
//!
//! ```text
//! log of partition 1   … 4 5 6 | 7 8 9 …
//! state                half changed by 7, so it is dropped
//! checkpoint           after 4
//! views, rows, sinks   after 6: they stay as they are
//! ```
//!
//! The note on record 7 is on the disk, so it is set aside from now on. A new [`Partition`] takes the checkpoint, applies 5 and 6 without
//! storing their rows again ([`Partition::after`]), and takes the place of the former one, which has answered reads until then. It
//! continues with 7, whose events are stored without rules and queries seeing them.
//!
//! The steps of a start are not needed here: the other partitions drop emissions that they have by their cause, and the decisions on
//! transactions are on the board or in the states of the others. A record that does not end keeps its thread, so its partition
//! stays as it is until the engine is restarted.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tidemill_types::{Error, PartitionId, Result};

use crate::dedupe::Dedupe;
use crate::lifecycle::opening;
use crate::lifecycle::opening::SENT_LATER;
use crate::node::Node;
use crate::partition::Partition;
use crate::planted_bugs::{PlantedBug, is_planted};
use crate::process::retry_delay::RetryDelay;

/// Interval between two looks at the partitions.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Delays before a partition is opened again: the first, and the longest, as each is twice the one before.
const DELAYS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// Time for which a partition has to serve before its next delay is the first again.
const SERVED: Duration = Duration::from_secs(60);
/// Records that are set aside before partitions stay stopped: more of them are the fault of the app rather than of the records.
const RECORDS_SET_ASIDE_MAX: usize = 16;
/// Opens partitions again until the engine stops.
pub fn run(node: &Arc<Node>) {
    let mut opener = Opener::default();
    let mut signals = 0;
    while !node.host.is_stopping() {
        let next = node.host.clock.monotonic() + POLL_INTERVAL;
        node.host.notifier.wait_until(&mut signals, &*node.host.clock, next);
        opener.poll(node);
    }
}

/// The partitions that have stopped, with the attempts to open them.
#[derive(Default)]
struct Opener {
    attempts: BTreeMap<PartitionId, Attempts>,
}

/// Attempts to open a partition.
struct Attempts {
    delay: RetryDelay,
    /// When it answered again; `None` while it does not.
    served: Option<Duration>,
}

impl Opener {
    /// Opens partitions whose time has come, and lets those serve that have caught up.
    fn poll(&mut self, node: &Node) {
        for id in opening::serve_caught_up(node) {
            self.attempts.entry(id).and_modify(|a| a.served = Some(node.host.clock.monotonic()));
        }
        for partition in stopped(node) {
            if !self.is_due(node, partition.id) {
                continue;
            }
            let begun = begin(node, &partition).and_then(|opening| opening.start_threads());
            if let Err(error) = begun {
                let id = partition.id;
                let problem =
                    format!("partition {id} could not be opened again, and is tried once more: {error}");
                node.host.health.report_problem_of("opening", &id.to_string(), problem);
            }
        }
    }

    /// Returns whether a partition that has stopped is to be opened now. Begins to wait if it has just stopped.
    fn is_due(&mut self, node: &Node, id: PartitionId) -> bool {
        if node.host.set_aside.followed() > RECORDS_SET_ASIDE_MAX {
            return false;
        }
        let now = node.host.clock.monotonic();
        let attempts = self.attempts.entry(id).or_insert_with(|| Attempts::after_stop(now));
        match attempts.served.take() {
            Some(since) if now.saturating_sub(since) >= SERVED => *attempts = Attempts::after_stop(now),
            Some(_) => attempts.delay.note_failure(now),
            None => {}
        }
        let is_due = attempts.delay.may_try(now);
        if is_due {
            // until it answers, it counts as one that could not be opened
            attempts.delay.note_failure(now);
        }
        is_due
    }
}

impl Attempts {
    /// Returns those of a partition that stopped at `now`.
    fn after_stop(now: Duration) -> Self {
        let mut delay = RetryDelay::new(DELAYS.0, DELAYS.1);
        delay.note_failure(now);
        Self { delay, served: None }
    }
}

/// Returns the partitions that have stopped and are not being opened again.
pub fn stopped(node: &Node) -> Vec<Arc<Partition>> {
    let opening = node.owned.opening();
    let mut owned = node.owned.all();
    owned.retain(|partition| partition.has_failed() && opening.iter().all(|other| other.id != partition.id));
    owned
}

/// Begins to open a partition again that has stopped. It consumes its log from then on; [`opening::serve_caught_up`] follows.
///
/// Errors: its owner has not ended; those of a start.
pub fn begin(node: &Node, former: &Partition) -> Result<Arc<Partition>> {
    let id = former.id;
    if !former.close(SENT_LATER) {
        return Err(Error::unavailable(format!(
            "partition {id}: record {} is still being applied: restart the server to set it aside",
            former.applied()
        )));
    }
    let applied = former.applied();
    // one that writes a checkpoint or merges ends before its files are opened
    drop(node.host.checkpointing.lock());
    former.state.read().dedupe.values().filter_map(Dedupe::runs).for_each(|runs| runs.retire());
    if !is_planted(PlantedBug::KeepUnappliedRows) {
        node.app.tables.writable().try_for_each(|(_, table)| table.forget_from(id, applied))?;
    }
    node.app.sinks.forget_unapplied(id);
    opening::open_partition(node, id, |partition| partition.after(former))
}
