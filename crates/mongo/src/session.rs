//! State of a connection between its commands.

use std::net::SocketAddr;

use crate::auth::Login;

/// State of a connection.
pub(crate) struct Session {
    pub connection_id: i32,
    pub peer: SocketAddr,
    /// Address that the client has reached.
    pub local: SocketAddr,
    /// True if no login is required.
    pub open: bool,
    pub authenticated: bool,
    /// The login in progress, and whether it ends without an empty message.
    pub login: Option<(Login, bool)>,
    /// True if a client that has logged in may send the empty message that ends the exchange.
    pub awaits_empty_message: bool,
    /// Name that the client has given itself in its first `hello`.
    pub application: Option<String>,
}

impl Session {
    /// Takes the state out, for the thread that runs a command; what is left is that of a client that has not logged in.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.connection_id, self.local, self.peer, false))
    }

    /// Creates the state of a new connection between the addresses `local` and `peer`. `open` disables the
    /// login.
    pub fn new(connection_id: i32, local: SocketAddr, peer: SocketAddr, open: bool) -> Self {
        Self {
            connection_id,
            peer,
            local,
            open,
            authenticated: open,
            login: None,
            awaits_empty_message: false,
            application: None,
        }
    }
}
