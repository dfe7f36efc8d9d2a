//! Sessions and their transactions.

use std::time::{Duration, Instant};

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, RawDocumentBuf, cstr, doc};
use tidemill_access::Principal;

use super::client::Client;
use super::core::encode;
use super::error::{Error, Result, TRANSIENT_TRANSACTION_ERROR, UNKNOWN_TRANSACTION_COMMIT_RESULT};

/// Time during which [`StartTransaction::and_run`] restarts the transaction and repeats the commit.
const RETRY_TIME_MAX: Duration = Duration::from_secs(120);
/// Maximum pause before it restarts the transaction.
const RETRY_PAUSE_MAX: Duration = Duration::from_millis(50);

/// A session, which has at most one transaction at a time. Dropping it takes an open transaction back.
pub struct ClientSession {
    client: Client,
    /// `{id: UUID}`.
    id: Document,
    /// Number of the last transaction, from 1.
    number: i64,
    state: State,
}

/// State of the last transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    None,
    /// It has begun, but no command of it has run.
    Starting,
    InProgress,
    /// `true` if commands of it have run.
    Committed(bool),
    Aborted,
}

impl ClientSession {
    pub(super) fn new(client: Client) -> Self {
        let bytes = rand::random::<[u8; 16]>().to_vec();
        let id = doc! { "id": Binary { subtype: BinarySubtype::Uuid, bytes } };
        Self { client, id, number: 0, state: State::None }
    }

    /// Returns the client.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Returns the id, `{id: UUID}`.
    pub fn id(&self) -> &Document {
        &self.id
    }

    /// Begins a transaction, which reads the documents of the moment of its first operation.
    pub fn start_transaction(&mut self) -> StartTransaction<'_> {
        StartTransaction { session: self }
    }

    /// Commits the transaction. It may be repeated.
    pub fn commit_transaction(&mut self) -> CommitTransaction<'_> {
        CommitTransaction { session: self }
    }

    /// Takes the transaction back.
    pub fn abort_transaction(&mut self) -> AbortTransaction<'_> {
        AbortTransaction { session: self }
    }

    /// Returns whether operations of this session belong to a transaction.
    pub(super) fn is_in_transaction(&self) -> bool {
        matches!(self.state, State::Starting | State::InProgress)
    }

    /// Appends the fields that make a command one of the transaction, if there is one.
    pub(super) fn append_to(&mut self, command: &mut RawDocumentBuf) -> Result<()> {
        if !self.is_in_transaction() {
            // an operation after the end of a transaction is not part of it, and ends its repetitions
            self.state = State::None;
            return Ok(());
        }
        command.append(cstr!("lsid"), encode(&self.id)?);
        command.append(cstr!("txnNumber"), self.number);
        command.append(cstr!("autocommit"), false);
        if self.state == State::Starting {
            command.append(cstr!("startTransaction"), true);
            self.state = State::InProgress;
        }
        Ok(())
    }

    /// Runs the command that ends the transaction.
    fn end(&self, name: &str) -> Result<()> {
        let command =
            doc! { name: 1, "lsid": self.id.clone(), "txnNumber": self.number, "autocommit": false };
        self.client.core.run("admin", None, command).map(|_| ())
    }

    fn start(&mut self) -> Result<()> {
        if self.is_in_transaction() {
            return Err(Error::invalid(
                "the session has a transaction in progress: commit or abort it first",
            ));
        }
        self.number += 1;
        self.state = State::Starting;
        Ok(())
    }

    fn commit(&mut self) -> Result<()> {
        match self.state {
            State::None => Err(Error::session("the session has no transaction")),
            State::Aborted => Err(Error::session("the transaction has been aborted")),
            State::Starting | State::Committed(false) => {
                self.state = State::Committed(false);
                Ok(())
            }
            State::InProgress | State::Committed(true) => {
                self.state = State::Committed(true);
                self.end("commitTransaction")
            }
        }
    }

    fn abort(&mut self) -> Result<()> {
        match self.state {
            State::None => Err(Error::session("the session has no transaction")),
            State::Aborted => Err(Error::session("the transaction has been aborted before")),
            State::Committed(_) => Err(Error::session("the transaction has been committed")),
            State::Starting => {
                self.state = State::Aborted;
                Ok(())
            }
            State::InProgress => {
                self.state = State::Aborted;
                // one that an error has taken back is aborted already
                let _ = self.end("abortTransaction");
                Ok(())
            }
        }
    }
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        let id = self.id.get("id");
        if let Some(Bson::Binary(id)) = id.filter(|_| self.number > 0) {
            // the system manages every session
            let _ = self.client.core.server.sessions.end(&id.bytes, Some(&Principal::system()));
        }
    }
}

impl std::fmt::Debug for ClientSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSession").field("id", &self.id).field("state", &self.state).finish()
    }
}

/// Begins a transaction: [`ClientSession::start_transaction`].
#[must_use]
pub struct StartTransaction<'a> {
    session: &'a mut ClientSession,
}

impl StartTransaction<'_> {
    /// Begins it. Errors: the session has one in progress.
    pub fn run(self) -> Result<()> {
        self.session.start()
    }

    /// Begins it, calls `callback` and commits. After an error with the label `TransientTransactionError`, such as a conflict with
    /// another writer, it begins again and calls `callback` once more, for at most 120 seconds. Another error takes the transaction
    /// back. A `callback` that commits or aborts the transaction itself ends it.
    ///
    /// Errors: those of `callback` and of the commit.
    pub fn and_run<R>(self, mut callback: impl FnMut(&mut ClientSession) -> Result<R>) -> Result<R> {
        let session = self.session;
        let started = Instant::now();
        for attempt in 1_u32.. {
            session.start()?;
            let outcome = callback(session);
            if outcome.is_err() && session.is_in_transaction() {
                session.abort()?;
            }
            let error = match outcome {
                Err(error) => error,
                Ok(value) if !session.is_in_transaction() => return Ok(value),
                Ok(value) => match commit_until(session, started) {
                    Ok(()) => return Ok(value),
                    Err(error) => error,
                },
            };
            if !error.contains_label(TRANSIENT_TRANSACTION_ERROR) || started.elapsed() >= RETRY_TIME_MAX {
                return Err(error);
            }
            pause(attempt);
        }
        unreachable!("the attempts end by time")
    }
}

/// Commits, and repeats it while its outcome is not known.
fn commit_until(session: &mut ClientSession, started: Instant) -> Result<()> {
    for attempt in 1_u32.. {
        match session.commit() {
            Err(error)
                if error.contains_label(UNKNOWN_TRANSACTION_COMMIT_RESULT)
                    && started.elapsed() < RETRY_TIME_MAX =>
            {
                pause(attempt);
            }
            outcome => return outcome,
        }
    }
    unreachable!("the attempts end by time")
}

/// Waits a random time, which grows, so that two transactions in conflict do not meet again and again.
fn pause(attempt: u32) {
    let most = RETRY_PAUSE_MAX.min(Duration::from_micros(200).saturating_mul(1 << attempt.min(16)));
    std::thread::sleep(most.mul_f64(rand::random::<f64>()));
}

/// Commits a transaction: [`ClientSession::commit_transaction`].
#[must_use]
pub struct CommitTransaction<'a> {
    session: &'a mut ClientSession,
}

impl CommitTransaction<'_> {
    /// Commits it, and waits until its writes are as safe as the setting `durability` says.
    ///
    /// Errors: no transaction is open, or an error has aborted it, with code 251; a label says what may be
    /// repeated.
    pub fn run(self) -> Result<()> {
        self.session.commit()
    }
}

/// Takes a transaction back: [`ClientSession::abort_transaction`].
#[must_use]
pub struct AbortTransaction<'a> {
    session: &'a mut ClientSession,
}

impl AbortTransaction<'_> {
    /// Aborts it. Errors: no transaction is open.
    pub fn run(self) -> Result<()> {
        self.session.abort()
    }
}
