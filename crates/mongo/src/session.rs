//! State of a connection between its commands.

use std::net::SocketAddr;

use tidemill_access::{Access, Action, Principal, Resource};

use crate::auth::ScramLogin;

/// State of a connection.
pub(crate) struct Session {
    pub connection_id: i32,
    pub peer: SocketAddr,
    /// Address that the client has reached.
    pub local: SocketAddr,
    /// The client where no login is required.
    open: Option<Principal>,
    /// The client, once it has logged in.
    pub principal: Option<Principal>,
    /// Number of the content of the file of users with which the principal agrees.
    generation: u64,
    /// The login in progress, and whether it ends without an empty message.
    pub login: Option<(ScramLogin, bool)>,
    /// True if a client that has logged in may send the empty message that ends the exchange.
    pub awaits_empty_message: bool,
    /// Name that the client has given itself in its first `hello`.
    pub application: Option<String>,
}

impl Session {
    /// Takes the state out, for the thread that runs a command; what is left is that of a client that has not logged in.
    pub fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.connection_id, self.local, self.peer, None))
    }

    /// Creates the state of a new connection between the addresses `local` and `peer`. `open` is the client
    /// where no login is required.
    pub fn new(connection_id: i32, local: SocketAddr, peer: SocketAddr, open: Option<Principal>) -> Self {
        Self {
            connection_id,
            peer,
            local,
            principal: open.clone(),
            open,
            generation: 0,
            login: None,
            awaits_empty_message: false,
            application: None,
        }
    }

    /// Returns whether the client may call commands that need a login.
    pub fn is_authenticated(&self) -> bool {
        self.principal.is_some()
    }

    /// Ends the login of the client.
    pub fn log_out(&mut self) {
        self.principal = self.open.clone();
    }

    /// Gives the client its present rights, which may have changed since its last command. One whose user was removed, or whose
    /// password was changed, is logged out.
    pub fn renew(&mut self, access: Option<&Access>) {
        let Some((access, principal)) = access.zip(self.principal.as_ref()) else { return };
        let generation = access.generation();
        if generation != self.generation {
            self.generation = generation;
            self.principal = access.renew(principal);
        }
    }

    /// Returns whether the client had logged in and would not be let in any more. It is logged out then.
    pub fn is_logged_out(&mut self, access: Option<&Access>) -> bool {
        let had_logged_in = self.is_authenticated();
        self.renew(access);
        had_logged_in && !self.is_authenticated()
    }

    /// Returns whether the client may read the collection that the store knows by this name.
    pub fn can_read(&self, stored: &str) -> bool {
        self.can(Action::Read, &Resource::collection(stored))
    }

    /// Returns whether the client may write the collection that the store knows by this name.
    pub fn can_write(&self, stored: &str) -> bool {
        self.can(Action::Write, &Resource::collection(stored))
    }

    /// Returns whether the client may read all collections of a database.
    pub fn can_read_database(&self, name: &str) -> bool {
        self.can(Action::Read, &Resource::database(name))
    }

    fn can(&self, action: Action, resource: &Resource<'_>) -> bool {
        self.principal.as_ref().is_some_and(|principal| principal.can(action, resource))
    }

    /// Returns whether the client may see and end what the user of this name does.
    pub fn manages(&self, user: &str) -> bool {
        self.principal.as_ref().is_some_and(|principal| principal.manages(user))
    }
}
