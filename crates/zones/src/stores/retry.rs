//! Bounded retries of store operations.

use std::future::Future;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder, Retryable};
use futures::future::Either;

use crate::ZonesOptions;
use crate::error::is_transient;

/// Longest delay between two attempts.
const DELAY_MAX: Duration = Duration::from_secs(2);

/// Retry policy of store operations: exponential backoff.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retry {
    delays: ExponentialBuilder,
}

impl Retry {
    pub fn new(options: &ZonesOptions) -> Self {
        let first = Duration::from_millis(options.retry_backoff_ms);
        let retries = options.retry_attempts.saturating_sub(1);
        let delays = ExponentialBuilder::new()
            .with_min_delay(first.min(DELAY_MAX))
            .with_max_delay(DELAY_MAX)
            .with_max_times(retries as usize);
        Self { delays }
    }

    /// Runs `op` until it succeeds, fails permanently, or has used up its attempts; returns the last error
    /// then. `op` must be safe to repeat.
    pub async fn run<T, F, Fut>(&self, op: F) -> object_store::Result<T>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = object_store::Result<T>>,
    {
        op.retry(self.delays).sleep(pause).when(is_transient).await
    }

    /// Returns the delays between attempts; when they end, no attempt is left.
    pub fn delays(&self) -> ExponentialBackoff {
        self.delays.build()
    }
}

/// Waits for `delay`. Without a delay no timer is involved, and concurrent operations take their turns as in every run.
pub(crate) fn pause(delay: Duration) -> impl Future<Output = ()> {
    match delay.is_zero() {
        true => Either::Left(std::future::ready(())),
        false => Either::Right(tokio::time::sleep(delay)),
    }
}
