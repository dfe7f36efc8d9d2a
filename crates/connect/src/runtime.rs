//! The threads on which connectors wait for the network.

use std::sync::OnceLock;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tokio::runtime::Runtime;

/// Delays between attempts to connect again: each twice as long as the one before, up to 30 s, and without an end. Jitter spreads
/// each between half of it and the whole, so that many clients of one server do not come back at once.
pub const RECONNECT_DELAYS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(50))
    .with_max_delay(Duration::from_secs(15))
    .with_jitter()
    .without_max_times();

/// Returns the runtime that all connectors of the process share. It lives as long as the process.
pub fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        let built = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("connect")
            .enable_all()
            .build();
        // without threads and sockets no connector can work, and none has started yet
        built.unwrap_or_else(|e| panic!("the operating system gives no threads for connectors: {e}"))
    })
}

/// [`RECONNECT_DELAYS`] that begin again when the connection works.
#[derive(Debug)]
pub struct Backoff(ExponentialBackoff);

impl Default for Backoff {
    fn default() -> Self {
        Self(RECONNECT_DELAYS.build())
    }
}

impl Backoff {
    /// Returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.0.next().expect("the number of attempts has no limit")
    }

    /// Notes that the connection works.
    pub fn reset(&mut self) {
        *self = Self::default();
    }
}
