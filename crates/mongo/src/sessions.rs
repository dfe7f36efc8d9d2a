//! Client sessions: their transactions, and the numbers of their writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_engine::Transaction;

/// Time after which a session that nobody uses is forgotten.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Time after which an open transaction is taken back, as what it reads stays in memory.
const TRANSACTION_LIFETIME: Duration = Duration::from_secs(60);

/// All client sessions that have written something, by id.
#[derive(Default)]
pub(crate) struct ClientSessions(Mutex<HashMap<Bytes, Arc<Mutex<ClientSession>>>>);

/// A client session. A command of the session holds its lock.
pub(crate) struct ClientSession {
    /// Number of the last write or transaction.
    pub number: i64,
    pub transaction: TransactionState,
    used: Instant,
}

/// What became of the last transaction of a session.
pub(crate) enum TransactionState {
    /// There was none: the last number is that of a single write.
    None,
    Open(Box<Transaction>, Instant),
    Committed,
    Aborted,
    /// A command of the transaction is running.
    Running,
}

impl ClientSessions {
    /// Returns the session `id`, which begins if it is new.
    pub fn get(&self, id: &[u8]) -> Arc<Mutex<ClientSession>> {
        let mut sessions = self.0.lock();
        if let Some(session) = sessions.get(id) {
            return session.clone();
        }
        let session = ClientSession { number: -1, transaction: TransactionState::None, used: Instant::now() };
        let session = Arc::new(Mutex::new(session));
        sessions.insert(Bytes::copy_from_slice(id), session.clone());
        session
    }

    /// Ends a session; its open transaction is taken back.
    pub fn end(&self, id: &[u8]) {
        self.0.lock().remove(id);
    }

    /// Forgets the sessions that nobody uses, and takes back transactions that have been open for too long.
    pub fn close_idle(&self) {
        self.0.lock().retain(|_, session| {
            // one that is locked is in use
            let Some(mut session) = session.try_lock() else { return true };
            if matches!(session.transaction, TransactionState::Open(_, since) if since.elapsed() > TRANSACTION_LIFETIME)
            {
                session.transaction = TransactionState::Aborted;
            }
            session.used.elapsed() < SESSION_TIMEOUT
        });
    }
}

impl ClientSession {
    /// Notes that the session is used.
    pub fn touch(&mut self) {
        self.used = Instant::now();
    }
}
