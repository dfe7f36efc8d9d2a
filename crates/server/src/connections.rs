//! Open connections: which of them may be closed when there are as many as there may be.
//!
//! Anybody who reaches the port can open connections and send nothing. So a connection whose caller has not shown that
//! it may call counts for little: when the limit is reached, a new one takes the place of the one that has been quiet
//! longest, those of callers without the token first, then idle ones, then those whose request is still arriving.
//! Requests that are worked on are never ended by this.

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
    /// A connection became one that may be closed.
    changed: Notify,
}

#[derive(Debug, Default)]
struct ConnectionTable {
    /// Counts what happens; orders connections by when they were heard of last.
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

/// What a connection is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// Before the whole head of a request.
    Idle,
    /// A request's body is on its way.
    Arriving,
    /// From a request's arrival to the end of its reply.
    Working,
}

impl ConnectionEntry {
    /// The lower, the sooner it is closed to make room; `None` for never.
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
    /// Room for `most` connections.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self {
            permits: Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS))),
            table: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// A place for one more connection, made by closing another one where there is none. Waits while all are worked on.
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

    /// Closes the connection that is missed least; whether there is one.
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

    /// Notes a new connection, which is open until the returned value is dropped.
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

    /// Whether the connection is still there to be changed: one that is being closed is not.
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
    /// What requests on this connection tell it by.
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

/// A connection as its requests know it.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionHandle {
    connections: Arc<Connections>,
    id: u64,
}

impl ConnectionHandle {
    /// The caller has shown that it may call.
    pub fn trust(&self) {
        self.connections.change(self.id, |entry| entry.is_trusted = true);
    }

    /// A request's body begins to arrive.
    pub fn arriving(&self) {
        self.connections.change(self.id, |entry| entry.phase = ConnectionPhase::Arriving);
    }

    /// A request is there as a whole. False when the connection is being closed: nothing may be done for it then.
    pub fn arrived(&self) -> bool {
        self.connections.change(self.id, |entry| entry.phase = ConnectionPhase::Working)
    }

    /// A request's head is there: it is worked on until the returned value is dropped. `None` as for
    /// [`ConnectionHandle::arrived`].
    pub fn begin(&self) -> Option<ActiveRequest> {
        self.arrived().then(|| ActiveRequest(self.clone()))
    }
}

/// A request that is worked on.
#[derive(Debug)]
pub(crate) struct ActiveRequest(ConnectionHandle);

impl Drop for ActiveRequest {
    fn drop(&mut self) {
        self.0.connections.change(self.0.id, |entry| entry.phase = ConnectionPhase::Idle);
    }
}

/// A reply's body, which keeps its request among those that are worked on until it is sent.
pub(crate) struct ReplyBody {
    body: axum::body::Body,
    _working: ActiveRequest,
}

impl ReplyBody {
    /// `body` as the reply to the request of `working`.
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

/// How many connections there may be so that half of the files that this process may open are left for data.
pub(crate) fn limit_by_open_files(most: usize) -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap_or_default();
    match files_max(&limits) {
        Some(files) => most.min(files / 2).max(1),
        None => most,
    }
}

/// The soft limit in the text of `/proc/self/limits`; `None` where there is none.
fn files_max(limits: &str) -> Option<usize> {
    limits
        .lines()
        .find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(connections: &Arc<Connections>) -> OpenConnection {
        let place = connections.permits.clone().try_acquire_owned().unwrap();
        connections.open(place)
    }

    /// Which of `all` were told to close, in the order of `all`.
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
    fn files_are_left_for_data() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units\n\
                      Max processes             62763                62763                processes\n\
                      Max open files            1024                 524288               files\n";
        assert_eq!(files_max(limits), Some(1024));
        assert_eq!(
            files_max("Max open files            unlimited            unlimited            files"),
            None
        );
        assert!(limit_by_open_files(usize::MAX) >= 1);
        assert_eq!(limit_by_open_files(1), 1);
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
