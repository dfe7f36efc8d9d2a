//! What is due though no events come: the engine says so in the log, so that a replay sees the same clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemill_log::Durability;

use super::Queries;
use super::runtime::QueryRuntimes;
use crate::core::Core;
use crate::entry::Entry;
use crate::partition::Partition;

/// How often the clock is looked at: how late something may be worked off that is due without an event.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// When the apps of a partition that go by the machine's clock are due next, milliseconds: at once for one that has not
/// started, `i64::MAX` for never.
pub fn next_timer(queries: &Queries, flow: &QueryRuntimes) -> i64 {
    let units = queries.units.iter().enumerate().filter(|(_, unit)| !unit.plan.playback);
    let due = units.filter_map(|(number, _)| match flow.is_not_started(number) {
        true => Some(i64::MIN),
        false => flow.next_due(number),
    });
    due.min().unwrap_or(i64::MAX)
}

/// Looks at the clock until the engine stops.
pub fn run(core: &Core) {
    if core.queries.is_empty() {
        return;
    }
    let mut signals = 0;
    while !core.is_stopping() {
        core.notifier.wait(&mut signals, POLL_INTERVAL);
        for partition in core.partitions() {
            poll(core, partition);
        }
    }
}

/// Writes down that something is due in a partition, if so.
pub fn poll(core: &Core, partition: &Partition) {
    // what waits in the inbox moves the clock by itself
    if core.is_stopping() || partition.apply_queue.depth().0 > 0 {
        return;
    }
    let now = core.clock.now();
    let jumps = playback_advances(core, partition, now.0);
    let due = partition.next_timer.load(Ordering::Acquire);
    if due > now.0.div_euclid(1000) && jumps.is_empty() {
        return;
    }
    // nothing is due until this is applied
    partition.next_timer.store(i64::MAX, Ordering::Release);
    let jumped = !jumps.is_empty();
    let tick = Entry::Tick { jumps };
    match core.check_disk_space().and_then(|()| partition.write(core, tick, Durability::Os, None)) {
        Ok(_) => {
            if jumped {
                partition.last_event_time.store(now.0, Ordering::Release);
            }
            core.clear_problem("clocks of queries");
        }
        Err(e) => {
            partition.next_timer.store(due, Ordering::Release);
            core.report_problem("clocks of queries", format!("partition {}: {e}", partition.id));
        }
    }
}

/// When the first file with `@app:playback(idle.time, increment)` jumps though no events come, milliseconds; `None`
/// when there is none, or no event has come yet.
pub fn next_playback_advance(core: &Core, partition: &Partition) -> Option<i64> {
    let last = partition.last_event_time.load(Ordering::Acquire);
    let started = |file: usize| file_clock(core, partition, file).is_some();
    let idle = core.queries.files.iter().enumerate().filter_map(|(n, file)| Some((n, file.idle?.0)));
    let least = idle.filter(|(file, _)| started(*file)).map(|(_, idle_ms)| idle_ms).min()?;
    let at = last.saturating_add(least.saturating_mul(1000));
    (last != i64::MIN).then_some(at.saturating_add(999).div_euclid(1000))
}

/// `@app:playback(idle.time, increment)`: files to which no events came for that time, and where their clocks jump.
fn playback_advances(core: &Core, partition: &Partition, now: i64) -> Vec<(String, i64)> {
    let idle = core.queries.files.iter().enumerate().filter_map(|(n, file)| Some((n, file, file.idle?)));
    let mut jumps = Vec::new();
    for (number, file, (idle_ms, increment)) in idle {
        let last = partition.last_event_time.load(Ordering::Acquire);
        if last == i64::MIN || now.saturating_sub(last) < idle_ms.saturating_mul(1000) {
            continue;
        }
        jumps.extend(
            file_clock(core, partition, number)
                .map(|clock| (file.name.clone(), clock.saturating_add(increment))),
        );
    }
    jumps
}

/// The greatest clock of a file's units in a partition, milliseconds; `None` when none has started.
fn file_clock(core: &Core, partition: &Partition, file: usize) -> Option<i64> {
    let units = core.queries.units.iter().enumerate().filter(|(_, unit)| unit.file == file);
    units
        .filter_map(|(unit, _)| partition.state.read().query_state.with_runtimes(|flow| flow.now(unit)))
        .max()
}
