//! Time as the engine reads it, so that tests and simulations can advance it.
//!
//! Nothing else in this crate reads the machine's clock or sleeps; `clippy.toml` refuses it.

use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tidemill_types::Timestamp;

/// Maximum time that a thread blocks before it reads a clock that a test advances.
const MANUAL_POLL: Duration = Duration::from_millis(1);

/// Source of time.
pub trait Clock: Send + Sync {
    /// Returns the wall-clock time. It may go back when the machine's clock is set.
    fn now(&self) -> Timestamp;

    /// Returns the time since an arbitrary start. It never goes back; intervals and deadlines are measured with it.
    fn monotonic(&self) -> Duration;

    /// Returns the time since an arbitrary start, with the time for which the machine was suspended. It never goes back.
    fn boot(&self) -> Duration {
        self.monotonic()
    }

    /// Returns for how long a thread that waits for a condition may block before it reads this clock again. Zero when
    /// `deadline`, a value of [`Clock::monotonic`], has passed.
    fn block_until(&self, deadline: Duration) -> Duration;

    /// Blocks the calling thread for `duration`; less if a test advances the time.
    fn sleep(&self, duration: Duration) {
        let deadline = self.monotonic() + duration;
        #[expect(clippy::disallowed_methods, reason = "the clock is where the engine sleeps")]
        std::thread::sleep(self.block_until(deadline));
    }
}

/// Clock of the machine.
#[derive(Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        #[expect(clippy::disallowed_methods, reason = "the clock is where the engine reads the time")]
        let now = std::time::SystemTime::now();
        let since = now.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Timestamp(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }

    fn monotonic(&self) -> Duration {
        #[expect(clippy::disallowed_methods, reason = "the clock is where the engine reads the time")]
        static START: LazyLock<std::time::Instant> = LazyLock::new(std::time::Instant::now);
        START.elapsed()
    }

    #[cfg(target_os = "linux")]
    fn boot(&self) -> Duration {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
    }

    fn block_until(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.monotonic())
    }
}

/// Clock that only its user advances. Its monotonic time is its wall-clock time.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicI64);

impl ManualClock {
    /// Sets the time.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.0, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }

    fn monotonic(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::SeqCst).unsigned_abs())
    }

    fn block_until(&self, deadline: Duration) -> Duration {
        deadline.saturating_sub(self.monotonic()).min(MANUAL_POLL)
    }
}
