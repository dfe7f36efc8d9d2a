//! Timers of queries that are due although no event arrives: the engine appends a tick to the log, so that a replay sees
//! the same clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemill_log::Durability;

use crate::entry::Entry;
use crate::node::Node;
use crate::partition::Partition;

/// Interval at which the clock is read: maximum delay of a timer that is due without an event.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Polls the timers of all partitions until the engine stops.
pub fn run(node: &Node) {
    if node.app.deployment.queries.is_empty() {
        return;
    }
    let mut signals = 0;
    while !node.host.is_stopping() {
        node.host.notifier.wait_until(
            &mut signals,
            &*node.host.clock,
            node.host.clock.monotonic() + POLL_INTERVAL,
        );
        for partition in node.owned.all() {
            poll(node, &partition);
        }
    }
}

/// Appends a tick if a timer of the partition is due.
pub fn poll(node: &Node, partition: &Partition) {
    // records that wait advance the clock themselves
    if node.host.is_stopping() || node.host.backlog_depth(partition.id).0 > 0 {
        return;
    }
    let now = node.host.clock.now();
    let jumps = playback_advances(node, partition, now.0);
    let due = partition.next_timer.load(Ordering::Acquire);
    if due > now.0.div_euclid(1000) && jumps.is_empty() {
        return;
    }
    // no timer is due again until the tick is applied
    partition.next_timer.store(i64::MAX, Ordering::Release);
    let jumped = !jumps.is_empty();
    let tick = Entry::Tick { jumps };
    let appended = node
        .host
        .check_disk_space()
        .and_then(|()| node.host.append(partition.id, tick, Durability::Os, None)?.wait_assigned());
    match appended {
        Ok(_) => {
            if jumped {
                partition.last_event_time.store(now.0, Ordering::Release);
            }
            node.host.health.clear_problem("clocks of queries");
        }
        Err(e) => {
            partition.next_timer.store(due, Ordering::Release);
            node.host.health.report_problem("clocks of queries", format!("partition {}: {e}", partition.id));
        }
    }
}

/// Returns when the clock of the first file with `@app:playback(idle.time, increment)` jumps although no
/// event arrives, in milliseconds; `None` without such a file, or before the first event.
pub fn next_playback_advance(node: &Node, partition: &Partition) -> Option<i64> {
    let last = partition.last_event_time.load(Ordering::Acquire);
    let started = |file: usize| file_clock(node, partition, file).is_some();
    let idle =
        node.app.deployment.queries.files.iter().enumerate().filter_map(|(n, file)| Some((n, file.idle?.0)));
    let least = idle.filter(|(file, _)| started(*file)).map(|(_, idle_ms)| idle_ms).min()?;
    let at = last.saturating_add(least.saturating_mul(1000));
    (last != i64::MIN).then_some(at.saturating_add(999).div_euclid(1000))
}

/// Returns the files with `@app:playback(idle.time, increment)` that received no event for the idle time, and the times to
/// which their clocks jump.
fn playback_advances(node: &Node, partition: &Partition, now: i64) -> Vec<(String, i64)> {
    let idle = node
        .app
        .deployment
        .queries
        .files
        .iter()
        .enumerate()
        .filter_map(|(n, file)| Some((n, file, file.idle?)));
    let mut jumps = Vec::new();
    for (number, file, (idle_ms, increment)) in idle {
        let last = partition.last_event_time.load(Ordering::Acquire);
        if last == i64::MIN || now.saturating_sub(last) < idle_ms.saturating_mul(1000) {
            continue;
        }
        jumps.extend(
            file_clock(node, partition, number)
                .map(|clock| (file.name.clone(), clock.saturating_add(increment))),
        );
    }
    jumps
}

/// Returns the greatest clock of a file's units in a partition, in milliseconds; `None` when none has started, or while the owner
/// applies a record.
fn file_clock(node: &Node, partition: &Partition, file: usize) -> Option<i64> {
    let units = node.app.deployment.queries.units.iter().enumerate().filter(|(_, unit)| unit.file == file);
    // an owner that is busy with a record moves the clock itself, and may wait for a store
    let state = partition.state.try_read()?;
    units.filter_map(|(unit, _)| state.query_state.with_runtimes(|flow| flow.now(unit))).max()
}
