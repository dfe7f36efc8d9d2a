//! Open connections, and the choice of one to close when the limit is reached.
//!
//! Any client that reaches the port can open connections and send nothing. Therefore connections of
//! unauthenticated callers are the first to go: at the limit, a new connection evicts the least recently
//! active one, first among callers without the token, then among idle ones, then among those whose request is
//! still arriving. Requests in progress are never interrupted by this.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// All open connections.
#[derive(Debug)]
pub(crate) struct Connections {
    permits: Arc<Semaphore>,
    table: Mutex<ConnectionTable>,
    /// Notified when a connection becomes evictable.
    changed: Notify,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    /// Logical clock that orders connections by their last activity.
    now: u64,
    open: HashMap<u64, ConnectionEntry>,
}

#[derive(Debug)]
struct ConnectionEntry {
    last_active: u64,
    is_trusted: bool,
    phase: ConnectionPhase,
    close: Arc<Notify>,
}

/// State of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// The head of the next request is not complete.
    Idle,
    /// A request's body is arriving.
    Arriving,
    /// A complete request is being processed or its reply is being sent.
    Working,
}

impl ConnectionEntry {
    /// Returns the eviction order, lowest first; `None` if the connection must not be evicted.
    fn eviction_rank(&self) -> Option<u8> {
        match (self.is_trusted, self.phase) {
            (_, ConnectionPhase::Working) => None,
            (false, _) => Some(0),
            (true, ConnectionPhase::Idle) => Some(1),
            (true, ConnectionPhase::Arriving) => Some(2),
        }
    }
}

impl Connections {
    /// Creates a table for at most `most` connections.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            table: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Acquires a permit for one more connection, evicting another one if necessary. Waits while no
    /// connection can be evicted.
    pub async fn acquire_permit(&self) -> OwnedSemaphorePermit {
        loop {
            if let Ok(place) = self.permits.clone().try_acquire_owned() {
                return place;
            }
            let is_closing = self.evict_one();
            tokio::select! {
                place = self.permits.clone().acquire_owned() => return place.expect("the semaphore is never closed"),
                () = self.changed.notified(), if !is_closing => {}
            }
        }
    }

    /// Closes the connection with the lowest eviction rank. Returns whether there was one.
    pub fn evict_one(&self) -> bool {
        let mut table = self.table.lock();
        let least =
            table.open.iter().filter_map(|(id, e)| Some((e.eviction_rank()?, e.last_active, *id))).min();
        let Some(entry) = least.and_then(|(_, _, id)| table.open.remove(&id)) else {
            return false;
        };
        entry.close.notify_one();
        true
    }

    /// Registers a new connection, which stays open until the returned value is dropped.
    pub fn open(self: &Arc<Self>, place: OwnedSemaphorePermit) -> OpenConnection {
        let close = Arc::new(Notify::new());
        let mut table = self.table.lock();
        table.now += 1;
        let id = table.now;
        let entry = ConnectionEntry {
            last_active: id,
            is_trusted: false,
            phase: ConnectionPhase::Idle,
            close: close.clone(),
        };
        table.open.insert(id, entry);
        self.changed.notify_one();
        OpenConnection { handle: ConnectionHandle { connections: self.clone(), id }, close, _permit: place }
    }

    /// Changes the entry of a connection. Returns false if the connection is being closed.
    fn change(&self, id: u64, change: impl FnOnce(&mut ConnectionEntry)) -> bool {
        let mut table = self.table.lock();
        table.now += 1;
        let now = table.now;
        let Some(entry) = table.open.get_mut(&id) else {
            return false;
        };
        entry.last_active = now;
        change(entry);
        if entry.eviction_rank().is_some() {
            self.changed.notify_one();
        }
        true
    }
}

/// One open connection.
#[derive(Debug)]
pub(crate) struct OpenConnection {
    handle: ConnectionHandle,
    close: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl OpenConnection {
    /// Returns the handle through which requests report their progress.
    pub fn handle(&self) -> ConnectionHandle {
        self.handle.clone()
    }

    /// Returns when the connection must make room.
    pub async fn closed(&self) {
        self.close.notified().await;
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.handle.connections.table.lock().open.remove(&self.handle.id);
    }
}

/// Handle of a connection for its requests.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionHandle {
    connections: Arc<Connections>,
    id: u64,
}

impl ConnectionHandle {
    /// Marks the caller as authorized.
    pub fn trust(&self) {
        self.connections.change(self.id, |entry| entry.is_trusted = true);
    }

    /// Records that a request's body begins to arrive.
    pub fn arriving(&self) {
        self.connections.change(self.id, |entry| entry.phase = ConnectionPhase::Arriving);
    }

    /// Records that a request is complete. Returns false if the connection is being closed; the request must
    /// then have no effect.
    pub fn arrived(&self) -> bool {
        self.connections.change(self.id, |entry| entry.phase = ConnectionPhase::Working)
    }

    /// Starts a request whose head is complete; it is in progress until the returned value is dropped.
    /// Returns `None` if the connection is being closed.
    pub fn begin(&self) -> Option<ActiveRequest> {
        self.arrived().then(|| ActiveRequest(self.clone()))
    }
}

/// Guard of a request in progress.
#[derive(Debug)]
pub(crate) struct ActiveRequest(ConnectionHandle);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.connections.change(self.0.id, |entry| entry.phase = ConnectionPhase::Idle);
    }
}

/// Body of a reply. The request stays in progress until the body is sent.
pub(crate) struct ReplyBody {
    body: axum::body::Body,
    _working: ActiveRequest,
}

impl ReplyBody {
    /// Wraps `body` as the reply to the request of `working`.
    pub fn new(body: axum::body::Body, working: ActiveRequest) -> Self {
        Self { body, _working: working }
    }
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(connections: &Arc<Connections>) -> OpenConnection {
        let place = connections.permits.clone().try_acquire_owned().unwrap();
        connections.open(place)
    }

    /// Returns which of `all` are being closed, in the order of `all`.
    fn closing(all: &[&OpenConnection]) -> Vec<bool> {
        let gone =
            |open: &&OpenConnection| !open.handle.connections.table.lock().open.contains_key(&open.handle.id);
        all.iter().map(gone).collect()
    }

    #[test]
    fn those_without_the_token_go_first_and_work_never_does() {
        let connections = Connections::new(5);
        let [working, arriving, idle, old, new] = std::array::from_fn(|_| open(&connections));
        let all = [&working, &arriving, &idle, &old, &new];
        for trusted in [&working, &arriving, &idle] {
            trusted.handle.trust();
        }
        let work = working.handle.begin();
        let request = arriving.handle.begin();
        arriving.handle.arriving();
        let mut expected = [false; 5];
        for next in [3, 4, 2, 1] {
            assert!(connections.evict_one());
            expected[next] = true;
            assert_eq!(closing(&all), expected);
        }
        assert!(!connections.evict_one(), "what is worked on stays");
        drop((work, request));
        assert!(connections.evict_one());
    }

    #[test]
    fn who_was_heard_of_last_goes_last() {
        let connections = Connections::new(2);
        let (first, second) = (open(&connections), open(&connections));
        drop(first.handle.begin());
        assert!(connections.evict_one());
        assert_eq!(closing(&[&first, &second]), [false, true]);
    }

    #[test]
    fn a_place_is_waited_for_until_work_ends() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let connections = Connections::new(1);
            let only = open(&connections);
            let work = only.handle.begin();
            let waiting = tokio::spawn({
                let connections = connections.clone();
                async move { connections.acquire_permit().await }
            });
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            drop(work);
            only.closed().await;
            assert!(!waiting.is_finished(), "it is open until it is dropped");
            drop(only);
            drop(waiting.await.unwrap());
        });
    }
}
