//! Counts of connections by protocol.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// Counts of the connections of all listeners of a process, by protocol.
#[derive(Debug, Default)]
pub struct Metrics(Mutex<BTreeMap<&'static str, Arc<ProtocolMetrics>>>);

/// Counts of the connections of a protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// Connections that are open now.
    pub open: u64,
    /// Connections that were accepted since the start.
    pub accepted: u64,
    /// Accepted connections that were closed before a request was read, because the client did not speak TLS, did not trust the
    /// certificate, had none that was needed, or did not finish the handshake in time.
    pub refused: u64,
    /// Idle connections that were closed to make room for others.
    pub evicted: u64,
    /// Connections that were closed at a shutdown because they did not end within the grace period.
    pub cut: u64,
}

#[derive(Debug, Default)]
pub(crate) struct ProtocolMetrics {
    pub open: AtomicU64,
    pub accepted: AtomicU64,
    pub refused: AtomicU64,
    pub evicted: AtomicU64,
    pub cut: AtomicU64,
}

impl Metrics {
    /// Returns the counts of a protocol, which are 0 for one without listeners.
    pub fn of(&self, protocol: &str) -> ConnectionCounts {
        self.0.lock().get(protocol).map(|counts| counts.read()).unwrap_or_default()
    }

    /// Returns the counts of all protocols that have or had listeners, by name.
    pub fn all(&self) -> Vec<(&'static str, ConnectionCounts)> {
        self.0.lock().iter().map(|(protocol, counts)| (*protocol, counts.read())).collect()
    }

    pub(crate) fn protocol(&self, protocol: &'static str) -> Arc<ProtocolMetrics> {
        self.0.lock().entry(protocol).or_default().clone()
    }
}

impl ProtocolMetrics {
    fn read(&self) -> ConnectionCounts {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        ConnectionCounts {
            open: read(&self.open),
            accepted: read(&self.accepted),
            refused: read(&self.refused),
            evicted: read(&self.evicted),
            cut: read(&self.cut),
        }
    }
}

/// Adds to a count. Returns the new count.
pub(crate) fn add(count: &AtomicU64, more: u64) -> u64 {
    count.fetch_add(more, Ordering::Relaxed) + more
}
