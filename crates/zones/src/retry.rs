//! Asking a store again, a bounded number of times.

use std::future::Future;
use std::time::Duration;

use crate::ZonesOptions;
use crate::error::is_transient;

/// Longest pause between two attempts.
const BACKOFF_MS_MAX: u64 = 2_000;

/// How often and how patiently an operation on the store is tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retry {
    attempts: u32,
    backoff_ms: u64,
}

impl Retry {
    pub fn new(options: &ZonesOptions) -> Self {
        Self { attempts: options.retry_attempts, backoff_ms: options.retry_backoff_ms }
    }

    /// Runs `op` until it succeeds, fails for good, or has failed as often as allowed; the last error comes
    /// back. `op` must be safe to repeat.
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

    /// Waits after the `failures`-th failure, or says `false` when there is no attempt left.
    pub async fn pause(&self, failures: u32) -> bool {
        if failures >= self.attempts {
            return false;
        }
        let doubled = self.backoff_ms.saturating_mul(1 << (failures - 1).min(20));
        tokio::time::sleep(Duration::from_millis(doubled.min(BACKOFF_MS_MAX))).await;
        true
    }
}
