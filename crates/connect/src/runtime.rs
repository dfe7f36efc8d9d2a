//! The threads on which connectors wait for the network.

use std::sync::OnceLock;
use std::time::Duration;

use rand::Rng;
use tokio::runtime::Runtime;

/// Delay before the first attempt to connect again, and the longest one.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(30));

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

/// Delays between attempts to connect: each twice as long as the one before, with jitter, so that many clients
/// of one server do not come back at once.
#[derive(Debug, Default)]
pub struct Backoff {
    delay: Duration,
}

impl Backoff {
    /// Returns the delay before the next attempt.
    pub fn next_delay(&mut self) -> Duration {
        self.delay = (self.delay * 2).clamp(BACKOFF.0, BACKOFF.1);
        self.delay.mul_f64(rand::rng().random_range(0.5..1.0))
    }

    /// Notes that the connection works.
    pub fn reset(&mut self) {
        self.delay = Duration::ZERO;
    }
}
