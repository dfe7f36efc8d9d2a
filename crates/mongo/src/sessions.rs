//! Client sessions: their transactions, and the numbers of their writes.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tidemill_access::Principal;
use tidemill_engine::Transaction;

use crate::error::{Code, CommandError, Result};

/// Time after which a session that is not used is forgotten.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// Time after which an open transaction is taken back, as what it reads stays in memory.
const TRANSACTION_LIFETIME: Duration = Duration::from_secs(60);

/// Most sessions that are known at once. A driver has one for each operation at a time, so only one that makes up a new session for
/// each write gets here.
const SESSIONS_MAX: usize = 100_000;

/// All client sessions that have written something, by id.
#[derive(Default)]
pub(crate) struct ClientSessions(Mutex<HashMap<Bytes, OwnedSession>>);

/// A client session, and the user who has begun it.
struct OwnedSession {
    /// `None` for a client without a login; the first user who uses the session becomes its owner.
    owner: Option<Principal>,
    session: Arc<Mutex<LogicalSession>>,
}

/// A session, as it is listed.
pub(crate) struct ListedSession {
    pub id: Bytes,
    pub owner: Option<String>,
    /// The time for which it has not been used; none for one in use.
    pub idle: Duration,
}

/// A client session. A command of the session holds its lock.
pub(crate) struct LogicalSession {
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
    /// Returns the session `id`, which begins if it is new, for a client.
    ///
    /// Errors: there are too many, or it is that of a user whom the client does not manage.
    pub fn get(&self, id: &[u8], client: Option<&Principal>) -> Result<Arc<Mutex<LogicalSession>>> {
        let mut sessions = self.0.lock();
        if let Some(known) = sessions.get_mut(id) {
            known.check_owner(client)?;
            known.owner = known.owner.take().or_else(|| client.cloned());
            return Ok(known.session.clone());
        }
        if sessions.len() >= SESSIONS_MAX {
            let message =
                format!("{SESSIONS_MAX} sessions are open, which is the limit: end those that are not used");
            return Err(CommandError { code: 261, message });
        }
        let session =
            LogicalSession { number: -1, transaction: TransactionState::None, used: Instant::now() };
        let session = Arc::new(Mutex::new(session));
        let owned = OwnedSession { owner: client.cloned(), session: session.clone() };
        sessions.insert(Bytes::copy_from_slice(id), owned);
        Ok(session)
    }

    /// Returns the sessions.
    pub fn list(&self) -> Vec<ListedSession> {
        let sessions = self.0.lock();
        let idle = |session: &Mutex<LogicalSession>| session.try_lock().map(|session| session.used.elapsed());
        let listed = sessions.iter().map(|(id, known)| ListedSession {
            id: id.clone(),
            owner: known.owner.as_ref().map(|owner| owner.name().to_owned()),
            idle: idle(&known.session).unwrap_or_default(),
        });
        listed.collect()
    }

    /// Ends a session for a client; its open transaction is taken back. One that is not known has ended.
    ///
    /// Errors: it is that of a user whom the client does not manage.
    pub fn end(&self, id: &[u8], client: Option<&Principal>) -> Result<()> {
        let mut sessions = self.0.lock();
        if let Some(known) = sessions.get(id) {
            known.check_owner(client)?;
            sessions.remove(id);
        }
        Ok(())
    }

    /// Ends the sessions that were begun by one of those; their open transactions are taken back.
    pub fn end_of(&self, is_gone: impl Fn(&Principal) -> bool) {
        self.0.lock().retain(|_, known| known.owner.as_ref().is_none_or(|owner| !is_gone(owner)));
    }

    /// Ends all sessions.
    pub fn close_all(&self) {
        self.0.lock().clear();
    }

    /// Forgets idle sessions, and aborts transactions that have been open for too long.
    pub fn close_idle(&self) {
        self.0.lock().retain(|_, known| {
            // one that is locked is in use
            let Some(mut session) = known.session.try_lock() else { return true };
            if matches!(session.transaction, TransactionState::Open(_, since) if since.elapsed() > TRANSACTION_LIFETIME)
            {
                session.transaction = TransactionState::Aborted;
            }
            session.used.elapsed() < SESSION_TIMEOUT
        });
    }
}

impl OwnedSession {
    /// Refuses a client that does not manage the user who has begun the session.
    fn check_owner(&self, client: Option<&Principal>) -> Result<()> {
        let may_use = |owner: &Principal| client.is_some_and(|client| client.manages(owner.name()));
        match self.owner.as_ref().is_none_or(may_use) {
            true => Ok(()),
            false => {
                let message = "the session was not created by the authenticated user: only this user and administrators may \
                               continue or end it";
                Err(CommandError::new(Code::Unauthorized, message))
            }
        }
    }
}

impl LogicalSession {
    /// Notes that the session is used.
    pub fn touch(&mut self) {
        self.used = Instant::now();
    }
}
