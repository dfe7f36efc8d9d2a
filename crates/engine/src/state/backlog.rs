//! How much of the log waits to be applied: a bound for those who append.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tidemill_types::{Error, Result};

use crate::process::clock::Clock;

/// Interval at which a wait checks whether the engine is stopping.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Records that this process appended to one partition and that are not applied.
pub struct Backlog {
    shared: Arc<SharedBacklog>,
    bytes_max: usize,
}

#[derive(Default)]
struct SharedBacklog {
    counts: Mutex<BacklogCounts>,
    changed: Condvar,
}

#[derive(Default)]
struct BacklogCounts {
    records: usize,
    bytes: usize,
    rejecting: bool,
}

/// Counts a record among those that wait to be applied, until it is dropped.
pub struct BacklogPermit {
    backlog: Arc<SharedBacklog>,
    in_flight: InFlight,
    bytes: usize,
}

impl Backlog {
    /// Callers of [`Self::wait_for_room`] wait above `bytes_max`; others may exceed it.
    pub fn new(bytes_max: usize) -> Self {
        Self { shared: Arc::default(), bytes_max }
    }

    /// Waits until there is room. `reason` says why records are not applied, if something keeps them from it.
    ///
    /// Errors: `LimitReached` with the reason after `timeout`, `Unavailable` when the engine is stopping.
    pub fn wait_for_room(
        &self,
        clock: &dyn Clock,
        timeout: Duration,
        reason: impl Fn() -> Option<String>,
    ) -> Result<()> {
        let deadline = clock.monotonic() + timeout;
        let mut counts = self.shared.counts.lock();
        loop {
            if counts.rejecting {
                return Err(Error::unavailable("the engine is stopping"));
            }
            if counts.bytes < self.bytes_max {
                return Ok(());
            }
            let block = clock.block_until(deadline);
            if block.is_zero() {
                let waiting =
                    format!("{} bytes wait to be applied (inbox_bytes = {})", counts.bytes, self.bytes_max);
                drop(counts);
                return Err(Error::limit(match reason() {
                    Some(reason) => format!(
                        "{waiting}, because {reason}. Send it again later; nothing that was acknowledged is lost"
                    ),
                    None => format!("{waiting}: send slower"),
                }));
            }
            self.shared.changed.wait_for(&mut counts, block);
        }
    }

    /// Adds a record of `bytes`, here and in `in_flight`; never waits.
    pub fn add(&self, bytes: usize, in_flight: &InFlight) -> BacklogPermit {
        let mut counts = self.shared.counts.lock();
        counts.records += 1;
        counts.bytes += bytes;
        drop(counts);
        in_flight.add(bytes);
        BacklogPermit { backlog: Arc::clone(&self.shared), in_flight: in_flight.clone(), bytes }
    }

    /// Returns the records that wait or are being applied, and their bytes.
    pub fn depth(&self) -> (usize, usize) {
        let counts = self.shared.counts.lock();
        (counts.records, counts.bytes)
    }

    /// Rejects callers of [`Self::wait_for_room`] from now on.
    pub fn stop_accepting(&self) {
        self.shared.counts.lock().rejecting = true;
        self.shared.changed.notify_all();
    }
}

impl Drop for BacklogPermit {
    fn drop(&mut self) {
        let mut counts = self.backlog.counts.lock();
        counts.records -= 1;
        counts.bytes -= self.bytes;
        drop(counts);
        self.backlog.changed.notify_all();
        self.in_flight.done(1, self.bytes);
    }
}

/// Counts records that are appended but not applied, so that callers can wait until all are applied.
///
/// Clones share the counts.
#[derive(Clone, Default)]
pub struct InFlight(Arc<SharedInFlight>);

#[derive(Default)]
struct SharedInFlight {
    counts: Mutex<InFlightCounts>,
    drained: Condvar,
}

#[derive(Default)]
struct InFlightCounts {
    records: usize,
    bytes: usize,
}

impl InFlight {
    /// Adds a record of `bytes`.
    pub fn add(&self, bytes: usize) {
        let mut counts = self.0.counts.lock();
        counts.records += 1;
        counts.bytes += bytes;
    }

    /// Subtracts `records` with `bytes` altogether.
    pub fn done(&self, records: usize, bytes: usize) {
        let mut counts = self.0.counts.lock();
        counts.records -= records;
        counts.bytes -= bytes;
        if counts.records == 0 {
            self.0.drained.notify_all();
        }
    }

    /// Returns the bytes of the records; they may not be on the disk yet.
    pub fn bytes(&self) -> usize {
        self.0.counts.lock().bytes
    }

    /// Returns whether there are no records.
    pub fn is_drained(&self) -> bool {
        self.0.counts.lock().records == 0
    }

    /// Waits until there are no records, or until `stopping` says that no thread applies them any more.
    pub fn wait_until_drained_or(&self, stopping: impl Fn() -> bool) {
        let mut counts = self.0.counts.lock();
        while counts.records > 0 && !stopping() {
            self.0.drained.wait_for(&mut counts, POLL_INTERVAL);
        }
    }

    /// Waits until there are no records, or until `timeout` has passed on `clock`.
    pub fn wait_until_drained_for(&self, clock: &dyn Clock, timeout: Duration) {
        let deadline = clock.monotonic() + timeout;
        let mut counts = self.0.counts.lock();
        while counts.records > 0 {
            let block = clock.block_until(deadline);
            if block.is_zero() {
                return;
            }
            self.0.drained.wait_for(&mut counts, block);
        }
    }
}
