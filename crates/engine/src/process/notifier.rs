//! A condition that background threads wait on.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::process::clock::Clock;

/// Counts signals, so that none is lost between two waits.
#[derive(Default)]
pub struct Notifier {
    signals: Mutex<u64>,
    changed: Condvar,
}

impl Notifier {
    /// Wakes all threads that wait.
    pub fn notify(&self) {
        *self.signals.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits for a signal that the caller has not seen, or until `deadline`, a monotonic time of `clock`; less long on a
    /// clock that a test advances. `seen` counts the signals that the caller has seen; 0 at first.
    pub fn wait_until(&self, seen: &mut u64, clock: &dyn Clock, deadline: Duration) {
        let mut signals = self.signals.lock();
        if *signals == *seen {
            self.changed.wait_for(&mut signals, clock.block_until(deadline));
        }
        *seen = *signals;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::process::clock::ManualClock;

    #[test]
    fn signal_between_two_waits_is_seen_by_each_waiter() {
        let clock = ManualClock::default();
        let hour = Duration::from_secs(3600);
        let notifier = super::Notifier::default();
        notifier.notify();
        let (mut one, mut other) = (0, 0);
        notifier.wait_until(&mut one, &clock, hour);
        notifier.wait_until(&mut other, &clock, hour);
        notifier.notify();
        notifier.wait_until(&mut one, &clock, hour);
        assert_eq!((one, other), (2, 1));
    }
}
