//! Settings of the listener.

use std::time::Duration;

/// Settings of a listener. [`MongoOptions::default`] has every limit at its default and no password.
#[derive(Debug, Clone)]
pub struct MongoOptions {
    /// Password of the user `admin`. Without one nobody has to authenticate, which is refused on an address that other machines
    /// can reach.
    pub password: Option<String>,
    /// Maximum open connections; further ones wait to be accepted.
    pub connections_max: usize,
    /// Maximum open cursors of all connections.
    pub cursors_max: usize,
    /// Time after which a cursor that nobody reads is closed.
    pub cursor_timeout: Duration,
    /// Time after which a connection that has not authenticated is closed.
    pub login_timeout: Duration,
}

impl Default for MongoOptions {
    fn default() -> Self {
        Self {
            password: None,
            connections_max: 10_000,
            cursors_max: 10_000,
            cursor_timeout: Duration::from_secs(600),
            login_timeout: Duration::from_secs(30),
        }
    }
}
