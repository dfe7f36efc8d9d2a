//! The hold of a backup on what the owners of a cluster have published.

use std::time::Duration;

use parking_lot::Mutex;
use tidemill_types::Result;

use crate::host::Host;
use crate::shared_state::EXPIRES_AFTER;

/// Time after which the hold gets another name.
const RENEW_AFTER: Duration = Duration::from_secs(EXPIRES_AFTER.as_secs() / 6);

/// Keeps owners from removing published states, and records behind them, until it is dropped.
pub struct StateHold<'h> {
    host: &'h Host,
    id: String,
    current: Mutex<CurrentName>,
}

struct CurrentName {
    number: u64,
    since: Duration,
}

impl<'h> StateHold<'h> {
    /// Begins to hold. What owners publish from now on stays, and so does the newest version of each partition.
    ///
    /// Errors: `Unavailable` when the store does not answer.
    pub fn new(host: &'h Host) -> Result<Self> {
        let id = bson::oid::ObjectId::new().to_hex();
        let current = Mutex::new(CurrentName { number: 0, since: host.clock.monotonic() });
        let hold = Self { host, id, current };
        host.partition_store.hold(&hold.name(0))?;
        Ok(hold)
    }

    fn name(&self, number: u64) -> String {
        format!("{}-{number:010}", self.id)
    }

    /// Takes another name, if it is time for it. A store that does not answer is asked again.
    pub fn renew(&self) {
        let mut current = self.current.lock();
        let now = self.host.clock.monotonic();
        if now.saturating_sub(current.since) < RENEW_AFTER {
            return;
        }
        let (last, next) = (self.name(current.number), self.name(current.number + 1));
        let store = &self.host.partition_store;
        match store.hold(&next) {
            Ok(()) => {
                *current = CurrentName { number: current.number + 1, since: now };
                // it expires otherwise
                let _ = store.end_hold(&last);
            }
            Err(error) => tracing::debug!(%error, "the state of the cluster is not held for longer"),
        }
    }
}

impl Drop for StateHold<'_> {
    fn drop(&mut self) {
        let name = self.name(self.current.lock().number);
        if let Err(error) = self.host.partition_store.end_hold(&name) {
            tracing::debug!(%error, "the hold of a backup expires by itself");
        }
    }
}
