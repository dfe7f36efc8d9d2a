//! A connection: reads a message, does what it asks, writes the replies.
//!
//! A message `Query` is answered at once. Those of the extended protocol (`Parse`, `Bind`, `Describe`, `Execute`) are answered into the
//! output, which is sent at `Sync` or `Flush`; after an error, all of them are skipped up to `Sync`.

mod append;
mod execute;
mod extended;
mod prepare;
mod receive;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidemill_gateway::{ActiveRequest, ConnectionHandle};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::error::{PgError, Result, code};
use crate::handshake::Started;
use crate::messages::input::Message;
use crate::messages::output::{self, TransactionStatus};
use crate::messages::wire::{OUTPUT_BYTES, Wire};
use crate::session::Session;
use crate::settings::IDLE_TRANSACTION_TIMEOUT;
use crate::shared::ServerState;

/// Time in which the last message of a connection that is closed must be taken.
const LAST_WORD_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves a session until the client closes the connection, the server stops, or its user or password has changed.
pub(crate) async fn serve(started: Started, shared: Arc<ServerState>) {
    let Started { wire, handle, peer, principal, settings, key } = started;
    let session = Session::new(principal, settings, key, &shared);
    let access = shared.access_changes();
    let server = Connection { shared, wire, session, handle, peer, access, is_skipping: false };
    server.run().await;
}

/// A connection whose client has logged in.
struct Connection {
    shared: Arc<ServerState>,
    wire: Wire,
    session: Session,
    handle: ConnectionHandle,
    peer: SocketAddr,
    /// Changes of users, passwords and grants.
    access: watch::Receiver<u64>,
    /// True after an error of the extended protocol, until `Sync`.
    is_skipping: bool,
}

impl Connection {
    /// Processes messages, and tells the client why the connection ends.
    async fn run(mut self) {
        let Err(error) = self.process_messages().await else { return };
        tracing::debug!(peer = %self.peer, "{}: the connection is closed", error.message);
        if error.code == code::CONNECTION_FAILURE {
            return;
        }
        let is_idle = !self.wire.has_input() && !self.is_busy();
        output::error(&mut self.wire.output, &error);
        // it may have gone
        let _ = timeout(LAST_WORD_TIMEOUT, self.wire.flush()).await;
        if !is_idle {
            self.wire.close().await;
        }
    }

    /// Processes messages until the client closes the connection, or it makes room for another one. Errors: fatal.
    async fn process_messages(&mut self) -> Result<()> {
        // busy from a message to `ReadyForQuery` outside of a transaction
        let mut active: Option<ActiveRequest> = None;
        loop {
            if !self.is_busy() {
                active = None;
            }
            let Some(message) = self.next_message(active.is_some()).await? else { return Ok(()) };
            if active.is_none() {
                // a connection that makes room for another one does nothing any more
                active = self.handle.begin();
                if active.is_none() {
                    return Ok(());
                }
            }
            let done = match self.session.renew(self.shared.options.access.as_deref()) {
                Ok(()) => self.process(message).await,
                Err(error) => Err(error),
            };
            self.wire.release();
            if !done? {
                return Ok(());
            }
        }
    }

    /// Returns whether replies are owed, or a transaction is open. Such a connection does not make room for others, so it may not
    /// rest for long.
    fn is_busy(&self) -> bool {
        self.session.transaction.is_open()
            || self.is_skipping
            || !self.wire.output.is_empty()
            || !self.session.pending.is_empty()
    }

    /// Waits for the next message. Returns `None` if the client has closed the connection.
    ///
    /// Errors: fatal: the message cannot be, the server stops, the user has gone, a transaction was left open for too long.
    async fn next_message(&mut self, is_active: bool) -> Result<Option<Message>> {
        let options = &self.shared.options;
        let bytes_max = options.message_bytes_max;
        let idle_since = Instant::now();
        let mut began = None;
        loop {
            if let Some((letter, content)) = self.wire.take(bytes_max)? {
                return Message::decode(letter, content).map(Some);
            }
            let has_input = self.wire.has_input();
            if has_input && !is_active {
                self.handle.arriving();
            }
            let began = has_input.then(|| *began.get_or_insert_with(Instant::now));
            let own_limit = self.session.settings.duration(IDLE_TRANSACTION_TIMEOUT);
            let idle_limit = own_limit
                .map_or(options.idle_transaction_timeout, |own| own.min(options.idle_transaction_timeout));
            let (deadline, error) = match began {
                Some(began) => (
                    Some(began + options.transfer_timeout),
                    PgError::protocol("a message did not arrive in time"),
                ),
                None => {
                    let is_busy = self.is_busy();
                    let error = PgError::fatal(
                        code::IDLE_IN_TRANSACTION,
                        "terminating connection due to idle-in-transaction timeout",
                    );
                    (is_busy.then(|| idle_since + idle_limit), error)
                }
            };
            let late = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = self.handle.draining() => {
                    return Err(PgError::fatal(
                        code::SHUTDOWN,
                        "terminating connection due to administrator command",
                    ));
                }
                _ = self.access.changed() => self.session.renew(options.access.as_deref())?,
                () = late => return Err(error),
                read = self.wire.fill() => match read? {
                    true => {}
                    false => return Ok(None),
                },
            }
        }
    }

    /// Does what a message asks. Returns false if the connection ends.
    ///
    /// Errors: fatal.
    async fn process(&mut self, message: Message) -> Result<bool> {
        if self.is_skipping && !matches!(message, Message::Sync | Message::Terminate) {
            return Ok(true);
        }
        match message {
            Message::Query(text) => self.simple_query(&text).await?,
            Message::Sync => {
                self.is_skipping = false;
                // what the messages before it have sent is one transaction
                if let Err(error) = self.end_implicit_transaction().await {
                    self.fail(&error)?;
                }
                self.session.close_portals();
                self.ready().await?;
            }
            Message::Flush => self.wire.flush().await?,
            Message::Terminate => return Ok(false),
            // a client may not have heard yet that its copy has failed
            Message::CopyData(_) | Message::CopyDone | Message::CopyFail(_) => {}
            Message::Password => return Err(PgError::protocol("the login is over")),
            other => {
                let done = self.extended(other).await;
                if let Err(error) = &done {
                    self.fail(error)?;
                    self.is_skipping = true;
                }
                // A client that asks for replies by `Flush`, which is skipped now, sends `Sync` when it has the error. One that
                // never sends `Sync` does not make the replies grow.
                if done.is_err() || self.wire.output.len() >= OUTPUT_BYTES {
                    self.wire.flush().await?;
                }
            }
        }
        Ok(true)
    }

    /// Tells the client that a statement has failed.
    ///
    /// Errors: the error, if the connection has to end.
    fn fail(&mut self, error: &PgError) -> Result<()> {
        if error.is_fatal() {
            return Err(error.clone());
        }
        tracing::debug!(peer = %self.peer, code = error.code, "{}", error.message);
        output::error(&mut self.wire.output, error);
        self.session.transaction.fail();
        if !self.session.transaction.is_open() {
            self.session.pending.truncate(0);
        }
        Ok(())
    }

    /// Tells the client that the next statement may come, and sends all replies.
    async fn ready(&mut self) -> Result<()> {
        let status: TransactionStatus = self.session.transaction.status();
        output::ready_for_query(&mut self.wire.output, status);
        self.wire.flush().await
    }
}
