//! Point up to which a change of events may be cancelled.

use std::sync::atomic::{AtomicU8, Ordering};

/// Point that a `DELETE` or `UPDATE` passes when it begins to change events. It is cancelled before, or is finished: a client that was told
/// that it is cancelled can rely on it.
#[derive(Debug, Default)]
pub struct ChangeGate(AtomicU8);

const CHANGING: u8 = 1;
const CANCELLED: u8 = 2;

impl ChangeGate {
    /// Begins the change. Returns false if the statement was cancelled before.
    pub fn begin(&self) -> bool {
        self.pass(CHANGING)
    }

    /// Cancels the statement. Returns false if the change has begun.
    pub fn cancel(&self) -> bool {
        self.pass(CANCELLED)
    }

    fn pass(&self, to: u8) -> bool {
        match self.0.compare_exchange(0, to, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(found) => found == to,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_passes_decides() {
        let (begun, cancelled) = (ChangeGate::default(), ChangeGate::default());
        assert!(begun.begin() && !begun.cancel() && begun.begin());
        assert!(cancelled.cancel() && !cancelled.begin() && cancelled.cancel());
    }
}
