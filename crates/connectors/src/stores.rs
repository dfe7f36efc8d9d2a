//! Calls of stores that wait for the other side.

use std::sync::Arc;
use std::time::Duration;

use backon::BlockingRetryable;
use tidemill_connect::{RECONNECT_DELAYS, StoreMonitor, runtime};
use tidemill_types::{ErrorKind, Result};

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
    pub(crate) fn until_reached<T>(&self, work: impl FnMut() -> Result<T>) -> Result<T> {
        let mut is_problem = false;
        let monitor = self.monitor.clone();
        let done = work
            .retry(RECONNECT_DELAYS)
            .sleep(move |delay| pause(&monitor, delay))
            .when(|e| e.kind() == ErrorKind::Unavailable && !self.monitor.is_stopped())
            .notify(|e, _| {
                is_problem = true;
                self.monitor.report(&self.table, Some(e.to_string()));
            })
            .call();
        if is_problem && done.is_ok() {
            self.monitor.report(&self.table, None);
        }
        done
    }
}

/// Waits for `delay`, or until calls must not wait.
fn pause(monitor: &StoreMonitor, delay: Duration) {
    let mut rest = delay;
    while !rest.is_zero() && !monitor.is_stopped() {
        let part = rest.min(STOP_POLL);
        runtime().block_on(async { tokio::time::sleep(part).await });
        rest -= part;
    }
}
