//! Calls of stores that wait for the other side.

use std::sync::Arc;
use std::time::Duration;

use tidemill_connect::{Backoff, StoreMonitor, runtime};
use tidemill_types::{ErrorKind, Result};

pub(crate) use tidemill_connect::{StoredRow, all_values, batch_of, values};

/// Interval at which a waiting call checks whether it has to stop.
const STOP_POLL: Duration = Duration::from_millis(50);

/// Calls of one table that wait for the other side.
pub(crate) struct StoreCalls {
    pub(crate) table: String,
    pub(crate) monitor: Arc<StoreMonitor>,
}

impl StoreCalls {
    /// Calls `work` until the other side answers.
    ///
    /// Errors: those of `work`; `Unavailable` only after a stop.
    pub(crate) fn until_reached<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut backoff = Backoff::default();
        let mut is_problem = false;
        loop {
            match work() {
                Err(e) if e.kind() == ErrorKind::Unavailable && !self.monitor.is_stopped() => {
                    is_problem = true;
                    self.monitor.report(&self.table, Some(e.to_string()));
                    self.pause(backoff.next_delay());
                }
                done => {
                    if is_problem && done.is_ok() {
                        self.monitor.report(&self.table, None);
                    }
                    return done;
                }
            }
        }
    }

    fn pause(&self, delay: Duration) {
        let mut rest = delay;
        while !rest.is_zero() && !self.monitor.is_stopped() {
            let part = rest.min(STOP_POLL);
            runtime().block_on(async { tokio::time::sleep(part).await });
            rest -= part;
        }
    }
}
