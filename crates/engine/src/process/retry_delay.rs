//! Delays between attempts at something that fails.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// The time before which something that failed is not tried again. Each delay is twice as long as the one before. Times are those of a
/// monotonic clock.
#[derive(Debug)]
pub struct RetryDelay {
    policy: ExponentialBuilder,
    delays: ExponentialBackoff,
    not_before: Duration,
}

impl RetryDelay {
    /// Creates delays between `first` and `longest` for something that may be tried at once.
    pub fn new(first: Duration, longest: Duration) -> Self {
        let policy =
            ExponentialBuilder::new().with_min_delay(first).with_max_delay(longest).without_max_times();
        Self { policy, delays: policy.build(), not_before: Duration::ZERO }
    }

    /// Returns whether it may be tried at `now`.
    pub fn may_try(&self, now: Duration) -> bool {
        now >= self.not_before
    }

    /// Notes a failure at `now`.
    pub fn note_failure(&mut self, now: Duration) {
        self.not_before = now + self.delays.next().expect("the number of attempts has no limit");
    }

    /// Notes that it works: the next delay is the first again.
    pub fn reset(&mut self) {
        (self.delays, self.not_before) = (self.policy.build(), Duration::ZERO);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_begin_again() {
        let seconds = Duration::from_secs;
        let mut delay = RetryDelay::new(seconds(1), seconds(5));
        assert!(delay.may_try(seconds(0)));
        for wait in [1, 2, 4, 5, 5] {
            delay.note_failure(seconds(100));
            assert!(!delay.may_try(seconds(100 + wait) - Duration::from_nanos(1)), "{wait}");
            assert!(delay.may_try(seconds(100 + wait)), "{wait}");
        }
        delay.reset();
        assert!(delay.may_try(seconds(0)));
        delay.note_failure(seconds(0));
        assert!(delay.may_try(seconds(1)));
    }
}
