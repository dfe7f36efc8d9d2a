//! Keys of sessions, by which another connection ends a statement.
//!
//! The key proves the right to cancel, so a request needs no login, and a wrong one gets no answer. A request that comes when the
//! session runs nothing has no effect on what it runs later.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use subtle::ConstantTimeEq;
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

/// Bytes of a key before version 3.2 of the protocol, and from it on.
const KEY_BYTES: usize = 4;
const LONG_KEY_BYTES: usize = 32;

/// Sessions that can be told to end their statement, by number.
#[derive(Debug, Default)]
pub(crate) struct CancelKeys {
    sessions: Mutex<HashMap<u32, Arc<Entry>>>,
}

#[derive(Debug)]
struct Entry {
    key: Bytes,
    cancelled: Arc<Notify>,
}

/// A session that can be told to end its statement, until this is dropped.
pub(crate) struct CancelKey {
    keys: Arc<CancelKeys>,
    /// Number of the session.
    pub process: u32,
    entry: Arc<Entry>,
}

impl CancelKeys {
    /// Registers a session of a client that speaks this version of the protocol.
    pub fn register(self: &Arc<Self>, minor_version: u16) -> CancelKey {
        let random: [u8; LONG_KEY_BYTES] = rand::random();
        let bytes = if minor_version >= 2 { LONG_KEY_BYTES } else { KEY_BYTES };
        let key = Bytes::copy_from_slice(&random[..bytes]);
        let entry = Arc::new(Entry { key, cancelled: Arc::default() });
        let mut sessions = self.sessions.lock();
        loop {
            // positive, as drivers take it as signed
            let process = rand::random::<u32>() >> 1;
            if process != 0 && !sessions.contains_key(&process) {
                sessions.insert(process, entry.clone());
                return CancelKey { keys: self.clone(), process, entry };
            }
        }
    }

    /// Ends the statement of a session if the key is its own.
    pub fn cancel(&self, process: u32, key: &[u8]) {
        let entry = self.sessions.lock().get(&process).cloned();
        if let Some(entry) = entry.filter(|entry| entry.key.ct_eq(key).into()) {
            entry.cancelled.notify_waiters();
        }
    }
}

impl CancelKey {
    /// Returns the secret.
    pub fn key(&self) -> &[u8] {
        &self.entry.key
    }

    /// Returns a future that ends when a request to cancel comes from now on.
    pub fn cancelled(&self) -> OwnedNotified {
        // requests count from this call on, not from the first poll
        self.entry.cancelled.clone().notified_owned()
    }
}

impl Drop for CancelKey {
    fn drop(&mut self) {
        self.keys.sessions.lock().remove(&self.process);
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn only_the_key_cancels_and_only_what_runs() {
        let keys = Arc::new(CancelKeys::default());
        let (session, other) = (keys.register(0), keys.register(2));
        assert_eq!((session.key().len(), other.key().len()), (4, 32));
        keys.cancel(session.process, session.key());
        let mut running = Box::pin(session.cancelled());
        assert_eq!(running.as_mut().now_or_never(), None, "the request came before");
        keys.cancel(session.process, other.key());
        keys.cancel(other.process, session.key());
        keys.cancel(session.process, b"");
        assert_eq!(running.as_mut().now_or_never(), None);
        keys.cancel(session.process, session.key());
        assert_eq!(running.now_or_never(), Some(()));
        let process = other.process;
        drop(other);
        assert!(!keys.sessions.lock().contains_key(&process));
    }
}
