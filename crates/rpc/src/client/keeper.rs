//! The task that keeps the connection to a node.

use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use tidemill_types::ErrorKind;
use tokio::runtime::Handle;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout};

use super::Link;
use super::connect::{CONNECT_TIMEOUT, Connection, connect};

/// Delays between attempts without a call: each twice as long as the one before, up to a second, so that a node that is back is
/// found soon. Jitter keeps the nodes of a cluster from coming all at once.
const DELAYS: ExponentialBuilder = ExponentialBuilder::new()
    .with_min_delay(Duration::from_millis(20))
    .with_max_delay(Duration::from_millis(500))
    .with_jitter()
    .without_max_times();
/// Smallest time between two attempts, however many calls want one.
const PAUSE: Duration = Duration::from_millis(5);
/// Age from which a connection that ends has worked, so that delays begin again.
const WORKED: Duration = Duration::from_secs(1);

/// The connection to a node, or the reason for which it is missing.
#[derive(Debug, Default)]
pub(super) struct LinkState {
    connection: Option<Connection>,
    /// Attempts that have ended, in either way.
    pub attempts: u64,
    /// Why the last attempt has failed; `None` after one that has not.
    pub failure: Option<(ErrorKind, String)>,
    /// Why the last connection has ended.
    pub ended: Option<String>,
}

impl LinkState {
    /// Returns the connection, if it takes calls.
    pub fn open(&self) -> Option<&Connection> {
        self.connection.as_ref().filter(|connection| !connection.is_closed())
    }

    /// Returns whether the last attempt has failed for a reason that somebody has to remove.
    pub fn is_refused(&self) -> bool {
        matches!(self.failure, Some((ErrorKind::Forbidden | ErrorKind::Invalid, _)))
    }
}

/// The running task. Dropping it closes the connection.
#[derive(Debug)]
pub(super) struct Keeper(AbortHandle);

impl Keeper {
    pub fn start(link: Arc<Link>, runtime: &Handle) -> Self {
        Self(runtime.spawn(keep(link)).abort_handle())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Opens the connection when the first call wants one, and again whenever it has ended.
async fn keep(link: Arc<Link>) {
    link.wanted.notified().await;
    let mut delays = DELAYS.build();
    let mut failures = 0;
    loop {
        let connected = match timeout(CONNECT_TIMEOUT, connect(&link)).await {
            Ok(connected) => connected,
            Err(_) => {
                Err(link.unavailable(format!("no connection within {} ms", CONNECT_TIMEOUT.as_millis())))
            }
        };
        match connected {
            Ok((connection, mut task)) => {
                tracing::info!(node = %link.node, address = %link.address, "connected to a node");
                let since = Instant::now();
                failures = 0;
                link.state.send_modify(|state| {
                    state.connection = Some(connection);
                    state.attempts += 1;
                    state.failure = None;
                });
                let reason = match task.join_next().await {
                    Some(Ok(reason)) => reason,
                    Some(Err(error)) => error.to_string(),
                    // the task is there until it has been joined
                    None => "the connection was closed".to_owned(),
                };
                tracing::warn!(node = %link.node, address = %link.address, reason, "the connection to a node has ended");
                link.state.send_modify(|state| {
                    state.connection = None;
                    state.ended = Some(reason);
                });
                if since.elapsed() >= WORKED {
                    delays = DELAYS.build();
                    continue;
                }
            }
            Err(error) => {
                failures += 1;
                let failure = (error.kind(), error.to_string());
                let is_new = link.state.borrow().failure.as_ref() != Some(&failure);
                if is_new || u64::is_power_of_two(failures) {
                    tracing::warn!(node = %link.node, failures, "a node cannot be called: {}", failure.1);
                }
                link.state.send_modify(|state| {
                    state.attempts += 1;
                    state.failure = Some(failure);
                });
            }
        }
        sleep(PAUSE).await;
        tokio::select! {
            () = sleep(next(&mut delays)) => {}
            () = link.wanted.notified() => {}
        }
    }
}

fn next(delays: &mut ExponentialBackoff) -> Duration {
    delays.next().expect("the number of attempts has no limit")
}
