//! Bounded retries of store operations.

use std::future::Future;
use std::time::Duration;

use crate::ZonesOptions;
use crate::error::is_transient;

/// Longest delay between two attempts, in milliseconds.
const BACKOFF_MS_MAX: u64 = 2_000;

/// Retry policy of store operations: exponential backoff.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retry {
    attempts: u32,
    backoff_ms: u64,
}

impl Retry {
    pub fn new(options: &ZonesOptions) -> Self {
        Self { attempts: options.retry_attempts, backoff_ms: options.retry_backoff_ms }
    }

    /// Runs `op` until it succeeds, fails permanently, or has used up its attempts; returns the last error
    /// then. `op` must be safe to repeat.
    pub async fn run<T, F, Fut>(&self, mut op: F) -> object_store::Result<T>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = object_store::Result<T>>,
    {
        let mut failures = 0;
        loop {
            match op().await {
                Err(e) if is_transient(&e) => {
                    failures += 1;
                    if !self.pause(failures).await {
                        return Err(e);
                    }
                }
                outcome => return outcome,
            }
        }
    }

    /// Waits after the `failures`-th failure. Returns `false` without waiting when no attempt is left.
    pub async fn pause(&self, failures: u32) -> bool {
        if failures >= self.attempts {
            return false;
        }
        let doubled = self.backoff_ms.saturating_mul(1 << (failures - 1).min(20));
        // Without a pause no timer is involved, and concurrent operations take their turns as in every run.
        if doubled > 0 {
            tokio::time::sleep(Duration::from_millis(doubled.min(BACKOFF_MS_MAX))).await;
        }
        true
    }
}
