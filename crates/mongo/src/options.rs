//! Settings of the listener.

use std::sync::Arc;
use std::time::Duration;

use tidemill_access::Access;

/// Settings of a listener. [`MongoOptions::default`] has every limit at its default and no password.
#[derive(Debug, Clone)]
pub struct MongoOptions {
    /// Password of the user `admin`. Without it and [`Self::access`], clients need not authenticate and have all rights, which is
    /// refused on an address that other machines can reach.
    pub password: Option<String>,
    /// Users beside `admin`.
    pub access: Option<Arc<Access>>,
    /// Maximum open connections of a listener that has no other limit. A further one evicts an idle one, those without a login first.
    pub connections_max: usize,
    /// Maximum open cursors of all connections.
    pub cursors_max: usize,
    /// Bytes that the open cursors of all connections may hold, at which no further cursor is opened: handles of documents, and
    /// the documents that the query has made.
    pub cursor_memory_max: usize,
    /// Bytes of messages that are on their way: requests above 64 KiB, and replies that their clients do not take at once. When
    /// they are reached, the slowest of these connections is closed.
    pub message_memory_max: usize,
    /// Time after which a command ends that does not say by `maxTimeMS` how long it may take.
    pub command_timeout: Duration,
    /// Bytes that one command may hold: documents that it sorts, groups, joins or makes.
    pub command_memory_max: usize,
    /// Bytes that all commands that run may hold.
    pub commands_memory_max: usize,
    /// Time after which a cursor that is not read is closed.
    pub cursor_timeout: Duration,
    /// Time after which a connection that has not authenticated is closed.
    pub login_timeout: Duration,
    /// Allows tests of drivers to inject errors, closed connections and delays by `configureFailPoint`. Any
    /// client that may call commands can then keep others from their work.
    pub test_commands: bool,
}

impl Default for MongoOptions {
    fn default() -> Self {
        Self {
            password: None,
            access: None,
            connections_max: 10_000,
            cursors_max: 10_000,
            cursor_memory_max: 1 << 30,
            message_memory_max: 1 << 30,
            command_timeout: Duration::from_secs(60),
            command_memory_max: 512 << 20,
            commands_memory_max: 2 << 30,
            cursor_timeout: Duration::from_secs(600),
            login_timeout: Duration::from_secs(30),
            test_commands: false,
        }
    }
}
