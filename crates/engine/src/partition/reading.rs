//! Readers of a partition's state, and what they do while its owner waits for another system.
//!
//! Most readers have a [view](super::PartitionView) and need no lock. On-demand queries, `why` and the timers ask the operators
//! of queries themselves, between two batches of the owner. While a record waits for a store of the app, its partition has no such
//! moment, maybe for hours. Such a reader then gets an error that names the store, instead of waiting too.

use std::time::Duration;

use parking_lot::RwLockReadGuard;
use tidemill_types::{Error, Result};

use super::Partition;
use crate::state::PartitionState;

/// Time that a record has for its calls of other systems before readers count it as one that waits.
const STORE_PATIENCE: Duration = Duration::from_secs(1);
/// Interval at which a reader looks whether the owner waits.
const READ_POLL: Duration = Duration::from_millis(20);

impl Partition {
    /// Returns which store the record that is being applied waits for, as a sentence; `None` while it waits for none.
    pub fn waits_for_store(&self) -> Option<String> {
        let (offset, time) = self.current.waiting_since(self.host.clock.monotonic())?;
        let problems = self.app.deployment.queries.stores.problems();
        if problems.is_empty() && time < STORE_PATIENCE {
            return None;
        }
        let problems: Vec<String> =
            problems.into_iter().map(|(table, problem)| format!("table {table}: {problem}")).collect();
        let cause = match problems.is_empty() {
            true => "which has not answered yet".to_owned(),
            false => problems.join("; "),
        };
        Some(format!(
            "partition {}: record {offset} waits for another system since {} s ({cause}). It is applied when the system answers",
            self.id,
            time.as_secs()
        ))
    }

    /// Waits until all records that are in the log now are applied, so that what [`Self::read_state`] returns has every
    /// acknowledged row.
    ///
    /// Errors: as [`Self::wait_applied`]; at once if the owner waits for a store.
    pub fn catch_up(&self) -> Result<()> {
        self.wait_applied_with(self.host.log.end(self.id), Duration::ZERO)
    }

    /// Returns the state between two batches of the owner.
    ///
    /// Errors: `Unavailable` if the owner waits for a store.
    pub fn read_state(&self) -> Result<RwLockReadGuard<'_, PartitionState>> {
        loop {
            if let Some(state) = self.state.try_read_for(READ_POLL) {
                return Ok(state);
            }
            if let Some(reason) = self.waits_for_store() {
                return Err(Error::unavailable(reason));
            }
        }
    }
}
