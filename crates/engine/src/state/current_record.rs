//! The record that a partition is applying, for the watch on records that do not end.

use std::time::Duration;

use parking_lot::Mutex;
use tidemill_types::budget::{Budget, Stop};
use tidemill_types::{Offset, Result};

/// The record that a partition is applying now, if any.
pub struct CurrentRecord(Mutex<State>);

struct State {
    /// Work on the record asks it whether to go on. One serves all records until it is stopped, as each would need memory.
    budget: Budget,
    running: Option<Running>,
}

struct Running {
    offset: Offset,
    since: Duration,
    is_watched: bool,
}

impl Default for CurrentRecord {
    fn default() -> Self {
        Self(Mutex::new(State { budget: Budget::unlimited(), running: None }))
    }
}

impl CurrentRecord {
    /// Begins a record at time `now` of the monotonic clock. One that waits for other systems is not watched. Returns the
    /// budget of the work.
    pub fn begin(&self, offset: Offset, now: Duration, is_watched: bool) -> Budget {
        let mut state = self.0.lock();
        if state.budget.stopped().is_some() {
            state.budget = Budget::unlimited();
        }
        state.running = Some(Running { offset, since: now, is_watched });
        state.budget.clone()
    }

    /// Ends the record. Returns why its work was stopped, if it was: what it has made is not to be used.
    pub fn end(&self) -> Option<Stop> {
        let mut state = self.0.lock();
        state.running.take()?;
        state.budget.stopped().cloned()
    }

    /// Returns the record that is being applied, or whose work has panicked.
    pub fn offset(&self) -> Option<Offset> {
        self.0.lock().running.as_ref().map(|running| running.offset)
    }

    /// Returns the record that is being applied, if it uses other systems, and for how long at time `now`.
    pub fn waiting_since(&self, now: Duration) -> Option<(Offset, Duration)> {
        let state = self.0.lock();
        let running = state.running.as_ref().filter(|running| !running.is_watched)?;
        Some((running.offset, now.saturating_sub(running.since)))
    }

    /// Asks the work to end, because the engine stops.
    pub fn stop(&self) {
        let state = self.0.lock();
        if state.running.is_some() {
            state.budget.stop(Stop::Stopping);
        }
    }

    /// Calls `note` with the record if it has been worked on for `limit` at time `now`, and asks the work to end. The record
    /// cannot end meanwhile, so what is noted did not end. Returns what `note` returned.
    pub fn stop_overdue<T>(
        &self,
        now: Duration,
        limit: Duration,
        note: impl FnOnce(Offset) -> Result<T>,
    ) -> Option<Result<T>> {
        let state = self.0.lock();
        let running = state.running.as_ref()?;
        let overdue = running.is_watched && now.saturating_sub(running.since) >= limit;
        if !overdue || state.budget.stopped().is_some() {
            return None;
        }
        let noted = note(running.offset);
        if noted.is_ok() {
            state.budget.stop(Stop::Cancelled("the setting record_timeout".into()));
        }
        Some(noted)
    }
}
