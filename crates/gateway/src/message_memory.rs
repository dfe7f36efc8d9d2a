//! Memory of messages that are on their way: large requests that arrive, and replies that their clients do not take at once.
//!
//! A client decides how fast it sends and reads, so without a limit 10,000 slow clients could make the server
//! hold as many large messages. When the limit is reached, the message without progress for the longest
//! time gives way: its connection is closed, as its client is the slowest. So a client that reads gets its
//! answer, whatever the others do.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidemill_types::{Error, Result};
use tokio::sync::Notify;

/// The messages on their way, and their limit.
#[derive(Debug)]
pub struct MessageMemory {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    next: u64,
    messages: HashMap<u64, ReservedMessage>,
}

#[derive(Debug)]
struct ReservedMessage {
    bytes: usize,
    /// When bytes of it were sent or taken last, as a number that grows.
    moved: u64,
    /// Tells the connection that it has to close; `None` for a request whose command runs.
    evicted: Option<Arc<Notify>>,
}

/// A message on its way. Its memory is given back when this is dropped.
#[derive(Debug)]
pub struct HeldMessage {
    memory: Arc<MessageMemory>,
    number: u64,
    evicted: Arc<Notify>,
}

impl MessageMemory {
    /// Creates the memory, of at most `most` bytes.
    pub fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, state: Mutex::default() })
    }

    /// Begins a message without bytes.
    pub fn begin(self: &Arc<Self>) -> HeldMessage {
        let mut state = self.state.lock();
        state.next += 1;
        let number = state.next;
        let evicted = Arc::new(Notify::new());
        state
            .messages
            .insert(number, ReservedMessage { bytes: 0, moved: number, evicted: Some(evicted.clone()) });
        HeldMessage { memory: self.clone(), number, evicted }
    }

    /// Returns the bytes that are held.
    #[cfg(test)]
    fn held(&self) -> usize {
        self.state.lock().held
    }
}

impl HeldMessage {
    /// Holds more bytes, for which others give way if the memory is exhausted.
    ///
    /// Errors: this message has given way itself, or the requests whose commands run leave no room.
    pub fn grow(&self, bytes: usize) -> Result<()> {
        let mut state = self.memory.state.lock();
        while state.held.saturating_add(bytes) > self.memory.most {
            let slowest = state
                .messages
                .iter()
                .filter(|(number, message)| {
                    **number != self.number && message.bytes > 0 && message.evicted.is_some()
                })
                .min_by_key(|(_, message)| message.moved)
                .map(|(number, _)| *number);
            let Some(message) = slowest.and_then(|number| state.messages.remove(&number)) else {
                return Err(self.full());
            };
            state.held -= message.bytes;
            if let Some(evicted) = message.evicted {
                evicted.notify_one();
            }
        }
        let Some(message) = state.messages.get_mut(&self.number) else { return Err(self.full()) };
        message.bytes += bytes;
        state.held += bytes;
        drop(state);
        self.moved();
        Ok(())
    }

    /// Notes that bytes of the message were sent or taken.
    pub fn moved(&self) {
        let mut state = self.memory.state.lock();
        state.next += 1;
        let now = state.next;
        if let Some(message) = state.messages.get_mut(&self.number) {
            message.moved = now;
        }
    }

    /// Notes that the message has arrived and its command runs, so that it does not give way any more.
    ///
    /// Errors: it has given way before.
    pub fn settle(&self) -> Result<()> {
        match self.memory.state.lock().messages.get_mut(&self.number) {
            Some(message) => {
                message.evicted = None;
                Ok(())
            }
            None => Err(self.full()),
        }
    }

    /// Waits until the message has to give way.
    pub async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Returns the error for a message that has to give way.
    pub fn full(&self) -> Error {
        let message = format!(
            "messages on their way need more than {} bytes of memory (setting message_memory_max), and this one is the slowest: \
             the connection is closed",
            self.memory.most
        );
        Error::limit(message)
    }
}

impl Drop for HeldMessage {
    fn drop(&mut self) {
        let mut state = self.memory.state.lock();
        if let Some(message) = state.messages.remove(&self.number) {
            state.held -= message.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use tidemill_types::ErrorKind;

    use super::*;

    #[test]
    fn the_message_that_rests_for_longest_gives_way() {
        let memory = MessageMemory::new(100);
        let (slow, fast) = (memory.begin(), memory.begin());
        fast.grow(40).unwrap();
        slow.grow(60).unwrap();
        fast.moved();
        let new = memory.begin();
        new.grow(1).unwrap();
        assert_eq!(memory.held(), 41);
        assert_eq!(slow.grow(1).unwrap_err().kind(), ErrorKind::LimitReached);
        drop(slow);
        fast.grow(1).unwrap();
        drop(fast);
        drop(new);
        assert_eq!(memory.held(), 0);
    }

    #[test]
    fn a_request_that_runs_does_not_give_way() {
        let memory = MessageMemory::new(100);
        let (running, late) = (memory.begin(), memory.begin());
        running.grow(90).unwrap();
        running.settle().unwrap();
        late.grow(10).unwrap();
        let error = late.grow(1).unwrap_err();
        assert!(error.message().contains("message_memory_max"), "{error}");
        drop(running);
        late.grow(90).unwrap();
        assert_eq!(memory.held(), 100);
    }
}
