//! Open connections of a listener, and the choice of one to close when the limit is reached.
//!
//! Any client that reaches the port can open connections and send nothing. Therefore connections of clients that have not logged in
//! are the first to go: at the limit, a new connection evicts the least recently active one, first among clients that are not known; if
//! all are, among idle ones, then among those whose request is still arriving. Requests in progress are never interrupted by this.
//!
//! A request changes the state of its connection by one atomic step, without a lock that all connections share. The step fails if
//! the connection is being closed, so a request either begins or its connection is evicted, never both. The state counts requests,
//! because a connection of HTTP/2 has several at once; the connection is idle again when the last of them ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, watch};

use crate::metrics::{ProtocolMetrics, add};

/// All open connections of a listener.
#[derive(Debug)]
pub(crate) struct Connections {
    permits: Arc<Semaphore>,
    open: Mutex<HashMap<u64, Arc<Entry>>>,
    /// Evicted connections that are not closed yet.
    closing: AtomicU64,
    /// Logical clock that orders connections by their last activity.
    clock: AtomicU64,
    /// Notified when a connection becomes evictable.
    changed: Notify,
    metrics: Arc<ProtocolMetrics>,
}

/// State of an open connection.
#[derive(Debug)]
struct Entry {
    /// A [`State`] as [`State::pack`] makes it.
    state: AtomicU64,
    close: Notify,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct State {
    phase: Phase,
    is_trusted: bool,
    /// Values of [`ActiveRequest`], at most [`REQUESTS_MAX`].
    requests: u64,
    last_active: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The next request has not begun, or its head is not complete.
    Idle = 0,
    /// The rest of a request is arriving.
    Arriving = 1,
    /// A complete request is being processed, or its reply is being sent.
    Working = 2,
    /// The connection is being closed to make room.
    Closing = 3,
}

/// Maximum number of requests of one connection at the same time.
const REQUESTS_MAX: u64 = (1 << REQUEST_BITS) - 1;

const TRUSTED: u64 = 1 << 2;
/// Bits for the phase and the trust, below the number of requests.
const FLAG_BITS: u32 = 3;
/// Bits for the number of requests, below the time. The time has 47, which last for years at a million requests a second.
const REQUEST_BITS: u32 = 14;

impl State {
    fn pack(self) -> u64 {
        let trusted = if self.is_trusted { TRUSTED } else { 0 };
        self.phase as u64
            | trusted
            | (self.requests << FLAG_BITS)
            | (self.last_active << (FLAG_BITS + REQUEST_BITS))
    }

    fn unpack(bits: u64) -> Self {
        let phase = match bits & 0b11 {
            0 => Phase::Idle,
            1 => Phase::Arriving,
            2 => Phase::Working,
            _ => Phase::Closing,
        };
        Self {
            phase,
            is_trusted: bits & TRUSTED != 0,
            requests: (bits >> FLAG_BITS) & REQUESTS_MAX,
            last_active: bits >> (FLAG_BITS + REQUEST_BITS),
        }
    }

    /// Returns the eviction order, lowest first; `None` if the connection must not be evicted.
    fn eviction_rank(self) -> Option<u8> {
        match (self.is_trusted, self.phase) {
            (_, Phase::Working | Phase::Closing) => None,
            (false, _) => Some(0),
            (true, Phase::Idle) => Some(1),
            (true, Phase::Arriving) => Some(2),
        }
    }
}

impl Connections {
    /// Creates a table for at most `most` connections.
    pub fn new(most: usize, metrics: Arc<ProtocolMetrics>) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            open: Mutex::default(),
            closing: AtomicU64::new(0),
            clock: AtomicU64::new(0),
            changed: Notify::new(),
            metrics,
        })
    }

    /// Acquires a permit for one more connection, evicting another one if necessary. Waits while no connection can be evicted.
    pub async fn acquire_permit(&self) -> OwnedSemaphorePermit {
        loop {
            if let Ok(permit) = self.permits.clone().try_acquire_owned() {
                return permit;
            }
            // the call may be repeated while a connection that it has evicted is being closed
            let is_closing = self.closing.load(Ordering::SeqCst) > 0 || self.evict_one();
            tokio::select! {
                permit = self.permits.clone().acquire_owned() => return permit.expect("the semaphore is never closed"),
                () = self.changed.notified(), if !is_closing => {}
            }
        }
    }

    /// Returns whether a further connection has to wait for the end of another one that is busy.
    pub fn is_full_of_requests(&self) -> bool {
        let is_busy =
            |entry: &Arc<Entry>| State::unpack(entry.state.load(Ordering::SeqCst)).phase == Phase::Working;
        self.permits.available_permits() == 0 && self.open.lock().values().all(is_busy)
    }

    /// Closes the connection with the lowest eviction rank. Returns whether there was one. Known clients stay while there are others,
    /// whose requests end soon.
    pub fn evict_one(&self) -> bool {
        let mut open = self.open.lock();
        loop {
            let mut unknown_work = false;
            let ranked = open.iter().filter_map(|(id, entry)| {
                let bits = entry.state.load(Ordering::SeqCst);
                let state = State::unpack(bits);
                unknown_work |= !state.is_trusted && state.phase == Phase::Working;
                Some((state.eviction_rank()?, state.last_active, *id, bits))
            });
            let Some((rank, _, id, bits)) = ranked.min() else { return false };
            if rank > 0 && unknown_work {
                return false;
            }
            let Some(entry) = open.get(&id) else { return false };
            let closing = State { phase: Phase::Closing, ..State::unpack(bits) }.pack();
            // a request that has begun meanwhile keeps its connection
            if entry.state.compare_exchange(bits, closing, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                continue;
            }
            self.closing.fetch_add(1, Ordering::SeqCst);
            entry.close.notify_one();
            open.remove(&id);
            add(&self.metrics.evicted, 1);
            return true;
        }
    }

    /// Registers a new connection, which stays open until the returned value is dropped.
    pub fn open(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        drain: watch::Receiver<bool>,
    ) -> OpenConnection {
        let id = self.tick();
        let state = State { phase: Phase::Idle, is_trusted: false, requests: 0, last_active: id };
        let entry = Arc::new(Entry { state: AtomicU64::new(state.pack()), close: Notify::new() });
        self.open.lock().insert(id, entry.clone());
        add(&self.metrics.accepted, 1);
        add(&self.metrics.open, 1);
        self.changed.notify_one();
        let handle = ConnectionHandle { connections: self.clone(), entry, drain };
        OpenConnection { handle, id, _permit: permit }
    }

    fn tick(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::Relaxed) + 1
    }
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    handle: ConnectionHandle,
    id: u64,
    _permit: OwnedSemaphorePermit,
}

impl OpenConnection {
    /// Returns the handle for the protocol.
    pub fn handle(&self) -> &ConnectionHandle {
        &self.handle
    }

    /// Returns when the connection must make room.
    pub async fn evicted(&self) {
        self.handle.entry.close.notified().await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        let connections = &self.handle.connections;
        connections.open.lock().remove(&self.id);
        if State::unpack(self.handle.entry.state.load(Ordering::SeqCst)).phase == Phase::Closing {
            connections.closing.fetch_sub(1, Ordering::SeqCst);
        }
        connections.metrics.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Messages between a connection and its listener: progress of requests, and the beginning of a drain. Clones are of the same connection.
#[derive(Debug, Clone)]
pub struct ConnectionHandle {
    connections: Arc<Connections>,
    entry: Arc<Entry>,
    drain: watch::Receiver<bool>,
}

impl ConnectionHandle {
    /// Says that the client has proven who it is. Its connection is closed for others after those of clients that have not.
    pub fn trust(&self) {
        self.change(|state| {
            state.is_trusted = true;
            true
        });
    }

    /// Says that the rest of a request has yet to arrive, which may take long. While other requests of the connection are in
    /// progress, it changes nothing.
    pub fn arriving(&self) {
        self.change(|state| {
            if state.requests <= 1 {
                state.phase = Phase::Arriving;
            }
            true
        });
    }

    /// Says that a request is complete. Returns false if the connection is being closed; the request must then have no effect.
    #[must_use]
    pub fn arrived(&self) -> bool {
        self.change(|state| {
            state.phase = Phase::Working;
            true
        })
    }

    /// Begins a request, which is in progress until the returned value is dropped. A connection may have several at once, 16,383 at
    /// most; it is idle when the last of them ends. Returns `None` if the connection is being closed to make room, or has that many
    /// requests; the request must then have no effect.
    pub fn begin(&self) -> Option<ActiveRequest> {
        let has_begun = self.change(|state| {
            let fits = state.requests < REQUESTS_MAX;
            if fits {
                state.requests += 1;
                state.phase = Phase::Working;
            }
            fits
        });
        has_begun.then(|| ActiveRequest(self.clone()))
    }

    /// Returns when a drain has begun: no further request is to be read.
    pub async fn draining(&self) {
        let mut drain = self.drain.clone();
        // the sender goes with the listener, which has begun a drain before
        let _ = drain.wait_for(|has_begun| *has_begun).await;
    }

    /// Returns whether a drain has begun.
    pub fn is_draining(&self) -> bool {
        *self.drain.borrow()
    }

    /// Changes the state of the connection. Returns false if it is being closed, or `change` returns false.
    fn change(&self, change: impl Fn(&mut State) -> bool) -> bool {
        let last_active = self.connections.tick();
        let mut is_evictable = false;
        let changed = self.entry.state.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |bits| {
            let mut state = State::unpack(bits);
            if state.phase == Phase::Closing {
                return None;
            }
            state.last_active = last_active;
            if !change(&mut state) {
                return None;
            }
            is_evictable = state.eviction_rank().is_some();
            Some(state.pack())
        });
        if changed.is_ok() && is_evictable {
            self.connections.changed.notify_one();
        }
        changed.is_ok()
    }
}

/// A request in progress, one of perhaps several of its connection.
#[derive(Debug)]
pub struct ActiveRequest(ConnectionHandle);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.change(|state| {
            // a value is dropped once, so the count has it
            state.requests -= 1;
            if state.requests == 0 {
                state.phase = Phase::Idle;
            }
            true
        });
    }
}

#[cfg(test)]
mod tests;
