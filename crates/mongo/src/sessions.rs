//! Client sessions: their transactions, and the numbers of their writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_engine::Transaction;

use crate::error::{CommandError, Result};

/// Time after which a session that is not used is forgotten.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Time after which an open transaction is taken back, as what it reads stays in memory.
const TRANSACTION_LIFETIME: Duration = Duration::from_secs(60);

/// Most sessions that are known at once. A driver has one for each operation at a time, so only one that makes up a new session for
/// each write gets here.
const SESSIONS_MAX: usize = 100_000;

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

/// State of the last transaction of a session.
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
    /// Returns the session `id`, which begins if it is new. Errors: there are too many.
    pub fn get(&self, id: &[u8]) -> Result<Arc<Mutex<ClientSession>>> {
        let mut sessions = self.0.lock();
        if let Some(session) = sessions.get(id) {
            return Ok(session.clone());
        }
        if sessions.len() >= SESSIONS_MAX {
            let message =
                format!("{SESSIONS_MAX} sessions are open, which is the limit: end those that are not used");
            return Err(CommandError { code: 261, message });
        }
        let session = ClientSession { number: -1, transaction: TransactionState::None, used: Instant::now() };
        let session = Arc::new(Mutex::new(session));
        sessions.insert(Bytes::copy_from_slice(id), session.clone());
        Ok(session)
    }

    /// Returns the ids of the sessions, and for how long each has not been used. One in use counts as used now.
    pub fn ids(&self) -> Vec<(Bytes, Duration)> {
        let sessions = self.0.lock();
        let idle = |session: &Mutex<ClientSession>| session.try_lock().map(|session| session.used.elapsed());
        sessions.iter().map(|(id, session)| (id.clone(), idle(session).unwrap_or_default())).collect()
    }

    /// Ends a session; its open transaction is taken back.
    pub fn end(&self, id: &[u8]) {
        self.0.lock().remove(id);
    }

    /// Ends all sessions.
    pub fn close_all(&self) {
        self.0.lock().clear();
    }

    /// Forgets idle sessions, and aborts transactions that have been open for too long.
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
