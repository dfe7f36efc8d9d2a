//! Messages of a sink that many clients read, each at its own pace, from one bounded buffer.
//!
//! The buffer keeps the last messages, also those that all clients have read, so that a client that comes
//! back can read what it missed. A client that does not keep up is waited for, but only for a limited time:
//! then it loses its place, and its connection is ended. Memory is bounded whatever the number of clients.

use std::collections::{BTreeMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// Bounds of a buffer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FanoutLimits {
    /// Messages that are kept.
    pub(crate) messages_max: usize,
    /// Bytes that are kept; a single longer message is kept alone.
    pub(crate) bytes_max: usize,
    /// Maximum time to wait for a client that keeps the buffer full.
    pub(crate) patience: Duration,
}

/// The buffer.
pub(crate) struct Fanout<T> {
    state: Mutex<State<T>>,
    limits: FanoutLimits,
    /// Tells that there are more messages, or that none will come any more.
    grown: Notify,
    /// Tells that a reader has advanced or gone.
    advanced: Notify,
}

struct State<T> {
    /// Messages with their bytes.
    messages: VecDeque<(T, usize)>,
    bytes: usize,
    /// Number of the first message; numbers count from 0.
    first: u64,
    /// Number of the next message of each reader that has its place.
    readers: BTreeMap<u64, u64>,
    next_reader: u64,
    is_closed: bool,
}

impl<T> State<T> {
    fn is_full(&self, bytes: usize, limits: FanoutLimits) -> bool {
        self.messages.len() >= limits.messages_max
            || (!self.messages.is_empty() && self.bytes + bytes > limits.bytes_max)
    }

    /// Removes the first message, and the place of readers that have not read it.
    fn evict(&mut self) {
        let first = self.first;
        self.readers.retain(|_, next| *next > first);
        if let Some((_, bytes)) = self.messages.pop_front() {
            self.bytes -= bytes;
        }
        self.first += 1;
    }
}

impl<T: Clone> Fanout<T> {
    pub(crate) fn new(limits: FanoutLimits) -> Arc<Self> {
        let state = State {
            messages: VecDeque::new(),
            bytes: 0,
            first: 0,
            readers: BTreeMap::new(),
            next_reader: 0,
            is_closed: false,
        };
        Arc::new(Self { state: Mutex::new(state), limits, grown: Notify::new(), advanced: Notify::new() })
    }

    /// Adds a message. If the buffer is full, waits for readers for the `patience` of its limits.
    pub(crate) async fn push(&self, message: T, bytes: usize) {
        let end = Instant::now() + self.limits.patience;
        loop {
            let mut advanced = pin!(self.advanced.notified());
            // listens before it looks, so that no reader is missed in between
            advanced.as_mut().enable();
            if self.make_room(bytes, Instant::now() < end) {
                break;
            }
            let _ = timeout_at(end, advanced).await;
        }
        let mut state = self.state.lock();
        state.messages.push_back((message, bytes));
        state.bytes += bytes;
        drop(state);
        self.grown.notify_waiters();
    }

    /// Removes messages until there is room. Returns false if readers need them, which counts only if `waits`.
    fn make_room(&self, bytes: usize, waits: bool) -> bool {
        let mut state = self.state.lock();
        while state.is_full(bytes, self.limits) {
            let first = state.first;
            if waits && state.readers.values().any(|next| *next <= first) {
                return false;
            }
            state.evict();
        }
        true
    }

    /// Adds a reader of the messages to come.
    pub(crate) fn reader(self: &Arc<Self>) -> FanoutReader<T> {
        let mut state = self.state.lock();
        let next = state.first + state.messages.len() as u64;
        self.add_reader(&mut state, next)
    }

    /// Adds a reader of the messages behind the last one for which `is_known` holds: of all that are kept if there is
    /// none.
    pub(crate) fn reader_behind(self: &Arc<Self>, is_known: impl Fn(&T) -> bool) -> FanoutReader<T> {
        let mut state = self.state.lock();
        let known = state.messages.iter().rposition(|(message, _)| is_known(message));
        let next = state.first + known.map_or(0, |known| known as u64 + 1);
        self.add_reader(&mut state, next)
    }

    fn add_reader(self: &Arc<Self>, state: &mut State<T>, next: u64) -> FanoutReader<T> {
        let id = state.next_reader;
        state.next_reader += 1;
        state.readers.insert(id, next);
        FanoutReader { fanout: self.clone(), id }
    }

    /// Ends the readers behind the last message, and waits until they are gone, as long as the limits say.
    pub(crate) async fn close(&self) {
        let end = Instant::now() + self.limits.patience;
        self.state.lock().is_closed = true;
        self.grown.notify_waiters();
        loop {
            let mut advanced = pin!(self.advanced.notified());
            advanced.as_mut().enable();
            if self.state.lock().readers.is_empty() || timeout_at(end, advanced).await.is_err() {
                return;
            }
        }
    }

    /// Returns the number of readers.
    #[cfg(test)]
    fn readers(&self) -> usize {
        self.state.lock().readers.len()
    }
}

/// Reads the messages for a client.
pub(crate) struct FanoutReader<T> {
    fanout: Arc<Fanout<T>>,
    id: u64,
}

impl<T: Clone> FanoutReader<T> {
    /// Waits for the next message. Returns `None` when the reader has lost its place, or at the end.
    ///
    /// The future may be dropped without losing a message.
    pub(crate) async fn next(&mut self) -> Option<T> {
        loop {
            let mut grown = pin!(self.fanout.grown.notified());
            grown.as_mut().enable();
            {
                let mut state = self.fanout.state.lock();
                let next = *state.readers.get(&self.id)?;
                let index = usize::try_from(next - state.first).unwrap_or(usize::MAX);
                if let Some((message, _)) = state.messages.get(index) {
                    let message = message.clone();
                    state.readers.insert(self.id, next + 1);
                    drop(state);
                    self.fanout.advanced.notify_waiters();
                    return Some(message);
                }
                if state.is_closed {
                    return None;
                }
            }
            grown.await;
        }
    }
}

impl<T> FanoutReader<T> {
    /// Returns whether the reader has its place; otherwise it was too slow.
    #[cfg(feature = "websocket")]
    pub(crate) fn has_place(&self) -> bool {
        self.fanout.state.lock().readers.contains_key(&self.id)
    }
}

impl<T> Drop for FanoutReader<T> {
    fn drop(&mut self) {
        self.fanout.state.lock().readers.remove(&self.id);
        self.fanout.advanced.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fanout(messages_max: usize, bytes_max: usize) -> Arc<Fanout<u32>> {
        Fanout::new(FanoutLimits { messages_max, bytes_max, patience: Duration::from_secs(5) })
    }

    async fn read(reader: &mut FanoutReader<u32>, count: usize) -> Vec<u32> {
        let mut found = vec![];
        for _ in 0..count {
            found.extend(reader.next().await);
        }
        found
    }

    #[tokio::test(start_paused = true)]
    async fn readers_begin_where_they_want() {
        let fanout = fanout(3, 100);
        for n in 0..5 {
            fanout.push(n, 1).await;
        }
        let mut new = fanout.reader();
        assert_eq!(read(&mut fanout.reader_behind(|n| *n == 3), 1).await, [4]);
        // message 0 is gone, so all that is kept follows
        assert_eq!(read(&mut fanout.reader_behind(|n| *n == 0), 3).await, [2, 3, 4]);
        fanout.push(5, 1).await;
        assert_eq!(read(&mut new, 1).await, [5]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_is_waited_for_and_then_loses_its_place() {
        let fanout = fanout(2, 100);
        let (mut quick, mut slow) = (fanout.reader(), fanout.reader());
        let reading = tokio::spawn(async move { read(&mut quick, 4).await });
        let began = Instant::now();
        for n in 0..4 {
            fanout.push(n, 1).await;
        }
        assert_eq!(began.elapsed(), Duration::from_secs(5), "waited for the slow reader once");
        assert_eq!(reading.await.unwrap(), [0, 1, 2, 3]);
        assert_eq!(slow.next().await, None);
        assert_eq!(fanout.readers(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_advances_is_not_cut_off() {
        let fanout = fanout(2, 100);
        let mut slow = fanout.reader();
        let reading = tokio::spawn(async move {
            let mut found = vec![];
            while found.len() < 10 {
                tokio::time::sleep(Duration::from_secs(1)).await;
                found.extend(slow.next().await);
            }
            found
        });
        for n in 0..10 {
            fanout.push(n, 1).await;
        }
        assert_eq!(reading.await.unwrap(), (0..10).collect::<Vec<_>>());
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_are_bounded_too() {
        let fanout = fanout(100, 10);
        for n in 0..4 {
            fanout.push(n, 5).await;
        }
        assert_eq!(read(&mut fanout.reader_behind(|_| false), 2).await, [2, 3]);
        fanout.push(4, 50).await;
        assert_eq!(read(&mut fanout.reader_behind(|_| false), 1).await, [4]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_comes_behind_the_last_message() {
        let fanout = fanout(100, 100);
        let mut reader = fanout.reader();
        fanout.push(1, 1).await;
        let closing = tokio::spawn({
            let fanout = fanout.clone();
            async move { fanout.close().await }
        });
        assert_eq!(reader.next().await, Some(1));
        assert_eq!(reader.next().await, None);
        assert!(!closing.is_finished());
        drop(reader);
        closing.await.unwrap();
    }
}
