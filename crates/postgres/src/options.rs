//! Settings of a listener.

use std::sync::Arc;
use std::time::Duration;

use tidemill_access::Access;

/// Settings of a listener. [`PostgresOptions::default`] has every limit at its default and no password.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// Password of the user `admin`. Without it and [`Self::access`], clients need not log in and have all rights, which is refused on an
    /// address that other machines can reach.
    pub password: Option<String>,
    /// Users beside `admin`.
    pub access: Option<Arc<Access>>,
    /// Maximum open connections of a listener that has no other limit.
    pub connections_max: usize,
    /// Maximum bytes of a message of a client that has logged in.
    pub message_bytes_max: usize,
    /// Bytes that messages larger than 64 KiB of all connections may hold while they arrive.
    pub message_memory_max: usize,
    /// Maximum prepared statements of a connection.
    pub statements_max: usize,
    /// Maximum open portals and cursors of a connection.
    pub portals_max: usize,
    /// Bytes of statements and of values that the portals and statements of a connection may hold.
    pub session_memory_max: usize,
    /// Bytes of the events that a transaction, or a `COPY` outside of one, may hold until they are appended.
    pub transaction_bytes_max: usize,
    /// Bytes of such events of all connections.
    pub transactions_memory_max: usize,
    /// Time within which a client has to log in.
    pub login_timeout: Duration,
    /// Time within which a message must arrive once it has begun, and within which a client has to take some of its rows.
    pub transfer_timeout: Duration,
    /// Maximum time for which a client may leave a transaction open without a statement.
    pub idle_transaction_timeout: Duration,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            password: None,
            access: None,
            connections_max: 1_024,
            message_bytes_max: 64 << 20,
            message_memory_max: 256 << 20,
            statements_max: 4_096,
            portals_max: 256,
            session_memory_max: 64 << 20,
            transaction_bytes_max: 256 << 20,
            transactions_memory_max: 512 << 20,
            login_timeout: Duration::from_secs(30),
            transfer_timeout: Duration::from_secs(60),
            idle_transaction_timeout: Duration::from_secs(600),
        }
    }
}
