//! The interface that a protocol implements.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::connection::Connection;

/// Beginning of the encryption on a listener that has a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encryption {
    /// The client begins with a TLS handshake; [`FrontEnd::serve`] gets the encrypted connection.
    FromTheStart,
    /// The client asks for it in the protocol, as those of PostgreSQL do; [`FrontEnd::serve`] gets the plain connection, and calls
    /// [`Connection::encrypt`].
    OnRequest,
}

/// A protocol. Its listeners share the value, so a client may continue on one what it began on another.
pub trait FrontEnd: Send + Sync + 'static {
    /// Returns the name of the protocol in settings, metrics, logs and errors: `http`, `mongodb`.
    fn protocol(&self) -> &'static str;

    /// Returns whether clients have to prove who they are. If they need not, only this machine may reach the listeners.
    fn requires_login(&self) -> bool;

    /// Returns how the encryption begins where there is a certificate.
    fn encryption(&self) -> Encryption {
        Encryption::FromTheStart
    }

    /// Returns the names of the protocol for clients that choose one during the TLS handshake (ALPN, RFC 7301), the preferred one first.
    /// A client that offers other names only is refused; one that offers none is served.
    fn alpn(&self) -> &'static [&'static [u8]] {
        &[]
    }

    /// Serves a connection until it ends.
    ///
    /// A client that needs a certificate has proven who it is by [`crate::Socket::client_certificate`]; the protocol decides who may do
    /// what. The implementation marks requests by [`crate::ConnectionHandle::begin`] and says by [`crate::ConnectionHandle::trust`] that
    /// the client is known. When [`crate::ConnectionHandle::draining`] returns, it finishes the requests in progress and returns.
    /// The future is dropped when the connection has to make room while it is idle, and when a drain takes longer than its grace
    /// period.
    fn serve(self: Arc<Self>, connection: Connection) -> BoxFuture<'static, ()>;

    /// Does what is due without a client: closes idle cursors, looks for changed rights. It is called about once a
    /// second for each listener while it accepts connections, on a thread of the runtime, so it must be short.
    fn tick(&self) {}

    /// Refuses new requests from now on. It is called once for each listener when a drain begins, before connections learn it.
    fn drain(&self) {}
}
