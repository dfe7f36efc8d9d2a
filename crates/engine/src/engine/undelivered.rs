//! Events that sinks could not deliver, for callers.

use tidemill_types::Result;

use super::Engine;
use crate::delivery::undelivered;
use crate::delivery::undelivered::{RetryOutcome, UndeliveredSelection};
use crate::sinks::undelivered_event::UndeliveredEvent;

impl Engine {
    /// Returns events that sinks with `on.error='STORE'` could not deliver, oldest first, at most `limit`.
    ///
    /// Errors: `Invalid` if somebody wrote a document of another kind into the collection `tidemill.undelivered`.
    pub fn undelivered(&self, selection: &UndeliveredSelection, limit: u64) -> Result<Vec<UndeliveredEvent>> {
        undelivered::find(&self.node, selection, Some(limit))
    }

    /// Hands undelivered events to their sinks again, each once. The collection forgets them; what is refused
    /// again comes back to it.
    ///
    /// Errors: those of [`Self::undelivered`]; `Unavailable` and `LimitReached` when the log takes no records.
    pub fn retry_undelivered(&self, selection: &UndeliveredSelection) -> Result<RetryOutcome> {
        undelivered::retry(&self.node, selection)
    }

    /// Forgets undelivered events. Returns how many there were.
    ///
    /// Errors: those of [`Self::retry_undelivered`].
    pub fn discard_undelivered(&self, selection: &UndeliveredSelection) -> Result<u64> {
        undelivered::discard(&self.node, selection)
    }
}
